"""Prompts of lm-evaluation-harness tasks are those of the harness, to the byte; ``make.py`` beside them asked it."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.inputs.harness import read_lm_eval
from biaseval.prompting.labels import separator

TASKS = Path(__file__).parents[1] / "fixtures" / "lm_eval_tasks"
HARNESS: dict[str, Any] = json.loads((TASKS / "prompts.json").read_text())


@pytest.mark.parametrize("name", HARNESS["tasks"])
def test_prompts_and_labels_are_the_harnesss(name: str) -> None:
    known, found = HARNESS["tasks"][name], read_lm_eval(str(TASKS / f"{name}.yaml"))
    examples = [found.train[place] for place in HARNESS["shown"]]
    shown = [found.form.demonstration(example.fields, example.label) for example in examples]
    assert len(found.test) == len(known["without"]) == len(known["behind"]) == len(known["gold"])
    for key, demonstrations in (("without", []), ("behind", shown)):
        for example, of_harness in zip(found.test, known[key], strict=True):
            prompt = found.form.head + "".join(demonstrations) + found.form.test(example.fields)
            assert prompt == of_harness["prompt"]
            behind = [separator(prompt, label) + label for label in found.choices]
            assert behind == of_harness["continuations"]
    assert [found.choices.index(example.label) for example in found.test] == known["gold"]


def test_the_version_of_the_harness_is_named() -> None:
    assert HARNESS["lm_eval"] == "0.4.13"
