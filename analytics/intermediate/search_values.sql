-- One row per (trial that is done, objective, scope, sample): its value, and the same with each group of articles or
-- rows left out, in the order of the groups. scope: the subject of the value, if there are several; else all. sample:
-- choice, the data that the trial is chosen on; evaluation, the data that the choice did not use. is_above_constant: as
-- in trial_values. Other columns of queries are not here.
with
left_out as (
    select trial, objective, scope, sample, list(value order by left_out) as left_out_values
    from trial_values
    where left_out is not null
    group by all
)

select
    trial_values.trial, trial_values.objective, trial_values.scope, trial_values.sample, trial_values.value,
    left_out.left_out_values, jackknife_error(left_out.left_out_values) as error,
    t_quantile(len(left_out.left_out_values) - 1) as quantile, trial_values.is_above_constant
from trial_values
inner join left_out using (trial, objective, scope, sample)
semi join search_objectives using (objective)
where trial_values.left_out is null and trial_values.value is not null
