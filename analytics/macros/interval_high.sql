-- interval_high(x, draw): the upper end of the 95 % bootstrap interval, the 97.5th percentile; else as interval_low.
create macro interval_high(x, draw) as
    quantile_cont(x, 0.975) filter (draw > 0)
