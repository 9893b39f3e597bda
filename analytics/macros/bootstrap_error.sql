-- bootstrap_error(x, draw): the standard error of a statistic x: its standard deviation over the resamples. To be used
-- like interval_low.
create macro bootstrap_error(x, draw) as
    stddev_pop(x) filter (draw > 0)
