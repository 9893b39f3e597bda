-- One row per (trained reader, question that it answered): exact match and F1 (0 to 1), its own and those of the
-- standard reader that it is compared with. standard_exact_match and standard_f1 are null for the standard readers
-- themselves, and where the standard reader has no answer. Bias models take part in no measurement.
select
    trained_models.model, trained_models.standard, qa_articles.dataset, qa_articles.example_id, qa_articles.row,
    qa_articles.article, qa_articles.n_articles, qa_predictions.exact_match, qa_predictions.f1,
    answers.exact_match as standard_exact_match, answers.f1 as standard_f1
from trained_models
inner join qa_predictions using (model)
inner join qa_articles using (dataset, example_id)
left join (select * rename (model as standard) from qa_predictions) as answers using (standard, dataset, example_id)
where trained_models.method <> 'bias_model'
