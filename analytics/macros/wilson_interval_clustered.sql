-- wilson_interval_clustered(share, error, n_rows, n_articles): [low, high], the 95 % interval of a share of n_rows
-- questions about n_articles articles, with its standard error clustered by article: Wilson's of as many independent
-- questions as have that error, made fewer by (z / t)^2 for the articles' degrees of freedom, and at most n_rows (Korn
-- & Graubard 1998; Dean & Pagano 2015). A share of 0 or 1, whose error is 0, has as many as articles. Plainly Wilson's
-- where every question is its own article; null where several are about a single one.
create macro wilson_interval_clustered(share, error, n_rows, n_articles) as
    case
        when n_articles = n_rows then wilson_interval(share, n_rows)
        when n_articles > 1 then wilson_interval(share, least(n_rows, greatest(1, if(
            error > 0, share * (1 - share) / nullif(error, 0) ** 2, n_articles
        ) * (1.959963984540054 / t_quantile(n_articles - 1)) ** 2)))
    end
