-- One row per pair of runs of a smaller model (run) and a larger one (other_run), by their numbers of parameters. Both
-- models are of one family (model.family; runs that name none are one family), and both are tuned or neither is
-- (model.tuned_from).
select
    smaller.run, larger.run as other_run, smaller.family, smaller.model, larger.model as larger_model,
    smaller.n_parameters, larger.n_parameters as larger_n_parameters
from run_settings as smaller
inner join run_settings as larger
    on
        smaller.n_parameters < larger.n_parameters and smaller.family is not distinct from larger.family
        and (smaller.tuned_from is null) = (larger.tuned_from is null)
order by all
