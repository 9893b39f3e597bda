"""What planning a study of trained readers says and refuses, and what is refused when its readers have answered."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from transformers import BartConfig

from biaseval.errors import InputError
from biaseval.pipelines.qa import biased_segments
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.runs import describe
from biaseval.spec import load_spec
from tests.conftest import ROOT
from tests.smallstudy import METHODS, load, write_spec
from tests.test_qa_pipeline import make_bert, question, write_lines

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


def _refused_plan(spec: Path) -> str:
    """Return why `biaseval plan` refuses a spec."""
    with pytest.raises(InputError) as caught:
        describe(load(spec))
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_plan_refuses_thresholds_that_leave_too_few_questions_to_judge_by(bert: Path, tmp_path: Path) -> None:
    # No segment of 24 questions can hold 13 of them beside another.
    changes: dict[str, Any] = {"methods": ["standard", "resample"], "thresholds": "search"}
    found = _refused_plan(write_spec(tmp_path, bert, train=changes, bootstrap={"trials": 10, "sample": 13}))
    even = (
        r"train.biases: ans_pos: of \d+ thresholds on check the most even, \d+, has \d+ lower and \d+ higher questions"
    )
    assert re.search(rf"{even}, and judging takes bootstrap.sample, 13, of each; choose a larger validation set", found)
    # Values of word_dist are at least 0: none of the 24 lies below.
    changes |= {"biases": ["word_dist"], "thresholds": {"word_dist": -5}}
    found = _refused_plan(write_spec(tmp_path, bert, train=changes))
    assert "train.biases: word_dist (threshold -5): check has 0 lower and 24 higher questions" in found
    assert "judging takes bootstrap.sample, 5, of each; choose another threshold" in found


@pytest.mark.parametrize(
    ("key", "domain", "wrong"),
    [
        ("train.thresholds.word_dist", [3, -5], ["with -5: train.biases: word_dist (threshold -5): check has 0 lower"]),
        (
            "train.thresholds.word_dist",
            {"uniform": [-5.0, 90.0]},
            [
                "with -5.0: train.biases: word_dist",
                "with 90.0: train.biases: word_dist (threshold 90): check has 24 lower",
            ],
        ),
        ("train.thresholds", {"choice": [{"word_dist": -5}]}, ["with {'word_dist': -5}: train.biases: word_dist"]),
        ("bootstrap.sample", {"int": [5, 13]}, ["with 13: train.biases: word_dist"]),
    ],
)
def test_a_search_refuses_values_no_trial_can_have(
    key: str, domain: Any, wrong: list[str], bert: Path, tmp_path: Path
) -> None:
    changes = {"methods": ["standard", "resample"], "biases": ["word_dist"], "thresholds": {"word_dist": 3}}
    study = write_spec(tmp_path, bert, train=changes)
    content = {"kind": "search", "name": "s", "spec": str(study), "search": {key: domain}, "algorithm": "random"}
    content |= {"trials": 2, "objective": {"sql": "select avg(f1) as f1 from qa_by_dataset", "maximize": True}}
    path = tmp_path / "search.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        describe(load_spec(path))
    found = str(caught.value)
    assert [f"search.{key}: {own}" in found for own in wrong] == [True] * len(wrong), found
    assert found.count("with ") == len(wrong)


def test_a_plan_reads_more_while_a_segment_is_small(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()

    def counted(examples: pa.Table, heuristics: list[str], **given: Any) -> pa.Table:
        read.append(examples.num_rows)
        return attributes(examples, heuristics, **given)

    monkeypatch.setattr(biased_segments, "attributes", counted)
    monkeypatch.setattr(biased_segments, "_FIRST", 6)
    describe(load(write_spec(tmp_path, bert)))
    assert max(read) < 48  # of the 48 for training, enough lie on either side among the first
    changes = {"methods": ["standard", "resample"], "thresholds": {"ans_pos": 50}}
    assert "check has 24 lower and 0 higher questions" in _refused_plan(write_spec(tmp_path, bert, train=changes))
    assert read[-3:] == [6, 12, 24]


def test_all_that_planning_finds_wrong_comes_in_one_message(bert: Path, tmp_path: Path, tiny_llama: Path) -> None:
    BartConfig(d_model=16, encoder_layers=1, decoder_layers=1).save_pretrained(tmp_path / "bart")
    (tmp_path / "ds.json").write_text(json.dumps({"gradient_clipping": 7}))
    places = {"llama": tiny_llama, "bart": tmp_path / "bart", "gone": tmp_path / "gone"}
    changes = {
        "bases": [{"name": name, "path": str(path)} for name, path in places.items()],
        "data": {"d": str(tmp_path / "gone.json")},
        "deepspeed_config": str(tmp_path / "ds.json"),
        "zero": 2,
    }
    found = _refused_plan(write_spec(tmp_path, bert, train=changes))
    for expected in (
        *("llama: ", "is a decoder (llama)", "gone: ", "train.data.d: ", "gone.json: cannot be read"),
        *("is an encoder with a decoder (bart), and training takes encoders alone", "gradient_clipping"),
    ):
        assert expected in found


@pytest.mark.parametrize(
    ("name", "n_readers", "words"),
    [
        ("qa-finetuning-squad", {"standard": 4}, ["people"]),
        ("qa-debiasing-squad", {"standard": 1, "bias models": 6, **dict.fromkeys(METHODS, 6)}, ["people"]),
    ],
)
def test_the_papers_studies_can_be_planned(
    name: str, n_readers: dict[str, int], words: list[str], english_pipeline: str, bert: Path, tmp_path: Path
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
    content["text"] = {"spacy": english_pipeline}
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
    both = "squad: decides which step's weights are kept, and is measured, as in the paper"
    assert any(both in own for own in plan.notes)


def squad(number: int) -> list[dict[str, Any]]:
    return [_varied(question(row, "squad"), row) for row in range(number)]


def _varied(own: dict[str, Any], row: int) -> dict[str, Any]:
    """Return the question, or one of two that lie on the other side of P3's thresholds."""
    roof = "The roof held. The roof leaked. The roof covers many windows, doors, floors and stairs, and on market days"
    others = {
        1: (f"{roof} in spring it shines.", "What does the roof cover?", "market days in spring it shines"),
        2: ("Far from any road people sell wool on market days.", "When did Columbus sail?", "people sell wool"),
    }
    if row % 3 not in others:
        return own
    context, asked, text = others[row % 3]
    answers = {"text": [text], "answer_start": [context.index(text)]}
    return {**own, "context": context, "question": asked, "answers": answers}
