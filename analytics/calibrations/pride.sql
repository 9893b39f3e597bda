-- shown: PriDe
-- meaning: Debiasing with priors (Zheng et al. 2024), of multiple choice: the same with the prior of the labels, estimated
--   on held-out questions in which each option stands behind each label in turn.
-- by: their prior over held-out questions with permuted options (Zheng et al. 2024)
-- inputs: pride
-- reference: Chujie Zheng, Hao Zhou, Fandong Meng, Jie Zhou and Minlie Huang. 2024. Large Language Models Are Not Robust
--   Multiple Choice Selectors. ICLR 2024.
-- The prior of a question is the geometric mean of a label's probability over the orders of its options, normalised. Each
-- option stands once after each label, so that the options themselves drop out.
with
orders as (
    select * exclude (row, gold, log_probability), list_avg(list(log_probability order by row)) as log_mean
    from calibration_scores
    where method = 'pride'
    group by all
),

questions as (
    select * exclude (label, log_mean), list(label order by label) as labels, list(log_mean order by label) as log_means
    from orders
    group by all
),

priors as (
    select
        * exclude (labels, log_means), unnest(labels) as label,
        unnest(list_transform(log_means, lambda x: x - log_sum(log_means))) as log_probability
    from questions
)

select
    * exclude (input, log_probability),
    log_mean(list(log_probability order by input)) as log_prior, count(*) as n_rows
from priors
group by all
