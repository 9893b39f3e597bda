-- One row per (model, dataset, heuristic): the prediction bias at the threshold chosen (P3), in points (0 to 100).
-- threshold: fixed by the spec, or searched on the predictions of `searched_on`: in the variant paper those of the
-- first model of the spec that finds one, for all models, readers that the run trained before the others and people
-- never; in reference each model's own. Bounds, means and *_f1 are as in qa_bias_candidates; worse_high is the upper
-- bound of the segment with the smaller one. status: 'measured'; 'not significant': no threshold separates the
-- segments, the significance is 0; 'groups too small' (of the threshold, or of every one tried) and 'no threshold to
-- try' (the values do not differ): it is null. Without a threshold, that of F1 is not measured, and null. A
-- significance above 0 may be chance: qa_bias_tests tells. lower_exact_match, higher_exact_match, lower_f1, higher_f1:
-- means over all rows of the segments, not over trials; difference: lower minus higher, with a 95 % interval whose
-- error is clustered by article, of which these rows have n_articles: Student's t, with one degree of freedom less than
-- the articles of the segment that has fewer. It is null where a segment lies in a single article, and takes the
-- threshold as given: at one that a search found it is not corrected for the search, which picks large differences
-- (simulated, it covers 33 to 76 % where there is no bias), so that it may be shown only of a bias that qa_bias_tests
-- supports. n_tried: thresholds of the search, of which n_tried_measured had segments of the sample's size; null where
-- the spec fixes the threshold.
with
asked as (
    select predicted.model, predicted.dataset, unnest(qa_settings.heuristics) as heuristic, predicted.n_rows
    from (select model, dataset, count(*) as n_rows from qa_predictions group by all) as predicted
    cross join qa_settings
),

lists as (
    select
        model, dataset, heuristic, bool_or(is_fixed) as is_fixed, bool_or(is_measured) as is_measured,
        count(*) as n_tried,
        count(*) filter (qa_bias_candidates.is_measured) as n_tried_measured,
        list({
            'threshold': threshold,
            'distance': bias_significance,
            'n_lower': n_lower,
            'n_higher': n_higher
        } order by threshold) as candidates
    from qa_bias_candidates
    group by all
),

searched as (
    select
        lists.* exclude (candidates),
        case
            when lists.is_fixed then lists.candidates[1].threshold
            when qa_settings.variant = 'reference' then reference_threshold(lists.candidates, qa_settings.sample)
            else paper_threshold(lists.candidates, qa_settings.sample)
        end as threshold
    from lists
    cross join qa_settings
),

-- Those of the first model that finds one are kept for all (P3), unless each is to find its own (its code).
sources as (
    select
        searched.dataset, searched.heuristic,
        arg_min(searched.model, (not qa_models.is_trained, qa_models.number)) as first_model
    from searched
    inner join qa_models using (model)
    where searched.threshold is not null and not qa_models.is_people
    group by all
),

chosen as (
    select
        asked.*, source.threshold,
        case when source.is_fixed then null else source.model end as searched_on,
        case when source.is_fixed then null else source.n_tried end as n_tried,
        case when source.is_fixed then null else source.n_tried_measured end as n_tried_measured,
        own.model is not null as has_candidates, coalesce(own.is_measured, false) as has_measured_candidates
    from asked
    cross join qa_settings
    left join sources using (dataset, heuristic)
    left join searched as own using (model, dataset, heuristic)
    left join searched as source
        on
            asked.dataset = source.dataset and asked.heuristic = source.heuristic and source.model = case
                when qa_settings.variant = 'reference' then asked.model
                else coalesce(sources.first_model, asked.model)
            end
),

labelled as (
    select
        chosen.*, coalesce(measured_counts.n_measured, 0) as n_measured,
        case
            when not chosen.has_candidates then 'no threshold to try'
            when chosen.threshold is null and not chosen.has_measured_candidates then 'groups too small'
            when chosen.threshold is null then 'not significant'
            when not candidates.is_measured then 'groups too small'
            else 'measured'
        end as status,
        candidates.* exclude (model, dataset, heuristic, threshold, is_fixed, is_measured)
    from chosen
    left join (select model, dataset, heuristic, count(*) as n_measured from qa_measured group by all) as measured_counts
        using (model, dataset, heuristic)
    left join qa_bias_candidates as candidates using (model, dataset, heuristic, threshold)
),

articles as (
    select
        model, dataset, heuristic, article, count(*) filter (is_lower) as n_lower,
        count(*) filter (not is_lower) as n_higher,
        coalesce(sum(exact_match order by row) filter (is_lower), 0) as lower,
        coalesce(sum(exact_match order by row) filter (not is_lower), 0) as higher,
        coalesce(sum(f1 order by row) filter (is_lower), 0) as lower_f1,
        coalesce(sum(f1 order by row) filter (not is_lower), 0) as higher_f1
    from (
        select qa_measured.*, article, qa_measured.value <= labelled.threshold as is_lower
        from qa_measured
        inner join labelled using (model, dataset, heuristic)
        inner join qa_articles using (dataset, example_id)
        where labelled.status = 'measured'
    )
    group by all
),

means as (
    select
        model, dataset, heuristic, sum(n_lower) as n_lower, sum(n_higher) as n_higher,
        sum(lower order by article) / sum(n_lower) as lower, sum(higher order by article) / sum(n_higher) as higher,
        sum(lower_f1 order by article) / sum(n_lower) as lower_f1,
        sum(higher_f1 order by article) / sum(n_higher) as higher_f1, count(*) as n_articles,
        count(*) filter (articles.n_lower > 0) as n_with_lower,
        count(*) filter (articles.n_higher > 0) as n_with_higher,
        sqrt(n_with_lower / nullif(n_with_lower - 1, 0)) as lower_scale,
        sqrt(n_with_higher / nullif(n_with_higher - 1, 0)) as higher_scale
    from articles
    group by all
),

-- How far each article moves the difference. Where every question is its own article, errors are Welch's.
influences as (
    select
        model, dataset, heuristic, articles.article,
        (articles.lower - articles.n_lower * means.lower) / means.n_lower * lower_scale
        - (articles.higher - articles.n_higher * means.higher) / means.n_higher * higher_scale as influence,
        (articles.lower_f1 - articles.n_lower * means.lower_f1) / means.n_lower * lower_scale
        - (articles.higher_f1 - articles.n_higher * means.higher_f1) / means.n_higher * higher_scale as influence_f1
    from articles
    inner join means using (model, dataset, heuristic)
),

errors as (
    select
        model, dataset, heuristic,
        100 * sqrt(sum(power(influence, 2) order by article)) as error,
        100 * sqrt(sum(power(influence_f1, 2) order by article)) as error_f1
    from influences
    group by all
),

differences as (
    select
        model, dataset, heuristic, 100 * means.lower as lower_exact_match, 100 * means.higher as higher_exact_match,
        100 * means.lower_f1 as lower_f1, 100 * means.higher_f1 as higher_f1,
        100 * means.lower - 100 * means.higher as difference,
        t_quantile(least(means.n_with_lower, means.n_with_higher) - 1) * errors.error as half_width,
        100 * means.lower_f1 - 100 * means.higher_f1 as difference_f1,
        t_quantile(least(means.n_with_lower, means.n_with_higher) - 1) * errors.error_f1 as half_width_f1,
        means.n_articles
    from means
    inner join errors using (model, dataset, heuristic)
)

select
    model, dataset, heuristic, threshold, status, searched_on, n_lower, n_higher, n_rows - n_measured as n_unmeasured,
    n_rows, is_large,
    if(status = 'not significant', 0, bias_significance) as bias_significance,
    biased_segment, lower_low, lower_high, lower_mean, higher_low, higher_high, higher_mean,
    least(lower_high, higher_high) as worse_high,
    differences.lower_exact_match, differences.higher_exact_match, differences.difference,
    differences.difference - differences.half_width as difference_low,
    differences.difference + differences.half_width as difference_high,
    bias_significance_f1, lower_low_f1, lower_high_f1, lower_mean_f1, higher_low_f1, higher_high_f1, higher_mean_f1,
    least(lower_high_f1, higher_high_f1) as worse_high_f1,
    differences.lower_f1, differences.higher_f1, differences.difference_f1,
    differences.difference_f1 - differences.half_width_f1 as difference_low_f1,
    differences.difference_f1 + differences.half_width_f1 as difference_high_f1,
    n_trials, n_tried, n_tried_measured, differences.n_articles
from labelled
left join differences using (model, dataset, heuristic)
order by all
