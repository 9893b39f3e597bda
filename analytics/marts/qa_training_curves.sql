-- One row per (base, data, method, set of questions, step): the mean, lowest and highest loss (nats), exact match and
-- F1 (0 to 1) of the n_readers readers that were asked after it, over biases and seeds; bias models are a method here,
-- asked both segments of a set. Readers that were given up, and losses that are not finite, take no part. role: of the
-- set among the measured ones; null where it is none.
select
    trained_models.base, trained_models.data, trained_models.method, evaluations.dataset, roles.role, evaluations.step,
    avg(evaluations.loss order by trained_models.number) as loss, min(evaluations.loss) as loss_low,
    max(evaluations.loss) as loss_high,
    avg(evaluations.exact_match order by trained_models.number) as exact_match,
    min(evaluations.exact_match) as exact_match_low, max(evaluations.exact_match) as exact_match_high,
    avg(evaluations.f1 order by trained_models.number) as f1, min(evaluations.f1) as f1_low,
    max(evaluations.f1) as f1_high, count(*) as n_readers
from evaluations
inner join trained_models using (model)
left join (select distinct dataset, role from qa_examples) as roles using (dataset)
where trained_models.problem is null and isfinite(evaluations.loss)
group by all
order by all
