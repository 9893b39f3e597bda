from collections import Counter
from pathlib import Path
from typing import Any

from biaseval.label_bias.plan import TaskPlan, _blocks, plan_tasks
from biaseval.label_bias.prompts import build_prompt
from biaseval.label_bias.sources import read_sources
from biaseval.label_bias.splits import Sampler
from biaseval.prompting.parts import n_prompts
from biaseval.prompting.task_files import read_task
from biaseval.spec import ExecutionSpec, LabelBiasSpec, ModelSpec, PromptSpec, TasksSpec
from tests.taskfiles import write_task
from tests.tinymodels import make_tokenizer


def _plan(folder: Path, *, window: int | None = None, prompt: dict[str, Any] | None = None, **changes: Any) -> TaskPlan:
    spec = LabelBiasSpec(
        kind="label_bias",
        name="x",
        model=ModelSpec(path="unused"),
        tasks=TasksSpec(path=str(folder), max_eval=20, **changes.pop("tasks", {})),
        prompt=PromptSpec(**{"n_demos": [0, 2, 4], "demo_sets": 2, **(prompt or {})}),
        calibration=changes.pop("calibration", ["cc", "dc", "looc"]),
        **changes,
    )
    (plan,) = plan_tasks(spec, read_sources(spec), make_tokenizer(), window)
    return plan


def _prompts(plan: TaskPlan) -> list[dict[str, Any]]:
    return [row for part in plan.parts for row in part.prompts.to_pylist()]


def test_rows_per_setting_are_the_published_numbers(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path)
    counts = Counter((row["n_demos"], row["demo_set"], row["purpose"]) for row in _prompts(plan))
    for n_demos, sets in ((0, 1), (2, 2), (4, 2)):
        for demo_set in range(sets):
            expected = {"main": 20, "bias_score": 32, "cc": 3, "dc": 20}
            if n_demos:
                expected["looc"] = n_demos
            found = {p: n for (k, s, p), n in counts.items() if (k, s) == (n_demos, demo_set)}
            assert found == expected
    assert (0, 1, "main") not in counts
    assert plan.splits.num_rows == 96 + 20


def test_every_prompt_is_the_published_text_of_its_row(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    plan = _plan(tmp_path)
    inputs = {row["instance_id"]: row["input"] for row in plan.splits.to_pylist()}
    labels = {row["instance_id"]: row["label"] for row in plan.splits.to_pylist()}
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    pool = [row["instance_id"] for row in plan.splits.to_pylist() if row["role"] == "demonstration"]
    for row in _prompts(plan):
        k, demo_set = row["n_demos"], row["demo_set"]
        demos = pool[k * demo_set : k * (demo_set + 1)]
        text = {"cc": ["N/A", "", "[MASK]"]}.get(row["purpose"], [None] * 99)[row["row"]]
        if row["purpose"] == "looc":
            assert row["instance_id"] == demos[row["row"]]
            demos = [demo for demo in demos if demo != row["instance_id"]]
        if row["instance_id"]:
            text = inputs[row["instance_id"]]
            assert row["gold"] == labels[row["instance_id"]]
        context = contexts[row["context_id"]]
        assert context["demo_ids"] == demos
        if text is not None:
            shown = [(inputs[demo], labels[demo]) for demo in demos]
            assert context["text"] + row["input_text"] == build_prompt(task.definition, shown, text)
    assert len({row["prompt_id"] for row in _prompts(plan)}) == n_prompts(plan.parts)


def test_demonstrations_that_do_not_fit_are_dropped_and_a_prompt_that_is_too_long_alone_is_cut(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path, prompt={"n_demos": [4], "demo_sets": 1, "max_tokens": 90}, calibration=[])
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    for row in _prompts(plan):
        assert row["n_demos"] == 4 > row["n_demos_used"] > 0
        assert len(contexts[row["context_id"]]["demo_ids"]) == row["n_demos_used"]
    for row in _prompts(_plan(tmp_path, prompt={"n_demos": [0], "max_tokens": 20}, calibration=[])):
        assert row["is_truncated"]
        assert not row["input_text"].endswith("Output:")
        assert row["input_text"].startswith("Say whether the two words match.")


def test_a_prompt_beyond_the_window_is_refused_with_the_numbers(tmp_path: Path) -> None:
    write_task(tmp_path)
    (message,) = _plan(tmp_path, window=100, calibration=[]).problems
    assert "task9500_made_classification: " in message
    assert "the model's window has 100" in message
    assert "set prompt.max_tokens to at most 98" in message
    assert _plan(tmp_path, window=100, prompt={"max_tokens": 98}, calibration=[]).problems == []


def test_small_tasks_and_inferred_templates_are_recorded(tmp_path: Path) -> None:
    write_task(tmp_path, n_instances=150)
    plan = _plan(tmp_path, tasks={"include": ["task9500_made_classification"], "min_instances": 150})
    assert plan.notes == ["task9500_made_classification: 150 instances, fewer than the 396 of the published suite"]
    (row,) = plan.tasks.to_pylist()
    assert (row["template"], row["template_source"]) == ("First: {INPUT} Second: {INPUT}", "inferred")


def test_parts_hold_whole_settings_or_as_many_rows_as_asked_for(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path)
    assert _blocks(_prompts(plan)) == [75, 75, 2, 75, 2, 75, 4, 75, 4]
    # Parts of at most 512 rows: no setting is cut.
    assert [part.prompts.num_rows for part in plan.parts] == [75 + 77 + 77 + 79 + 79]
    cut = _plan(tmp_path, execution=ExecutionSpec(part_rows=50))
    sizes = [part.prompts.num_rows for part in cut.parts]
    assert (set(sizes[:-1]), sum(sizes)) == ({50}, n_prompts(plan.parts))
    assert all(part.tokens < part.tokens_unshared for part in cut.parts)


def test_a_task_whose_rest_has_one_label_is_refused(tmp_path: Path) -> None:
    write_rare(tmp_path, "task9500_made_classification", 9500)
    plan = _plan(tmp_path)
    assert plan.parts == []
    (problem,) = plan.problems
    assert "task9500_made_classification: outside the pool of 96 every instance has the label 'common'" in problem


def write_rare(folder: Path, name: str, number: int) -> None:
    """Write a task of whose labels one is in the pool alone."""
    task = read_task(write_task(folder, name, number=number, n_instances=397))
    pool = {row.id for row in Sampler("per_task", 42).draw(task, 1).demonstrations}
    labels = {row.id: "rare" if row.id in pool else "common" for row in task.instances}
    instances = [{"id": row.id, "input": row.input, "output": [labels[row.id]]} for row in task.instances]
    write_task(folder, name, number=number, changes={"Instances": instances})
