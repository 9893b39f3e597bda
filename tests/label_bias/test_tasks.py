"""Published tasks: files, templates, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.label_bias import suites
from biaseval.label_bias.tasks import check_tasks, select_tasks, task_files
from biaseval.label_bias.templates import infer_template, read_templates, template_of
from biaseval.prompting.calibration import split_by_template
from biaseval.prompting.task_files import parse_task, read_task
from biaseval.runs.commands import claimed_run, describe
from biaseval.spec import LabelBiasSpec, LabelLoraSpec, ModelSpec, PromptSpec, TasksSpec
from tests.label_bias.test_plan import write_rare
from tests.taskfiles import task_content, write_task


def _problem(path: Path) -> str:
    task, problems = parse_task(path)
    assert task is None
    return "\n".join(problems)


def test_the_rule_and_the_suites_have_the_published_sizes(shared: Path) -> None:
    rows = suites.read_task_table(str(shared / "data" / "superni" / "task_info.csv"))
    candidates = [row for row in rows if suites.is_candidate(row)]
    assert (len(candidates), len([row for row in candidates if suites.is_english(row)])) == (662, 528)
    assert len(suites.select_by_table(rows)) == 500
    published = json.loads((shared / "golden" / "superni" / "suite_279.json").read_text())["tasks"]
    assert {f"task{number:03}" for number in suites.REIF2024} == {task["name"].partition("_")[0] for task in published}
    assert {task["name"] for task in published if task["sem_eq_inferred"]} == suites.SEMANTICALLY_EQUIVALENT
    assert (len(suites.REIF2024), len(suites.SEMANTICALLY_EQUIVALENT)) == (279, 18)


def test_all_real_tasks_are_usable_and_in_the_suite(shared: Path) -> None:
    folder = shared / "data" / "superni"
    equivalent = TasksSpec(path=str(folder / "tasks"), suite="semantically_equivalent", on_bad_task="skip")
    found, there = select_tasks(equivalent), {path.stem for path in (folder / "tasks").iterdir()}
    assert {path.stem for path in found.files} == suites.SEMANTICALLY_EQUIVALENT & there
    assert found.left_out.keys() == suites.SEMANTICALLY_EQUIVALENT - there
    assert len(select_tasks(TasksSpec(path=str(folder / "tasks"))).files) == 40
    spec = TasksSpec(path=str(folder / "tasks"), suite="selection", table=str(folder / "task_info.csv"))
    assert len(select_tasks(spec).files) == 40
    skipping = TasksSpec(path=str(folder / "tasks"), suite="reif2024", on_bad_task="skip")
    selection = select_tasks(skipping)
    assert len(selection.files) == 40
    assert len(selection.left_out) == 239


@pytest.mark.parametrize(("changes", "expected"), [
    ({"Definition": None}, "Definition: is missing"), ({"Definition": ["  "]}, "Definition: is empty"),
    ({"Definition": "text"}, "Definition: must be a list of strings"), ({"Instances": None}, "Instances: is missing"),
    ({"Instances": []}, "Instances: must be a list with at least one"),
    ({"Categories": [3]}, "Categories: must be a list of strings"),
    ({"Instances": [{"id": "a", "input": "x", "output": []}]}, "Instances[0]: has no output"),
    ({"Instances": [{"id": "a", "input": "x", "output": [3]}]}, "holds a label that is not a string; quote it"),
    ({"Instances": [{"id": "a", "input": "x", "output": [" "]}]}, "first output is an empty label"),
    ({"Instances": [{"id": "a", "input": 3, "output": ["y"]}]}, "input is missing or not a string"),
    ({"Instances": [{"input": "x", "output": ["y"]}]}, "id is missing"), ({"Instances": ["text"]}, "is not an object"),
    ({"Instances": [{"id": "a", "input": "x", "output": ["y"]}] * 2}, "id 'a' is that of Instances[0] too"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    changed = {**task_content(), **changes}
    path = tmp_path / "task1_x.json"
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))
    assert expected in _problem(path)


def test_files_that_are_no_json_or_no_text_are_said(tmp_path: Path) -> None:
    path = tmp_path / "task1_x.json"
    for content, problem in (
        (b'{"Definition": [', "line 1, column 17: is not JSON"),
        (b'{"Definition": ["caf\xe9"]}', "line 1, byte 20: is not UTF-8"),
        (b'{"Definition": ["half a pair: \\ud83d"]}', "holds half a surrogate pair"),
        (b"[1]", "is not a JSON object"),
    ):
        path.write_bytes(content)
        assert problem in _problem(path)


def test_a_run_stops_with_the_list_of_all_bad_files(tmp_path: Path) -> None:
    write_task(tmp_path, "task1_good_classification")
    write_task(tmp_path, "task2_bad_classification", changes={"Definition": [""]})
    write_task(tmp_path, "task3_one_label_classification", labels=("yes",))
    with pytest.raises(InputError) as caught:
        select_tasks(TasksSpec(path=str(tmp_path)))
    assert "task2_bad_classification.json: Definition: is empty" in str(caught.value)
    assert "task3_one_label_classification.json: Instances: every instance has the label 'yes'" in str(caught.value)
    skipping = select_tasks(TasksSpec(path=str(tmp_path), on_bad_task="skip"))
    assert [path.stem for path in skipping.files] == ["task1_good_classification"]
    assert set(skipping.left_out) == {"task2_bad_classification", "task3_one_label_classification"}


def test_globs_choose_and_what_they_miss_is_said(tmp_path: Path) -> None:
    for number in (1, 2, 12):
        write_task(tmp_path, f"task{number}_x_classification")
    chosen = select_tasks(TasksSpec(path=str(tmp_path), include=["task1*"])).files
    assert [path.stem for path in chosen] == ["task1_x_classification", "task12_x_classification"]
    with pytest.raises(InputError, match=r"tasks\.include: 'task7' matches no task in"):
        select_tasks(TasksSpec(path=str(tmp_path), include=["task1*", "task7"]))


def test_an_incomplete_suite_is_refused(tmp_path: Path) -> None:
    write_task(tmp_path, "task50_x_classification")
    with pytest.raises(InputError, match=r"tasks\.suite: 278 tasks of reif2024 are not in"):
        select_tasks(TasksSpec(path=str(tmp_path), suite="reif2024"))
    assert len(select_tasks(TasksSpec(path=str(tmp_path), suite="reif2024", include=["task50*"])).files) == 1


def test_a_folder_without_tasks_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no \*\.json task file"):
        select_tasks(TasksSpec(path=str(tmp_path)))
    with pytest.raises(InputError, match="no such folder"):
        select_tasks(TasksSpec(path=str(tmp_path / "absent")))
    write_task(tmp_path, "task3_bad_classification", changes={"Definition": [""], "Instances": [3]})
    assert len(check_tasks(tmp_path, min_instances=396).bad["task3_bad_classification"]) == 2


@pytest.mark.parametrize(("inputs", "template"), [
    (["a b", "c d e"], "{INPUT}"), (["Topic: x y\n Text: z", "Topic: u\n Text: v w"], "Topic: {INPUT}\n Text: {INPUT}"),
    (["what (A)x y (B)z", "who (A)u (B)v w"], "{INPUT} (A){INPUT} (B){INPUT}"),
    (["Is a good?", "Is b good?"], "Is {INPUT} good?"),
])  # fmt: skip
def test_inference_finds_the_literal_parts(inputs: list[str], template: str) -> None:
    assert infer_template(inputs) == template


def test_inferred_templates_of_real_tasks_fit_every_input_and_are_mostly_the_published_ones(shared: Path) -> None:
    published = read_templates(str(shared / "data/superni/templates.csv"))
    n_same = 0
    for path in task_files(shared / "data/superni/tasks"):
        task = read_task(path)
        template, source = template_of(task, {})
        assert source == "inferred"
        prefixes = template.split("{INPUT}")
        for instance in task.instances:
            assert len(split_by_template(prefixes, instance.input)) == len(prefixes) + 1, (task.name, template)
        given, source = template_of(task, published)
        assert source == "table"
        n_same += "".join(given.split()) == "".join(template.split())
    assert n_same >= 27


@pytest.mark.parametrize(("text", "expected"), [
    ("task,words\na,b\n", "lacks the columns template; a table has task, template"),
    ("task,template\n", "holds no row; check the path"),
    ("task,template,template\na,{INPUT},b\n", "line 1: names the columns 'template' twice; name each once"),
    ("task,template\na,{INPUT}\na,{INPUT}\n", "a stands there twice"),
    ("task,template\na,none\n", "the template of a has no {INPUT}"),
])  # fmt: skip
def test_a_bad_template_table_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_templates(str(tmp_path / "t.csv"))
    assert expected in str(caught.value)


def test_templates_labels_and_training_rows_of_all_tasks_are_refused_together(tmp_path: Path, tiny_llama: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks, "task9501_one_classification", number=9501)
    write_rare(tasks, "task9502_two_classification", 9502)
    write_task(tasks, "task9503_three_classification", number=9503)
    (tmp_path / "templates.csv").write_text("task,template\ntask9501_one_classification,Question: {INPUT}\n")
    spec = LabelBiasSpec(
        kind="label_bias", name="x", model=ModelSpec(path=str(tiny_llama)),
        tasks=TasksSpec(path=str(tasks), max_eval=5, templates=str(tmp_path / "templates.csv")),
        prompt=PromptSpec(n_demos=[0], demo_sets=1), calibration=["dc"], lora=LabelLoraSpec(max_tokens=20),
    )  # fmt: skip
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
