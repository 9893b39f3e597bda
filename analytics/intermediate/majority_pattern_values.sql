-- One row per (task, n_demos, instruction, setting, seed, predict, method, gold, prediction): n_rows, the test rows
-- that have this gold label and prediction, and value, the pseudo-value of weighted F1 of each of them: weighted F1
-- plus n_rows times a row's influence on it (the infinitesimal jackknife, Jaeckel 1972; Efron 1982). Their mean over
-- the test rows is the weighted F1 of this setting and seed. A null prediction is no label. A label with g gold rows, p
-- predicted and c correct ones adds g / n * 2 c / (g + p). That sum does not change where all counts double, so a
-- pseudo-value is the sum of the derivatives by the counts that a row adds to: 2 c p / (g + p)^2 by its gold label, -2
-- g c / (g + p)^2 by its prediction, and 2 g / (g + p) if it is correct.
with
patterns as (
    select task, n_demos, instruction, setting, number, seed, predict, method, gold, prediction, count(*) as n_rows
    from majority_predictions
    group by all
),

label_counts as (
    select
        * exclude (n_gold, n_predicted, n_correct),
        sum(n_gold)::double as n_gold, sum(n_predicted)::double as n_predicted, sum(n_correct)::double as n_correct
    from (
        select
            * exclude (gold, prediction, n_rows), gold as label, n_rows as n_gold, 0 as n_predicted,
            case when prediction = gold then n_rows else 0 end as n_correct
        from patterns
        union all
        select
            * exclude (gold, prediction, n_rows), prediction as label, 0 as n_gold, n_rows as n_predicted,
            0 as n_correct
        from patterns
        where prediction is not null
    )
    group by all
),

derivatives as (
    select
        * exclude (n_gold, n_predicted, n_correct),
        2 * n_correct * n_predicted / (n_gold + n_predicted) ** 2 as by_gold,
        -2 * n_gold * n_correct / (n_gold + n_predicted) ** 2 as by_prediction,
        2 * n_gold / (n_gold + n_predicted) as by_hit
    from label_counts
)

select
    patterns.*,
    by_gold.by_gold
    + coalesce(by_prediction.by_prediction, 0)
    + case when patterns.prediction = patterns.gold then by_gold.by_hit else 0 end as value
from patterns
inner join (select * rename (label as gold) from derivatives) as by_gold
    using (task, n_demos, instruction, setting, number, seed, predict, method, gold)
left join (select * rename (label as prediction) from derivatives) as by_prediction
    using (task, n_demos, instruction, setting, number, seed, predict, method, prediction)
