-- Rows here: an evaluation of an unknown reader, or after a step that it did not make; of a reader that was not given
-- up one without a metric, or a loss that is not finite after the step whose weights are kept (elsewhere it may be:
-- such a step is not chosen); one that was asked more sets after one step than after another, or a bias model that
-- was not asked both segments.
with
kept as (
    select evaluations.*, trained_models.method, evaluations.step = trained_models.best_step as is_best
    from evaluations
    inner join trained_models using (model)
    where trained_models.problem is null
),

segments as (
    select
        model, step,
        coalesce(nullif(regexp_extract(dataset, ' \((biased|other)\)$', 1), ''), 'no segment') as segment
    from kept
    where method = 'bias_model'
)

select
    format('{}, step {}, {}: {}',
           model, coalesce(evaluations.step::varchar, 'null'), coalesce(evaluations.dataset, 'null'),
           if(trained_models.model is null, 'there is no such reader', 'there is no such step')) as problem
from evaluations
left join trained_models using (model)
where not coalesce(evaluations.step between 0 and trained_models.steps - 1, false)
union all
select
    format('{}, step {}, {}: loss {}, exact match {}, F1 {}', model, step, dataset, coalesce(loss::varchar, 'null'),
           coalesce(exact_match::varchar, 'null'), coalesce(f1::varchar, 'null')) as problem
from kept
where not coalesce(loss >= 0, false) or (is_best and not isfinite(loss)) or exact_match is null or f1 is null
union all
select
    format('{}: asked {} sets after step {}, and {} after step {}', model, min(n_datasets),
           arg_min(step, (n_datasets, step)), max(n_datasets), arg_max(step, (n_datasets, -step))) as problem
from (select model, step, count(distinct dataset) as n_datasets from kept group by all)
group by model
having min(n_datasets) < max(n_datasets)
union all
select
    format('{}, step {}: asked {}, wanted biased and other',
           model, step, string_agg(distinct segment, ' and ' order by segment)) as problem
from segments
group by model, step
having count(distinct segment) <> 2 or bool_or(segment = 'no segment')
order by all
