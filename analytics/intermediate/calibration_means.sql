-- One row per (task, n_demos, demo_set, format, setting, instruction, calibration of the run, label): the logarithm of
-- p_hat, which the label's probability is divided by, to the power of strength. analytics/calibrations says how each
-- calibration has it; those that give probabilities by themselves have no row. The method names the adaptation too
-- where there is one: lora+cc. n_rows: inputs.
select
    priors.task, priors.n_demos, priors.demo_set, priors.format, priors.setting, priors.instruction, priors.adaptation,
    method_name(priors.adaptation, calibration_variants.method) as method,
    calibration_variants.strength, priors.label, priors.log_prior as log_p_hat, priors.n_rows
from calibration_priors as priors
inner join calibration_variants
    on priors.name = calibration_variants.name and priors.n_inputs is not distinct from calibration_variants.n_inputs
