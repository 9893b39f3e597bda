-- One row per (model, task, n_demos, demo_set, setting, instruction, method, label): the weight that calibration gives
-- the label: 1 / p_hat, to the power of the strength of a variant (cc@0.7).
select
    run_settings.model, task, n_demos, demo_set, setting, instruction, method, label, exp(log_p_hat) as p_hat,
    exp(-strength * log_p_hat) as weight, n_rows
from calibration_means
cross join run_settings
where format = 'base'
order by all
