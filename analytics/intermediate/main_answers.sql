-- One row per (task, format, n_demos, method, row) of the main rows: its gold label, and its predictions in the order
-- of the demonstration sets. pattern: the same for rows with the same gold label and predictions.
with
answers as (
    select
        task, format, n_demos, method, row, any_value(gold) as gold, list(prediction order by demo_set) as predictions
    from calibrated_predictions
    where purpose = 'main'
    group by task, format, n_demos, method, row
)

select *, hash(gold, predictions) as pattern
from answers
