-- Rows here: a task without a metric that its answers give, or with a BiasScore that no probabilities have.
select
    format('{}, n_demos {}, demo_set {}, {}: macro_f1 {}, accuracy {}, rsd {}, bias_score {} of {} labels',
           task, n_demos, demo_set, method, macro_f1, accuracy, rsd, bias_score, n_labels) as problem,
    task
from label_bias_by_task
where
    macro_f1 is null
    or accuracy is null
    or rsd is null
    or not coalesce(bias_score <= 1 - 1 / n_labels + 1e-9, n_bias_score_rows = 0)
order by all
