"""The most important marts of each kind of run, and ``summary.json``, which holds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biaseval.analysis.queries import answers, stored_kind
from biaseval.environment import raw_spec, read_environment
from biaseval.errors import InputError
from biaseval.json_values import plain
from biaseval.store import Run

SUMMARY = "summary.json"
"""The name of the file in a run directory."""

SCHEMA_VERSION = 3
"""The version of ``summary.json``; it changes when a key or column changes its meaning or goes, not for additions."""


@dataclass(frozen=True)
class Headline:
    """The headline queries of one kind of run."""

    mart: str
    """The name of the headline mart of gates and summaries."""
    models: str
    """The query for the ``name`` of each model."""
    counts: str
    """The query for one row with the amount of measured data."""
    verdicts: Mapping[str, str]
    """Mart to the query for its rows with verdicts."""
    further: Sequence[str] = ()
    """Names of further marts in a summary, if they have rows."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """File to the query for a table as the kind's paper prints it."""


_LABEL_BIAS = Headline(
    mart="label_bias_by_model",
    models="select model as name from run_settings",
    counts="""
        select (select count(*) from tasks) as n_tasks, (select sum(n_main)::bigint from tasks) as n_rows,
            (select count(*) from prompts) as n_prompts
    """,
    verdicts={
        "label_bias_verdicts": """
            select n_demos, method, against_n_demos, against_method, metric, estimate, low, high, p_adjusted, verdict,
                same_tasks_low, same_tasks_high, same_tasks_p_adjusted, same_tasks_verdict, unit, n_units, is_primary
            from label_bias_verdicts
            where suite = 'all'
        """
    },
    further=("label_bias_format_spread",),
)

_MAJORITY_BIAS = Headline(
    mart="majority_by_model",
    models="select model as name from run_settings",
    counts="""
        select (select count(*) from settings) as n_settings, max(n_seeds) as n_seeds, max(n_test_rows) as n_rows,
            (select count(*) from prompts) as n_prompts
        from majority_by_model
    """,
    verdicts={
        "majority_verdicts": """
            select n_demos, instruction, against_instruction, predict, method, against_method, metric, estimate, low,
                high, p_adjusted, both_low, both_high, p_both_adjusted, verdict, reason, unit, n_units
            from majority_verdicts
        """
    },
)

_QA_BIAS = Headline(
    mart="qa_by_model",
    models="select model as name from qa_models order by number",
    counts="""
        select count(distinct dataset) as n_datasets, count(distinct model) as n_models,
            (select count(*) from qa_examples) as n_questions
        from qa_by_dataset
    """,
    verdicts={
        "qa_bias_tests": """
            select model, dataset, heuristic, threshold, status, bias_significance, null_high, p_adjusted, difference,
                difference_low, difference_high, is_supported
            from qa_bias_tests
        """,
        "qa_model_comparisons": """
            select model, other_model, dataset, metric, heuristic, estimate, low, high, p_adjusted, verdict, reason,
                simultaneous_low, simultaneous_high
            from qa_model_comparisons
        """,
        "qa_debiasing": """
            select model, method, bias, dataset, heuristic, is_addressed, significance_change, significance_change_low,
                significance_change_high, p_adjusted, is_nearly_broken, verdict, reason
            from qa_debiasing
        """,
    },
    further=("qa_by_dataset",),
    tables={
        "table_1": """
            with
            means as (
                select base, data, bias, method, dataset,
                    100 * avg(f1 order by seed) as f1,
                    100 * avg(f1_change order by seed) as change
                from qa_out_of_distribution
                where role = 'out_of_distribution'
                group by all
            ),
            cells as (
                select base, data, bias, method,
                    string_agg(dataset, ' / ' order by dataset) as datasets,
                    string_agg(format('{:.1f}', f1), ' / ' order by dataset) as f1,
                    string_agg(coalesce(format('{:+.1f}', change), '–'), ' / ' order by dataset) as cell
                from means
                group by all
                union all by name
                select base, data, 'average' as bias, method,
                    format('{:+.2f}', avg(change order by means.bias, dataset)) as cell
                from means
                where means.bias is not null
                group by base, data, method
            )
            select base, data, cells.bias, any_value(standard.datasets) as datasets, any_value(standard.f1) as standard,
                any_value(cells.cell) filter (cells.method = 'resample') as resample,
                any_value(cells.cell) filter (cells.method = 'learned_mixin') as learned_mixin,
                any_value(cells.cell) filter (cells.method = 'confidence_regularization') as confidence_regularization,
                any_value(cells.cell) filter (cells.method = 'product_of_experts') as product_of_experts
            from cells
            left join cells as standard using (base, data)
            cross join qa_settings
            where cells.bias is not null and standard.method = 'standard' and standard.bias is null
            group by all
            order by base, data, any_value(list_position(heuristics, cells.bias)) nulls last
        """
    },
)

_SEARCH = Headline(
    mart="search_best",
    models="select name from search_settings",
    counts="""
        select count(*) as n_trials, count(*) filter (state = 'done') as n_done,
            count(*) filter (state = 'failed') as n_failed
        from trials
    """,
    verdicts={
        "search_verdicts": "select objective, estimate, low, high, p_adjusted, verdict, n_units from search_verdicts"
    },
)

HEADLINES = {"label_bias": _LABEL_BIAS, "majority_bias": _MAJORITY_BIAS, "qa_bias": _QA_BIAS, "search": _SEARCH}
"""The headlines by kind; other kinds have no metrics."""

HEADLINE_MARTS = frozenset(mart for own in HEADLINES.values() for mart in (own.mart, *own.verdicts, *own.further))
"""The headline marts of all kinds."""


def headline_of(run: Run) -> Headline:
    """Return the headline of a run's kind; Raises InputError: it is no run directory, or of a kind without metrics."""
    kind = stored_kind(run)
    if kind not in HEADLINES:
        raise InputError(f"{run.uri}: is of the kind {kind}, which has no metrics; name another directory")
    return HEADLINES[kind]


def summarize(run: Run, conclusions: Sequence[str], cautions: Sequence[str]) -> dict[str, Any]:
    """Return the content of ``summary.json`` for a run with metrics; the same run gives the same content.

    Conclusions and cautions, for readers of the numbers, are one sentence each.

    Returns:
        JSON values: ``schema_version``, ``kind``, ``name``; ``models``, each with its ``name`` and the ``digest`` of
        its files (null where none was loaded); ``counts``; ``metrics`` and ``verdicts``, by mart the rows of it;
        ``conclusions`` and ``cautions``. Numbers are unrounded, as in SQL; missing and non-finite values are null.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    own, spec, environment, ask = headline_of(run), raw_spec(run), read_environment(run), answers(run)
    [counts] = ask(own.counts)
    metrics = {name: ask(f"from {name} order by all") for name in (own.mart, *own.further)}
    content = {
        "schema_version": SCHEMA_VERSION,
        "kind": spec["kind"],
        "name": spec["name"],
        "models": [{**model, "digest": _digest(environment, model["name"])} for model in ask(own.models)],
        "counts": counts,
        "metrics": {name: found for name, found in metrics.items() if found or name not in own.further},
        "verdicts": {name: ask(f"{sql} order by all") for name, sql in own.verdicts.items()},
        "conclusions": list(conclusions),
        "cautions": list(cautions),
    }
    return dict(plain(content))


def _digest(environment: Mapping[str, Any], model: str) -> str | None:
    found = environment.get("model") or environment.get("models", {}).get(model) or {}
    return found.get("digest")
