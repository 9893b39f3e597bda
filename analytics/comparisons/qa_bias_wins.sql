-- One row per ordered pair of models (run, model, other_run, other_model) and dataset: on how many of the questions that
-- both answered only other_model (n_wins) or only model (n_losses) has an exact match; n_questions: that both answered.
-- mcnemar_p: of these counts (mcnemar_p); questions of an article are alike, so that verdicts are those of
-- qa_bias_comparison, which counts articles.
with

counts as (

    select
        run,
        model,
        other_run,
        other_model,
        dataset,
        count(*) filter (other_exact_match > exact_match) as n_wins,
        count(*) filter (other_exact_match < exact_match) as n_losses,
        count(*) as n_questions,
        mcnemar_p(n_wins, n_losses) as mcnemar_p
    from qa_bias_paired
    group by all

)

from counts

union all by name

select
    * replace (
        other_run as run,
        run as other_run,
        other_model as model,
        model as other_model,
        n_losses as n_wins,
        n_wins as n_losses
    )
from counts
order by all
