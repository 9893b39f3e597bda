-- shown: BiasScore
-- meaning: Half the sum over labels of |mean probability - 1 / labels| (Reif & Schwartz 2024).
-- range: 0 to 1
-- better: lower
-- requires: squared_preference
-- noise: bias_score_p
-- rows: bias_score
-- resampled: by_gold
-- fewest_rows: 2
-- Influences take the side of each label as it is.
select
    *,
    0.5 * list_sum(list_transform(distances, lambda x: abs(x))) as value,
    0.5 * weight * list_dot_product(
        list_transform(distances, lambda x: sign(round(x, 12))::double), deviations
    ) as influence
from preference_rows
