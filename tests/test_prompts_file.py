"""A file of prompts is what its spec says it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.pipelines.labels.score import score_spec
from biaseval.runs import describe, score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec


def test_a_file_that_changes_between_two_reads_is_refused(tmp_path: Path, tiny_llama: Path) -> None:
    """Else other prompts would be scored than the run says it holds."""
    file = tmp_path / "prompts.jsonl"
    row = {"prompt_id": "a", "text": "Is it so?", "labels": ["yes", "no"]}
    file.write_text(json.dumps(row) + "\n")
    spec = score_spec(ModelSpec(path=str(tiny_llama)), ExecutionSpec(), file)
    assert describe(spec).facts["n_prompts"] == 1
    file.write_text(json.dumps({**row, "text": "Is it not so?"}) + "\n")
    with pytest.raises(InputError, match=r"prompts\.jsonl: changed while it was read; run the same command again"):
        describe(spec)


def test_all_mistakes_of_a_file_come_in_one_message(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    good = {"prompt_id": "a", "text": "Is it so?", "labels": ["yes", "no"]}
    wrong_labels = "labels must be a list of at least one label, each a string with a word"
    half = "holds half a surrogate pair, which is no character; take it out"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"prompt_id": ""}, "prompt_id is missing or not a string"),
        ({}, "prompt_id 'a' stands there twice; make ids unique"),
        ({"prompt_id": "b", "text": None}, "text is missing or not a string"),
        ({"prompt_id": "c", "text": "half \ud83d of one"}, f"text {half}"),
        ({"prompt_id": "d", "labels": []}, wrong_labels), ({"prompt_id": "e", "labels": ["yes", " "]}, wrong_labels),
        ({"prompt_id": "f", "labels": ["yes", "yes"]}, "labels names a label twice"),
        ({"prompt_id": "g", "labels": ["yes", "\ud800"]}, f"labels {half}"),
        ({"prompt_id": "\udfff"}, f"prompt_id {half}"), ({"prompt_id": "h", "labels": ["yes", "\u200b"]}, wrong_labels),
    ]  # fmt: skip
    file.write_text("".join(json.dumps(good | change) + "\n" for change, _ in [({}, ""), *cases]))
    with pytest.raises(InputError) as raised:
        score_spec(ModelSpec(path="unused"), ExecutionSpec(), file)
    assert raised.value.problems == [f"{file}: row {row}: {said}" for row, (_, said) in enumerate(cases, 2)]
    file.write_text("".join(json.dumps({**good, "prompt_id": ""}) + "\n" for _ in range(13)))
    with pytest.raises(InputError) as raised:
        score_spec(ModelSpec(path="unused"), ExecutionSpec(), file)
    assert len(raised.value.problems) == 11
    assert raised.value.problems[-1] == f"{file}: 3 more problems like these"


def test_a_label_has_one_score_whatever_stands_beside_it(tmp_path: Path, tiny_llama: Path, here: None) -> None:
    text = "Input: The soup was good.\nOutput:"
    rows = [
        {"prompt_id": "two words", "text": f"{text} ", "labels": ["not sure", "very sure"]},
        {"prompt_id": "beside one", "text": f"{text} ", "labels": ["not sure", "no"]},
        {"prompt_id": "no space", "text": text, "labels": ["not sure", "very sure"]},
    ]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = score_prompts(ModelSpec(path=str(tiny_llama)), ExecutionSpec(), file, str(tmp_path / "out"))
    found = run.read_table("label_scores").to_pylist()
    scores = {(row["prompt_id"], row["label"]): row["token_logprobs"] for row in found}
    for other in ("beside one", "no space"):
        assert scores[other, "not sure"] == pytest.approx(scores["two words", "not sure"], abs=1e-5)
    assert scores["no space", "very sure"] == pytest.approx(scores["two words", "very sure"], abs=1e-5)


def test_labels_that_look_alike_are_said_once(tmp_path: Path, tiny_llama: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    odd = (["yes", "no"], ["yes", "yes "], ["yes", "yes "], ["yes ", "no", "yes"])
    rows = [{"prompt_id": str(n), "text": "Is it so?", "labels": labels} for n, labels in enumerate(odd)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alike = "look alike and count as different; if they mean the same, mend them"
    [note] = describe(score_spec(ModelSpec(path=str(tiny_llama)), ExecutionSpec(), file)).notes
    assert note == f"note: {file}: the labels 'yes' and 'yes ' {alike} (first in prompt '1')"


def test_prompts_that_begin_with_bos_have_it_once_and_it_is_said(
    tmp_path: Path, tiny_llama: Path, here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.jsonl"
    texts = {"with": "<s>Is it so?", "without": "Is it so?"}
    rows = [{"prompt_id": name, "text": text, "labels": ["yes", "no"]} for name, text in texts.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model, execution = ModelSpec(path=str(tiny_llama)), ExecutionSpec()
    [note] = describe(score_spec(model, execution, file)).notes
    assert note.startswith(f"note: {file}: prompts begin with '<s>', which the tokenizer puts before every text itself")
    run = score_prompts(model, execution, file, str(tmp_path / "out"))
    assert note in capsys.readouterr().err
    scores = run.read_table("label_scores")["token_logprobs"].to_pylist()
    assert scores[:2] == scores[2:]
