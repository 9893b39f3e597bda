"""Calibration with another strength, or over fewer inputs: names, prompts, and what SQL makes of them, by hand."""

from pathlib import Path

import pytest

from biaseval.label_bias.plan import plan_tasks
from biaseval.label_bias.sources import read_sources
from biaseval.prompting.calibration import Variant
from biaseval.report.methods import method_name, method_order
from tests.labelplans import Plan, rows
from tests.measuring import measure
from tests.taskfiles import write_task
from tests.test_indistinct_labels import label_bias_spec
from tests.tinymodels import make_tokenizer


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("cc", Variant("cc")),
        ("cc@0.7", Variant("cc", 0.7)),
        ("cc@0", Variant("cc", 0.0)),
        ("dc/5", Variant("dc", inputs=5)),
        ("looc@1.5/64", Variant("looc", 1.5, 64)),
        ("cc@1e-05", Variant("cc", 1e-5)),
    ],
)
def test_a_name_stands_for_a_variant_and_back(name: str, variant: Variant) -> None:
    assert Variant.of(name) == variant
    assert str(variant) == name


@pytest.mark.parametrize(("written", "name"), [("cc@1", "cc"), ("cc@0.70", "cc@0.7"), ("dc@1.0/20", "dc/20")])
def test_a_variant_has_one_name(written: str, name: str) -> None:
    assert str(Variant.of(written)) == name


def test_variants_are_planned_as_their_method_is(tmp_path: Path) -> None:
    write_task(tmp_path, n_instances=400)
    published = label_bias_spec(tmp_path)
    plans = []
    for asked in (["cc", "dc"], ["dc@0.5/3", "cc@0", "cc@1.5"]):
        spec = published.model_copy(update={"calibration": asked})
        (plan,) = plan_tasks(spec, read_sources(spec), make_tokenizer(), None)
        plans.append([row for part in plan.parts for row in part.prompts.to_pylist()])
    assert plans[0] == plans[1]
    assert {row["purpose"] for row in plans[0]} == {"main", "bias_score", "cc", "dc"}


def _scored(calibration: list[str]) -> Plan:
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
    run = _scored(names).write(tmp_path / "run")
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


def test_a_calibration_that_was_scored_and_is_not_named_is_as_published(tmp_path: Path) -> None:
    run = _scored(["looc@0.5"]).write(tmp_path / "run")
    measure(run)
    assert {row["method"] for row in rows(run, "from calibration_parameters")} == {"cc", "looc@0.5"}


def test_reports_name_variants_behind_their_method() -> None:
    assert method_order("half_bc") < method_order("other")
    methods = ["lora+cc@0.5", "dc", "cc@1.2", "cc", "none", "cc@0.5/2", "lora+cc", "lora", "other"]
    ordered = sorted(methods, key=method_order)
    assert ordered == ["none", "cc", "cc@0.5/2", "cc@1.2", "dc", "lora", "lora+cc", "lora+cc@0.5", "other"]
    assert [method_name(name) for name in ordered[2:4]] == ["CC 0.5 (first 2)", "CC 1.2"]
    assert method_name("lora+cc@0.5") == "LoRA + CC 0.5"
