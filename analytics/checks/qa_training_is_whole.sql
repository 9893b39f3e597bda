-- Rows here: a trained reader that was not given up and lacks its weights, one of its steps, an evaluation after the
-- step that is kept, or a finite loss; one whose standard reader there is not; one that should be measured and is not,
-- or the other way round; steps of an unknown reader.
with
steps as (
    select
        model, count(*) as n_rows, count(distinct step) as n_steps, min(step) as first_step, max(step) as last_step,
        count(*) filter (coalesce(isfinite(loss), false)) as n_finite
    from training
    group by model
),

kept as (
    select * from trained_models
    where problem is null
)

select format('{}: {} steps of a reader that is not in trained_models', model, n_rows) as problem
from steps
anti join trained_models using (model)
union all
select
    format('{}: path {}, best step {} of {}', model, coalesce(path, 'null'), coalesce(best_step::varchar, 'null'),
           coalesce(steps::varchar, 'null')) as problem
from kept
where path is null or not coalesce(best_step between 0 and steps - 1, false)
union all
select
    format('{}: {} steps, {} different, {} of finite loss; wanted 0 to {}',
           model, coalesce(steps.n_rows, 0), coalesce(steps.n_steps, 0), coalesce(steps.n_finite, 0),
           coalesce((kept.steps - 1)::varchar, 'null')) as problem
from kept
left join steps using (model)
where not coalesce(
    steps.n_rows = kept.steps
    and steps.n_steps = kept.steps
    and steps.n_finite = kept.steps
    and steps.first_step = 0
    and steps.last_step = kept.steps - 1,
    false
)
union all
select format('{}: no evaluation after step {}, whose weights are kept', kept.model, kept.best_step) as problem
from kept
anti join evaluations on kept.model = evaluations.model and kept.best_step = evaluations.step
where kept.best_step is not null
union all
select
    format('{}: compared with {}, which is no other standard reader of its base, data and seed',
           kept.model, kept.standard) as problem
from kept
anti join (select * from trained_models where method = 'standard') as standards
    on
        kept.standard = standards.model and kept.model <> standards.model and kept.base = standards.base
        and kept.data = standards.data and kept.seed = standards.seed
where kept.standard is not null
union all
select format('{}: was trained, and is not measured', model) as problem
from kept
anti join (select * from qa_models where is_trained) as measured using (model)
where kept.method <> 'bias_model'
union all
select format('{}: is measured as trained in this run, which has no weights of it', model) as problem
from qa_models
anti join (select * from kept where method <> 'bias_model') as readers using (model)
where qa_models.is_trained
order by all
