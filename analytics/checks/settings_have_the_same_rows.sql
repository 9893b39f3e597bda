-- Rows here: a setting of a task whose main or bias_score rows are not the instances of the task's first setting.
with
setting_rows as (
    select task, format, purpose, n_demos, demo_set, count(*) as n_rows, bit_xor(hash(instance_id, gold)) as instances
    from prompts
    where purpose in ('main', 'bias_score')
    group by all
)

select
    format('{}, {}, {}n_demos {}, demo_set {}: {} rows, other than the {} of the first setting',
           task, purpose, case when format = 'base' then '' else format || ', ' end, n_demos, demo_set, n_rows,
           first_value(n_rows) over first_setting) as problem,
    task, purpose, n_demos, demo_set
from setting_rows
window first_setting as (partition by task, purpose order by format <> 'base', format, n_demos, demo_set)
qualify n_rows <> first_value(n_rows) over first_setting or instances <> first_value(instances) over first_setting
order by all
