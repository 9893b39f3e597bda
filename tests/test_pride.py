"""PriDe: the prior is what was planted, and what the formula gives on a model's scores; a run grows by it."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from biaseval.pipelines.directory import read_plan
from biaseval.runs import run_spec
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.alike import assert_alike
from tests.growth.runs import kept
from tests.growth.runs import rows as stored
from tests.label_bias.test_options import quiz, quiz_spec
from tests.labelplans import Plan, rows
from tests.relation import Relations

pytestmark = pytest.mark.slow

LABELS = ("A", "B", "C", "D")


PRIOR = (2.0, 0.25, -0.5, 0.0)
"""What is planted: logarithms, of which 32-bit scores are exact. Probabilities are normalised later."""


def planted() -> Plan:
    """Return a run of a model whose probability of a label is its prior times what the option behind it deserves."""
    rng = np.random.default_rng(0)
    plan = Plan()
    plan.spec |= {
        "tasks": None,
        "data": {"train": "quiz.csv", "options": "choices"},
        "calibration": ["pride", "pride@0.5", "pride/2"],
    }
    task = plan.task("quiz", list(LABELS))

    def ask(purpose: str, right: int, worth: list[float]) -> None:
        logs = [prior + own - 8 for prior, own in zip(PRIOR, worth, strict=True)]
        plan.prompt(task, purpose, LABELS[right], [[log, log] for log in logs])

    def worth_of(right: int) -> list[float]:
        """Return what options deserve: the right one most."""
        worth: list[float] = (rng.integers(-40, 0, len(LABELS)) / 16).tolist()
        return [*worth[:right], 0.5, *worth[right + 1 :]]

    for purpose, n_rows in (("main", 24), ("bias_score", 8)):
        for row in range(n_rows):
            ask(purpose, row % 4, worth_of(row % 4))
    for question in range(5):
        worth = worth_of(question % 4)
        for shift in range(4):
            ask("pride", (question - shift) % 4, worth[shift:] + worth[:shift])
            plan.prompts[-1]["instance_id"] = f"question-{question}"
    return plan


@pytest.fixture(scope="module")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> Relations:
    return Relations(planted().write(tmp_path_factory.mktemp("runs") / "planted"))


def test_the_planted_prior_is_found(planted_run: Relations) -> None:
    prior = np.exp(PRIOR) / np.exp(PRIOR).sum()
    for method, n_rows in (("pride", 5), ("pride@0.5", 5), ("pride/2", 2)):
        found = planted_run.rows(f"from calibration_parameters where method = '{method}' order by label")
        assert [row["p_hat"] for row in found] == pytest.approx(prior, abs=1e-12)
        assert {row["n_rows"] for row in found} == {n_rows}


def test_predictions_are_those_of_a_model_without_the_planted_prior(planted_run: Relations) -> None:
    by_method = {row["method"]: row for row in planted_run.rows("from label_bias_by_task")}
    assert by_method["none"]["accuracy"] < 0.7
    assert (by_method["pride"]["accuracy"], by_method["pride"]["rsd"]) == (1, 0)
    scored = {(row["prompt_id"], row["label"]): row["token_logprobs"][0] for row in planted().label_scores}
    for method, strength in (("pride", 1.0), ("pride@0.5", 0.5)):
        found = planted_run.rows(f"from calibrated_predictions where method = '{method}'")
        assert len(found) == 24 + 8
        for row in found:
            logs = [scored[row["prompt_id"], label] for label in LABELS] - strength * np.asarray(PRIOR)
            assert row["probabilities"] == pytest.approx(np.exp(logs) / np.exp(logs).sum(), abs=1e-9)


def spec_of(folder: Path, model: Path, calibration: list[str]) -> LabelBiasSpec:
    base = {"model": {"path": str(model)}, "data": {"test": str(folder / "test.csv")}, "prompt": {"demo_sets": 1}}
    return quiz_spec(folder / "quiz.csv", **base, calibration=calibration)


@pytest.fixture(scope="module")
def folder(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of data, a run without PriDe, and the same run, grown by it."""
    from tests.inprocess import in_this_process

    folder = tmp_path_factory.mktemp("pride")
    quiz(folder, 40)
    (folder / "test.csv").write_text((folder / "quiz.csv").read_text().replace("which is", "what is"))
    with in_this_process():
        run_spec(spec_of(folder, tiny_llama, ["cc"]), str(folder / "before"))
        shutil.copytree(folder / "before", folder / "grown")
        run_spec(spec_of(folder, tiny_llama, ["cc", "pride", "pride@0.7"]), str(folder / "grown"))
    return folder


def test_probabilities_are_those_of_the_formula(folder: Path) -> None:
    grown = str(folder / "grown")
    logs: dict[tuple[str, int, int], list[float]] = {}
    scores = "from label_scores join prompts using (prompt_id) order by n_demos, row, label"
    for row in rows(grown, f"select purpose, n_demos, row, token_logprobs {scores}"):
        key = (row["purpose"], row["n_demos"], row["row"])
        logs.setdefault(key, []).append(float(np.mean(np.asarray(row["token_logprobs"], np.float64))))
    observed = {key: np.exp(own) / np.exp(own).sum() for key, own in logs.items()}
    for n_demos in (0, 2):
        own = [observed["pride", n_demos, row] for row in range(6 * 3)]
        priors = []
        for first in range(0, 18, 3):
            mean = np.exp(np.mean(np.log(own[first : first + 3]), axis=0))
            priors.append(mean / mean.sum())
        prior = np.mean(priors, axis=0)
        for method, strength in (("pride", 1.0), ("pride@0.7", 0.7)):
            found = rows(grown, f"from calibrated_predictions where method = '{method}' and n_demos = {n_demos}")
            assert {row["purpose"] for row in found} == {"main", "bias_score"}
            for row in found:
                weighed = observed[row["purpose"], n_demos, row["row"]] / prior**strength
                assert row["probabilities"] == pytest.approx(weighed / weighed.sum(), abs=1e-9)
                assert row["prediction"] == "ABC"[int(np.argmax(weighed))]
        assert math.isclose(prior.sum(), 1)
        assert max(abs(prior - 1 / 3)) > 1e-4  # of a random model, but not none


@pytest.mark.usefixtures("here")
def test_a_run_grows_by_the_permuted_prompts_alone(folder: Path, tiny_llama: Path, tmp_path: Path) -> None:
    before, grown = (Run.open(str(folder / name)) for name in ("before", "grown"))
    n_before = len(read_plan(before)["parts"])
    assert {name: digest for name, digest in kept(grown).items() if name in kept(before)} == kept(before)
    new = read_plan(grown)["parts"][n_before:]
    assert sum(part["n_prompts"] for part in new) == 2 * 6 * 3
    purposes = "select distinct purpose from prompts where purpose not in ('main', 'bias_score', 'cc')"
    assert rows(grown.uri, purposes) == [{"purpose": "pride"}]
    fresh = run_spec(spec_of(folder, tiny_llama, ["cc", "pride", "pride@0.7"]), str(tmp_path / "fresh"))
    for question in (
        "from label_bias_by_task order by all",
        "select prompt_id, context_id, gold, input_text from prompts order by prompt_id",
    ):
        assert_alike(stored(grown, question), stored(fresh, question), 1e-5)
