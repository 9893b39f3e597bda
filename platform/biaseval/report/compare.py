"""The page of several runs of one kind, each compared with the first, as a list of blocks over their comparison."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from textwrap import wrap
from typing import Any

from biaseval.analysis.compared_kinds import KINDS
from biaseval.analysis.comparing import LACKING, LINES, PLACES, Compared, cautions_of, comparing
from biaseval.errors import InputError
from biaseval.report import blocks
from biaseval.report.charts import Chart, forest_chart
from biaseval.report.compare_models import MODEL_RELATIONS, model_sections
from biaseval.store import write_file

_MOST_LINES = 40
"""The most lines of a chart; if there are more, it shows only the settings to deploy."""

_N_DIGITS = 12
"""The digits shown of a fingerprint."""

RELATIONS = f"{MODEL_RELATIONS} {' '.join(f'{kind}_conclusions {kind}_cautions' for kind in KINDS)}"
"""Relations that pages need in addition to the comparisons; each kind has some of them."""

_FIRST = {"label_bias": ("macro_f1", "rsd"), "majority_bias": ("mean_f1", "sd_f1"), "qa_bias": ("exact_match", "gap")}
"""The metrics of performance and bias of the charts at the top of the page where the headline names no metric."""


def refuse_other_names(out: str) -> None:
    """Make sure that ``out`` is a valid name of a page.

    Raises:
        InputError: the name is invalid.
    """
    if not out.endswith(".html"):
        raise InputError(f"--out {out}: does not end in .html; name the file of the page")


def write_comparison(run_uris: Sequence[str], out: str) -> str:
    """Write one page over several runs of one kind, with its figures inside; nothing is written into the runs.

    Args:
        run_uris: finished runs, at least two; the others are compared with the first. Local paths or ``s3://`` URIs.
        out: the page's file, which ends in ``.html``; an existing file is replaced atomically.

    Returns:
        The URI of the page.

    Raises:
        InputError: ``out`` is no name of a page, or `comparing`.
        BiasevalError: a run is not finished; the message says what to do.
    """
    refuse_other_names(out)
    with comparing(run_uris, RELATIONS) as (compared, ask):
        return write_page(compared, ask, out)


def write_page(compared: Compared, ask: blocks.Ask, out: str) -> str:
    """Write the page of a comparison to ``out`` (`write_comparison`) and return its URI; ``ask`` knows `RELATIONS`."""
    refuse_other_names(out)
    return write_file(out, compare_page(compared, ask))


def compare_page(compared: Compared, ask: blocks.Ask) -> str:
    """Return the HTML of the page; all text from the runs is escaped."""
    return blocks.render(compare_layout(compared, ask), ask)


def difference_charts(compared: Compared) -> list[Chart]:
    """Return a chart per metric, with a line per setting and other run; of too many settings, only those to deploy."""
    rows = [row for row in compared.told if row["estimate"] is not None and row["measures"] != "partner"]
    charts: list[Chart] = []
    for place in sorted({(row["number"], row["metric"]) for row in rows}):
        own = [row for row in rows if (row["number"], row["metric"]) == place]
        if len(own) > _MOST_LINES:
            own = [row for row in own if row["deployed"] is not None][:_MOST_LINES]
        charts.append(_chart(f"differences_{len(charts)}", own))
    return charts


def _chart(name: str, rows: Sequence[blocks.Row]) -> Chart:
    """Return one chart; values that all lines share are below its title."""
    first, names, common = rows[0], *_told_apart(rows)
    is_one_metric = len({row["shown"] for row in rows}) == 1
    shown = first["shown"] if is_one_metric else "gap"
    sides = [
        first[side] if len({row[side] for row in rows}) == 1 else word
        for side, word in (("who", "the run"), ("against", "the other"))
    ]
    height = max(name.count("\n") for name in names) + 1
    return forest_chart(
        name,
        [
            {"y": place, "x": row["estimate"], "low": row["verdict_low"], "high": row["verdict_high"]}
            | {"word": row["word"]}
            for place, row in zip(names, rows, strict=True)
        ],
        title=f"{shown[0].upper()}{shown[1:]} ({'lower' if first['is_low_better'] else 'higher'} is better)",
        subtitle="\n".join(wrap(common, 60)),
        axis=f"{sides[0]} minus {sides[1]}",
        least=first["least_effect"],
        step=10 + 12 * height,
    )


def _told_apart(rows: Sequence[blocks.Row]) -> tuple[list[str], str]:
    """Return the values that distinguish the lines of a chart, and the values that they share."""
    parts = [[row["who"], row["against"], *row["place"].split(", "), row["shown"]] for row in rows]
    shared = set.intersection(*map(set, parts))
    names = [", ".join(part for part in own if part not in shared) or own[2] for own in parts]
    common = ", ".join(part for part in rows[0]["place"].split(", ") if part in shared)
    return ["\n".join(wrap(name, 34)) for name in names], common if len(rows) > 1 else ""


def compare_layout(compared: Compared, ask: blocks.Ask) -> blocks.Layout:
    """Return the page of a comparison.

    Args:
        compared: the compared runs.
        ask: answers queries over the runs.
    """
    kind, reference, others = KINDS[compared.kind].name, compared.reference, compared.runs[1:]
    charts = difference_charts(compared)
    metrics = list(dict.fromkeys(row["metric"] for row in sorted(compared.told, key=lambda row: row["number"])))
    shown = _first_metrics(compared)
    first = [chart for chart, metric in zip(charts, metrics, strict=False) if metric in shown]
    said = blocks.Sentences(compared.asks("compare_conclusions", LINES, "line > 1"))
    seen = blocks.Figures(first, _SEEN)
    deployed = _STEPS + compared.asks("compared", PLACES, "deployed is not null and measures <> 'partner'")
    pairs = f"{_STEPS}from {compared.kind}_compared {_EACH}"
    table = blocks.Table(_DEPLOYED, deployed, _DEPLOYED_COLUMNS)
    own, cautions = _own(compared.kind)
    care = cautions_of(compared.kind, compared.runs)
    lacking = blocks.Sentences(f"from ({care}) where line = {LACKING} order by text", "", "Not compared")
    rows = compared.queries["rows"]
    return blocks.Layout(
        f"{kind[0].upper()}{kind[1:]}: {', '.join(others[:3])}{' …' if len(others) > 3 else ''} against {reference}",
        _about(compared),
        [
            blocks.Section(
                "summary", f"Better than {reference}?",
                blocks.Sentences(compared.asks("compare_conclusions", LINES, "line = 1"), "headline"),
                *([blocks.Beside(said, lacking, own, seen)] if len(others) == 1 else [seen, lacking]), table,
                blocks.Sentences(f"from ({care}) where line <> {LACKING} order by all", "care", "Read with care"),
                blocks.Fold("Each run against the first in words", *([said] if len(others) > 1 else [])),
                blocks.Fold("What each run shows by itself", *([own] if len(others) > 1 else []), cautions),
                link="Summary",
            ),
            blocks.Section(
                "overview", "Charts, and each run against each",
                blocks.Figures([chart for chart in charts if chart not in first], "Marks as in the summary."),
                blocks.Fold(
                    "Each against each, in the settings that would be deployed",
                    *([blocks.Table(_PAIRS, pairs, _PAIRS_COLUMNS)] if len(others) > 1 else []),
                ),
                link="Charts",
            ),
            blocks.Section(
                "differences", "Every difference",
                blocks.Fold(
                    f"{len(compared.told):,} differences",
                    blocks.Table(_ALL, _STEPS + compared.asks("compared", PLACES), _ALL_COLUMNS),
                ),
                link="Differences",
            ),
            blocks.Section(
                "rows", "Rows won and lost",
                *(blocks.Table(_COUNTED, sql, _COUNTED_COLUMNS) for sql in rows[: len(rows) // 2]),
                blocks.Fold(
                    f"{len(compared.disagreements):,} of these predictions",
                    *[blocks.Table(_LISTED, sql, _LISTED_COLUMNS) for sql in rows[len(rows) // 2 :]],
                ),
            ),
            blocks.Section(
                "shared", "Shared and different settings", blocks.Keys(_OF, _facts(compared, compared.origins)),
                blocks.Fold(
                    "Everything that is shared", blocks.Table(_SHARED, compared.asks("shared"), _SHARED_COLUMNS),
                ),
                blocks.Fold(
                    f"Specs, versions and models: {len(compared.facts):,} keys differ",
                    blocks.Keys(
                        "Keys in which not all runs are alike; – where a run has none.",
                        _facts(compared, compared.facts),
                    ),
                ),
            ),
            *model_sections(compared, ask),
            blocks.Section(
                "words", "What the words mean", blocks.Fold("Verdicts", blocks.Definitions(_TERMS)), link="Words",
            ),
        ],
    )  # fmt: skip


def _first_metrics(compared: Compared) -> list[str]:
    """Return a metric of performance and one of bias, each that of the headline where it names one."""
    named = {
        row["measures"]: row["metric"]
        for row in sorted(compared.told, key=lambda row: -row["number"])
        if row["is_headline"] and row["is_first"] and row["word"] in ("better", "worse")
    }
    return [named.get(*pair) for pair in zip(("performance", "bias"), _FIRST[compared.kind], strict=True)]


def _own(kind: str) -> list[Any]:
    """Return headlines and prices, and cautions, from the runs' reports."""
    told = f"from {kind}_conclusions where line = 1 or lead like 'Price%' order by run, line"
    alone = (
        f"text || case when regexp_matches(text, '\\bp [<=] ') and run in (select run from {kind}_conclusions where "
        "text like '%of one setting each%') then ' Each p is of one setting alone.' else '' end"
    )
    return [
        blocks.Sentences(f"select run || ': ' || lead as lead, {alone} as text {told}", "", "Each run alone"),
        blocks.Sentences(f"select run || ':' as lead, text from {kind}_cautions order by run, line", "", "Cautions"),
    ]


def _about(compared: Compared) -> list[str | None]:
    """Return the models and sizes."""
    scopes = dict.fromkeys(row["scope"] for row in compared.told)
    differ = [
        row["fact"].removeprefix("spec.")
        for row in compared.facts
        if row["fact"].startswith(("spec.model.", "spec.prompt."))
    ]
    return [
        *_models(compared)[:4],
        f"different: {', '.join(differ[:4])}" if differ else None,
        *list(scopes)[:1],
        "verdicts of each run against the first",
    ]


def _models(compared: Compared) -> list[str]:
    """Return each model with its runs; runs of the same files are of one model, whatever it is called."""
    facts = {row["fact"]: row["values"] for row in compared.origins}
    files = facts.get("fingerprint.model", {})
    paths = {run: path.rstrip("/") for run, path in facts.get("spec.model.path", {}).items() if path}
    ends = [PurePosixPath(path).name for path, _ in {(path, files.get(run)) for run, path in paths.items()}]
    models: dict[str, dict[str, str]] = {}
    for run, path in paths.items():
        end, digest = PurePosixPath(path).name, files.get(run) or ""
        name = end if ends.count(end) == 1 else f"{path} {digest[:_N_DIGITS]}".strip()
        models.setdefault(digest or run, {})[run] = name
    told = [(", ".join(of), "one model, called " * (len(of) > 1), dict.fromkeys(of.values())) for of in models.values()]
    return [f"{runs}: {word}{' and '.join(names)}" for runs, word, names in told]


def _facts(compared: Compared, facts: Sequence[blocks.Row]) -> dict[str, Any]:
    def told(fact: str, value: str | None) -> str:
        return "–" if value is None else value[:_N_DIGITS] if fact.startswith("fingerprint.") else value

    return {
        row["fact"]: " · ".join(f"{name}: {told(row['fact'], row['values'][name])}" for name in compared.runs)
        for row in facts
    }


_SEEN = (
    "Differences from the first run; lines: 95 % intervals that hold for all tests together. Blue circles: better. "
    "Orange squares: worse. Hollow circles: no verdict, even where the line excludes 0; “Every difference” says why. "
    "Grey band: too small to matter."
)

_STEPS = """
select
    *, if(doubt is null, word, 'no verdict') as said, nullif(against, run) as side, value as other_value_before,
    verdict_low as estimate_low, verdict_high as estimate_high
"""
_EACH = "where is_headline and measures <> 'partner' order by run, other_run, who, against, number, shown"

_DEPLOYED = (
    "The settings that a user would deploy: without mitigation, and with the best supported mitigation. Each run has "
    "its own where they differ. An arrow leads from the run that is compared with to the other."
)
_DEPLOYED_COLUMNS = """
who|Run|name; side|Against|name; place|Setting; shown|Metric; other_value|Value|step|said; estimate|Difference|change;
baseline|Always one label|rate; verdict_p|p|p; doubt|Why it is no verdict"""

_PAIRS = "The settings that would be deployed: other run minus run."
_PAIRS_COLUMNS = """
who|Run|name; against|Against|name; place|Setting; shown|Metric; estimate|Difference|change|said; verdict_p|p|p"""

_ALL = (
    "The run minus the one that it is compared with. In brackets: intervals; they and p hold for all tests of all "
    "pairs of runs together. Detectable: the difference that a single test finds in 4 of 5 such runs."
)
_ALL_COLUMNS = """
who|Run|name; side|Against|name; place|Setting; shown|Metric; other_value|Value|rate; value|Against|rate;
baseline|Always one label|rate; estimate|Difference|change|said; verdict_p|p|p;
verdict_smallest_detectable|Detectable|rate; n_units|Units|count; unit|Unit; doubt|Why it is no verdict"""

_COUNTED = "Predictions that only one of two runs has right. McNemar: exact p of one test, as if rows were independent."
_COUNTED_COLUMNS = """
other_run|Run|name; other_model|Its model|name; run|Against|name; model|Its model|name; dataset|Set|name;
n_demos|Demonstrations|count; predict|Prediction|way; method|Method|method; instruction|With instruction|yes;
n_wins|Only the run|count; n_losses|Only the other|count; n_questions|Questions|count; mcnemar_p|McNemar|p"""
_LISTED = "In an order that has nothing to do with them. –: the output is no label."
_LISTED_COLUMNS = """
input|Input|quote; other_run|Run|name; other_model|Its model|name; dataset|Set|name; example_id|Question|name;
task|Task|name; row|Row|count; demo_set|Set|count; setting|Setting; seed|Seed|count; instruction|With instruction|yes;
gold|Gold|name; other_prediction|Of the run|name; prediction|Of the first|name; is_win|The run is right|yes"""

_OF = "Models and seeds. fingerprint: of the model's files."
_SHARED = "Compared is what both runs have: the same tasks, rows and gold labels, or the same questions."
_SHARED_COLUMNS = """
other_run|Run|name; is_comparable|Comparable|yes; n_tasks|Tasks|count; n_rows|Rows|count;
n_shared_rows|Shared rows|count; n_questions|Questions|count; n_articles|Articles|count; n_demos|Demonstrations|list;
methods|Methods|list; predicts|Prediction|list; datasets|Sets|list; heuristics|Heuristics|list;
has_same_rows|Same rows|yes; has_same_settings|Same settings|yes; has_same_bias_score_rows|Same rows of BiasScore|yes;
has_same_inputs|Same prompts|yes; has_same_contexts|Same demonstrations|yes; has_same_scoring|Same scoring|yes;
has_same_variant|Same variant|yes; has_same_seed|Same seed|yes"""

_TERMS = (
    ("better, worse", "The difference is significant after correction for all differences of this page (5 % in all), "
        "and at least 0.01. Accuracy, F1, exact match and RB@10 are better high; RSD, BiasScore, standard deviation "
        "and gap low."),
    ("higher, lower", "Significant, and no verdict: the better side is not shown to be better than always answering "
        "one label, or one of the sides is not, so that its bias says nothing."),
    ("negligible", "The difference is significantly smaller than 0.01."),
    ("no difference shown", "The test cannot tell. This is no evidence that nothing differs."),
    ("not tested", "Fewer than 6 tasks, rows, articles or seeds: no two-sided test can reach 5 %; or as stated."),
    ("Always one label", "Always answering the most frequent gold label, on the same rows."),
    ("Gap", "How far apart the exact match of the two segments of a heuristic is, at one threshold T for both models. "
        "Where the spec fixes none, it is chosen by the answers of both together, which favours neither."),
    ("RB@10", "Here the mean over the seeds that both runs have of the RB@10 of each. It is tested over seeds, and "
        "only where other test rows show the same."),
    ("Best setting", "Of the settings that all compared runs have: the best supported mitigation, or else no "
        "mitigation."),
    ("RSD, BiasScore", "Words on RSD need relative variance to agree, words on BiasScore squared preference."),
)  # fmt: skip
