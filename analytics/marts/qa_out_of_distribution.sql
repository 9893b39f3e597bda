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
        model, dataset,
        sum(f1_change order by article) / sum(n_rows) as f1_change,
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
)

select
    trained_models.model, trained_models.base, trained_models.data, trained_models.method, trained_models.bias,
    trained_models.seed, measured.dataset, measured.role, measured.f1, measured.exact_match,
    standard_measured.f1 as standard_f1, standard_measured.exact_match as standard_exact_match, means.f1_change,
    means.f1_change - errors.half_width_f1 as f1_change_low,
    means.f1_change + errors.half_width_f1 as f1_change_high,
    means.exact_match_change,
    means.exact_match_change - errors.half_width as exact_match_change_low,
    means.exact_match_change + errors.half_width as exact_match_change_high,
    means.n_rows, means.n_articles, f1_tests.p as f1_p, f1_tests.p_adjusted as f1_p_adjusted,
    f1_tests.verdict as f1_verdict, exact_match_tests.p as exact_match_p,
    exact_match_tests.p_adjusted as exact_match_p_adjusted, exact_match_tests.verdict as exact_match_verdict
from trained_models
inner join qa_by_dataset as measured on trained_models.model = measured.model
left join qa_by_dataset as standard_measured
    on trained_models.standard = standard_measured.model and measured.dataset = standard_measured.dataset
inner join means on trained_models.model = means.model and measured.dataset = means.dataset
left join errors on trained_models.model = errors.model and measured.dataset = errors.dataset
left join qa_answer_changes as f1_tests
    on trained_models.model = f1_tests.model and measured.dataset = f1_tests.dataset and f1_tests.metric = 'f1'
left join qa_answer_changes as exact_match_tests
    on
        trained_models.model = exact_match_tests.model and measured.dataset = exact_match_tests.dataset
        and exact_match_tests.metric = 'exact_match'
order by all
