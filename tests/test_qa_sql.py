"""QA prediction bias by SQL: the macros, the published code's values, marts and checks on runs done by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy import stats  # type: ignore[import-untyped]

from biaseval.analysis import open_runs, qa_draws, query, relations
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import analyse_run
from biaseval.store import Run
from biaseval.tables import QA_ATTRIBUTES, QA_EXAMPLES, QA_PREDICTIONS
from tests.measuring import measure
from tests.specs import whole_spec, write_plan, write_spec
from tests.test_analysis import names_of, two_tasks, views_of

Rows = list[dict[str, Any]]

HEURISTIC_COLUMNS = {
    "similar_words": "sim_word",
    "distances": "word_dist",
    "kth_sentence": "ans_pos",
    "cosine_similarity": "cos_sim",
    "answer_length": "ans_len",
    "max_sim_ents": "sim_ents",
    "answer_subject_positions": "subj_pos",
}
"""The golden tables' names to ours."""


class QaPlan:
    """The rows of a run in the making: questions with attributes, and each model's exact match and F1 on them."""

    def __init__(self, models: Sequence[str] = ("bert",), **spec: Any) -> None:
        content = {
            "kind": "qa_bias",
            "models": [{"name": model, "path": model} for model in models],
            "bootstrap": {"trials": 20, "sample": 10},
            "heuristics": ["ans_len"],
        }
        self.spec = whole_spec(content | spec)
        self.examples: Rows = []
        self.attributes: Rows = []
        self.predictions: Rows = []

    def questions(self, values: dict[str, Sequence[float | None]], dataset: str = "squad") -> None:
        """Add questions with these values by heuristic; None is undefined."""
        for row in range(len(next(iter(values.values())))):
            place = {"dataset": dataset, "example_id": f"q{row}"}
            role = "in_distribution" if dataset in self.spec["datasets"]["in_distribution"] else "out_of_distribution"
            self.examples.append({**place, "row": row, "role": role, "question": "?", "context": f"c{row}"})
            for heuristic, column in values.items():
                value = column[row]
                attribute = {"value": -1.0 if value is None else float(value), "is_measured": value is not None}
                self.attributes.append({**place, "heuristic": heuristic, **attribute})

    def answers(
        self,
        exact_match: Sequence[float | None],
        f1: Sequence[float | None] | None = None,
        model: str = "bert",
        dataset: str = "squad",
    ) -> None:
        """Add a model's metrics for the questions in order; None is a question without a prediction."""
        for row, (em, overlap) in enumerate(zip(exact_match, f1 or exact_match, strict=True)):
            if em is not None:
                place = {"model": model, "dataset": dataset, "example_id": f"q{row}", "prediction": f"p{row}"}
                self.predictions.append({**place, "exact_match": float(em), "f1": None if overlap is None else overlap})

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        for part in range(n_parts):
            run.write_part("qa_examples", part, QA_EXAMPLES.rows(self.examples[part::n_parts]))
            run.write_part("qa_attributes", part, QA_ATTRIBUTES.rows(self.attributes[part::n_parts]))
            for number, model in enumerate(self.spec["models"]):
                own = [row for row in self.predictions if row["model"] == model["name"]]
                run.write_part("qa_predictions", number * n_parts + part, QA_PREDICTIONS.rows(own[part::n_parts]))
        write_plan(run)
        return run.uri


def rows(run: str, sql: str) -> Rows:
    result: Rows = query([run], sql).to_pylist()
    return result


# The macros


def _ask(sql: str, *parameters: Any) -> Any:
    """Return what DuckDB answers with nothing but the macros: a value, or a row of several."""
    with closing(duckdb.connect()) as connection:
        for macro in sorted(relations.ANALYTICS.glob("macros/*.sql")):
            connection.execute(macro.read_text()).fetchall()
        [answer] = connection.execute(f"select {sql}", parameters).fetchall()
    return answer[0] if len(answer) == 1 else answer


def test_the_distance_of_intervals_equals_the_published_codes(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["interval_distance"]
    bounds = [[case[f"{side}_{q}"] for side in ("lower", "higher") for q in ("q025", "q975")] for case in cases]
    sql = "list_transform(?::double[][], lambda x: interval_distance([x[1], x[2]], [x[3], x[4]]))"
    assert len(cases) == 200
    assert _ask(sql, bounds) == [case["distance"] for case in cases]


Interval = tuple[float, float]


@pytest.mark.parametrize(
    ("lower", "higher", "distance"),
    [
        # Protocol 11.1: exact match, then F1.
        ((79.56, 84.95), (66.81, 70.76), 8.80),
        ((74.06, 78.88), (79.05, 84.63), 0.17),
        ((81.75, 86.45), (67.37, 73.07), 8.68),
        ((73.38, 75.38), (77.93, 83.50), 2.56),
        ((78.81, 83.76), (77.31, 82.00), 0),
        ((73.50, 79.89), (82.13, 86.07), 2.24),
        ((79.43, 84.20), (74.31, 78.63), 0.80),
        ((87.77, 91.40), (76.23, 79.45), 8.32),
        ((82.98, 86.78), (86.66, 90.46), 0),
        ((86.95, 90.57), (82.17, 85.50), 1.45),
        ((82.32, 84.03), (86.22, 89.89), 2.19),
        ((85.99, 89.57), (85.29, 89.37), 0),
        ((83.13, 87.00), (88.40, 91.74), 1.39),
        ((87.21, 90.15), (84.04, 86.81), 0.40),
    ],
)
def test_published_intervals_have_the_published_distances(lower: Interval, higher: Interval, distance: float) -> None:
    for pair in ([list(lower), list(higher)], [list(higher), list(lower)]):
        assert _ask("interval_distance(?::double[], ?::double[])", *pair) == pytest.approx(distance, abs=0.0101)


def test_intervals_that_touch_are_not_apart() -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in doubles.
    assert _ask("interval_distance([0.1::double, 0.3], [0.1::double + 0.2::double, 0.5])") == 0
    assert _ask("interval_distance([0.1, 0.3], [0.31, 0.5])") == pytest.approx(0.01)
    assert _ask("interval_distance([0.1, null], [0.31, 0.5])") is None
    assert _ask("interval_distance(null::double[], [0.31, 0.5])") is None


def test_bias_significance_of_lists_of_trials() -> None:
    rng = np.random.default_rng(0)
    sql = "bias_significance(?::double[], ?::double[])"
    for shift in (0.0, 0.05, 0.2):
        lower, higher = rng.normal(0.6, 0.02, size=100), rng.normal(0.6 + shift, 0.03, size=100)
        low, high = np.quantile([lower, higher], [0.025, 0.975], axis=1)
        expected = max(0, low[1] - high[0], low[0] - high[1])
        for pair in ([lower.tolist(), higher.tolist()], [higher.tolist(), lower.tolist()]):
            assert _ask(sql, *pair) == pytest.approx(expected, abs=1e-12)
    assert expected > 0.05
    assert _ask(sql, [1], [3]) == 2
    assert _ask(sql, [], [1]) is None


Candidate = tuple[float, float | None, int, int]
"""A threshold, its distance (None where not measured), and the sizes of its segments."""


def _choose(rule: str, tables: Sequence[Sequence[Candidate]], sample: int) -> list[float | None]:
    """Return the thresholds that SQL chooses from several tables of candidates."""
    names = ("threshold", "distance", "n_lower", "n_higher")
    given = [[dict(zip(names, candidate, strict=True)) for candidate in table] for table in tables]
    type_ = "struct(threshold double, distance double, n_lower bigint, n_higher bigint)[][]"
    sql = f"list({rule}_threshold(candidates, ?) order by number) from (select unnest(?::{type_}) as candidates, "
    chosen: list[float | None] = _ask(
        f"{sql} generate_subscripts(?, 1) as number)", sample, given, [*range(len(given))]
    )
    return chosen


def _paper_rule(candidates: Sequence[Candidate], sample: int) -> float | None:
    """Protocol section 5, the proposal: the paper's words."""
    for n_least in (2 * sample, sample):
        significant = [
            (round(distance, 9), -threshold)
            for threshold, distance, *sizes in candidates
            if distance is not None and distance > 0 and min(sizes) >= n_least
        ]
        if significant:
            return -max(significant)[1]
    return None


def _reference_rule(candidates: Sequence[Candidate], sample: int) -> float | None:
    """Protocol section 5: the code, going through the candidates."""
    best, best_distance, smaller = None, -1.0, 0
    for threshold, distance, *sizes in candidates:
        if distance is None:
            continue
        is_large = min(sizes) > 2 * sample
        if best is None:
            replaces = distance > 0
        else:
            replaces = is_large and (distance > best_distance or (distance > 0 and smaller < 2 * sample))
        if replaces:
            best, best_distance, smaller = threshold, distance, min(sizes)
    return best


def test_thresholds_are_chosen_as_by_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/qa/significance_cases.json").read_text())["best_threshold"]
    assert len(cases) == 300
    assert {case["sample_size"] for case in cases} == {800}
    expected = [None if case["best_threshold"] == -1 else case["best_threshold"] for case in cases]
    tables = [
        [
            (float(threshold), None if values[0] == -1 else float(values[0]), values[2], values[3])
            for threshold, values in zip(case["thresholds"], case["values"], strict=True)
        ]
        for case in cases
    ]
    assert [_reference_rule(table, 800) for table in tables] == expected
    assert _choose("reference", tables, 800) == expected
    chosen = _choose("paper", tables, 800)
    assert chosen == [_paper_rule(table, 800) for table in tables]
    assert sum(ours != theirs for ours, theirs in zip(chosen, expected, strict=True)) == 36


@pytest.mark.parametrize(
    ("candidates", "paper", "reference"),
    [
        ([], None, None),
        ([(0, None, 900, 900)], None, None),
        ([(0, 0, 2000, 2000)], None, None),
        # The first significant one is taken however small, and replaced by a large one that is less significant.
        ([(0, 5, 900, 9000), (1, 2, 2000, 7000)], 1, 1),
        ([(0, 2, 900, 9000), (1, 5, 1000, 9000)], 1, 0),
        # Twice the sample: at least in the text, more in the code.
        ([(0, 2, 900, 9000), (1, 1, 1600, 9000)], 1, 0),
        ([(0, 1, 1600, 9000), (1, 2, 1600, 9000)], 1, 0),
        ([(0, 1, 1600, 9000), (1, 0.5, 1601, 9000)], 0, 0),
        ([(0, 1, 1599, 9000), (1, 0.5, 1601, 9000)], 1, 1),
        # The smallest on ties, also within rounding.
        ([(0, 3, 2000, 2000), (1, 3, 3000, 3000)], 0, 0),
        ([(0, 3, 2000, 2000), (1, 3 + 1e-12, 3000, 3000)], 0, 0),
        ([(0, 3, 2000, 2000), (1, None, 10, 3990), (2, 4, 3000, 3000)], 2, 2),
    ],
)
def test_both_rules_by_hand(candidates: list[Candidate], paper: float | None, reference: float | None) -> None:
    assert _choose("paper", [candidates], 800) == [paper]
    assert _choose("reference", [candidates], 800) == [reference]


def test_wilson_intervals_by_hand() -> None:
    """5 of 10: (0.5 + z²/20 ∓ z sqrt(0.025 + z²/400)) / (1 + z²/10), z² = 3.8415."""
    assert _ask("wilson_interval(0.5, 10)") == pytest.approx([0.23659, 0.76341], abs=1e-5)
    assert _ask("wilson_interval(0, 10)") == pytest.approx([0, 0.27753], abs=1e-5)
    assert _ask("wilson_interval(1, 1)") == pytest.approx([0.20654, 1], abs=1e-5)
    assert _ask("wilson_interval(null, 5), wilson_interval(0.5, 0)") == (None, None)


# The published code's values

N_SEEDS = 20
METRICS = {
    "bias_significance": "distance_em",
    "bias_significance_f1": "distance_f1",
    **{
        f"{side}_{ours}{suffix}": f"{side}_{metric}_{theirs}"
        for side in ("lower", "higher")
        for suffix, metric in (("", "em"), ("_f1", "f1"))
        for ours, theirs in (("low", "q025"), ("high", "q975"), ("mean", "mean"))
    },
}
"""The marts' columns to those of the golden table."""


@pytest.fixture(scope="module")
def golden_run(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run over the golden questions, as `N_SEEDS` data sets, which have other draws each."""
    questions = pq.read_table(shared / "golden/qa/significance_text_table.parquet")
    datasets = {f"draws-{number}": "squad.json" for number in range(N_SEEDS)}
    plan = QaPlan(
        variant="reference",
        heuristics=list(HEURISTIC_COLUMNS.values()),
        bootstrap={"trials": 100, "sample": 200},
        datasets={"in_distribution": datasets},
    )
    run = Run.open(str(tmp_path_factory.mktemp("golden")))
    write_spec(run, plan.spec)
    n_rows = questions.num_rows
    for part, dataset in enumerate(datasets):
        place = {"dataset": pa.repeat(dataset, n_rows), "example_id": questions["id"].cast(pa.string())}
        row = pa.array(range(n_rows), pa.int32())
        role = pa.repeat("in_distribution", n_rows)
        texts = {"title": pa.repeat("t", n_rows), "context": pa.repeat("c", n_rows)}
        run.write_part("qa_examples", part, pa.table(place | {"row": row, "role": role} | texts))
        attributes = []
        for column, heuristic in HEURISTIC_COLUMNS.items():
            value = questions[column].to_numpy().astype(float)
            is_measured = value >= 0 if heuristic in ("word_dist", "subj_pos") else np.full(n_rows, True)
            attribute = {"value": value, "is_measured": is_measured}
            attributes.append(pa.table(place | {"heuristic": pa.repeat(heuristic, n_rows)} | attribute))
        run.write_part("qa_attributes", part, pa.concat_tables(attributes))
        metrics = {name: questions[name].cast(pa.float64()) for name in ("exact_match", "f1")}
        run.write_part(
            "qa_predictions",
            part,
            pa.table({"model": pa.repeat("bert", n_rows)} | place | {"prediction": place["example_id"]} | metrics),
        )
    write_plan(run)
    measure(run.uri)
    return run.uri


@pytest.fixture(scope="module")
def golden(shared: Path) -> dict[tuple[str, float], dict[str, Any]]:
    """Return the golden row of each heuristic and candidate threshold."""
    expected = pq.read_table(shared / "golden/qa/significance_expected.parquet").to_pylist()
    assert {row["sample_size"] for row in expected} == {200}
    return {(HEURISTIC_COLUMNS[row["heuristic"]], row["threshold"]): row for row in expected}


Golden = dict[tuple[str, float], dict[str, Any]]


def test_candidates_and_their_segments_equal_the_published_codes(golden_run: str, golden: Golden) -> None:
    found = rows(golden_run, "from qa_bias_candidates where dataset = 'draws-0'")
    assert {(row["heuristic"], row["threshold"]) for row in found} == golden.keys()
    for row in found:
        expected = golden[row["heuristic"], row["threshold"]]
        assert (row["n_lower"], row["n_higher"]) == (expected["n_lower"], expected["n_higher"])
        assert row["is_measured"] == expected["valid"]
        assert row["n_trials"] == (100 if expected["valid"] else None)
        for name in METRICS:
            assert (row[name] is not None) == expected["valid"], name


def test_one_run_is_as_near_to_the_published_code_as_its_own_seeds_are(golden_run: str, golden: Golden) -> None:
    found = rows(golden_run, "from qa_bias_candidates where dataset = 'draws-0' and is_measured")
    assert len(found) == 34
    for row in found:
        expected = golden[row["heuristic"], row["threshold"]]
        for ours, theirs in METRICS.items():
            distance = abs(row[ours] - expected[f"mean50_{theirs}"])
            assert distance <= expected[f"tolerance_single_run_{theirs}"], (row["heuristic"], row["threshold"], ours)


def test_the_mean_over_seeds_is_the_published_codes_and_that_of_sampling_theory(
    golden_run: str, golden: Golden
) -> None:
    means = ", ".join(f"avg({name}) as {name}" for name in METRICS)
    found = rows(
        golden_run,
        f"select heuristic, threshold, {means}, count(*) as n from qa_bias_candidates where is_measured group by all",
    )
    assert len(found) == 34
    for row in found:
        expected = golden[row["heuristic"], row["threshold"]]
        assert row["n"] == N_SEEDS
        for ours, theirs in METRICS.items():
            tolerance = 4 * expected[f"sd50_{theirs}"] * (1 / N_SEEDS + 1 / 50) ** 0.5 + 0.02
            place = (row["heuristic"], row["threshold"], ours)
            assert abs(row[ours] - expected[f"mean50_{theirs}"]) <= tolerance, place
            if "distance" not in theirs:
                # The golden means of 50 runs are themselves up to 0.35 (quantiles) and 0.12 away.
                tolerance = max(
                    0.12 if theirs.endswith("mean") else 0.35, 4 * expected[f"sd50_{theirs}"] / N_SEEDS**0.5
                )
                assert row[ours] == pytest.approx(expected[f"analytic_{theirs}"], abs=tolerance), place


def test_each_data_sets_threshold_follows_the_codes_rule(golden_run: str) -> None:
    candidates: dict[tuple[str, str], list[Candidate]] = {}
    for row in rows(golden_run, "from qa_bias_candidates order by threshold"):
        # Means over 200 questions are multiples of 0.5, and so their distances may tie but for rounding.
        distance = None if row["bias_significance"] is None else round(row["bias_significance"], 9)
        candidate = (row["threshold"], distance, row["n_lower"], row["n_higher"])
        candidates.setdefault((row["dataset"], row["heuristic"]), []).append(candidate)
    found = rows(golden_run, "from qa_bias_by_heuristic")
    assert len(found) == N_SEEDS * 7
    for row in found:
        own = candidates[row["dataset"], row["heuristic"]]
        assert row["threshold"] == _reference_rule(own, 200)
        distances = {threshold: distance for threshold, distance, *_ in own}
        distance = 0 if row["threshold"] is None else distances[row["threshold"]]
        assert row["bias_significance"] == pytest.approx(distance, abs=1e-9)
        assert row["status"] == ("not significant" if row["threshold"] is None else "measured")
        assert row["n_unmeasured"] == {"word_dist": 86, "subj_pos": 673}.get(row["heuristic"], 0)
    assert {row["status"] for row in found} == {"measured", "not significant"}


# The marts, by hand

VALUES = [1] * 10 + [3] * 10
RIGHT = [1] * 8 + [0] * 2 + [1] * 5 + [0] * 5
OVERLAP = [1.0] * 9 + [0.0] + [1.0] * 5 + [0.5] * 5
"""Two segments of just the sample: each trial holds all of one, and has its mean. 80 % and 50 % exact, F1 90 and 75."""


def two_segments(**spec: Any) -> QaPlan:
    plan = QaPlan(**spec)
    plan.questions({"ans_len": [*VALUES, None, None, None]})
    plan.answers([*RIGHT, 1, 0, 0], [*OVERLAP, 1.0, 0.0, 0.0])
    return plan


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = two_segments().write(tmp_path_factory.mktemp("runs") / "squad")
    analyse_run(run)
    return run


def _welch(lower: Sequence[float], higher: Sequence[float]) -> list[float]:
    """Return the difference with its interval by Student's t, with the degrees of freedom of the smaller segment."""
    difference = np.mean(lower) - np.mean(higher)
    error = np.sqrt(np.var(lower, ddof=1) / len(lower) + np.var(higher, ddof=1) / len(higher))
    quantile = stats.t.ppf(0.975, min(len(lower), len(higher)) - 1)
    return [100 * float(difference + t * error) for t in (0, -quantile, quantile)]


def test_a_heuristic_by_hand(built: str) -> None:
    [row] = rows(built, "from qa_bias_by_heuristic")
    exact = dict(zip(("difference", "difference_low", "difference_high"), _welch(RIGHT[:10], RIGHT[10:]), strict=True))
    overlap = _welch(OVERLAP[:10], OVERLAP[10:])
    assert row == {
        "model": "bert",
        "dataset": "squad",
        "heuristic": "ans_len",
        "threshold": 1.0,  # 2 has the same segments: the smaller is kept
        "status": "measured",
        "searched_on": "bert",
        "n_lower": 10,
        "n_higher": 10,
        "n_unmeasured": 3,
        "n_rows": 23,
        "is_large": False,
        "bias_significance": pytest.approx(30),
        "biased_segment": "lower",
        **dict.fromkeys(("lower_low", "lower_high", "lower_mean"), pytest.approx(80)),
        **dict.fromkeys(("higher_low", "higher_high", "higher_mean", "worse_high"), pytest.approx(50)),
        "lower_exact_match": pytest.approx(80),
        "higher_exact_match": pytest.approx(50),
        **{name: pytest.approx(value) for name, value in exact.items()},
        "bias_significance_f1": pytest.approx(15),
        **dict.fromkeys(("lower_low_f1", "lower_high_f1", "lower_mean_f1"), pytest.approx(90)),
        **dict.fromkeys(("higher_low_f1", "higher_high_f1", "higher_mean_f1", "worse_high_f1"), pytest.approx(75)),
        "lower_f1": pytest.approx(90),
        "higher_f1": pytest.approx(75),
        "difference_f1": pytest.approx(overlap[0]),
        "difference_low_f1": pytest.approx(overlap[1]),
        "difference_high_f1": pytest.approx(overlap[2]),
        "n_trials": 20,
        "n_tried": 2,  # 1 and 2
        "n_tried_measured": 2,
        "n_articles": 20,  # of questions with a value; each is its own
    }
    assert exact["difference_low"] < 0 < exact["difference"]  # 20 questions show nothing


def test_a_data_set_by_hand(built: str) -> None:
    [row] = rows(built, "from qa_by_dataset")
    overlap = [*OVERLAP, 1.0, 0.0, 0.0]
    error = np.std(overlap, ddof=1) / np.sqrt(23)
    half_width = stats.t.ppf(0.975, 22) * error
    low, high = _ask("wilson_interval(14 / 23, 23)")
    assert row == {
        "model": "bert",
        "dataset": "squad",
        "role": "in_distribution",
        "exact_match": pytest.approx(14 / 23),
        "exact_match_low": pytest.approx(low),
        "exact_match_high": pytest.approx(high),
        "f1": pytest.approx(17.5 / 23),
        "f1_low": pytest.approx(17.5 / 23 - half_width),
        "f1_high": pytest.approx(17.5 / 23 + half_width),
        "n_rows": 23,
        "n_missing": 0,
        "n_articles": 23,
        "exact_match_error": pytest.approx(np.sqrt(14 / 23 * 9 / 23 / 22)),
        "f1_error": pytest.approx(error),
        "share_most_frequent": pytest.approx(1 / 23),
        "is_constant": False,
    }


@pytest.mark.parametrize(("n_same", "text", "is_constant"), [(19, "p", False), (20, "p", True), (20, "", True)])
def test_a_model_whose_answers_are_the_same_is_constant(
    tmp_path: Path, n_same: int, text: str, is_constant: bool
) -> None:
    """Above 95 % of 20 questions are all of them; an empty answer is one like others."""
    plan = QaPlan()
    plan.questions({"ans_len": VALUES})
    plan.answers(RIGHT)
    for row in plan.predictions[:n_same]:
        row["prediction"] = text
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_dataset")
    assert (row["share_most_frequent"], row["is_constant"]) == (pytest.approx(n_same / 20), is_constant)


def test_a_models_average_is_over_the_heuristics_that_can_be_measured(tmp_path: Path) -> None:
    """Exact are 8 and 4 of 10 with short and long answers, 6 of 10 with few and with many words in common."""
    plan = QaPlan(heuristics=["ans_len", "sim_word", "word_dist"])
    values: dict[str, Sequence[float | None]] = {
        "ans_len": VALUES,
        "sim_word": [1] * 6 + [2] * 2 + [1] * 2 + [2] * 4 + [1] * 2 + [2] * 4,
        "word_dist": [None] * 20,
    }
    plan.questions(values)
    exact = [1] * 8 + [0] * 2 + [1] * 4 + [0] * 6
    plan.answers(exact, [(one + 1) / 2 for one in exact])
    run = plan.write(tmp_path)
    measure(run)
    status = {row["heuristic"]: row["status"] for row in rows(run, "from qa_bias_by_heuristic")}
    assert status == {"ans_len": "measured", "sim_word": "not significant", "word_dist": "no threshold to try"}
    [found] = rows(run, "from qa_by_model")
    assert 0 <= found["bias_significance_low"] < 20 < found["bias_significance_high"] <= 50
    [noise] = rows(run, "select avg(significance) as mean from qa_search_nulls where draw > 0")[0].values()
    assert [found] == [
        {
            "model": "bert",
            "dataset": "squad",
            "bias_significance": pytest.approx((40 + 0) / 2),
            "worse_high": pytest.approx(40),
            "bias_significance_f1": pytest.approx(20),  # sim_word has no threshold, at which F1 could be measured
            "worse_high_f1": pytest.approx(70),
            "measurable": ["ans_len", "sim_word"],
            "n_heuristics": 3,
            "n_measurable": 2,
            "n_with_groups": 1,
            "n_significant": 0,  # of twenty questions
            "n_rows": 20,
            "bias_significance_low": found["bias_significance_low"],
            "bias_significance_high": found["bias_significance_high"],
            "bias_significance_null": pytest.approx(noise),
            "n_measurable_f1": 1,
            "n_draws": 1000,
        }
    ]


def test_a_model_without_a_measurable_heuristic_has_no_average(tmp_path: Path) -> None:
    plan = QaPlan()
    plan.questions({"ans_len": [2] * 20})
    plan.answers([1] * 20)
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_by_model")
    assert row["bias_significance"] is row["worse_high"] is None
    assert (row["measurable"], row["n_heuristics"], row["n_measurable"], row["n_significant"]) == ([], 1, 0, 0)


def test_data_sets_of_a_role_are_averaged_with_the_error_of_their_questions(tmp_path: Path) -> None:
    """Elsewhere exact match is 3/4 of 4 and 1/4 of 8 questions; in distribution there is one set."""
    elsewhere = {"trivia": [1, 1, 1, 0], "news": [1, 0, 0, 0] * 2}
    plan = QaPlan(
        datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": dict.fromkeys(elsewhere, "b.json")}
    )
    plan.questions({"ans_len": VALUES})
    plan.answers(RIGHT, OVERLAP)
    overlap = {name: [min(1, one + 0.5) for one in exact] for name, exact in elsewhere.items()}
    for name, exact in elsewhere.items():
        plan.questions({"ans_len": VALUES[: len(exact)]}, dataset=name)
        plan.answers(exact, overlap[name], dataset=name)
    run = plan.write(tmp_path)
    measure(run)
    [squad, outside] = rows(run, "from qa_over_datasets order by role")
    assert (outside["role"], outside["n_datasets"], outside["n_rows"], outside["n_missing"]) == (
        "out_of_distribution", 2, 12, 0,
    )  # fmt: skip
    for metric, columns in (("exact_match", elsewhere), ("f1", overlap)):
        mean = np.mean([np.mean(column) for column in columns.values()])
        variances = [np.var(column, ddof=1) / len(column) for column in columns.values()]
        sizes = [len(column) for column in columns.values()]
        freedom = sum(variances) ** 2 / sum(one**2 / (n - 1) for one, n in zip(variances, sizes, strict=True))
        # Below ten degrees of freedom, a fraction of one is dropped.
        half_width = stats.t.ppf(0.975, np.floor(freedom)) * np.sqrt(sum(variances)) / 2
        assert freedom < 10
        assert outside[metric] == pytest.approx(mean)
        assert outside[f"{metric}_low"] == pytest.approx(max(0, mean - half_width))
        assert outside[f"{metric}_high"] == pytest.approx(min(1, mean + half_width))
    [dataset] = rows(run, "from qa_by_dataset where dataset = 'squad'")
    assert (squad["role"], squad["n_datasets"], squad["n_rows"]) == ("in_distribution", 1, 20)
    assert [squad[name] for name in ("exact_match", "f1", "f1_low", "f1_high")] == pytest.approx(
        [dataset[name] for name in ("exact_match", "f1", "f1_low", "f1_high")]
    )


def test_tried_thresholds_are_those_of_the_model_that_was_searched(tmp_path: Path) -> None:
    """Bert's groups reach the sample at both of its thresholds, roberta's, which lacks answers, at one of them."""
    plan = two_models(thresholds={"sim_word": 1}, heuristics=["ans_len", "sim_word"], variant="reference")
    for row in range(75):
        plan.attributes.append(
            {"dataset": "squad", "example_id": f"q{row}", "heuristic": "sim_word", "value": 1.0, "is_measured": True}
        )
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "select model, heuristic, n_tried, n_tried_measured from qa_bias_by_heuristic order by all")
    assert [tuple(row.values()) for row in found] == [
        ("bert", "ans_len", 2, 2),
        ("bert", "sim_word", None, None),
        ("roberta", "ans_len", 2, 1),
        ("roberta", "sim_word", None, None),
    ]


def test_where_the_groups_are_equally_good_the_higher_one_is_called_biased(tmp_path: Path) -> None:
    plan = QaPlan(thresholds={"ans_len": 1})
    plan.questions({"ans_len": VALUES})
    plan.answers([1] * 5 + [0] * 5 + [0] * 5 + [1] * 5)
    run = plan.write(tmp_path)
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    assert (row["status"], row["bias_significance"], row["biased_segment"]) == ("measured", 0, "higher")
    plan.predictions[0]["exact_match"] = 0.0
    run = plan.write(tmp_path / "worse")
    measure(run)
    [row] = rows(run, "from qa_bias_by_heuristic")
    assert row["bias_significance"] == pytest.approx(10)
    assert (row["biased_segment"], row["worse_high"]) == ("higher", pytest.approx(40))


def two_models(**spec: Any) -> QaPlan:
    """Return a plan with 25 questions of each of 0, 1 and 2: bert knows those of 0, roberta all but those of 2.

    The right threshold has a distance of 100, and segments of more than twice the sample of 10.
    """
    plan = QaPlan(["bert", "roberta"], **spec)
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25})
    plan.answers([1] * 25 + [0] * 50, model="bert")
    plan.answers([1] * 50 + [0] * 25, model="roberta")
    return plan


def test_the_first_models_threshold_is_kept_in_the_paper_and_searched_by_the_code(tmp_path: Path) -> None:
    sql = "select model, threshold, searched_on, bias_significance as d from qa_bias_by_heuristic order by model"
    runs = {}
    for variant in ("paper", "reference"):
        runs[variant] = two_models(variant=variant).write(tmp_path / variant)
        measure(runs[variant])
    [bert, roberta] = rows(runs["reference"], sql)
    assert bert == {"model": "bert", "threshold": 0, "searched_on": "bert", "d": pytest.approx(100)}
    assert roberta == {"model": "roberta", "threshold": 1, "searched_on": "roberta", "d": pytest.approx(100)}
    [bert, roberta] = rows(runs["paper"], sql)
    assert bert == {"model": "bert", "threshold": 0, "searched_on": "bert", "d": pytest.approx(100)}
    [candidate] = rows(
        runs["paper"], "select bias_significance as d from qa_bias_candidates where model = 'roberta' and threshold = 0"
    )
    assert roberta == {"model": "roberta", "threshold": 0, "searched_on": "bert", **candidate}
    assert 0 < candidate["d"] < 100


def test_a_model_without_a_threshold_does_not_hide_the_bias_of_the_others(tmp_path: Path) -> None:
    plan = QaPlan(["random", "biased"])
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25})
    plan.answers([0] * 75, model="random")
    plan.answers([1] * 25 + [0] * 50, model="biased")
    run = plan.write(tmp_path)
    measure(run)
    sql = (
        "select model, threshold, searched_on, status, bias_significance as d from qa_bias_by_heuristic order by model"
    )
    [biased, random] = rows(run, sql)
    assert biased == {
        "model": "biased", "threshold": 0, "searched_on": "biased", "status": "measured", "d": pytest.approx(100)
    }  # fmt: skip
    assert random == {"model": "random", "threshold": 0, "searched_on": "biased", "status": "measured", "d": 0}


def test_the_search_is_on_the_first_model_that_answers_the_data_set(tmp_path: Path) -> None:
    datasets = {"in_distribution": {"squad": "squad.json"}, "out_of_distribution": {"natural": "nq.json"}}
    plan = two_models(datasets=datasets)
    plan.spec["models"][0] |= {"path": None, "predictions": {"squad": "bert.json"}}
    plan.questions({"ans_len": [0] * 25 + [1] * 25 + [2] * 25}, dataset="natural")
    plan.answers([1] * 50 + [0] * 25, model="roberta", dataset="natural")
    run = plan.write(tmp_path)
    measure(run)
    sql = "select dataset, model, threshold, searched_on from qa_bias_by_heuristic order by all"
    assert [tuple(row.values()) for row in rows(run, sql)] == [
        ("natural", "roberta", 1.0, "roberta"),
        ("squad", "bert", 0.0, "bert"),
        ("squad", "roberta", 0.0, "bert"),
    ]
    sizes = rows(run, "select dataset, model, role, n_rows from qa_by_dataset order by all")
    assert [tuple(row.values()) for row in sizes] == [
        ("natural", "roberta", "out_of_distribution", 75),
        ("squad", "bert", "in_distribution", 75),
        ("squad", "roberta", "in_distribution", 75),
    ]


def _status(plan: QaPlan, folder: Path, model: str = "bert", heuristic: str = "ans_len") -> dict[str, Any]:
    run = plan.write(folder)
    measure(run)
    names = "threshold, status, bias_significance, bias_significance_f1, n_lower, n_higher, lower_low, difference"
    [row] = rows(run, f"select {names} from qa_bias_by_heuristic where model = '{model}' and heuristic = '{heuristic}'")
    return row


NOTHING = dict.fromkeys(("threshold", "n_lower", "n_higher", "lower_low", "difference"))


def test_nothing_significant_is_a_significance_of_zero(tmp_path: Path) -> None:
    plan = QaPlan()
    plan.questions({"ans_len": VALUES})
    plan.answers([1] * 20)
    expected = {**NOTHING, "status": "not significant", "bias_significance": 0, "bias_significance_f1": None}
    assert _status(plan, tmp_path) == expected


def test_nothing_measurable_is_no_zero(tmp_path: Path) -> None:
    unknown = {**NOTHING, "bias_significance": None, "bias_significance_f1": None}
    small = two_segments(bootstrap={"trials": 20, "sample": 11})
    assert _status(small, tmp_path / "small") == {**unknown, "status": "groups too small"}
    constant = QaPlan(heuristics=["ans_len", "word_dist"])
    constant.questions({"ans_len": [2] * 20, "word_dist": [None] * 20})
    constant.answers([1] * 20)
    for heuristic in ("ans_len", "word_dist"):
        found = _status(constant, tmp_path / "constant", heuristic=heuristic)
        assert found == {**unknown, "status": "no threshold to try"}


def test_a_fixed_threshold_with_small_groups_has_its_sizes_and_no_significance(tmp_path: Path) -> None:
    sizes = {"threshold": 0, "n_lower": 0, "n_higher": 20}
    unknown = {"bias_significance": None, "bias_significance_f1": None, "lower_low": None, "difference": None}
    found = _status(two_segments(thresholds={"ans_len": 0}), tmp_path)
    assert found == {**sizes, **unknown, "status": "groups too small"}


def test_a_fixed_threshold_stays_where_nothing_is_measured(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["word_dist"], thresholds="mikula2024")
    plan.questions({"word_dist": [None] * 20})
    plan.answers([1] * 20)
    found = _status(plan, tmp_path, heuristic="word_dist")
    assert (found["threshold"], found["n_lower"], found["n_higher"]) == (7, 0, 0)
    assert (found["status"], found["bias_significance"]) == ("groups too small", None)


def test_a_model_that_lacks_answers_may_have_groups_too_small_for_the_first_models_threshold(tmp_path: Path) -> None:
    plan = two_models()
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    found = _status(plan, tmp_path, model="roberta")
    assert found["status"] == "groups too small"
    assert (found["threshold"], found["n_lower"], found["n_higher"]) == (0, 9, 50)
    assert found["bias_significance"] is None
    [row] = rows(str(tmp_path), "from qa_by_dataset where model = 'roberta'")
    assert (row["n_rows"], row["n_missing"]) == (59, 16)


def test_fixed_thresholds_are_not_searched(tmp_path: Path) -> None:
    values = {"ans_len": VALUES, "ans_pos": [0] * 10 + [1] * 10}
    chosen = {
        "mikula2024": {"ans_len": (4.0, None), "ans_pos": (0.0, None)},
        "search": {"ans_len": (1.0, "bert"), "ans_pos": (0.0, "bert")},
    }
    for thresholds, expected in [*chosen.items(), ({"ans_len": 1.5}, {**chosen["search"], "ans_len": (1.5, None)})]:
        plan = QaPlan(thresholds=thresholds, heuristics=["ans_len", "ans_pos"])
        plan.questions(values)
        plan.answers(RIGHT)
        run = plan.write(tmp_path / str(len(str(thresholds))))
        measure(run)
        sql = "select heuristic, threshold, searched_on from qa_bias_by_heuristic"
        assert {row["heuristic"]: (row["threshold"], row["searched_on"]) for row in rows(run, sql)} == expected
        n_fixed = sum(searched_on is None for _, searched_on in expected.values())
        [count] = rows(run, "select count(*) filter (is_fixed) as n from qa_thresholds")
        assert count["n"] == n_fixed


def test_the_code_searches_above_undefined_values_and_the_paper_above_measured_ones(tmp_path: Path) -> None:
    for variant, expected in (("paper", [2.0, 3.0]), ("reference", [0.0, 1.0, 2.0, 3.0])):
        plan = QaPlan(variant=variant, heuristics=["word_dist"])
        plan.questions({"word_dist": [None] + [2] * 10 + [4] * 10})
        plan.answers([1, *RIGHT])
        run = plan.write(tmp_path / variant)
        measure(run)
        found = rows(run, "select threshold, n_lower, n_higher from qa_bias_candidates order by threshold")
        assert [row["threshold"] for row in found] == expected
        assert [row["n_lower"] for row in found] == [0] * (len(expected) - 2) + [10, 10]
        assert {row["n_lower"] + row["n_higher"] for row in found} == {20}


def test_curves_have_bins_of_enough_questions_that_end_at_thresholds(tmp_path: Path) -> None:
    """One bin for each of 0 and 1 (40 and 35 questions), one for 1.5 to 3 (20 + 15), one for the rest (40 + 5)."""
    lengths = [0] * 40 + [1] * 35 + [1.5] * 20 + [3] * 15 + [4] * 40 + [9] * 5
    similarities = np.linspace(0, 0.31, len(lengths)).tolist()
    plan = QaPlan(["bert", "roberta"], heuristics=["ans_len", "cos_sim"])
    plan.questions({"ans_len": lengths, "cos_sim": similarities})
    plan.answers([int(value == 1.5) for value in lengths])
    plan.answers([1] * len(lengths), model="roberta")
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "from qa_curves where model = 'bert' and heuristic = 'ans_len' order by bin")
    assert [(row["bin"], row["value_low"], row["value_high"], row["n_rows"]) for row in found] == [
        (0, 0, 0, 40),
        (1, 1, 1, 35),
        (2, 1.5, 3, 35),
        (3, 4, 9, 45),
    ]
    assert [row["exact_match"] for row in found] == pytest.approx([0, 0, 20 / 35, 0])
    assert [row["f1"] for row in found] == pytest.approx([0, 0, 20 / 35, 0])
    assert found[2]["value_mean"] == pytest.approx((20 * 1.5 + 15 * 3) / 35)
    assert [found[2]["exact_match_low"], found[2]["exact_match_high"]] == _ask("wilson_interval(20 / 35, 35)")
    half_width = stats.t.ppf(0.975, 34) * np.std([1] * 20 + [0] * 15, ddof=1) / np.sqrt(35)
    assert [found[2]["f1_low"], found[2]["f1_high"]] == pytest.approx([20 / 35 - half_width, 20 / 35 + half_width])
    similar = rows(run, "from qa_curves where heuristic = 'cos_sim' order by bin, model")
    assert [row["value_low"] for row in similar[::2]] == [row["value_low"] for row in similar[1::2]]
    for low, high in zip(similar[::2], similar[2::2], strict=False):
        between = np.ceil(low["value_high"] * 20) / 20
        assert low["value_high"] <= between < high["value_low"]
    assert min(row["n_rows"] for row in similar) >= 30


def test_many_values_are_at_most_25_bins(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"])
    values = np.random.default_rng(0).integers(0, 5000, size=2000).tolist()
    plan.questions({"my:length": values})
    plan.answers([1] * 2000)
    plan.spec["thresholds"] = {"my:length": 2500.0}
    run = plan.write(tmp_path)
    measure(run)
    found = rows(run, "from qa_curves order by bin")
    assert 20 <= len(found) <= 25
    assert min(row["n_rows"] for row in found) >= 80
    assert sum(row["n_rows"] for row in found) == 2000


# The same numbers, whatever else is there


def _random(models: Sequence[str], heuristics: Sequence[str] = ("ans_len", "cos_sim"), **spec: Any) -> QaPlan:
    """Return a plan with random attributes and metrics, the same for a model or heuristic in every plan."""
    n_rows = 400
    plan = QaPlan(models, heuristics=list(heuristics), bootstrap={"trials": 30, "sample": 40}, **spec)
    all_values = {
        "ans_len": np.random.default_rng(0).integers(1, 5, size=n_rows).tolist(),
        "cos_sim": np.random.default_rng(1).random(n_rows).tolist(),
        "word_dist": [value or None for value in np.random.default_rng(2).integers(0, 9, size=n_rows).tolist()],
    }
    plan.questions({heuristic: all_values[heuristic] for heuristic in heuristics})
    for model in models:
        rng = np.random.default_rng(len(model))
        f1 = rng.random(n_rows)
        plan.answers((f1 > rng.random(n_rows)).astype(float).tolist(), f1.tolist(), model=model)
    return plan


def test_the_same_predictions_in_other_parts_and_orders_give_the_same_bytes(tmp_path: Path) -> None:
    first = _random(["bert", "roberta"]).write(tmp_path / "first")
    plan = _random(["bert", "roberta"])
    for table in (plan.examples, plan.attributes, plan.predictions):
        table.reverse()
    second = plan.write(tmp_path / "second", n_parts=3)
    for run in (first, second, second):
        measure(run)
    names = sorted(
        path.relative_to(first)
        for folder in ("marts", "qa_bias_draws", "qa_draws", "qa_search_nulls")
        for path in Path(first, folder).iterdir()
    )
    assert [str(name) for name in names] == [
        "marts/qa_bias_by_heuristic.parquet",
        "marts/qa_bias_candidates.parquet",
        "marts/qa_bias_models.parquet",
        "marts/qa_bias_tests.parquet",
        "marts/qa_by_dataset.parquet",
        "marts/qa_by_model.parquet",
        "marts/qa_curves.parquet",
        "marts/qa_debiasing.parquet",
        "marts/qa_debiasing_by_method.parquet",
        "marts/qa_debiasing_correlation.parquet",
        "marts/qa_model_comparisons.parquet",
        "marts/qa_out_of_distribution.parquet",
        "marts/qa_out_of_distribution_by_method.parquet",
        "marts/qa_out_of_distribution_by_model.parquet",
        "marts/qa_over_datasets.parquet",
        "marts/qa_training_curves.parquet",
        *(
            f"{table}/part-0000{part}.parquet"
            for table in ("qa_bias_draws", "qa_draws", "qa_search_nulls")
            for part in range(2)
        ),
    ]
    for name in names:
        assert Path(first, name).read_bytes() == Path(second, name).read_bytes(), name


def test_models_and_heuristics_that_are_added_change_no_draw_of_the_others(tmp_path: Path) -> None:
    alone = _random(["bert"], ["cos_sim"]).write(tmp_path / "alone")
    more = _random(["roberta", "bert"], ["word_dist", "cos_sim"]).write(tmp_path / "more")
    for run in (alone, more):
        measure(run)
    for table in ("qa_draws", "qa_bias_candidates", "qa_curves", "qa_by_dataset"):
        where = "" if table == "qa_by_dataset" else "and heuristic = 'cos_sim'"
        sql = f"from {table} where model = 'bert' {where} order by all"
        assert query([alone], sql).equals(query([more], sql)), table
        assert query([alone], sql).num_rows


def test_replacement_widens_the_intervals_of_small_segments(tmp_path: Path) -> None:
    found = {}
    for replacement in (False, True):
        plan = two_segments(bootstrap={"trials": 2000, "sample": 9, "replacement": replacement})
        run = plan.write(tmp_path / str(replacement))
        measure(run)
        [found[replacement]] = rows(run, "from qa_bias_candidates where threshold = 1")
    # Nine of the ten questions, eight of them right: 7 or 8 of 9. Nine draws of ten: binomial.
    assert [found[False][name] for name in ("lower_low", "lower_high")] == pytest.approx([700 / 9, 800 / 9])
    assert found[True]["lower_low"] <= 500 / 9 + 1e-9
    assert found[True]["lower_high"] == pytest.approx(100)
    for row in found.values():
        assert row["lower_mean"] == pytest.approx(80, abs=1.5)


# Checks: each has a run that breaks it


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[QaPlan], None]:
    def change(plan: QaPlan) -> None:
        chosen = [row for row in getattr(plan, table) if where.items() <= row.items()]
        assert chosen
        chosen[0][column] = value

    return change


def _drop(table: str, **where: Any) -> Callable[[QaPlan], None]:
    def change(plan: QaPlan) -> None:
        kept = [row for row in getattr(plan, table) if not where.items() <= row.items()]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return change


def _repeat(table: str, **changes: Any) -> Callable[[QaPlan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


BROKEN: list[tuple[str, Callable[[QaPlan], None], str]] = [
    ("qa_keys_are_unique", _repeat("examples", row=99), "question q0 of squad occurs 2 times"),
    ("qa_keys_are_unique", _repeat("examples", example_id="q99"), "row 0 of squad is 2 questions"),
    ("qa_keys_are_unique", _set("examples", "row", None), "row null of squad is 1 questions"),
    ("qa_keys_are_unique", _repeat("attributes"), "question q0 of squad has 2 times ans_len"),
    ("qa_keys_are_unique", _repeat("predictions"), "question q0 of squad has 2 predictions of bert"),
    ("qa_attributes_are_whole", _drop("attributes", example_id="q3"), "question q3 of squad has no ans_len"),
    (
        "qa_attributes_are_whole",
        _set("attributes", "heuristic", "ans_pos", example_id="q3"),
        "question q3 of squad has ans_pos, which was not asked for",
    ),
    (
        "qa_attributes_are_whole",
        _repeat("attributes", example_id="new"),
        "question new of squad has ans_len, which was not asked for",
    ),
    ("qa_attributes_are_whole", _set("attributes", "value", None), "question q0 of squad has ans_len null"),
    ("qa_attributes_are_whole", _set("attributes", "value", np.nan), "question q0 of squad has ans_len nan"),
    ("qa_attributes_are_whole", _set("attributes", "value", np.inf), "question q0 of squad has ans_len inf"),
    ("qa_attributes_are_whole", _set("attributes", "is_measured", None), "question q0 of squad has ans_len 1.0"),
    (
        "qa_predictions_are_whole",
        _drop("predictions", example_id="q5"),
        "question q5 of squad has no prediction of bert",
    ),
    (
        "qa_predictions_are_whole",
        _repeat("predictions", example_id="new"),
        "question new of squad has a prediction of bert, which was not asked for",
    ),
    ("qa_predictions_are_whole", _set("predictions", "exact_match", 0.5), "exact match 0.5, F1 1.0"),
    ("qa_predictions_are_whole", _set("predictions", "exact_match", None), "exact match null"),
    ("qa_predictions_are_whole", _set("predictions", "f1", 1.1), "exact match 1.0, F1 1.1"),
    ("qa_predictions_are_whole", _set("predictions", "f1", None), "F1 null"),
]


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[QaPlan], None], problem: str, tmp_path: Path
) -> None:
    plan = two_segments()
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert not Path(run, "marts").exists()


def test_draws_that_are_lost_or_repeated_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two_segments().write(tmp_path)
    whole = qa_draws.segment_draws
    for change, problem in (
        (lambda draws: draws.slice(1), "39 draws, 39 different, 39 in range; wanted 40"),
        (lambda draws: pa.concat_tables([draws.slice(1), draws.slice(5, 1)]), "40 draws, 39 different"),
        (lambda draws: draws.filter(pc.field("threshold") > 1), "threshold 1.0: 0 draws"),
        (lambda draws: draws.set_column(3, "threshold", pa.repeat(0.5, len(draws))), "threshold 0.5: 80 draws"),
    ):
        monkeypatch.setattr(
            qa_draws, "segment_draws", lambda *given, change=change, **how: change(whole(*given, **how))
        )
        with pytest.raises(BiasevalError, match="qa_draws_are_whole: .*" + problem):
            measure(run)
    assert not Path(run, "marts").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    run = two_segments().write(tmp_path / "run")
    for mart, right, wrong, problem in (
        ("qa_by_dataset", "    means.exact_match,\n", "    means.exact_match + 1 as exact_match,\n", "bert, squad: "),
        ("qa_by_dataset", "    means.f1,\n", "    null::double as f1,\n", "bert, squad: "),
        ("qa_bias_by_heuristic", "    n_lower,", "    n_lower + 1 as n_lower,", "bert, squad, ans_len: {"),
        ("qa_bias_by_heuristic", "    lower_low,", "    lower_low + 30 as lower_low,", "bert, squad, ans_len: {"),
        ("qa_bias_by_heuristic", "    differences.difference,", "    1.0 as difference,", "bert, squad, ans_len: {"),
        (
            "qa_bias_candidates",
            "interval_distance(trials.lower_interval, trials.higher_interval) as",
            "101 as",
            "bert, squad, ans_len: {",
        ),
        ("qa_bias_tests", "    adjusted.p,", "    adjusted.p - 1 as p,", "bert, squad, ans_len: {"),
        ("qa_by_model", "    averages.n_significant,", "    9 as n_significant,", "bert, squad, mean of heuristics: {"),
        ("qa_curves", ">= bins.bin_start", ">= bins.bin_start + 2", "bert, squad, ans_len: 10 rows in the bins, 20"),
    ):
        path = tmp_path / f"analytics/marts/{mart}.sql"
        text = path.read_text()
        assert text.count(right) == 1, right
        path.write_text(text.replace(right, wrong))
        with pytest.raises(BiasevalError, match=f"qa_metrics_are_in_range: .*{problem}"):
            measure(run)
        path.write_text(text)
    measure(run)


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = set(names_of("qa_bias", "checks"))
    broken = {check for check, _, _ in BROKEN} | {"qa_draws_are_whole", "qa_metrics_are_in_range"}
    of_trained_readers = {"qa_training_is_whole", "qa_evaluations_are_whole", "qa_changes_are_in_range"}
    assert checks == broken | of_trained_readers  # those are broken in qa_debiasing.test_checks


def test_missing_parts_of_any_model_are_counted(tmp_path: Path) -> None:
    plan = two_models()
    run = plan.write(tmp_path, n_parts=3)
    measure(run)
    Path(run, "qa_predictions", "part-00004.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 9 parts missing \(first: qa_predictions/part-00004.parquet\)"):
            ask(run)
    Path(run, "qa_attributes", "part-00001.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 9 parts missing \(first: qa_attributes/part-00001.parquet\)"):
        measure(run)
    shutil.rmtree(Path(run, "qa_examples"))
    with pytest.raises(BiasevalError, match="the table qa_examples has no part; run the same command again"):
        query([run], "select 1")


def test_marts_that_an_older_version_did_not_write_are_computed_when_asked_for(built: str, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(built, old)
    for name in ("qa_by_model", "qa_over_datasets"):
        (old / "marts" / f"{name}.parquet").unlink()
    path = old / "marts" / "qa_bias_by_heuristic.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["n_tried", "n_tried_measured", "n_articles"]), path)
    for mart in Path(built, "marts").iterdir():
        sql = f"from {mart.stem}"
        assert query([str(old)], sql).equals(query([built], sql)), mart
    (old / "results.duckdb").unlink()  # which is written last: the marts are those of a run that was killed
    with pytest.raises(BiasevalError, match=r"marts/qa_\w+\.parquet is missing; biaseval report .* writes it"):
        query([str(old)], "from qa_by_dataset")


def test_a_model_without_any_answer_is_not_overlooked(tmp_path: Path) -> None:
    run = two_models().write(tmp_path, n_parts=2)
    measure(run)
    for part in (2, 3):
        Path(run, "qa_predictions", f"part-0000{part}.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 6 parts missing \(first: qa_predictions/part-00002.parquet\)"):
        query([run], "select 1")


def test_a_run_without_marts_is_not_finished(tmp_path: Path) -> None:
    run = two_segments().write(tmp_path)
    with pytest.raises(BiasevalError, match=r"marts/qa_\w+\.parquet is missing"):
        query([run], "select 1")


def test_a_heuristic_with_too_many_thresholds_is_the_users_mistake(tmp_path: Path) -> None:
    plan = QaPlan(heuristics=["my:length"])
    plan.questions({"my:length": [0, 10**6]})
    plan.answers([1, 1])
    with pytest.raises(InputError, match="my:length: values from 0 to 1e"):
        measure(plan.write(tmp_path))


# Everywhere else


def test_several_runs_of_any_kind_can_be_compared(built: str, tmp_path: Path) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    measure(label_bias)
    other = two_models().write(tmp_path / "other")
    measure(other)
    with closing(open_runs([built, other, label_bias])) as connection:
        found = connection.execute(
            "select run, model, round(bias_significance) as d from qa_bias_by_heuristic order by all"
        ).fetchall()
        tasks = connection.execute("select distinct run from label_bias_by_task").fetchall()
    assert [row[:2] for row in found] == [("other", "bert"), ("other", "roberta"), ("squad", "bert")]
    assert tasks == [("animals",)]


def test_the_significance_of_any_grouping_is_a_query_over_the_draws(built: str) -> None:
    sql = """
        select
            threshold,
            bias_significance(
                list(100 * exact_match) filter (segment = 'lower'),
                list(100 * exact_match) filter (segment = 'higher')
            ) as d
        from qa_draws
        group by threshold
        order by threshold
    """
    found = rows(built, sql)
    assert [row["threshold"] for row in found] == [1, 2]
    expected = [row["bias_significance"] for row in rows(built, "from qa_bias_candidates order by threshold")]
    assert [row["d"] for row in found] == pytest.approx(expected)


def test_the_duckdb_shell_has_the_macros_and_every_relation(built: str, tmp_path: Path) -> None:
    shell = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    names = views_of("qa_bias")
    assert "qa_measured" in names
    counts = [f"select '{name}' as name, count(*)::double as n from {name}" for name in names]
    candidate = "{'threshold': 1, 'distance': 2, 'n_lower': 9, 'n_higher': 9}"
    macros = [
        "select 'significance', bias_significance([1], [3])",
        "select 'distance', interval_distance([1, 2], [3, 4])",
        f"select 'paper', paper_threshold([{candidate}], 9)",
        f"select 'reference', reference_threshold([{candidate}], 9)",
        "select 'wilson', wilson_interval(0.5, 10)[1]",
    ]
    sql = " union all ".join([*counts, *macros])
    answer = subprocess.run(
        [shell, "-readonly", "-json", str(Path(built, "results.duckdb")), sql],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
    assert shown == pytest.approx({row["name"]: row["n"] for row in rows(built, sql)})
    assert (shown["qa_draws"], shown["paper"], shown["reference"], shown["significance"]) == (80, 1, 1, 2)


def test_a_plain_reader_finds_the_same_numbers(built: str) -> None:
    for path in Path(built, "marts").iterdir():
        with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
            assert connection.sql(f"from {path.stem}").to_arrow_table().equals(pq.read_table(path)), path
