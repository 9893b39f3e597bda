"""Derive the SQL's inputs for tests against chance and for intervals of changes.

These are nulls of the search, sign flips, and exact match on bootstrap samples of articles.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow.compute as pc

from biaseval import tables
from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import opened, rows
from biaseval.qa_bias.splits.article_draws import article_draws
from biaseval.qa_bias.splits.search_null import enough_permutations, search_nulls
from biaseval.spec import QaBiasSpec
from biaseval.store import Run

N_UNITS = 64
"""The number of article groups whose signs are flipped in comparisons of models (``qa_model_comparisons``)."""

_READ = (
    tables.QA_EXAMPLES,
    tables.QA_ATTRIBUTES,
    tables.QA_PREDICTIONS,
    tables.QA_SETTINGS,
    tables.QA_MODELS,
    tables.QA_THRESHOLDS,
    tables.QA_DRAWS,
)


@contextmanager
def _with_chosen(run: Run, *further: tables.TableSchema) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with a run's tables, and with ``chosen``: the threshold of each model and heuristic."""
    read = {table.name: table for table in (*_READ, *further)}
    with opened(run, read, ("qa_bias_candidates", "qa_bias_by_heuristic")) as connection:
        connection.execute(_CHOSEN).fetchall()
        yield connection


def derive_chance(run: Run, spec: QaBiasSpec) -> None:
    """Write ``sign_flips`` and, by model, ``qa_search_nulls`` and ``qa_bias_draws`` of an answered QA-bias run.

    The run has everything that `derive_qa_bias` writes.

    Raises:
        BiasevalError: a file cannot be read.
    """
    run.write_part(tables.SIGN_FLIPS.name, 0, sign_flips(N_UNITS, spec.seed))
    with _with_chosen(run) as connection:
        connection.execute(_ANSWERS).fetchall()
        models = rows("select number, model from qa_models order by number", connection)
        nulls = search_nulls(
            rows("from answers order by all", connection),
            rows("select dataset, heuristic, threshold from qa_thresholds order by all", connection),
            rows("from chosen order by all", connection),
            seed=spec.seed,
            sample=spec.bootstrap.sample,
            replacement=spec.bootstrap.replacement,
            variant=spec.variant,
            permutations=enough_permutations(len(models) * len(spec.heuristics)),
        )
        for number, model in zip(models["number"].to_pylist(), models["model"].to_pylist(), strict=True):
            run.write_part(tables.QA_SEARCH_NULLS.name, number, nulls.filter(pc.field("model") == model))
            connection.execute("set variable asked = $model", {"model": model})
            drawn = article_draws(tables.QA_BIAS_DRAWS, model, rows(_SPLIT, connection), seed=spec.seed)
            run.write_part(tables.QA_BIAS_DRAWS.name, number, drawn)


def derive_changes(run: Run, seed: int) -> None:
    """Write ``qa_change_draws`` of a run with measured readers, for each reader compared with a standard one.

    Both readers use the thresholds that ``qa_bias_by_heuristic`` chose for them. The run has everything that
    `derive_qa_bias` writes.

    Raises:
        BiasevalError: a file cannot be read.
    """
    with _with_chosen(run, tables.TRAINED_MODELS) as connection:
        compared = rows(
            "select number, model from trained_models where standard is not null and path is not null order by number",
            connection,
        )
        for number, model in zip(compared["number"].to_pylist(), compared["model"].to_pylist(), strict=True):
            connection.execute("set variable asked = $model", {"model": model})
            answers = rows(_PAIRED, connection)
            if answers.num_rows:
                drawn = article_draws(tables.QA_CHANGE_DRAWS, model, answers, seed=seed)
                run.write_part(tables.QA_CHANGE_DRAWS.name, number, drawn)


_CHOSEN = """
create table chosen as
select model, dataset, heuristic, threshold, searched_on
from qa_bias_by_heuristic
"""

_ANSWERS = """
create table answers as
select
    qa_measured.model, dataset, qa_measured.heuristic,
    dense_rank() over (partition by dataset order by example_id) as question,
    qa_articles.article, qa_articles.n_articles, qa_measured.value, qa_measured.exact_match
from qa_measured
inner join qa_articles using (dataset, example_id)
"""

_SPLIT = """
select dataset, heuristic, answers.* exclude (dataset, heuristic, model, question), chosen.threshold
from chosen
inner join answers using (model, dataset, heuristic)
where chosen.model = getvariable('asked') and chosen.threshold is not null
order by all
"""

_PAIRED = """
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
