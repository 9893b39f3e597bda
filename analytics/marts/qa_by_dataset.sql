-- One row per (model, dataset): exact match and F1 over its questions (0 to 1), with 95 % intervals. Questions about
-- the same article are not independent: standard errors (*_error) are clustered by article, of which there are
-- n_articles. Intervals: wilson_interval_clustered for exact match, Student's t for F1; null with a single article
-- (exact match: unless that is one question). n_missing: questions that the model has no answer for.
-- share_most_frequent: the answers whose text is the most frequent one; an empty answer is a text of its own.
-- is_constant: that share is above 95 %, so that nothing else that is measured of the model says anything but that.
with
articles as (
    select
        {'model': qa_predictions.model, 'dataset': dataset} as cell, qa_articles.article, count(*) as n_rows,
        sum(qa_predictions.exact_match order by qa_articles.row) as exact_match,
        sum(qa_predictions.f1 order by qa_articles.row) as f1
    from qa_predictions
    inner join qa_articles using (dataset, example_id)
    group by all
),

texts as (
    select model, dataset, max(n_rows) / sum(n_rows) as share_most_frequent
    from (
        select model, dataset, coalesce(prediction, '') as prediction, count(*) as n_rows
        from qa_predictions
        group by all
    )
    group by all
)

select
    means.cell.model as model, means.cell.dataset as dataset, sizes.role, means.exact_match, means.exact_match_low,
    means.exact_match_high, means.f1, means.f1_low, means.f1_high, means.n_rows,
    sizes.n_questions - means.n_rows as n_missing, means.n_articles, means.exact_match_error, means.f1_error,
    texts.share_most_frequent, texts.share_most_frequent > 0.95 as is_constant
from article_means('articles') as means
inner join (select dataset, role, count(*) as n_questions from qa_examples group by all) as sizes
    on means.cell.dataset = sizes.dataset
inner join texts on means.cell.model = texts.model and means.cell.dataset = texts.dataset
order by all
