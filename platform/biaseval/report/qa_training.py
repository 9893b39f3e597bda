"""The sections of a QA-bias page on the readers that the run trained, standard and debiased (P3)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from biaseval.report.blocks import Ask, Definitions, Figures, Fold, Row, Section, Table
from biaseval.report.charts import COLORS, Chart, Look, dot_chart, line_chart, panels_chart, scatter_chart

METHODS: Mapping[str, tuple[str, str]] = {
    "standard": ("standard",
        "Trained on the questions as they are; the reader that the others are compared with."),
    "resample": ("RESAM",
        "Questions of the smaller segment are repeated until both segments are equally large (Mikula et al. 2024)."),
    "learned_mixin": ("LMIX",
        "LearnedMixin+H: trained together with a bias model whose scores are weighted by a learned factor, with a "
        "penalty on the entropy of the weighted scores; the reader answers alone (Clark et al. 2019)."),
    "confidence_regularization": ("CREG",
        "Confidence regularisation: learns the probabilities of a standard reader, flattened the more the likelier the "
        "bias model finds the label (Utama et al. 2020)."),
    "product_of_experts": ("PoE",
        "Product of experts: trained on the product of its probabilities and those of a bias model; the reader answers "
        "alone (He et al. 2019, Clark et al. 2019). Not in Mikula et al."),
    "bias_model": ("bias models",
        "Trained on the biased segment alone, and kept at the step where it is better there than elsewhere by most; it "
        "guides other methods and is not measured itself (Mikula et al. 2024)."),
}  # fmt: skip
"""Training methods by their SQL names: the page's name and a description, in the order of figures."""

_N_LEAST = 3
"""The fewest readers of a scatter plot, unless all have the same place."""

_N_KEPT = 6
"""The most kept steps that a title names."""

INSIDE = "semi join (from qa_examples where role = 'in_distribution') as inside using (dataset)"


def training_charts(ask: Ask) -> list[Chart]:
    """Return the charts of trained readers: bias by method, bias change against F1 change, loss and F1 by step."""
    readers = ask("from trained_models order by number")
    if not readers:
        return []
    blocks = list(dict.fromkeys((row["base"], row["data"]) for row in readers))
    debiasing = ask(f"""
select
    qa_debiasing.*, lower_exact_match, higher_exact_match, is_supported,
    method = 'standard' or is_addressed as is_asked, n_readers = 1 as is_lone
from qa_debiasing {INSIDE} cross join qa_settings
inner join (select model, number, count(*) over (partition by base, data, method) as n_readers from trained_models)
    using (model)
left join qa_bias_by_heuristic using (model, dataset, heuristic)
left join qa_bias_tests using (model, dataset, heuristic)
order by number, list_position(heuristics, heuristic)""")
    given = ask(f"""
select biases.*, is_people
from qa_bias_by_heuristic as biases
inner join qa_models using (model) {INSIDE} cross join qa_settings
where not is_trained and bias_significance is not null
order by number, list_position(heuristics, heuristic)""")
    charts: list[Chart] = []
    for dataset in dict.fromkeys(row["dataset"] for row in (*debiasing, *given)):
        own = [row for row in given if row["dataset"] == dataset]
        people = [_bias(row["model"], row) for row in own if row["is_people"]]
        for number, block in enumerate(blocks):
            seen = [
                row
                for row in debiasing
                if (row["base"], row["data"], row["dataset"]) == (*block, dataset)
                and row["bias_significance"] is not None
                and (row["is_asked"] or row["is_lone"])
            ]
            rows = [_bias(METHODS[row["method"]][0], row) for row in seen if row["is_asked"]]
            name = _name(blocks, block)
            charts += _biases(f"debiasing_{number}_{_slug(name, dataset)}", f"{name} on {dataset}", [*rows, *people])
            named = [(METHODS[row["method"]][0], row) for row in seen if row["lower_exact_match"] is not None]
            if len({row["seed"] for _, row in named}) == 1:
                groups = f"debiasing_groups_{number}_{_slug(name, dataset)}"
                charts.append(groups_chart(groups, f"{name} on {dataset}", named))
        if others := [_bias(row["model"], row) for row in own if not row["is_people"]]:
            charts += _biases(
                f"debiasing_given_{_slug(dataset)}", f"models of the spec on {dataset}", [*others, *people]
            )
        charts += _scatter(dataset, [row for row in debiasing if row["dataset"] == dataset], ask)
    curves = ask("from qa_training_curves order by role = 'out_of_distribution', dataset, step")
    beside = ask(_BY_SHORTCUT)
    for number, block in enumerate(blocks):
        name = f"training_{number}_{_slug(_name(blocks, block))}"
        charts += _courses(name, block, curves, readers)
        charts += _over_standard(name, [row for row in beside if (row["base"], row["data"]) == block])
    return charts


def _name(blocks: Sequence[tuple[str, str]], block: tuple[str, str]) -> str:
    return "@".join(block) if len({data for _, data in blocks}) > 1 else block[0]


def _slug(*names: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(names))


def groups_chart(name: str, of_what: str, rows: Sequence[tuple[str, Row]]) -> Chart:
    """Return the exact match of both groups of questions of each shortcut, for rows with the name of their series."""
    dots = []
    for series, row in rows:
        place = {"y": row["heuristic"], "series": series, "is_thick": bool(row["is_supported"])}
        ends = [row["lower_exact_match"], row["higher_exact_match"]]
        if None in ends:
            dots.append({**place, "x": None, "note": row.get("finding"), "is_filled": True})
            continue
        low, high = sorted(ends)
        dots += [{**place, "x": high, "start": low, "is_filled": True}, {**place, "x": low, "is_filled": False}]
    title = f"Exact match of two groups, {of_what} (closer is less bias)"
    return dot_chart(name, dots, title=title, axis="exact match (%)", domain=(None, None))


def with_hollow(caption: str, charts: Sequence[Chart]) -> str:
    """Return a caption of charts of debiased readers; it says what hollow marks mean if there are any."""
    dots = [dot for chart in charts for dot in chart.spec["data"]["values"]]
    is_broken = any(dot.get("is_broken") for dot in dots)
    if any(chart.name.startswith("debiasing_groups_") for chart in charts):
        caption = f"{caption} If a method has one debiased reader, the chart shows that reader at every shortcut."
    return f"{caption} Hollow: nearly broken, so that a low significance is no success." if is_broken else caption


def _bias(series: str, row: Row) -> Row:
    worse = "" if row["worse_high"] is None else f" (worse group at most {row['worse_high']:.1f} %)"
    dot = {"y": row["heuristic"], "series": series, "x": row["bias_significance"], "start": 0, "what": worse}
    is_broken = bool(row.get("is_nearly_broken"))
    return dot | {"is_filled": not is_broken, "is_broken": is_broken, "is_thick": False}


def _biases(name: str, of_what: str, rows: Sequence[Row]) -> Iterator[Chart]:
    if rows:
        order = {heuristic: place for place, heuristic in enumerate(dict.fromkeys(row["y"] for row in rows))}
        dots = sorted(rows, key=lambda row: order[row["y"]])
        ordered = [dot for one in dict.fromkeys(row["series"] for row in rows) for dot in dots if dot["series"] == one]
        title = f"Bias significance, {of_what} (lower is less bias)"
        yield dot_chart(name, ordered, title=title, axis="points of exact match")


def _scatter(dataset: str, rows: Sequence[Row], ask: Ask) -> Iterator[Chart]:
    """Yield plots of the change of the addressed bias against the change of F1 out of distribution, per reader."""
    outside = {row["model"]: row for row in ask("from qa_out_of_distribution_by_model")}
    dots = []
    for row in rows:
        other = outside.get(row["model"])
        if not row["is_addressed"] or other is None or None in (row["significance_change"], other["f1_change"]):
            continue
        shown = METHODS[row["method"]][0]
        dot = {"series": shown, "what": f"{shown} on {row['bias']}", "is_filled": not row["is_nearly_broken"]}
        dot["is_broken"] = not dot["is_filled"]
        for end in ("", "_low", "_high"):
            change = other[f"f1_change{end}"]
            dot |= {f"x{end}": row[f"significance_change{end}"], f"y{end}": None if change is None else 100 * change}
        dots.append(dot)
    if len(dots) >= _N_LEAST and len({(dot["x"], dot["y"]) for dot in dots}) > 1:
        title = "Bias and F1 elsewhere (upper left is best)"
        axes = ("change of bias significance (points)", "change of F1 out of distribution (points)")
        yield scatter_chart(f"debiasing_elsewhere_{_slug(dataset)}", dots, title=title, axes=axes)


def _courses(name: str, block: tuple[str, str], curves: Sequence[Row], readers: Sequence[Row]) -> Iterator[Chart]:
    """Yield loss and F1 by step, with a chart for each method; only bias models have another loss scale."""
    own = [row for row in curves if (row["base"], row["data"]) == block]
    losses = [row["loss_high"] for row in own if row["method"] != "bias_model"]
    for metric, scale, axis in (("loss", 1, "loss (nats)"), ("f1", 100, "F1 (%)")):
        for method, (shown, _) in METHODS.items():
            rows = [row for row in own if row["method"] == method]
            if not rows:
                continue
            top = (
                100
                if metric == "f1"
                else 1.05 * max(losses if method != "bias_model" else [row["loss_high"] for row in rows])
            )
            kept = sorted(
                row["best_step"] + 1
                for row in readers
                if (row["base"], row["data"], row["method"]) == (*block, method) and row["best_step"] is not None
            )
            more = f" and {len(kept) - _N_KEPT} more" if len(kept) > _N_KEPT else ""
            yield line_chart(
                f"{name}_{metric}_{method}",
                [
                    {"x": row["step"] + 1, "y": scale * row[metric], "series": row["dataset"]}
                    | {end: scale * row[f"{metric}_{end}"] for end in ("low", "high")}
                    for row in rows
                ],
                title=f"{shown}: {'loss (lower is better)' if metric == 'loss' else 'F1 (higher is better)'}",
                subtitle=f"weights kept at step {', '.join(f'{step:,}' for step in kept[:_N_KEPT])}{more}"
                if kept
                else "",
                axes=("optimizer step", axis),
                domain=(0, top),
                is_ordinal=False,
            )


def _over_standard(name: str, rows: Sequence[Row]) -> Iterator[Chart]:
    """Yield F1 and loss of each method's readers over those of the standard reader, a panel per shortcut (P3)."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    standard = [row for row in rows if row["method"] == "standard"]
    for method in (method for method in METHODS if method != "standard"):
        own = [row for row in rows if row["method"] == method]
        shown = {"standard": METHODS["standard"][0], method: METHODS[method][0]}
        looks = {
            f"{called}, {dataset}": Look(COLORS[at % len(COLORS)], at, int(one == "standard"))
            for at, dataset in enumerate(datasets)
            for one, called in shown.items()
        }
        biases = list(dict.fromkeys(row["bias"] for row in own))
        for metric, axis in (("f1", "F1 (%, higher is better)"), ("loss", "loss (nats, lower is better)")):
            if panels := [
                line_chart(
                    metric,
                    [
                        {"x": row["step"] + 1, "y": row[metric], "low": None, "high": None}
                        | {"series": f"{shown[row['method']]}, {row['dataset']}"}
                        for row in (*standard, *own)
                        if row["bias"] in (None, bias)
                    ],
                    title=bias,
                    axes=("optimizer step", axis),
                    domain=(0, 100 if metric == "f1" else None),
                    is_ordinal=False,
                    looks=looks,
                )
                for bias in biases
            ]:
                title = f"{shown[method]} and standard readers by shortcut"
                yield panels_chart(f"{name}_by_shortcut_{method}_{metric}", panels, title=title, columns=3)


_BY_SHORTCUT = """
with readers as (
    select *, count(*) over (partition by base, data, method, bias) as n_readers
    from trained_models
    where problem is null and method <> 'bias_model'
)

select
    base, data, method, bias, dataset, step,
    100 * avg(f1 order by number) as f1,
    avg(loss order by number) as loss
from evaluations
inner join readers using (model)
where isfinite(loss)
group by all
having count(*) = any_value(n_readers)
order by any_value(number), dataset, step"""
"""Means over seeds, at steps after which every seed's reader was asked."""


def training_sections(ask: Ask, charts: Sequence[Chart], first: Chart | None) -> list[Section]:
    """Return the sections on trained readers; empty for a run without them.

    Args:
        ask: answers queries over the run's marts.
        charts: the charts of the page.
        first: the chart of the first section.
    """
    methods = {row["method"] for row in ask("select distinct method from trained_models")}
    if not methods:
        return []
    drawn = [chart for chart in charts if chart.name.startswith("debiasing_") and chart is not first]
    elsewhere = [chart for chart in drawn if chart.name.startswith("debiasing_elsewhere_")]
    groups = [chart for chart in drawn if chart.name.startswith("debiasing_groups_")]
    inside = [chart for chart in drawn if chart not in (*elsewhere, *groups)]
    return [
        Section(
            "trained", "Trained readers", _METHODS,
            Fold("Methods", Definitions([one for method, one in METHODS.items() if method in methods])),
            Table(
                "Trainings that failed; these readers have no results.",
                "from trained_models where problem is not null order by number",
                "model|Reader|text; problem|Problem|quote",
            ),
        ),
        Section(
            "debiasing", "Prediction bias of the trained readers",
            Figures(inside, with_hollow(_DRAWN, inside)), Figures(groups, with_hollow(GROUPS, groups)),
            Table(_READERS_CAPTION, _READERS.format("is_addressed"), _READERS_COLUMNS),
            Fold(
                "Does a debiased reader lean more on other shortcuts?",
                Table(_READERS_CAPTION, _READERS.format("not is_addressed"), _READERS_COLUMNS),
            ),
            Fold("Means over shortcuts", _MEANS), link="Their bias",
        ),
        Section(
            "debiased-elsewhere", "Trained readers by data set",
            Figures(elsewhere, with_hollow("Thin lines: 95 % intervals.", elsewhere)),
            Fold("Every reader on every data set", _SETS),
            Fold("Do readers that lean less on a shortcut do better elsewhere?", _CORRELATED), link="Elsewhere",
        ),
        Section("training", "Training", *_training(charts)),
    ]  # fmt: skip


def _training(charts: Sequence[Chart]) -> list[Any]:
    courses = [chart for chart in charts if chart.name.startswith("training_")]
    return [
        Fold("Loss by step", Figures([chart for chart in courses if "_loss_" in chart.name], _COURSES)),
        Fold("F1 by step", Figures([chart for chart in courses if "_f1_" in chart.name], _COURSES)),
        Fold(
            "Debiased and standard readers by shortcut",
            Figures([chart for chart in courses if "_by_shortcut_" in chart.name], _BESIDE),
        ),
        _GUIDES,
        Fold("Segments of the training questions", _PARTS),
        Fold("Windows of the training questions", _WINDOWS),
        Fold("Steps and time of each reader", _COSTS),
    ]


_BESIDE = (
    "As Figures 5 and 6 of Mikula et al. (2024): a panel per shortcut that a reader addresses; dashed: the standard "
    "reader. Means over seeds, at steps after which every seed's reader was asked."
)

_COURSES = (
    "Mean over a method's readers; shaded: lowest and highest of them. Loss is that of start and end of the answer, "
    "whatever the method's own loss is."
)
_WINDOWS = Table(
    "Questions are cut into windows. Partly: windows that lack some of the answer. Lost: questions of which no window "
    "has all of it.",
    "from qa_training_windows order by base, dataset",
    """
base; dataset; n_questions; n_windows; n_without|Partly|count; n_unanswerable|Lost|count""",
)
GROUPS = (
    "Exact match of the two groups of questions that the threshold separates. Filled: the group that is answered "
    "better. Hollow: the other one. Thick line: the difference is significant."
)
_DRAWN = "Standard readers on every shortcut, debiased readers on the one that they address."

_METHODS = Table(
    "Debiased readers against the standard reader of the same seed: in how many (of each data set in distribution) the "
    "bias that they address falls or rises significantly, and F1 out of distribution. Nearly broken readers are "
    "counted alone. Seconds and hours: of all trainings of the method, failed ones and evaluations on the way "
    "included.",
    f"""
with changed as (
    select
        model, count_if(verdict = 'lower' and is_whole) as n_lower, count_if(verdict = 'higher'
        and is_whole) as n_higher,
        count_if(verdict in ('unclear', 'negligible') and is_whole) as n_unclear, count_if(not is_whole) as n_broken
    from (select *, not coalesce(is_nearly_broken, false) as is_whole from qa_debiasing) {INSIDE}
    where is_addressed
    group by model
)

select
    shown_training(readers.method) as method, readers.base, readers.data, count(*) as n_readers,
    count(problem) as n_failed, sum(n_lower)::bigint as n_lower, sum(n_higher)::bigint as n_higher,
    sum(n_unclear)::bigint as n_unclear, sum(n_broken)::bigint as n_broken,
    if(count(f1_verdict) = 0, null, count_if(f1_verdict = 'lower')) as n_f1_lower,
    if(count(f1_verdict) = 0, null, count_if(f1_verdict = 'higher')) as n_f1_higher,
    sum(seconds) as seconds, sum(evaluation_seconds) as evaluation_seconds, sum(accelerator_hours) as accelerator_hours
from trained_models as readers
left join changed using (model)
left join qa_out_of_distribution_by_model using (model)
left join (select model, seconds, evaluation_seconds, accelerator_hours from qa_training_costs) as costs using (model)
group by readers.method, readers.base, readers.data
order by min(number)""",
    """
method|Method; base; data|Training data; n_readers; n_failed; n_lower|Falls|count||Bias; n_higher|Rises|count||Bias;
n_unclear|No change shown|count||Bias; n_broken|Nearly broken|count||Bias; n_f1_lower|Falls|count||F1 elsewhere;
n_f1_higher|Rises|count||F1 elsewhere; seconds|Steps (s)|seconds; evaluation_seconds|Evaluations (s)|seconds;
accelerator_hours|Accelerator-hours|rate""",
)

_READERS_CAPTION = (
    "Bias significance in points (0 to 100), against the standard reader of the same seed on the same questions; 95 % "
    "intervals. p and verdict: for all changes of this page together. Gap: exact match of the group that the standard "
    "reader answers better minus that of the other. Nearly broken: the worse group's exact match is below two thirds "
    "of the standard reader's. A threshold that was searched on a standard reader's answers favours lower."
)
_READERS = f"""
select
    shown_training(method) as method, bias, base, data, seed, dataset, heuristic, threshold, searched_on,
    bias_significance,
    standard_significance, significance_change, significance_change_low, significance_change_high, p_adjusted,
    if(is_nearly_broken, 'nearly broken', verdict) as verdict, reason, worse_high, standard_worse_high, gap,
    standard_gap,
    gap_change, gap_change_low, gap_change_high, exact_match, standard_exact_match, n_rows, n_articles
from (select debiasing.*, trained_models.number from qa_debiasing as debiasing inner join trained_models using (model))
{INSIDE}
where method <> 'standard' and {{}}
order by number, dataset, heuristic"""
_READERS_COLUMNS = """
method|Method; bias|Addressed; base; data; seed; dataset; heuristic; threshold; searched_on;
bias_significance|Reader|points||Significance; standard_significance|Standard|points||Significance;
significance_change|Change|points|verdict|Significance; p_adjusted|p|p||Significance; reason|Not tested;
worse_high|Reader|points||Worse group, at most; standard_worse_high|Standard|points||Worse group, at most;
gap|Reader|points||Gap; standard_gap|Standard|points||Gap; gap_change|Change|points||Gap;
exact_match|Reader|points||exact match; standard_exact_match|Standard|points||exact match; n_rows|Questions|count;
n_articles"""

_MEANS = Table(
    "Over the shortcuts that a method's readers address, each measured on the reader that addresses it, in points; no "
    "headline, as shortcuts without bias shrink it. Standard: over the same shortcuts.",
    """
select * replace (shown_training(method) as method)
from qa_debiasing_by_method
order by base, data, dataset, seed, method""",
    """
method|Method; base; data; seed; dataset; bias_significance|Reader|points||Significance;
standard_significance|Standard|points||Significance; worse_high|Reader|points||Worse group, at most;
standard_worse_high|Standard|points||Worse group, at most; n_heuristics|Shortcuts|count; n_nearly_broken""",
)

_SETS = Table(
    "F1 and exact match in percent, and their change in points against the standard reader of the same seed on the "
    "same questions; 95 % intervals, and verdicts for all changes of this page together. Mean: over the data sets out "
    "of distribution.",
    """
select
    shown_training(method) as method, bias, base, data, seed, dataset, role = 'in_distribution' as is_inside,
    changes.f1, 100 * f1_change as f1_change, 100 * f1_change_low as f1_change_low,
    100 * f1_change_high as f1_change_high,
    f1_verdict, f1_p_adjusted, changes.exact_match, 100 * exact_match_change as exact_match_change,
    exact_match_verdict, n_rows
from (
    select * from qa_out_of_distribution
    union all by name
    select *, format('mean of {}', n_datasets) as dataset, 'out_of_distribution' as role
    from qa_out_of_distribution_by_model
    where n_datasets > 1
) as changes
inner join (select model, number from trained_models) as readers using (model)
order by number, is_inside desc, dataset like 'mean of%', dataset""",
    """
method|Method; bias|Addressed; base; data; seed; dataset; is_inside; f1; f1_change|Change of F1|points|f1_verdict;
f1_p_adjusted|p|p; exact_match; exact_match_change|Change of exact match|points|exact_match_verdict;
n_rows|Questions|count""",
)

_CORRELATED = Table(
    "Correlation of the change of the addressed bias with the change of F1 elsewhere, over debiased readers, -1 to 1. "
    "Below 0: the further the bias fell, the more F1 rose. Readers of one study are not independent, as the 95 % "
    "intervals take them, so it tests nothing; nearly broken readers may decide it.",
    """
select * replace (if(method = 'all', 'all methods', shown_training(method)) as method)
from qa_debiasing_correlation
order by dataset, method <> 'all methods', method, other_dataset""",
    """
method|Method; dataset|Bias on; other_dataset|F1 on; pearson|Pearson|rate; spearman|Spearman|rate;
n_models|Readers|count""",
)

_GUIDES = Table(
    "Bias models on validation questions at the step that was kept. One that knows nothing but its bias is right in "
    "the biased segment and wrong elsewhere (Mikula et al.: 18 to 59 % and 4 to 19 % exact).",
    """
select *, best_step + 1 as step
from qa_bias_models
order by base, data, bias, dataset""",
    """
model|Bias model; dataset|Validation; step|Step kept|count; f1_biased|Biased|percent||F1;
f1_other|Others|percent||F1; f1_difference|Difference|percent||F1; exact_match_biased|Biased|percent||exact match;
exact_match_other|Others|percent||exact match; n_biased|Biased|count||Questions; n_other|Others|count||Questions""",
)

_PARTS = Table(
    "The segments that methods and bias models work with. At most: upper bounds of the standard reader's exact match "
    "on validation, which decide which side is biased unless the threshold is published; significance: of its bias "
    "there. Points.",
    "from qa_segments order by base, data, bias",
    """
bias|Shortcut; base; data|Training data; threshold; source|Threshold; biased_segment|Biased side; judged_by;
lower_high|Up to T, at most|points; higher_high|Above T, at most|points; bias_significance|Significance|points;
n_lower|Up to T|count||Questions; n_higher|Above T|count||Questions; n_undefined|Undefined|count||Questions;
n_biased|Biased|count||Questions""",
)

_COSTS = Table(
    "Optimizer steps (the one kept is counted from 1) and evaluations on the way. Accelerator-hours are of both, for "
    "every worker, without loading and answers.",
    """
select readers.*, best_step + 1 as step, costs.* exclude (model)
from trained_models as readers
left join (
    select model, seconds, n_evaluations, evaluation_seconds, accelerator_hours
    from qa_training_costs
) as costs using (model)
order by number""",
    """
model|Reader; steps|Steps|count; step|Step kept|count; n_windows; seconds|Steps (s)|seconds; n_evaluations;
evaluation_seconds|Evaluations (s)|seconds; accelerator_hours|Accelerator-hours|rate; n_workers; device;
problem|Failed|quote""",
)
