"""The page of a label-bias run, as a list of blocks over its marts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from biaseval.analysis.sql_files import chosen_by
from biaseval.environment import PRIMARY_BEFORE, raw_spec, read_environment
from biaseval.metric_files import METRICS, Metric
from biaseval.prompting.calibration import Calibration
from biaseval.report.blocks import Ask, Definitions, Figures, Fold, Keys, Layout, Row, Section, Table, Text
from biaseval.report.charts import Chart, dot_chart, line_chart
from biaseval.report.names import SUITES, data_of, explained, method_name, method_order, side_by_side, title_of
from biaseval.report.settings import first_blocks, notes_block, settings_blocks, training_blocks
from biaseval.store import Run

SHOWN = ("rsd", "accuracy", "macro_f1", "bias_score")
"""The metrics of the charts, in the order of panels."""

_REFERENCES = {
    "rsd": ("rsd_floor", "sampling noise"),
    "bias_score": ("bias_score_floor", "sampling noise"),
    "accuracy": ("majority_accuracy", "always the most frequent label"),
    "macro_f1": ("majority_macro_f1", "always the most frequent label"),
}
"""Metric to its reference: a column of the method none, with the reference's name."""

_MOST = "n_demos = (select max(n_demos) from label_bias_by_model)"
_MOST_BIASED = f"""
    select task
    from label_bias_by_task_over_sets
    where method = 'none' and {_MOST}
    order by rsd_excess desc nulls last, task
    limit 10"""

_SCOPE = """
select
    count(*) as n_tasks, sum(n_main)::bigint as n_rows, min(len(labels)) as n_least, max(len(labels)) as n_most,
    (
        select listed(list(n::varchar order by n)) from (select distinct n_demos as n from label_bias_by_model)
    ) as n_demos,
    (select max(n_demo_sets) from label_bias_by_model) as n_sets
from tasks"""

_WORDED = f"""
select *, with_demos(n_demos) as demonstrations
from label_bias_by_format
where suite = 'all' and {_MOST}
order by format <> 'base', format, method <> 'none', method"""

_MEANS = "from label_bias_by_model order by suite <> 'all', suite, n_demos, method"


def label_bias_charts(ask: Ask) -> list[Chart]:
    """Return a chart per wording, then one per suite and metric by number of demonstrations, with a line per method."""
    charts = [*_wordings(ask)]
    every = ask(_MEANS)
    for suite in dict.fromkeys(row["suite"] for row in every if row["suite"] == "all" or row["n_tasks"] > 1):
        rows = [row for row in every if row["suite"] == suite]
        for place, methods in enumerate(side_by_side(row["method"] for row in rows)):
            own = [row for row in rows if row["method"] in methods]
            charts += [
                _chart(suite, metric, own, rows, bool(place))
                for metric in SHOWN
                if any(row[metric] is not None for row in own)
            ]
    return charts


def _wordings(ask: Ask) -> Iterator[Chart]:
    """Yield the two first metrics of each wording, with the most demonstrations; nothing of a single wording."""
    rows = ask(_WORDED)
    if len({row["format"] for row in rows}) > 1:
        for metric in SHOWN[:2]:
            own = {"note": "", "start": None, "is_thick": False, "low": None, "high": None}
            yield dot_chart(
                f"{metric}_wordings",
                [
                    {"y": row["format"], "series": method_name(row["method"]), "x": row[metric]}
                    | {"is_filled": row["is_above_constant"], **own}
                    for row in rows
                ],
                title=f"{METRICS[metric].shown} by wording, {rows[0]['demonstrations']}",
                axis=_better(metric),
            )


def _better(metric: str) -> str:
    return "lower is less bias" if METRICS[metric].better == "lower" else "higher is better"


def _chart(suite: str, metric: str, rows: Sequence[Row], every: Sequence[Row], has_lora: bool) -> Chart:
    """Return one panel; calibrated adapted models have separate panels on the same scale."""
    shown, (column, reference) = METRICS[metric].shown, _REFERENCES[metric]
    ordered = sorted(rows, key=lambda row: (method_order(row["method"]), row["n_demos"]))
    tops = [row[end] for row in every for end in (metric, f"{metric}_high", column) if row[end] is not None]
    return line_chart(
        "_".join([metric, *(["lora"] if has_lora else []), *([] if suite == "all" else [suite])]),
        [
            {"x": row["n_demos"], "y": row[metric], "low": row[f"{metric}_low"], "high": row[f"{metric}_high"]}
            | {"series": method_name(row["method"])}
            for row in ordered
            if row[metric] is not None
        ],
        title=f"{shown}{' with LoRA' if has_lora else ''} ({_better(metric)})",
        subtitle="" if suite == "all" else SUITES.get(suite, suite),
        axes=("demonstrations", shown),
        reference=[
            {"x": row["n_demos"], "y": row[column]}
            for row in ordered
            if row["method"] == "none" and row[column] is not None
        ],
        reference_name=reference,
        domain=(0, 1.05 * max(*tops, 0.05)),
    )


def label_bias_layout(run: Run, ask: Ask, charts: Sequence[Chart]) -> Layout:
    """Return the page of a finished label-bias run; ``charts`` are those of `label_bias_charts`, then others."""
    spec, environment = raw_spec(run), read_environment(run)
    [scope] = ask(_SCOPE)
    of_wordings = [chart for chart in charts if chart.name.endswith("_wordings")]
    first = of_wordings or [chart for metric in SHOWN[:2] for chart in charts if chart.name == metric]
    seen = _DOTS if of_wordings else _SEEN
    return Layout(
        f"Label bias of {title_of(spec)}",
        _about(spec, environment, scope),
        [
            Section(
                "verdict", "Is it biased?",
                *first_blocks("label_bias", Figures(first, seen), _SETTINGS, label_bias_notes(run, spec, environment)),
                link="Verdict",
            ),
            Section(
                "suite", "Every number by method", Fold("Means with intervals, noise and baselines", _MEAN),
                Fold("Further metrics", _FURTHER),
                Fold(
                    "Further charts",
                    Figures(
                        [chart for chart in charts if chart not in first and chart.name != "training_loss"], _SEEN,
                    ),
                ),
                link="Methods",
            ),
            Section(
                "changes", "What calibration and demonstrations change",
                Fold("Every difference with its test", _TESTS), Fold("Where the variance comes from", _COMPONENTS),
                link="Changes",
            ),
            Section("formats", "Wordings of the prompt", *_formats(spec), link="Wordings"),
            *training_blocks("n_demos", charts),
            Section(
                "most-biased", "Tasks, most biased first" if scope["n_tasks"] > 1 else "The labels", _RANKED,
                Fold("Labels, and rows behind the numbers", _LABELS, _WRONG),
                link="Tasks" if scope["n_tasks"] > 1 else "Labels",
            ),
            Section(
                "tasks", "All settings", Fold("Every task in every setting", _TASKS),
                Fold("Every demonstration set", _SETS),
            ),
            Section(
                "metrics", "What the metrics and methods mean",
                Fold("Metrics, methods, references", *_meanings(run, ask)), link="Metrics",
            ),
            Section("settings", "Settings", *settings_blocks(run), *_OF_DATA),
        ],
    )  # fmt: skip


def _about(spec: Mapping[str, Any], environment: Mapping[str, Any], scope: Row) -> list[str | None]:
    least, most = scope["n_least"], scope["n_most"]
    sets = f" ({scope['n_sets']} sets of them)" if scope["n_sets"] > 1 else ""
    return [
        data_of(spec),
        f"{scope['n_tasks']:,} task{'' if scope['n_tasks'] == 1 else 's'}",
        f"{scope['n_rows']:,} test rows, {least if least == most else f'{least} to {most}'} labels",
        f"{scope['n_demos']} demonstrations{sets}",
        environment.get("date"),
    ]


def label_bias_notes(run: Run, spec: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    """Return the cautions from files of the run: notes of its plan, and a primary question added after scoring."""
    asked, before = spec.get("primary"), environment.get(PRIMARY_BEFORE, ...)
    late = []
    if asked and before not in (..., asked):
        was = f"before, it was {before['metric']} with {before['method']}" if before else "before, there was none"
        late = [
            f"The primary question was chosen after scoring ({was}). Its p-values are valid only if nobody had seen "
            "results by then."
        ]
    return [*late, *notes_block(run)]


def _formats(spec: Mapping[str, Any]) -> list[Any]:
    formats = (spec.get("prompt") or {}).get("formats") or {}
    if not formats:
        return []
    return [
        Text("Where this page names no wording, its numbers are for the default one, which is called base."),
        Keys("What each wording changes in the prompt", formats),
        _FORMATS,
        _SPREAD,
    ]


def _meanings(run: Run, ask: Ask) -> list[Any]:
    chosen = chosen_by(run)
    methods = explained({row["method"] for row in ask("select distinct method from label_bias_by_model")})
    methods += [Calibration.of(name, sql) for name, sql in chosen.own.items()]
    every = METRICS | {name: Metric.of(name, sql) for name, sql in chosen.metrics.items()}
    metrics = [(metric.shown, metric.meaning) for metric in every.values()]
    references = [method.reference for method in methods if method.reference]
    return [
        Definitions([*metrics, *((method.shown, method.meaning) for method in methods), *_TERMS]),
        Text("References: Yuval Reif and Roy Schwartz. 2024. Beyond Performance: Quantifying and Mitigating Label Bias "
             f"in LLMs. NAACL 2024. {' '.join(references)}"),
    ]  # fmt: skip


_SEEN = (
    "RSD says how unequal the recalls of the labels are. Means over tasks and demonstration sets; shaded or bars: 95 % "
    "intervals. Dotted: sampling noise (RSD), or always giving the most frequent label (accuracy)."
)

_DOTS = "Means over tasks and sets. Filled: shown to beat one label in accuracy or macro-F1. Hollow: not shown."

_TERMS = (
    ("Sampling noise", "About the value that a model without bias reaches with this many rows."),
    ("lower, higher", "The difference is significant after correction for all differences and metrics of this page (5 "
        "% in all), and at least 0.01. RSD falls where accuracy rises, also without bias: a verdict on RSD needs "
        "relative variance to agree, one on BiasScore needs squared preference to agree and a BiasScore above "
        "sampling noise on one side."),
    ("helps, at a price", "Bias falls: RSD, BiasScore or both. Accuracy does not fall, or at a price it does."),
    ("less bias, accuracy unclear", "Bias falls. Accuracy may rise or fall: the test cannot tell."),
    ("mixed, do not use", "Something improves and something else gets worse, or nothing improves."),
    ("helps, not enough", "Bias falls, but accuracy stays below always one label, or no test shows better answers."),
    ("more demonstrations: …", "The same words on more demonstrations, against the fewest of the run."),
    ("no clear change", "The test cannot tell: that is no evidence of no change."),
    ("negligible", "The difference is significantly smaller than 0.01."),
    ("Always one label", "Always giving the most frequent gold label. Better: accuracy or macro-F1 is significantly "
        "above the best that such an answer has (one-sided, 5 % for all settings together)."),
    ("LoRA", "A low-rank adapter (Hu et al. 2022), trained on held-out examples of the task."),
)  # fmt: skip

_SETTINGS = Table(
    "Each setting. Arrows: from no mitigation to the mitigation, or from fewer demonstrations to more. RSD: how "
    "unequal the recall of the labels is, from 0 (no bias); always one label has about √(labels − 1), and more if that "
    "label is rare. BiasScore: how far their mean probabilities are from equal, from 0 to 1 − 1 / labels. Words: "
    "verdicts (see “How sure”).",
    """
select
    method, n_demos, means.rsd, means.bias_score, means.accuracy, means.macro_f1,
    above_constant(means.is_above_constant, means.accuracy < means.majority_accuracy) as beside,
    rsd_before, bias_score_before, accuracy_before, macro_f1_before,
    if(is_of_these_tasks, rsd_same_tasks_verdict, rsd_verdict) as rsd_word,
    if(is_of_these_tasks, bias_score_same_tasks_verdict, bias_score_verdict) as bias_score_word,
    if(is_of_these_tasks, accuracy_same_tasks_verdict, accuracy_verdict) as accuracy_word,
    if(is_of_these_tasks, macro_f1_same_tasks_verdict, macro_f1_verdict) as macro_f1_word,
    round(n_prompts / (means.n_tasks * n_demo_sets))::bigint as n_prompts, n_tokens,
    advised(shown_advice, changed.is_below_majority and means.macro_f1 > means.majority_macro_f1, method) as word
from label_bias_by_model as means
left join (from label_bias_remedies where against_method = 'none') as changed using (model, suite, n_demos, method)
left join prompt_lengths using (n_demos)
where suite = 'all'
order by n_demos, method <> 'none', method""",
    """
method; n_demos; n_tokens|Tokens of a prompt|count; word|Verdict|name; beside; rsd|RSD|step|rsd_word;
bias_score|BiasScore|step|bias_score_word; accuracy|accuracy|step|accuracy_word; macro_f1|macro-F1|step|macro_f1_word;
n_prompts|Extra prompts|count""",
)

_MEAN = Table(
    "Means over tasks, then over demonstration sets; in brackets 95 % intervals over tasks like these, or over the "
    "rows of the only task. Noise: sampling noise. Above: tasks above it (Holm, 5 %). Normalized: RSD over the square "
    "root of (gold labels - 1). Perfect: the BiasScore of a model that is always right. Not above: tasks in "
    "which no metric exceeds that of the best constant answer. No hit: tasks without a correct answer in a set of "
    "demonstrations.",
    _MEANS,
    """
suite|Suite|suite; n_demos; method; rsd; rsd_floor|Noise|rate; n_tasks_rsd|Above|count; rsd_median|Median|rate;
rsd_normalized|Normalized|rate; bias_score; bias_score_floor|Noise|rate; bias_score_of_perfect|Perfect|rate;
n_tasks_bias_score|Above|count; accuracy; majority_accuracy|Most frequent label|rate; macro_f1;
n_tasks_not_above|Not above|count; n_tasks_without_hit|No hit|count; n_rows|Predictions|count;
n_bias_score_rows|For BiasScore|count""",
)

_FURTHER = Table(
    "Metrics of analysis.metrics and analysis.sql: means over tasks, then over demonstration sets.",
    """
select
    metric_head(metric).shown as shown, metric_head(metric).better as better, n_demos, method, value,
    standard_error
from label_bias_metrics
where
    suite = 'all' and task is null and format = 'base' and metric_head(metric).apart
    and not list_contains([head.requires for head in all_metrics()], metric)
order by metric, n_demos, method""",
    """
shown|Metric; better; n_demos; method; value|Value|rate; standard_error|Standard error|rate""",
)

_TESTS = Table(
    "Mean differences, paired by task. These tasks: 95 % interval and verdict for new rows of these tasks, p adjusted "
    "by Holm. Other tasks: the band that holds for all differences together, and the verdict, for tasks like these. "
    "Detectable: the difference that the test of these tasks finds in 4 of 5 runs.",
    """
select
    * exclude (low, high), same_tasks_low as estimate_low, same_tasks_high as estimate_high,
    simultaneous_low as other_low, simultaneous_high as other_high,
    if(n_tasks > 1, estimate, null) as other, if(n_tasks > 1, word_p_adjusted, null) as other_p
from label_bias_verdicts
where suite = 'all' and metric not in ('relative_variance', 'squared_preference')
order by metric, n_demos, method, against_n_demos, against_method""",
    """
metric; n_demos; method; against_n_demos|Against demonstrations|count; against_method|Against|method;
estimate|Difference|change|same_tasks_verdict|These tasks; same_tasks_word_p_adjusted|p, adjusted|p||These tasks;
same_tasks_smallest_detectable|Detectable|rate||These tasks; other|Difference|change|verdict|Other tasks;
other_p|p, adjusted|p||Other tasks; n_tasks_lower; n_tasks_higher; is_primary|Primary question|yes; n_units""",
)

_COMPONENTS = Table(
    "Shares of the variance of the tasks' values without mitigation: other rows of the same tasks, other demonstration "
    "sets, other tasks. Measuring more of the largest narrows the intervals most.",
    """
from label_bias_components
where suite = 'all' and method = 'none' and share_tasks is not null
order by n_demos, metric""",
    """
metric; n_demos; share_rows|Rows|percent; share_sets|Demonstrations|percent; share_tasks|Tasks|percent; n_tasks;
n_sets""",
)

_FORMATS = Table(
    "Means over tasks and demonstration sets. Words without calibration: verdict against the default wording (base). "
    "Words with a calibration: verdict against no calibration of the same wording.",
    """
with words as (
    select
        n_demos, method, format, any_value(verdict) filter (metric = 'rsd') as rsd_verdict,
        any_value(verdict) filter (metric = 'bias_score') as bias_score_verdict,
        any_value(verdict) filter (metric = 'accuracy') as accuracy_verdict,
        any_value(verdict) filter (metric = 'macro_f1') as macro_f1_verdict
    from label_bias_format_changes
    where suite = 'all' and (method = 'none') = (format <> against_format)
    group by all
)

select *, above_constant(is_above_constant, accuracy < majority_accuracy) as beside
from label_bias_by_format
left join words using (n_demos, method, format)
where suite = 'all'
order by n_demos, method <> 'none', method, format <> 'base', format""",
    """
format|Wording|name; n_demos; method; rsd|RSD|rate|rsd_verdict; bias_score|BiasScore|rate|bias_score_verdict;
accuracy|accuracy|rate|accuracy_verdict; macro_f1|macro-F1|rate|macro_f1_verdict;
majority_accuracy|accuracy|rate||Always one label; majority_macro_f1|macro-F1|rate||Always one label; beside;
n_rows|Predictions|count""",
)
_SPREAD = Table(
    "How much the wording matters without calibration: smallest and largest value, and standard deviations over "
    "wordings, of sampling noise alone, and, of one task without noise, over wordings, demonstration sets and tasks.",
    """
from label_bias_format_spread
where suite = 'all' and method = 'none' and task is null
    and metric not in ('relative_variance', 'squared_preference')
order by metric, n_demos""",
    """
metric; n_demos; minimum|Smallest|rate; minimum_format|Wording|name; maximum|Largest|rate;
maximum_format|Wording|name; deviation|Wordings|rate||Standard deviation;
deviation_of_rows|Noise|rate||Standard deviation; format_deviation|Wordings|rate||Of one task;
set_deviation|Sets|rate||Of one task; task_deviation|Tasks|rate||Of one task""",
)

_RANKED = Table(
    "Without mitigation, with the most demonstrations. Prefers: the label that is predicted most beyond its share of "
    "the gold labels, where RSD is above sampling noise. In brackets: 95 % intervals over rows. p: that recall does "
    "not depend on the label, adjusted for all tasks (Holm).",
    f"""
with preferred as (
    from label_bias_by_label_over_sets
    where method = 'none' and {_MOST}
    qualify row_number() over (partition by task order by predicted_share - gold_share desc, label) = 1
),

by_set as (
    select task, count(distinct label) as n_labels_preferred
    from (
        from label_bias_by_label
        where method = 'none' and {_MOST}
        qualify row_number() over (partition by task, demo_set order by n_predicted - n_gold desc, label) = 1
    )
    group by task
)

select
    tasks.*, rsd_p_adjusted, above_constant(is_above_constant, accuracy < majority_accuracy) as beside,
    case
        when not is_rsd_above then null
        when n_labels_preferred > 1 then 'differs between demonstration sets'
        else label
    end as prefers,
    if(is_rsd_above and n_labels_preferred = 1, predicted_share, null) as predicted_share,
    if(is_rsd_above and n_labels_preferred = 1, gold_share, null) as gold_share
from label_bias_by_task_over_sets as tasks
inner join label_bias_task_tests using (model, task, n_demos, method)
inner join preferred using (task)
inner join by_set using (task)
where suite = 'all' and tasks.method = 'none' and tasks.{_MOST}
order by rsd_excess desc nulls last, task""",
    """
task; prefers|Prefers|name; predicted_share|of predictions|percent||Share of that label;
gold_share|of gold labels|percent||Share of that label; rsd; rsd_floor|Noise|rate; rsd_p_adjusted|p|p; bias_score;
bias_score_of_perfect|Perfect|rate; accuracy; majority_accuracy|Most frequent label|rate; beside; n_labels;
n_rows|Predictions|count""",
)

_LABELS = Table(
    "The labels of the ten most biased tasks. Without bias, predictions are about as frequent as gold labels, all "
    "recalls are equal, and the mean probability is near 1 / labels.",
    f"""
from label_bias_by_label_over_sets
where method = 'none' and {_MOST} and task in ({_MOST_BIASED}
)
order by task, label""",
    """
label|Label|name; task; gold_share|Of gold labels|bar; predicted_share|Of predictions|bar;
mean_probability|Mean probability|bar; recall|Recall|percent""",
)
_WRONG = Table(
    "Rows of these tasks where the preferred label is predicted and wrong: five of each, in random order.",
    f"""
from wrong_answers
where method = 'none' and {_MOST} and is_preferred and place <= 5 and task in ({_MOST_BIASED}
)
order by task, place""",
    """
input_text|Input|quote; task; row; demo_set; gold; prediction|Predicted|name; probability|Its probability|rate;
gold_probability|That of gold|rate""",
)

_TASKS = Table(
    "Means over demonstration sets. Predictions: one for each test row and set.",
    "from label_bias_by_task_over_sets order by n_demos, task, method",
    """
task; n_demos; method; rsd; bias_score; accuracy; macro_f1; n_labels; n_rows|Predictions|count""",
)

_SETS = Table(
    "One line per set. Differences between sets come from the draw of demonstrations.",
    """
from label_bias_by_task
where n_demos > 0 and (select max(n_demo_sets) from label_bias_by_model) > 1
order by n_demos, task, method, demo_set""",
    "task; n_demos; method; demo_set; rsd; bias_score; accuracy; macro_f1; n_rows",
)

_OF_DATA = [
    Fold(
        "Prompts that the length limit changed",
        Table(
            "Prompts with fewer demonstrations than requested, or cut on the right.",
            "from shortened_prompts where n_fewer_demos > 0 or n_truncated > 0 order by n_demos, purpose",
            """
purpose; n_demos; n_rows|Prompts|count; n_fewer_demos|With fewer demonstrations|count; n_truncated|Cut|count""",
        ),
    ),
    Fold(
        "Labels of the demonstrations",
        Table(
            "How many demonstrations of each set have which label, in its longest prompt.",
            """
select task, n_demos, demo_set, string_agg(label || ' ' || n_with_label, ', ' order by label) as labels
from demonstration_labels
group by all
order by task, n_demos, demo_set""",
            """
task; n_demos; demo_set; labels|Demonstrations with each label|name""",
        ),
    ),
    Fold(
        "Tasks of the run",
        Table(
            "Performance and RSD are measured on the test rows. DC keeps what its template names of an input.",
            "from tasks order by task",
            """
task; category|Category|name; labels; n_instances; n_main|Test rows|count; template|Template of DC|code;
template_source|Source; definition|Definition|quote""",
        ),
    ),
]
