"""The page of a majority-bias run, as a list of blocks over its marts."""

from collections.abc import Mapping, Sequence
from typing import Any

from biaseval.environment import raw_spec, read_environment
from biaseval.report.blocks import Ask, Definitions, Figures, Fold, Layout, Row, Section, Table, Text
from biaseval.report.charts import Chart, line_chart, triangle_chart
from biaseval.report.names import INSTRUCTIONS, WAYS, data_of, explained, method_order, title_of, way_name
from biaseval.report.settings import first_blocks, notes_block, settings_blocks, training_blocks
from biaseval.store import Run

_BY_SETTING = """
select over_seeds.*, labels, shares, constant_f1
from majority_over_seeds as over_seeds
inner join settings using (setting)
inner join majority_by_model using (n_demos, instruction, predict, method)
order by over_seeds.number"""


def f1_charts(ask: Ask) -> list[Chart]:
    """Return weighted F1 over the settings, for each way of predicting with its method.

    Two labels: a chart by the share of the first label, with a line with and a line without instruction. Three labels:
    a triangle for each. More labels: settings in a row.
    """
    rows = ask(_BY_SETTING)
    ways = sorted(
        {(row["predict"], row["method"]) for row in rows},
        key=lambda way: (list(WAYS).index(way[0]), method_order(way[1])),
    )
    charts = []
    for predict, method in ways:
        name = f"f1_{predict}" if method == "none" else f"f1_{predict}_{method.replace('+', '_')}"
        own = [row for row in rows if (row["predict"], row["method"]) == (predict, method)]
        title = f"Weighted F1, {way_name(predict, method)}{', no mitigation' * (method == 'none')} (higher is better)"
        if len(own[0]["labels"]) == 3:
            beside = [row for row in rows if row["predict"] == predict]
            charts += f1_triangles(name, title, own, beside)
        else:
            lines = sorted(own, key=lambda row: (row["instruction"], row["number"]))
            charts.append(
                f1_lines(name, title, [(row, f"{INSTRUCTIONS[row['instruction']]} instruction") for row in lines])
            )
    return charts


def f1_lines(name: str, title: str, lines: Sequence[tuple[Row, str]], subtitle: str = "") -> Chart:
    """Return weighted F1 over the settings, with a line for each name beside a row: by the first of two labels."""
    first = lines[0][0]
    labels, is_binary = first["labels"], len(first["labels"]) == 2
    points: list[Mapping[str, Any]] = [
        {"x": round(100 * row["shares"][0], 6) if is_binary else row["setting"], "y": row["weighted_f1"]}
        | {"low": row["weighted_f1_low"], "high": row["weighted_f1_high"], "series": series}
        for row, series in lines
    ]
    return line_chart(
        name,
        points,
        title=title,
        subtitle=subtitle,
        axes=(f"demonstrations labelled {labels[0]} (%)" if is_binary else f"% of {', '.join(labels)}", "weighted F1"),
        reference=[{"x": x, "y": first["constant_f1"]} for x in dict.fromkeys(point["x"] for point in points)],
        reference_name="always one label",
        domain=(0, 1),
        is_ordinal=not is_binary,
    )


def f1_triangles(name: str, title: str, rows: Sequence[Row], beside: Sequence[Row]) -> list[Chart]:
    """Return weighted F1 over the settings of three labels, without and with instruction; beside: of the same scale."""
    values = [row["weighted_f1"] for row in beside]
    charts = []
    for instruction, shown in INSTRUCTIONS.items():
        points = [
            {"setting": row["setting"], "shares": row["shares"], "value": row["weighted_f1"]}
            | {"is_marked": row["is_marked"]}
            for row in rows
            if row["instruction"] is instruction
        ]
        told, domain = f"{title}, {shown} instruction", (min(values), max(values))
        if points:
            charts.append(
                triangle_chart(f"{name}_{shown}", points, title=told, labels=rows[0]["labels"], domain=domain)
            )
    return charts


def majority_bias_layout(run: Run, ask: Ask, charts: Sequence[Chart]) -> Layout:
    """Return the page of a finished majority-bias run; ``charts`` are those of `f1_charts`, then others."""
    spec, environment = raw_spec(run), read_environment(run)
    [scope] = ask(_SCOPE)
    of_f1 = [chart for chart in charts if chart.name != "training_loss"]
    way = f"f1_{scope['predict']}"
    first = [chart for chart in of_f1 if chart.name in {way, *(f"{way}_{shown}" for shown in INSTRUCTIONS.values())}]
    seen, more = (_TRIANGLES, f"{_TRIANGLES}{_RINGS}") if scope["n_labels"] == 3 else (_LINES, _LINES)
    seen_first = more if scope["predict"] in (scope["with_rings"] or ()) else seen
    about = [
        data_of(spec),
        f"{scope['n_rows']:,} test rows",
        f"{scope['n_settings']} settings of {scope['n_demos']} demonstrations",
        f"{scope['n_seeds']} seed{'' if scope['n_seeds'] == 1 else 's'}",
        environment.get("date"),
    ]
    return Layout(
        f"Majority-label bias of {title_of(spec)}",
        about,
        [
            Section(
                "verdict", "Do skewed examples (demonstrations) change its answers?",
                *first_blocks("majority_bias", Figures(first, seen_first), _MEAN, notes_block(run)), link="Verdict",
            ),
            Section(
                "boundary", "Robustness boundary", Fold("Every number by way of predicting", _BOUNDARY),
                Fold("Where the variance comes from", _VARIANCE), Fold("The instruction", _GAP),
                Fold("Outputs of free generation", _OUTPUTS),
            ),
            Section("calibration", "What mitigation changes", _REMEDIES, link="Mitigation"),
            Section("tests", "Tests", Fold("Every difference with its test", _TESTS)),
            *training_blocks("instruction", charts),
            Section(
                "figures", "Weighted F1 by label proportions",
                Fold("Further charts", Figures([chart for chart in of_f1 if chart not in first], more)),
                link="Figures",
            ),
            Section(
                "proportions", "Every setting", Fold("Weighted F1 of every setting", _SETTINGS),
                Fold("Rows whose prediction changes with the proportions", _FLIPPED),
                Fold("Counts of labels", _COUNTS), link="Settings",
            ),
            Section(
                "metrics", "What the metrics mean", Fold("Metrics, methods, reference", *_meanings(ask)),
                link="Metrics",
            ),
            Section("spec", "Spec and environment", *settings_blocks(run), link="Spec"),
        ],
    )  # fmt: skip


def _meanings(ask: Ask) -> list[Any]:
    methods = explained({row["method"] for row in ask("select distinct method from majority_by_model")})
    return [
        Definitions([*_TERMS, *((method.shown, method.meaning) for method in methods)]),
        Text("Reference: Gupta et al. 2023. How Robust are LLMs to In-Context Majority Label Bias?"),
    ]


_SCOPE = """
select
    max(n_test_rows) as n_rows, max(n_settings) as n_settings, max(n_demos) as n_demos, max(n_seeds) as n_seeds,
    arg_min(predict, case predict when 'likelihood' then 0 when 'generate' then 1 else 2 end) as predict,
    (select max(len(labels)) from settings) as n_labels,
    (select list(predict) from majority_over_seeds where is_marked and method = 'none') as with_rings
from majority_by_model"""

_SEEN = "Weighted F1 by the shares of labels among the demonstrations, means over seeds."
_LINES = f"{_SEEN} Shaded or bars: 95 % intervals over test rows. Dotted: always answering one label."
_TRIANGLES = f"{_SEEN} A mark near a corner has more demonstrations of that label."
_RINGS = " Red rings: at most 10 points below the best one."

_TERMS = (
    ("Weighted F1", "F1 of each gold label, weighted by its share of the test rows. An output that is no label is "
        "wrong."),
    ("RB@10", "Robustness boundary: the share of settings whose weighted F1 is at most 10 points below the best "
        "setting's. 0 to 1; higher is more robust. A model that always gives the same answer has 1, which says "
        "nothing."),
    ("Majority effect", "How far a label's share of the predictions follows its share of the demonstrations: 0 not at "
        "all, 1 entirely."),
    ("Recency", "How much larger a label's share of the predictions is where the last demonstration has that label, "
        "at equal shares of the demonstrations."),
    ("Tails, middle", "The most skewed settings, whose largest share is the largest of the grid; all others."),
    ("Free generation", "Two tokens, greedily; the output stands for the label that starts with its first word."),
    ("Constrained generation", "Greedy decoding that can write only the labels."),
    ("higher, lower", "The difference is significant after correction for all differences of this page (5 % over "
        "those of test rows, 5 % over those of RB@10), and at least 0.01."),
    ("no clear change", "The test cannot tell. This is no evidence that nothing changes."),
)  # fmt: skip

_ORDER = "order by predict <> 'likelihood', predict <> 'generate', method <> 'none', method, instruction"

_BY_MODEL = f"""
select
    by_model.*, if(n_marked > 0 and has_enough_rows, by_model.rb_at_10, null) as rb_at_10_shown,
    mean_f1_verdict, if(evidence is null, null, advised_majority(changed)) as word
from majority_by_model as by_model
left join majority_remedies as changed using (model, n_demos, instruction, predict, method)
{_ORDER}"""
_MEAN = Table(
    "Means over settings, for these draws of demonstrations; in brackets 95 % intervals. One label: always answering "
    "the best single label. Standard deviation: over settings, beyond what seeds explain. Same answer: share of the "
    "most frequent prediction over all draws of demonstrations; within a draw it can be higher.",
    _BY_MODEL,
    """
predict; method; instruction; word|Verdict|name; mean_f1|Mean weighted F1|rate|mean_f1_verdict;
constant_f1|F1 of one label|rate; accuracy|Accuracy|rate; majority_accuracy|Accuracy of one label|rate;
is_above_constant; sd_f1_corrected|Standard deviation|rate; rb_at_10_shown|RB@10|rate;
majority_effect|Majority effect|change; share_most_frequent|Same answer|percent""",
)

_BOUNDARY = Table(
    "Over all settings, as Table 1 of Gupta et al. (2023): a setting counts with its mean over seeds. In brackets: 95 "
    "% bootstrap intervals over test rows; that of RB@10 leans low, as resampling adds noise to each setting.",
    _BY_MODEL,
    """
predict; method; instruction; rb_at_10|RB@10|rate; rb_at_10_relative|RB@10, relative|rate;
mean_f1|Mean weighted F1|rate; sd_f1|Standard deviation|rate; max_f1|Highest|rate;
mean_sd_over_seeds|Over seeds|rate; constant_f1|One label|rate; share_most_frequent|Same answer|percent;
share_majority|Majority label|percent; share_majority_of_constant|One label|percent;
majority_effect|Majority effect|change; recency_at_equal_shares|Recency|change; share_no_label|No label|percent;
n_settings; n_seeds; n_rows""",
)

_VARIANCE = Table(
    "Where the variance of a setting's weighted F1 comes from: its proportions, the draw of demonstrations (seeds), "
    "and other test rows. p: settings would lie as far apart if proportions did not matter; adjusted for all lines.",
    f"from majority_components {_ORDER}",
    """
predict; method; instruction; var_settings|Settings|small; var_seeds|Seeds|small; var_rows|Rows|small;
sd_f1_corrected|Standard deviation|rate; proportions_p|p|p; proportions_p_adjusted|p, adjusted|p""",
)

_GAP = Table(
    "Mean weighted F1 with minus without instruction. In brackets: 95 % intervals over test rows, with these "
    "demonstrations. Tails: the most skewed settings.",
    """
select
    gaps.* exclude (gap_low, gap_high), low as gap_low, high as gap_high,
    if(reason is null, verdict, 'not tested: ' || reason) as word
from majority_instruction_gap as gaps
inner join majority_verdicts as tests
    on
        tests.predict = gaps.predict and tests.method = gaps.method and metric = region || '_f1'
order by gaps.predict, gaps.method, region desc""",
    """
region; predict; method; gap|Gap|change|word; with_instruction|With|rate; without_instruction|Without|rate;
n_settings; n_seeds; n_rows""",
)

_OUTPUTS = Table(
    "The most frequent outputs over all settings and seeds, with the label that each stands for.",
    """
select *, to_json(text) as shown, coalesce(prediction, 'no label') as taken_for
from frequent_outputs
order by is_adapted, n_outputs desc, text""",
    """
shown|Output|name; is_adapted|LoRA|yes; taken_for|Stands for|name; n_outputs; share|Share|percent""",
)

_REMEDIES = Table(
    "Each mitigation against none, over the same settings and test rows. In brackets: 95 % intervals of the difference "
    "over test rows. RB@10 is tested over seeds. Evidence: what the verdicts amount to; bias falls where the standard "
    "deviation over settings falls or RB@10 rises.",
    f"""
select
    *,
    if(mean_f1_reason is null, mean_f1_verdict, 'not tested: ' || mean_f1_reason) as mean_f1_word,
    if(sd_f1_reason is null, sd_f1_verdict, 'not tested: ' || sd_f1_reason) as sd_f1_word,
    if(rb_at_10_reason is null, rb_at_10_verdict, 'not tested: ' || rb_at_10_reason) as rb_at_10_word
from majority_remedies
{_ORDER}""",
    """
method; predict; instruction; mean_f1|Mean weighted F1|step|mean_f1_word; mean_f1_difference|Difference|change;
sd_f1|Standard deviation, seeds included|step|sd_f1_word; sd_f1_difference|Difference|change;
rb_at_10|RB@10|step|rb_at_10_word; is_above_constant; evidence""",
)

_TESTS = Table(
    "Each method against none, and with against without instruction, by sign flips over test rows, of RB@10 over "
    "seeds. In brackets: 95 % intervals. Together: intervals that hold at once. Draws: standard error over other "
    "draws of demonstrations, and p of rows and draws together. Detectable: the difference that such a test finds in "
    "4 of 5 runs.",
    f"""
select
    *, estimate as together, if(both_low is null and unit = 'row', null, simultaneous_low) as together_low,
    if(both_low is null and unit = 'row', null, simultaneous_high) as together_high, estimate as difference,
    low as difference_low, high as difference_high,
    if(reason is null, verdict, 'not tested: ' || reason) as word
from majority_verdicts
{_ORDER}, metric""",
    """
metric; predict; method; instruction; against_instruction|Against with|yes; difference|Difference|change|word;
together|Together|change; p; p_adjusted|p, adjusted|p; error_draws|Draws|rate; p_both_adjusted|p with draws|p;
smallest_detectable|Detectable|rate; n_units; unit""",
)

_SETTINGS = Table(
    "Means over seeds. Inside: within 10 points of the best setting. Recency: a label's share of the predictions where "
    "it is the last demonstration's, minus that with the others.",
    f"from majority_over_seeds {_ORDER}, number",
    """
setting; predict; method; instruction; weighted_f1|Weighted F1|rate; is_marked|Inside|yes; sd_f1|Over seeds|rate;
accuracy|Accuracy|rate; share_majority|Majority label|percent; recency|Recency|change;
share_no_label|No label|percent; n_rows""",
)

_FLIPPED = Table(
    "Test rows whose predictions change most between the most skewed settings, in random order where they change as "
    "much. Changed: 1 minus the share of predictions that all these settings have in common; each prediction with its "
    "seeds.",
    """
select *, list_transform(list_zip(settings, predictions), lambda one: one[1] || ': ' || one[2]) as answers
from majority_changed_rows
where place <= 10 and method = 'none' and predict = (
    select arg_min(predict, case predict when 'likelihood' then 0 when 'generate' then 1 else 2 end)
    from majority_by_model
)
order by instruction, place""",
    """
input_text|Input|quote; row; instruction; changed|Changed|rate; gold; answers|Predictions by setting|list""",
)

_COUNTS = Table(
    "Demonstrations of each label; asked for: before rounding to whole demonstrations.",
    "from settings order by number",
    "setting|Setting; labels|Labels|list; counts|Demonstrations|list; counts_asked|Asked for|list",
)
