-- interval_distance([low, high], [low, high]): how far one interval lies above the other, whichever it is; never
-- negative. 0 where they overlap or touch (P3, bias significance; tolerance 1e-9). Null if a bound is null.
create macro interval_distance(lower_interval, higher_interval) as
    list_transform(
        [greatest(lower_interval[1] - higher_interval[2], higher_interval[1] - lower_interval[2])::double],
        lambda gap: case
            when lower_interval[1] + lower_interval[2] + higher_interval[1] + higher_interval[2] is null then null
            when gap > 1e-9 then gap
            else 0
        end
    )[1]
