-- One row per (model, n_demos, instruction, method): the cost of a method beyond scoring the rows with the model
-- itself, over all tasks, sets and settings, in the base format of the prompt. n_prompts: calibration inputs; of a
-- variant (cc@0.7) all those of its method. tokens: theirs, a prefix that the rows have too not counted and one of
-- their own once, and those of the training rows in all epochs. trained_parameters: of each of n_adapters. seconds: of
-- training as measured, and of scoring in proportion to tokens; null where the run does not say. Where text is
-- generated too, the run measures both as one: its time is spread over the tokens that are scored. n_demo_sets: those
-- that the method was measured in, and that it cost as much for; lora may have fewer than calibrations.
with
label_tokens as (
    select 'none' as adaptation, prompt_id, sum(n_label_tokens + 1) as n_label_tokens
    from label_scores
    group by prompt_id
    union all
    select 'lora' as adaptation, prompt_id, sum(n_label_tokens + 1) as n_label_tokens
    from adapted_scores
    group by prompt_id
),

-- A context belongs to the rows if one of them has it.
context_uses as (
    select
        context_id, n_demos, instruction, format, contexts.n_tokens,
        case when count(distinct purpose) = 1 then any_value(purpose) else 'main' end as purpose
    from contexts
    inner join (select context_id, purpose from prompts) using (context_id)
    group by all
),

pieces as (
    select
        label_tokens.adaptation, prompts.purpose, prompts.n_demos, contexts.instruction, contexts.format,
        1 as n_prompts,
        prompts.n_tokens - contexts.n_tokens + label_tokens.n_label_tokens as tokens
    from prompts
    inner join contexts using (context_id)
    inner join label_tokens using (prompt_id)
    union all
    select
        adaptation, context_uses.purpose, context_uses.n_demos, context_uses.instruction,
        context_uses.format, 0 as n_prompts, context_uses.n_tokens as tokens
    from context_uses
    inner join adapted_contexts using (context_id)
),

scored as (
    select
        adaptation, purpose, n_demos, instruction, format, sum(n_prompts) as n_prompts, sum(tokens) as tokens,
        sum(tokens) / sum(sum(tokens)) over () * max(scoring_seconds) as seconds
    from pieces
    cross join run_settings
    group by adaptation, purpose, n_demos, instruction, format
    qualify format = 'base'
),

steps as (
    select
        n_demos, instruction, count(distinct adapter) as n_adapters, max(epoch) + 1 as n_epochs, sum(seconds) as seconds
    from training
    group by all
),

trained as (
    select
        n_demos, instruction, max(steps.n_adapters) as n_adapters,
        max(steps.n_epochs) * sum(training_rows.n_tokens) as tokens, max(steps.seconds) as seconds
    from training_rows
    inner join steps using (n_demos, instruction)
    group by n_demos, instruction
),

calibrated as (
    select
        n_demos, instruction,
        method_name(adaptation, calibration_variants.method) as method,
        n_prompts, tokens, seconds
    from scored
    inner join calibration_variants using (purpose)
    union all
    -- A calibration that reads the rows alone (bc) costs nothing more.
    select distinct
        n_demos, instruction,
        method_name(adaptation, calibration_variants.method) as method,
        0 as n_prompts, 0 as tokens, 0 as seconds
    from scored
    cross join calibration_variants
    where calibration_variants.purpose is null
),

-- What each method needs, a row for each part of it: lora+cc has adapters, and inputs of cc scored with them.
needs as (
    select n_demos, instruction, method, n_prompts, tokens, 0 as n_adapters, seconds
    from calibrated
    union all
    select n_demos, instruction, methods.method, 0 as n_prompts, tokens, n_adapters, seconds
    from trained
    cross join (
        select unnest(['lora'] || list_transform(calibration, lambda name: 'lora+' || name)) as method
        from run_settings
    ) as methods
    -- Without demonstrations nothing can be left out.
    semi join (
        select n_demos, method
        from calibrated
        union all
        select n_demos, 'lora' as method
        from scored
    ) as measured using (n_demos, method)
)

select
    run_settings.model, needs.n_demos, needs.instruction, needs.method, sum(needs.n_prompts)::bigint as n_prompts,
    sum(needs.tokens)::bigint as tokens, sum(needs.n_adapters)::bigint as n_adapters,
    case when sum(needs.n_adapters) > 0 then max(run_settings.trained_parameters) else 0 end as trained_parameters,
    case when count(needs.seconds) = count(*) then sum(needs.seconds) end as seconds,
    (
        select count(distinct demo_set)
        from contexts
        inner join adapted_contexts using (context_id)
        where contexts.n_demos = needs.n_demos and (adaptation = 'lora') = (needs.method like 'lora%')
    ) as n_demo_sets
from needs
cross join run_settings
group by run_settings.model, needs.n_demos, needs.instruction, needs.method
order by all
