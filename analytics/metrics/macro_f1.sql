-- shown: macro-F1
-- meaning: Mean over the gold labels of their F1.
-- range: 0 to 1
-- better: higher
-- rows: predictions
-- fewest_rows: 5
select
    *, macro_f1 as value,
    n_all * case
        when hit = 1 then (2 - 2 * f1) / n_either
        else -f1 / n_either - coalesce(predicted_f1 / predicted_n_either, 0)
    end / n_gold_labels as influence
from answer_cells
