-- One row per ordered pair (run, other_run), n_demos and method: of the n_predictions for main rows of the tasks that
-- both share (label_bias_shared_tasks), over the demonstration sets of both, n_differing are not the same label.
select
    run, other_run, n_demos, method, count(*) as n_predictions,
    count(*) filter (prediction is distinct from other_prediction) as n_differing
from paired_answers('calibrated_predictions', 'label_bias_shared_tasks', ['task', 'n_demos', 'demo_set', 'method', 'format', 'purpose', 'row'])
where has_same_rows and format = 'base' and purpose = 'main'
group by all
order by all
