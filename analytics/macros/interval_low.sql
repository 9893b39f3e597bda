-- interval_low(x, draw): the lower end of the 95 % bootstrap interval, the 2.5th percentile of x over the resamples.
-- An aggregate over rows of one statistic x per draw; null where there are none but draw 0.
create macro interval_low(x, draw) as
    quantile_cont(x, 0.025) filter (draw > 0)
