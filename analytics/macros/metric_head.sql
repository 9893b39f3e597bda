-- metric_head(metric): the head of its file (all_metrics), a struct; null for other names.
create macro metric_head(metric) as list_filter(all_metrics(), lambda head: head.metric = metric)[1]
