-- shown: relative variance
-- meaning: Square of RSD without what rows add to it, signed: it does not fall where only accuracy rises. Null without a hit.
-- better: lower
-- least_effect: 0.002
-- rows: predictions
-- resampled: by_gold
-- fewest_rows: 5
-- Its least effect is about what 0.01 is of an RSD of 0.1, its square root. noise: what rows add to the variance of recalls.
select
    *,
    case when accuracy > 0 then (deviation ** 2 - noise) / accuracy ** 2 end as value,
    case
        when accuracy > 0 then (
            n_all / n_gold * (hit - recall) * (
                2 / n_gold_labels * (recall - mean_recall)
                - (n_gold_labels - 1) / n_gold_labels ** 2 * coalesce((1 - 2 * recall) / nullif(n_gold - 1, 0), 0)
            )
            - 2 * (deviation ** 2 - noise) / accuracy * (hit - accuracy)
        ) / accuracy ** 2
        else 0
    end as influence
from answer_cells
