-- One row per (task, n_demos, instruction, setting, seed, predict, method, metric): accuracy and weighted_f1 minus
-- those of the best constant answer, which gives the most frequent gold label of the test rows. seed null: the mean
-- over the seeds of a setting; setting null, too: the mean over settings. difference, square and largest: of the rows'
-- own differences, pseudo-values (majority_pattern_values) over the number of rows, as tests_above_constant takes them;
-- of weighted_f1 null where a gold label has fewer than 5 rows. majority_accuracy: the label's share p; constant_f1: 2
-- p^2 / (1 + p).
with
gold_counts as (
    select task, gold, count(*) as n_gold
    from (select task, row, any_value(gold) as gold from majority_predictions group by all)
    group by all
),

constants as (
    select
        task, arg_max(gold, {'n_gold': n_gold, 'gold': gold}) as label, max(n_gold) / sum(n_gold) as majority_accuracy,
        2 * majority_accuracy ** 2 / (1 + majority_accuracy) as constant_f1,
        (4 * majority_accuracy + 2 * majority_accuracy ** 2) / (1 + majority_accuracy) ** 2 as slope,
        min(n_gold) as n_gold_least
    from gold_counts
    group by task
),

row_values as (
    select
        predictions.task, predictions.n_demos, predictions.instruction, predictions.setting, predictions.number,
        predictions.seed, predictions.predict, predictions.method, predictions.row, predictions.gold,
        coalesce(predictions.prediction = predictions.gold, false)::int as accuracy,
        patterns.value as weighted_f1
    from majority_predictions as predictions
    inner join majority_pattern_values as patterns
        on
            predictions.task = patterns.task and predictions.n_demos = patterns.n_demos
            and predictions.instruction = patterns.instruction and predictions.setting = patterns.setting
            and predictions.seed = patterns.seed and predictions.predict = patterns.predict
            and predictions.method = patterns.method and predictions.gold = patterns.gold
            and predictions.prediction is not distinct from patterns.prediction
),

-- A setting counts with its mean over seeds.
setting_values as (
    select
        * exclude (seed, accuracy, weighted_f1), avg(accuracy order by seed) as accuracy,
        avg(weighted_f1 order by seed) as weighted_f1
    from row_values
    group by all
),

levels as (
    select * exclude (number)
    from row_values
    union all by name
    select * exclude (number)
    from setting_values
    union all by name
    select
        * exclude (setting, number, accuracy, weighted_f1),
        avg(accuracy order by number) as accuracy, avg(weighted_f1 order by number) as weighted_f1
    from setting_values
    group by all
),

differences as (
    select
        levels.* exclude (gold, accuracy, weighted_f1), majority_accuracy, constant_f1,
        count(*) over (partition by task, n_demos, instruction, setting, seed, predict, method) as n_all,
        unnest(['accuracy', 'weighted_f1']) as metric, unnest([accuracy, weighted_f1]) as value,
        unnest([
            accuracy - (gold = label)::int,
            case
                when n_gold_least >= 5
                    then weighted_f1 - constant_f1 - slope * ((gold = label)::int - majority_accuracy)
            end
        ]) as difference
    from levels
    inner join constants using (task)
)

select
    * exclude (row, n_all, value, difference), avg(value order by row) as value,
    sum(difference / n_all order by row) as difference, sum((difference / n_all) ** 2 order by row) as square,
    max(abs(difference / n_all)) as largest
from differences
group by all
