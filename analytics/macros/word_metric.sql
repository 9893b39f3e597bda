-- word_metric(metric): the metric whose words it belongs to: that of which it is the partner (all_partners), else itself.
create macro word_metric(metric) as
    coalesce(list_filter(all_partners(), lambda pair: pair.partner = metric)[1].metric, metric)
