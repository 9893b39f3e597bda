-- shown: CC
-- meaning: Contextual calibration (Zhao et al. 2021): probabilities divided by those for content-free inputs.
-- by: content-free inputs (Zhao et al. 2021)
-- inputs: cc
-- reference: Tony Z. Zhao, Eric Wallace, Shi Feng, Dan Klein and Sameer Singh. 2021. Calibrate Before Use:
--   Improving Few-Shot Performance of Language Models. ICML 2021.
select
    * exclude (row, input, gold, log_probability),
    log_mean(list(log_probability order by row)) as log_prior, count(*) as n_rows
from calibration_scores
where method = 'cc'
group by all
