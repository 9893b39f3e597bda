-- student_quantile(p, df): the t that student_p gives a two-sided p-value of p, by the same approximation. Null of null
-- and below 1 degree of freedom.
create macro student_quantile(p, df) as
    case when df >= 1 then list_transform(
        [normal_quantile(p)],
        lambda z: sqrt(df * (exp((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df) - 1))
    )[1] end
