-- One row per (calibration of the run, input, adaptation, label): the logarithm of the label's probability. The queries
-- of analytics/calibrations read it. An input is a prompt; where its purpose permutes options (pride), it is a
-- question, whose orders are the prompts labels * input to labels * (input + 1) - 1. gold: of the demonstration that
-- looc leaves out. n_inputs: of a variant that takes the first so many inputs (dc/5); null: all.
with
inputs as (
    select
        takes.name as method, takes.n_inputs, task, n_demos, demo_set, format, setting, instruction, adaptation,
        prompt_probabilities.row,
        case when permutes then row // len(labels) else row end as input,
        gold, unnest(labels) as label, unnest(log_probabilities) as log_probability
    from prompt_probabilities
    inner join (select distinct name, n_inputs, unnest(purposes) as purpose from calibration_variants) as takes
        using (purpose)
    left join calibration_methods on prompt_probabilities.purpose = calibration_methods.method
)

from inputs
where input < coalesce(n_inputs, input + 1)
