-- least_effect(metric): the smallest difference of interest in a metric: 0.01, of a rate, a score, RSD, BiasScore, a gap or a
-- standard deviation; of partners (all_partners), which are squares, 0.002: of relative_variance about what 0.01 is of an
-- RSD of 0.1, its square root; of squared_preference what 0.01 is of a BiasScore of 0.045 with two labels, of which it is
-- twice the square.
create macro least_effect(metric) as
    case
        when len(list_filter(all_partners(), lambda pair: pair.partner = metric)) > 0 then 0.002 else 0.01
    end::double
