-- shown: Brier score
-- meaning: Mean over the main rows of the sum over labels of (probability - 1 for the gold label, else 0) squared (Brier 1950).
-- range: 0 to 2
-- better: lower
-- rows: main
-- gives: row_value
select *, list_sum(list_transform(probabilities, lambda p, i: (p - (labels[i] = gold)::int) ** 2)) as row_value
from calibrated_predictions
where purpose = 'main'
