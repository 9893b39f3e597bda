-- interquartile_mean(sorted values): the mean of the middle half: a quarter of the values is cut off at either end,
-- with fractions of a value where their number is no multiple of four (Agarwal et al. 2021). Null of none.
create macro interquartile_mean(sorted_values) as
    list_sum(list_transform(
        sorted_values,
        lambda x, i: x * greatest(0, least(i, 0.75 * len(sorted_values)) - greatest(i - 1, 0.25 * len(sorted_values)))
    )) / (0.5 * len(sorted_values))
