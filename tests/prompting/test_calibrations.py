"""Calibrations: their records, formulas and variants."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from biaseval.prompting import calibration as cal
from biaseval.runs import report_run
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec
from tests.labelplans import Plan, plan_tasks, rows
from tests.measuring import measure
from tests.taskfiles import write_task
from tests.test_indistinct_labels import label_bias_spec
from tests.tinymodels import make_tokenizer

Array = np.ndarray[Any, Any]

MAIN = np.array([[0.7, 0.2, 0.1], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]])
CC = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
DC = np.array([[0.5, 0.25, 0.25], [0.3, 0.6, 0.1]])


def _normalized(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _softmax(rows: Array) -> Array:
    return _normalized(np.exp(rows))


FORMULAS: dict[str, Callable[[Array], Array]] = {
    "none": lambda p: p,
    "cc": lambda p: _normalized(p / CC.mean(axis=0)),
    "dc": lambda p: _normalized(p / DC.mean(axis=0)),
    "bc": lambda p: _normalized(p / MAIN.mean(axis=0)),  # Zhou et al. 2024, equation 4
    "bc@0.5": lambda p: _normalized(p / np.sqrt(MAIN.mean(axis=0))),
    "pmi": lambda p: _normalized(p / CC[1]),  # the empty input is the second
    "cc_softmax": lambda p: _softmax(p / CC.mean(axis=0)),  # Reif & Schwartz (2024), section 3.2, as printed
    "dc_softmax": lambda p: _softmax(p / DC.mean(axis=0)),
}


def _scored() -> Plan:
    plan = Plan()
    plan.spec["calibration"] = list(FORMULAS)[1:]
    task = plan.task("task001", ["a", "b", "c"])
    for purpose, table in (("main", MAIN), ("bias_score", MAIN[::-1]), ("cc", CC), ("dc", DC)):
        for number, probabilities in enumerate(table.tolist()):
            gold = "abc"[number % 3] if purpose in ("main", "bias_score") else None
            plan.probabilities(task, purpose, gold, probabilities)
    return plan


def test_each_file_gives_what_its_formula_gives(tmp_path: Path) -> None:
    run = _scored().write(tmp_path / "run")
    report_run(run, page=False)
    asked = "select method, probabilities from calibrated_predictions where purpose = $purpose order by method, row"
    for purpose, table in (("main", MAIN), ("bias_score", MAIN[::-1])):
        found: dict[str, list[list[float]]] = {}
        for row in rows(run, asked.replace("$purpose", f"'{purpose}'")):
            found.setdefault(row["method"], []).append(row["probabilities"])
        assert found.keys() == FORMULAS.keys()
        for method, formula in FORMULAS.items():
            assert np.array(found[method]) == pytest.approx(formula(table), abs=1e-7), method  # scores are float32
    parameters = rows(run, "select method, n_rows from calibration_parameters where label = 'a' order by method")
    assert {row["method"]: row["n_rows"] for row in parameters} == {"bc": 3, "bc@0.5": 3, "cc": 3, "dc": 2, "pmi": 1}
    costs = {row["method"]: row["n_prompts"] for row in rows(run, "select method, n_prompts from mitigation_costs")}
    assert costs == {"bc": 0, "bc@0.5": 0, "cc": 3, "cc_softmax": 3, "dc": 2, "dc_softmax": 2, "pmi": 3}
    softmax = "select method, prediction from calibrated_predictions where method in ('cc', 'cc_softmax') order by all"
    predicted = Counter((row["method"], row["prediction"]) for row in rows(run, softmax))
    assert {label: n for (method, label), n in predicted.items() if method == "cc"} == {
        label: n for (method, label), n in predicted.items() if method == "cc_softmax"
    }


def test_a_spec_may_ask_for_each_file_and_for_nothing_else() -> None:
    for spec in (LabelBiasSpec, MajorityBiasSpec):
        calibration = TypeAdapter(spec.model_fields["calibration"].annotation)
        assert calibration.validate_python(list(cal.CALIBRATIONS)) == list(cal.CALIBRATIONS)
        for wrong, message in (
            ("cd", f"use one of {', '.join(cal.CALIBRATIONS)},"),
            ("cc_softmax@0.7", "cc_softmax has no strength; write cc_softmax"),
            ("pmi/1", "pmi takes all of its inputs; write pmi"),
        ):
            with pytest.raises(ValidationError, match=message):
                calibration.validate_python([wrong])


def _planned(tmp_path: Path, asked: list[str]) -> list[dict[str, Any]]:
    spec = label_bias_spec(tmp_path).model_copy(update={"calibration": asked})
    [plan] = plan_tasks(spec, make_tokenizer())
    return [row for part in plan.parts for row in part.prompts.to_pylist()]


def test_other_purposes_leave_the_published_prompts_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path, n_instances=400)
    published = _planned(tmp_path, ["dc", "looc"])
    for purpose in (cal.Purpose("words", cal.random_words, 20, needs_words=True), cal.Purpose("plain", None)):
        monkeypatch.setitem(cal.PURPOSES, purpose.name, purpose)
        made_up = cal.CALIBRATIONS["dc"].__class__(purpose.name, "Made up", "Made up.", "", (purpose.name,))
        monkeypatch.setitem(cal.CALIBRATIONS, purpose.name, made_up)
    more = _planned(tmp_path, ["plain", "looc", "words", "dc"])
    assert [row for row in more if row["purpose"] not in ("words", "plain")] == published
    texts = {name: {row["input_text"] for row in more if row["purpose"] == name} for name in ("dc", "words")}
    assert texts["dc"] != texts["words"]  # words are drawn apart
    left_out = {
        name: [(row["context_id"], row["gold"], row["input_text"]) for row in more if row["purpose"] == name]
        for name in ("looc", "plain")
    }
    assert left_out["plain"] == left_out["looc"] != []


def test_template_splits_equal_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/superni/expected/metric_unit_cases.json").read_text())["template_split"]
    assert len(cases) == 5
    for case in cases:
        for text, parts in zip(case["inputs"], case["parts"], strict=True):
            assert cal.split_by_template(case["prefixes"], text) == parts


def test_random_inputs_have_the_mean_length_and_words_of_each_slot() -> None:
    inputs = ["Q: One two three A: four", "Q: five six A: Seven eight nine"]
    words = cal.domain_context("t", "Q: {INPUT} A: {INPUT}", inputs)
    assert words.lengths == (0, 3, 0, 2)
    for text in words.draw(np.random.default_rng(0)):
        assert text.startswith("Q: ")
        first, second = text.removeprefix("Q: ").split(" A: ")
        assert sorted(set(first.split())) == sorted(first.split())
        assert set(first.split()) <= {"one", "two", "three", "five", "six"}
        assert set(second.split()) <= {"four", "seven", "eight", "nine"}
        assert (len(first.split()), len(second.split())) == (3, 2)


@pytest.mark.parametrize(("name", "variant"), [
    ("cc", cal.Variant("cc")), ("cc@0.7", cal.Variant("cc", 0.7)), ("cc@0", cal.Variant("cc", 0.0)),
    ("dc/5", cal.Variant("dc", inputs=5)), ("looc@1.5/64", cal.Variant("looc", 1.5, 64)),
    ("cc@1e-05", cal.Variant("cc", 1e-5)),
])  # fmt: skip
def test_a_name_stands_for_a_variant_and_back(name: str, variant: cal.Variant) -> None:
    assert cal.Variant.of(name) == variant
    assert str(variant) == name


def _scored_variants(calibration: list[str]) -> Plan:
    """Return a run in which cc's inputs have p(a) 0.9, 0.6 and 0.6, and looc's 0.8 and 0.4 by gold a, 0.2 by b."""
    plan = Plan()
    plan.spec["calibration"] = calibration
    task = plan.task("task001", ["a", "b"])
    plan.probabilities(task, "main", "b", [0.6, 0.4], n_demos=3)
    plan.probabilities(task, "bias_score", "b", [0.6, 0.4], n_demos=3)
    for p in (0.9, 0.6, 0.6):
        plan.probabilities(task, "cc", None, [p, 1 - p], n_demos=3)
    for gold, p in (("a", 0.8), ("a", 0.4), ("b", 0.2)):
        plan.probabilities(task, "looc", gold, [p, 1 - p], n_demos=3)
    return plan


def test_a_strength_is_the_power_of_the_mean(tmp_path: Path) -> None:
    """q(a) is 0.6 / p_hat(a)^s over itself and 0.4 / p_hat(b)^s; the mean of cc is 0.7, that of its first input 0.9."""
    names = ["cc", "cc@0", "cc@0.5", "cc@0.5/1", "cc/2", "looc@1.5", "looc/1"]
    run = _scored_variants(names).write(tmp_path / "run")
    measure(run)
    means = {"cc": 0.7, "cc@0": 0.7, "cc@0.5": 0.7, "cc@0.5/1": 0.9, "cc/2": 0.75, "looc@1.5": 0.4, "looc/1": 0.8}
    strengths = {"cc": 1, "cc@0": 0, "cc@0.5": 0.5, "cc@0.5/1": 0.5, "cc/2": 1, "looc@1.5": 1.5, "looc/1": 1}
    expected = {"none": 0.6}
    for name in names:
        a, b = 0.6 / means[name] ** strengths[name], 0.4 / (1 - means[name]) ** strengths[name]
        expected[name] = a / (a + b)
    found = rows(run, "select method, probabilities[1] as p from calibrated_predictions where purpose = 'main'")
    assert {row["method"]: row["p"] for row in found} == pytest.approx(expected)
    parameters = rows(run, "select method, p_hat, weight, n_rows from calibration_parameters where label = 'a'")
    assert {row["method"]: row["p_hat"] for row in parameters} == pytest.approx(means)
    weights = {name: means[name] ** -strengths[name] for name in names}
    assert {row["method"]: row["weight"] for row in parameters} == pytest.approx(weights)
    n_rows = {"cc@0.5/1": 1, "cc/2": 2, "looc/1": 1}
    assert {row["method"]: row["n_rows"] for row in parameters} == {name: n_rows.get(name, 3) for name in names}
    marts = rows(run, "select method, accuracy from label_bias_by_model where suite = 'all'")
    assert {row["method"]: row["accuracy"] for row in marts} == {name: float(p < 0.5) for name, p in expected.items()}
