-- shown: squared preference
-- meaning: Sum over labels of (mean probability - 1 / labels) squared, less what rows add to it, signed: about 0 without
--   preference. Null where each gold label has one row.
-- better: lower
-- least_effect: 0.002
-- rows: bias_score
-- resampled: by_gold
-- fewest_rows: 2
-- Its least effect is what 0.01 is of a BiasScore of 0.045 with two labels, of which it is twice the square.
select
    *,
    list_sum(list_transform(distances, lambda x, i: x ** 2 - standard_errors[i] ** 2)) as value,
    2 * weight * list_dot_product(list_transform(distances, lambda x: round(x, 12)), deviations) as influence
from preference_rows
