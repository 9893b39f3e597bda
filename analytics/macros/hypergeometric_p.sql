-- hypergeometric_p(k, n, n_hits, n_rows): the two-sided p-value of k hits among the n rows of a group, where n_hits
-- hits lie anywhere among n_rows rows with the same chance: twice the smaller tail, at most 1 (exact; the permutation
-- test of one group against the rest). Sums at most 300 terms of a tail, beyond which there is nothing of it up to
-- 50,000 rows. Null if anything is.
create macro hypergeometric_p(k, n, n_hits, n_rows) as
    list_transform(
        [{'k': k::bigint, 'n': n::bigint, 'h': n_hits::bigint, 'm': n_rows::bigint}],
        lambda given: case when given.k + given.n + given.h + given.m is not null then list_transform(
            [{
                'log_ways': lgamma(given.n + 1) + lgamma(given.m - given.n + 1) + lgamma(given.h + 1)
                + lgamma(given.m - given.h + 1) - lgamma(given.m + 1),
                'tail': case
                    when given.k * given.m <= given.n * given.h
                        then range(greatest(0, given.n + given.h - given.m, given.k - 300), given.k + 1)
                    else range(given.k, least(given.n, given.h, given.k + 300) + 1)
                end
            }],
            lambda parts: least(1, 2 * list_sum(list_transform(
                parts.tail,
                lambda x: exp(
                    parts.log_ways - lgamma(x + 1) - lgamma(given.n - x + 1) - lgamma(given.h - x + 1)
                    - lgamma(given.m - given.n - given.h + x + 1)
                )
            )))
        )[1] end
    )[1]
