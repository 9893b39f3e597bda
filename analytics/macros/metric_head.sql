-- metric_head(metric): what the head of its file says (all_metrics), a struct; null of what is no metric of the run.
create macro metric_head(metric) as list_filter(all_metrics(), lambda head: head.metric = metric)[1]
