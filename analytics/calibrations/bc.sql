-- shown: BC
-- meaning: Batch calibration (Zhou et al. 2024): the same with the test rows themselves. It takes the mean over all rows
--   as the prior, so its results need a test set whose labels are about as frequent as where the model is used.
-- by: their mean over the test rows (Zhou et al. 2024)
-- inputs: main, majority
-- reference: Han Zhou, Xingchen Wan, Lev Proleev, Diana Mincu, Jilin Chen, Katherine Heller and Subhrajit Roy. 2024.
--   Batch Calibration: Rethinking Calibration for In-Context Learning and Prompt Engineering. ICLR 2024.
select
    * exclude (row, input, gold, log_probability),
    log_mean(list(log_probability order by row)) as log_prior, count(*) as n_rows
from calibration_scores
where method = 'bc'
group by all
