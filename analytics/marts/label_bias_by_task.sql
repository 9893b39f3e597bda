-- One row per (model, task, n_demos, demo_set, method): performance and label bias (Reif & Schwartz 2024).
-- macro_f1 and rsd run over the labels that occur in gold, bias_score over the whole label set; rsd is 0 at accuracy 0.
-- What these say, beside what comes from the rows alone:
-- rsd_floor: about the RSD of a model whose recall does not depend on the label, of so many rows and this accuracy (exact
-- to the second moment of hits that are permuted between gold labels); rsd_excess: RSD without the variance of that,
-- at least 0; rsd_p: that hits do not depend on the label, the smallest recall_p of its labels times their number
-- (Bonferroni; two labels have one and the same). Null with one gold label or accuracy 0 or 1, where RSD says nothing.
-- relative_variance: the square of RSD without what rows add to it, signed: (variance of recalls - (C - 1) / C^2 * sum over
-- the C gold labels of r (1 - r) / (n - 1)) / accuracy^2, with accuracy for r and n for n - 1 at a label of one row. What is
-- divided is on average the variance between labels, whatever the accuracy, so that it does not fall where only accuracy
-- rises, as RSD does. 0 at accuracy 0.
-- n_gold_labels: gold labels among the bias_score rows. bias_score_of_perfect: that of a model which is always right and
-- sure, 1 - n_gold_labels / n_labels, so that 0 is not within reach where a label does not occur. bias_score_floor: about
-- what rows alone leave of a model without preference, the mean of half the sum of normal deviations; bias_score_p: that
-- no label is preferred, by preference_p as above; both null unless every label occurs.
-- n_main_gold_labels: gold labels among the main rows. majority_accuracy, majority_macro_f1: of always giving the most
-- frequent of them (majority-class baseline). share_most_frequent: of the predictions, the most frequent one.
with

labels as (

    select
        *,
        case when n_gold > 0 then 2 * n_correct / (n_gold + n_predicted) end as f1
    from label_bias_by_label

),

measured as (

    select
        model,
        task,
        n_demos,
        demo_set,
        method,
        avg(f1 order by label) as macro_f1,
        sum(n_correct) / sum(n_gold) as accuracy,
        stddev_pop(recall order by label) as recall_deviation,
        sum(1 / nullif(n_gold, 0) order by label) as sum_of_inverses,
        sum(recall * (1 - recall) / nullif(n_gold - 1, 0) order by label) as sum_of_errors,
        count(*) filter (n_gold = 1) as n_single,
        count(recall) as n_main_gold_labels,
        max(n_gold) / sum(n_gold) as majority_accuracy,
        max(n_predicted) / sum(n_predicted) as share_most_frequent,
        bonferroni_p(min(recall_p), if(count(recall) = 2, 1, count(recall))) as rsd_p,
        0.5 * sum(abs(mean_probability - 1 / n_labels) order by label) as bias_score,
        sum(standard_error order by label) / sqrt(2 * pi()) as deviation_of_noise,
        bonferroni_p(min(preference_p), if(any_value(n_labels) = 2, 1, any_value(n_labels))) as bias_score_p,
        max(n_gold_labels) as n_gold_labels,
        sum(n_gold)::bigint as n_rows,
        max(n_bias_score_rows) as n_bias_score_rows
    from labels
    inner join (select task, len(labels) as n_labels from tasks) using (task)
    group by all

),

floors as (

    select
        *,
        case
            when n_main_gold_labels > 1 and accuracy > 0 and accuracy < 1 then sqrt(
                (1 - accuracy) / accuracy * n_rows / (n_rows - 1)
                * (n_main_gold_labels - 1) / n_main_gold_labels ** 2 * sum_of_inverses
            )
        end as rsd_floor
    from measured

)

select
    floors.model,
    floors.task,
    floors.n_demos,
    floors.demo_set,
    floors.method,
    floors.macro_f1,
    floors.accuracy,
    if(floors.accuracy = 0, 0, floors.recall_deviation / floors.accuracy) as rsd,
    floors.bias_score,
    floors.n_rows,
    floors.n_bias_score_rows,
    len(tasks.labels) as n_labels,
    tasks.category,
    tasks.is_semantically_equivalent,
    floors.rsd_floor,
    case
        when floors.rsd_floor is not null then sqrt(
            greatest(0, floors.recall_deviation ** 2 - (floors.accuracy * floors.rsd_floor) ** 2)
        ) / floors.accuracy
    end as rsd_excess,
    if(floors.rsd_floor is null, null, floors.rsd_p) as rsd_p,
    if(floors.n_gold_labels = len(tasks.labels), floors.deviation_of_noise, null) as bias_score_floor,
    floors.bias_score_p,
    if(floors.n_gold_labels > 0, 1 - floors.n_gold_labels / len(tasks.labels), null) as bias_score_of_perfect,
    floors.n_gold_labels,
    floors.n_main_gold_labels,
    floors.majority_accuracy,
    2 * floors.majority_accuracy / (1 + floors.majority_accuracy) / floors.n_main_gold_labels as majority_macro_f1,
    floors.share_most_frequent,
    if(
        floors.accuracy = 0,
        0,
        (
            floors.recall_deviation ** 2
            - (floors.n_main_gold_labels - 1) / floors.n_main_gold_labels ** 2
            * (coalesce(floors.sum_of_errors, 0) + floors.n_single * floors.accuracy * (1 - floors.accuracy))
        ) / floors.accuracy ** 2
    ) as relative_variance
from floors
inner join tasks using (task)
order by all
