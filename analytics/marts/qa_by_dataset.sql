-- One row per (model, dataset): exact match and F1 over its questions (0 to 1), with 95 % intervals. Questions about the
-- same article are not independent: standard errors (*_error) are clustered by article, of which there are n_articles.
-- Intervals: wilson_interval_clustered for exact match, Student's t for F1; null with a single article (exact match: unless that
-- is one question). n_missing: questions that the model has no answer for. share_most_frequent: the answers whose text is
-- the most frequent one; an empty answer is a text of its own. is_constant: that share is above 95 %, so that nothing else
-- that is measured of the model says anything but that.
with

sizes as (

    select
        dataset,
        role,
        count(*) as n_questions
    from qa_examples
    group by all

),

articles as (

    select
        qa_predictions.model,
        dataset,
        qa_articles.article,
        count(*) as n_rows,
        sum(qa_predictions.exact_match order by qa_articles.row) as exact_match,
        sum(qa_predictions.f1 order by qa_articles.row) as f1
    from qa_predictions
    inner join qa_articles using (dataset, example_id)
    group by all

),

texts as (

    select
        model,
        dataset,
        max(n_rows) / sum(n_rows) as share_most_frequent
    from (
        select
            model,
            dataset,
            coalesce(prediction, '') as prediction,
            count(*) as n_rows
        from qa_predictions
        group by all
    )
    group by all

),

means as (

    select
        model,
        dataset,
        sum(exact_match order by article) / sum(n_rows) as exact_match,
        sum(f1 order by article) / sum(n_rows) as f1,
        sum(n_rows)::bigint as n_rows,
        count(*) as n_articles
    from articles
    group by all

),

errors as (

    select
        model,
        dataset,
        count(*) / nullif(count(*) - 1, 0) / power(any_value(means.n_rows), 2) as scale,
        sqrt(scale * sum(power(articles.exact_match - articles.n_rows * means.exact_match, 2) order by articles.article))
            as exact_match_error,
        sqrt(scale * sum(power(articles.f1 - articles.n_rows * means.f1, 2) order by articles.article)) as f1_error
    from articles
    inner join means using (model, dataset)
    group by model, dataset

)

select
    means.model,
    dataset,
    sizes.role,
    means.exact_match,
    wilson_interval_clustered(means.exact_match, errors.exact_match_error, means.n_rows, means.n_articles)[1] as exact_match_low,
    wilson_interval_clustered(means.exact_match, errors.exact_match_error, means.n_rows, means.n_articles)[2] as exact_match_high,
    means.f1,
    case
        when errors.f1_error is not null
            then greatest(0, means.f1 - t_quantile(means.n_articles - 1) * errors.f1_error)
    end as f1_low,
    case
        when errors.f1_error is not null
            then least(1, means.f1 + t_quantile(means.n_articles - 1) * errors.f1_error)
    end as f1_high,
    means.n_rows,
    sizes.n_questions - means.n_rows as n_missing,
    means.n_articles,
    errors.exact_match_error,
    errors.f1_error,
    texts.share_most_frequent,
    texts.share_most_frequent > 0.95 as is_constant
from means
inner join errors using (model, dataset)
inner join sizes using (dataset)
inner join texts using (model, dataset)
order by all
