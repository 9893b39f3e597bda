"""What SQL needs to say which biases are more than chance: nulls of the search, bootstrap samples, sign flips."""

from __future__ import annotations

from contextlib import closing

from biaseval.analysis.relations import connect, create_tables, create_views, local_copy, relations, rows
from biaseval.analysis.sign_flips import sign_flips
from biaseval.qa_bias.bias_draws import bias_draws
from biaseval.qa_bias.search_null import enough_permutations, search_nulls
from biaseval.spec import QaBiasSpec
from biaseval.store import Run
from biaseval.tables import (
    QA_ATTRIBUTES,
    QA_BIAS_DRAWS,
    QA_DRAWS,
    QA_EXAMPLES,
    QA_MODELS,
    QA_PREDICTIONS,
    QA_SEARCH_NULLS,
    QA_SETTINGS,
    QA_THRESHOLDS,
    SIGN_FLIPS,
)

N_UNITS = 64
"""Groups of articles whose signs are flipped, where models are compared (``qa_model_comparisons``)."""

_READ = {
    table.name: table
    for table in (QA_EXAMPLES, QA_ATTRIBUTES, QA_PREDICTIONS, QA_SETTINGS, QA_MODELS, QA_THRESHOLDS, QA_DRAWS)
}


def derive_chance(run: Run, spec: QaBiasSpec) -> None:
    """Write ``sign_flips`` and, by model, ``qa_search_nulls`` and ``qa_bias_draws`` of an answered QA-bias run.

    Args:
        run: the run directory, which has all that `derive_qa_bias` writes.
        spec: its spec.

    Raises:
        BiasevalError: a file cannot be read.
    """
    run.write_part(SIGN_FLIPS.name, 0, sign_flips(N_UNITS, spec.seed))
    with local_copy(run, _READ) as source, closing(connect([source])) as connection:
        create_tables(source, _READ.values(), connection)
        create_views(relations("intermediate", tables=_READ), connection)
        needed = ("qa_bias_candidates", "qa_bias_by_heuristic")
        create_views([mart for mart in relations("marts", tables=_READ) if mart.name in needed], connection)
        connection.execute(_CHOSEN).fetchall()
        models = rows("select number, model from qa_models order by number", connection)
        permutations = enough_permutations(len(models) * len(spec.heuristics))
        for number, model in zip(models["number"].to_pylist(), models["model"].to_pylist(), strict=True):
            connection.execute("set variable asked = $model", {"model": model})
            nulls = search_nulls(
                model,
                rows(_MEASURED, connection),
                rows(_TRIED, connection),
                seed=spec.seed,
                sample=spec.bootstrap.sample,
                replacement=spec.bootstrap.replacement,
                variant=spec.variant,
                permutations=permutations,
            )
            run.write_part(QA_SEARCH_NULLS.name, number, nulls)
            run.write_part(QA_BIAS_DRAWS.name, number, bias_draws(model, rows(_SPLIT, connection), seed=spec.seed))


_CHOSEN = """
create table chosen as
select model, dataset, heuristic, threshold, searched_on
from qa_bias_by_heuristic
"""

_MEASURED = """
select dataset, heuristic, qa_articles.article, qa_measured.value, qa_measured.exact_match
from qa_measured
inner join qa_articles using (dataset, example_id)
where qa_measured.model = getvariable('asked')
order by all
"""

# One that another model's answers chose is taken as it is.
_TRIED = """
select dataset, heuristic, qa_thresholds.threshold
from chosen
inner join qa_thresholds using (dataset, heuristic)
where
    chosen.model = getvariable('asked')
    and (
        chosen.threshold is null
        or coalesce(chosen.searched_on = chosen.model, false)
        or qa_thresholds.threshold = chosen.threshold
    )
order by all
"""

_SPLIT = """
select
    dataset, heuristic, qa_articles.article, qa_articles.n_articles, qa_measured.value, chosen.threshold,
    qa_measured.exact_match
from chosen
inner join qa_measured using (model, dataset, heuristic)
inner join qa_articles using (dataset, example_id)
where chosen.model = getvariable('asked') and chosen.threshold is not null
order by all
"""
