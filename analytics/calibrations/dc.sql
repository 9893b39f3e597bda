-- shown: DC
-- meaning: Domain-context calibration (Fei et al. 2023): the same with random words of the inputs of the task.
-- by: random words of the test inputs (Fei et al. 2023)
-- inputs: dc
-- reference: Yu Fei, Yifan Hou, Zeming Chen and Antoine Bosselut. 2023. Mitigating Label Biases for
--   In-Context Learning. ACL 2023.
select
    * exclude (row, input, gold, log_probability),
    log_mean(list(log_probability order by row)) as log_prior, count(*) as n_rows
from calibration_scores
where method = 'dc'
group by all
