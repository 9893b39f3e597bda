-- Rows here: a (n_demos, demo_set, method) that another task has and this one lacks: their means would not compare.
select
    format('{} has no n_demos {}, demo_set {}, {}', task, n_demos, demo_set, method) as problem,
    task, n_demos, demo_set, method
from tasks
cross join (select distinct n_demos, demo_set, method from label_bias_by_task)
anti join label_bias_by_task using (task, n_demos, demo_set, method)
order by all
