-- Rows here: an adapter with a training example that its context shows as a demonstration.
with
shown as (
    select distinct task, n_demos, demo_set, setting, instruction, unnest(demo_ids) as instance_id
    from contexts
)

select
    format('adapter {} is trained on {}, which is a demonstration of its context', adapter, examples.instance_id) as problem,
    adapter, examples.instance_id
from training_rows as examples
inner join shown
    on
        examples.task = shown.task and examples.n_demos = shown.n_demos and examples.demo_set = shown.demo_set
        and examples.setting is not distinct from shown.setting and examples.instruction = shown.instruction
        and examples.instance_id = shown.instance_id
order by all
