-- shown: LOOC
-- meaning: Leave-one-out calibration (Reif & Schwartz 2024): the same with each demonstration, left out of its own
--   prompt. Needs demonstrations.
-- by: each demonstration left out of its own prompt (Reif & Schwartz 2024)
-- inputs: looc
-- The mean of the means within each gold label that occurs.
with
gold_means as (
    select
        * exclude (row, input, log_probability),
        log_mean(list(log_probability order by row)) as log_mean, count(*) as n_gold
    from calibration_scores
    where method = 'looc'
    group by all
)

select
    * exclude (gold, log_mean, n_gold),
    log_mean(list(log_mean order by gold)) as log_prior, sum(n_gold)::bigint as n_rows
from gold_means
group by all
