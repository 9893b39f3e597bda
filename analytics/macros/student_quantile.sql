-- student_quantile(p, df): the t that student_p gives a two-sided p-value of p, by the same approximation; the normal deviate
-- within it by Abramowitz & Stegun 1964, 26.2.23, and a step of Newton's. Null of null and below 1 degree of freedom.
create macro student_quantile(p, df) as
    case when df >= 1 then list_transform(
        [sqrt(-2 * ln(p::double / 2))],
        lambda u: list_transform(
            [
                u - (2.515517 + 0.802853 * u + 0.010328 * u * u)
                / (1 + 1.432788 * u + 0.189269 * u * u + 0.001308 * u * u * u)
            ],
            lambda rough: list_transform(
                [rough + (normal_p(rough) - p) * sqrt(pi() / 2) * exp(rough * rough / 2)],
                lambda z: sqrt(df * (exp((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df) - 1))
            )[1]
        )[1]
    )[1] end
