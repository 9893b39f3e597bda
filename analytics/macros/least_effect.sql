-- least_effect(metric): the smallest difference of interest in a metric: 0.01, of a rate, a score, RSD, BiasScore, a gap or a
-- standard deviation; of relative_variance 0.002, which is about what 0.01 is of an RSD of 0.1, its square root.
create macro least_effect(metric) as
    case metric when 'relative_variance' then 0.002 else 0.01 end::double
