"""The planted study in its smallest form: what is planted is measured, what is not is not, and a method takes it away.

The bundled reader is fine-tuned on questions with a shortcut, and measured on questions without one. The whole grid,
jobs/specs/planted.yaml, has to be asked for.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from biaseval import demo
from biaseval.analysis import query
from biaseval.cli import app
from biaseval.demo import QA_SPEC_PATH, READER_PATH
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from tests.conftest import ROOT
from tests.inprocess import in_this_process

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

SIGNED = """
select qa_debiasing.*, difference
from qa_debiasing inner join qa_bias_by_heuristic using (model, dataset, heuristic)
"""
"""A difference is exact match of the lower segment, where both shortcuts lead, minus that of the higher one."""


def planted(questions: int, strength: float) -> dict[str, Any]:
    return {"planted": {"shortcut": "ans_pos", "strength": strength, "questions": questions}}


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of ``qa_debiasing`` of what ``biaseval demo qa`` runs, made smaller, by model and heuristic."""
    folder = tmp_path_factory.mktemp("planted")
    content = yaml.safe_load(QA_SPEC_PATH.read_text())
    content["datasets"]["in_distribution"]["no_shortcut"] = planted(2000, 0)
    content["bootstrap"] = {"sample": 200}
    content["train"] |= {
        "bases": [{"name": "reader", "path": str(READER_PATH)}],
        "data": {"strong": planted(1600, 0.9)},
        "validation": {"check": planted(300, 0.9)}, "methods": ["standard", "product_of_experts"],
        "evaluation_steps": 1000, "bias_model": {"learning_rate": 1e-3, "max_steps": 80},
        "product_of_experts": {"bias_scale": 0.5, "max_steps": 80},
    }  # fmt: skip
    (folder / "spec.yaml").write_text(yaml.safe_dump(content))
    with in_this_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "QA_SPEC_PATH", folder / "spec.yaml")
        ended = CliRunner().invoke(app, ["demo", "qa", "--run-dir", str(folder / "run")])
    assert ended.exit_code == 0, ended.output
    assert "report.html" in ended.output
    found = query([str(folder / "run")], SIGNED).to_pylist()
    return {(row["model"], row["heuristic"]): row for row in found}


def test_the_shortcut_that_was_planted_is_found_and_no_other(studied: dict[tuple[str, str], dict[str, Any]]) -> None:
    strong, other = studied["reader", "ans_pos"], studied["reader", "word_dist"]
    assert strong["bias_significance"] > 0
    assert other["bias_significance"] == 0
    assert strong["difference"] > abs(other["difference"]) + 4


def test_a_product_of_experts_takes_some_of_it_and_no_more(studied: dict[tuple[str, str], dict[str, Any]]) -> None:
    row = studied["reader+product_of_experts", "ans_pos"]
    assert row["gap_change_high"] < 0
    assert not row["is_nearly_broken"]
    assert row["exact_match"] > row["standard_exact_match"] - 2


@pytest.mark.ray
@pytest.mark.timeout(7200)
@pytest.mark.skipif(
    "BIASEVAL_STUDIES" not in os.environ, reason="takes three quarters of an hour; set BIASEVAL_STUDIES=1"
)
def test_the_measured_bias_follows_the_planted_one(tmp_path: Path) -> None:
    """Every seed: none where none was planted, more the stronger it is, and less by a product of experts."""
    run = run_spec(load_spec(ROOT / "jobs" / "specs" / "planted.yaml"), str(tmp_path / "run"), page=False)
    rows = query([run.uri], SIGNED).to_pylist()
    standard = {(row["data"], row["heuristic"], row["seed"]): row for row in rows if row["method"] == "standard"}
    assert len(standard) == 7 * 2 * 3
    for (data, heuristic, _), row in standard.items():
        if not data.startswith(heuristic):
            assert row["bias_significance"] == 0
    segments = {(row["data"], row["bias"]): row for row in query([run.uri], "from qa_segments").to_pylist()}
    for shortcut in ("ans_pos", "word_dist"):
        none, most = (segments[data, shortcut]["bias_significance"] for data in ("none", f"{shortcut}-9"))
        assert none == 0 < most
        for seed in (1, 2, 3):
            at = [standard[f"{shortcut}-{strength}", shortcut, seed] for strength in (3, 6, 9)]
            differences = [row["difference"] for row in at]
            assert 0 < differences[0] < differences[1] < differences[2]
            assert at[0]["bias_significance"] <= at[1]["bias_significance"] < at[2]["bias_significance"]
        experts = [
            row
            for row in rows
            if (row["data"], row["method"], row["heuristic"]) == (f"{shortcut}-9", "product_of_experts", shortcut)
            and row["is_addressed"]
        ]
        assert len(experts) == 3
        for row in experts:
            assert row["gap_change_high"] < 0
            assert row["significance_change_high"] < 0
            assert row["exact_match"] > row["standard_exact_match"]
            assert not row["is_nearly_broken"]
