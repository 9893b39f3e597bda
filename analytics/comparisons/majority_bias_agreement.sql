-- One row per ordered pair (run, other_run) of runs over the same test rows and settings (majority_bias_shared),
-- n_demos, instruction, predict and method: of the n_predictions of both, n_differing are not the same; an output that
-- is no label is the same as another that is none.
with
pairs as (
    select run, other_run
    from majority_bias_shared
    where is_comparable
)

select
    run, other_run, n_demos, instruction, predict, method, count(*) as n_predictions,
    count(*) filter (prediction is distinct from other_prediction) as n_differing
from paired_answers('majority_predictions', 'pairs', ['n_demos', 'instruction', 'predict', 'method', 'setting', 'seed', 'row'])
group by all
order by all
