-- One row per pair of a run of a base model (run) and a run of a model that was tuned from it (other_run). The tuned
-- one names the base model, its folder or its run (model.tuned_from); if no run has this name, the base model is that
-- of the same family (model.family) and size: numbers of parameters that differ by at most 2 %.
with
bases as (
    from run_settings
    where tuned_from is null
),

tuned as (
    select
        *,
        list_contains((select list_distinct(flatten(list([run, model, parse_filename(model)]))) from bases), tuned_from) as is_named
    from run_settings
    where tuned_from is not null
)

select bases.run, tuned.run as other_run, tuned.family
from bases
inner join tuned
    on
        if(
            is_named,
            list_contains([bases.run, bases.model, parse_filename(bases.model)], tuned.tuned_from),
            bases.family = tuned.family
            and abs(tuned.n_parameters - bases.n_parameters) <= 0.02 * bases.n_parameters
        )
order by all
