-- One row per (model, task, n_demos, demo_set, setting, instruction, method, label): the weight that calibration gives
-- the label.
select
    run_settings.model,
    task,
    n_demos,
    demo_set,
    setting,
    instruction,
    method,
    label,
    exp(log_p_hat) as p_hat,
    exp(-log_p_hat) as weight,
    n_rows
from calibration_means
cross join run_settings
order by all
