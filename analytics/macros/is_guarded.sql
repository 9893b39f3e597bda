-- is_guarded(metric): whether words about the metric, or about that of which it is the partner, also need a side that
-- is above sampling noise (noise_p): influences take the side of each label as known, which it is not without bias.
create macro is_guarded(metric) as metric_head(word_metric(metric)).noise is not null
