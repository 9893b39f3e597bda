"""What planning a study of trained readers says and refuses, and what is refused when its readers have answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import BartConfig

from biaseval.errors import InputError
from biaseval.pipelines import describe
from biaseval.qa_bias.planted import planted_questions
from tests.conftest import ROOT
from tests.smallstudy import METHODS, generated, load, refused, write_spec
from tests.test_qa_pipeline import make_bert, question, write_lines

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


def test_a_search_that_finds_no_threshold_says_what_to_do(bert: Path, tmp_path: Path, here: None) -> None:
    """No segment of 24 questions can hold 13 of them beside another."""
    changes = {"methods": ["standard", "resample"], "thresholds": "search"}
    found = refused(write_spec(tmp_path, bert, train=changes, bootstrap={"trials": 10, "sample": 13}), tmp_path)
    assert "train.biases: ans_pos: bert shows no biased segment on check" in found
    assert "give train.thresholds a number for it" in found


def test_a_threshold_that_leaves_too_few_questions_to_judge_by_is_refused_with_their_number(
    bert: Path, tmp_path: Path, here: None
) -> None:
    """Those of word_dist are at least 0: none of the 24 lies below."""
    changes = {"methods": ["standard", "resample"], "biases": ["word_dist"], "thresholds": {"word_dist": -5}}
    found = refused(write_spec(tmp_path, bert, train=changes), tmp_path)
    assert "train.biases: word_dist (threshold -5): check has 0 lower and 24 higher questions" in found
    assert "judging takes bootstrap.sample, 5, of each; choose another threshold" in found


def test_a_segment_that_is_too_small_is_refused_with_its_number(bert: Path, tmp_path: Path, here: None) -> None:
    changes = {"methods": ["standard", "learned_mixin"], "thresholds": "mikula2024", "data": {"d": generated(6, 0.0)}}
    found = refused(write_spec(tmp_path, bert, train=changes), tmp_path)
    assert "train.biases: ans_pos (threshold 0, d)" in found
    assert "training questions in the biased segment, and a step of a bias model takes 8" in found


def test_all_that_planning_finds_wrong_comes_in_one_message(bert: Path, tmp_path: Path, tiny_llama: Path) -> None:
    BartConfig(d_model=16, encoder_layers=1, decoder_layers=1).save_pretrained(tmp_path / "bart")
    (tmp_path / "ds.json").write_text(json.dumps({"gradient_clipping": 7}))
    changes = {
        "bases": [
            {"name": "llama", "path": str(tiny_llama)},
            {"name": "bart", "path": str(tmp_path / "bart")},
            {"name": "gone", "path": str(tmp_path / "gone")},
        ],
        "data": {"d": str(tmp_path / "gone.json")},
        "zero": 2,
        "deepspeed_config": str(tmp_path / "ds.json"),
    }
    with pytest.raises(InputError) as caught:
        describe(load(write_spec(tmp_path, bert, train=changes)))
    found = str(caught.value)
    assert "llama: " in found
    assert "is a decoder (llama)" in found
    assert "is an encoder with a decoder (bart), and training takes encoders alone" in found
    assert "gone: " in found
    assert "train.data.d: " in found
    assert "gone.json: cannot be read" in found
    assert "gradient_clipping" in found


def test_questions_that_are_trained_on_and_measured_are_counted(bert: Path, tmp_path: Path) -> None:
    questions = planted_questions("d", shortcut="ans_pos", strength=0, n_questions=30, seed=1).questions
    lines = [
        {
            "id": own.example_id,
            "context": own.context,
            "question": own.question,
            "answers": {"text": list(own.answers), "answer_start": list(own.answer_starts)},
        }
        for own in questions
    ]
    write_lines(tmp_path / "train.jsonl", lines[:20])
    write_lines(tmp_path / "test.jsonl", lines[15:])
    datasets = {"in_distribution": {"test": "test.jsonl"}}
    spec = write_spec(tmp_path, bert, train={"data": {"d": "train.jsonl"}}, datasets=datasets)
    notes = describe(load(spec)).notes
    assert any("5 of 15 questions of test are trained on, too (d; first: planted-00016" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "n_readers", "words"),
    [
        ("qa-finetuning-squad", {"standard": 4}, ["people"]),
        (
            "qa-debiasing-squad",
            {"standard": 1, "bias models": 6, **dict.fromkeys(METHODS, 6)},
            ["people"],
        ),
    ],
)
def test_the_papers_studies_can_be_planned(
    name: str, n_readers: dict[str, int], words: list[str], bert: Path, tmp_path: Path
) -> None:
    """With other questions and encoders in the places of theirs."""
    content = yaml.safe_load((ROOT / "jobs" / "specs" / f"{name}.yaml").read_text())
    people = [{**own, "answers": {name: 2 * value for name, value in own["answers"].items()}} for own in squad(1700)]
    write_lines(tmp_path / "questions.jsonl", people)
    for base in content["train"]["bases"]:
        base["path"] = str(bert)
    for place in (content["train"]["data"], content["train"]["validation"], *content["datasets"].values()):
        if isinstance(place, dict):
            place.update(dict.fromkeys(place, "questions.jsonl"))
    content["datasets"]["train"] = "questions.jsonl"
    del content["text"]
    content["windows"] = {"max_tokens": 128, "stride": 32}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    plan = describe(load(tmp_path / "spec.yaml"))
    lines = dict(plan.training_lines)
    assert {line: int(lines[line].split()[0]) for line in n_readers} == n_readers
    steps = {reader["method"]: reader["steps"] for reader in plan.facts["training"]["readers"]}
    limits = {"learned_mixin": 100_000, "confidence_regularization": 30_000, "bias_model": 88_000}
    assert all(steps[method] == limit for method, limit in limits.items() if method in steps)
    assert plan.training is not None
    assert plan.training.flops > 0
    assert set(plan.training.memory[0]) == {"none", "1", "2", "3"}
    assert all(any(word in line for line, _ in plan.lines) for word in words)
    assert any(
        "squad: decides which step's weights are kept, and is measured, as in the paper" in own for own in plan.notes
    )


def squad(number: int) -> list[dict[str, Any]]:
    return [question(row, "squad") for row in range(number)]
