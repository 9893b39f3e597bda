-- from article_means('articles'): exact match and F1 of groups of questions, with intervals for other articles.
-- articles: a relation with cell (of any type), article, n_rows, and exact_match and f1, summed over the questions that
-- the cell has of the article. One row per cell: the means (0 to 1), *_error, clustered by article (linearised ratio;
-- null with one article), and 95 % intervals: of exact match wilson_interval_clustered, of F1 Student's t, within 0 to
-- 1.
create macro article_means(articles) as table
with
means as (
    select
        cell,
        sum(exact_match order by article) / sum(n_rows) as exact_match,
        sum(f1 order by article) / sum(n_rows) as f1, sum(n_rows)::bigint as n_rows, count(*) as n_articles
    from query_table(articles)
    group by all
),

errors as (
    select
        cell,
        count(*) / nullif(count(*) - 1, 0) / power(any_value(means.n_rows), 2) as scale,
        sqrt(scale * sum(power(own.exact_match - own.n_rows * means.exact_match, 2) order by article)) as exact_match_error,
        sqrt(scale * sum(power(own.f1 - own.n_rows * means.f1, 2) order by article)) as f1_error
    from query_table(articles) as own
    inner join means using (cell)
    group by cell
)

select
    means.*, exact_match_error, f1_error,
    wilson_interval_clustered(exact_match, exact_match_error, n_rows, n_articles)[1] as exact_match_low,
    wilson_interval_clustered(exact_match, exact_match_error, n_rows, n_articles)[2] as exact_match_high,
    -- least and greatest would take the bound for a null.
    clipped(f1 - t_quantile(n_articles - 1) * f1_error, 0, 1) as f1_low,
    clipped(f1 + t_quantile(n_articles - 1) * f1_error, 0, 1) as f1_high
from means
inner join errors using (cell)
