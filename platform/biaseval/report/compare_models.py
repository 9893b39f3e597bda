"""Models beside each other: the papers' figures over several runs, P2's Tables 1 and 2, and the effect of size."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from biaseval.analysis.comparing import Compared
from biaseval.metric_files import METRICS
from biaseval.report.blocks import Ask, Figures, Fold, Row, Section, Table
from biaseval.report.charts import COLORS, Chart, Look, lighter, line_chart, panels_chart
from biaseval.report.majority_bias import f1_lines, f1_triangles
from biaseval.report.names import INSTRUCTIONS, SUITES, WAYS, method_name, method_order, way_name

MODEL_RELATIONS = (
    "label_bias_by_model label_bias_size_effect label_bias_tuning_effect majority_by_model majority_over_seeds "
    "majority_size_effect majority_tuning_effect majority_shared_data settings"
)
"""Relations that pages and figures of several runs need in addition to the comparisons; each kind has some of them."""

_BETTER = "higher is better"

_PANELS = ("macro_f1", "rsd", "bias_score")
"""The metrics of P1's figures, in their order."""

_MEANS = """
from label_bias_by_model
where suite in ('all', 'semantically_equivalent')
order by family nulls last, n_parameters nulls last, tuned_from is not null, run, n_demos"""

_POINTS = """
select points.*, labels, shares, n_parameters, constant_f1
from majority_over_seeds as points
inner join settings using (run, setting)
inner join majority_by_model using (run, n_demos, instruction, predict, method)
order by n_parameters nulls last, points.run, points.n_demos, predict, method, instruction, points.number"""

_SAME = """
select first.run, min(other.run) as data
from (select distinct run, n_demos from majority_by_model) as first
inner join (select distinct run, n_demos from majority_by_model) as other using (n_demos)
left join majority_shared_data as shared on first.run = shared.run and other.run = shared.other_run
where first.run = other.run or shared.run is not null
group by first.run"""


def model_charts(kind: str, ask: Ask) -> list[Chart]:
    """Return the figures of the kind's paper over several runs; none of kinds whose paper has no such figure."""
    made = {"label_bias": _label_bias_charts, "majority_bias": _majority_bias_charts}.get(kind)
    return [] if made is None else made(ask)


def _label_bias_charts(ask: Ask) -> list[Chart]:
    """Return P1's figures.

    ``models`` (Figures 2, 5, 6) has a line per model: a colour per family, lighter for smaller models, dashed for tuned
    ones. ``methods_FAMILY`` (3, 7, 8) has a column of panels per model and a line per method. ``suites_FAMILY`` (4)
    compares all tasks with the tasks whose labels are equivalent in meaning.
    """
    rows = ask(_MEANS)
    every = [row for row in rows if row["suite"] == "all"]
    plain = [row for row in every if row["method"] == "none"]
    lines = [(row, _called(row)) for row in plain]
    panels = [_panel(metric, METRICS[metric].shown, lines, plain, _looks(plain)) for metric in _PANELS]
    counts = {row["n_tasks"] for row in plain}
    data = f", means over {counts.pop()} tasks" if len(counts) == 1 else ""
    charts = [panels_chart("models", panels, title=f"Models without mitigation{data}", columns=len(_PANELS))]
    for family in dict.fromkeys(row["family"] for row in every):
        own = [row for row in rows if row["family"] == family]
        name, title = ("", f" by model{data}") if family is None else (f"_{_file_name(family)}", f", {family}{data}")
        methods = sorted({row["method"] for row in own}, key=method_order)
        if len(methods) > 1:
            shown = {method: method_name(method) for method in methods}
            of_all = [row for row in own if row["suite"] == "all"]
            charts.append(_grid(f"methods{name}", f"Mitigations{title}", of_all, "method", shown))
        own = [row for row in own if row["method"] == "none"]
        if len({(row["run"], row["n_tasks"]) for row in own}) > len({row["run"] for row in own}):
            charts.append(_grid(f"suites{name}", f"Equivalent labels{title}", own, "suite", SUITES))
    return charts


def _grid(name: str, title: str, rows: Sequence[Row], key: str, shown: Mapping[str, str]) -> Chart:
    """Return panels with a column per model and a row per metric; panels of a metric share their scale."""
    looks = {own: Look(COLORS[at % len(COLORS)], at, at) for at, own in enumerate(shown.values())}
    runs = list(dict.fromkeys(row["run"] for row in rows))
    panels = []
    for metric in _PANELS:
        for run in runs:
            own = [row for row in rows if row["run"] == run]
            lines = [(row, shown[row[key]]) for row in own]
            panel = _called(own[0]) if metric == _PANELS[0] else None
            panels.append(_panel(metric, panel, lines, rows, looks, is_first=run == runs[0]))
    return panels_chart(name, panels, title=title, columns=len(runs))


def _panel(
    metric: str,
    title: str | None,
    lines: Sequence[tuple[Row, str]],
    every: Sequence[Row],
    looks: Mapping[str, Look],
    *,
    is_first: bool = True,
) -> Chart:
    """Return one panel; one without a title, and one that is not the first of its row, lets its neighbours say it."""
    shown, better = METRICS[metric].shown, "lower" if metric in ("rsd", "bias_score") else "higher"
    models = dict.fromkeys(_called(row) for row, _ in lines)
    chart = line_chart(
        metric,
        [
            {"x": row["n_demos"], "y": row[metric], "low": None, "high": None, "series": name}
            for row, name in lines
            if row[metric] is not None
        ],
        title=", ".join([shown, *(models if len(models) == 1 else ())]),
        axes=("demonstrations", f"{shown} ({better} is better)" if is_first else ""),
        domain=(0, max([row[metric] for row in every if row[metric] is not None], default=1)),
        looks=looks,
    )
    return replace(chart, spec={**chart.spec, "title": title or ""})


def _looks(rows: Sequence[Row]) -> dict[str, Look]:
    """Return how the line of each model looks: a colour per family, lighter for smaller models, dashed where tuned."""
    models = {row["run"]: row for row in rows}
    groups: dict[str, list[Row]] = {}
    for run, row in models.items():
        groups.setdefault(row["family"] or run, []).append(row)
    looks = {}
    for number, own in enumerate(groups.values()):
        sizes = sorted({row["n_parameters"] or 0 for row in own})
        for row in own:
            rank = sizes.index(row["n_parameters"] or 0)
            share = 0.5 * (len(sizes) - 1 - rank) / max(len(sizes) - 1, 1)
            color = lighter(COLORS[number % len(COLORS)], share)
            looks[_called(row)] = Look(color, rank + number // len(COLORS), int(row["tuned_from"] is not None))
    return looks


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def _majority_bias_charts(ask: Ask) -> list[Chart]:
    """Return P2's Figures 2 and 3, for every way of predicting and every run's data.

    Figure 2, for two labels, has one line per model. Figure 3 shows each model with and without instruction. With three
    labels, each chart is a triangle.
    """
    rows = ask(_POINTS)
    data = {row["run"]: row["data"] for row in ask(_SAME)}
    ways = sorted(
        {(row["predict"], row["method"]) for row in rows},
        key=lambda way: (list(WAYS).index(way[0]), method_order(way[1])),
    )
    tasks = {data[row["run"]]: row["task"] for row in rows}
    charts: list[Chart] = []
    for way in ways:
        for at, (same, task) in enumerate(tasks.items()):
            own = [row for row in rows if (row["predict"], row["method"]) == way and data[row["run"]] == same]
            namesakes = list(tasks.values())[:at].count(task)
            name = _file_name("_".join(["f1", task, *way, *([str(namesakes)] if namesakes else [])]))
            charts += _of_data(name, f"{task}, {way_name(*way)}", own) if own else []
    return charts


def _of_data(prefix: str, title: str, rows: Sequence[Row]) -> list[Chart]:
    charts = []
    if len(rows[0]["labels"]) == 2:
        for instruction, shown in INSTRUCTIONS.items():
            if given := [row for row in rows if row["instruction"] is instruction]:
                lines = [(row, _called(row)) for row in given]
                charts.append(
                    f1_lines(f"{prefix}_{shown}", f"Weighted F1, {title}, {shown} instruction", lines, _BETTER)
                )
    for run in dict.fromkeys(row["run"] for row in rows):
        own = [row for row in rows if row["run"] == run]
        name, told = f"{prefix}_{_file_name(run)}", f"{title}, {_called(own[0])}"
        if len(own[0]["labels"]) != 3:
            lines = [(row, f"{INSTRUCTIONS[row['instruction']]} instruction") for row in own]
            charts.append(f1_lines(name, f"Weighted F1, {told}", lines, _BETTER))
            continue
        charts += f1_triangles(name, told, own, rows)
    return charts


def _called(row: Row) -> str:
    """Return a model's name in charts: the name of its run, with the model's size if known."""
    size = row["n_parameters"]
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K"), (1, "")):
        if size is not None and size >= unit:
            return f"{row['run']} ({size / unit:.3g}{letter})"
    return str(row["run"])


def paper_tables(kind: str, ask: Ask) -> dict[str, Sequence[Row]]:
    """Return by name the rows of the tables of the kind's paper over several runs, and of tuned and base models."""
    if kind not in _TUNED:
        return {}
    papers = {"majority_bias": _majority_bias_tables}.get(kind, lambda _: {})(ask)
    return papers | {"tuned_minus_base": ask(_TUNED[kind])}


_EFFECTS = "order by family, run, metric, columns(*)"
_TUNED = {
    "label_bias": f"from label_bias_tuning_effect {_EFFECTS}",
    "majority_bias": f"from majority_tuning_effect {_EFFECTS}",
}
_TUNED_COLUMNS = """
family|Family|name; run|Base|name; other_run|Tuned|name; metric; n_demos; instruction; predict; method;
value|Base|rate||Value; other_value|Tuned|rate||Value; estimate|Tuned minus base|change|verdict;
verdict_p|p, adjusted|p"""
_TUNED_CAPTION = (
    "The tuned model minus the base model that model.tuned_from names, or else that of its family and size. In "
    "brackets: 95 % intervals. Words: verdicts, corrected for all differences of this comparison."
)


def _majority_bias_tables(ask: Ask) -> dict[str, Sequence[Row]]:
    """Return P2's Tables 1 and 2."""
    runs = [
        row["run"] for row in ask("select distinct run, n_parameters from majority_by_model order by n_parameters, run")
    ]
    columns = [f"max(weighted_f1) filter (run = {_quoted(run, chr(39))}) as {_quoted(run, chr(34))}" for run in runs]
    return {"table_1": ask(_TABLE_1), "table_2": ask(_TABLE_2.format(columns=", ".join(columns)))}


def _quoted(text: str, mark: str) -> str:
    return f"{mark}{text.replace(mark, 2 * mark)}{mark}"


_TABLE_1 = """
select
    task, run, n_parameters, n_demos, predict, method,
    max(rb_at_10) filter (not instruction) as rb_at_10_without,
    max(rb_at_10) filter (instruction) as rb_at_10_with,
    max(mean_f1) filter (not instruction) as mean_f1_without,
    max(mean_f1) filter (instruction) as mean_f1_with,
    max(sd_f1) filter (not instruction) as sd_f1_without,
    max(sd_f1) filter (instruction) as sd_f1_with
from majority_by_model
group by all
order by task, n_demos, predict, method, n_parameters nulls last, run"""

_TABLE_2 = """
select task, n_demos, predict, method, instruction, setting, {columns}
from majority_over_seeds
group by task, n_demos, predict, method, instruction, number, setting
order by task, n_demos, predict, method, instruction, number"""


def model_sections(compared: Compared, ask: Ask) -> list[Section]:
    """Return the section on models; none for kinds without figures of several models."""
    made = {"label_bias": _label_bias_blocks, "majority_bias": _majority_bias_blocks}.get(compared.kind)
    blocks = [] if made is None else made(compared, ask)
    if blocks:
        blocks.append(Table(_TUNED_CAPTION, _TUNED[compared.kind], _TUNED_COLUMNS))
    return [Section("way-1", "Models beside each other", *blocks, link="Models")] if blocks else []


def _label_bias_blocks(compared: Compared, ask: Ask) -> list[Any]:
    charts = _label_bias_charts(ask) if len(compared.runs) > 2 else []
    return [Figures(charts, _SEEN_LABELS), _LARGER]


def _majority_bias_blocks(compared: Compared, ask: Ask) -> list[Any]:
    return [
        Fold("Robustness boundary, model size and every setting", _BY_MODEL, _SIZE, _SETTING),
        Fold("Weighted F1 by label proportions", Figures(_majority_bias_charts(ask), _SEEN)),
    ]


_LARGER = Table(
    "The larger model minus the smaller, which is the one before it in size in its family (model.family), both tuned "
    "or both not. In brackets: 95 % intervals. Words: verdicts, corrected for all differences of this comparison.",
    f"from label_bias_size_effect {_EFFECTS}",
    """
family|Family|name; run|Smaller|name; larger_run|Larger|name; metric; n_demos; method; value|Smaller|rate||Value;
larger_value|Larger|rate||Value; estimate|Larger minus smaller|change|verdict; verdict_p|p, adjusted|p; n_tasks""",
)

_ORDER = (
    "order by task, n_demos, predict <> 'likelihood', predict <> 'generate', method <> 'none', method, run, instruction"
)

_BY_MODEL = Table(
    "As Table 1 of Gupta et al. (2023), over the settings, each with its mean over seeds, for these draws of "
    "demonstrations. In brackets: 95 % intervals over resamples of the test rows; that of RB@10 leans low. RB@10 says "
    "nothing where no setting is better than one label, or rows are too few.",
    f"from majority_by_model {_ORDER}",
    """
run|Run|name; task|Data|name; n_parameters; predict; method; instruction; rb_at_10|RB@10|rate;
mean_f1|Mean weighted F1|rate; constant_f1|One label|rate; sd_f1|Standard deviation|rate;
is_any_setting_above_constant|A setting is better than one label|shown; has_enough_rows|Enough rows for RB@10|yes;
n_demos; n_settings; n_seeds; n_test_rows""",
)

_SIZE = Table(
    "The larger model minus the smaller, which is the one before it in size, on the same data. In brackets: 95 % "
    "intervals over resamples of the test rows, with these draws of demonstrations. They are no test: whether "
    "another draw would show the same is tested under Every difference. Tails: the most skewed settings.",
    f"from majority_size_effect {_ORDER}",
    """
run|From|name; larger_run|To|name; task|Data|name; predict; method; instruction; rb_at_10|RB@10|change;
mean_f1|Mean weighted F1|change; sd_f1|Standard deviation|change; tails_f1|F1 at the tails|change;
middle_f1|F1 in the middle|change; is_above_constant|Settings of both are better than one label|shown;
has_enough_rows|Enough rows for RB@10|yes; n_shared_rows""",
)

_SETTING = Table(
    "As Table 2 of Gupta et al. (2023): means over seeds; in brackets 95 % intervals over test rows. Inside: within 10 "
    "points of the best setting of the run.",
    f"from majority_over_seeds {_ORDER}, number",
    """
setting; run|Run|name; task|Data|name; predict; method; instruction; weighted_f1|Weighted F1|rate;
is_marked|Inside|yes""",
)

_SEEN_LABELS = (
    "As the figures of Reif & Schwartz (2024): means over tasks and demonstration sets. A colour is a model family, a "
    "lighter line a smaller model, and a dashed line a tuned model, by model.family and model.tuned_from."
)

_SEEN = (
    "As Figures 2 and 3 of Gupta et al. (2023). Shaded or bars: 95 % intervals over test rows. Dotted: always giving "
    "one label. In a triangle, a mark near a corner has more demonstrations of that label. "
    "Red rings, if any: within 10 points of the best setting."
)
