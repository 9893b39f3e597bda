-- One row per ordered pair (run, other_run) of label-bias runs: the data that both have, which label_bias_comparison
-- compares, and their differences. n_tasks, n_rows: tasks with the same main rows in both, and these rows; unit: the
-- sampling unit of the tests: the task, or below 6 tasks, of which no two-sided test can reach 5 %, the row (null
-- without a task; rows need the same demonstration sets). differing_tasks: in both, with other rows or labels.
-- lacking_tasks: of run, not in other_run. n_demos and methods: that both have. has_same_*: of the tasks compared
-- (label_bias_shared_tasks); has_same_seed, has_same_scoring: of the specs. is_comparable: there is something to
-- compare.
with
settings_of as (
    select run, list_sort(list(distinct n_demos)) as n_demos, list_sort(list(distinct method)) as methods
    from label_bias_by_task_over_sets
    group by run
),

runs as (
    select run, seed, (normalization, eos, prefix_mode) as scoring, n_demos, methods, tasks
    from run_settings
    inner join settings_of using (run)
    inner join (select run, list(task order by task) as tasks from tasks group by run) using (run)
),

compared as (
    select
        run, other_run, count(*) filter (has_same_rows) as n_tasks,
        coalesce(sum(n_rows) filter (has_same_rows), 0)::bigint as n_rows,
        coalesce(list(task order by task) filter (not has_same_rows), []) as differing_tasks,
        bool_and(columns('^has_same_(bias_score_rows|inputs|sets|contexts)$')) filter (has_same_rows) as "\0"
    from label_bias_shared_tasks
    group by all
),

pairs as (
    select
        runs.run, other.run as other_run, coalesce(compared.n_tasks, 0) as n_tasks,
        coalesce(compared.n_rows, 0) as n_rows, coalesce(compared.differing_tasks, []) as differing_tasks,
        list_filter(runs.tasks, lambda task: not list_contains(other.tasks, task)) as lacking_tasks,
        list_sort(list_intersect(runs.n_demos, other.n_demos)) as n_demos,
        list_sort(list_intersect(runs.methods, other.methods)) as methods,
        runs.seed = other.seed as has_same_seed,
        runs.scoring = other.scoring as has_same_scoring,
        runs.n_demos = other.n_demos as has_same_n_demos, runs.methods = other.methods as has_same_methods,
        compared.* exclude (run, other_run, n_tasks, n_rows, differing_tasks)
    from runs
    inner join runs as other on runs.run <> other.run
    left join compared on runs.run = compared.run and other.run = compared.other_run
)

select
    *,
    case when n_tasks >= 6 or (n_tasks > 0 and not has_same_sets) then 'task' when n_tasks > 0 then 'row' end as unit,
    n_tasks > 0 and len(n_demos) > 0 and len(methods) > 0 as is_comparable
from pairs
order by all
