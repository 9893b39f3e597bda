"""Derive the SQL's inputs for intervals of changes: exact match of trained readers on bootstrap samples of articles."""

from biaseval.analysis.sql_files import opened, rows
from biaseval.qa_bias.splits.article_draws import article_draws
from biaseval.store import Run
from biaseval.tables import (
    QA_ATTRIBUTES,
    QA_CHANGE_DRAWS,
    QA_DRAWS,
    QA_EXAMPLES,
    QA_MODELS,
    QA_PREDICTIONS,
    QA_SETTINGS,
    QA_THRESHOLDS,
    TRAINED_MODELS,
)

_READ = {
    table.name: table
    for table in (
        QA_EXAMPLES,
        QA_ATTRIBUTES,
        QA_PREDICTIONS,
        QA_SETTINGS,
        QA_MODELS,
        QA_THRESHOLDS,
        QA_DRAWS,
        TRAINED_MODELS,
    )
}


def derive_changes(run: Run, seed: int) -> None:
    """Write ``qa_change_draws`` of a run with measured readers, for each reader compared with a standard one.

    Both readers use the thresholds that ``qa_bias_by_heuristic`` chose for them.

    Args:
        run: the run directory with everything that `derive_qa_bias` writes.
        seed: the run's seed.

    Raises:
        BiasevalError: a file cannot be read.
    """
    with opened(run, _READ, ("qa_bias_candidates", "qa_bias_by_heuristic")) as connection:
        connection.execute(
            "create table chosen as select model, dataset, heuristic, threshold from qa_bias_by_heuristic"
        )
        compared = rows(
            "select number, model from trained_models where standard is not null and path is not null order by number",
            connection,
        )
        for number, model in zip(compared["number"].to_pylist(), compared["model"].to_pylist(), strict=True):
            connection.execute("set variable asked = $model", {"model": model})
            answers = rows(_ANSWERS, connection)
            if answers.num_rows:
                drawn = article_draws(QA_CHANGE_DRAWS, model, answers, seed=seed)
                run.write_part(QA_CHANGE_DRAWS.name, number, drawn)


_ANSWERS = """
select
    dataset, heuristic, article, n_articles, value, chosen.threshold, standard_chosen.threshold as standard_threshold,
    qa_paired_answers.exact_match, qa_paired_answers.standard_exact_match
from qa_paired_answers
inner join qa_attributes using (dataset, example_id)
inner join chosen using (model, dataset, heuristic)
inner join chosen as standard_chosen using (dataset, heuristic)
where
    model = getvariable('asked')
    and standard_chosen.model = qa_paired_answers.standard
    and qa_attributes.is_measured
    and qa_paired_answers.standard_exact_match is not null
    and chosen.threshold is not null
    and standard_chosen.threshold is not null
order by all
"""
