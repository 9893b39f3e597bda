-- One row per (task, format, n_demos, demo_set, method, gold, prediction) that occurs on the main rows.
select task, format, n_demos, demo_set, method, gold, prediction, count(*) as n_rows
from calibrated_predictions
where purpose = 'main'
group by all
