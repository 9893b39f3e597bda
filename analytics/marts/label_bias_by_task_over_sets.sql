-- One row per (model, task, n_demos, method): label_bias_by_task, averaged over demonstration sets. A mean is null
-- where a set lacks the metric. n_demo_sets_without_hit: sets with accuracy 0, whose rsd is 0 for that. *_p: the
-- smallest of the sets' times their number (Bonferroni). share_most_frequent: the largest of the sets, each of which
-- may repeat another label; is_constant: that is above 95 %, a description that nothing is judged by.
-- is_above_constant, constant_p: of the means over sets, as in label_bias_by_task; n_demo_sets_not_above: sets in which
-- neither accuracy nor macro_f1 exceeds that of an answer that is always the same. Baselines, bias_score_of_perfect,
-- numbers of labels and their rows are the same in every set. *_low, *_high: 95 % intervals of these tasks and
-- demonstrations, over resampled rows (metric_errors): Wilson's for accuracy, with as many rows as give its error, at
-- most the predictions; Student's t for macro_f1; of rsd and bias_score those of what rows leave without their noise
-- (norm_interval), with 0 inside wherever rsd_p or bias_score_p does not tell from it; the measured value may lie
-- above. Null where the floor is. rsd_smallest_detectable, bias_score_smallest_detectable: the smallest biases that
-- these p tell from noise in four of five runs of so many rows (smallest_biases), where each set has them: means over
-- sets.
with
means as (
    select
        label_bias_by_task.model, label_bias_by_task.task, label_bias_by_task.n_demos, label_bias_by_task.method,
        mean_of_all(columns('^(macro_f1|accuracy|rsd|bias_score)$'), demo_set) as "\1",
        count(*) as n_demo_sets, count(*) filter (accuracy = 0) as n_demo_sets_without_hit,
        sum(n_rows)::bigint as n_rows, sum(n_bias_score_rows)::bigint as n_bias_score_rows, n_labels, category,
        is_semantically_equivalent, mean_of_all(rsd_floor, demo_set) as rsd_floor,
        mean_of_all(rsd_excess, demo_set) as rsd_excess, bonferroni_p(min(rsd_p), count(rsd_p)) as rsd_p,
        mean_of_all(bias_score_floor, demo_set) as bias_score_floor,
        bonferroni_p(min(bias_score_p), count(bias_score_p)) as bias_score_p,
        max(bias_score_of_perfect) as bias_score_of_perfect, max(n_gold_labels) as n_gold_labels,
        max(n_main_gold_labels) as n_main_gold_labels, max(majority_accuracy) as majority_accuracy,
        max(majority_macro_f1) as majority_macro_f1,
        max(label_bias_by_task.share_most_frequent) as share_most_frequent,
        max(label_bias_by_task.share_most_frequent) > 0.95 as is_constant,
        mean_of_all(relative_variance, demo_set) as relative_variance,
        mean_of_all(squared_preference, demo_set) as squared_preference,
        any_value(n_fewest_bias_score_rows) as n_fewest_bias_score_rows,
        any_value(fewest_bias_score_label) as fewest_bias_score_label
    from label_bias_by_task
    group by all
),

smallest as (
    select
        task, n_demos, method,
        avg(rsd_smallest_detectable_of_sets order by demo_set) as rsd_smallest_detectable,
        avg(bias_score_smallest_detectable_of_sets order by demo_set) as bias_score_smallest_detectable
    from smallest_biases
    group by all
),

errors as (
    from (from metric_errors where format = 'base') pivot (
        any_value(n_units) as n_units, any_value(n_free) as n_free, any_value(standard_error) as error
        for metric in ('accuracy', 'macro_f1', 'rsd', 'bias_score')
        group by task, n_demos, method
    )
),

bounded as (
    select
        means.*,
        wilson_interval(
            means.accuracy,
            if(
                accuracy_error > 0, least(means.n_rows, means.accuracy * (1 - means.accuracy) / accuracy_error ** 2),
                accuracy_n_units
            )
        ) as accuracy_interval,
        t_quantile(accuracy_n_free) * macro_f1_error as macro_f1_reach,
        norm_interval(means.rsd, means.rsd_floor, rsd_error, means.n_main_gold_labels - 1, t_quantile(accuracy_n_free)) as rsd_interval,
        -- The root mean square of what is half the sum of absolute normal deviations on average.
        norm_interval(
            means.bias_score, means.bias_score_floor * sqrt(1 + (pi() / 2 - 1) / (means.n_labels - 1)),
            bias_score_error, means.n_labels - 1, t_quantile(bias_score_n_free)
        ) as bias_score_interval
    from means
    left join errors using (task, n_demos, method)
)

select
    bounded.* exclude (
        accuracy_interval, macro_f1_reach, rsd_interval, bias_score_interval, relative_variance, squared_preference,
        n_fewest_bias_score_rows, fewest_bias_score_label
    ),
    accuracy_interval[1] as accuracy_low, accuracy_interval[2] as accuracy_high,
    if(macro_f1_reach is null, null, greatest(0, macro_f1 - macro_f1_reach)) as macro_f1_low,
    if(macro_f1_reach is null, null, least(1, macro_f1 + macro_f1_reach)) as macro_f1_high,
    rsd_interval[1] * case when rsd_p > 0.05 then 0 else 1 end as rsd_low,
    rsd_interval[2] as rsd_high,
    bias_score_interval[1] * case when bias_score_p <= 0.05 then 1 else 0 end as bias_score_low,
    bias_score_interval[2] as bias_score_high, relative_variance, constant_p, is_above_constant, n_demo_sets_not_above,
    squared_preference, n_fewest_bias_score_rows, fewest_bias_score_label, smallest.rsd_smallest_detectable,
    smallest.bias_score_smallest_detectable
from bounded
inner join (select * from constant_tests where format = 'base' and demo_set is null) as constant_tests
    using (task, n_demos, method)
left join smallest using (task, n_demos, method)
order by all
