-- One row per (model, suite, n_demos, method): means over tasks and demonstration sets. A mean is null where a task of
-- the suite lacks the metric. *_low, *_high: 95 % intervals of the mean over tasks like these, from the same mean over
-- 1,000 resamples of the tasks (t_reach). Of one task those of label_bias_by_task_over_sets, over its rows; unit says
-- which. Means over tasks mix scales: a constant answer has an RSD of 1 with two labels, and of 6.6 with 45. Beside
-- them the *_median, the *_interquartile_mean (of the middle half, Agarwal et al. 2021), and rsd_normalized, the mean
-- of RSD over the square root of (gold labels - 1), which is 1 for a constant answer where gold labels are equally
-- frequent. rsd_floor, rsd_excess, bias_score_floor, bias_score_of_perfect, majority_accuracy, majority_macro_f1: means
-- over the tasks that have one, as in label_bias_by_task. n_tasks_rsd, n_tasks_bias_score: tasks whose recalls, or mean
-- probabilities, differ from equal ones by more than rows explain (label_bias_task_tests), of the n_tasks_*_tested that
-- have a p. n_tasks_constant: more than 95 % of the answers of a demonstration set are the same; n_tasks_single_gold:
-- one gold label among the main rows, RSD is 0; n_tasks_without_hit: accuracy 0 in a set, RSD is 0 there.
-- relative_variance, squared_preference: the means of those of label_bias_by_task. is_bias_shown: a rsd_p or
-- bias_score_p of a task, times the number of all of them with the method in the suite (Bonferroni: over tasks, numbers
-- of demonstrations and both metrics), is at most 5 %. is_below_majority: mean accuracy is below majority_accuracy.
-- share_most_frequent, constant_p, is_above_constant, n_tasks_not_above and n_demo_sets_not_above:
-- suite_constant_tests. rsd_smallest_detectable, bias_score_smallest_detectable: means, over the tasks that have one,
-- of the smallest bias that the test of a task finds in four of five runs (label_bias_by_task_over_sets).
with
estimates as (
    select
        model, suite, n_demos, method,
        estimate(columns('^(macro_f1|accuracy|rsd|bias_score)$'), draw) as "\1",
        bootstrap_error(columns('^(macro_f1|accuracy|rsd|bias_score)$'), draw) as "\1_error"
    from label_bias_draws
    group by all
),

measured as (
    from label_bias_by_task_over_sets
    inner join suite_tasks using (task)
    inner join label_bias_task_tests using (model, suite, n_demos, method, task)
),

counts as (
    select
        model, suite, n_demos, method,
        if(count(columns('^(macro_f1|accuracy|rsd|bias_score)$')) = count(*), median(columns('^(macro_f1|accuracy|rsd|bias_score)$')), null) as "\1_median",
        if(
            count(columns('^(macro_f1|accuracy|rsd|bias_score)$')) = count(*), interquartile_mean(list(columns('^(macro_f1|accuracy|rsd|bias_score)$') order by columns('^(macro_f1|accuracy|rsd|bias_score)$'))), null
        ) as "\1_interquartile_mean",
        avg(rsd / sqrt(n_main_gold_labels - 1) order by task) filter (n_main_gold_labels > 1) as rsd_normalized,
        avg(
            columns('^(majority_.*|.*_(floor|excess|of_perfect|smallest_detectable)|relative_variance|squared_preference)$')
            order by task
        ) as "\0",
        count(*) filter (is_rsd_above) as n_tasks_rsd, count(*) filter (is_bias_score_above) as n_tasks_bias_score,
        count(*) filter (is_constant) as n_tasks_constant,
        count(*) filter (n_main_gold_labels = 1) as n_tasks_single_gold,
        count(*) filter (n_demo_sets_without_hit > 0) as n_tasks_without_hit,
        count(*) as n_tasks, max(n_demo_sets) as n_demo_sets, sum(n_rows)::bigint as n_rows,
        sum(n_bias_score_rows)::bigint as n_bias_score_rows, least(min(rsd_p), min(bias_score_p)) as least_p,
        count(rsd_p) + count(bias_score_p) as n_p, count(is_rsd_above) as n_tasks_rsd_tested,
        count(is_bias_score_above) as n_tasks_bias_score_tested
    from measured
    group by all
)

select
    estimates.model, estimates.suite, estimates.n_demos, estimates.method, estimates.macro_f1,
    clipped(tasks_low(estimates.macro_f1, macro_f1_error, counts.n_tasks, single.macro_f1_low), 0, 1) as macro_f1_low,
    clipped(tasks_high(estimates.macro_f1, macro_f1_error, counts.n_tasks, single.macro_f1_high), 0, 1) as macro_f1_high,
    estimates.accuracy,
    clipped(tasks_low(estimates.accuracy, accuracy_error, counts.n_tasks, single.accuracy_low), 0, 1) as accuracy_low,
    clipped(tasks_high(estimates.accuracy, accuracy_error, counts.n_tasks, single.accuracy_high), 0, 1) as accuracy_high,
    estimates.rsd,
    clipped(tasks_low(estimates.rsd, rsd_error, counts.n_tasks, single.rsd_low), 0, null) as rsd_low,
    clipped(tasks_high(estimates.rsd, rsd_error, counts.n_tasks, single.rsd_high), 0, null) as rsd_high,
    estimates.bias_score,
    clipped(tasks_low(estimates.bias_score, bias_score_error, counts.n_tasks, single.bias_score_low), 0, null) as bias_score_low,
    clipped(tasks_high(estimates.bias_score, bias_score_error, counts.n_tasks, single.bias_score_high), 0, null) as bias_score_high,
    counts.* exclude (
        model, suite, n_demos, method, relative_variance, squared_preference, n_tasks_rsd_tested,
        n_tasks_bias_score_tested, least_p, n_p, rsd_smallest_detectable, bias_score_smallest_detectable
    ),
    if(counts.n_tasks > 1, 'tasks', 'rows') as unit,
    counts.relative_variance, counts.n_tasks_rsd_tested, counts.n_tasks_bias_score_tested,
    estimates.accuracy < counts.majority_accuracy as is_below_majority,
    tests.share_most_frequent, tests.constant_p, tests.is_above_constant, tests.n_tasks_not_above,
    tests.n_demo_sets_not_above,
    least_p * sum(n_p) over (partition by estimates.model, estimates.suite, estimates.method) <= 0.05 as is_bias_shown,
    counts.squared_preference, counts.rsd_smallest_detectable, counts.bias_score_smallest_detectable,
    run_settings.n_parameters, run_settings.family, run_settings.tuned_from
from estimates
inner join run_settings using (model)
inner join counts using (model, suite, n_demos, method)
inner join (select * from suite_constant_tests where format = 'base') as tests using (suite, n_demos, method)
left join (from measured qualify count(*) over (partition by model, suite, n_demos, method) = 1) as single
    using (model, suite, n_demos, method)
order by all
