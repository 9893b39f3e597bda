"""What planning a study of trained readers says and refuses, and what is refused when its readers have answered."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from transformers import PegasusConfig

from biaseval.cli.arguments import resumable
from biaseval.errors import InputError
from biaseval.pipelines.qa import biased_segments
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.runs import describe
from biaseval.spec import load_spec
from tests.conftest import ROOT
from tests.smallstudy import METHODS, load, write_spec
from tests.test_qa_pipeline import make_bert, make_t5, question, write_lines

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("models") / "bert")


def _refused_plan(spec: Path) -> str:
    """Return why `biaseval plan` refuses a spec."""
    with pytest.raises(InputError) as caught, resumable(spec):
        describe(load_spec(spec))
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


@pytest.mark.parametrize(("key", "domain", "wrong"), [
    ("train.thresholds.word_dist", [3, -5], ["with -5: train.biases: word_dist (threshold -5): check has 0 lower"]),
    ("train.thresholds.word_dist", {"uniform": [-5.0, 90.0]}, ["with -5.0: train.biases: word_dist",
            "with 90.0: train.biases: word_dist (threshold 90): check has 24 lower"]),
    ("train.thresholds", {"choice": [{"word_dist": -5}]}, ["with {'word_dist': -5}: train.biases: word_dist"]),
    ("bootstrap.sample", {"int": [5, 13]}, ["with 13: train.biases: word_dist"]),
])  # fmt: skip
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
    PegasusConfig(d_model=16, encoder_layers=1, decoder_layers=1).save_pretrained(tmp_path / "pegasus")
    (tmp_path / "ds.json").write_text(json.dumps({"gradient_clipping": 7}))
    places = {"llama": tiny_llama, "pegasus": tmp_path / "pegasus", "gone": tmp_path / "gone"}
    changes = {
        "bases": [{"name": name, "path": str(path)} for name, path in places.items()],
        "data": {"d": str(tmp_path / "gone.json")}, "deepspeed_config": str(tmp_path / "ds.json"), "zero": 2,
    }  # fmt: skip
    found = _refused_plan(write_spec(tmp_path, bert, train=changes))
    for expected in (
        *("llama: ", "is a decoder (llama)", "gone: ", "train.data.d: ", "gone.json: cannot be read"),
        *("is an encoder with a decoder (pegasus) that transformers cannot read spans with", "gradient_clipping"),
    ):
        assert expected in found


P3 = sorted((ROOT / "jobs" / "specs" / "papers").glob("p3-*.yaml"))

N_READERS = {
    "p3-finetuning": {"standard": 4}, "p3-t5-large": {"standard": 1}, "p3-other-sets": {"standard": 4},
    "p3-debiasing": {"standard": 1, "bias models": 6, **dict.fromkeys(METHODS, 6)},
}  # fmt: skip
N_TRIALS = {"learned-mixin": 36, "learned-mixin-per-bias": 36, "confidence-regularization": 12, "bias-model": 12}


def _stand_ins(content: dict[str, Any], models: Mapping[str, Path], questions: Path, pipeline: str) -> list[str]:
    """Return what ``--set`` says to plan a spec of P3 with other files and models."""
    place = "spec." if content["kind"] == "search" else ""
    searched = content.get("spec", content)
    own = yaml.safe_load((P3[0].parent / searched).read_text()) if isinstance(searched, str) else searched
    found: dict[str, Any] = {"datasets.train": str(questions), "text": {"spacy": pipeline}}
    found |= {"windows": {"max_tokens": 128, "stride": 32}, "bootstrap.sample": 8}
    for key in ("datasets.in_distribution", "datasets.out_of_distribution", "train.data", "train.validation"):
        section, name = key.split(".")
        found |= {key: dict.fromkeys(sets, str(questions))} if (sets := own.get(section, {}).get(name)) else {}
    for key, given in (("models", own.get("models", [])), ("train.bases", own.get("train", {}).get("bases", []))):
        local = [{**each, "path": str(models["t5" if "t5" in each["name"] else "bert"])} for each in given]
        found |= (
            {key: [one if "path" in each else each for one, each in zip(local, given, strict=True)]} if given else {}
        )
    return [f"{place}{key}={json.dumps(value)}" for key, value in found.items()]


@pytest.mark.parametrize("path", P3, ids=lambda path: path.stem)
def test_the_specs_of_p3_can_be_planned(path: Path, english_pipeline: str, bert: Path, tmp_path: Path) -> None:
    """With other questions and models in the places of theirs; without them, each missing thing is told once."""
    content = yaml.safe_load(path.read_text())
    people = [{**own, "answers": {name: 2 * value for name, value in own["answers"].items()}} for own in squad(90)]
    write_lines(tmp_path / "questions.jsonl", people)
    models = {"bert": bert, "t5": make_t5(tmp_path / "t5")}
    plan = describe(load_spec(path, _stand_ins(content, models, tmp_path / "questions.jsonl", english_pipeline)))
    lines = {**dict(plan.lines), **dict(plan.training_lines)}
    assert {line: int(lines[line].split()[0]) for line in N_READERS.get(path.stem, ())} == N_READERS.get(path.stem, {})
    if (kind := path.stem.removeprefix("p3-search-")) in N_TRIALS:
        assert lines["trials"] == f"{N_TRIALS[kind]} (grid)"
    if "debiasing" in path.stem:
        steps = {reader["method"]: reader["steps"] for reader in plan.facts["training"]["readers"]}
        limits = {"learned_mixin": 100_000, "confidence_regularization": 30_000, "bias_model": 88_000}
        assert {method: steps[method] for method in limits} == limits
        both = "squad: decides which step's weights are kept, and is measured, as in the paper"
        assert any(both in own for own in plan.notes)
    found = _refused_plan(path)
    missing = [line for line in found.splitlines() if "cannot be read" in line]
    assert len(missing) == len(set(re.findall(r"/\w+/\w+\.json(?=: cannot)", found)))
    assert all(re.search(r"cannot be read.*; get .*(Hugging Face|GitHub)", line) for line in missing), missing
    assert "people" not in found
    head = path.read_text().partition("kind:")[0]
    assert all(word in head for word in ("# P3", "GPU: ")), head
    assert "data" in head.lower()


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
