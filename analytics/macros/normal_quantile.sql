-- normal_quantile(p): the standard normal z that normal_p gives a two-sided p-value of p, by Abramowitz & Stegun 1964,
-- 26.2.23, and a step of Newton's. Null of null.
create macro normal_quantile(p) as
    list_transform(
        [sqrt(-2 * ln(p::double / 2))],
        lambda u: list_transform(
            [
                u - (2.515517 + 0.802853 * u + 0.010328 * u * u)
                / (1 + 1.432788 * u + 0.189269 * u * u + 0.001308 * u * u * u)
            ],
            lambda rough: rough + (normal_p(rough) - p) * sqrt(pi() / 2) * exp(rough * rough / 2)
        )[1]
    )[1]
