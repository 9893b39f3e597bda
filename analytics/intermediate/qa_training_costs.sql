-- One row per reader that the run trained, bias models and those that were given up included: its cost. seconds: of its
-- steps; null without a step. n_evaluations: steps after which it was asked. evaluation_seconds: of those, all sets
-- together; null where it was not asked, or by a version that did not say. accelerator_hours: both times workers,
-- without loading and answers; null on CPU. problem: why it was given up; null where it was not.
with
asked as (
    select
        model, count(distinct step) as n_evaluations,
        case when count(seconds) = count(*) then sum(seconds order by step, dataset) end as evaluation_seconds
    from evaluations
    group by model
)

select
    model, trained_models.base, trained_models.data, trained_models.method, trained_models.bias, trained_models.seed,
    trained_models.steps, trained_models.best_step, times.seconds,
    case
        when trained_models.device <> 'cpu'
            then (times.seconds + coalesce(asked.evaluation_seconds, 0)) * trained_models.n_workers / 3600
    end as accelerator_hours,
    coalesce(asked.n_evaluations, 0) as n_evaluations, asked.evaluation_seconds, trained_models.problem
from trained_models
left join (select model, sum(seconds order by step) as seconds from training group by model) as times using (model)
left join asked using (model)
order by all
