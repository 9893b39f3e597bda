-- One row per (task, format, n_demos, demo_set, method, metric): accuracy and macro_f1 minus those of the best constant answer
-- (constant_answers), over the main rows; demo_set: null for their means over demonstration sets. difference, square and
-- largest: of the rows' own differences, pseudo-values over their number (prediction_influences, main_patterns), as
-- tests_above_constant takes them. macro_f1 is null where a gold label has fewer than 5 rows.
with

counted as (

    select
        task,
        format,
        n_demos,
        demo_set,
        method,
        gold,
        prediction::varchar as pattern,
        influences.n_rows,
        influences.accuracy,
        influences.macro_f1,
        metrics.accuracy as accuracy_of_setting,
        metrics.macro_f1 as macro_f1_of_setting
    from prediction_influences as influences
    inner join format_metrics as metrics using (task, format, n_demos, demo_set, method)

    union all

    select
        task,
        format,
        n_demos,
        null as demo_set,
        method,
        gold,
        pattern::varchar as pattern,
        main_patterns.n_rows,
        main_patterns.accuracy,
        main_patterns.macro_f1,
        metrics.accuracy as accuracy_of_setting,
        metrics.macro_f1 as macro_f1_of_setting
    from main_patterns
    inner join format_metrics_over_sets as metrics using (task, format, n_demos, method)

),

differences as (

    select
        counted.* exclude (accuracy, macro_f1, accuracy_of_setting, macro_f1_of_setting),
        sum(n_rows) over (partition by task, format, n_demos, demo_set, method) as n_all,
        unnest(['accuracy', 'macro_f1']) as metric,
        unnest([
            accuracy_of_setting + accuracy - (gold = label)::int,
            case
                when n_gold_least >= 5
                    then macro_f1_of_setting + macro_f1
                    - (majority_macro_f1 + macro_f1_slope * ((gold = label)::int - majority_accuracy))
            end
        ]) as difference
    from counted
    inner join constant_answers using (task)

)

select
    task,
    format,
    n_demos,
    demo_set,
    method,
    metric,
    sum(n_rows * difference / n_all order by gold, pattern) as difference,
    sum(n_rows * (difference / n_all) ** 2 order by gold, pattern) as square,
    max(abs(difference / n_all)) as largest
from differences
group by all
order by all
