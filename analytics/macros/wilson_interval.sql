-- wilson_interval(share, n_rows): [low, high], the 95 % interval of a share of n_rows rows (Wilson 1927).
-- Null without a row.
create macro wilson_interval(share, n_rows) as
    list_transform(
        [{'p': share::double, 'n': n_rows::double, 'z': 1.959963984540054}],
        lambda given: case
            when given.p is not null and given.n > 0 then list_transform(
                [-1, 1],
                lambda side: least(1, greatest(0, (
                    given.p + given.z ** 2 / (2 * given.n)
                    + side * given.z * sqrt(given.p * (1 - given.p) / given.n + given.z ** 2 / (4 * given.n ** 2))
                ) / (1 + given.z ** 2 / given.n)))
            )
        end
    )[1]
