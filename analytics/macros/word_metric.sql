-- word_metric(metric): the metric whose words it belongs to: the one that requires it as a partner, else itself.
create macro word_metric(metric) as
    coalesce(list_filter(all_metrics(), lambda head: head.requires = metric)[1].metric, metric)
