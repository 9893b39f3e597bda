-- shown: BC of half
-- meaning: Batch calibration (Zhou et al. 2024) whose prior is the mean over every second test row.
-- by: their mean over every second test row
-- inputs: main
-- calibration_scores has a row for each input and label; settings and the label are in the other columns.
select
    * exclude (row, input, gold, log_probability),
    log_mean(list(log_probability order by row)) as log_prior,
    count(*) as n_rows
from calibration_scores
where method = 'half_bc' and row % 2 = 0
group by all
