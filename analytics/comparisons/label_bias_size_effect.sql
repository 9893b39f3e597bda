-- One row per (run, larger_run, n_demos, method, metric): the effect of model size, which is the larger model minus the
-- smaller, means over the tasks that both share with the same rows (n_tasks). larger_run has the next size: of the
-- runs of its family that can be compared (size_pairs), the one with the fewest parameters beyond run's own. Runs
-- without model.family have no pair. Values, interval, p and verdict are those of label_bias_comparison, whose verdicts
-- hold for all pairs of the compared runs together; differences of scoring or contexts are in label_bias_shared.
-- is_above_constant is of larger_run.
select
    family, run, other_run as larger_run, model, larger_model, n_parameters, larger_n_parameters, n_demos, method,
    metric, value, other_value as larger_value, estimate, low as estimate_low, high as estimate_high, verdict,
    verdict_p, other_is_above_constant as is_above_constant, p, n_tasks, unit, n_units
from label_bias_comparison
inner join size_pairs using (run, other_run)
where family is not null and method <> 'best'
qualify larger_n_parameters = min(larger_n_parameters) over (partition by run, n_demos, method)
order by all
