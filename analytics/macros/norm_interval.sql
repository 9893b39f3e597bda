-- norm_interval(x, floor, error, n_free, k): [low, high], the interval of how far a vector is from a point, of which x
-- is the length of an estimate, and so too large: floor is the root mean square of what its noise in n_free directions
-- adds, error its standard error along the estimate, k the normal quantile. All theta with |x^2 - floor^2 - theta^2| <=
-- k * sqrt(4 theta^2 error^2 + 2 floor^4 / n_free), the moments of a noncentral chi-square; it includes 0 exactly where
-- a test at theta = 0 does not reject. An x below floor is taken for floor, of which no distance at all has x on
-- average: the upper limit is no less than that, and never 0 (a power-constrained limit; Cowan et al. 2011). Null if
-- anything is.
create macro norm_interval(x, floor, error, n_free, k) as
    list_transform(
        [{
            'y': case when x is not null then greatest(0, x::double ** 2 - floor ** 2) end,
            's': k ** 2 * case when error > 0 then error when error = 0 then floor / sqrt(n_free) end ** 2,
            'v': 2 * k ** 2 * floor ** 4 / n_free
        }],
        lambda given: case
            when given.y + given.s + given.v is not null then list_transform(
                [-1, 1],
                lambda side: case
                    when side < 0 and given.y < sqrt(given.v) then 0
                    else sqrt(greatest(
                        0,
                        given.y + 2 * given.s
                        + side * sqrt(greatest(0, 4 * given.y * given.s + 4 * given.s ** 2 + given.v))
                    ))
                end
            )
        end
    )[1]
