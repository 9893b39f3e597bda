-- shown: ECE
-- meaning: Expected calibration error of the predicted label: the mean over rows of the distance between confidence and
--   accuracy in 15 bins of equal width (Guo et al. 2017). Few rows push it up, also of a model that is calibrated.
-- range: 0 to 1
-- better: lower
-- noise: none
-- rows: main
-- Influences take the side of each bin as it is.
select
    *,
    sum(sign(round(bin_gap, 12)) * gap) over setting / count(*) over setting as value,
    sign(round(bin_gap, 12)) * gap - value as influence
from confidence_bins
window setting as (partition by task, format, n_demos, demo_set, method)
