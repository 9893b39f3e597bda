-- bias_significance(list(mean of each trial, lower), list(mean of each trial, higher)): the distance between the
-- middle 95 % of the trials of two segments, in their unit; 0 where these overlap or touch (P3; tolerance 1e-9).
-- Null without trials.
create macro bias_significance(lower_values, higher_values) as
    list_transform(
        [{
            'lower': list_aggregate(lower_values::double[], 'quantile_cont', [0.025, 0.975]),
            'higher': list_aggregate(higher_values::double[], 'quantile_cont', [0.025, 0.975])
        }],
        lambda middle: list_transform(
            [greatest(middle.lower[1] - middle.higher[2], middle.higher[1] - middle.lower[2])],
            lambda gap: case
                when middle.lower is null or middle.higher is null then null
                when gap > 1e-9 then gap
                else 0
            end
        )[1]
    )[1]
