-- shown: RSD
-- meaning: Relative standard deviation of the recalls of the gold labels (Reif & Schwartz 2024); 0 without a hit.
-- range: 0 to inf
-- better: lower
-- requires: relative_variance
-- rows: predictions
-- resampled: by_gold
-- fewest_rows: 5
-- No row moves it where it is 0 for want of hits, of several gold labels or of differences between recalls.
select
    *,
    case when accuracy = 0 then 0 else deviation / accuracy end as value,
    case
        when accuracy > 0 and deviation > 1e-9
            then n_all / n_gold * (hit - recall) * (recall - mean_recall) / (n_gold_labels * deviation) / accuracy
            - deviation / accuracy ** 2 * (hit - accuracy)
        else 0
    end as influence
from answer_cells
