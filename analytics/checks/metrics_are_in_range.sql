-- Rows here: a metric of a task outside its range, or null where there are rows to measure.
select
    format('{}, n_demos {}, demo_set {}, {}: {}', task, n_demos, demo_set, method, {
        'macro_f1': macro_f1,
        'accuracy': accuracy,
        'rsd': rsd,
        'bias_score': bias_score,
        'largest_bias_score': 1 - 1 / n_labels
    }::varchar) as problem,
    task,
    n_demos,
    demo_set,
    method
from label_bias_by_task
where
    n_rows = 0
    or not coalesce(macro_f1 between 0 and 1, false)
    or not coalesce(accuracy between 0 and 1, false)
    or not coalesce(rsd >= 0 and isfinite(rsd), false)
    or not coalesce(bias_score between 0 and 1 - 1 / n_labels + 1e-9, n_bias_score_rows = 0)
order by all
