"""A further calibration method is one record: planners, SQL and reports take it as they take the published ones."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic import TypeAdapter, ValidationError

from biaseval.analysis import open_runs
from biaseval.errors import BiasevalError
from biaseval.label_bias.plan import plan_tasks
from biaseval.label_bias.sources import read_sources
from biaseval.majority_bias.data import read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.pipelines import analyse_run
from biaseval.prompting.calibration import CALIBRATIONS, Calibration, random_words
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec
from tests.labelplans import Plan, rows
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.measuring import measure
from tests.taskfiles import write_task
from tests.test_indistinct_labels import label_bias_spec
from tests.tinymodels import make_tokenizer

MADE_UP = (
    Calibration(
        name="marks",
        shown="Marks",
        meaning="Made up: the same with marks.",
        by="marks",
        inputs=lambda fields, _words, _generator: [dict.fromkeys(fields, mark) for mark in "?!"],
    ),
    Calibration(
        name="words",
        shown="Words",
        meaning="Made up: the same with other words.",
        by="words",
        inputs=random_words,
        needs_words=True,
    ),
    Calibration(name="plain", shown="Plain", meaning="Made up: LOOC's plain mean.", by="demonstrations", inputs=None),
)
NAMES = [method.name for method in MADE_UP]


@pytest.fixture
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in MADE_UP:
        monkeypatch.setitem(CALIBRATIONS, method.name, method)


def test_a_spec_may_ask_for_each_record_and_for_nothing_else() -> None:
    for spec in (LabelBiasSpec, MajorityBiasSpec):
        calibration = TypeAdapter(spec.model_fields["calibration"].annotation)
        assert calibration.validate_python(list(CALIBRATIONS)) == list(CALIBRATIONS)
        with pytest.raises(ValidationError, match=f"use one of {', '.join(CALIBRATIONS)},"):
            calibration.validate_python(["cd"])


@pytest.mark.usefixtures("_made_up")
def test_label_bias_plans_the_inputs_of_a_made_up_record(tmp_path: Path) -> None:
    write_task(tmp_path, n_instances=400)
    published = label_bias_spec(tmp_path).model_copy(update={"calibration": ["dc", "looc"]})
    plans = {}
    for name, asked in (("published", ["dc", "looc"]), ("more", ["plain", "looc", "words", "marks", "dc"])):
        spec = published.model_copy(update={"calibration": asked})
        (plan,) = plan_tasks(spec, read_sources(spec), make_tokenizer(), None)
        plans[name] = [row for part in plan.parts for row in part.prompts.to_pylist()]
    found = Counter((row["purpose"], row["n_demos"]) for row in plans["more"])
    for n_demos in (0, 2):
        assert (found["marks", n_demos], found["words", n_demos], found["dc", n_demos]) == (2, 20, 20)
        assert (found["plain", n_demos], found["looc", n_demos]) == (n_demos, n_demos)
    assert list(dict.fromkeys(row["purpose"] for row in plans["more"] if row["n_demos"] == 2))[2:] == [
        *("dc", "marks", "words"),
        *("looc", "plain"),
    ]
    assert {row["input_text"] for row in plans["more"] if row["purpose"] == "marks"} == {
        "Input: ?\n\nOutput:",
        "Input: !\n\nOutput:",
    }
    _assert_made_up_rows(plans["more"])
    # What was drawn before is drawn as before.
    assert [row for row in plans["more"] if row["purpose"] not in NAMES] == plans["published"]


@pytest.mark.usefixtures("_made_up")
def test_majority_bias_plans_the_inputs_of_a_made_up_record(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("dog", 12, 9))
    write_jsonl(tmp_path / "test.jsonl", boolq_rows("cat", 4, 2))
    published = boolq_spec(tmp_path, proportions=[{"True": 0.5, "False": 0.5}], seeds=[0], calibration=["dc", "looc"])
    spec = published.model_copy(update={"calibration": [*published.calibration, *NAMES]})
    plans = {}
    for name, asked in (("published", published), ("more", spec)):
        (plan,) = plan_settings(asked, read_dataset(asked), make_tokenizer(), None)
        plans[name] = [row for part in plan.parts for row in part.prompts.to_pylist()]
        contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    assert len(contexts) == 2 * (1 + 4)
    found = Counter(row["purpose"] for row in plans["more"])
    assert found == {"majority": 12, "dc": 40, "marks": 4, "words": 40, "looc": 8, "plain": 8}
    _assert_made_up_rows(plans["more"])
    assert [row for row in plans["more"] if row["purpose"] not in NAMES] == plans["published"]


def _assert_made_up_rows(prompts: list[dict[str, Any]]) -> None:
    """Check that words are drawn apart from those of dc, and that a demonstration is left out as by looc."""
    texts = {name: {row["input_text"] for row in prompts if row["purpose"] == name} for name in ("dc", "words")}
    assert texts["dc"] != texts["words"]
    left_out = {
        name: [
            (row["context_id"], row["gold"], row["input_text"], row["n_demos_used"])
            for row in prompts
            if row["purpose"] == name
        ]
        for name in ("looc", "plain")
    }
    assert left_out["plain"] == left_out["looc"]
    assert all(gold is not None for _, gold, _, _ in left_out["plain"])


def _scored() -> Plan:
    """Return a run with two demonstrations, whose labels a and a have p(a) 0.8 and 0.6 left out, b's has 0.1."""
    plan = Plan()
    task = plan.task("task001", ["a", "b"])
    for n_demos in (0, 3):
        plan.probabilities(task, "main", "b", [0.6, 0.4], n_demos=n_demos)
        plan.probabilities(task, "bias_score", "b", [0.6, 0.4], n_demos=n_demos)
        for p in (0.7, 0.9):
            plan.probabilities(task, "marks", None, [p, 1 - p], n_demos=n_demos)
    for gold, p in (("a", 0.8), ("a", 0.6), ("b", 0.1)):
        for method in ("looc", "plain"):
            plan.probabilities(task, method, gold, [p, 1 - p], n_demos=3)
    for row in plan.prompts:
        row["n_demos_used"] = row["n_demos"] - (row["purpose"] in ("looc", "plain"))
        row["is_truncated"] = False
    return plan


@pytest.mark.usefixtures("_made_up")
def test_sql_takes_the_means_of_a_made_up_record(tmp_path: Path) -> None:
    run = _scored().write(tmp_path / "run")
    analyse_run(run)
    means = "select method, exp(log_p_hat) as p, n_rows from calibration_means where n_demos = 3 and label = 'a'"
    expected = {
        "looc": (pytest.approx((0.7 + 0.1) / 2), 3),  # the mean of the gold labels' means
        "marks": (pytest.approx(0.8), 2),
        "plain": (pytest.approx(0.5), 3),  # the plain mean
    }
    assert {row["method"]: (row["p"], row["n_rows"]) for row in rows(run, means)} == expected
    predictions = rows(run, "select method, prediction from calibrated_predictions where n_demos = 3 and gold = 'b'")
    assert {row["method"]: row["prediction"] for row in predictions} == {
        "none": "a",
        "looc": "a",
        "plain": "a",
        "marks": "b",
    }
    assert {row["method"] for row in rows(run, "from label_bias_by_model")} == {"none", "looc", "marks", "plain"}
    assert rows(run, "from shortened_prompts where n_fewer_demos > 0") == []
    with closing(duckdb.connect(str(tmp_path / "run" / "results.duckdb"), read_only=True)) as connection:
        alone = connection.sql(means).to_arrow_table().to_pylist()
        methods = connection.sql("select method from calibration_methods order by number").fetchall()
    assert {row["method"]: (row["p"], row["n_rows"]) for row in alone} == expected
    assert [method for (method,) in methods] == list(CALIBRATIONS)
    other = _scored().write(tmp_path / "other")
    analyse_run(other)
    with closing(open_runs([run, other])) as connection:
        assert connection.sql("select count(*) from calibration_means").fetchall() == [(2 * 2 * (1 + 3),)]


@pytest.mark.usefixtures("_made_up")
def test_a_demonstration_that_a_made_up_record_leaves_out_has_its_label(tmp_path: Path) -> None:
    plan = _scored()
    next(row for row in plan.prompts if row["purpose"] == "plain")["gold"] = None
    with pytest.raises(BiasevalError, match=r"prompts_have_the_labels_of_their_task: .*\(plain\) has gold null"):
        measure(plan.write(tmp_path))
