"""What the report tells of the readers that a QA-bias run trained (P3): rows of marts, cells, and sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
from markupsafe import Markup

from biaseval.analysis import open_runs
from biaseval.report.figures import Figure
from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings, heuristic_name
from biaseval.report.summary import join
from biaseval.store import Run

MEAN = "mean"
"""What stands for the mean of the out-of-distribution sets, where a data set could stand."""

BIAS_MODEL = "bias_model"

_N_LISTED = 3
"""Readers that a sentence names of each sort."""

_N_BROKEN_LISTED = 6

_N_MANY = 20
"""Changes of which one is expected to leave 0 out of its 95 % interval by chance."""

_N_OPEN_ROWS = 30
"""Rows of a table that is not folded."""

_NOT_MEASURED = "–"


class Method(NamedTuple):
    """How tables and sentences call a method of training, and what it is."""

    shown: str
    meaning: str


METHODS = {
    "standard": Method(
        "standard", "Trained on the questions as they are; the reader that the others are compared with."
    ),
    "resample": Method(
        "RESAM",
        "Questions of the smaller segment are repeated until both segments are equally large (Mikula et al. 2024).",
    ),
    "learned_mixin": Method(
        "LMIX",
        "LearnedMixin+H: trained together with a bias model whose scores are weighted by a learned factor, with a "
        "penalty on the entropy of what is weighted; the reader answers alone (Clark et al. 2019).",
    ),
    "confidence_regularization": Method(
        "CREG",
        "Confidence regularisation: learns the probabilities of a standard reader, flattened the more the likelier the "
        "bias model finds the label (Utama et al. 2020).",
    ),
    "product_of_experts": Method(
        "PoE",
        "Product of experts: trained on the product of its probabilities and those of a bias model; the reader answers "
        "alone (He et al. 2019, Clark et al. 2019). Not in Mikula et al.",
    ),
    BIAS_MODEL: Method(
        "bias models",
        "Trained on the biased segment alone, and kept at the step where it is better there than elsewhere by most; it "
        "guides other methods and is not measured itself (Mikula et al. 2024).",
    ),
}
"""In the order of tables and figures."""


@dataclass(frozen=True)
class Block:
    """The readers of one base and training set."""

    number: int
    name: str
    """``BASE``, or ``BASE@DATA`` where the study has several training sets."""
    base: str
    data: str
    heuristics: tuple[str, ...]
    """Of the study, in the spec's order."""
    readers: tuple[Row, ...]
    """All of ``trained_models``, bias models too, in the study's order."""

    @property
    def methods(self) -> list[str]:
        """The methods that address a bias and have readers, in the order of `METHODS`."""
        found = {row["method"] for row in self.readers} - {"standard", BIAS_MODEL}
        return [method for method in METHODS if method in found]

    @property
    def seeds(self) -> list[int]:
        """In the study's order."""
        return list(dict.fromkeys(row["seed"] for row in self.readers))

    @property
    def biases(self) -> list[str]:
        """The heuristics that readers address."""
        found = {row["bias"] for row in self.readers if row["method"] in self.methods}
        return [heuristic for heuristic in self.heuristics if heuristic in found]

    def of_method(self, method: str) -> list[Row]:
        """Return its readers that were not given up."""
        return [row for row in self.readers if row["method"] == method and row["problem"] is None]

    def model(self, method: str, bias: str | None, seed: int) -> str:
        """Return the name of a reader; nothing if there is none, or it was given up."""
        for row in self.of_method(method):
            if (row["bias"], row["seed"]) == (bias, seed):
                return str(row["model"])
        return ""


@dataclass(frozen=True)
class QaTraining:
    """All that the report shows of trained readers; scales are the marts': points, and 0 to 1 of data sets."""

    blocks: tuple[Block, ...]
    readers: tuple[Row, ...]
    """``trained_models`` with the costs of ``qa_training_costs``."""
    totals: Row
    """Readers, those given up, seconds and accelerator-hours."""
    debiasing: dict[tuple[str, str, str], Row]
    """(model, data set, heuristic) to the row of ``qa_debiasing``."""
    elsewhere: dict[tuple[str, str], Row]
    """(model, data set) to the row of ``qa_out_of_distribution``; (model, `MEAN`): out of distribution."""
    addressed: dict[tuple[int, str, int, str], Row]
    """(block, method, seed, data set) to the mean significance over the heuristics that its readers address."""
    over_biases: dict[tuple[int, str, int, str], Row]
    """(block, method, seed, data set or `MEAN`) to the mean change of F1 over the biases that its readers address."""
    bias_models: tuple[Row, ...]
    correlations: tuple[Row, ...]
    segments: tuple[Row, ...]
    courses: dict[tuple[int, str], list[Row]]
    """(block, method) to loss and F1 by data set and step: mean, lowest and highest of the readers asked there."""
    roles: dict[str, str]
    """Measured data set to its role."""


def read_qa_training(run: Run, findings: QaFindings) -> QaTraining | None:
    """Return what the report shows of the readers that a run trained; None where it trained none.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    if not run.parts("trained_models"):
        return None
    with closing(open_runs([run.uri])) as connection:
        readers = _rows(connection, _READERS)
        blocks = _blocks(readers, findings.heuristics)
        numbers = {(block.base, block.data): block.number for block in blocks}
        rows = {name: _rows(connection, sql) for name, sql in _QUERIES.items()}

    def place(row: Row) -> tuple[int, str, int, str]:
        return numbers[row["base"], row["data"]], row["method"], row["seed"], row["dataset"]

    courses: dict[tuple[int, str], list[Row]] = {}
    for row in rows["courses"]:
        courses.setdefault((numbers[row["base"], row["data"]], row["method"]), []).append(row)
    return QaTraining(
        blocks=tuple(blocks),
        readers=tuple(readers),
        totals=rows["totals"][0],
        debiasing={(row["model"], row["dataset"], row["heuristic"]): row for row in rows["debiasing"]},
        elsewhere={(row["model"], row["dataset"]): row for row in [*rows["elsewhere"], *rows["elsewhere_means"]]},
        addressed={place(row): row for row in rows["addressed"]},
        over_biases={place(row): row for row in rows["over_biases"]},
        bias_models=tuple(rows["bias_models"]),
        correlations=tuple(rows["correlations"]),
        segments=tuple(rows["segments"]),
        courses=courses,
        roles={row["dataset"]: row["role"] for row in rows["roles"]},
    )


def _blocks(readers: Sequence[Row], heuristics: tuple[str, ...]) -> list[Block]:
    places = dict.fromkeys((row["base"], row["data"]) for row in readers)
    has_several = len({data for _, data in places}) > 1
    return [
        Block(
            number,
            f"{base}@{data}" if has_several else base,
            base,
            data,
            heuristics,
            tuple(row for row in readers if (row["base"], row["data"]) == (base, data)),
        )
        for number, (base, data) in enumerate(places)
    ]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    rows: list[Row] = connection.sql(sql).to_arrow_table().to_pylist()
    return rows


# Names of figures


def bias_suite(block: Block, dataset: str) -> str:
    """Return the ``suite`` of the figure of a block's readers on a data set."""
    return f"debiasing_{block.number}_{slug(block.name, dataset)}"


def given_suite(dataset: str) -> str:
    """Return the ``suite`` of the figure of the spec's models on a data set."""
    return f"debiasing_given_{slug(dataset)}"


def scatter_suite(dataset: str) -> str:
    """Return the ``suite`` of the change of bias on a data set against that of F1 elsewhere."""
    return f"debiasing_elsewhere_{slug(dataset)}"


def course_suite(block: Block, metric: str) -> str:
    """Return the ``suite`` of a metric over a block's training steps."""
    return f"training_{block.number}_{slug(block.name)}_{metric}"


# Cells


def number(value: float | None, digits: int = 2, *, signed: bool = False) -> str:
    """Return a number as tables and sentences have it."""
    if value is None:
        return _NOT_MEASURED
    # Adding 0.0 turns the -0.0 that rounding may leave into 0.0.
    shown = format(round(value, digits) + 0.0, f"{'+' if signed else ''},.{digits}f")
    return shown.replace("-", "\N{MINUS SIGN}")


def estimate(row: Row, column: str, scale: float = 1) -> str:
    """Return a signed change with its interval, if it has one, in words: ``−5.64 [−7.20, −3.90]``."""
    value, low, high = _scaled(row, column, scale)
    shown = number(value, signed=True)
    return (
        shown if low is None or high is None else f"{shown} [{number(low, signed=True)}, {number(high, signed=True)}]"
    )


def change_cell(row: Row | None, column: str, scale: float = 1) -> str:
    """Return a signed change with its interval; bold where the interval excludes 0."""
    if row is None or row[column] is None:
        return _NOT_MEASURED
    value, low, high = _scaled(row, column, scale)
    shown = Markup("<b>{}</b>" if direction(row, column) in ("lower", "higher") else "{}").format(
        number(value, signed=True)
    )
    if low is None or high is None:
        return shown
    return shown + Markup(' <span class="interval">[{}, {}]</span>').format(
        number(low, signed=True), number(high, signed=True)
    )


def direction(row: Row, column: str) -> str:
    """Return ``lower`` or ``higher`` where value and interval say so, else ``unclear``; without them, why not."""
    value, low, high = _scaled(row, column, 1)
    if value is None:
        return "not measured"
    if low is None or high is None:
        return "without an interval"
    if value < 0 and high < 0:
        return "lower"
    return "higher" if value > 0 and low > 0 else "unclear"


def duration(seconds: float | None) -> str:
    """Return a time in the unit that suits it."""
    if seconds is None:
        return _NOT_MEASURED
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} seconds"


def slug(*names: str) -> str:
    """Return names as the part of a file's name, or of an anchor."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(names))


def _scaled(row: Row, column: str, scale: float) -> tuple[float | None, float | None, float | None]:
    value, low, high = (
        None if row.get(name) is None else scale * row[name] for name in (column, f"{column}_low", f"{column}_high")
    )
    return value, low, high


# Sentences


def study(training: QaTraining) -> list[str]:
    """Return what was trained, and what it took."""
    readers = [row for row in training.readers if row["method"] != BIAS_MODEL]
    n_bias_models = len(training.readers) - len(readers)
    bases, data, seeds = (list(dict.fromkeys(row[key] for row in training.readers)) for key in ("base", "data", "seed"))
    methods = [METHODS[method].shown for method in METHODS if any(row["method"] == method for row in readers)]
    biases = [name for name in training.blocks[0].heuristics if any(name in block.biases for block in training.blocks)]
    parts = [
        f"{_plural(len(bases), 'Base', 'Bases')}: {', '.join(bases)}",
        f"training data: {', '.join(data)}",
        f"{_plural(len(methods), 'method', 'methods')}: {', '.join(methods)}",
        *([f"biases that are addressed: {', '.join(map(heuristic_name, biases))}"] if biases else []),
        f"{_plural(len(seeds), 'seed', 'seeds')}: {', '.join(map(str, seeds))}",
    ]
    beside = f", and {n_bias_models} {_plural(n_bias_models, 'bias model', 'bias models')}" if n_bias_models else ""
    totals = training.totals
    given_up = f"{totals['n_given_up']} given up" if totals["n_given_up"] else "none given up"
    devices = (
        join(dict.fromkeys(row["device"] for row in training.readers if row["device"])) if training.readers else ""
    )
    hours = totals["accelerator_hours"]
    return [
        f"{'; '.join(parts)}.",
        f"{len(readers)} {_plural(len(readers), 'reader', 'readers')}{beside}; {given_up}.",
        f"Their optimizer steps took {duration(totals['seconds'])} on {devices}"
        + (f", {number(hours)} accelerator-hours" if hours is not None else "")
        + "; loading, evaluations and answers are not in it.",
    ]


def found(findings: QaFindings, training: QaTraining, block: Block, dataset: str) -> list[str]:
    """Return what a block's readers did to the bias that they address, to the others, and elsewhere."""
    sentences = [_addressed(training, block, dataset, method) for method in block.methods]
    sentences += [_broken(training, block, dataset)]
    sentences += [_not_addressed(training, block, dataset)]
    if findings.out_of_distribution:
        sentences += [_elsewhere(findings, training, block, dataset, method) for method in block.methods]
    return [sentence for sentence in sentences if sentence]


def correlated(training: QaTraining, dataset: str) -> str:
    """Return whether readers that rely less on a shortcut do better elsewhere, over all methods."""
    for row in training.correlations:
        if (row["dataset"], row["method"], row["other_dataset"]) == (dataset, "all", MEAN):
            break
    else:
        return ""
    over = f"Over {row['n_models']} debiased {_plural(row['n_models'], 'reader', 'readers')}"
    if row["pearson"] is None:
        return f"{over}, no correlation can be computed: it needs three readers or more that differ."
    of = (
        f"the correlation of the change of the addressed bias on {dataset} with the change of mean F1 out of "
        f"distribution is {estimate(row, 'pearson')}"
    )
    told = {
        "lower": "readers whose significance fell further tend to be those whose F1 elsewhere rose more or fell less",
        "higher": "readers whose significance fell further tend to be those whose F1 elsewhere rose less or fell more",
        "unclear": "its interval includes 0, so no relation is shown",
        "without an interval": "with so few readers it has no interval, and nothing is shown",
    }[direction(row, "pearson")]
    broken = sum(bool(own["is_nearly_broken"]) for own in training.debiasing.values() if _is_addressed_on(own, dataset))
    with_broken = f" Nearly broken are {broken} of them, which may decide it." if broken else ""
    return f"{over}, {of}: {told}.{with_broken}"


def training_caveats(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return what to know before trusting the comparisons, a sentence each."""
    if not any(block.methods for block in training.blocks):
        return []
    has_one_seed = all(len(block.seeds) == 1 for block in training.blocks)
    seeds = (
        "Each is a single training"
        if has_one_seed
        else "Compare a method’s seeds: an interval holds for one training, not for the method"
    )
    return [
        f"Intervals are over questions (whole articles, the same for both readers), not over trainings. {seeds}; with "
        "another seed a reader comes out otherwise.",
        *_searched(findings, training),
        *_unbiased(findings, training),
        *_tuned(findings, training),
    ]


def reader_name(block: Block, row: Row) -> str:
    """Return the bias that a reader addresses, with its seed where there are several: ``ans-len (seed 2)``."""
    name = heuristic_name(row["bias"]) if row["bias"] else "standard"
    return name if len(block.seeds) == 1 else f"{name} (seed {row['seed']})"


def addressed_rows(training: QaTraining, block: Block, dataset: str, method: str) -> list[Row]:
    """Return the rows of ``qa_debiasing`` of a method's readers on the heuristic that each addresses."""
    found = (training.debiasing.get((own["model"], dataset, own["bias"])) for own in block.of_method(method))
    return [row for row in found if row is not None]


def _searched(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return on which standard readers' predictions thresholds were searched that these readers are measured with."""
    methods = {row["model"]: row["method"] for row in training.readers}
    found = {
        row["searched_on"]
        for (model, _, _), row in findings.by_heuristic.items()
        if model in methods and row["threshold"] is not None and methods.get(row["searched_on"]) == "standard"
    }
    if not found:
        return []
    return [
        f"Thresholds were searched on the predictions of {join(sorted(found))}: that favours the debiased readers, "
        "whose bias is measured where the standard reader’s is largest."
    ]


def _unbiased(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return which standard readers have no significance that a reader could lower."""
    standards = {row["model"]: row["standard"] for row in training.readers}
    found = list(
        dict.fromkeys(
            f"{standards[model]} on {heuristic_name(heuristic)}"
            for (model, dataset, heuristic), row in training.debiasing.items()
            if row["is_addressed"] and row["standard_significance"] == 0 and dataset in findings.in_distribution
        )
    )
    if not found:
        return []
    n_more = len(found) - _N_LISTED
    shown = [*found[:_N_LISTED], f"{n_more} more"] if n_more > 0 else found
    return [f"Where the standard reader’s significance is 0 no reader can lower it: {join(shown)}."]


def _tuned(findings: QaFindings, training: QaTraining) -> list[str]:
    """Return what P3's settings were chosen by, where a set like that is measured."""
    adversarial = [name for name in findings.out_of_distribution if "adversarial" in name.lower()]
    guided = {"learned_mixin", "confidence_regularization"} & {row["method"] for row in training.readers}
    if not adversarial or not guided:
        return []
    return [
        "Mikula et al. chose the scales and the entropy penalty of LMIX and CREG by F1 on AdversarialQA: with their "
        f"values, changes on {join(adversarial)} lean high."
    ]


def _addressed(training: QaTraining, block: Block, dataset: str, method: str) -> str:
    rows = addressed_rows(training, block, dataset, method)
    if not rows:
        return ""
    whole = [row for row in rows if not row["is_nearly_broken"]]
    n_broken = len(rows) - len(whole)
    broken = f" ({'all' if n_broken == len(rows) > 1 else n_broken} nearly broken, see below)" if n_broken else ""
    start = f"{METHODS[method].shown}, {len(rows)} {_plural(len(rows), 'reader', 'readers')}{broken}"
    if not whole:
        return f"{start}."
    told = _by_direction(whole, "significance_change", 1, lambda row: reader_name(block, row))
    return f"{start}: significance of the bias that each addresses, against the standard reader’s: {told}."


def _broken(training: QaTraining, block: Block, dataset: str) -> str:
    rows = [
        row
        for method in block.methods
        for row in addressed_rows(training, block, dataset, method)
        if row["is_nearly_broken"]
    ]
    if not rows:
        return ""
    shown = [
        f"{METHODS[row['method']].shown} on {reader_name(block, row)} ({number(row['worse_high'])} against "
        f"{number(row['standard_worse_high'])})"
        for row in rows[:_N_BROKEN_LISTED]
    ]
    more = len(rows) - len(shown)
    return (
        f"Nearly broken: {join([*shown, f'{more} more'] if more else shown)}. In brackets, the most that the worse "
        "group’s EM reaches, against the standard reader’s; below two thirds of that, a low significance is no success."
    )


def _not_addressed(training: QaTraining, block: Block, dataset: str) -> str:
    models = {row["model"] for row in block.readers if row["method"] in block.methods}
    own = [row for (model, name, _), row in training.debiasing.items() if model in models and name == dataset]
    broken = {row["model"] for row in own if row["is_nearly_broken"]}
    rows = [
        row
        for row in own
        if not row["is_addressed"] and row["significance_change"] is not None and row["model"] not in broken
    ]
    if not rows:
        return ""

    def named(row: Row) -> str:
        return f"{heuristic_name(row['heuristic'])} by {METHODS[row['method']].shown} on {reader_name(block, row)}"

    told = _by_direction(rows, "significance_change", 1, named)
    chance = (
        " Where nothing changes, about one interval in twenty excludes 0 by chance." if len(rows) >= _N_MANY else ""
    )
    return (
        f"Biases that a reader does not address, {len(rows)} {_plural(len(rows), 'change', 'changes')} of significance"
        f"{' (without nearly broken readers)' if broken else ''}: {told}.{chance}"
    )


def _elsewhere(findings: QaFindings, training: QaTraining, block: Block, dataset: str, method: str) -> str:
    rows = [row for own in block.of_method(method) if (row := training.elsewhere.get((own["model"], MEAN)))]
    rows = [row for row in rows if row["f1_change"] is not None]
    if not rows:
        return ""
    sets = findings.out_of_distribution
    over = f"mean F1 of {len(sets)} sets" if len(sets) > 1 else f"F1 on {sets[0]}"
    told = _by_direction(rows, "f1_change", 100, lambda row: reader_name(block, row))
    start = f"{METHODS[method].shown} out of distribution ({over}, points)"
    return f"{start}, {len(rows)} {_plural(len(rows), 'reader', 'readers')}: {told}."


def _by_direction(rows: Sequence[Row], column: str, scale: float, named: Callable[[Row], str]) -> str:
    """Return in how many rows a change is lower, higher, or neither is shown, and the largest of each sort."""
    sorts: dict[str, list[Row]] = {}
    for row in rows:
        sorts.setdefault(direction(row, column), []).append(row)
    parts = []
    for sort, words in _DIRECTIONS.items():
        own = sorted(sorts.get(sort, []), key=lambda row: -abs(row[column] or 0))
        if not own:
            parts += [f"{words} none"] if sort in ("lower", "higher") else []
        elif sort == "unclear" and len(rows) > _N_LISTED:
            parts.append(f"{words} {len(own)}")
        else:
            shown = [f"{named(row)} {estimate(row, column, scale)}" for row in own[:_N_LISTED]]
            shown += [f"{len(own) - _N_LISTED} more"] if len(own) > _N_LISTED else []
            parts.append(f"{words} {len(own)} ({', '.join(shown)})")
    return "; ".join(parts)


_DIRECTIONS = {
    "lower": "lower in",
    "higher": "higher in",
    "unclear": "interval includes 0 in",
    "without an interval": "without an interval in",
    "not measured": "not measured in",
}


def _is_addressed_on(row: Row, dataset: str) -> bool:
    return bool(row["is_addressed"]) and row["dataset"] == dataset


def _plural(count: int, singular: str, plural: str) -> str:
    return singular if count == 1 else plural


# The page


def training_context(
    findings: QaFindings, training: QaTraining | None, figures: Sequence[Figure]
) -> dict[str, Any] | None:
    """Return what the template of the trained readers needs beside the report's own; None without such readers."""
    if training is None:
        return None
    suites: dict[str, list[Figure]] = {}
    for figure in figures:
        suites.setdefault(figure.suite, []).append(figure)
    return {
        "training": training,
        "methods": METHODS,
        "study": study(training),
        "given_up": [row for row in training.readers if row["problem"] is not None],
        "found": [
            (block, dataset, sentences)
            for block in training.blocks
            for dataset in findings.in_distribution
            if (sentences := found(findings, training, block, dataset))
        ],
        "correlated": [sentence for dataset in findings.in_distribution if (sentence := correlated(training, dataset))],
        "caveats": training_caveats(findings, training),
        "figures": suites,
        "sets": [*findings.datasets, *([MEAN] if len(findings.out_of_distribution) > 1 else [])],
        "change": change_cell,
        "number": number,
        "percent": lambda share: number(None if share is None else 100 * share),
        "reader_name": reader_name,
        "addressed_rows": addressed_rows,
        "duration": duration,
        "bias_model": BIAS_MODEL,
        "mean": MEAN,
        "n_open_rows": _N_OPEN_ROWS,
        "bias_suite": bias_suite,
        "given_suite": given_suite,
        "scatter_suite": scatter_suite,
        "course_suite": course_suite,
    }


# Queries

_READERS = """
select
    trained_models.*,
    costs.seconds,
    costs.accelerator_hours,
    costs.n_evaluations
from trained_models
left join qa_training_costs as costs using (model)
order by trained_models.number
"""

_QUERIES = {
    "totals": """
select
    count(problem) as n_given_up,
    sum(seconds order by model) as seconds,
    sum(accelerator_hours order by model) as accelerator_hours
from qa_training_costs
""",
    "debiasing": "from qa_debiasing",
    "elsewhere": "from qa_out_of_distribution",
    # The sets have different questions, so their errors add as those of independent means do.
    "elsewhere_means": """
with

means as (

    select
        model,
        bias,
        seed,
        avg(f1 order by dataset) as f1,
        avg(standard_f1 order by dataset) as standard_f1,
        avg(f1_change order by dataset) as f1_change,
        sqrt(sum(power((f1_change_high - f1_change_low) / 2, 2) order by dataset)) / count(*) as half_width,
        count(f1_change_low) = count(*) as has_interval,
        count(*) as n_datasets
    from qa_out_of_distribution
    where role = 'out_of_distribution'
    group by all

)

select
    model,
    bias,
    seed,
    'mean' as dataset,
    f1,
    standard_f1,
    f1_change,
    if(has_interval, f1_change - half_width, null) as f1_change_low,
    if(has_interval, f1_change + half_width, null) as f1_change_high,
    n_datasets
from means
""",
    "addressed": """
select
    base,
    data,
    method,
    seed,
    dataset,
    avg(bias_significance order by heuristic) as bias_significance,
    avg(worse_high order by heuristic) as worse_high,
    avg(standard_significance order by heuristic) as standard_significance,
    avg(standard_worse_high order by heuristic) as standard_worse_high,
    count(*) as n_heuristics
from qa_debiasing
where is_addressed and significance_change is not null
group by all
""",
    "over_biases": """
with

outcomes as (

    select
        model,
        dataset,
        f1_change
    from qa_out_of_distribution

    union all

    select
        model,
        'mean' as dataset,
        avg(f1_change order by dataset) as f1_change
    from qa_out_of_distribution
    where role = 'out_of_distribution'
    group by model

)

select
    trained_models.base,
    trained_models.data,
    trained_models.method,
    trained_models.seed,
    outcomes.dataset,
    avg(outcomes.f1_change order by trained_models.number) as f1_change,
    count(outcomes.f1_change) as n_biases
from trained_models
inner join outcomes using (model)
where trained_models.bias is not null
group by all
""",
    "bias_models": "from qa_bias_models",
    "correlations": "from qa_debiasing_correlation",
    "segments": "from qa_segments order by base, data, bias",
    # Only readers that were not given up, whose loss is finite.
    "courses": """
select
    trained_models.base,
    trained_models.data,
    trained_models.method,
    evaluations.dataset,
    evaluations.step,
    avg(evaluations.loss order by trained_models.number) as loss,
    min(evaluations.loss) as loss_low,
    max(evaluations.loss) as loss_high,
    avg(evaluations.f1 order by trained_models.number) as f1,
    min(evaluations.f1) as f1_low,
    max(evaluations.f1) as f1_high,
    count(*) as n_readers
from evaluations
inner join trained_models using (model)
where trained_models.problem is null and isfinite(evaluations.loss)
group by all
order by all
""",
    "roles": "select distinct dataset, role from qa_examples",
}
