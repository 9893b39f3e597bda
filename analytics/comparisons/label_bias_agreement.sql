-- One row per ordered pair (run, other_run), n_demos and method: of the n_predictions for main rows of the tasks that both
-- share (label_bias_shared_tasks), over the demonstration sets of both, n_differing are not the same label.
select
    own.run,
    other.run as other_run,
    n_demos,
    method,
    count(*) as n_predictions,
    count(*) filter (own.prediction is distinct from other.prediction) as n_differing
from calibrated_predictions as own
inner join calibrated_predictions as other using (task, n_demos, demo_set, method, purpose, row)
inner join label_bias_shared_tasks as shared
    on own.run = shared.run and other.run = shared.other_run and task = shared.task and shared.has_same_rows
where own.run <> other.run and own.format = 'base' and other.format = 'base' and purpose = 'main'
group by all
order by all
