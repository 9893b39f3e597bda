-- One row per (majority prompt, predict, method): the prediction; null where the output is no label.
-- Calibration changes likelihoods only: generated output has the method none, or lora.
with
predictions as (
    select prompt_id, 'likelihood' as predict, method, prediction
    from calibrated_predictions
    cross join run_settings
    -- Constrained generation is read from the labels' scores: they may be there and not be asked about.
    where purpose = 'majority' and list_contains(run_settings.predict, 'likelihood')
    union all
    select prompt_id, mode as predict, 'none' as method, prediction
    from generations
    union all
    select prompt_id, mode as predict, 'lora' as method, prediction
    from adapted_generations
)

select
    predictions.prompt_id, majority_contexts.task, majority_contexts.n_demos, majority_contexts.instruction,
    majority_contexts.setting, majority_contexts.number, majority_contexts.seed, predictions.predict,
    predictions.method, prompts.row, prompts.gold, predictions.prediction, majority_contexts.majority_label,
    majority_contexts.last_label
from predictions
inner join prompts using (prompt_id)
inner join majority_contexts using (context_id)
