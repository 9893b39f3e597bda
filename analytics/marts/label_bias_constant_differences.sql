-- One row per (task, format, n_demos, demo_set, method, metric): accuracy and macro_f1 minus those of the best constant
-- answer (constant_answers), over the main rows; demo_set: null for their means over demonstration sets. difference,
-- square and largest: of the rows' own differences, pseudo-values over their number (metric_influences,
-- metric_patterns), as tests_above_constant takes them. macro_f1 is null where a gold label has fewer than 5 rows.
with
counted as (
    select
        metric, task, format, n_demos, demo_set, method, gold, prediction::varchar as pattern, n_rows,
        value + influence as own
    from metric_influences
    where format <> 'sets of lora'
    union all
    select
        metric, task, format, n_demos, null as demo_set, method, gold, pattern::varchar as pattern, patterns.n_rows,
        value + influence as own
    from metric_patterns as patterns
    inner join metric_values_over_sets using (metric, task, format, n_demos, method)
    where format <> 'sets of lora'
),

differences as (
    select
        counted.* exclude (own),
        sum(n_rows) over (partition by metric, task, format, n_demos, demo_set, method) as n_all,
        case
            when metric = 'accuracy' then own - (gold = label)::int
            when n_gold_least >= 5
                then own - (majority_macro_f1 + macro_f1_slope * ((gold = label)::int - majority_accuracy))
        end as difference
    from counted
    inner join constant_answers using (task)
    where metric in ('accuracy', 'macro_f1')
)

select
    task, format, n_demos, demo_set, method, metric,
    sum(n_rows * difference / n_all order by gold, pattern) as difference,
    sum(n_rows * (difference / n_all) ** 2 order by gold, pattern) as square,
    max(abs(difference / n_all)) as largest
from differences
group by all
order by all
