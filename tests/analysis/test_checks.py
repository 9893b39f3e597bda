"""Checks of label bias, and what mitigation costs."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import ANALYTICS
from biaseval.analysis import sql_files as relations
from biaseval.errors import BiasevalError
from biaseval.store import Run
from biaseval.tables import TABLES, tables_of
from tests.labelplans import Plan, Rows, two_tasks
from tests.measuring import measure
from tests.relationnames import names_of
from tests.specs import write_plan


def _edit(table: str, change: Callable[[dict[str, Any]], None], **where: Any) -> Callable[[Plan], None]:
    def edit(plan: Plan) -> None:
        row = next(row for row in getattr(plan, table) if all(row[key] == value for key, value in where.items()))
        change(row)

    return edit


def _set(table: str, column: str, value: Any, **where: Any) -> Callable[[Plan], None]:
    return _edit(table, lambda row: row.update({column: value}), **where)


def _drop(table: str, **where: Any) -> Callable[[Plan], None]:
    def drop(plan: Plan) -> None:
        kept = [row for row in getattr(plan, table) if any(row[key] != value for key, value in where.items())]
        assert len(kept) < len(getattr(plan, table))
        setattr(plan, table, kept)

    return drop


def _repeat(table: str, **changes: Any) -> Callable[[Plan], None]:
    return lambda plan: getattr(plan, table).append(getattr(plan, table)[0] | changes)


def _without_calibration(plan: Plan) -> None:
    gone = {row["prompt_id"] for row in plan.prompts if row["purpose"] == "cc" and row["task"] == "task001_animals"}
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in gone]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in gone]


FIRST = "task001_animals/0/0/main/0"

BROKEN: list[tuple[str, Callable[[Plan], None], str]] = [
    ("tasks_are_well_formed", _set("tasks", "labels", ["dog", "cat"]), "not distinct and in code-point order"),
    ("tasks", _repeat("tasks"), "{'task': task001_animals}: 2 rows"),
    ("prompts", _repeat("prompts"), f"{{'prompt_id': {FIRST}}}: 2 rows"),
    ("prompts", _repeat("prompts", prompt_id=None), "{'prompt_id': NULL}: lacks a value"),
    ("contexts", _repeat("contexts"), "{'context_id': task001_animals/0/0}: 2 rows"),
    ("prompts_fit_their_context", _set("prompts", "context_id", "nowhere"), "unknown context nowhere"),
    ("prompts_fit_their_context", _set("contexts", "demo_set", 7), "does not fit the task and setting"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "gold", "cow"), "has gold cow"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "gold", None), "has gold null"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "task", "task003"), "unknown task task003"),
    ("prompts_have_the_labels_of_their_task", _set("prompts", "labels", ["cat"]), "has labels [cat], its task"),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST), f"prompt {FIRST} has no score"),
    ("prompts_are_scored_once_per_label", _drop("label_scores", prompt_id=FIRST, label="cat"), "scores for [dog]"),
    ("prompts_are_scored_once_per_label", _repeat("label_scores"), "scores for [cat, cat, dog]"),
    ("prompts_are_scored_once_per_label", _repeat("label_scores", label="cow"), "scores for [cat, cow, dog]"),
    ("prompts_are_scored_once_per_label", _repeat("label_scores", prompt_id="new"),
        "new is scored and was not planned"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0]), "[-1.0] for 1 label"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", None), "log-probabilities null for 1"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, None]), "NULL"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, math.nan]), "nan"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, -math.inf]), "-inf"),
    ("logprobs_are_whole_and_finite", _set("label_scores", "token_logprobs", [-1.0, 0.5]), "0.5"),
    ("probabilities_sum_to_one", _set("label_scores", "token_logprobs", [-1.0, math.nan]),
        f"prompt {FIRST}, method none"),
    ("calibration_means_sum_to_one", _set("label_scores", "token_logprobs", [-1.0, math.nan],
        prompt_id="task001_animals/2/1/looc/0", label="cat"), "task001_animals, n_demos 2, demo_set 1, looc"),
    ("settings_have_the_same_rows", _set("prompts", "instance_id", "another", n_demos=2),
        ", main, n_demos 2, demo_set 0"),
    ("tasks_have_the_same_settings", _without_calibration, "task001_animals has no n_demos 0, demo_set 0, cc"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "break_run", "problem"), BROKEN)
def test_a_broken_run_gives_no_metrics_and_names_the_check(
    check: str, break_run: Callable[[Plan], None], problem: str, tmp_path: Path
) -> None:
    plan = two_tasks()
    break_run(plan)
    run = plan.write(tmp_path)
    with pytest.raises(BiasevalError) as failure:
        measure(run)
    [line] = [line for line in str(failure.value).splitlines() if f"- {check}: " in line]
    assert problem in line
    assert failure.value.exit_code == 1
    assert not Path(run, "marts").exists()
    assert not Path(run, "results.duckdb").exists()


def test_a_mart_that_leaves_its_range_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = two_tasks().write(tmp_path / "run")
    for name, right, wrong, problem in (
        ("intermediate/format_metrics", "floors.macro_f1,", "floors.macro_f1 + 1 as macro_f1,", "label_bias_by_task: "),
        ("intermediate/format_metrics", "floors.macro_f1,", "null::double as macro_f1,", "metrics_are_there: "),
        ("marts/label_bias_by_model", "    estimates.rsd,\n", "    -estimates.rsd as rsd,\n", "label_bias_by_model: "),
        ("marts/label_bias_verdicts", "judged.low,", "judged.high + 1 as low,", "label_bias_draws_are_whole: "),
    ):
        shutil.copytree(ANALYTICS, folder := tmp_path / problem)  # each of its own, as a process reads its files once
        monkeypatch.setattr(relations, "ANALYTICS", folder)
        changed = folder / f"{name}.sql"
        sql = changed.read_text()
        assert right in sql, right
        changed.write_text(sql.replace(right, wrong))
        with pytest.raises(BiasevalError, match=problem):
            measure(run)
    assert not Path(run, "marts").exists()


def test_every_check_has_a_run_that_breaks_it() -> None:
    elsewhere = {
        "label_bias_draws_are_whole", "metrics_are_there", "calibration_logits_are_whole", "training_rows_are_held_out",
        "permuted_questions_are_whole",
    }  # fmt: skip
    broken = {check for check, _, _ in BROKEN} | elsewhere
    assert broken - set(tables_of("label_bias")) == set(names_of("label_bias", "checks"))


def _priced(folder: Path, *, is_timed: bool = True) -> str:
    """Return a run with an adapter for each of two contexts; a has one token, b has two, each has EOS as another.

    So a prompt's labels have 5 tokens. Tokens of contexts and prompts are set below, and scoring takes 0.1 s a token.
    """
    plan = Plan()
    plan.spec |= {"calibration": ["cc", "looc"], "lora": {"preset": "reif2024"}}
    task = plan.task("task001", ["a", "b"])
    n_tokens = {"task001/0/0": 4, "task001/2/0": 10, "looc/0": 6, "looc/1": 7}
    of_zero = [("main", 0, [6, 6]), ("bias_score", 0, [6]), ("cc", 0, [5])]
    of_two = [("main", 2, [14, 15]), ("bias_score", 2, [13]), ("cc", 2, [13, 13]), ("looc", 2, [9, 11])]
    for purpose, n_demos, tokens in of_zero + of_two:
        for row, n_prompt_tokens in enumerate(tokens):
            gold = None if purpose == "cc" else "ab"[row]
            plan.prompt(task, purpose, gold, [[-1, -1], [-1, -2, -1]], n_demos=n_demos)
            plan.prompts[-1]["n_tokens"] = n_prompt_tokens
            if purpose == "looc":  # each in a context of its own
                plan.prompts[-1]["context_id"] = f"looc/{row}"
                plan.contexts.append({**plan.contexts[-1], "context_id": f"looc/{row}"})
    for context in plan.contexts:
        context |= {"instruction": True, "n_tokens": n_tokens[context["context_id"]], "demo_ids": ["shown"]}
    rows, steps = Rows(), Rows()
    for n_demos, of_rows, losses in ((0, [5, 7], [2.0, 1.0]), (2, [20, 21, 22], [2.0, 1.0, 1.0, 0.5])):
        place = {"adapter": f"task001/k{n_demos}", "task": task, "n_demos": n_demos, "demo_set": 0, "instruction": True}
        for row, n_tokens_of_row in enumerate(of_rows):
            rows.append({**place, "row": row, "instance_id": f"example{row}", "n_tokens": n_tokens_of_row})
        for step, loss in enumerate(losses):
            epoch = step * 2 // len(losses)
            steps.append({**place, "step": step, "epoch": epoch, "loss": loss, "seconds": 0.25})
    run = Run.open(plan.write(folder))
    for table, content in (("adapted_scores", plan.label_scores), ("training_rows", rows), ("training", steps)):
        run.write_part(table, 0, TABLES[table].rows(content))
    write_plan(run)
    n_scored = 2 * ((7 + 7 + 7 + 6 + 4) + (9 + 10 + 8 + 16 + 10 + 8 + 9 + 6 + 7))  # by the model, and with its adapters
    scorer = {"scorer": {"scoring_s": 0.1 * n_scored}} if is_timed else {}
    run.write_text("environment.json", json.dumps({"trained_parameters": 100, **scorer}))
    return run.uri


@pytest.mark.parametrize(("instance_id", "problem"), [
    ("shown", "training_rows_are_held_out: 1 problems, first: adapter task001/k0 is trained on shown, which is"),
    ("example1", "training_rows: 1 problems, first: {'adapter': task001/k0, 'instance_id': example1}: 2 rows"),
])  # fmt: skip
def test_an_adapter_that_saw_its_demonstrations_is_not_measured(tmp_path: Path, instance_id: str, problem: str) -> None:
    run = Run.open(_priced(tmp_path))
    training_rows = run.read_table("training_rows").to_pylist()
    training_rows[0]["instance_id"] = instance_id
    run.write_part("training_rows", 0, TABLES["training_rows"].rows(training_rows))
    with pytest.raises(BiasevalError, match=problem):
        measure(run.uri)
