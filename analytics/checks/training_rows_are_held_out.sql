-- Rows here: an adapter with a training example that its context shows as a demonstration, or that it has twice.
with

examples as (

    select
        adapter,
        task,
        n_demos,
        demo_set,
        setting,
        instruction,
        instance_id,
        count(*) as n_times
    from training_rows
    group by all

),

shown as (

    select distinct
        task,
        n_demos,
        demo_set,
        setting,
        instruction,
        unnest(demo_ids) as instance_id
    from contexts

)

select
    case
        when n_times > 1 then format('adapter {} has the training example {} {} times', adapter, examples.instance_id, n_times)
        else format('adapter {} is trained on {}, which is a demonstration of its context', adapter, examples.instance_id)
    end as problem,
    adapter,
    examples.instance_id
from examples
left join shown
    on
        examples.task = shown.task
        and examples.n_demos = shown.n_demos
        and examples.demo_set = shown.demo_set
        and examples.setting is not distinct from shown.setting
        and examples.instruction = shown.instruction
        and examples.instance_id = shown.instance_id
where n_times > 1 or shown.instance_id is not null
order by all
