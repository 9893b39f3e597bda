-- f_quantile(z, df, error_df): the value of F that is exceeded as often as a standard normal exceeds z, by Paulson 1942
-- (Annals of Mathematical Statistics 13): the cube root of F is nearly a ratio of normals. Null where it has no
-- solution: large z with one or two degrees of freedom of the error.
create macro f_quantile(z, df, error_df) as
    list_transform(
        [{'own': 2 / (9 * df::double), 'error': 2 / (9 * error_df::double)}],
        lambda spread: list_transform(
            [{
                'square': (1 - spread.error) ** 2 - z ** 2 * spread.error,
                'middle': (1 - spread.own) * (1 - spread.error),
                'last': (1 - spread.own) ** 2 - z ** 2 * spread.own
            }],
            lambda root: case when root.square > 0
                then ((root.middle + sign(z) * sqrt(greatest(0, root.middle ** 2 - root.square * root.last))) / root.square) ** 3 end
        )[1]
    )[1]
