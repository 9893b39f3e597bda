-- One row per (model, suite, n_demos, method, format): means over tasks and demonstration sets in each format of the
-- prompt; the base is what label_bias_by_model has. A mean is null where a task of the suite lacks the metric. A format
-- that only orders demonstrations has no rows of fewer than two. rsd_floor, rsd_excess, bias_score_floor: means over
-- the tasks that have one, as in label_bias_by_task. n_rows, n_bias_score_rows: predictions. majority_accuracy,
-- majority_macro_f1: of the best constant answer; share_most_frequent and the columns after it: suite_constant_tests.
select
    model, suite, n_demos, method, format,
    mean_of_all(columns('^(macro_f1|accuracy|rsd|bias_score)$'), task) as "\1",

    avg(columns('^(relative_variance|squared_preference|rsd_floor|rsd_excess|bias_score_floor)$') order by task) as "\1",
    count(*) as n_tasks, max(n_demo_sets) as n_demo_sets, sum(n_rows)::bigint as n_rows,
    sum(n_bias_score_rows)::bigint as n_bias_score_rows,
    avg(columns('^majority_(accuracy|macro_f1)$') order by task) as "\0",
    any_value(tests.share_most_frequent) as share_most_frequent, any_value(tests.constant_p) as constant_p,
    any_value(tests.is_above_constant) as is_above_constant, any_value(tests.n_tasks_not_above) as n_tasks_not_above,
    any_value(tests.n_demo_sets_not_above) as n_demo_sets_not_above
from format_metrics_over_sets
inner join suite_tasks using (task)
inner join suite_constant_tests as tests using (suite, n_demos, method, format)
group by all
order by all
