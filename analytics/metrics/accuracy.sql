-- shown: accuracy
-- meaning: Share of the main rows whose prediction is the gold label.
-- range: 0 to 1
-- better: higher
-- rows: predictions
-- gives: row_value
select *, hit as row_value
from answer_cells
