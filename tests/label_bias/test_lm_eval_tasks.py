"""Tasks of lm-evaluation-harness as data sets of a run, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import load_dataset_builder

from biaseval.errors import InputError
from biaseval.inputs.harness import lm_eval_digest, read_lm_eval
from biaseval.label_bias.data import read_datasets
from biaseval.label_bias.plan import TaskPlan
from biaseval.pipelines.labels.label_bias import LABEL_BIAS
from biaseval.spec import LabelBiasSpec, load_spec
from tests.label_bias.test_own_data import texts
from tests.labelplans import plan_tasks
from tests.tinymodels import make_tokenizer

TASK = """
dataset_path: json
dataset_kwargs: {data_files: {train: train.jsonl, test: test.jsonl}}
output_type: multiple_choice
training_split: train
test_split: test
description: "Which?\\n\\n"
doc_to_text: "Q: {{question}}\\nA. {{options[0]}}\\nB. {{options[1]}}\\nAnswer:"
doc_to_choice: ["A", "B"]
doc_to_target: answer
target_delimiter: " "
"""


def write(folder: Path, task: str = TASK, **changes: Any) -> Path:
    """Write a task of 30 and 12 documents, whose fields ``changes`` replaces."""
    folder.mkdir(exist_ok=True)
    for split, first, number in (("train", 0, 30), ("test", 30, 12)):
        numbers = range(first, first + number)
        docs = [
            {"question": f"what is {n}?", "options": [f"odd {n}", f"even {n}"], "answer": 1 - n % 2} for n in numbers
        ]
        docs = [doc | changes for doc in docs]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    (folder / "odd-even.yaml").write_text(task)
    return folder / "odd-even.yaml"


def spec_of(data: Any, **changes: Any) -> LabelBiasSpec:
    content: dict[str, Any] = {
        "kind": "label_bias", "name": "harness", "model": {"path": "unused"}, "data": data,
        "prompt": {"n_demos": [0, 2], "demo_sets": 2}, "calibration": ["cc", "dc", "looc"],
    }  # fmt: skip
    return LabelBiasSpec.model_validate(content | changes)


def plan_of(spec: LabelBiasSpec) -> TaskPlan:
    [plan] = plan_tasks(spec, make_tokenizer())
    return plan


def test_a_task_is_measured_with_its_own_prompts(tmp_path: Path) -> None:
    uri = str(write(tmp_path))
    plan = plan_of(spec_of({"lm_eval": uri, "max_test": 10}))
    assert plan.problems == []
    assert (plan.task, plan.tasks["labels"].to_pylist(), plan.sha256) == ("odd-even", [["A", "B"]], lm_eval_digest(uri))
    roles = [(row["role"], row["instance_id"].split("-")[0]) for row in plan.splits.to_pylist()]
    assert set(roles) == {("demonstration", "train"), ("bias_score", "train"), ("main", "test")}
    assert roles.count(("main", "test")) == 10
    main = [row for row in plan.splits.to_pylist() if row["role"] == "main"]
    number = int(main[0]["instance_id"].split("-")[1]) + 30
    item = f"Q: what is {number}?\nA. odd {number}\nB. even {number}\nAnswer:"
    assert texts(plan, "main")["odd-even/k0.s0/main/0"] == f"Which?\n\n{item}"
    few = texts(plan, "main")["odd-even/k2.s1/main/0"]
    assert few.startswith("Which?\n\nQ: what is ")
    assert few.endswith(f"\n\n{item}")
    assert few.count("\nAnswer: ") == 2
    assert main[0]["input"] == f"options.0: odd {number}\noptions.1: even {number}\nquestion: what is {number}?"


def test_a_changed_document_is_another_task_and_no_run_is_resumed_on_it(tmp_path: Path) -> None:
    uri = write(tmp_path)
    (tmp_path / "outer.yaml").write_text("include: odd-even.yaml\n")
    digests = {lm_eval_digest(str(tmp_path / "outer.yaml"))}
    spec, environment = spec_of({"lm_eval": str(uri)}), {"data": {"odd-even": lm_eval_digest(str(uri))}}
    assert LABEL_BIAS.changes(spec, environment) == []
    uri.write_text(TASK.replace("Which?", "Which one?"))
    digests.add(lm_eval_digest(str(tmp_path / "outer.yaml")))
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write("\n")
    assert len({*digests, lm_eval_digest(str(tmp_path / "outer.yaml"))}) == 3
    assert LABEL_BIAS.changes(spec, environment) == [f"{uri}: the file, or one that it names, changed"]


@pytest.mark.parametrize(("old", "new", "problem"), [
    ("multiple_choice", "generate_until", "output_type: generate_until has no set of labels"),
    ("output_type", "group: x\noutput_type", "group: makes the file a group of tasks"),
    ("output_type", "outputtype: x\noutput_type", "unexpected keyword argument 'outputtype'"),
    ("{{question}}", "{{query}}", "lm_eval: fails (UndefinedError: 'query' is undefined); mend the task"),
    ("doc_to_text", "doc_to_text: !function nowhere.text\n_", "Cannot import module 'nowhere'"),
    ('target_delimiter: " "', 'target_delimiter: ""', "document train-0: target_delimiter: '' stands after"),
    ('["A", "B"]', "options", "document train-0: doc_to_choice: choices differ between documents, as options do"),
    ('["A", "B"]', '["A", "A"]', "are no two or more different texts"),
    ("target: answer", "target: question", "doc_to_target: 'what is 0?' is neither one of the choices"),
    ("target: answer", 'target: "[0, 1]"', "document train-0: doc_to_target: [0, 1] is neither one of the choices"),
    ("Which?", "{{question}}", "description: differs between documents"),
    ("dataset_path: json", "dataset_path: glue", "dataset_path: the data of 'glue' are neither local nor in the"),
    ("test: test.jsonl", "dev: test.jsonl", "dataset_path: json has no split test (it has train, dev)"),
    ("test: test.jsonl", "test: none.jsonl", "none.jsonl'); name files in dataset_kwargs.data_files, or let"),
    ("test: test.jsonl", "test: https://x.org/y", "dataset_kwargs: https://x.org/y is no local file; fetch it"),
    ("test_split: test", "", "test_split: is missing, and validation_split too"),
    ("output_type", "include: odd-even.yaml\noutput_type", "Include cycle at"),
])  # fmt: skip
def test_what_is_not_measured_as_the_harness_does_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in TASK
    uri = write(tmp_path, TASK.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_lm_eval(str(uri))
    assert str(caught.value).startswith(f"{uri}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_documents_may_show_other_values_unless_only_these_tell_them_apart(tmp_path: Path) -> None:
    task = TASK.replace("\\nA. {{options[0]}}\\nB. {{options[1]}}", " {{options|join(', ')}}")
    uri = write(tmp_path, task)
    for options, question in ((["x", "y", "z"], "what?"), (["x", "y"], "what?")):
        found = read_lm_eval(str(uri))
        assert found.test[0].fields.keys() == {"question", "options.0", "options.1"}
        assert found.form.test(dict.fromkeys(found.test[0].fields, "N/A")) == "Q: N/A N/A, N/A\nAnswer:"
        with (tmp_path / "test.jsonl").open("a") as file:
            file.write(json.dumps({"question": question, "options": options, "answer": 0}) + "\n")
    with pytest.raises(InputError, match="document test-13: doc_to_text: shows values that not all documents have"):
        read_lm_eval(str(uri))


def test_functions_of_a_task_are_called_and_belong_to_it(tmp_path: Path) -> None:
    task = TASK.replace("doc_to_target: answer", "doc_to_target: !function utils.target")
    uri = write(tmp_path, task.replace('["A", "B"]', "!function utils.choices"))
    digests = set()
    for labels in (["A", "B"], ["yes", "no"]):
        code = f"def choices(doc):\n    return {labels}\n\n\ndef target(doc):\n    return choices(doc)[doc['answer']]\n"
        (tmp_path / "utils.py").write_text(code)
        found = read_lm_eval(str(uri))
        assert (found.choices, found.test[0].label) == (tuple(labels), labels[1])
        assert found.sha256 == lm_eval_digest(str(uri))
        digests.add(found.sha256)
    assert len(digests) == 2


def test_data_of_the_hub_come_from_the_cache_alone(tmp_path: Path) -> None:
    write(tmp_path / "quiz")
    name = "someone/quiz-of-tests"
    builder = load_dataset_builder("json", data_files={"test": str(tmp_path / "quiz" / "test.jsonl")})
    place = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___") / "default" / "0.0.0" / "1"
    uri = tmp_path / "cached.yaml"
    changed = TASK.replace("training_split: train\n", "").replace("dataset_path: json", f"dataset_path: {name}")
    uri.write_text("".join(line for line in changed.splitlines(keepends=True) if "data_files" not in line))
    with pytest.raises(InputError, match=f"dataset_path: the data of '{name}' are neither local nor in the cache"):
        read_lm_eval(str(uri))
    builder.download_and_prepare(str(place))
    for file in place.glob("json-*.arrow"):
        file.rename(place / file.name.replace("json", "quiz-of-tests"))
    found = read_lm_eval(str(uri))
    assert (len(found.train), len(found.test), found.fewshot_split) == (0, 12, "test")
    assert found.sha256 == lm_eval_digest(str(uri))


def test_demonstrations_in_place_of_a_tasks_own_are_noted(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("def three(dataset):\n    return dataset.select(range(3))\n")
    for config, note in (
        ("{sampler: first_n}", "demonstrations are drawn from train, of which the harness shows the first"),
        ("{samples: [{question: a, options: [b, c], answer: 0}]}", "drawn from test, not from the 1"),
        ("{split: train, process_docs: !function utils.three}", "drawn from test, not from the 3"),
    ):
        uri = write(tmp_path, f"{TASK}fewshot_config: {config}\n")
        [dataset] = read_datasets(spec_of({"lm_eval": str(uri)}))
        assert note in dataset.notes[0]
        assert dataset.n_train == (30 if "train," in note else 12)


def test_a_spec_names_a_task_or_rows(tmp_path: Path) -> None:
    base = "kind: label_bias\nname: x\nmodel: {path: m}\n"
    for text, problem in (
        ("data: {lm_eval: a.yaml, train: b.csv}", "train does not go with lm_eval, whose file says it"),
        ("data: {lm_eval: a.yaml, max_tst: 3}", "max_tst: unknown key; did you mean max_test?"),
        ("data: {lm_eval: _a.yaml}", "name: is missing, and '_a' of the file is none; add a name"),
        ('data: {lm_eval: a.yaml}\nprompt: {item: "{x} {label}"}', "prompt.item does not go with data.lm_eval"),
        ("data: {lm_eval: a.yaml}\nprompt: {flip: 0.3}", "prompt.flip does not go with data.lm_eval"),
        ("data: [{name: x, train: a.csv}, {lm_eval: x.yaml}]", "data: name ['x', 'x'] names a data set twice"),
    ):
        (tmp_path / "spec.yaml").write_text(base + text)
        with pytest.raises(InputError) as caught:
            load_spec(tmp_path / "spec.yaml")
        assert problem in str(caught.value)
        assert "\n" not in str(caught.value)
    (tmp_path / "spec.yaml").write_text(base + "data: [{name: rows, train: a.csv}, {lm_eval: a.yaml}]\n")
    spec = load_spec(tmp_path / "spec.yaml")
    assert isinstance(spec, LabelBiasSpec)
    assert spec.files()["data of a, lm_eval"] == str(tmp_path / "a.yaml")
    assert list(spec.datasets()) == ["data.0", "data.1"]
