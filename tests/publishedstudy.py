"""A study as P3 published it, as a run directory: readers, their marts, evaluations and segments, written by hand."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from biaseval.report.blocks import Row
from biaseval.store import Run
from biaseval.tables import EVALUATIONS, QA_SEGMENTS, TRAINED_MODELS, TRAINING
from tests.measuring import measure
from tests.qaplans import QaPlan
from tests.specs import as_older, whole_spec

HEURISTICS = ("word_dist", "sim_word", "ans_pos", "cos_sim", "ans_len", "sim_ents", "subj_pos")
BIASES = ("word_dist", "sim_word", "cos_sim", "ans_len", "sim_ents", "subj_pos")
METHODS = ("standard", "resample", "learned_mixin", "confidence_regularization", "product_of_experts")
OUTSIDE = ("adversarialqa", "naturalquestions", "triviaqa")
THRESHOLDS = dict(zip(HEURISTICS, (7, 3, 0, 0.1, 4, 0, 1), strict=True))

PUBLISHED = {
    # Protocol 11.3: significance and, of the worse segment, the upper bound of exact match; in the order of BIASES.
    "standard": [(8.62, 70.69), (1.04, 77.5), (2.63, 75.44), (12.51, 69.01), (2.48, 78.57), (1.01, 79.19)],
    "resample": [(6.70, 69.25), (0.23, 76.94), (1.99, 73.57), (6.87, 69.75), (1.62, 79.45), (0, 77.44)],
    "learned_mixin": [(0, 38.38), (0.68, 20.88), (0, 21.88), (6.36, 18.52), (2.87, 30.76), (4.41, 24.26)],
    "confidence_regularization": [
        (9.68, 71.63), (1.86, 78.76), (2.43, 76.44), (11.18, 70.89), (2.37, 79.51), (0.24, 79.13)
    ],
    "product_of_experts": [(5.1, 66.2), (0, 74.1), (1.2, 70.3), (7.7, 65.4), (1.9, 74.9), (0.5, 75.2)],
}  # fmt: skip
"""The last are made up: P3 has no product of experts."""

PEOPLE = [(0.30, 81.07), (0.42, 81.5), (0, 84), (0.55, 79.88), (13.55, 69.76), (0.74, 82.51), (0, 83.94)]
"""Protocol 11.2, in the order of HEURISTICS."""

PUBLISHED_F1 = {
    # Protocol 11.6: AdversarialQA, NaturalQuestions, TriviaQA; in the order of BIASES.
    "resample": [
        (0.5, 1.3, 0), (0.3, 0.1, 0.4), (-0.1, 0.3, -1.3), (-0.8, -5.6, -1.7), (1.1, 1.5, 0.3), (-1.6, -0.7, -2.2)
    ],
    "learned_mixin": [
        (-5, -3.4, 7.3), (-15, -34.6, -8.1), (-16, -28.9, -4.2), (-12.2, -24.3, -2.3), (-8.7, -19.5, -0.2),
        (-16.2, -32.3, -7.1),
    ],
    "confidence_regularization": [
        (1.4, 7.5, -0.5), (-0.7, 3.9, 1.4), (-0.3, 7.4, 1.1), (-0.4, 5.5, 2.1), (-1, 5.9, 2), (0, 5.1, 1.6)
    ],
    "product_of_experts": [(0.1, -2.0, 1.0)] * 6,
}  # fmt: skip
STANDARD_F1 = dict(zip(("squad", *OUTSIDE), (0.876, 0.298, 0.678, 0.461), strict=True))

Marts = dict[str, list[Row]]


class Study:
    """Trained readers and their marts in the making."""

    def __init__(
        self,
        bases: Sequence[str] = ("bert-base",),
        methods: Sequence[str] = METHODS,
        biases: Sequence[str] = BIASES,
        seeds: Sequence[int] = (42,),
        outside: Sequence[str] = OUTSIDE,
        heuristics: Sequence[str] = HEURISTICS,
    ) -> None:
        self.heuristics, self.outside, self.biases, self.seeds = heuristics, outside, biases, seeds
        self.n_bases = len(bases)
        self.random = random.Random(0)
        self.readers: list[Row] = []
        self.training: list[Row] = []
        self.evaluations: list[Row] = []
        self.marts: Marts = {name: [] for name in COLUMNS}
        for base in bases:
            for seed in seeds:
                for method in methods:
                    for bias in biases if method != "standard" else (None,):
                        self._add(base, method, bias, seed)
                for bias in biases if {"learned_mixin", "product_of_experts"} & set(methods) else ():
                    self._add(base, "bias_model", bias, seed)

    def _add(self, base: str, method: str, bias: str | None, seed: int) -> None:
        named = f"#{seed}" if len(self.seeds) > 1 else ""
        model = base + ("" if method == "standard" else f"+{method}({bias})") + named
        place = {"model": model, "base": base, "data": "squad", "method": method, "bias": bias, "seed": seed}
        number = len(self.readers)
        steps = 14000 + 2000 * (number % 4)
        facts = {"steps": steps, "best_step": steps - 4001, "problem": None, "n_workers": 2, "device": "NVIDIA H100"}
        standard = None if method in ("standard", "bias_model") else base + named
        path = f"readers/{model}"
        self.readers.append(
            {"number": number, **place, **facts, "standard": standard, "path": path, "n_windows": 88000}
        )
        # Every thousandth of its steps, which take 0.3 seconds each.
        self.training += [
            {"model": model, "step": step, "loss": 1.0, "seconds": 300.0} for step in range(999, steps, 1000)
        ]
        sets = ("squad (biased)", "squad (other)") if method == "bias_model" else ("squad", *self.outside)
        for place_of_set, dataset in enumerate(sets):
            for step in range(999, steps, 1000):
                done = (step + 1) / 20000
                loss = 0.9 + 0.1 * (number % 5) + place_of_set + 1.5 * (1 - done) ** 3 + self.random.uniform(0, 0.05)
                f1 = 0.85 - 0.15 * place_of_set - 0.02 * (number % 5) - 0.4 * (1 - done) ** 3
                row = {
                    "model": model, "step": step, "dataset": dataset, "loss": loss, "exact_match": 0.9 * f1, "f1": f1,
                    "seconds": 30.0,
                }  # fmt: skip
                self.evaluations.append(row)
        if method == "bias_model":
            segments: Row = {"f1_biased": 0.6, "f1_other": 0.2, "f1_difference": 0.4}
            segments |= {"exact_match_biased": 0.39, "exact_match_other": 0.11, "n_biased": 8529, "n_other": 2041}
            own = {name: place[name] for name in ("model", "base", "data", "bias")}
            self.marts["qa_bias_models"].append(
                {**own, "dataset": "squad", "best_step": facts["best_step"], **segments}
            )
        else:
            self._measure(place)

    def _measure(self, place: Row) -> None:
        method, bias = place["method"], place["bias"]
        for heuristic in self.heuristics:
            value, worse = _published("standard", heuristic)
            standard, standard_worse = value, worse
            if method != "standard":
                value, worse = _published(method, heuristic)
                if heuristic != bias:
                    value, worse = max(0.0, standard + self.random.uniform(-1, 1)), standard_worse
            jitter = 0.2 * self.seeds.index(place["seed"])
            row = {"dataset": "squad", "heuristic": heuristic, "is_addressed": bias == heuristic}
            row |= {
                "threshold": float(THRESHOLDS[heuristic]),
                "status": "measured",
                "bias_significance": value + jitter,
            }
            row |= {"worse_high": worse, "gap": value + 5, "exact_match": 80.2, "n_rows": 10570, "n_articles": 48}
            row |= {"n_draws": 1000 if method != "standard" else 0}
            if method != "standard":
                change = value - standard
                row |= {"standard_significance": standard + jitter, "significance_change": change}
                row |= {"significance_change_low": change - 1.5, "significance_change_high": change + 1.5}
                row |= {"standard_worse_high": standard_worse, "worse_high_change": worse - standard_worse}
                row |= {"standard_gap": standard + 5, "gap_change": change, "gap_change_low": change - 2}
                row |= {"gap_change_high": change + 2, "standard_exact_match": 80.2}
                row |= {"is_nearly_broken": worse < 2 / 3 * standard_worse}
                row |= _judged("", change, 1.5, 1.0)
            self.marts["qa_debiasing"].append({**place, **row})
        for number, dataset in enumerate(("squad", *self.outside)):
            role = "out_of_distribution" if number else "in_distribution"
            f1 = STANDARD_F1[dataset]
            row = {
                "dataset": dataset, "role": role, "n_rows": 2356, "n_articles": 300, "f1": f1, "exact_match": 0.8 * f1,
            }  # fmt: skip
            if method != "standard":
                change = PUBLISHED_F1[method][BIASES.index(bias)][OUTSIDE.index(dataset)] / 100 if number else -0.004
                row |= {"standard_f1": f1, "f1_change": change, "f1": f1 + change}
                row |= {"f1_change_low": change - 0.012, "f1_change_high": change + 0.012}
                row |= _judged("f1_", change, 0.012, 0.01)
                self.marts["qa_answer_changes"] += self._of_sets(place["model"], method, bias, row)
            self.marts["qa_out_of_distribution"].append({**place, **row})

    def _of_sets(self, model: str, method: str, bias: str, row: Row) -> list[Row]:
        """Return the row of ``qa_answer_changes`` of F1, and behind the last set that of the mean of those outside."""
        own = {"model": model, "metric": "f1"}
        names = ("p", "p_adjusted", "verdict")
        found = [{**own, "dataset": row["dataset"], **{name: row[f"f1_{name}"] for name in names}}]
        if self.outside and row["dataset"] == self.outside[-1]:
            changes = [PUBLISHED_F1[method][BIASES.index(bias)][OUTSIDE.index(name)] / 100 for name in self.outside]
            judged = _judged("", sum(changes) / len(changes), 0.012 / len(changes) ** 0.5, 0.01)
            found.append({**own, "dataset": "mean", **judged})
        return found

    def correlation(self, method: str, other: str, n: int, *numbers: float | None) -> None:
        """Add one, with Pearson's, its bounds and Spearman's."""
        names = ("pearson", "pearson_low", "pearson_high", "spearman")
        place = {"dataset": "squad", "method": method, "other_dataset": other, "n_models": n}
        self.marts["qa_debiasing_correlation"].append(place | dict(zip(names, numbers, strict=True)))

    def row(self, model: str, heuristic: str) -> Row:
        """Return the row of ``qa_debiasing``, which may be changed."""
        [row] = [row for row in self.marts["qa_debiasing"] if (row["model"], row["heuristic"]) == (model, heuristic)]
        return row

    def give_up(self, model: str, problem: str) -> None:
        """Take a reader's results away."""
        for row in self.readers:
            if row["model"] == model:
                row |= {"problem": problem, "path": None, "best_step": None}
        for name in ("qa_debiasing", "qa_out_of_distribution", "qa_answer_changes", "qa_bias_models"):
            self.marts[name] = [row for row in self.marts[name] if row["model"] != model]

    def write(self, folder: Path, models: Sequence[Row] = ({"name": "people", "annotators": True},)) -> Run:
        """Return a run that has measured its spec's models, and these readers."""
        run = as_older(measured_run(folder, models, self.heuristics, self.outside).uri)
        biases = pq.read_table(f"{run.root}/marts/qa_bias_by_heuristic.parquet")
        changed = [
            row | {"bias_significance": value + 0.3 * number, "worse_high": worse}
            for row in biases.to_pylist()
            for number, model in enumerate(models)
            for value, worse in [PEOPLE[HEURISTICS.index(row["heuristic"])]]
            if row["model"] == model["name"]
        ]
        run.write_table("marts/qa_bias_by_heuristic.parquet", pa.Table.from_pylist(changed, schema=biases.schema))
        for name, own in self.marts.items():
            schema = pq.read_schema(f"{run.root}/marts/{name}.parquet")
            assert set(schema.names) == set(COLUMNS[name]), name
            run.write_table(f"marts/{name}.parquet", pa.Table.from_pylist(own, schema=schema))
        run.write_part("trained_models", 0, TRAINED_MODELS.rows(self.readers))
        run.write_part("training", 0, TRAINING.rows(self.training))
        run.write_part("evaluations", 0, EVALUATIONS.rows(self.evaluations))
        for name in COMPUTED:
            Path(run.root, "marts", f"{name}.parquet").unlink()
        bases = dict.fromkeys((row["base"], row["data"]) for row in self.readers)
        segments = [
            {"base": base, "data": data, "bias": bias, "threshold": THRESHOLDS[bias], "source": "published"}
            | {"biased_segment": "lower", "n_lower": 70000, "n_higher": 17000, "n_undefined": 599, "n_biased": 70000}
            for base, data in bases
            for bias in self.biases
        ]
        run.write_part("qa_segments", 0, QA_SEGMENTS.rows(segments))
        return run


def _judged(prefix: str, change: float, half: float, least: float) -> Row:
    """Return what a test says of a change whose interval reaches so far, and whose band one and a half times."""
    is_shown = abs(change) > 1.5 * half and abs(change) >= least
    word = ("lower" if change < 0 else "higher") if is_shown else "unclear"
    return {f"{prefix}p": 0.001, f"{prefix}p_adjusted": 0.01 if is_shown else 0.8, f"{prefix}verdict": word}


def _published(method: str, heuristic: str) -> tuple[float, float]:
    return PUBLISHED[method][BIASES.index(heuristic)] if heuristic in BIASES else (0.0, 82.19)


_PLACE = ("model", "base", "data", "method", "bias", "seed")
COLUMNS = {
    "qa_debiasing": (
        *_PLACE, "dataset", "heuristic", "is_addressed", "threshold", "status", "bias_significance",
        "standard_significance", "significance_change", "significance_change_low", "significance_change_high",
        "worse_high", "standard_worse_high", "worse_high_change", "gap", "standard_gap", "gap_change", "gap_change_low",
        "gap_change_high", "exact_match", "standard_exact_match", "is_nearly_broken", "n_rows", "n_articles", "n_draws",
        "expected_change", "significance_error", "p", "p_adjusted", "simultaneous_low", "simultaneous_high", "verdict",
        "searched_on", "reason",
    ),
    "qa_out_of_distribution": (
        *_PLACE, "dataset", "role", "f1", "exact_match", "standard_f1", "standard_exact_match", "f1_change",
        "f1_change_low", "f1_change_high", "exact_match_change", "exact_match_change_low", "exact_match_change_high",
        "n_rows", "n_articles", "f1_p", "f1_p_adjusted", "f1_verdict", "exact_match_p", "exact_match_p_adjusted",
        "exact_match_verdict",
    ),
    "qa_answer_changes": (
        "model", "dataset", "metric", "estimate", "n_units", "standard_error", "low", "high", "p", "p_adjusted",
        "simultaneous_low", "simultaneous_high", "smallest_detectable", "verdict",
    ),
    "qa_bias_models": (
        "model", "base", "data", "bias", "dataset", "best_step", "f1_biased", "f1_other", "f1_difference",
        "exact_match_biased", "exact_match_other", "n_biased", "n_other",
    ),
    "qa_debiasing_correlation": (
        "dataset", "method", "other_dataset", "n_models", "pearson", "pearson_low", "pearson_high", "spearman",
    ),
}  # fmt: skip
"""What the pages read; a mart that has others fails here."""

COMPUTED = (
    "qa_debiasing_by_method", "qa_out_of_distribution_by_model", "qa_out_of_distribution_by_method",
    "qa_training_curves", "qa_bias_conclusions", "qa_bias_cautions",
)  # fmt: skip
"""Marts that are computed from the others and from tables when the page is read, as those of an older run are."""


def measured_run(folder: Path, models: Sequence[Row], heuristics: Sequence[str], outside: Sequence[str]) -> Run:
    n = 20
    datasets = {
        "in_distribution": {"squad": "squad.json"},
        "out_of_distribution": {name: f"{name}.json" for name in outside},
    }
    plan = QaPlan(
        datasets=datasets, heuristics=[*heuristics], thresholds=dict.fromkeys(heuristics, 1.0),
        bootstrap={"trials": 5, "sample": 10},
    )  # fmt: skip
    plan.spec = whole_spec({**plan.spec, "models": [*models]})
    values: dict[str, Sequence[float | None]] = {name: [1.0, 3.0] * (n // 2) for name in heuristics}
    for dataset in ("squad", *outside):
        plan.questions(values, dataset)
        for model in models:
            plan.answers([1.0, 0.0] * (n // 2), model=model["name"], dataset=dataset)
    for example in plan.examples:
        example |= {"answers": ["answer"], "answer_starts": [0], "context": "answer"}
    uri = plan.write(folder)
    measure(uri, has_database=True)
    return Run.open(uri)
