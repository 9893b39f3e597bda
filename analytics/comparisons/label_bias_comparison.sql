-- One row per ordered pair (run, other_run) of label-bias runs, n_demos, method and metric that both have
-- (label_bias_metrics): the metric of each (value, other_value), means over the tasks that both share with the same
-- rows (label_bias_shared_tasks; of bias_score with the same rows of it) and over the demonstration sets that both
-- have; estimate: other_run minus run. method 'best', without n_demos: each run in its own setting of label_bias_best,
-- where the two have different ones. Tested by sign_flip_tests over units: the tasks, or the rows
-- (label_bias_shared.unit), whose values are pseudo-values (label_bias_row_values). All pairs whose units are of the
-- same kind are one family, in which a task, or a row of it, has the same sign for all: p_adjusted and the simultaneous
-- band hold for all that is compared, of ten runs as of two (tasks that are not shared by all are flipped together
-- where there are more than signs of the longest run). Each partner and each metric that a spec adds is a family apart,
-- relative_variance over the tasks in which both sides have a hit. verdict: of other_run against run (verdict); a
-- difference below least_effect is negligible. word_p_adjusted: the p that the verdict uses, and noise_p: as in
-- label_bias_verdicts. verdict_p, verdict_low, verdict_high, verdict_smallest_detectable: the p and the band that it
-- goes by, and the smallest difference that would mostly be found, under the same names in comparisons of every kind.
-- baseline: of accuracy and macro_f1, that of always giving the most frequent gold label, the mean over the same tasks;
-- null of other metrics. is_above_constant, other_is_above_constant: run, and other_run, are better than such answers
-- on these tasks: true, false, or null where that is not shown (suite_constant_tests; adjusted for all of the
-- comparison). All but counts is null where a task lacks the metric; errors and p also where rows of a gold label are
-- too few (row_influences), and the verdict is 'unclear' then.
with
shared as (
    select
        tasks.*, pairs.unit,
        (best.n_demos, best.method) <> (other_best.n_demos, other_best.method) as has_other_best
    from label_bias_shared_tasks as tasks
    inner join label_bias_shared as pairs using (run, other_run)
    left join label_bias_best as best using (run)
    left join label_bias_best as other_best on tasks.other_run = other_best.run
    where tasks.run < tasks.other_run and tasks.has_same_rows
),

of_sets as (
    select
        metrics.* exclude (format),
        case metric when 'macro_f1' then majority_macro_f1 when 'accuracy' then majority_accuracy end as baseline,
        case when has_noise_p(metric) then bias_score_p end as bias_score_p
    from metric_values as metrics
    inner join label_bias_by_task using (run, task, n_demos, demo_set, method)
    where format = 'base'
),

-- The best setting has -1 demonstrations here, and the mean over its sets stands for them.
metrics as (
    from of_sets
    union all by name
    select
        run, task, -1 as n_demos, -1 as demo_set, 'best' as method, metric, mean_of_all(value, demo_set) as value,
        max(baseline) as baseline, bonferroni_p(min(bias_score_p), count(bias_score_p)) as bias_score_p
    from of_sets
    semi join label_bias_best using (run, n_demos, method)
    group by all
),

row_values as (
    select run, task, n_demos, method, metric, row, n_sets, value
    from label_bias_row_values
    union all
    select run, task, -1, 'best', metric, row, 0, value
    from label_bias_row_values
    semi join label_bias_best using (run, n_demos, method)
),

constant_differences as (
    select run, task, n_demos, method, metric, difference, square, largest
    from label_bias_constant_differences
    where format = 'base' and demo_set is null
    union all
    select run, task, -1, 'best', metric, difference, square, largest
    from label_bias_constant_differences
    semi join label_bias_best using (run, n_demos, method)
    where format = 'base' and demo_set is null
),

by_task as materialized (
    select
        shared.run, shared.other_run, task, n_demos, method, metric, mean_of_all(own.value, demo_set) as value,
        mean_of_all(other.value, demo_set) as other_value, max(own.baseline) as baseline,
        bonferroni_p(least(min(own.bias_score_p), min(other.bias_score_p)), count(own.bias_score_p) + count(other.bias_score_p)) as noise_p,
        any_value(shared.n_rows) as n_rows
    from shared
    inner join metrics as own using (run, task)
    inner join metrics as other using (task, n_demos, demo_set, method, metric)
    where
        other.run = shared.other_run and (not of_bias_score_rows(metric) or shared.has_same_bias_score_rows)
        and (n_demos >= 0 or has_other_best)
    group by all
),

means as (
    select
        by_task.run, by_task.other_run, n_demos, method, metric, mean_of_all(value, task) as value,
        mean_of_all(other_value, task) as other_value, avg(baseline order by task) as baseline, count(*) as n_tasks,
        count(*) filter (value is not null and other_value is not null) as n_measured,
        sum(n_rows)::bigint as n_rows, bonferroni_p(min(noise_p), count(noise_p)) as noise_p
    from by_task
    group by by_task.run, by_task.other_run, n_demos, method, metric
),

constant_sums as (
    select
        'all' as family, metric,
        {
            'run': shared.run, 'other_run': shared.other_run, 'of_run': differences.run, 'n_demos': n_demos,
            'method': method
        } as place,
        avg(difference order by task) as difference, sum(square order by task) / count(square) ** 2 as square,
        max(largest) / count(largest) as largest
    from shared
    inner join constant_differences as differences using (task)
    where differences.run in (shared.run, shared.other_run) and (n_demos >= 0 or has_other_best)
    group by all
),

constant_tests as materialized (from tests_above_constant('constant_sums')),

performance as (
    select
        run, other_run, n_demos, method, list(value order by metric) as given,
        list(other_value order by metric) as other_given, list(baseline order by metric) as constants
    from means
    where baseline is not null
    group by all
),

above as materialized (
    select
        performance.* exclude (given, other_given, constants),
        is_above_constant(own.constant_p, given, constants) as is_above_constant,
        is_above_constant(other.constant_p, other_given, constants) as other_is_above_constant
    from performance
    inner join constant_tests as own
        on {'run': run, 'other_run': other_run, 'of_run': run, 'n_demos': n_demos, 'method': method} = own.place
    inner join constant_tests as other
        on {'run': run, 'other_run': other_run, 'of_run': other_run, 'n_demos': n_demos, 'method': method} = other.place
),

task_units as (
    select
        'task' as kind, by_task.run, by_task.other_run, n_demos, method, metric,
        dense_rank() over (order by by_task.task) - 1 as unit, other_value - value as value
    from by_task
    semi join (select * from shared where unit = 'task') as chosen using (run, other_run)
    where word_metric(metric) = metric or other_value - value is not null
),

-- With T tasks of n rows each, N in all, the mean over tasks is that over rows of the values times N / (T n).
row_units as (
    select
        'row' as kind, shared.run, shared.other_run, n_demos, method, metric,
        dense_rank() over (order by of_bias_score_rows(metric), shared.task, row) - 1 as unit,
        (other.value - own.value)
        * count(*) over test
        / if(word_metric(metric) = metric, means.n_tasks, means.n_measured)
        / count(*) over (partition by shared.run, shared.other_run, n_demos, method, metric, shared.task) as value
    from shared
    inner join row_values as own using (run, task)
    inner join row_values as other using (task, n_demos, method, metric, row, n_sets)
    inner join means using (n_demos, method, metric)
    where
        shared.unit = 'row' and other.run = shared.other_run and means.run = shared.run
        and means.other_run = shared.other_run
        and (not of_bias_score_rows(metric) or shared.has_same_bias_score_rows)
        and (
            word_metric(metric) = metric
            or (shared.run, shared.other_run, shared.task, n_demos, method, metric) in (
                select (run, other_run, task, n_demos, method, metric)
                from by_task
                where value is not null and other_value is not null
            )
        )
    window test as (partition by shared.run, shared.other_run, n_demos, method, metric)
),

units as materialized (
    select
        {'unit': kind, 'apart': tested_apart(metric)} as family,
        {'run': run, 'other_run': other_run, 'n_demos': n_demos, 'method': method, 'metric': metric} as test,
        unit, value
    from (from task_units union all by name from row_units)
),

tested as (
    select unnest(test), * exclude (family, test)
    from sign_flip_tests('units', 'comparison_sign_flips')
),

measured as (
    select
        means.*, is_above_constant, other_is_above_constant, coalesce(tested.estimate, other_value - value) as estimate,
        tested.* exclude (run, other_run, n_demos, method, metric, estimate)
    from means
    left join tested using (run, other_run, n_demos, method, metric)
    inner join above using (run, other_run, n_demos, method)
),

compared as (
    select ordered.*, least_effect(metric) as least_effect, pairs.unit
    from both_directions('measured') as ordered
    inner join label_bias_shared as pairs using (run, other_run)
),

judged as (
    select
        *,
        word_p(list({'metric': metric, 'estimate': estimate, 'p': p_adjusted, 'noise_p': noise_p}) over of_word) as word_p_adjusted,
        word_band(
            metric, simultaneous_low, simultaneous_high,
            list({'metric': metric, 'low': simultaneous_low, 'high': simultaneous_high}) over of_word
        ) as band
    from compared
    window of_word as (partition by run, other_run, n_demos, method, word_metric(metric))
)

select
    run, other_run, nullif(n_demos, -1) as n_demos, method, metric, value, other_value, estimate, standard_error, low, high, p, p_adjusted,
    simultaneous_low, simultaneous_high, smallest_detectable, judged.least_effect,
    verdict(estimate, word_p_adjusted, band[1], band[2], n_units, judged.least_effect) as verdict,
    unit, n_units, n_tasks, n_rows, word_p_adjusted, word_p_adjusted as verdict_p, simultaneous_low as verdict_low,
    simultaneous_high as verdict_high, smallest_detectable as verdict_smallest_detectable, is_above_constant,
    other_is_above_constant, baseline, noise_p
from judged
order by all
