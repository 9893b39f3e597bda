-- estimate(x, draw): the statistic of the sample itself, which is draw 0. To be used like interval_low.
create macro estimate(x, draw) as
    any_value(x) filter (draw = 0)
