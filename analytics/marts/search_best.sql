-- One row per (objective, scope): the chosen trial, how distinguishable the choice is from others, and its cost.
-- optimism: by how much it looks better on the data of the choice than on data that the choice did not see, in the
-- objective's unit; positive: it looks too good. gain: by how much it is better than the mean of all trials that are
-- done, on the data of the choice, and evaluation_gain on the other half, where both halves are compared with
-- themselves: a half that is easier cancels: its interval (95 %, by leaving out groups) is of data that the choice did
-- not see. evaluation_gain_p: that evaluation_gain is 0, by Student's t with the error of the jackknife;
-- evaluation_gain_p_adjusted: over all rows together (holm); evaluation_gain_verdict: 'higher' or 'lower' where that is
-- at most 5 %, else 'unclear'. Of bias_score there is no test: sampling noise alone makes it greater than 0.
-- n_within_noise: other trials of which the interval of the difference on the data of the choice, each alone, includes
-- 0 (search_trials), of n_compared that have one; n_worse of them lie to a side. flat_low and flat_high: the ends of
-- the values of the searched key at those n_within_noise, where it is one of numbers. n_tested: other trials with a
-- test on data that the choice did not use; n_told_worse and n_told_better of them differ from it significantly
-- (verdict). is_above_constant: as in search_trials; the choice does not go by it. steps: optimizer steps of all
-- trials, without shared trainings (shared_steps).
with
costs as (
    select
        count(*) as n_trials, count(*) filter (state = 'done') as n_done,
        count(*) filter (state = 'stopped') as n_stopped, count(*) filter (state = 'failed') as n_failed,
        sum(steps)::bigint as steps
    from trials
),

means as (
    select
        objective, scope, avg(value order by trial) as value, avg(evaluation order by trial) as evaluation,
        count(*) filter (is_within_noise and not is_chosen) as n_within_noise,
        count(*) filter (is_within_noise is not null and not is_chosen) as n_compared,
        count(*) filter (not is_within_noise and (difference < 0) = is_maximized) as n_worse,
        count(*) filter (verdict is not null) as n_tested,
        count(*) filter (verdict = if(is_maximized, 'lower', 'higher')) as n_told_worse,
        count(*) filter (verdict = if(is_maximized, 'higher', 'lower')) as n_told_better
    from search_trials
    inner join search_objectives using (objective)
    group by all
),

left_out_gains as (
    select
        objective, scope, left_out,
        any_value(value) filter (is_chosen)
        - if(count(*) = count(value), avg(value order by trial), null) as gain
    from trial_values
    inner join search_chosen using (trial, scope)
    where sample = 'evaluation' and left_out is not null
    group by all
),

gains as (
    select
        objective, scope, jackknife_error(list(gain order by left_out)) as error, count(*) - 1 as df,
        t_quantile(df) * error as reach
    from left_out_gains
    group by all
),

tests as (
    select
        true as family, {'objective': objective, 'scope': scope} as test,
        case
            when gains.error > 1e-12 then student_p((search_trials.evaluation - means.evaluation) / gains.error, gains.df)
            when abs(search_trials.evaluation - means.evaluation) <= 1e-12 then 1
        end as p
    from search_trials
    inner join means using (objective, scope)
    inner join gains using (objective, scope)
    inner join search_objectives using (objective)
    where search_trials.is_chosen and not is_of_bias_score
),

flat as (
    select objective, scope, min(number) as flat_low, max(number) as flat_high
    from search_trials
    inner join search_parameters using (trial)
    where is_within_noise and not is_chosen and (select len(keys) = 1 from search_settings)
    group by all
    having count(*) = count(number)
)

select
    search_settings.name, search_objectives.objective, search_trials.scope, search_objectives.is_maximized,
    search_trials.trial, search_trials.parameters, search_trials.value, search_trials.value_low,
    search_trials.value_high, search_trials.evaluation, search_trials.evaluation_low, search_trials.evaluation_high,
    if(is_maximized, 1, -1) * (search_trials.value - search_trials.evaluation) as optimism,
    if(is_maximized, 1, -1) * (search_trials.value - means.value) as gain,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) as evaluation_gain,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) - gains.reach as evaluation_gain_low,
    if(is_maximized, 1, -1) * (search_trials.evaluation - means.evaluation) + gains.reach as evaluation_gain_high,
    means.n_within_noise, means.n_compared, means.n_worse, costs.n_done, costs.n_stopped, costs.n_failed,
    costs.n_trials, costs.steps, search_settings.shared_steps, search_settings.algorithm, search_settings.choose_on,
    judged.p as evaluation_gain_p, judged.p_adjusted as evaluation_gain_p_adjusted,
    case
        when judged.p_adjusted is null then null
        when judged.p_adjusted <= 0.05 then if((search_trials.evaluation > means.evaluation) = is_maximized, 'higher', 'lower')
        else 'unclear'
    end as evaluation_gain_verdict,
    means.n_tested, means.n_told_worse, means.n_told_better, flat.flat_low, flat.flat_high,
    search_trials.is_above_constant
from search_trials
inner join search_objectives using (objective)
inner join means using (objective, scope)
left join gains using (objective, scope)
left join (select unnest(test), p, p_adjusted from tests inner join holm('tests') using (family, test)) as judged
    using (objective, scope)
left join flat using (objective, scope)
cross join costs
cross join search_settings
where search_trials.is_chosen
order by search_trials.scope
