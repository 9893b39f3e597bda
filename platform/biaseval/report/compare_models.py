"""Models in comparisons of majority-bias runs: P2's Tables 1 and 2, Figures 2 and 3, and the effect of size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from biaseval.analysis.comparing import Compared
from biaseval.report.blocks import Ask, Figures, Fold, Row, Section, Table, columns
from biaseval.report.charts import Chart, line_chart, triangle_chart
from biaseval.report.methods import method_order
from biaseval.report.names import INSTRUCTIONS, WAYS, way_name

MODEL_RELATIONS = "majority_by_model majority_over_seeds majority_size_effect majority_shared_data settings"
"""Relations that pages and figures of majority-bias runs need in addition to the comparisons."""

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


def model_charts(ask: Ask) -> list[Chart]:
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
    charts: list[Chart] = []
    for number, way in enumerate(ways):
        for at, same in enumerate(dict.fromkeys(data.values())):
            own = [row for row in rows if (row["predict"], row["method"]) == way and data[row["run"]] == same]
            if own:
                charts += _of_data(f"f1_{number}_{at}", f"{own[0]['task']}, {way_name(*way)}", own)
    return charts


def _of_data(prefix: str, title: str, rows: Sequence[Row]) -> list[Chart]:
    charts = []
    if len(rows[0]["labels"]) == 2:
        for instruction, shown in INSTRUCTIONS.items():
            if given := [row for row in rows if row["instruction"] is instruction]:
                lines = [(row, _called(row)) for row in given]
                charts.append(_lines(f"{prefix}_{shown}", f"{title}, {shown} instruction", lines))
    values = [row["weighted_f1"] for row in rows]
    for number, run in enumerate(dict.fromkeys(row["run"] for row in rows)):
        own = [row for row in rows if row["run"] == run]
        name, told = f"{prefix}_model{number}", f"{title}, {_called(own[0])}"
        if len(own[0]["labels"]) != 3:
            charts.append(_lines(name, told, [(row, f"{INSTRUCTIONS[row['instruction']]} instruction") for row in own]))
            continue
        for instruction, shown in INSTRUCTIONS.items():
            points = [
                {"setting": row["setting"], "shares": row["shares"], "value": row["weighted_f1"]}
                | {"is_marked": row["is_marked"]}
                for row in own
                if row["instruction"] is instruction
            ]
            if points:
                charts.append(
                    triangle_chart(
                        f"{name}_{shown}",
                        points,
                        title=f"{told}, {shown} instruction",
                        labels=own[0]["labels"],
                        domain=(min(values), max(values)),
                    )
                )
    return charts


def _lines(name: str, title: str, lines: Sequence[tuple[Row, str]]) -> Chart:
    labels = lines[0][0]["labels"]
    is_binary = len(labels) == 2
    points: list[Mapping[str, Any]] = [
        {"x": round(100 * row["shares"][0], 6) if is_binary else row["setting"], "y": row["weighted_f1"]}
        | {"low": row["weighted_f1_low"], "high": row["weighted_f1_high"], "series": series}
        for row, series in lines
    ]
    return line_chart(
        name,
        points,
        title=f"Weighted F1, {title}",
        subtitle="higher is better",
        axes=(
            f"demonstrations labelled {labels[0]} (%)" if is_binary else f"% of {', '.join(labels)}",
            "weighted F1",
        ),
        reference=[{"x": x, "y": lines[0][0]["constant_f1"]} for x in dict.fromkeys(point["x"] for point in points)],
        reference_name="always one label",
        domain=(0, 1),
        is_ordinal=not is_binary,
    )


def _called(row: Row) -> str:
    """Return a model's name in charts: the name of its run, with the model's size if known."""
    size = row["n_parameters"]
    for unit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K"), (1, "")):
        if size is not None and size >= unit:
            return f"{row['run']} ({size / unit:.3g}{letter})"
    return str(row["run"])


def model_sections(compared: Compared, ask: Ask) -> list[Section]:
    """Return the sections on models; empty for other kinds of runs."""
    if compared.kind != "majority_bias":
        return []
    return [
        Section(
            "way-1",
            "Models beside each other",
            [
                Fold(
                    "Robustness boundary, model size and every setting",
                    [
                        Table(_BY_MODEL, f"from majority_by_model {_ORDER}", columns(_BY_MODEL_COLUMNS)),
                        Table(_SIZE, f"from majority_size_effect {_ORDER}", columns(_SIZE_COLUMNS)),
                        Table(_SETTING, f"from majority_over_seeds {_ORDER}, number", columns(_SETTING_COLUMNS)),
                    ],
                ),
                Fold("Weighted F1 by label proportions", [Figures(model_charts(ask), _SEEN)]),
            ],
            "Models",
        )
    ]


_ORDER = (
    "order by task, n_demos, predict <> 'likelihood', predict <> 'generate', method <> 'none', method, run, instruction"
)

_BY_MODEL = (
    "As Table 1 of Gupta et al. (2023), over the settings, each with its mean over seeds, for these draws of "
    "demonstrations. In brackets: 95 % intervals over resamples of the test rows; that of RB@10 leans low. RB@10 says "
    "nothing where no setting is better than one label, or rows are too few."
)
_BY_MODEL_COLUMNS = """
run|Run|name; task|Data|name; n_parameters|Parameters|count; predict|Prediction|way; method|Method|method;
instruction|With instruction|yes; rb_at_10|RB@10|rate; mean_f1|Mean weighted F1|rate; constant_f1|One label|rate;
sd_f1|Standard deviation|rate; is_any_setting_above_constant|A setting is better than one label|shown;
has_enough_rows|Enough rows for RB@10|yes; n_demos|Demonstrations|count; n_settings|Settings|count; n_seeds|Seeds|count;
n_test_rows|Test rows|count"""

_SIZE = (
    "The larger model minus the smaller, which is the one before it in size, on the same data. In brackets: 95 % "
    "intervals over resamples of the test rows, behind these draws of demonstrations. They are no test: "
    "whether another "
    "draw would show the same is tested under Every difference. Tails: the most skewed settings."
)
_SIZE_COLUMNS = """
run|From|name; larger_run|To|name; task|Data|name; predict|Prediction|way; method|Method|method;
instruction|With instruction|yes; rb_at_10|RB@10|change; mean_f1|Mean weighted F1|change;
sd_f1|Standard deviation|change; tails_f1|F1 at the tails|change; middle_f1|F1 in the middle|change;
is_above_constant|Settings of both are better than one label|shown; has_enough_rows|Enough rows for RB@10|yes;
n_shared_rows|Shared rows|count"""

_SETTING = (
    "As Table 2 of Gupta et al. (2023): means over seeds; in brackets 95 % intervals over test rows. Inside: within 10 "
    "points of the best setting of the run."
)
_SETTING_COLUMNS = """
setting|Setting; run|Run|name; task|Data|name; predict|Prediction|way; method|Method|method;
instruction|With instruction|yes; weighted_f1|Weighted F1|rate; is_marked|Inside|yes"""

_SEEN = (
    "As Figures 2 and 3 of Gupta et al. (2023). Shaded or bars: 95 % intervals over test rows. Dashed: "
    "always giving one "
    "label. In a triangle, a mark near a corner has more demonstrations of that label; a red ring: inside the boundary."
)
