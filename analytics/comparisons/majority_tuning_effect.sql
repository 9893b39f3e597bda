-- One row per (run, other_run, n_demos, instruction, predict, method, metric): the effect of tuning, which is a tuned
-- model (other_run) minus its base model (run; tuned_pairs) on the same test rows and settings. Values, interval, p and
-- verdict are those of majority_bias_comparison. is_above_constant is of the tuned model.
select
    family, run, other_run, n_demos, instruction, predict, method, metric, value, other_value, estimate,
    low as estimate_low, high as estimate_high, verdict, verdict_p, other_is_above_constant as is_above_constant, p,
    reason, unit, n_units
from majority_bias_comparison
inner join tuned_pairs using (run, other_run)
where method <> 'best'
order by all
