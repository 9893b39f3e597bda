-- One row per (trained reader that is measured, dataset of any role): exact match and F1 over its questions (0 to 1)
-- against those of the standard reader of the same base, data and seed; null for the standard readers themselves.
-- *_change: the reader minus its standard one, over questions that both answered, with a 95 % interval whose error is
-- clustered by article, by Student's t; null with a single article. n_rows: those questions. *_p, *_p_adjusted and
-- *_verdict: the verdict on the change, over all readers, sets and metrics of a page together (qa_answer_changes).
with
articles as (
    select
        model, dataset, article, count(*) as n_answers, count(standard_f1) as n_rows,
        sum(f1 - standard_f1 order by row) as f1_change,
        sum(exact_match - standard_exact_match order by row) as exact_match_change
    from qa_paired_answers
    group by all
),

means as (
    select
        model, dataset, sum(f1_change order by article) / sum(n_rows) as f1_change,
        sum(exact_match_change order by article) / sum(n_rows) as exact_match_change,
        (if(sum(n_rows) > 0, sum(n_rows), sum(n_answers)))::bigint as n_rows,
        if(sum(n_rows) > 0, count(*) filter (articles.n_rows > 0), count(*)) as n_articles
    from articles
    group by all
),

errors as (
    select
        model, dataset,
        count(*) / nullif(count(*) - 1, 0) / power(any_value(means.n_rows), 2) as scale,
        t_quantile(any_value(means.n_articles) - 1) * sqrt(
            scale * sum(power(articles.f1_change - articles.n_rows * means.f1_change, 2) order by articles.article)
        ) as half_width_f1,
        t_quantile(any_value(means.n_articles) - 1) * sqrt(
            scale * sum(
                power(articles.exact_match_change - articles.n_rows * means.exact_match_change, 2)
                order by articles.article
            )
        ) as half_width
    from articles
    inner join means using (model, dataset)
    where articles.n_rows > 0
    group by model, dataset
),

tests as (
    from qa_answer_changes pivot (
        any_value(p) as p, any_value(p_adjusted) as p_adjusted, any_value(verdict) as verdict
        for metric in ('f1', 'exact_match') group by model, dataset
    )
)

select
    model, trained_models.base, trained_models.data, trained_models.method, trained_models.bias, trained_models.seed,
    dataset, measured.role, measured.f1, measured.exact_match, standard_measured.f1 as standard_f1,
    standard_measured.exact_match as standard_exact_match, means.f1_change,
    means.f1_change - errors.half_width_f1 as f1_change_low, means.f1_change + errors.half_width_f1 as f1_change_high,
    means.exact_match_change,
    means.exact_match_change - errors.half_width as exact_match_change_low,
    means.exact_match_change + errors.half_width as exact_match_change_high,
    means.n_rows, means.n_articles, tests.* exclude (model, dataset)
from trained_models
inner join qa_by_dataset as measured using (model)
left join (select * rename (model as standard) from qa_by_dataset) as standard_measured using (standard, dataset)
inner join means using (model, dataset)
left join errors using (model, dataset)
left join tests using (model, dataset)
order by all
