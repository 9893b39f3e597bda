-- One row per (suite, n_demos, method, format): are the means over the tasks of a suite better than those of the best
-- constant answers, on these very tasks? constant_p, is_above_constant: as in constant_tests, adjusted for all rows; a
-- task counts in the test where its metric can be tested. share_most_frequent: the largest of the tasks and
-- demonstration sets. n_tasks_not_above: tasks in which neither accuracy nor macro_f1 exceeds that of the constant
-- answer; n_demo_sets_not_above: the same of tasks' demonstration sets.
with
differences as (
    select
        'all' as family, metric,
        {'suite': suite, 'n_demos': n_demos, 'method': method, 'format': format} as place,
        avg(difference order by task) as difference, sum(square order by task) / count(square) ** 2 as square,
        max(largest) / count(largest) as largest
    from label_bias_constant_differences
    inner join suite_tasks using (task)
    where demo_set is null
    group by all
),

tested as (
    select unnest(place), constant_p
    from tests_above_constant('differences')
),

measured as (
    select
        suite, n_demos, method, format,
        [avg(accuracy order by task), avg(macro_f1 order by task)] as given,
        [avg(majority_accuracy order by task), avg(majority_macro_f1 order by task)] as constants,
        max(constant_tests.share_most_frequent) as share_most_frequent,
        count(*) filter (not is_above_constant) as n_tasks_not_above,
        sum(n_demo_sets_not_above)::bigint as n_demo_sets_not_above
    from format_metrics_over_sets
    inner join constant_tests using (task, n_demos, method, format)
    inner join suite_tasks using (task)
    where demo_set is null
    group by all
)

select
    measured.* exclude (given, constants), constant_p,
    is_above_constant(constant_p, given, constants) as is_above_constant
from measured
inner join tested using (suite, n_demos, method, format)
