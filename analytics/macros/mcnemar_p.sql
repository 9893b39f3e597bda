-- mcnemar_p(n_wins, n_losses): the two-sided p-value that of the rows which only one of two models has right each is as
-- likely to have (exact; McNemar 1947, Dietterich 1998): twice the smaller tail of the binomial distribution, at most
-- 1; 1 where there are none. It takes rows as independent of each other. Null if anything is.
create macro mcnemar_p(n_wins, n_losses) as
    list_transform(
        [{'n': (n_wins + n_losses)::bigint, 'k': least(n_wins, n_losses)::bigint}],
        lambda given: case when given.n is not null then least(1, 2 * list_sum(list_transform(
            range(0, given.k + 1),
            lambda x: exp(lgamma(given.n + 1) - lgamma(x + 1) - lgamma(given.n - x + 1) - given.n * ln(2))
        ))) end
    )[1]
