-- One row per (run, other_run, n_demos, method, metric): the effect of tuning, which is a tuned model (other_run) minus
-- its base model (run; tuned_pairs), means over the tasks that both share with the same rows (n_tasks). Values,
-- interval, p and verdict are those of label_bias_comparison, whose verdicts hold for all pairs of the compared runs
-- together; differences of scoring or contexts are in label_bias_shared. is_above_constant is of the tuned model.
select
    family, run, other_run, n_demos, method, metric, value, other_value, estimate, low as estimate_low,
    high as estimate_high, verdict, verdict_p, other_is_above_constant as is_above_constant, p, n_tasks, unit, n_units
from label_bias_comparison
inner join tuned_pairs using (run, other_run)
where method <> 'best'
order by all
