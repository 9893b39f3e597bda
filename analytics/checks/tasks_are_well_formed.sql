-- Rows here: a task whose labels are not distinct and in code-point order.
select
    format('task {} has labels {}: not distinct and in code-point order', task, coalesce(labels::varchar, 'null')) as problem,
    task
from tasks
where coalesce(len(labels), 0) = 0 or labels is distinct from list_sort(list_distinct(labels))
order by all
