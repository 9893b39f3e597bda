-- One row per (objective, scope): the chosen trial, how far the choice can be told from others, and what it cost.
-- optimism: by how much it looks better on the data of the choice than on data that the choice did not see, in the
-- objective's unit; positive: it looks too good. gain: by how much it is better than the mean of all trials that are done,
-- on the data of the choice, and evaluation_gain on the other half, where both halves are compared with themselves: what
-- is easier about one of them cancels: its interval (95 %, by leaving out groups) is of data that the choice did not see.
-- n_within_noise: other trials that nothing tells from it (search_trials), of n_compared that have an interval; n_worse
-- and n_better of them are told from it, n_better only where there are several objectives.
-- steps: optimizer steps of all trials, of what they share (shared_steps) none.
with

costs as (

    select
        count(*) as n_trials,
        count(*) filter (state = 'done') as n_done,
        count(*) filter (state = 'stopped') as n_stopped,
        count(*) filter (state = 'failed') as n_failed,
        sum(steps)::bigint as steps
    from trials

),

means as (

    select
        objective,
        scope,
        avg(value order by trial) as value,
        avg(evaluation order by trial) as evaluation,
        count(*) filter (is_within_noise and not is_chosen) as n_within_noise,
        count(*) filter (is_within_noise is not null and not is_chosen) as n_compared,
        count(*) filter (not is_within_noise and (difference < 0) = is_maximized) as n_worse,
        count(*) filter (not is_within_noise and (difference > 0) = is_maximized) as n_better,
        count(*) filter (is_on_front) as n_on_front
    from search_trials
    inner join search_objectives using (objective)
    group by all

),

left_out_gains as (

    select
        objective,
        scope,
        left_out,
        any_value(value) filter (is_chosen)
        - if(count(*) = count(value), avg(value order by trial), null) as gain
    from trial_values
    inner join search_front using (trial, scope)
    where sample = 'evaluation' and left_out is not null
    group by all

),

gains as (

    select
        objective,
        scope,
        t_quantile(count(*) - 1) * jackknife_error(list(gain order by left_out)) as reach
    from left_out_gains
    group by all

)

select
    search_settings.name,
    search_objectives.objective,
    search_trials.scope,
    search_objectives.is_maximized,
    search_trials.trial,
    search_trials.parameters,
    search_trials.value,
    search_trials.value_low,
    search_trials.value_high,
    search_trials.evaluation,
    search_trials.evaluation_low,
    search_trials.evaluation_high,
    if(is_maximized, 1, -1) * (search_trials.value - search_trials.evaluation) as optimism,
    if(is_maximized, 1, -1) * (search_trials.value - means.value) as gain,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) as evaluation_gain,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) - gains.reach as evaluation_gain_low,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) + gains.reach as evaluation_gain_high,
    means.n_within_noise,
    means.n_compared,
    means.n_worse,
    means.n_better,
    means.n_on_front,
    costs.n_done,
    costs.n_stopped,
    costs.n_failed,
    costs.n_trials,
    costs.steps,
    search_settings.shared_steps,
    search_settings.algorithm,
    search_settings.choose_on
from search_trials
inner join search_objectives using (objective)
inner join means using (objective, scope)
left join gains using (objective, scope)
cross join costs
cross join search_settings
where search_trials.is_chosen
order by search_objectives.number, search_trials.scope
