-- One row per (task, format, n_demos, demo_set, method, row) of the main rows: whether the predicted label is right,
-- minus its probability (gap); the sum of that over the rows of its bin, of 15 of equal width (bin_gap), and their
-- number (n_bin).
select
    task, format, n_demos, demo_set, method, row, gold, list_max(probabilities) as confidence,
    (prediction = gold)::int - confidence as gap, sum(gap) over bin as bin_gap, count(*) over bin as n_bin
from calibrated_predictions
where purpose = 'main'
window bin as (
    partition by task, format, n_demos, demo_set, method, ceil(list_max(probabilities) * 15)
    order by row
    rows between unbounded preceding and unbounded following
)
