-- shown: confident errors
-- meaning: Share of the main rows whose prediction is wrong with a probability of at least 0.8.
-- range: 0 to 1
-- better: lower
-- rows: main
-- gives: row_value
select
    *,
    (prediction <> gold and list_max(probabilities) >= 0.8)::int as row_value
from calibrated_predictions
where purpose = 'main'
