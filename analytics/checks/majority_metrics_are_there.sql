-- Rows here: a model without a metric that its settings give.
select
    format('{}, {}, {}: mean_f1 {}, sd_f1 {}, rb_at_10 {}', task, predict, method, mean_f1, sd_f1, rb_at_10) as problem,
    task
from majority_by_model
where mean_f1 is null or (sd_f1 is null and n_settings > 1) or rb_at_10 is null or rb_at_10_relative > rb_at_10 + 1e-9
order by all
