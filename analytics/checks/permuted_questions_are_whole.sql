-- Rows here: a question of a calibration that permutes options, without one prompt for each place of its right option.
with
questions as (
    select
        task, n_demos, demo_set, format, purpose, row // len(tasks.labels) as question, len(tasks.labels) as n_labels,
        count(*) as n_orders, count(distinct gold) as n_places, count(distinct instance_id) as n_instances
    from prompts
    inner join tasks using (task)
    inner join calibration_methods on purpose = calibration_methods.method
    where permutes
    group by all
)

select
    format('{}, n_demos {}, demo_set {}, {}: question {} has {} orders with {} places of the right one of {} options',
           task, n_demos, demo_set, purpose, question, n_orders, n_places, n_labels) as problem,
    *
from questions
where n_orders <> n_labels or n_places <> n_labels or n_instances <> 1
order by all
