"""What mitigation costs, by hand."""

import json
from pathlib import Path

import pytest

from biaseval.errors import BiasevalError
from biaseval.store import Run
from biaseval.tables import TABLES
from tests.labelplans import Plan, Rows
from tests.measuring import measure
from tests.relation import Relations
from tests.specs import write_plan


def _priced(folder: Path, *, is_timed: bool = True) -> str:
    """Return a run with an adapter for each of two contexts; a has one token, b has two, each has EOS as another.

    So a prompt's labels have 5 tokens. Tokens of contexts and prompts are set below, and scoring takes 0.1 s a token.
    """
    plan = Plan()
    plan.spec |= {"calibration": ["cc", "looc"], "lora": {"preset": "reif2024"}}
    task = plan.task("task001", ["a", "b"])
    n_tokens = {"task001/0/0": 4, "task001/2/0": 10, "looc/0": 6, "looc/1": 7}
    for purpose, n_demos, tokens in (
        ("main", 0, [6, 6]),
        ("bias_score", 0, [6]),
        ("cc", 0, [5]),
        ("main", 2, [14, 15]),
        ("bias_score", 2, [13]),
        ("cc", 2, [13, 13]),
        ("looc", 2, [9, 11]),
    ):
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


def test_what_mitigation_needs_by_hand(tmp_path: Path) -> None:
    """A calibration input has its own tokens and its labels'; the context counts where the rows do not have it.

    cc at 2: twice 3 + 5 tokens. looc: 3 + 5, 4 + 5, and contexts of 6 and 7. lora at 2: two epochs of 63 tokens.
    """
    costs = "n_demos, method, n_prompts, tokens, n_adapters, trained_parameters, seconds"
    found = Relations(_priced(tmp_path)).rows(f"select {costs} from mitigation_costs order by n_demos, method")
    assert [list(row.values()) for row in found] == [
        [0, "cc", 1, 6, 0, 0, pytest.approx(0.6)],
        [0, "lora", 0, 24, 1, 100, 0.5],
        [0, "lora+cc", 1, 30, 1, 100, pytest.approx(1.1)],
        [2, "cc", 2, 16, 0, 0, pytest.approx(1.6)],
        [2, "looc", 2, 30, 0, 0, pytest.approx(3.0)],
        [2, "lora", 0, 126, 1, 100, 1.0],
        [2, "lora+cc", 2, 142, 1, 100, pytest.approx(2.6)],
        [2, "lora+looc", 2, 156, 1, 100, pytest.approx(4.0)],
    ]


def test_the_seconds_of_mitigation_are_unknown_where_those_of_scoring_are(tmp_path: Path) -> None:
    found = Relations(_priced(tmp_path, is_timed=False)).rows("from mitigation_costs where n_demos = 2")
    unknown = dict.fromkeys(("cc", "looc", "lora+cc", "lora+looc"))
    assert {row["method"]: row["seconds"] for row in found} == {**unknown, "lora": 1.0}


@pytest.mark.parametrize(
    ("instance_id", "problem"),
    [
        ("shown", "training_rows_are_held_out: 1 problems, first: adapter task001/k0 is trained on shown, which is"),
        ("example1", "training_rows: 1 problems, first: {'adapter': task001/k0, 'instance_id': example1}: 2 rows"),
    ],
)
def test_an_adapter_that_saw_its_demonstrations_is_not_measured(tmp_path: Path, instance_id: str, problem: str) -> None:
    run = Run.open(_priced(tmp_path))
    training_rows = run.read_table("training_rows").to_pylist()
    training_rows[0]["instance_id"] = instance_id
    run.write_part("training_rows", 0, TABLES["training_rows"].rows(training_rows))
    with pytest.raises(BiasevalError, match=problem):
        measure(run.uri)
