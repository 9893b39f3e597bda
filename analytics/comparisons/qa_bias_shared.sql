-- One row per ordered pair (run, other_run) of QA-bias runs: the data that both have, which qa_bias_comparison
-- compares, and their differences. n_questions, n_articles: that both have, by dataset and id, with the same question,
-- context and answers; n_differing: with the same dataset and id and another text; n_lacking: questions of run that are
-- not in other_run. datasets: with a question that both have. heuristics: that both ask for; differing_heuristics:
-- whose values differ on the questions that both have. has_same_seed, has_same_variant: of the specs. n_namesakes:
-- models of the same name in both, which are compared with each other; the others with every model. is_comparable: they
-- share a question.
with
questions as (
    select run, dataset, example_id, article, hash(question, context, answers) as content
    from qa_examples
    inner join qa_articles using (run, dataset, example_id)
),

paired as (
    select
        questions.run, other.run as other_run, dataset, example_id, questions.article,
        questions.content = other.content as is_same
    from questions
    inner join questions as other using (dataset, example_id)
    where questions.run <> other.run
),

counts as (
    select
        run, other_run, count(*) filter (is_same) as n_questions,
        count(distinct {'dataset': dataset, 'article': article}) filter (is_same) as n_articles,
        count(*) filter (not is_same) as n_differing,
        coalesce(list_sort(list(distinct dataset) filter (is_same)), []) as datasets
    from paired
    group by all
),

values_of as (
    select
        paired.run, paired.other_run, own.heuristic,
        bool_and(
            own.is_measured = other.is_measured
            and (own.value = other.value or abs(own.value - other.value) <= 1e-9 or (isnan(own.value) and isnan(other.value)))
        ) as has_same_values
    from paired
    inner join qa_attributes as own using (run, dataset, example_id)
    inner join qa_attributes as other using (dataset, example_id, heuristic)
    where paired.is_same and other.run = paired.other_run
    group by all
),

heuristic_lists as (
    select
        run, other_run, list(heuristic order by heuristic) as heuristics,
        coalesce(list(heuristic order by heuristic) filter (not has_same_values), []) as differing_heuristics
    from values_of
    group by all
),

runs as (
    select run, seed, variant, models, n_all
    from qa_settings
    inner join (select run, list(model order by number) as models from qa_models group by run) using (run)
    inner join (select run, count(*) as n_all from questions group by run) using (run)
)

select
    runs.run, other.run as other_run, coalesce(counts.n_questions, 0) as n_questions,
    coalesce(counts.n_articles, 0) as n_articles, coalesce(counts.n_differing, 0) as n_differing,
    runs.n_all - coalesce(counts.n_questions + counts.n_differing, 0) as n_lacking,
    coalesce(counts.datasets, []) as datasets, coalesce(heuristic_lists.heuristics, []) as heuristics,
    coalesce(heuristic_lists.differing_heuristics, []) as differing_heuristics,
    runs.seed = other.seed as has_same_seed, runs.variant = other.variant as has_same_variant, runs.models,
    other.models as other_models,
    len(list_intersect(runs.models, other.models)) as n_namesakes,
    coalesce(counts.n_questions, 0) > 0 as is_comparable
from runs
inner join runs as other on runs.run <> other.run
left join counts on runs.run = counts.run and other.run = counts.other_run
left join heuristic_lists on runs.run = heuristic_lists.run and other.run = heuristic_lists.other_run
order by all
