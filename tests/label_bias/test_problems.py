"""What is wrong with the tasks of a run comes in one message, whichever side of planning meets it."""

from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.label_bias.sources import read_sources
from biaseval.runs.commands import claimed_run, describe
from biaseval.spec import LabelBiasSpec, LoraSpec, ModelSpec, PromptSpec, TasksSpec
from tests.label_bias.test_plan import write_rare
from tests.taskfiles import write_task


def test_templates_labels_and_training_rows_of_all_tasks_are_refused_together(tmp_path: Path, tiny_llama: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks, "task9501_one_classification", number=9501)
    write_rare(tasks, "task9502_two_classification", 9502)
    write_task(tasks, "task9503_three_classification", number=9503)
    (tmp_path / "templates.csv").write_text("task,template\ntask9501_one_classification,Question: {INPUT}\n")
    spec = LabelBiasSpec(
        kind="label_bias",
        name="x",
        model=ModelSpec(path=str(tiny_llama)),
        tasks=TasksSpec(path=str(tasks), max_eval=5, templates=str(tmp_path / "templates.csv")),
        prompt=PromptSpec(n_demos=[0], demo_sets=1),
        calibration=["dc"],
        lora=LoraSpec(max_tokens=20),
    )
    with pytest.raises(InputError) as shown:
        describe(spec)
    with pytest.raises(InputError) as written, claimed_run(spec, str(tmp_path / "run")):
        pass
    assert str(shown.value) == str(written.value)
    expected = (
        "3 problems:",
        "  - task9501_one_classification: 5 of 5 inputs lack a literal part of the template",
        "  - task9502_two_classification: outside the pool of 96 every instance has the label",
        "  - task9503_three_classification/k0.s0: a training row has ",
    )
    for line, begin in zip(str(shown.value).split("\n"), expected, strict=True):
        assert line.startswith(begin)
    assert not (tmp_path / "run" / "spec.yaml").exists()


def test_templates_and_splits_that_cannot_be_read_are_said_together(tmp_path: Path) -> None:
    templates = tmp_path / "templates.csv"
    templates.write_text("task\ntask9501_one_classification\n")
    splits = tmp_path / "not-a-run"
    write_task(tmp_path / "tasks", "task9501_one_classification", number=9501)
    spec = LabelBiasSpec(
        kind="label_bias",
        name="x",
        model=ModelSpec(path="unused"),
        tasks=TasksSpec(
            path=str(tmp_path / "tasks"), include=["task9501_*"], templates=str(templates), splits=str(splits)
        ),
    )
    with pytest.raises(InputError) as raised:
        read_sources(spec)
    assert len(raised.value.problems) == 2
    assert raised.value.problems[0].startswith(f"{templates}: ")
    assert str(splits) in raised.value.problems[1]
