-- has_noise_p(metric): whether bias_score_p says that the metric, or that of which it is the partner, is above noise.
create macro has_noise_p(metric) as coalesce(metric_head(word_metric(metric)).noise = 'bias_score_p', false)
