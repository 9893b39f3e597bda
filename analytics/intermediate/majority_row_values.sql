-- One row per (task, n_demos, instruction, predict, method, metric, row): the pseudo-value of a metric over the
-- settings, whose mean over the test rows is the metric: it is the metric plus n times the row's influence. So a test
-- of means over rows is one of the metric, and the difference of two methods, instructions or models on the same rows
-- is paired. metric: mean_f1, mean weighted F1 over settings and seeds; tails_f1 and middle_f1, the same over the
-- settings of a region (setting_regions), of which middle_f1 may be missing; sd_f1, its sample standard deviation over
-- the settings, each with its mean over seeds (by the chain rule; null for all rows with one setting, or without any
-- spread).
with
pattern_weights as (
    from majority_pattern_values
    inner join majority_weights using (task, n_demos, instruction, setting, number, seed, predict, method)
),

row_values as (
    select
        predictions.task, predictions.n_demos, predictions.instruction, predictions.predict, predictions.method,
        predictions.row,
        sum(columns('^of_(mean|sd|tails|middle)$') * value order by predictions.number, predictions.seed) as "\1_f1"
    from majority_predictions as predictions
    inner join pattern_weights
        on
            predictions.task = pattern_weights.task and predictions.n_demos = pattern_weights.n_demos
            and predictions.instruction = pattern_weights.instruction and predictions.setting = pattern_weights.setting
            and predictions.seed = pattern_weights.seed and predictions.predict = pattern_weights.predict
            and predictions.method = pattern_weights.method and predictions.gold = pattern_weights.gold
            and predictions.prediction is not distinct from pattern_weights.prediction
    group by all
)

from row_values unpivot include nulls (value for metric in (mean_f1, sd_f1, tails_f1, middle_f1))
where metric <> 'middle_f1' or value is not null
