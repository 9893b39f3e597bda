"""The demo's generated tasks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biaseval import demo
from biaseval.label_bias.templates import infer_template, read_templates
from biaseval.prompting.calibration import SLOT, split_by_template
from tests.bench.demo_models import words
from tests.bench.demo_models.tasks import DEMO_TASKS, demo_instances, write_demo_tasks, write_demo_templates


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    paths = write_demo_tasks(tmp_path_factory.mktemp("tasks"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def test_tasks_pass_the_published_selection_and_have_unique_inputs(tasks: dict[str, dict[str, Any]]) -> None:
    for name, content in tasks.items():
        assert any(word in name for word in ("classification", "detection", "answer_generation"))
        assert content["Input_language"] == content["Output_language"] == ["English"]
        inputs = {row["input"] for row in content["Instances"]}
        assert len(inputs) == len({row["id"] for row in content["Instances"]}) == len(content["Instances"]) == 420
        examples = content["Positive Examples"] + content["Negative Examples"]
        assert not {example["input"] for example in examples} & inputs
        counts = Counter(row["output"][0] for row in content["Instances"])
        assert max(counts.values()) - min(counts.values()) <= 4


def test_templates_fit_every_input_and_leave_some_to_be_inferred(tmp_path: Path) -> None:
    templates = read_templates(str(write_demo_templates(tmp_path / "templates.csv")))
    assert 0 < len(templates) < len(DEMO_TASKS)
    for task in DEMO_TASKS:
        inputs = [row.input for row in demo_instances(task)]
        prefixes = templates.get(task.name, infer_template(inputs)).split(SLOT)
        assert all(len(split_by_template(prefixes, text)) == len(prefixes) + 1 for text in inputs)
    for task, right in zip(DEMO_TASKS[4:], (words.ANIMALS, words.AT_SEA), strict=True):
        for instance in demo_instances(task, seed=1):
            options = dict(line.split(": ") for line in instance.input.splitlines()[1:])
            assert [letter for letter, option in options.items() if option in right] == [instance.label]


def test_the_bundled_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    written = write_demo_tasks(tmp_path)
    folder = demo.SPEC_PATH.parent
    assert {path.name for path in written} == {path.name for path in (folder / "task_files").iterdir()}
    for path in written:
        assert path.read_bytes() == (folder / "task_files" / path.name).read_bytes()
    assert write_demo_templates(tmp_path / "templates.csv").read_bytes() == (folder / "templates.csv").read_bytes()
