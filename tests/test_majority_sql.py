"""Majority-label bias by SQL: the macros, P2's tables through them, and marts and checks on a run done by hand."""

from __future__ import annotations

import functools
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score, f1_score

from biaseval.analysis import open_runs, query, relations
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import analyse_run
from biaseval.store import Run
from biaseval.tables import CONTEXTS, GENERATIONS, LABEL_SCORES, PROMPTS, SETTINGS, output_tables
from tests.measuring import measure
from tests.specs import write_plan, write_spec
from tests.test_analysis import names_of, two_tasks, views_of

Rows = list[dict[str, Any]]

GOLD = "TTTF"
ANSWERS = {
    ("0/100", True): ("TTFF", "TTFF"),
    ("50/50", True): ("TTTF", "TTTF"),
    ("100/0", True): ("TTTT", "TTTF"),
    ("0/100", False): ("FFFF", "FFFF"),
    ("50/50", False): ("TTFF", "TTTF"),
    ("100/0", False): ("TTTT", "TTTT"),
}
"""(setting, instruction) to the predictions for the four test rows, with the seeds 3 and 5."""
F1 = {"TTTF": 1.0, "TTTT": 9 / 14, "FFFF": 0.1, "TTFF": 23 / 30, "TT-F": 0.85}
"""Weighted F1 of predictions (- is no label) for gold T T T F, by hand.

True has 3/4 of the rows, False 1/4.
TTTT: 3/4 * 6/7. FFFF: 1/4 * 2/5. TTFF: 3/4 * 4/5 + 1/4 * 2/3. TT-F: 3/4 * 4/5 + 1/4.
"""
SEEDS = (3, 5)
DEMOS = {
    "0/100": (["False", "False"], ["False", "False"]),
    "50/50": (["True", "False"], ["False", "True"]),
    "100/0": (["True", "True"], ["True", "True"]),
}
TEXT = {"T": "True", "F": "False", "-": None}
FOLLOWED = [
    f"{name}{end}"
    for name in ("majority_effect", "recency", "recency_at_equal_shares")
    for end in ("", "_low", "_high")
]


class MajorityPlan:
    """The rows of a run in the making, from ``ANSWERS``; generated are the same, except one output that is no label."""

    def __init__(
        self,
        predict: tuple[str, ...] = ("likelihood", "generate"),
        calibration: tuple[str, ...] = (),
        answers: Mapping[tuple[str, bool], tuple[str, str]] = ANSWERS,
        p_hat: Mapping[tuple[str, int, bool, str, int], float] | None = None,
        n_repeats: int = 1,
    ) -> None:
        self.n_repeats = n_repeats  # of the test rows with their answers: F1 is the same, intervals are narrower
        self.spec: dict[str, Any] = {
            "kind": "majority_bias",
            "name": "tiny",
            "seed": 42,
            "model": {"path": "models/tiny", "dtype": "float32"},
            "prompt": {"preset": "boolq", "n_demos": 2},
            "predict": list(predict),
            "calibration": list(calibration),
            "scoring": {"normalization": "mean", "eos": True},
        }
        self.n_parameters: int | None = 1_000
        self.p_hat = P_HAT if p_hat is None else p_hat
        self.settings: Rows = [
            {
                "setting": setting,
                "number": number,
                "labels": ["True", "False"],
                "shares": [number / 2, 1 - number / 2],
                "counts": [number, 2 - number],
                "counts_asked": [number, 2 - number],
            }
            for number, setting in enumerate(DEMOS)
        ]
        self.contexts: Rows = []
        self.prompts: Rows = []
        self.label_scores: Rows = []
        self.generations: Rows = []
        for (setting, instruction), of_seeds in answers.items():
            for seed, demos, predictions in zip(SEEDS, DEMOS[setting], of_seeds, strict=True):
                self._add(setting, seed, instruction, demos, predictions)

    def _add(self, setting: str, seed: int, instruction: bool, demos: list[str], predictions: str) -> None:
        place = {"task": "boolq", "n_demos": 2, "demo_set": seed}
        context_id = f"{setting}/{seed}/{instruction}"
        context = {"context_id": context_id, **place, "setting": setting, "instruction": instruction}
        self.contexts.append({**context, "demo_labels": demos})
        rows = list(zip(GOLD * self.n_repeats, predictions * self.n_repeats, strict=True))
        for row, (gold, answer) in enumerate(rows):
            prompt_id = f"{context_id}/{row}"
            self._prompt(prompt_id, "majority", row, TEXT[gold], {"context_id": context_id, **place})
            self._score(prompt_id, 0.9 if answer == "T" else 0.1)
            for mode in self.spec["predict"]:
                if mode == "likelihood":
                    continue
                is_no_label = mode == "generate" and (setting, seed, instruction, row) == ("0/100", 3, True, 2)
                shown = "-" if is_no_label else answer
                self.generations.append(
                    {"prompt_id": prompt_id, "mode": mode, "text": "Maybe", "prediction": TEXT[shown]}
                )
        for method in self.spec["calibration"]:
            for row, label in enumerate(demos if method == "looc" else [None]):
                # Each leave-one-out prompt has a context of its own, which holds fewer demonstrations.
                calibration_id = f"{context_id}/{method}/{row}"
                self.contexts.append({**context, "context_id": calibration_id, "demo_labels": demos[:row]})
                self._prompt(calibration_id, method, row, label, {"context_id": calibration_id, **place})
                self._score(calibration_id, self.p_hat.get((setting, seed, instruction, method, row), 0.5))

    def _prompt(self, prompt_id: str, purpose: str, row: int, gold: str | None, place: dict[str, Any]) -> None:
        instance = {"instance_id": None if gold is None else f"test-{row}", "labels": ["True", "False"]}
        self.prompts.append({"prompt_id": prompt_id, "purpose": purpose, "row": row, "gold": gold, **place, **instance})
        self.prompts[-1]["input_text"] = f"{purpose} {row}"

    def _score(self, prompt_id: str, p_true: float) -> None:
        if "label_scores" in output_tables(self.spec["predict"]):
            for label, p in (("True", p_true), ("False", 1 - p_true)):
                logprobs = {"token_logprobs": [math.log(p)] * 2, "n_label_tokens": 1}
                self.label_scores.append({"prompt_id": prompt_id, "label": label, **logprobs})

    def write(self, folder: Path, n_parts: int = 1) -> str:
        run = Run.open(str(folder))
        write_spec(run, self.spec)
        if self.n_parameters is not None:
            environment = {"versions": {}, "model_facts": {"n_parameters": self.n_parameters}}
            run.write_text("environment.json", json.dumps(environment))
        run.write_part("settings", 0, SETTINGS.rows(self.settings))
        run.write_part("contexts", 0, CONTEXTS.rows(self.contexts))
        for part in range(n_parts):
            run.write_part("prompts", part, PROMPTS.rows(self.prompts[part::n_parts]))
            if "label_scores" in output_tables(self.spec["predict"]):
                run.write_part("label_scores", part, LABEL_SCORES.rows(self.label_scores[part::n_parts]))
            if set(self.spec["predict"]) != {"likelihood"}:
                run.write_part("generations", part, GENERATIONS.rows(self.generations[part::n_parts]))
        write_plan(run)
        return run.uri


P_HAT = {("100/0", 3, True, "cc", 0): 0.95, ("0/100", 3, False, "looc", 0): 0.02, ("0/100", 3, False, "looc", 1): 0.04}
"""The probability of True of calibration inputs, which is else 0.5 and changes no prediction.

With 0.95, 0.9 for True becomes (0.9/0.95) / (0.9/0.95 + 0.1/0.05) < 1/2. The leave-one-out rows have one gold label,
their mean is 0.03, and 0.1 for True becomes (0.1/0.03) / (0.1/0.03 + 0.9/0.97) > 1/2.
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = MajorityPlan(calibration=("cc", "looc")).write(tmp_path_factory.mktemp("runs") / "boolq")
    analyse_run(run)
    return run


@pytest.fixture(scope="module")
def opened(built: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield one connection to ``built``, which many queries share."""
    with closing(open_runs([built])) as connection:
        yield connection


def rows(run: str | duckdb.DuckDBPyConnection, sql: str) -> Rows:
    """Return the rows of a query over a run: a directory, or one that is open already."""
    result: Rows = (query([run], sql) if isinstance(run, str) else run.sql(sql).to_arrow_table()).to_pylist()
    return result


# The macros


@functools.cache
def _macros() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB with nothing but the macros."""
    connection = duckdb.connect()
    for macro in sorted(relations.ANALYTICS.glob("macros/*.sql")):
        connection.execute(macro.read_text()).fetchall()
    return connection


def _ask(sql: str, *parameters: Any) -> Any:
    """Return what DuckDB answers with nothing but the macros: a value, or a row of several."""
    [answer] = _macros().execute(f"select {sql}", parameters).fetchall()
    return answer[0] if len(answer) == 1 else answer


@pytest.mark.parametrize("predictions", F1)
def test_weighted_f1_by_hand(predictions: str) -> None:
    answer = _ask("weighted_f1(?, ?)", [TEXT[x] for x in GOLD], [TEXT[x] for x in predictions])
    assert answer == pytest.approx(F1[predictions], abs=1e-12)


@pytest.mark.parametrize(
    ("golds", "predictions", "expected"),
    [
        (["a", "b"], [None, None], 0.0),
        (["a", "b"], ["c", "c"], 0.0),
        (["none", "a"], ["none", None], 0.5),  # a label may itself be called none
        (["a"], ["a"], 1.0),
        ([], [], None),
    ],
)
def test_weighted_f1_of_no_label_and_of_no_row(
    golds: list[str], predictions: list[str | None], expected: float | None
) -> None:
    assert _ask("weighted_f1(?::varchar[], ?::varchar[])", golds, predictions) == expected


@pytest.mark.parametrize(
    ("golds", "predictions"), [(["a", None], ["a", "a"]), (["a"], ["a", "a"]), (["a", "a"], ["a"])]
)
def test_weighted_f1_refuses_rows_without_gold_or_prediction(golds: list[str], predictions: list[str]) -> None:
    with pytest.raises(duckdb.Error, match="a gold label is null, or the lists differ in length"):
        _ask("weighted_f1(?, ?)", golds, predictions)


def test_weighted_f1_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for n_labels in (2, 3, 5):
        for n_rows in (1, 7, 200):
            golds = rng.choice(n_labels, size=n_rows)
            predictions = np.where(rng.random(n_rows) < 0.5, golds, rng.choice(n_labels + 1, size=n_rows))
            expected = f1_score(golds, predictions, average="weighted", zero_division=0)
            # The label that never occurs in gold is the one that is none.
            given = [None if x == n_labels else str(x) for x in predictions]
            answer = _ask("weighted_f1(?::varchar[], ?::varchar[])", [str(x) for x in golds], given)
            assert answer == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("f1s", "k", "absolute", "relative"),
    [
        ([0.643, 0.636, 0.616, 0.549, 0.533], 10, 4 / 5, 3 / 5),  # protocol: the bar is 0.543; relative 0.5787
        ([0.396, 0.296, 0.2], 10, 2 / 3, 1 / 3),  # on the boundary, below it in binary fractions
        ([0.5, 0.45, 0.4, 0.3], 10, 3 / 4, 2 / 4),
        ([0.5, 0.45, 0.4, 0.3], 5, 2 / 4, 1 / 4),
        ([0.5, 0.475, 0.4], 2.5, 2 / 3, 1 / 3),
        ([0.5], 0, 1.0, 1.0),
        ([0.0, 0.0], 10, 1.0, 1.0),
        ([0.5, None], 10, None, None),
        ([], 10, None, None),
    ],
)
def test_rb_at_k_by_hand(f1s: list[float], k: float, absolute: float | None, relative: float | None) -> None:
    assert _ask("rb_at_k(?::double[], ?)", f1s, k) == absolute
    assert _ask("rb_at_k_relative(?::double[], ?)", f1s, k) == relative


@pytest.mark.parametrize(
    ("value", "low", "high", "sign"),
    [
        (0.2, 0.1, 0.3, 1),
        (-0.2, -0.3, -0.2, -1),
        (0.2, 0.0, 0.3, None),
        (0.2, -0.1, 0.3, None),
        (0.0, -0.3, -0.1, 0),  # the bootstrap of RB@10 may leave its own estimate out
        (1e-12, -0.3, -0.1, 0),
        (0.2, 1e-17, 0.3, None),
        (-0.2, -0.3, -5.6e-17, None),
        (0.2, -0.3, -0.1, None),
        (0.2, 0.3, 0.4, None),
        (0.2, None, None, None),
        (0.0, None, None, 0),
        (None, None, None, None),
    ],
)
def test_a_change_is_clear_only_where_its_interval_has_its_sign_and_includes_it(
    value: float | None, low: float | None, high: float | None, sign: int | None
) -> None:
    assert _ask("clear_sign(?::double, ?::double, ?::double)", value, low, high) == sign


def _published(columns: Rows) -> set[str]:
    """Check P2's columns through the macros in SQL; return the columns whose RB@10 is not the published one."""
    other = set()
    sql = "rb_at_k(list(f1), 10), avg(f1), stddev_samp(f1) from (select unnest(?::double[]) as f1)"
    for column in columns:
        rb, mean, deviation = _ask(sql, column["weighted_f1"])
        assert mean == pytest.approx(column["mean_f1"], abs=1e-3)
        assert deviation == pytest.approx(column["sd_f1"], abs=1e-3)
        if rb != pytest.approx(column["rb_at_10"], abs=1e-3):
            assert rb == pytest.approx(1 / 15)
            other.add(column["name"])
    return other


def test_settings_on_the_boundary_count_as_in_the_published_table() -> None:
    """MPT-7B-wo is published as 0, which no share can be that counts the best setting itself: it is 1/15."""
    columns = json.loads((Path(__file__).parent / "golden" / "majority_table.json").read_text())["columns"]
    assert len(columns) == 4
    assert _published(columns) == {"MPT-7B-wo"}


def test_the_published_table_gives_nine_of_ten_published_boundaries(shared: Path) -> None:
    """MPT-7B-wo is published as 0, which no share can be that counts the best setting itself: it is 1/15."""
    tables = json.loads((shared / "golden/majority/tables.json").read_text())
    published = tables["table1"]["Covid-5G"]
    columns = [
        {
            "name": name,
            "weighted_f1": [row["wt_f1"][name] for row in tables["table2"]["rows"]],
            "rb_at_10": published["rb10"][name],
            "mean_f1": published["wt_f1"][name],
            "sd_f1": published["std"][name],
        }
        for name in tables["columns"]
    ]
    assert len(columns) == 10
    assert _published(columns) == {"MPT-7B-wo"}
    for column, expected in zip(columns, tables["rb10"]["per_column"], strict=True):
        assert column["name"] == expected["column"]
        relative = _ask("rb_at_k_relative(?::double[], 10)", column["weighted_f1"])
        assert relative == pytest.approx(expected["relative_count"] / 15)


# The marts, by hand


def test_a_setting_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """0/100, seed 3, with instruction: demonstrations False False, gold T T T F, generated T T - F."""
    where = "setting = '0/100' and seed = 3 and instruction"
    [row] = rows(opened, f"from majority_by_setting where predict = 'generate' and {where}")
    low, high = row.pop("weighted_f1_low"), row.pop("weighted_f1_high")
    assert row == {
        "model": "tiny",
        "task": "boolq",
        "n_demos": 2,
        "instruction": True,
        "setting": "0/100",
        "number": 0,
        "seed": 3,
        "predict": "generate",
        "method": "none",
        "weighted_f1": pytest.approx(0.85),
        "accuracy": 0.75,
        "share_majority": 0.25,
        "share_last": 0.25,
        "share_no_label": 0.25,
        "majority_label": "False",
        "last_label": "False",
        "n_rows": 4,
    }
    assert 0 <= low < 0.85 < high <= 1
    [row] = rows(opened, f"from majority_by_setting where predict = 'likelihood' and method = 'none' and {where}")
    assert row["weighted_f1"] == pytest.approx(23 / 30)
    assert [row[name] for name in ("accuracy", "share_majority", "share_last", "share_no_label")] == [0.75, 0.5, 0.5, 0]


def test_every_setting_has_the_weighted_f1_of_its_answers(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(opened, "from majority_by_setting where method = 'none' and predict = 'likelihood'")
    assert len(found) == 3 * 2 * 2
    for row in found:
        answers = ANSWERS[row["setting"], row["instruction"]][SEEDS.index(row["seed"])]
        assert row["weighted_f1"] == pytest.approx(F1[answers], abs=1e-12)
        demos = DEMOS[row["setting"]][SEEDS.index(row["seed"])]
        assert row["last_label"] == demos[-1]
        assert row["share_last"] == answers.count(demos[-1][0]) / 4
        if row["setting"] == "50/50":
            assert row["majority_label"] is row["share_majority"] is None
        else:
            assert row["majority_label"] == demos[0]
            assert row["share_majority"] == row["share_last"]


def test_calibration_is_by_setting_seed_and_instruction(opened: duckdb.DuckDBPyConnection) -> None:
    sql = "select setting, seed, instruction, method, weighted_f1 from majority_by_setting where predict = 'likelihood'"
    changed = {
        ("100/0", 3, True, "cc"): "FFFF",  # TTTT turned
        ("0/100", 3, False, "looc"): "TTTT",  # FFFF turned
    }
    found = {tuple(row.values())[:4]: row["weighted_f1"] for row in rows(opened, sql)}
    assert len(found) == 3 * 2 * 2 * 3
    for (setting, seed, instruction, method), weighted_f1 in found.items():
        answers = ANSWERS[setting, instruction][SEEDS.index(seed)]
        answers = changed.get((setting, seed, instruction, method), answers)
        assert weighted_f1 == pytest.approx(F1[answers]), (setting, seed, instruction, method)
    weights = rows(
        opened,
        "select label, p_hat, n_rows from calibration_parameters "
        "where setting = '0/100' and demo_set = 3 and not instruction and method = 'looc' order by label",
    )
    assert [list(row.values()) for row in weights] == [
        ["False", pytest.approx(0.97), 2],
        ["True", pytest.approx(0.03), 2],
    ]


def test_seeds_are_averaged_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    [row] = rows(
        opened,
        "from majority_over_seeds "
        "where setting = '100/0' and instruction and predict = 'likelihood' and method = 'none'",
    )
    low, high = row.pop("weighted_f1_low"), row.pop("weighted_f1_high")
    assert row == {
        "model": "tiny",
        "task": "boolq",
        "n_demos": 2,
        "instruction": True,
        "setting": "100/0",
        "number": 2,
        "predict": "likelihood",
        "method": "none",
        "weighted_f1": pytest.approx((9 / 14 + 1) / 2),
        "sd_f1": pytest.approx((1 - 9 / 14) / math.sqrt(2)),
        "accuracy": 0.875,
        "share_majority": 0.875,
        "share_last": 0.875,
        "share_no_label": 0.0,
        "is_within": False,
        "boundary": 0.9,  # 50/50 is always right
        "is_marked": False,
        "n_seeds": 2,
        "n_rows": 8,
        "recency": None,  # the last demonstration is True with both seeds
    }
    assert low < (9 / 14 + 1) / 2 < high


def _half_width(run: duckdb.DuckDBPyConnection, *, instruction: bool) -> float:
    """Return the median half width of the intervals of the likelihoods' settings, those of width 0 left out."""
    of_settings = rows(
        run,
        "from majority_over_seeds where predict = 'likelihood' and method = 'none' "
        f"and {'' if instruction else 'not '}instruction",
    )
    widths = [(row["weighted_f1_high"] - row["weighted_f1_low"]) / 2 for row in of_settings]
    return float(np.median([width for width in widths if width > 0]))


def test_a_model_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """Without instruction the means over seeds are 0.1, (23/30 + 1)/2 and 9/14: only the best is within 0.1 of it."""
    [row] = rows(opened, "from majority_by_model where not instruction and predict = 'likelihood' and method = 'none'")
    intervals = {name: row.pop(name) for name in list(row) if name.endswith(("_low", "_high"))}
    means = [0.1, (23 / 30 + 1) / 2, 9 / 14]
    assert row == {
        "model": "tiny",
        "n_parameters": 1000,
        "task": "boolq",
        "n_demos": 2,
        "instruction": False,
        "predict": "likelihood",
        "method": "none",
        "mean_f1": pytest.approx(np.mean(means)),
        "sd_f1": pytest.approx(np.std(means, ddof=1)),
        "max_f1": pytest.approx(means[1]),
        "rb_at_10": pytest.approx(1 / 3),
        "rb_at_10_relative": pytest.approx(1 / 3),
        "mean_sd_over_seeds": pytest.approx((1 - 23 / 30) / math.sqrt(2) / 3),
        "share_majority": 1.0,  # of 0/100 and 100/0; 50/50 has no majority
        "share_last": pytest.approx((1 + (2 / 4 + 3 / 4) / 2 + 1) / 3),
        "share_no_label": 0.0,
        "share_most_frequent": pytest.approx(13 / 24),
        "is_constant": False,
        "constant_f1": pytest.approx(9 / 14),
        "share_majority_of_constant": 0.5,  # always True follows the majority of 100/0, and not that of 0/100
        "has_many_without_label": False,
        "boundary": pytest.approx(means[1] - 0.1),
        "n_marked": 1,
        "half_width": pytest.approx(_half_width(opened, instruction=False)),
        "has_enough_rows": False,
        "n_settings": 3,
        "n_settings_with_majority": 2,
        "n_seeds": 2,
        "n_rows": 24,
        "n_test_rows": 4,
        "sd_f1_corrected": pytest.approx(math.sqrt(np.var(means, ddof=1) - (7 / 30) ** 2 / 2 / 3 / 2)),
        "proportions_p": pytest.approx(1 / 6, abs=0.04),  # of six orders of three settings the one there is
        "proportions_p_adjusted": 1.0,
        "majority_effect": pytest.approx(1.0),  # with seed 3 True has 0, 1/2 and 1 of the predictions; 0, 3/4 and 1
        "recency": pytest.approx(((1 - 1 / 4) + (7 / 8 - 0)) / 2),
        "recency_at_equal_shares": pytest.approx((0 + 1 / 2) / 2),
    }
    # With two seeds the standard error is half their difference. The rows' own effects, averaged over seeds, are
    # 3/4, 3/4, 1, 3/4 of recency and 0, 0, 1, 0 of that at equal shares: a standard error of the same size, and
    # (1 + 1)^2 / (1 / 1 + 1 / 3) = 3 degrees of freedom.
    t = 3.182446 * math.sqrt(2)
    for name, value, error in (
        ("majority_effect", 1, 0),
        ("recency", 13 / 16, 1 / 16),
        ("recency_at_equal_shares", 1 / 4, 1 / 4),
    ):
        found = intervals.pop(f"{name}_low"), intervals.pop(f"{name}_high")
        assert found == pytest.approx((value - t * error, value + t * error)), name
    assert set(intervals) == {"mean_f1_low", "mean_f1_high", "rb_at_10_low", "rb_at_10_high"}
    assert intervals["mean_f1_low"] < np.mean(means) < intervals["mean_f1_high"]
    assert 1 / 3 <= intervals["rb_at_10_low"] <= intervals["rb_at_10_high"] <= 1
    [generated] = rows(opened, "from majority_by_model where instruction and predict = 'generate'")
    assert generated["share_no_label"] == pytest.approx(1 / 24)
    assert generated["mean_f1"] == pytest.approx(np.mean([(0.85 + 23 / 30) / 2, 1, (9 / 14 + 1) / 2]))


def test_the_most_frequent_prediction_may_be_no_label(tmp_path: Path) -> None:
    answers = {(setting, True): ("--TF", "---T") for setting in DEMOS}
    run = MajorityPlan(("generate",), answers=answers).write(tmp_path)
    measure(run)
    [row] = rows(run, "from majority_by_model")
    # In each of 3 settings and 2 seeds; one more of 0/100 is no label, where the plan has its one such output.
    assert row["share_most_frequent"] == pytest.approx((3 * 5 + 1) / 24)
    assert row["share_no_label"] == pytest.approx((3 * 5 + 1) / 24)
    assert row["constant_f1"] == pytest.approx(9 / 14)


def test_the_best_constant_answer_has_the_weighted_f1_of_the_most_frequent_gold_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for golds, label in (("TTFFF", "F"), ("TTTTF", "T"), ("TF", "T")):
        monkeypatch.setattr(sys.modules[__name__], "GOLD", golds)
        answers = {(setting, True): (golds, golds) for setting in DEMOS}
        run = MajorityPlan(("likelihood",), answers=answers).write(tmp_path / golds)
        measure(run)
        [row] = rows(run, "from majority_by_model")
        best = f1_score(list(golds), [label] * len(golds), average="weighted", zero_division=0)
        assert row["constant_f1"] == pytest.approx(best)


def test_the_settings_inside_the_boundary_are_those_that_it_counts(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(
        opened,
        "select instruction, predict, method, rb_at_10, avg(is_within::int) as share, "
        "list(setting order by number) filter (is_within) as inside "
        "from majority_over_seeds inner join majority_by_model "
        "using (model, task, n_demos, instruction, predict, method) group by all",
    )
    assert len(found) == 8
    assert all(row["share"] == pytest.approx(row["rb_at_10"]) for row in found)
    assert {tuple(row["inside"]) for row in found} == {("50/50",)}


def _answered(folder: Path, predictions: Mapping[str, str], n_repeats: int = 1) -> Rows:
    """Return the settings and then the model of a run that gives these outputs with instruction, by setting."""
    answers = {(setting, True): (given, given) for setting, given in predictions.items()}
    run = MajorityPlan(("generate",), answers=answers, n_repeats=n_repeats).write(folder)
    measure(run)
    return [*rows(run, "from majority_over_seeds order by number"), *rows(run, "from majority_by_model")]


def test_the_boundary_says_nothing_where_no_answer_is_right_or_most_outputs_are_no_label(tmp_path: Path) -> None:
    """One output of 0/100 is no label in every plan. T--- has 3 of 4 without label; --TF half and one more of 24."""
    for number, outputs in enumerate(("FF-T", "T---", "--TF")):
        *settings, model = _answered(tmp_path / str(number), dict.fromkeys(DEMOS, outputs))
        assert all(row["is_within"] for row in settings) or outputs == "--TF"
        for row in (*settings, model):
            assert row["boundary"] is None
        assert not any(row["is_marked"] for row in settings)
        assert (model["n_marked"], model["has_many_without_label"]) == (0, True)
    # Exactly half without a label, the right ones among the others: the boundary still says something.
    *settings, model = _answered(tmp_path / "half", {"0/100": "TT--", "50/50": "T---", "100/0": "TTT-"})
    assert model["share_no_label"] == pytest.approx((2 + 2 + 3 + 3 + 1 + 1) / 24)
    assert [row["boundary"] for row in (*settings, model)] == pytest.approx([3 / 4 - 0.1] * 4)
    assert [row["is_marked"] for row in settings] == [False, False, True]
    assert model["n_marked"] == 1


def test_many_outputs_without_a_label_are_three_percent(tmp_path: Path) -> None:
    """One output of 24 n is no label: 4.2 % and 2.1 %."""
    for n_repeats, expected in ((1, True), (2, False)):
        *_, model = _answered(tmp_path / str(n_repeats), dict.fromkeys(DEMOS, "TTTF"), n_repeats)
        assert model["share_no_label"] == pytest.approx(1 / 24 / n_repeats)
        assert model["has_many_without_label"] is expected


def test_an_answer_is_constant_above_95_percent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "GOLD", "T" * 20)
    for n_false, expected in ((1, False), (0, True)):
        answers = {(setting, True): ("T" * (20 - n_false) + "F" * n_false,) * 2 for setting in DEMOS}
        run = MajorityPlan(("likelihood",), answers=answers).write(tmp_path / str(n_false))
        measure(run)
        [row] = rows(run, "from majority_by_model")
        assert row["share_most_frequent"] == pytest.approx(1 - n_false / 20)
        assert row["is_constant"] is expected


def test_a_constant_answer_follows_the_majority_of_one_labels_settings(tmp_path: Path) -> None:
    """Of three settings with a majority two have that of False; a tie has none."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[1] |= {"shares": [0.0, 1.0], "counts": [0, 2], "counts_asked": [0, 2]}
    for row in plan.contexts:
        if row["setting"] == "50/50":
            row["demo_labels"] = ["False", "False"]
    run = plan.write(tmp_path / "two")
    measure(run)
    assert {row["share_majority_of_constant"] for row in rows(run, "from majority_by_model")} == {2 / 3}
    plan = MajorityPlan(
        ("likelihood",), answers={place: given for place, given in ANSWERS.items() if place[0] == "50/50"}
    )
    plan.settings = [row | {"number": 0} for row in plan.settings if row["setting"] == "50/50"]
    run = plan.write(tmp_path / "tie")
    measure(run)
    for row in rows(run, "from majority_by_model"):
        assert row["share_majority"] is row["share_majority_of_constant"] is None


def test_test_rows_are_enough_where_half_the_settings_intervals_are_within_the_boundarys_distance(
    tmp_path: Path,
) -> None:
    """A setting with every answer right has an interval without width, which says nothing of the number of rows."""
    outputs = {"0/100": "TTFF", "50/50": "TTTF", "100/0": "TTTT"}
    for n_repeats, expected in ((1, False), (50, True)):
        *settings, model = _answered(tmp_path / str(n_repeats), outputs, n_repeats)
        widths = [row["weighted_f1_high"] - row["weighted_f1_low"] for row in settings]
        assert widths[1] == pytest.approx(0, abs=1e-12)
        assert model["half_width"] == pytest.approx((widths[0] + widths[2]) / 2 / 2)
        assert model["has_enough_rows"] is (model["half_width"] <= 0.1) is expected
        assert model["n_test_rows"] == 4 * n_repeats
    # Nothing to tell the rows apart by: each interval is without width.
    right = dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))
    run = MajorityPlan(("likelihood",), answers=right).write(tmp_path / "right")
    measure(run)
    assert {(row["half_width"], row["has_enough_rows"]) for row in rows(run, "from majority_by_model")} == {(0, True)}


def test_a_gain_can_be_judged_where_both_sides_have_enough_rows(built: str, tmp_path: Path) -> None:
    for run, expected in (
        (built, False),
        (MajorityPlan(("likelihood",), ("looc",), n_repeats=50).write(tmp_path), True),
    ):
        if run != built:
            measure(run)
        enough = {
            (row["instruction"], row["method"]): row["has_enough_rows"]
            for row in rows(run, "from majority_by_model where predict = 'likelihood'")
        }
        verdicts = rows(
            run, "from majority_verdicts where predict = 'likelihood' and instruction = against_instruction"
        )
        for row in rows(run, "from majority_calibration_gain"):
            both = [enough[row["instruction"], method] for method in (row["method"], "none")]
            assert row["has_enough_rows"] is all(both)
            for metric in ("rb_at_10", "mean_f1", "sd_f1"):
                value, low, high = (row[f"{metric}{end}"] for end in ("", "_low", "_high"))
                assert low <= high
                [word] = [
                    each["verdict"]
                    for each in verdicts
                    if (each["instruction"], each["method"], each["metric"])
                    == (row["instruction"], row["method"], metric)
                ]
                sign = {"higher": 1, "lower": -1}.get(word)
                assert row[f"{metric}_sign"] == (0 if abs(value) < 1e-9 else sign)
                assert sign is None or sign * value > 0
        assert all(enough.values()) is expected
    [row] = rows(run, "from majority_calibration_gain where not instruction")
    assert (row["mean_f1_sign"], row["rb_at_10_sign"]) == (None, 0)  # one of six draws moves the mean


def test_the_region_of_a_setting_is_that_of_its_real_counts(tmp_path: Path) -> None:
    """With two demonstrations a setting of 10/90 has the counts of 0/100: it stands at the tails with it."""
    plan = MajorityPlan(("likelihood",))
    plan.settings[0] |= {"shares": [0.1, 0.9]}
    run = plan.write(tmp_path)
    measure(run)
    regions = rows(run, "from setting_regions order by setting")
    assert [tuple(row.values()) for row in regions] == [("0/100", "tails"), ("100/0", "tails"), ("50/50", "middle")]


def test_the_instructions_gap_at_the_tails_and_in_the_middle_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    found = rows(
        opened, "from majority_instruction_gap where predict = 'likelihood' and method = 'none' order by region desc"
    )
    expected = {
        "tails": ((23 / 30 + (9 / 14 + 1) / 2) / 2, (0.1 + 9 / 14) / 2, 2),
        "middle": (1.0, (23 / 30 + 1) / 2, 1),
    }
    assert [row["region"] for row in found] == list(expected)
    for row in found:
        with_instruction, without, n_settings = expected[row["region"]]
        assert row["with_instruction"] == pytest.approx(with_instruction)
        assert row["without_instruction"] == pytest.approx(without)
        assert row["gap"] == pytest.approx(with_instruction - without)
        assert row["gap_low"] <= row["gap"] <= row["gap_high"]
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (n_settings, 2, n_settings * 2 * 2 * 4)


def test_what_calibration_gains_by_hand(opened: duckdb.DuckDBPyConnection) -> None:
    """In 100/0, seed 3, with instruction cc turns TTTT to FFFF; in 0/100, without, looc turns FFFF to TTTT."""
    found = {
        (row["instruction"], row["method"]): row
        for row in rows(opened, "from majority_calibration_gain order by instruction, method")
    }
    before = {True: [23 / 30, 1, (9 / 14 + 1) / 2], False: [0.1, (23 / 30 + 1) / 2, 9 / 14]}
    after = {
        (True, "cc"): [23 / 30, 1, (0.1 + 1) / 2],
        (True, "looc"): before[True],
        (False, "cc"): before[False],
        (False, "looc"): [(9 / 14 + 0.1) / 2, (23 / 30 + 1) / 2, 9 / 14],
    }
    assert list(found) == sorted(after)
    for (instruction, method), row in found.items():
        f1s = np.array([after[instruction, method], before[instruction]])
        rb = np.mean(f1s >= f1s.max(axis=1, keepdims=True) - 0.1, axis=1)
        for name, values in (("rb_at_10", rb), ("mean_f1", f1s.mean(axis=1)), ("sd_f1", f1s.std(axis=1, ddof=1))):
            assert row[name] == pytest.approx(values[0] - values[1], abs=1e-12)
            assert row[f"{name}_low"] <= row[f"{name}_high"]
        assert (row["model"], row["task"], row["n_demos"]) == ("tiny", "boolq", 2)
        assert (row["n_settings"], row["n_seeds"], row["n_rows"]) == (3, 2, 24)
    unchanged = found[True, "looc"]
    assert {unchanged[f"{name}{end}"] for name in ("rb_at_10", "mean_f1", "sd_f1") for end in ("_low", "_high")} == {0}
    assert found[False, "looc"]["mean_f1"] == pytest.approx((9 / 14 - 0.1) / 2 / 3)


def test_a_gain_is_positive_where_calibration_widens_the_boundary(tmp_path: Path) -> None:
    """By likelihood FFFF of both seeds of 0/100 becomes TTTT: 9/14 instead of 0.1, as in 100/0; 50/50 has 9/14 too."""
    answers = {("0/100", False): ("FFFF", "FFFF"), ("50/50", False): ("TTTT",) * 2, ("100/0", False): ("TTTT",) * 2}
    p_hat = {("0/100", seed, False, "cc", 0): 0.03 for seed in SEEDS}
    run = MajorityPlan(("likelihood",), ("cc",), answers, p_hat).write(tmp_path)
    measure(run)
    [row] = rows(run, "from majority_calibration_gain")
    assert row["rb_at_10"] == pytest.approx(1 - 2 / 3)
    assert row["mean_f1"] == pytest.approx((9 / 14 - 0.1) / 3)
    assert row["sd_f1"] == pytest.approx(-np.std([0.1, 9 / 14, 9 / 14], ddof=1))
    assert row["sd_f1_low"] <= row["sd_f1"] <= row["sd_f1_high"] <= 0


def test_intervals_of_differences_are_percentiles_over_the_stored_draws(opened: duckdb.DuckDBPyConnection) -> None:
    """A statistic of a draw is over settings, each the mean over seeds; both sides of a difference have the draw."""
    draws = rows(opened, "from majority_draws where predict = 'likelihood' and draw > 0")
    f1s: dict[tuple[bool, str], np.ndarray[Any, Any]] = {}
    for row in draws:
        values = f1s.setdefault((row["instruction"], row["method"]), np.zeros((1000, 3, 2)))
        values[row["draw"] - 1, row["number"], SEEDS.index(row["seed"])] = row["weighted_f1"]
    means = {key: values.mean(axis=2) for key, values in f1s.items()}
    for row in rows(opened, "from majority_calibration_gain"):
        after, before = means[row["instruction"], row["method"]], means[row["instruction"], "none"]
        statistics: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
            "rb_at_10": lambda x: np.mean(x >= x.max(axis=1, keepdims=True) - 0.1 - 1e-9, axis=1),
            "mean_f1": lambda x: x.mean(axis=1),
            "sd_f1": lambda x: x.std(axis=1, ddof=1),
        }
        for name, statistic in statistics.items():
            expected = np.quantile(statistic(after) - statistic(before), [0.025, 0.975])
            assert [row[f"{name}_low"], row[f"{name}_high"]] == pytest.approx(expected, abs=1e-9), name
    for row in rows(opened, "from majority_instruction_gap where predict = 'likelihood'"):
        chosen = [0, 2] if row["region"] == "tails" else [1]
        gap = (means[True, row["method"]] - means[False, row["method"]])[:, chosen].mean(axis=1)
        assert [row["gap_low"], row["gap_high"]] == pytest.approx(np.quantile(gap, [0.025, 0.975]), abs=1e-9)


def test_without_calibration_nothing_is_gained(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path)
    measure(run)
    assert rows(run, "from majority_calibration_gain") == []


def test_intervals_are_percentiles_over_the_stored_draws(opened: duckdb.DuckDBPyConnection) -> None:
    draws = [row["n_drawn"] for row in rows(opened, "from row_draws order by draw")]
    assert (len(draws), draws[0]) == (1001, [1, 1, 1, 1])
    assert all(sum(n_drawn) == 4 for n_drawn in draws)

    @functools.cache  # of 1,000 draws from four rows few differ
    def drawn(answers: str, n_drawn: tuple[int, ...]) -> float:
        return float(
            f1_score(
                list("".join(gold * n for gold, n in zip(GOLD, n_drawn, strict=True))),
                list("".join(answer * n for answer, n in zip(answers, n_drawn, strict=True))),
                average="weighted",
                zero_division=0,
            )
        )

    f1s = {
        (setting, seed): [drawn(ANSWERS[setting, True][seed], tuple(n_drawn)) for n_drawn in draws[1:]]
        for setting in ("0/100", "100/0")
        for seed in (0, 1)
    }
    where = "instruction and predict = 'likelihood' and method = 'none'"
    for (setting, seed), values in f1s.items():
        [row] = rows(
            opened, f"from majority_by_setting where {where} and setting = '{setting}' and seed = {SEEDS[seed]}"
        )
        expected = np.quantile(values, [0.025, 0.975])
        assert [row["weighted_f1_low"], row["weighted_f1_high"]] == pytest.approx(expected, abs=1e-9)
    means = np.array([np.mean([f1s[setting, seed] for seed in (0, 1)], axis=0) for setting in ("0/100", "100/0")])
    for setting, values in zip(("0/100", "100/0"), means, strict=True):
        [row] = rows(opened, f"from majority_over_seeds where {where} and setting = '{setting}'")
        expected = np.quantile(values, [0.025, 0.975])
        assert [row["weighted_f1_low"], row["weighted_f1_high"]] == pytest.approx(expected, abs=1e-9)
    means = np.array([means[0], np.ones(1000), means[1]])  # 50/50 is always right
    [row] = rows(opened, f"from majority_by_model where {where}")
    boundary = np.mean(means >= means.max(axis=0) - 0.1 - 1e-9, axis=0)
    assert [row["mean_f1_low"], row["mean_f1_high"]] == pytest.approx(np.quantile(means.mean(axis=0), [0.025, 0.975]))
    assert [row["rb_at_10_low"], row["rb_at_10_high"]] == pytest.approx(np.quantile(boundary, [0.025, 0.975]))


def test_random_predictions_equal_scikit_learn(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    plan = MajorityPlan()
    for row in plan.generations:
        row["prediction"] = ("True", "False", None)[rng.integers(3)]
    run = plan.write(tmp_path)
    measure(run)
    golds = {row["prompt_id"]: row["gold"] for row in plan.prompts}
    found = rows(run, "from majority_by_setting where predict = 'generate'")
    for row in found:
        prefix = f"{row['setting']}/{row['seed']}/{row['instruction']}/"
        chosen = [x for x in plan.generations if x["prompt_id"].startswith(prefix)]
        gold = [golds[x["prompt_id"]] for x in chosen]
        prediction = [x["prediction"] or "no label" for x in chosen]
        expected = f1_score(gold, prediction, average="weighted", zero_division=0)
        assert row["weighted_f1"] == pytest.approx(expected)
        assert row["accuracy"] == accuracy_score(gold, prediction)
        assert row["share_no_label"] == prediction.count("no label") / 4
    assert len(found) == 12


@pytest.mark.parametrize("predict", [("likelihood",), ("generate",), ("constrained",), ("generate", "constrained")])
def test_a_run_may_predict_in_some_ways_only(predict: tuple[str, ...], tmp_path: Path) -> None:
    run = MajorityPlan(predict).write(tmp_path)
    analyse_run(run)
    found = rows(run, "select distinct predict, method from majority_by_model order by all")
    assert found == [{"predict": way, "method": "none"} for way in sorted(predict)]
    n_generated = 12 * 4 * len(set(predict) - {"likelihood"})
    assert rows(run, "select count(*) as n from generations") == [{"n": n_generated}]
    with closing(duckdb.connect(str(Path(run, "results.duckdb")), read_only=True)) as connection:
        n_predictions = "select count(*) from majority_predictions"
        assert connection.execute(n_predictions).fetchall() == [(12 * 4 * len(predict),)]


def test_shares_that_add_up_to_one_may_do_so_with_a_rounding_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "GOLD", "T" * 40)
    predictions = "T" * 3 + "-" * 37  # 3 / 40 > 1 - 37 / 40 in floating point
    answers = {(setting, True): (predictions, predictions) for setting in DEMOS}
    run = MajorityPlan(("generate",), answers=answers).write(tmp_path)
    measure(run)
    assert {row["accuracy"] for row in rows(run, "from majority_by_setting where setting = '100/0'")} == {3 / 40}


def test_without_both_instructions_there_is_no_gap(tmp_path: Path) -> None:
    plan = MajorityPlan(("likelihood",))
    plan.contexts = [row for row in plan.contexts if row["instruction"]]
    kept = {row["context_id"] for row in plan.contexts}
    plan.prompts = [row for row in plan.prompts if row["context_id"] in kept]
    prompts = {row["prompt_id"] for row in plan.prompts}
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] in prompts]
    run = plan.write(tmp_path)
    measure(run)
    assert rows(run, "from majority_instruction_gap") == []
    assert len(rows(run, "from majority_by_model")) == 1


def test_one_row_and_one_seed_have_no_interval_and_no_deviation(tmp_path: Path) -> None:
    plan = MajorityPlan(("generate",))
    plan.contexts = [row for row in plan.contexts if row["demo_set"] == 3]
    plan.prompts = [row for row in plan.prompts if row["demo_set"] == 3 and row["row"] == 0]
    prompts = {row["prompt_id"] for row in plan.prompts}
    plan.generations = [row for row in plan.generations if row["prompt_id"] in prompts]
    run = plan.write(tmp_path)
    measure(run)
    for row in rows(run, "from majority_over_seeds"):
        assert (row["n_rows"], row["n_seeds"], row["sd_f1"], row["weighted_f1_low"]) == (1, 1, None, None)
    for row in rows(run, "from majority_by_model"):
        assert row["mean_f1_low"] is row["rb_at_10_high"] is row["mean_sd_over_seeds"] is None
        assert row["sd_f1"] is not None
    assert {row["gap_low"] for row in rows(run, "from majority_instruction_gap")} == {None}


def test_the_same_outputs_in_another_order_give_the_same_bytes(built: str, tmp_path: Path) -> None:
    plan = MajorityPlan(calibration=("cc", "looc"))
    for table in (plan.contexts, plan.prompts, plan.label_scores, plan.generations, plan.settings):
        table.reverse()
    run = plan.write(tmp_path)
    measure(run)
    marts = {path.name for path in Path(run, "marts").iterdir()}
    assert marts == {
        "calibration_parameters.parquet",
        "majority_by_model.parquet",
        "majority_by_setting.parquet",
        "majority_calibration_gain.parquet",
        "majority_components.parquet",
        "majority_draws.parquet",
        "majority_draws_by_model.parquet",
        "majority_draws_over_seeds.parquet",
        "majority_instruction_gap.parquet",
        "majority_over_seeds.parquet",
        "majority_verdicts.parquet",
    }
    for mart in marts:
        assert Path(run, "marts", mart).read_bytes() == Path(built, "marts", mart).read_bytes(), mart


def test_a_run_of_an_older_version_has_the_marts_columns_of_this_one(built: str, tmp_path: Path) -> None:
    old = tmp_path / "boolq"
    shutil.copytree(built, old)
    for mart, columns in (
        ("majority_over_seeds", ["boundary", "is_marked", "recency"]),
        ("majority_by_model", ["boundary", "n_marked", "has_enough_rows", "is_constant", *FOLLOWED]),
        (
            "majority_calibration_gain",
            ["rb_at_10_sign", "mean_f1_sign", "sd_f1_sign", "has_enough_rows", "is_constant"],
        ),
    ):
        path = old / "marts" / f"{mart}.parquet"
        pq.write_table(pq.read_table(path).drop_columns(columns), path)
    with closing(open_runs([str(old)])) as of_old, closing(open_runs([built])) as of_new:
        for mart in Path(built, "marts").iterdir():
            found, wanted = (run.sql(f"from {mart.stem}").to_arrow_table() for run in (of_old, of_new))
            assert found.equals(wanted), mart
    both = query([built, str(old)], "select run, has_enough_rows from majority_by_model")
    assert both["has_enough_rows"].null_count == 0


# Checks: each has a run that breaks it


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[MajorityPlan], None]:
    def change(plan: MajorityPlan) -> None:
        row = next(row for row in getattr(plan, table) if all(row[key] == wanted for key, wanted in where.items()))
        row[column] = value

    return change


def _drop(table: str, **where: Any) -> Callable[[MajorityPlan], None]:
    def change(plan: MajorityPlan) -> None:
        kept = [row for row in getattr(plan, table) if any(row[key] != value for key, value in where.items())]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return change


def _repeat(table: str, **changes: Any) -> Callable[[MajorityPlan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


def _both(*changes: Callable[[MajorityPlan], None]) -> Callable[[MajorityPlan], None]:
    def change_all(plan: MajorityPlan) -> None:
        for change in changes:
            change(plan)

    return change_all


FIRST = "0/100/3/True/0"
BROKEN: list[tuple[str, Callable[[MajorityPlan], None], str]] = [
    ("settings_are_well_formed", _repeat("settings"), "setting 0/100 (0)"),
    ("settings_are_well_formed", _repeat("settings", setting="1/99"), "setting 1/99 (0)"),
    ("settings_are_well_formed", _set("settings", "labels", ["False", "True"], number=1), "setting 50/50 (1)"),
    ("settings_are_well_formed", _set("settings", "shares", [0.5, 0.4]), "setting 0/100 (0)"),
    ("settings_are_well_formed", _set("settings", "counts", [0, 3]), "setting 0/100 (0)"),
    ("settings_are_well_formed", _set("settings", "counts", [2]), "setting 0/100 (0)"),
    ("majority_prompts_fit_their_setting", _set("prompts", "gold", "Maybe"), f"{FIRST} has setting 0/100"),
    ("majority_prompts_fit_their_setting", _set("prompts", "gold", None), "gold null"),
    ("majority_prompts_fit_their_setting", _set("prompts", "labels", ["False"]), "labels [False]"),
    ("majority_prompts_fit_their_setting", _drop("settings", setting="0/100"), "are not known"),
    ("majority_contexts_hold_the_counts", _set("contexts", "demo_labels", ["True", "False"]), "its setting 0/100"),
    (
        "majority_contexts_hold_the_counts",
        _set("contexts", "demo_labels", []),
        "0/100/3/True has the demonstrations []",
    ),
    ("majority_contexts_hold_the_counts", _drop("settings", setting="0/100"), "0/100 is not known"),
    (
        "majority_settings_have_the_same_rows",
        _both(_drop("prompts", prompt_id=FIRST), _drop("label_scores", prompt_id=FIRST)),
        "setting 0/100, seed 3, with instruction: 3 rows",
    ),
    ("majority_settings_have_the_same_rows", _set("prompts", "instance_id", "x", row=1, demo_set=5), "seed 5, with"),
    (
        "majority_settings_have_the_same_rows",
        _both(
            _repeat("contexts", context_id="second"),
            _set("prompts", "context_id", "second", prompt_id=FIRST),
        ),
        "4 rows in 2 contexts",
    ),
    ("generations_are_whole", _drop("generations", prompt_id=FIRST), f"prompt {FIRST} has 0 outputs (generate)"),
    ("generations_are_whole", _repeat("generations"), f"prompt {FIRST} has 2 outputs (generate)"),
    ("generations_are_whole", _repeat("generations", mode="other"), f"prompt {FIRST} has an output (other)"),
    ("generations_are_whole", _repeat("generations", prompt_id="new"), "prompt new has an output (generate)"),
    ("generations_are_whole", _set("generations", "prediction", "Maybe"), "the prediction Maybe"),
    ("generations_are_whole", _set("generations", "prediction", None, mode="constrained"), "the prediction null"),
    (
        "majority_settings_have_every_prediction",
        _both(
            _drop("prompts", prompt_id="50/50/5/False/cc/0"),
            _drop("label_scores", prompt_id="50/50/5/False/cc/0"),
        ),
        "setting 50/50, seed 5, without instruction: no predictions by likelihood, cc",
    ),
    (
        "majority_settings_have_every_prediction",
        _repeat("settings", setting="1/99", number=3),
        "setting 1/99, seed 3, with instruction: no predictions by generate, none",
    ),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST), f"prompt {FIRST} has no score"),
    ("contexts_are_unique", _repeat("contexts"), "context 0/100/3/True occurs 2 times"),
]


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[MajorityPlan], None], problem: str, tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood", "generate", "constrained"), calibration=("cc",))
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert not Path(run, "marts").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(relations.ANALYTICS, tmp_path / "analytics")
    monkeypatch.setattr(relations, "ANALYTICS", tmp_path / "analytics")
    run = MajorityPlan().write(tmp_path / "run")
    for mart, right, wrong, problem in (
        (
            "majority_by_setting",
            "    measured.weighted_f1,",
            "    measured.weighted_f1 + 1 as weighted_f1,",
            "setting ",
        ),
        ("majority_by_setting", "    measured.accuracy,", "    null::double as accuracy,", "setting "),
        ("majority_by_setting", "    measured.share_last,", "    2.0 as share_last,", "setting "),
        ("majority_draws", "2 * n_correct", "1.5 * n_correct", "of draw 0"),
        ("majority_by_model", "    rb_at_10,", "    0.0 as rb_at_10,", "instruction, "),
    ):
        path = tmp_path / f"analytics/marts/{mart}.sql"
        text = path.read_text()
        assert text.count(right) == 1
        path.write_text(text.replace(right, wrong))
        with pytest.raises(BiasevalError, match=f"majority_metrics_are_in_range: .*{problem}"):
            measure(run)
        path.write_text(text)
    measure(run)


def test_every_check_of_this_kind_has_a_run_that_breaks_it() -> None:
    checks = {kind: set(names_of(kind, "checks")) for kind in ("label_bias", "majority_bias")}
    broken = {check for check, _, _ in BROKEN} | {"majority_metrics_are_in_range", "training_rows_are_held_out"}
    assert checks["majority_bias"] - checks["label_bias"] <= broken <= checks["majority_bias"]


def test_missing_outputs_of_any_way_are_counted(tmp_path: Path) -> None:
    run = MajorityPlan().write(tmp_path, n_parts=2)
    Path(run, "generations", "part-00001.parquet").unlink()
    for ask in (analyse_run, lambda run_dir: query([run_dir], "select 1")):
        with pytest.raises(BiasevalError, match=r"1 of 4 parts missing \(first: generations/part-00001.parquet\)"):
            ask(run)
    Path(run, "generations", "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match=r"2 of 4 parts missing \(first: generations/part-00000.parquet\)"):
        measure(run)


# Everywhere else


def test_macros_work_in_queries_over_runs_of_any_kind(built: str, tmp_path: Path) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    measure(label_bias)
    scored = Run.open(str(tmp_path / "scored"))
    scored.write_text("spec.yaml", "kind: score\n")
    scored.write_part("prompts", 0, PROMPTS.rows([{"prompt_id": "p"}]))
    scored.write_part("label_scores", 0, LABEL_SCORES.empty())
    assert rows(scored.uri, "select rb_at_k([0.5, 0.4], 10) as rb") == [{"rb": 1.0}]
    sql = """
        select run, task, weighted_f1(list(gold), list(prediction)) as f1
        from calibrated_predictions
        where purpose = 'main' and n_demos = 0 and method = 'none'
        group by all order by all
    """
    found = query([label_bias, built], sql).to_pylist()
    assert [(row["run"], row["task"]) for row in found] == [
        ("animals", "task001_animals"),
        ("animals", "task002_letters"),
    ]
    for row in found:
        chosen = rows(
            label_bias,
            "select gold, prediction from calibrated_predictions where purpose = 'main' and n_demos = 0 "
            f"and method = 'none' and task = '{row['task']}'",
        )
        gold, prediction = [x["gold"] for x in chosen], [x["prediction"] for x in chosen]
        assert row["f1"] == pytest.approx(f1_score(gold, prediction, average="weighted", zero_division=0))
    both = "select run, rb_at_k(list(weighted_f1), 20) as rb from majority_over_seeds group by run"
    assert query([built, label_bias], both).num_rows == 1
    with pytest.raises(InputError, match="a gold label is null"):
        query([built], "select weighted_f1(list(gold), list(gold)) from prompts where gold is null")


def test_several_runs_of_this_kind_can_be_compared(built: str, tmp_path: Path) -> None:
    plan = MajorityPlan(("generate",))
    plan.spec["name"] = "small"
    small = plan.write(tmp_path / "small")
    measure(small)
    with closing(open_runs([built, small])) as connection:
        found = connection.sql(
            "select run, count(*) as n from majority_predictions group by run order by run"
        ).to_arrow_table()
        n_scores = connection.execute("select count(*) from label_scores where run = 'small'").fetchall()
    assert found.to_pylist() == [{"run": "boolq", "n": 48 * (3 + 1)}, {"run": "small", "n": 48}]
    assert n_scores == [(0,)]


def test_the_duckdb_shell_has_the_macros_and_every_relation(built: str, tmp_path: Path) -> None:
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    only_generated = MajorityPlan(("generate",)).write(tmp_path / "generated")
    analyse_run(only_generated)
    for run in (built, only_generated):
        names = views_of("majority_bias")
        macros = """
            select instruction::varchar as name, rb_at_k(list(weighted_f1), 10) as n
            from majority_over_seeds where predict = 'generate' group by all
            union all
            select setting, weighted_f1(list(gold), list(prediction)) from majority_predictions
            where predict = 'generate' and instruction group by all
            union all select 'relative', rb_at_k_relative([0.5, 0.45, 0.44], 10)
            union all select 'estimate', estimate(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
            union all select 'low', interval_low(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
            union all select 'high', interval_high(mean_f1, draw) from majority_draws_by_model
            where instruction and predict = 'generate'
        """
        counts = " union all ".join(f"select '{name}' as name, count(*)::double as n from {name}" for name in names)
        sql = f"{macros} union all {counts}"
        answer = subprocess.run(
            [found, "-readonly", "-json", str(Path(run, "results.duckdb")), sql],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
        assert shown == pytest.approx({row["name"]: row["n"] for row in rows(run, sql)})
        assert shown["relative"] == pytest.approx(2 / 3)
        [row] = rows(run, "from majority_by_model where instruction and predict = 'generate'")
        assert [shown[name] for name in ("estimate", "low", "high")] == pytest.approx(
            [row["mean_f1"], row["mean_f1_low"], row["mean_f1_high"]]
        )
        assert shown["majority_by_setting"] > 0


def test_a_plain_reader_finds_the_same_numbers(built: str) -> None:
    marts = pq.read_table(Path(built, "marts/majority_by_model.parquet"))
    assert marts.equals(query([built], "from majority_by_model"))
    with closing(duckdb.connect(str(Path(built, "results.duckdb")), read_only=True)) as connection:
        assert connection.sql("from majority_by_model").to_arrow_table().equals(marts)
        kinds = dict(connection.execute("select table_name, table_type from information_schema.tables").fetchall())
        functions = connection.execute("select function_name from duckdb_functions() where not internal").fetchall()
    assert {name for (name,) in functions} == {path.stem for path in relations.ANALYTICS.glob("macros/*.sql")}
    of_adapters = {"adapted_scores", "adapted_generations", "training_rows", "training"}  # empty in this run
    assert {name for name, kind in kinds.items() if kind == "BASE TABLE"} == of_adapters | {"calibration_methods"} | {
        path.stem for path in Path(built, "marts").iterdir()
    }
