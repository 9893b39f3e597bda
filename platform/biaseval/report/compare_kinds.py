"""What a comparison of runs says differently of each kind of run: names, the order of settings, what runs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from biaseval.report.findings import METRICS, Row
from biaseval.report.ids import Ids, ids_of_methods, ids_of_ways
from biaseval.report.methods import method_name, method_order
from biaseval.report.summary import join
from biaseval.report.ways import INSTRUCTIONS, way_name, way_order

Place = tuple[object, ...]


@dataclass(frozen=True)
class ComparedKind:
    """One kind of run, in comparisons."""

    metrics: Mapping[str, str]
    """Their display names, in the order of tables."""
    better_low: frozenset[str]
    """Those of which less is better; of the others more is."""
    first_metric: str
    """That of the matrix of all pairs."""
    place: Callable[[Row], Place]
    """Returns the sort key of the setting that a test is of, the same for all metrics of it."""
    place_name: Callable[[Row], str]
    """Returns what a setting is called."""
    shown_place: Callable[[Sequence[Place]], Place]
    """Returns the setting to show where there is room for one."""
    listed_place: Callable[[Row], str]
    """Returns of which settings rows are listed; "" where of all."""
    row_name: Callable[[Row], str]
    """Returns which row of the data a prediction is of."""
    scope: Callable[[Row], str]
    """Returns how much two runs share."""
    lacking: Sequence[Callable[[Row, Row], str]]
    """What the guard counts or names, of what is shared and of that in the other direction; "" where all is shared."""
    not_same: Mapping[str, str]
    """Columns of the guard to what it means that they are false."""
    caveat: Callable[[Sequence[Row]], str]
    """Returns what a reader must know of the tests; "" where there is nothing."""
    ids: Callable[[Sequence[Row]], list[Ids]] = field(default=lambda tests: [])
    """Returns what SQL calls what tests are of, beside the metrics."""
    row_group: Callable[[Row], str] = field(default=lambda row: "")
    """Returns what the row is of beside its name, which is said once where all rows are of one; "" where nothing is."""
    bands_and_p: str = ""
    """Behind a blank, what captions say of intervals and p that need not agree; "" where they do."""


def count(number: int, thing: str) -> str:
    """Return a number of things."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def some(names: Sequence[str], n_shown: int = 5, between: str = ", ") -> str:
    """Return the first of some names, and how many more there are."""
    if len(names) <= n_shown:
        return join(names) if between == ", " else between.join(names)
    return f"{between.join(names[:n_shown])} and {len(names) - n_shown:,} more"


_SAME_SCORING = "scored in another way (scoring.normalization, scoring.eos), which may be all that differs"
_SAME_N_DEMOS = "other numbers of demonstrations; only those of both are compared"
_SAME_SEED = "other seeds in the specs (seed)"


# Label bias


def _label_place_name(row: Row) -> str:
    return f"{method_name(row['method'])}, {count(row['n_demos'], 'demonstration')}"


def _differing_tasks(pair: Row, back: Row) -> str:
    tasks = pair["differing_tasks"]
    return f"left out, with other rows or labels in each: {some(tasks)}" if tasks else ""


def _lacking_tasks(pair: Row, back: Row) -> str:
    tasks = [*pair["lacking_tasks"], *back["lacking_tasks"]]
    return f"left out, in one of the two only: {some(tasks)}" if tasks else ""


def _caveat_of_rows(tests: Sequence[Row]) -> str:
    if all(row["unit"] != "row" for row in tests):
        return ""
    return (
        "With fewer than 6 shared tasks the units of the tests are rows: verdicts are for other rows of these tasks, "
        "and say nothing about other tasks."
    )


_LABEL_BIAS = ComparedKind(
    metrics={**METRICS, "relative_variance": "relative variance", "squared_preference": "squared preference"},
    better_low=frozenset({"rsd", "bias_score", "relative_variance", "squared_preference"}),
    first_metric="rsd",
    place=lambda row: (row["n_demos"], method_order(row["method"])),
    place_name=_label_place_name,
    shown_place=max,
    listed_place=_label_place_name,
    row_name=lambda row: f"{row['task']}, row {row['row']}, set {row['demo_set']}",
    scope=lambda shared: f"{count(shared['n_tasks'], 'task')} with {count(shared['n_rows'], 'row')}",
    lacking=(_differing_tasks, _lacking_tasks),
    not_same={
        "has_same_scoring": _SAME_SCORING,
        "has_same_inputs": "the rows are written otherwise in the prompt (format, instruction or length limit)",
        "has_same_contexts": (
            "other demonstrations or another text before the rows: the draw of them is part of each difference"
        ),
        "has_same_sets": "other demonstration sets; means are over the sets that both have",
        "has_same_bias_score_rows": "the rows of BiasScore differ in some tasks, which BiasScore leaves out",
        "has_same_n_demos": _SAME_N_DEMOS,
        "has_same_methods": "other methods; only those of both are compared",
        "has_same_seed": _SAME_SEED,
    },
    caveat=_caveat_of_rows,
    ids=lambda tests: [ids_of_methods(row["method"] for row in tests)],
)


# Majority-label bias


def _listed_majority_place(row: Row) -> str:
    return f"{way_name(row['predict'], row['method'])}, {count(row['n_demos'], 'demonstration')}"


def _majority_place_name(row: Row) -> str:
    return f"{_listed_majority_place(row)}, {INSTRUCTIONS[row['instruction']]} instruction"


def _majority_row_name(row: Row) -> str:
    instruction = "with" if row["instruction"] else "without"
    return f"row {row['row']}, {row['setting']}, seed {row['seed']}, {instruction} instruction"


_MAJORITY_BIAS = ComparedKind(
    metrics={
        "accuracy": "accuracy",
        "mean_f1": "weighted F1",
        "sd_f1": "std over settings",
        "rb_at_10": "RB@10",
        "tails_f1": "F1 at the tails",
        "middle_f1": "F1 in the middle",
    },
    better_low=frozenset({"sd_f1"}),
    first_metric="mean_f1",
    place=lambda row: (row["n_demos"], way_order(row), list(INSTRUCTIONS).index(row["instruction"])),
    place_name=_majority_place_name,
    shown_place=min,
    listed_place=_listed_majority_place,
    row_name=_majority_row_name,
    scope=lambda shared: count(shared["n_rows"], "test row"),
    lacking=(),
    not_same={
        "has_same_scoring": _SAME_SCORING,
        "has_same_contexts": (
            "other demonstrations or another instruction: the draw of them is part of each difference, and of its error"
        ),
        "has_same_seeds": "other seeds of the demonstrations; each has its mean over its own",
        "has_same_n_demos": _SAME_N_DEMOS,
        "has_same_methods": "other methods or ways of predicting; only those of both are compared",
        "has_same_instructions": "only one has prompts with and without instruction; those of both are compared",
        "has_same_seed": _SAME_SEED,
    },
    caveat=lambda tests: (
        "Verdicts are for other test rows and for other draws of the demonstrations: both must show a difference, and "
        "intervals and detectable differences are of both together. RB@10 is judged over the seeds that both have, six "
        "or more, as a family of its own, and only where other test rows show the same; it is their mean, which is not "
        "the RB@10 of means over seeds below. An interval may leave 0 out where the p of both together is above 5 %."
    ),
    bands_and_p=" An interval over rows and draws may leave out 0 where the p (Holm) does not reach 5 %.",
    ids=lambda tests: ids_of_ways((row["predict"], row["method"]) for row in tests),
)


# Prediction bias of QA models


def _differing_questions(pair: Row, back: Row) -> str:
    number = pair["n_differing"]
    return f"left out: {count(number, 'question')} with the same id and another text" if number else ""


def _lacking_questions(pair: Row, back: Row) -> str:
    number = pair["n_lacking"] + back["n_lacking"]
    return f"left out: {count(number, 'question')} in one of the two only" if number else ""


def _differing_values(pair: Row, back: Row) -> str:
    names = pair["differing_heuristics"]
    return f"other values of {join(names)} (text tools); those of the run first by name are used" if names else ""


def _question_group(row: Row) -> str:
    models = f"{row['other_model']} against {row['model']}" if row["model"] != row["other_model"] else row["model"]
    return f"{row['dataset']}, {models}"


def _caveat_of_gaps(tests: Sequence[Row]) -> str:
    if all(row["metric"] != "gap" for row in tests):
        return ""
    return (
        "Gap: how far apart the exact match of two segments lies, whichever is better, at one threshold for both "
        "models. Where the spec does not fix it, it is chosen by the answers of both together, so that it "
        "favours neither; it may differ from the threshold in each run's report."
    )


_QA_BIAS = ComparedKind(
    metrics={"exact_match": "exact match", "f1": "F1", "gap": "gap"},
    better_low=frozenset({"gap"}),
    first_metric="exact_match",
    place=lambda row: (row["dataset"],),
    place_name=lambda row: str(row["dataset"]),
    shown_place=min,
    listed_place=lambda row: "",
    row_name=lambda row: str(row["example_id"]),
    row_group=_question_group,
    scope=lambda shared: f"{count(shared['n_questions'], 'question')} on {count(shared['n_articles'], 'article')}",
    lacking=(_differing_questions, _lacking_questions, _differing_values),
    not_same={"has_same_variant": "another variant of the measurement (variant)", "has_same_seed": _SAME_SEED},
    caveat=_caveat_of_gaps,
)

COMPARED_KINDS = {"label_bias": _LABEL_BIAS, "majority_bias": _MAJORITY_BIAS, "qa_bias": _QA_BIAS}
"""By ``Compared.kind``."""
