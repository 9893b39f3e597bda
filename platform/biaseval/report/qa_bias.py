"""The page of a QA-bias run, as a list of blocks over its marts: it shows which shortcuts each model uses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from biaseval.environment import raw_spec, read_environment
from biaseval.qa_bias.heuristics.built_in import heuristic_of
from biaseval.report.blocks import Ask, Definitions, Figures, Fold, Layout, Row, Section, Sentences, Table, Text
from biaseval.report.charts import SOFT, Chart, dot_chart, line_chart, panels_chart
from biaseval.report.qa_training import GROUPS, INSIDE, groups_chart, training_charts, training_sections, with_hollow
from biaseval.report.settings import first_blocks, notes_block, settings_blocks
from biaseval.store import Run

METRICS = {"exact_match": "exact match", "f1": "F1"}

_N_NAMED = 3
"""The most models that a title names."""


_MEASURED = """
select
    biases.*, role, place, is_supported, null_high, p_adjusted, smallest_detectable,
    case
        when is_supported then 'significant'
        when biases.bias_significance is null then biases.status
        when is_supported is null then 'not tested'
        when biases.bias_significance > 0 then 'not significant'
        when has_few_right(exact_match) then 'too few right answers'
        else 'none found'
    end as finding,
    -- At a threshold that was searched, an interval holds only of a bias that is significant.
    if(searched_on is null or is_supported, biases.difference_low, null) as gap_low,
    if(searched_on is null or is_supported, biases.difference_high, null) as gap_high,
    biases.difference as gap
from qa_bias_by_heuristic as biases
inner join qa_bias_tests using (model, dataset, heuristic)
inner join qa_by_dataset using (model, dataset)
inner join qa_shown_models using (model)
cross join qa_settings
order by role, dataset, place, list_position(heuristics, heuristic)"""


_N_IN_COLUMN = 24
"""The most dots of one column."""


def qa_bias_charts(ask: Ask) -> list[Chart]:
    """Return the charts of prediction bias, of exact match and F1 by data set and shortcut value, and of training."""
    rows = ask(_MEASURED)
    inside = [row for row in rows if row["role"] == "in_distribution"]
    curves = ask(f"from qa_curves {INSIDE} inner join qa_shown_models using (model) order by place, bin")
    averages = ask("from qa_by_model inner join qa_shown_models using (model) order by place")
    charts = []
    for dataset in dict.fromkeys(row["dataset"] for row in inside):
        own, means = ([row for row in each if row["dataset"] == dataset] for each in (inside, averages))
        groups = groups_chart(f"segments_{dataset}", dataset, [(row["model"], row) for row in own])
        charts += [groups, *(_significances(dataset, metric, own, means) for metric in METRICS)]
    charts += _by_dataset(ask)
    for dataset, heuristic in dict.fromkeys((row["dataset"], row["heuristic"]) for row in inside):
        of_curve = [row for row in curves if (row["dataset"], row["heuristic"]) == (dataset, heuristic)]
        given = [row for row in inside if (row["dataset"], row["heuristic"]) == (dataset, heuristic)]
        charts += [_curve(dataset, heuristic, metric, of_curve, given) for metric in METRICS if of_curve]
    return [*charts, *training_charts(ask)]


def _significances(dataset: str, metric: str, rows: Sequence[Row], averages: Sequence[Row]) -> Chart:
    """Return the bias significance of each shortcut, and the average; only exact match has a test.

    Many shortcuts and models stand in two columns, as Figures 2 and 3 of P3. The average is over all shortcuts.
    """
    column, is_tested = ("bias_significance", True) if metric == "exact_match" else ("bias_significance_f1", False)
    dots = [
        {"y": _with_threshold(row), "series": row["model"], "x": row[column], "start": 0, "note": row["finding"]}
        | {"is_filled": bool(row["is_supported"]) or not is_tested, "is_thick": bool(row["is_supported"])}
        for row in rows
    ]
    measured = "n_measurable" if is_tested else "n_measurable_f1"
    for row in averages if len({dot["y"] for dot in dots}) > 1 else ():
        is_whole = row[measured] == row["n_heuristics"]
        dot = {"y": "average", "series": row["model"], "x": row[column] if is_whole else None, "start": 0}
        note = f"{row[measured]} of {row['n_heuristics']} measured"
        dots.append(dot | {"note": note, "is_filled": not is_tested or bool(row["is_above_null"]), "is_thick": False})
    name, axis = f"significance_{dataset}_{metric}", f"points of {METRICS[metric]}"
    title = f"Bias significance, {dataset} (lower is less bias)"
    shortcuts = list(dict.fromkeys(dot["y"] for dot in dots))
    if len(dots) <= _N_IN_COLUMN:
        return dot_chart(name, dots, title=title, axis=axis)
    halves = [shortcuts[: (len(shortcuts) + 1) // 2], shortcuts[(len(shortcuts) + 1) // 2 :]]
    top = max((dot["x"] for dot in dots if dot["x"] is not None), default=1)
    columns = [
        dot_chart(name, [dot for dot in dots if dot["y"] in half], title="", axis=axis, domain=(0, top))
        for half in halves
    ]
    return panels_chart(name, columns, title=title, columns=2, size=(220, None))


def _with_threshold(row: Row) -> str:
    threshold = row["threshold"]
    return str(row["heuristic"]) if threshold is None else f"{row['heuristic']} (T = {threshold:g})"


def _by_dataset(ask: Ask) -> Iterator[Chart]:
    rows = ask("from qa_by_dataset inner join qa_shown_models using (model) order by role, dataset, place")
    for metric in ("f1", "exact_match"):
        dots = [
            {"y": row["dataset"], "series": row["model"], "x": 100 * row[metric], "is_filled": True}
            | {end: None if row[f"{metric}_{end}"] is None else 100 * row[f"{metric}_{end}"] for end in ("low", "high")}
            for row in rows
        ]
        shown = METRICS[metric]
        title, axis = f"{shown[0].upper()}{shown[1:]} by data set (higher is better)", f"{shown} (%)"
        yield dot_chart(f"out_of_distribution_{metric}", dots, title=title, axis=axis, domain=(0, 100))


def _curve(dataset: str, heuristic: str, metric: str, rows: Sequence[Row], given: Sequence[Row]) -> Chart:
    """Return a metric by the values of a shortcut, with a dashed line at each threshold."""
    shown = METRICS[metric]
    points = [
        {"x": round(row["value_mean"], 2), "y": 100 * row[metric], "series": row["model"]}
        | {end: None if row[f"{metric}_{end}"] is None else 100 * row[f"{metric}_{end}"] for end in ("low", "high")}
        for row in rows
    ]
    thresholds = sorted({row["threshold"] for row in given if row["threshold"] is not None})
    chart = line_chart(
        f"curve_{dataset}_{heuristic.replace(':', '-')}_{metric}",
        points,
        title=f"{shown[0].upper()}{shown[1:]} by {heuristic.rpartition(':')[2]}, {dataset}",
        subtitle="".join(f"T = {value:g}  " for value in thresholds).strip(),
        axes=(heuristic.rpartition(":")[2], f"{shown} (%)"),
        domain=(0, 100),
        is_ordinal=False,
    )
    rule = {
        "data": {"values": [{"threshold": value} for value in thresholds]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": SOFT},
        "encoding": {"x": {"field": "threshold", "type": "quantitative"}},
    }
    return replace(chart, spec={**chart.spec, "layer": [*chart.spec["layer"], *([rule] if thresholds else [])]})


def qa_bias_notes(run: Run) -> list[str]:
    """Return the cautions from files of the run: notes of its plan, earlier thresholds, sources of text."""
    spec = raw_spec(run)
    thresholds, searched = spec["thresholds"], set[str]()
    fixed = (
        [name for name, value in thresholds.items() if not isinstance(value, list)]
        if isinstance(thresholds, dict)
        else []
    )
    for file in run.files("specs"):
        before = run.read_yaml(file)
        given = before.get("thresholds", "search")
        if given != "mikula2024":
            own = given if isinstance(given, dict) else {}
            searched |= {
                name for name in before.get("heuristics", ()) if name not in own or isinstance(own[name], list)
            }
    names = [name for name in spec["heuristics"] if name in searched.intersection(fixed)]
    late = [
        f"The spec gives the threshold of {', '.join(names)}, which an earlier spec of this run searched on the same "
        "answers. If that search suggested it, significance, p and interval are too good."
    ]
    sources = read_environment(run).get("text", {}).items()
    near = [
        f"{what[:1].upper()}{what[1:]} are found by {source['name']}, which only approximates the published way."
        for what, source in sources
        if source.get("is_approximate")
    ]
    return [*(late if names else []), *near, *notes_block(run)]


def qa_bias_layout(run: Run, ask: Ask, charts: Sequence[Chart]) -> Layout:
    """Return the page of a finished QA-bias run; ``charts`` are those of `qa_bias_charts`."""
    spec, environment = raw_spec(run), read_environment(run)
    sizes = ask("""
select role, dataset, count(*) as n
from qa_examples
semi join qa_by_dataset using (dataset)
group by all
order by all""")
    models = [row["model"] for row in ask("from qa_shown_models order by place")]
    firsts = [_named(charts, begins)[:1] for begins in ("debiasing_elsewhere_", "debiasing_groups_0_", "segments_")]
    shown = next((found for found in firsts if found), [])
    seen = Figures(shown, with_hollow(_ELSEWHERE if firsts[0] else GROUPS, shown))
    first = shown[0] if shown else None
    named = ", ".join(models) if len(models) <= _N_NAMED else f"{len(models)} models"
    return Layout(
        f"Prediction bias of {named}", _about(spec, environment, named, sizes),
        [
            Section(
                "verdict", f"Which shortcuts {'do the models' if len(models) > 1 else 'does the model'} lean on?",
                *first_blocks("qa_bias", seen, _MODELS, qa_bias_notes(run)),
                Definitions(list(_heuristics(spec, environment))), link="Verdict",
            ),
            *training_sections(ask, charts, first),
            Section("bias", "Prediction bias", *_bias_blocks(charts, first)),
            Section(
                "datasets", "Exact match and F1 by data set",
                Fold("Every model", Figures(_named(charts, "out_of_distribution_"), "Bars: 95 % intervals."), _SETS),
                link="Data sets",
            ),
            Section(
                "heuristics", "Each shortcut", Figures(_named(charts, "curve_", "_exact_match"), _CURVES),
                Fold("The same in F1", Figures(_named(charts, "curve_", "_f1"), _CURVES)),
                Fold("Where each threshold comes from", _THRESHOLDS), link="Shortcuts",
            ),
            Section("examples", "Examples", _EXAMPLES, Sentences(_NO_EXAMPLES)),
            Section(
                "metrics", "What the metrics mean",
                Fold("Metrics and tests", Definitions(_terms(spec)), Text(_PAPER)), link="Metrics",
            ),
            Section("settings", "Settings", *settings_blocks(run)),
        ],
    )  # fmt: skip


def _about(
    spec: Mapping[str, Any], environment: Mapping[str, Any], named: str, sizes: Sequence[Row]
) -> list[str | None]:
    sets = {
        role: ", ".join(f"{row['dataset']} ({row['n']:,} questions)" for row in sizes if row["role"] == role)
        for role in ("in_distribution", "out_of_distribution")
    }
    outside = sets["out_of_distribution"]
    return [
        named,
        sets["in_distribution"],
        f"out of distribution: {outside}" if outside else "",
        ", ".join(spec["heuristics"]),
        f"variant {spec['variant']}",
        environment.get("date"),
    ]


def _heuristics(spec: Mapping[str, Any], environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each heuristic with its description; for the user's heuristics the first line of the docstring, if any."""
    for name in spec["heuristics"]:
        recorded = environment.get("text", {}).get(name, {})
        text = recorded.get("meaning", heuristic_of(name).meaning).rstrip(".")
        yield name, f"{text[0].upper()}{text[1:]}."


def _named(charts: Sequence[Chart], begins: str, ends: str = "") -> list[Chart]:
    return [chart for chart in charts if chart.name.startswith(begins) and chart.name.endswith(ends)]


def _bias_blocks(charts: Sequence[Chart], first: Chart | None) -> list[Any]:
    shown = [chart for chart in _named(charts, "segments_") if chart is not first]
    significances = _named(charts, "significance_", "_exact_match")
    outside = _MEASURED.replace("\norder by role", "\nwhere role = 'out_of_distribution'\norder by role")
    inside = _MEASURED.replace("\norder by role", "\nwhere role = 'in_distribution'\norder by role")
    return [
        Table(_BIASES_CAPTION, inside, _BIASES_COLUMNS),
        Fold(
            "Charts",
            Figures([*shown, *significances], f"{GROUPS} Significance: filled, more than chance; hollow, not."),
        ),
        Fold("Out of distribution", Table(_BIASES_CAPTION, outside, _BIASES_COLUMNS)),
        Fold(
            "The same in F1",
            Figures(_named(charts, "significance_", "_f1"), "Significance in F1 is not tested."),
            Table(_F1_CAPTION, inside, _F1_COLUMNS),
        ),
        Fold("Models against each other", _PAIRS),
        Fold("Means over shortcuts", _MEANS),
    ]


def _terms(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    bootstrap = spec["bootstrap"]
    drawn = f"{bootstrap['trials']:,} samples of {bootstrap['sample']:,} questions"
    return [
        (term, meaning.format(drawn, "with" if bootstrap["replacement"] else "without")) for term, meaning in _TERMS
    ]


_TERMS = (
    ("Shortcut, threshold, groups", "A heuristic gives each question a number. Its threshold T splits the questions "
        "into those up to T and those above. Questions for which it is undefined belong to neither group."),
    ("Gap", "Exact match of the questions up to T minus that of the others, over all of them, in points."),
    ("Bias significance", "{} are drawn from each group {} replacement. It is the distance between the middle 95 % of "
        "the samples' exact match, in points, and 0 where they overlap. It is smaller than the gap."),
    ("Significant", "A search among thresholds finds some bias in any answers. So exact match is permuted within "
        "articles and the search repeated (Lausen and Schumacher 1992). p is the share of permutations that find as "
        "much, adjusted for all models and shortcuts of a data set (Holm 1979). A bias is significant where p is at "
        "most 0.05 and the interval of the gap excludes 0. Intervals take questions about the same article as "
        "dependent."),
    ("Models compared", "On the questions that both answered, at the same thresholds. Signs of whole articles are "
        "flipped, for all pairs, data sets, metrics and shortcuts together (Westfall and Young 1993)."),
    ("Exact match, F1", "SQuAD's: whether the answer equals a gold answer, and the overlap of its words with the "
        "nearest one, after lower-casing and without punctuation and articles."),
)  # fmt: skip

_PAPER = (
    "Lukáš Mikula, Michal Štefánik, Marek Petrovič and Petr Sojka. 2024. Think Twice: Measuring the Efficiency of "
    "Eliminating Prediction Shortcuts of Question Answering Models. EACL 2024."
)

_ELSEWHERE = "Each debiased reader on the bias that it addresses, against the standard one."
_CURVES = (
    "Over the values of the shortcut, in bins of 30 questions or more. Shaded: 95 % intervals. Dashed: the threshold T."
)

_MODELS = Table(
    "Each model, in percent with 95 % intervals. Significant: the shortcuts that it leans on, of those tested. Mean "
    "over the data sets out of distribution.",
    """
with found as (
    select
        model, dataset, listed(list(heuristic order by bias_significance desc,
        heuristic) filter (is_supported)) as found,
        count(is_supported) as n_tested
    from qa_bias_tests
    group by model, dataset
)

select
    own.model, own.dataset,
    case
        when own.is_constant then 'nearly always the same answer'
        when own.n_articles = 1 then 'cannot be tested: one article'
        when found is null and has_few_right(own.exact_match) then 'too few right answers to tell'
        else coalesce(found, if(n_tested > 0, 'none', null))
    end as found,
    n_tested, own.exact_match, own.exact_match_low, own.exact_match_high, own.f1, own.f1_low, own.f1_high,
    others.exact_match as outside, others.exact_match_low as outside_low, others.exact_match_high as outside_high
from qa_by_dataset as own
inner join qa_shown_models using (model)
left join found using (model, dataset)
left join qa_over_datasets as others on others.model = own.model and others.role = 'out_of_distribution'
where own.role = 'in_distribution'
order by place, own.dataset""",
    """
model; dataset; found|Significant; n_tested; exact_match; f1; outside|exact match|percent||Out of distribution""",
)

_BIASES_CAPTION = (
    "Each shortcut, in points (0 to 100). Up to T, above T: exact match of the groups. Gap: the first minus the "
    "second, with its 95 % interval where T was given or the bias is significant; a searched T makes other intervals "
    "too narrow. Chance: the significance that at most 5 % of permuted answers exceed. p: adjusted. Detectable: found "
    "in 4 of 5 runs."
)
_BIASES_COLUMNS = """
model; dataset; heuristic; finding; threshold; lower_exact_match|Up to T|points; higher_exact_match|Above T|points;
gap|Gap|points; bias_significance|Significance|points; null_high|Chance|points; p_adjusted;
smallest_detectable|Detectable|points; worse_high|Worse group, at most|points; n_lower|Up to T|count||Questions;
n_higher|Above T|count||Questions; n_unmeasured|Undefined|count||Questions"""
_F1_CAPTION = (
    "In points of F1. Whether a bias is significant is tested in exact match alone, in which thresholds are chosen; "
    "without a threshold, F1 has no value."
)
_F1_COLUMNS = """
model; dataset; heuristic; bias_significance_f1|Significance|points; lower_f1|Up to T|points;
higher_f1|Above T|points; difference_f1|Gap|points; worse_high_f1|Worse group, at most|points"""

_PAIRS = Table(
    "The second model minus the first, in points, on the questions that both answered; in brackets the bands that hold"
    " for all pairs, data sets, metrics and shortcuts together (95 %). Gap: how far apart the groups lie. A mean gap "
    "falls where some shortcuts find nothing. p: adjusted.",
    """
select
    model, other_model, dataset, metric, heuristic, 100 * estimate as estimate, 100 * simultaneous_low as estimate_low,
    100 * simultaneous_high as estimate_high, p_adjusted, verdict, reason, heuristics, n_rows, n_lacking
from qa_model_comparisons
inner join qa_shown_models as own using (model)
inner join qa_shown_models as others on others.model = other_model
where own.place < others.place
order by own.place, others.place, dataset, metric, heuristic""",
    """
model|First; other_model|Second; dataset; metric|Of|metric; heuristic; estimate|Difference|points|verdict;
p_adjusted; reason|Not compared; heuristics|Mean over|list; n_rows|Questions|count;
n_lacking|Only one answered|count""",
)

_MEANS = Table(
    "Mean bias significance over the shortcuts that could be measured, in points. More shortcuts that find nothing "
    "shrink it, and means over different shortcuts cannot be compared. Chance: the same mean on permuted answers, and "
    "what 95 % of them do not exceed; a mean that is not above that has an interval from 0.",
    """
from qa_by_model
inner join qa_shown_models using (model)
order by dataset, place""",
    """
model; dataset; bias_significance|Mean|points; bias_significance_null|Chance|points;
bias_significance_null_high|At most|points; n_significant; measurable|Over|list;
bias_significance_f1|Mean of F1|points""",
)

_SETS = Table(
    "In percent, with 95 % intervals over articles. Mean: over the data sets out of distribution, each counted once.",
    """
select
    model, dataset, role = 'in_distribution' as is_inside, exact_match, exact_match_low, exact_match_high, f1,
    f1_low, f1_high,
    n_rows, n_missing, share_most_frequent, place
from qa_by_dataset
inner join qa_shown_models using (model)
union all
select
    model, format('mean of {}', n_datasets), false, exact_match, exact_match_low, exact_match_high, f1, f1_low, f1_high,
    n_rows, n_missing, null, place
from qa_over_datasets
inner join qa_shown_models using (model)
where role = 'out_of_distribution' and n_datasets > 1
order by place, is_inside desc, dataset like 'mean of%', dataset""",
    """
model; dataset; is_inside; exact_match; f1; share_most_frequent|Most frequent answer|percent; n_rows|Questions|count;
n_missing|Without an answer|count""",
)

_THRESHOLDS = Table(
    "Where each threshold T comes from. Tried: thresholds of the search. Measured: those with a sample in both groups.",
    """
select
    dataset, heuristic, threshold, model, coalesce(searched_on, if(threshold is null, null, 'the spec')) as source,
    status,
    n_tried, n_tried_measured, n_unmeasured
from qa_bias_by_heuristic
inner join qa_shown_models using (model)
cross join qa_settings
order by dataset, list_position(heuristics, heuristic), place""",
    """
heuristic; dataset; model; threshold; source|Searched on the answers of; status; n_tried;
n_tried_measured|Measured|count; n_unmeasured|Undefined for|count""",
)

_EXAMPLES = Table(
    "Of each significant bias, two questions of the better group that are answered exactly, and two of the other that "
    "are not, picked by this outcome and a hash: they show what a bias looks like, and prove nothing. Marked: the gold"
    " answer.",
    f"""
with biased as (
    select tests.model, dataset, tests.heuristic, biases.threshold, biased_segment
    from qa_bias_by_heuristic as biases
    inner join qa_bias_tests as tests using (model, dataset, heuristic)
    semi join qa_shown_models using (model)
    {INSIDE}
    where is_supported
),

placed as (
    select
        biased.*, example_id, attributes.value, attributes.closest_word, prediction, exact_match, f1,
        (attributes.value <= threshold) = (biased_segment = 'lower') as is_better
    from biased
    inner join qa_attributes as attributes using (dataset, heuristic)
    inner join qa_predictions using (model, dataset, example_id)
    where attributes.is_measured and (exact_match = 1) = is_better
    qualify row_number() over (
        partition by model, dataset, heuristic, is_better order by md5(heuristic || ' ' || example_id), example_id
    ) <= 2
)

select
    placed.*, question, if(is_better, 'better, right', 'worse, wrong') as outcome, answers[1] as gold,
    case
        when answer_starts[1] >= 0 and context[answer_starts[1] + 1:answer_starts[1] + len(gold)] = gold
            then answer_starts[1] + 1
        else instr(context, gold)
    end as start,
    if(
        gold is null or gold = '' or start = 0, [context[:280], '', ''],
        [
            if(start > 141, '…', '') || context[greatest(1, start - 140):start - 1],
            gold,
            context[start + len(gold):start + len(gold) + 139] || if(start + len(gold) + 139 < len(context), '…', '')
        ]
    ) as marked
from placed
inner join qa_examples using (dataset, example_id)
order by dataset, heuristic, model, is_better desc, example_id""",
    """
question|Question|quote; marked|Context|marked; prediction|Answer|name; gold; outcome|Group; heuristic;
value|Value|number; closest_word|Nearest word|name; model; dataset; f1""",
)
_NO_EXAMPLES = f"""
select '' as lead, 'There are none, as no bias is significant.' as text
where not exists (from qa_bias_tests semi join qa_shown_models using (model) {INSIDE} where is_supported)"""
