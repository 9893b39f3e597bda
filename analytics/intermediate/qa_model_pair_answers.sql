-- One row per (pair of models, question that both answered), of the pairs of qa_model_pairs: exact match and F1 (0 to
-- 1) of each.
select
    pairs.model, pairs.other_model, dataset, example_id, qa_articles.row, qa_articles.article, own.exact_match,
    others.exact_match as other_exact_match, own.f1, others.f1 as other_f1
from qa_model_pairs as pairs
inner join qa_articles using (dataset)
inner join qa_predictions as own using (model, dataset, example_id)
inner join qa_predictions as others using (dataset, example_id)
where others.model = pairs.other_model
