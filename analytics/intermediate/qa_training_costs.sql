-- One row per reader that the run trained, bias models and those that were given up included: what it cost. seconds: of
-- its steps, without loading, evaluations and predictions; null without a step. accelerator_hours: seconds times
-- workers; null on CPU. n_evaluations: steps behind which it was asked. problem: why it was given up; null where it was
-- not.
with

times as (

    select
        model,
        sum(seconds order by step) as seconds
    from training
    group by model

),

asked as (

    select
        model,
        count(distinct step) as n_evaluations
    from evaluations
    group by model

)

select
    model,
    trained_models.base,
    trained_models.data,
    trained_models.method,
    trained_models.bias,
    trained_models.seed,
    trained_models.steps,
    trained_models.best_step,
    times.seconds,
    case
        when trained_models.device <> 'cpu' then times.seconds * trained_models.n_workers / 3600
    end as accelerator_hours,
    coalesce(asked.n_evaluations, 0) as n_evaluations,
    trained_models.problem
from trained_models
left join times using (model)
left join asked using (model)
order by all
