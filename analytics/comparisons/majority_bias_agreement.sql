-- One row per ordered pair (run, other_run) of runs over the same test rows and settings (majority_bias_shared), n_demos,
-- instruction, predict and method: of the n_predictions of both, n_differing are not the same; an output that is no label
-- is the same as another that is none.
select
    own.run,
    other.run as other_run,
    n_demos,
    instruction,
    predict,
    method,
    count(*) as n_predictions,
    count(*) filter (own.prediction is distinct from other.prediction) as n_differing
from (
    select
        run,
        other_run
    from majority_bias_shared
    where is_comparable
) as pairs
inner join majority_predictions as own using (run)
inner join majority_predictions as other using (n_demos, instruction, predict, method, setting, seed, row)
where other.run = pairs.other_run
group by all
order by all
