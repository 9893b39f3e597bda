from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.label_bias.tasks import task_files
from biaseval.label_bias.templates import infer_template, read_templates, template_of
from biaseval.prompting.calibration import split_by_template
from biaseval.prompting.task_files import read_task
from tests.taskfiles import write_task


@pytest.mark.parametrize(
    ("inputs", "template"),
    [
        (["a b", "c d e"], "{INPUT}"),
        (["Topic: x y\n Text: z", "Topic: u\n Text: v w"], "Topic: {INPUT}\n Text: {INPUT}"),
        (["what (A)x y (B)z", "who (A)u (B)v w"], "{INPUT} (A){INPUT} (B){INPUT}"),
        (["Is a good?", "Is b good?"], "Is {INPUT} good?"),
    ],
)
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


def test_templates_are_keyed_by_file_name_or_run_key(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    assert template_of(task, {"task9500_made_classification": "{INPUT}"}) == ("{INPUT}", "table")
    assert template_of(task, {"task9500_made_text_matching": "x{INPUT}"}) == ("x{INPUT}", "table")
    assert template_of(task, {}) == ("First: {INPUT} Second: {INPUT}", "inferred")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task,words\na,b\n", "lacks the columns template; a table has task, template"),
        ("task,template\n", "holds no row; check the path"),
        ("task,template,template\na,{INPUT},b\n", "line 1: names the columns 'template' twice; name each once"),
        ("task,template\na,{INPUT}\na,{INPUT}\n", "a stands there twice"),
        ("task,template\na,none\n", "the template of a has no {INPUT}"),
    ],
)
def test_a_bad_template_table_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_templates(str(tmp_path / "t.csv"))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "task;template\na;Text: {INPUT}, so \n",
        'task, template\na, "Text: {INPUT}, so "\n',
        "template\ttask\nText: {INPUT}, so \ta\n",
    ],
)
def test_a_template_table_is_read_however_it_is_written(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert read_templates(str(tmp_path / "t.csv")) == {"a": "Text: {INPUT}, so "}
