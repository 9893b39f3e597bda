-- tested_apart(metric): the family of tests that a metric has for itself; null: one with the metrics of every run.
create macro tested_apart(metric) as case when metric_head(metric).apart then metric end
