-- One row per (model, dataset, heuristic, threshold): its segments, and how far apart they lie, in points (0 to 100).
-- lower: value <= threshold. lower_low, lower_high: the middle 95 % of the trials' mean exact match in that segment;
-- lower_mean: their mean; *_f1: the same of F1. All are null unless both segments have `sample` questions.
-- biased_segment: the one with the larger upper bound (exact match; higher on ties). is_large: both segments have
-- twice the sample (variant paper) or more than that (reference).
with
cumulated as (
    select
        model, dataset, heuristic, value,
        sum(count(*)) over (partition by model, dataset, heuristic order by value)::bigint as n_up_to,
        sum(count(*)) over (partition by model, dataset, heuristic)::bigint as n_measured
    from qa_measured
    group by model, dataset, heuristic, value
),

tried as (
    select model, dataset, qa_thresholds.heuristic, qa_thresholds.threshold, qa_thresholds.is_fixed
    from qa_thresholds
    inner join (select distinct model, dataset from qa_predictions) using (dataset)
),

sized as (
    select tried.*, coalesce(cumulated.n_up_to, 0) as n_lower
    from tried
    asof left join cumulated
        on
            tried.model = cumulated.model and tried.dataset = cumulated.dataset
            and tried.heuristic = cumulated.heuristic
            and tried.threshold >= cumulated.value
),

segments as (
    select sized.*, coalesce(totals.n_measured, 0) - sized.n_lower as n_higher
    from sized
    left join (select distinct model, dataset, heuristic, n_measured from cumulated) as totals
        using (model, dataset, heuristic)
),

trials as (
    select
        model, dataset, heuristic, threshold,
        quantile_cont(100 * exact_match, [0.025, 0.975]) filter (segment = 'lower') as lower_interval,
        quantile_cont(100 * exact_match, [0.025, 0.975]) filter (segment = 'higher') as higher_interval,
        100 * avg(exact_match order by trial) filter (segment = 'lower') as lower_mean,
        100 * avg(exact_match order by trial) filter (segment = 'higher') as higher_mean,
        quantile_cont(100 * f1, [0.025, 0.975]) filter (segment = 'lower') as lower_interval_f1,
        quantile_cont(100 * f1, [0.025, 0.975]) filter (segment = 'higher') as higher_interval_f1,
        100 * avg(f1 order by trial) filter (segment = 'lower') as lower_mean_f1,
        100 * avg(f1 order by trial) filter (segment = 'higher') as higher_mean_f1,
        max(trial) + 1 as n_trials
    from qa_draws
    group by all
)

select
    model, dataset, heuristic, threshold, segments.is_fixed, segments.n_lower, segments.n_higher,
    least(segments.n_lower, segments.n_higher) >= qa_settings.sample as is_measured,
    case qa_settings.variant
        when 'reference' then least(segments.n_lower, segments.n_higher) > 2 * qa_settings.sample
        else least(segments.n_lower, segments.n_higher) >= 2 * qa_settings.sample
    end as is_large,
    interval_distance(trials.lower_interval, trials.higher_interval) as bias_significance,
    if(trials.lower_interval[2] > trials.higher_interval[2], 'lower', if(trials.model is null, null, 'higher'))
        as biased_segment,
    trials.lower_interval[1] as lower_low, trials.lower_interval[2] as lower_high, trials.lower_mean,
    trials.higher_interval[1] as higher_low, trials.higher_interval[2] as higher_high, trials.higher_mean,
    interval_distance(trials.lower_interval_f1, trials.higher_interval_f1) as bias_significance_f1,
    trials.lower_interval_f1[1] as lower_low_f1, trials.lower_interval_f1[2] as lower_high_f1, trials.lower_mean_f1,
    trials.higher_interval_f1[1] as higher_low_f1, trials.higher_interval_f1[2] as higher_high_f1,
    trials.higher_mean_f1, trials.n_trials
from segments
left join trials using (model, dataset, heuristic, threshold)
cross join qa_settings
order by all
