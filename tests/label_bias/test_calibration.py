from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.label_bias.calibration import CC_INPUTS, domain_context
from biaseval.label_bias.tasks import read_task, task_files
from biaseval.label_bias.templates import infer_template, read_templates, split_by_template, template_of
from tests.taskfiles import write_task


def test_template_splits_equal_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/superni/expected/metric_unit_cases.json").read_text())["template_split"]
    assert len(cases) == 5
    for case in cases:
        for text, parts in zip(case["inputs"], case["parts"], strict=True):
            assert split_by_template(case["prefixes"], text) == parts


def test_content_free_inputs_are_the_published_ones() -> None:
    assert CC_INPUTS == ("N/A", "", "[MASK]")


def test_random_inputs_have_the_mean_length_and_words_of_each_slot() -> None:
    inputs = ["Q: One two three A: four", "Q: five six A: Seven eight nine"]
    words = domain_context("t", "Q: {INPUT} A: {INPUT}", inputs)
    assert words.lengths == (0, 3, 0, 2)
    for text in words.draw(np.random.default_rng(0)):
        assert text.startswith("Q: ")
        first, second = text.removeprefix("Q: ").split(" A: ")
        assert sorted(set(first.split())) == sorted(first.split())
        assert set(first.split()) <= {"one", "two", "three", "five", "six"}
        assert set(second.split()) <= {"four", "seven", "eight", "nine"}
        assert (len(first.split()), len(second.split())) == (3, 2)


def test_draws_are_seeded() -> None:
    words = domain_context("t", "{INPUT}", [f"word{i} other{i}" for i in range(50)])
    assert words.draw(np.random.default_rng(1)) == words.draw(np.random.default_rng(1))
    assert words.draw(np.random.default_rng(1)) != words.draw(np.random.default_rng(2))
    assert len(words.draw(np.random.default_rng(1))) == 20


def test_inputs_that_lack_a_literal_part_give_no_words_and_are_counted() -> None:
    words = domain_context("t", "Q: {INPUT} A: {INPUT}", ["Q: a A: b", "Q: c A: d", "no part here"])
    assert words.n_unfit == 1
    assert "here" not in " ".join(word for bag in words.bags for word in bag)
    with pytest.raises(InputError, match=r"t: 2 of 3 inputs lack a literal part of the template"):
        domain_context("t", "Q: {INPUT}", ["Q: a", "b", "c"])


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
    published = read_templates(shared / "data/superni/templates.csv")
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
        ("task,words\na,b\n", "columns task and template"),
        ("task,template\na,{INPUT}\na,{INPUT}\n", "a stands there twice"),
        ("task,template\na,none\n", "the template of a has no {INPUT}"),
    ],
)
def test_a_bad_template_table_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_templates(tmp_path / "t.csv")
    assert expected in str(caught.value)
