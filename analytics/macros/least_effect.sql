-- least_effect(metric): the smallest difference of interest in a metric: what its head says (analytics/metrics), and of
-- all else 0.01, of a rate, a score, a gap or a standard deviation.
create macro least_effect(metric) as coalesce(metric_head(metric).least_effect, 0.01)::double
