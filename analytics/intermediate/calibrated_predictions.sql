-- One row per (prompt of main, bias_score, held_out or majority, method): probabilities after calibration, and the
-- prediction. q = p * w / sum(p * w) with w = 1 / p_hat ^ strength, or the output of the calibration itself
-- (calibration_logits); methods none and lora are p itself. On ties the first label in code-point order. Where only some
-- demonstration sets of a number have adapters, none has these sets once more, in the format 'sets of lora': what lora is
-- compared with.
with
sets as (
    select task, n_demos, demo_set, instruction, bool_or(adaptation = 'lora') as is_adapted
    from contexts
    inner join adapted_contexts using (context_id)
    group by all
),

-- What is done in each setting; log_weights: null where nothing is divided.
methods as (
    select distinct
        task, n_demos, demo_set, format, setting, instruction, adaptation, adaptation as method,
        null::double[] as log_weights, format as new_format
    from contexts
    cross join (values ('none'), ('lora')) as adaptations (adaptation)
    union all
    select
        task, n_demos, demo_set, format, setting, instruction, adaptation, method,
        list(-strength * log_p_hat order by label) as log_weights, format as new_format
    from calibration_means
    group by all
    union all
    select
        task, n_demos, demo_set, 'base' as format, null as setting, instruction, 'none' as adaptation,
        'none' as method, null as log_weights, 'sets of lora' as new_format
    from sets
    qualify is_adapted and not bool_and(is_adapted) over (partition by task, n_demos)
),

unnormalized as (
    select
        prompt_probabilities.* replace (methods.new_format as format), methods.method,
        case
            when methods.log_weights is null then log_probabilities
            else list_transform(log_probabilities, lambda x, i: x + methods.log_weights[i])
        end as logs
    from prompt_probabilities
    inner join methods
        on
            prompt_probabilities.adaptation = methods.adaptation and prompt_probabilities.task = methods.task
            and prompt_probabilities.n_demos = methods.n_demos and prompt_probabilities.demo_set = methods.demo_set
            and prompt_probabilities.format = methods.format
            and prompt_probabilities.setting is not distinct from methods.setting
            and prompt_probabilities.instruction is not distinct from methods.instruction
    where purpose in ('main', 'bias_score', 'held_out', 'majority')
    union all
    select prompt_probabilities.*, method_name(adaptation, calibration_logits.name) as method, calibration_logits.logs
    from prompt_probabilities
    inner join (
        select prompt_id, adaptation, name, list(log_probability order by label) as logs
        from calibration_logits
        group by all
    ) as calibration_logits using (prompt_id, adaptation)
),

peaks as (
    select *, list_max(logs) as peak
    from unnormalized
),

normalizers as (
    select *, list_sum(list_transform(logs, lambda x: exp(x - peak))) as total
    from peaks
)

select
    prompt_id, task, purpose, n_demos, demo_set, format, setting, instruction, row, instance_id, gold, method, labels,
    list_transform(logs, lambda x: exp(x - peak) / total) as probabilities,
    labels[list_position(logs, peak)] as prediction
from normalizers
