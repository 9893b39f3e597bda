-- One row per (scope, rule, sample) of a search of thresholds.*: the threshold that a rule chooses (P3; protocol,
-- section 5). rule: paper, by P3's text; reference, by its code. sample: choice, the data that a search chooses on;
-- all, all questions, as published. threshold: null where none is significant; bias_significance is 0 there, and of the
-- sample itself elsewhere. evaluation: the bias significance at this threshold on the half that did not choose it, with
-- its interval (95 %, by leaving out groups of articles); null of all, and where a segment is too small there.
with
tried as (
    select
        trial, scope, sample, number as threshold,
        max(trial_values.value) filter (objective = 'bias_significance') as distance,
        (max(trial_values.value) filter (objective = 'n_lower'))::bigint as n_lower,
        (max(trial_values.value) filter (objective = 'n_higher'))::bigint as n_higher,
        (max(trial_values.value) filter (objective = 'sample'))::bigint as n_drawn
    from trial_values
    inner join search_parameters using (trial)
    where left_out is null and key = 'thresholds.*'
    group by all
    having n_drawn is not null
),

lists as (
    select
        scope, sample, any_value(n_drawn) as n_drawn, count(distance) as n_measured,
        list({'threshold': threshold, 'distance': distance, 'n_lower': n_lower, 'n_higher': n_higher} order by threshold)
            as candidates
    from tried
    where sample <> 'evaluation'
    group by all
),

chosen as (
    select scope, 'paper' as rule, sample, n_measured, paper_threshold(candidates, n_drawn) as threshold
    from lists
    union all
    select scope, 'reference' as rule, sample, n_measured, reference_threshold(candidates, n_drawn) as threshold
    from lists
),

evaluated as (
    select trial, scope, value, quantile * error as reach
    from search_values
    where sample = 'evaluation' and objective = 'bias_significance'
)

select
    chosen.scope, chosen.rule, chosen.sample, chosen.threshold, tried.trial,
    if(chosen.threshold is null and chosen.n_measured > 0, 0, tried.distance) as bias_significance,
    tried.n_lower, tried.n_higher,
    if(chosen.sample = 'choice', evaluated.value, null) as evaluation,
    if(chosen.sample = 'choice', evaluated.value - evaluated.reach, null) as evaluation_low,
    if(chosen.sample = 'choice', evaluated.value + evaluated.reach, null) as evaluation_high,
    chosen.n_measured
from chosen
left join tried using (scope, sample, threshold)
left join evaluated on tried.trial = evaluated.trial and tried.scope = evaluated.scope
order by chosen.scope, chosen.rule, chosen.sample
