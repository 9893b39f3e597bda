"""Exports, and documents of the harness."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.outputs.export import ExportedRow, ExportedTask
from biaseval.outputs.harness_docs import read_doc
from biaseval.runs import export_samples, import_scores
from tests.alike import assert_alike
from tests.commands import Command
from tests.labelplans import Plan, two_tasks
from tests.majorityplans import MajorityPlan
from tests.measuring import measure

pytestmark = pytest.mark.slow

PREDICTIONS = """
select task, n_demos, demo_set, row, gold, labels, prediction, probabilities
from calibrated_predictions
where purpose = 'main' and method = 'none'
order by task, n_demos, demo_set, row
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run of two tasks in three settings, whose labels differ in number of tokens, and so have the mean."""
    plan = two_tasks()
    plan.spec["scoring"]["normalization"] = "where_unequal"
    for row in plan.contexts:
        row["text"] = f"{row['task']} with {row['n_demos']}.\n\n"
    for row in plan.prompts:
        row["input_text"] = f"Input: {row['row']}\n\nOutput:"
    run = plan.write(tmp_path_factory.mktemp("own") / "run")
    measure(run, has_checks=False)
    return run


def test_what_is_exported_comes_back_with_the_same_predictions(own: str, tmp_path: Path, command: Command) -> None:
    shown = command("export", "lm-eval", own, "--out", str(tmp_path / "out"))
    assert shown.code == 0, shown.err
    files = [Path(line) for line in shown.out.splitlines()]
    folders = [file.relative_to(tmp_path / "out").parts[0] for file in files]
    assert folders == [setting for setting in ("k0.s0", "k2.s0", "k2.s1") for _ in range(3)]
    samples = [file for file in files if file.name.startswith("samples_")]
    again = import_scores("lm-eval", samples, str(tmp_path / "again"), page=False).uri
    before, after = (query([run], PREDICTIONS).to_pylist() for run in (own, again))
    assert len(before) == 2 * 3 * 30
    assert_alike(after, before)  # scores are stored in single precision
    metrics = "select task, n_demos, demo_set, accuracy, macro_f1, rsd from label_bias_by_task where method = 'none'"
    # Rows have their names again, so that a run and its copy can be compared.
    rows = "select task, row, instance_id from prompts where purpose = 'main' order by all"
    for asked in (metrics, rows):
        assert query([own], asked).to_pylist() == query([again], asked).to_pylist()
    results = json.loads(next(file for file in files if file.name.startswith("results_")).read_text())
    assert results["config"]["model_args"] == {"scoring": {"normalization": "where_unequal", "eos": True}}
    assert results["model_name"] == "tiny"


def test_a_line_is_as_the_harness_writes_it() -> None:
    task = ExportedTask("t", "", ["no", "yes"], [ExportedRow(3, "id", "Is it?", "Is it? A:", "yes", [-1.5, -1.25])])
    [sample] = map(task.sample, task.rows)
    doc = {"id": "id", "input": "Is it?", "prompt": "Is it? A:", "label": "yes"}
    expected: dict[str, Any] = {
        "doc_id": 3, "doc": doc, "target": "yes",
        "arguments": {"gen_args_0": {"arg_0": "Is it? A:", "arg_1": " no"},
            "gen_args_1": {"arg_0": "Is it? A:", "arg_1": " yes"}},
        "resps": [[["-1.5", "False"]], [["-1.25", "False"]]], "filtered_resps": [["-1.5", "False"], ["-1.25", "False"]],
        "filter": "none", "metrics": ["acc"],
        "doc_hash": hashlib.sha256(json.dumps(doc, indent=2).encode()).hexdigest(),
        "prompt_hash": hashlib.sha256(b"Is it? A:").hexdigest(), "target_hash": hashlib.sha256(b"yes").hexdigest(),
        "acc": 1.0,
    }  # fmt: skip
    assert sample == expected
    assert list(sample) == list(expected)


def _named(folder: Path, *names: str) -> str:
    """Return a run of tasks with these names, of two rows each."""
    plan = Plan()
    for name in names:
        plan.task(name, ["no", "yes"])
        for gold, scores in (("no", [[-1.0, -0.5], [-2.0, -0.5]]), ("yes", [[-2.0, -0.5], [-1.0, -0.5]])):
            plan.prompt(name, "main", gold, scores)
    for row in plan.contexts:
        row["text"] = "Say.\n\n"
    for row in plan.prompts:
        row["input_text"] = f"Input: {row['row']}\n\nOutput:"
    run = plan.write(folder)
    measure(run, has_checks=False)
    return run


def test_a_slash_in_the_name_of_a_task_makes_no_folder(tmp_path: Path) -> None:
    files = export_samples(_named(tmp_path / "run", "suite/one", "two"), str(tmp_path / "out"))
    samples = [Path(file) for file in files if "samples_" in file]
    assert [file.name.split("_2")[0] for file in samples] == ["samples_suite__one", "samples_two"]
    again = import_scores("lm-eval", samples, str(tmp_path / "again"), page=False).uri
    assert query([again], "select task from tasks order by task")["task"].to_pylist() == ["suite__one", "two"]
    with pytest.raises(InputError, match="two names of tasks differ only by / and __; rename one"):
        export_samples(_named(tmp_path / "both", "suite/one", "suite__one"), str(tmp_path / "neither"))


def test_runs_of_other_kinds_are_refused(tmp_path: Path) -> None:
    run = MajorityPlan(calibration=()).write(tmp_path / "run")
    with pytest.raises(InputError, match="is of the kind majority_bias; export takes runs of label_bias"):
        export_samples(run, str(tmp_path / "out"))


LOGPROBS = (-2.0, -1.0, -3.0)


def record(target: str, choices: Sequence[str], doc: dict[str, Any] | None = None, **further: Any) -> dict[str, Any]:
    """Return a line whose second choice is the most likely."""
    return {
        "doc_id": 0, "doc": doc or {}, "target": target,
        "arguments": {f"gen_args_{n}": {"arg_0": "Q:", "arg_1": f" {choice}"} for n, choice in enumerate(choices)},
        "filtered_resps": [[str(logprob), "False"] for logprob in LOGPROBS[: len(choices)]], **further,
    }  # fmt: skip


@pytest.mark.parametrize(("key", "doc", "target", "choices", "acc", "gold"), [
    ("label", {"label": 2}, "2", ["a", "b", "c"], None, 2),
    ("label", {"label": True}, "True", ["a", "b", "c"], None, 1),
    ("label", {"label": "2"}, "2", ["1", "2", "3"], None, 1),  # text that looks like an index
    ("label", {"label": [1]}, "[1]", ["a", "b", "c"], None, 1),
    ("label", {"label": ["c"]}, "['c']", ["a", "b", "c"], None, 2), (0, {}, "0", ["a", "b", "c"], None, 0),
    ("{{x}}", {}, "2", ["1", "2", "3"], None, 2),  # of a template digits are an index
    ("{{x}}", {}, "c", ["a", "b", "c"], None, 2), ("{{x}}", {}, "[1]", ["a", "b", "c"], None, 1),
    ("{{x}}", {}, "[a", ["b", "[a", "c"], None, 1), ("{{x}}", {}, "[a]", ["b", "[a]", "c"], None, 1),
    ("def f(doc): ...", {}, "c", ["a", "b", "c"], None, 2),
    ("def f(doc): ...", {}, "1", ["1", "0"], 1.0, 1),  # an index, as what is predicted is right
    ("def f(doc): ...", {}, "1", ["1", "0"], 0.0, 0),  # a choice, as it is not
    (None, {}, "2", ["a", "b", "c"], 0.0, 2),
])  # fmt: skip
def test_the_right_choice_is_what_the_configuration_and_the_accuracy_say(
    key: object, doc: dict[str, Any], target: str, choices: list[str], acc: float | None, gold: int
) -> None:
    further = {} if acc is None else {"acc": acc}
    found = read_doc("line 1", record(target, choices, doc, **further), {"doc_to_target": key})
    assert (found.gold, found.predicted, found.choices) == (gold, 1, tuple(choices))
