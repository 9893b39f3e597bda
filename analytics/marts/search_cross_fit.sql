-- One row per (objective, scope) of a search of one objective that chose on one half: what choosing is worth when each half
-- chooses for the other, which uses all of the data (cross-fitting). None of optuna's, whose points come of the half that
-- chooses. trial: what the data of the choice choose, as in
-- search_best; swapped_trial: what the other half would choose; of equals the first. cross_fitted: the mean of their values
-- on the half that did not choose them, with its interval (95 %, by leaving out groups of both halves); gain: the same of
-- the difference from the mean of all trials that are done, on the same half, positive where choosing helps.
with

halves as (

    select
        trial,
        objective,
        scope,
        sample,
        value,
        error,
        quantile,
        is_maximized,
        if(sample = 'choice', 'evaluation', 'choice') as other
    from search_values
    inner join search_objectives using (objective)
    where
        (select choose_on = 'half' and algorithm <> 'optuna' from search_settings)
        and (select count(*) from search_objectives) = 1

),

means as (

    select
        objective,
        scope,
        sample,
        avg(value order by trial) as mean
    from halves
    group by all

),

chosen as (

    select
        objective,
        scope,
        sample,
        any_value(other) as other,
        arg_max(trial, (if(is_maximized, value, -value), -trial)) as trial
    from halves
    group by all

),

measured as (

    select
        chosen.objective,
        chosen.scope,
        chosen.sample,
        chosen.trial,
        halves.value,
        if(halves.is_maximized, 1, -1) * (halves.value - means.mean) as gain,
        halves.error,
        halves.quantile
    from chosen
    inner join halves
        on
            chosen.trial = halves.trial
            and chosen.objective = halves.objective
            and chosen.scope = halves.scope
            and chosen.other = halves.sample
    inner join means
        on
            halves.objective = means.objective
            and halves.scope = means.scope
            and halves.sample = means.sample

),

pairs as (

    select
        objective,
        scope,
        any_value(trial) filter (sample = 'choice') as trial,
        any_value(trial) filter (sample = 'evaluation') as swapped_trial,
        any_value(value) filter (sample = 'choice') as evaluation,
        any_value(value) filter (sample = 'evaluation') as swapped_evaluation,
        (sum(value order by sample) / 2) as cross_fitted,
        (sum(gain order by sample) / 2) as gain,
        min(quantile) * sqrt(sum(error ** 2 order by sample)) / 2 as reach
    from measured
    group by all
    having count(value) = 2

)

select
    * exclude (gain, reach),
    cross_fitted - reach as cross_fitted_low,
    cross_fitted + reach as cross_fitted_high,
    gain
from pairs
order by objective, scope
