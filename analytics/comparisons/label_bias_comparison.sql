-- One row per ordered pair (run, other_run) of label-bias runs, n_demos, method and metric (macro_f1, accuracy, rsd,
-- bias_score) that both have: the metric of each (value, other_value), means over the tasks that both share with the same
-- rows (label_bias_shared_tasks; of bias_score with the same rows of it) and over the demonstration sets that both have;
-- estimate: other_run minus run. Tested by sign_flip_tests over units: the tasks, or the rows (label_bias_shared.unit),
-- whose values are pseudo-values (label_bias_row_values); p_adjusted and the simultaneous band hold for all that is compared
-- between the two runs. verdict: of other_run against run (verdict); a difference below least_effect is negligible.
-- n_constant, n_other_constant: tasks in which more than 95 % of the predictions of run and of other_run are one label.
-- All but counts is null where a task lacks the metric.
with

shared as (

    select
        tasks.*,
        pairs.unit
    from label_bias_shared_tasks as tasks
    inner join label_bias_shared as pairs using (run, other_run)
    where tasks.run < tasks.other_run and tasks.has_same_rows

),

task_metrics as (

    select
        shared.run,
        shared.other_run,
        task,
        n_demos,
        method,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score']) as metric,
        unnest([
            nullif(avg(coalesce(own.macro_f1, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(own.accuracy, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(own.rsd, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(own.bias_score, 'nan') order by demo_set), 'nan')
        ]) as value,
        unnest([
            nullif(avg(coalesce(other.macro_f1, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(other.accuracy, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(other.rsd, 'nan') order by demo_set), 'nan'),
            nullif(avg(coalesce(other.bias_score, 'nan') order by demo_set), 'nan')
        ]) as other_value,
        any_value(shared.n_rows) as n_rows,
        any_value(shared.has_same_bias_score_rows) as has_same_bias_score_rows
    from shared
    inner join label_bias_by_task as own using (run, task)
    inner join label_bias_by_task as other using (task, n_demos, demo_set, method)
    where other.run = shared.other_run
    group by shared.run, shared.other_run, task, n_demos, method

),

by_task as materialized (

    select *
    from task_metrics
    where metric <> 'bias_score' or has_same_bias_score_rows

),

answers as (

    select
        run,
        task,
        n_demos,
        method,
        label,
        sum(n_predicted) as n_predicted
    from label_bias_by_label
    group by all

),

constants as materialized (

    select
        run,
        task,
        n_demos,
        method,
        max(n_predicted) > 0.95 * sum(n_predicted) as is_constant
    from answers
    group by all

),

means as (

    select
        by_task.run,
        by_task.other_run,
        n_demos,
        method,
        metric,
        count(*) filter (own.is_constant) as n_constant,
        count(*) filter (other.is_constant) as n_other_constant,
        nullif(avg(coalesce(value, 'nan') order by task), 'nan') as value,
        nullif(avg(coalesce(other_value, 'nan') order by task), 'nan') as other_value,
        count(*) as n_tasks,
        sum(n_rows)::bigint as n_rows
    from by_task
    inner join constants as own using (run, task, n_demos, method)
    inner join constants as other using (task, n_demos, method)
    where other.run = by_task.other_run
    group by by_task.run, by_task.other_run, n_demos, method, metric

),

task_units as (

    select
        by_task.run,
        by_task.other_run,
        n_demos,
        method,
        metric,
        dense_rank() over (partition by by_task.run, by_task.other_run order by by_task.task) - 1 as unit,
        other_value - value as value
    from by_task
    semi join (select * from shared where unit = 'task') as chosen using (run, other_run)

),

-- With T tasks of n rows each, N in all, the mean over tasks is that over rows of the values times N / (T n).
row_units as (

    select
        shared.run,
        shared.other_run,
        n_demos,
        method,
        metric,
        dense_rank() over (
            partition by shared.run, shared.other_run order by metric = 'bias_score', shared.task, row
        ) - 1 as unit,
        (other.value - own.value)
        * count(*) over test
        / means.n_tasks
        / count(*) over (partition by shared.run, shared.other_run, n_demos, method, metric, shared.task) as value
    from shared
    inner join label_bias_row_values as own using (run, task)
    inner join label_bias_row_values as other using (task, n_demos, method, metric, row)
    inner join means using (n_demos, method, metric)
    where
        shared.unit = 'row'
        and other.run = shared.other_run
        and means.run = shared.run
        and means.other_run = shared.other_run
        and (metric <> 'bias_score' or shared.has_same_bias_score_rows)
    window test as (partition by shared.run, shared.other_run, n_demos, method, metric)

),

units as materialized (

    select
        {'run': run, 'other_run': other_run} as family,
        {'n_demos': n_demos, 'method': method, 'metric': metric} as test,
        unit,
        value
    from (
        from task_units
        union all by name
        from row_units
    )

),

tested as materialized (

    select
        family.run,
        family.other_run,
        test.n_demos,
        test.method,
        test.metric,
        * exclude (family, test)
    from sign_flip_tests('units', 'comparison_sign_flips')

),

both_ways as (

    from tested

    union all by name

    select
        * replace (
            other_run as run,
            run as other_run,
            0 - estimate as estimate,
            0 - high as low,
            0 - low as high,
            0 - simultaneous_high as simultaneous_low,
            0 - simultaneous_low as simultaneous_high
        )
    from tested

),

measured as (

    from means

    union all by name

    select
        * replace (
            other_run as run,
            run as other_run,
            other_value as value,
            value as other_value,
            n_other_constant as n_constant,
            n_constant as n_other_constant
        )
    from means

)

select
    run,
    other_run,
    n_demos,
    method,
    metric,
    measured.value,
    measured.other_value,
    coalesce(both_ways.estimate, measured.other_value - measured.value) as estimate,
    both_ways.standard_error,
    both_ways.low,
    both_ways.high,
    both_ways.p,
    both_ways.p_adjusted,
    both_ways.simultaneous_low,
    both_ways.simultaneous_high,
    both_ways.smallest_detectable,
    0.01::double as least_effect,
    verdict(
        coalesce(both_ways.estimate, measured.other_value - measured.value),
        p_adjusted,
        simultaneous_low,
        simultaneous_high,
        n_units,
        0.01
    ) as verdict,
    pairs.unit,
    both_ways.n_units,
    measured.n_tasks,
    measured.n_rows,
    measured.n_constant,
    measured.n_other_constant
from measured
left join both_ways using (run, other_run, n_demos, method, metric)
inner join label_bias_shared as pairs using (run, other_run)
order by all
