"""The planted study in its smallest form: what is planted is measured, what is not is not, and a method takes it away.

The bundled reader is fine-tuned on questions with a shortcut, and measured on questions without one. The whole grid is
jobs/specs/planted.yaml.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from biaseval.analysis import query
from biaseval.demo import QA_SPEC_PATH, READER_PATH
from biaseval.pipelines import run_spec
from biaseval.spec import load_spec
from tests.inprocess import in_this_process

pytestmark = pytest.mark.timeout(900)


def planted(questions: int, strength: float) -> dict[str, Any]:
    return {"planted": {"shortcut": "ans_pos", "strength": strength, "questions": questions}}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of ``qa_debiasing`` of a study without a shortcut and with one, by model and heuristic."""
    folder = tmp_path_factory.mktemp("planted")
    content = yaml.safe_load(QA_SPEC_PATH.read_text())
    content["datasets"]["in_distribution"] = {"unbiased": planted(2000, 0)}
    content["bootstrap"] = {"sample": 200}
    content["train"] |= {
        "bases": [{"name": "reader", "path": str(READER_PATH)}],
        "data": {"none": planted(1600, 0), "strong": planted(1600, 0.9)},
        "validation": {"check": planted(300, 0.9)},
        "methods": ["standard", "product_of_experts"],
        "evaluation_steps": 1000,
        "bias_model": {"learning_rate": 1e-3, "max_steps": 80},
        "product_of_experts": {"bias_scale": 0.5, "max_steps": 80},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(content))
    with in_this_process():
        run_spec(load_spec(folder / "spec.yaml"), str(folder / "run"))
    found = query([str(folder / "run")], "from qa_debiasing").to_pylist()
    return {(row["model"], row["heuristic"]): row for row in found}


def test_the_shortcut_that_was_planted_is_found_and_no_other(studied: dict[tuple[str, str], dict[str, Any]]) -> None:
    strong, none = studied["reader@strong", "ans_pos"], studied["reader@none", "ans_pos"]
    assert strong["bias_significance"] > 0
    assert none["bias_significance"] == 0
    assert strong["gap"] > none["gap"] + 4
    assert studied["reader@strong", "word_dist"]["bias_significance"] == 0


def test_a_product_of_experts_takes_some_of_it_away_and_keeps_the_reader(
    studied: dict[tuple[str, str], dict[str, Any]],
) -> None:
    row = studied["reader@strong+product_of_experts", "ans_pos"]
    assert row["gap_change_high"] < 0
    assert not row["is_nearly_broken"]
    assert row["exact_match"] > row["standard_exact_match"] - 2
