-- word_partner(metric): the partner that a word about the metric requires; null without one.
create macro word_partner(metric) as metric_head(metric).requires
