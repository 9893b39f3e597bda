-- Rows here: a setting, seed and instruction whose majority prompts are not the test rows of the first, or without one
-- context for all of them.
with
setting_rows as (
    select
        majority_contexts.task, majority_contexts.n_demos, majority_contexts.instruction, majority_contexts.setting,
        majority_contexts.seed, count(distinct context_id) as n_contexts, count(*) as n_rows,
        count(distinct prompts.row) as n_distinct_rows,
        bit_xor(hash(prompts.row, prompts.instance_id, prompts.gold)) as instances
    from prompts
    inner join majority_contexts using (context_id)
    where prompts.purpose = 'majority'
    group by all
)

select
    format('{}, setting {}, seed {}, {} instruction: {} rows in {} contexts, the first setting has {} in one',
           task, coalesce(setting, 'null'), coalesce(seed::varchar, 'null'), if(instruction, 'with', 'without'), n_rows,
           n_contexts, first_value(n_rows) over first_setting) as problem,
    task, setting, seed, instruction
from setting_rows
window first_setting as (order by setting, seed, instruction)
qualify
    n_contexts > 1 or n_rows <> n_distinct_rows or n_rows <> first_value(n_rows) over first_setting
    or instances <> first_value(instances) over first_setting
order by all
