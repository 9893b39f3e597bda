-- One row per (of_rows, task, format, n_demos, method, row): the pattern (metric_patterns) that the row has for metrics
-- whose influences are over such rows: main rows by their predictions, main rows each alone, and rows of BiasScore.
select 'predictions' as of_rows, task, format, n_demos, method, row, pattern
from main_answers
union all
select 'main' as of_rows, task, format, n_demos, method, row, hash(row) as pattern
from main_answers
semi join (from run_metrics where of_rows = 'main') as asked on true
union all
select distinct 'bias_score' as of_rows, task, format, n_demos, method, row, hash(row) as pattern
from calibrated_predictions
where purpose = 'bias_score'
