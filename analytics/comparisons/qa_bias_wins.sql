-- One row per ordered pair of models (run, model, other_run, other_model) and dataset: on how many of the questions
-- that both answered only other_model (n_wins) or only model (n_losses) has an exact match; n_questions: that both
-- answered. mcnemar_p: of these counts (mcnemar_p); questions of an article are alike, so that verdicts are those of
-- qa_bias_comparison, which counts articles.
select
    run, model, other_run, other_model, dataset, count(*) filter (other_exact_match > exact_match) as n_wins,
    count(*) filter (other_exact_match < exact_match) as n_losses,
    count(*) as n_questions, mcnemar_p(n_wins, n_losses) as mcnemar_p
from ordered_pairs('qa_bias_paired')
group by all
order by all
