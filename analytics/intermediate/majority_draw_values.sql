-- One row per (task, n_demos, instruction, predict, method, metric, setting, seed): value, what a draw of
-- demonstrations adds to a metric over settings: its derivative by the weighted F1 of that setting and seed
-- (majority_weights) times it. metric: mean_f1, sd_f1, tails_f1 and middle_f1, whose sum of values is the metric; null
-- in sd_f1 without any spread, and of a region outside it. accuracy, the same with the accuracy of that setting and
-- seed.
select
    task, n_demos, instruction, predict, method, setting, number, seed,
    unnest(['accuracy', 'mean_f1', 'sd_f1', 'tails_f1', 'middle_f1']) as metric,
    unnest([
        of_mean * accuracy,
        of_mean * weighted_f1,
        of_sd * weighted_f1,
        of_tails * weighted_f1,
        of_middle * weighted_f1
    ]) as value
from majority_weights
