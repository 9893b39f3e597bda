"""Selection, pools, labels and prompts against the values computed by the authors' code (P1)."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.label_bias.splits import Sampler
from biaseval.label_bias.tasks import select_tasks
from biaseval.models import ModelSource, load_tokenizer
from biaseval.prompting.task_files import read_task
from biaseval.scoring import LabelScorer
from biaseval.scoring.outputs import part_outputs, read_part
from biaseval.spec import LabelBiasSpec, ModelSpec, PromptSpec, TasksSpec
from biaseval.store import Run
from tests.labelplans import plan_tasks
from tests.relation import Relations
from tests.specs import write_plan, write_spec

POOL = 96


@pytest.fixture(scope="module")
def golden(shared: Path) -> Path:
    return shared / "golden" / "superni"


@pytest.fixture(scope="module")
def pools(golden: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((golden / "expected" / "pools.json").read_text())
    return content


@pytest.fixture(scope="module")
def expected(golden: Path) -> list[dict[str, Any]]:
    return pq.read_table(golden / "expected" / "scores.parquet").to_pylist()


def _tasks(golden: Path, **changes: Any) -> TasksSpec:
    content = {
        "path": str(golden / "tasks"), "table": str(golden / "task_info.csv"), "suite": "selection",
        "templates": str(golden / "templates.csv"), "max_eval": 100, "sampling": "reif2024",
    }  # fmt: skip
    return TasksSpec(**{**content, **changes})


def test_selection_pools_and_labels_of_the_single_stream(golden: Path, pools: dict[str, Any]) -> None:
    sampler, files = Sampler("reif2024", 42), select_tasks(_tasks(golden)).files
    assert [path.stem for path in files] == (golden / "expected" / "selected_tasks.txt").read_text().split()
    for path in files:
        task = read_task(path)
        splits = sampler.draw(task, 100)
        pool = [instance.id for instance in (*splits.demonstrations, *splits.bias_score)]
        assert pool == pools[task.name]["pool_ids"]
        assert [instance.id for instance in splits.bias_score] == pools[task.name]["held_out_ids"]
        assert list(splits.labels) == pools[task.name]["answer_choices"]


def test_main_rows_of_the_single_stream(golden: Path, pools: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """The authors' file has the rest in an order of its own; the stream applied to that order gives their rows."""
    sampler = Sampler("reif2024", 42)
    for task, pool in pools.items():
        order = pool["instance_order_ids"]
        drawn = [order[index] for index in sampler.shuffled(range(len(order)))[:100]]
        rows = [r for r in expected if r["task_file"] == task and r["eval_type"] == "main" and r["k"] == 0]
        assert drawn == [row["instance_id"] for row in sorted(rows, key=lambda row: row["row"])]


def _recorded_splits(pools: dict[str, Any], expected: list[dict[str, Any]], path: Path) -> Path:
    rows = []
    for task, pool in pools.items():
        main = [r for r in expected if r["task_file"] == task and r["eval_type"] == "main" and r["k"] == 0]
        first = POOL - 32
        drawn = {"demonstration": pool["pool_ids"][:first], "bias_score": pool["pool_ids"][first:]}
        drawn["main"] = [row["instance_id"] for row in sorted(main, key=lambda row: row["row"])]
        for role, ids in drawn.items():
            places = enumerate(ids)
            rows += [{"task": task, "instance_id": own, "role": role, "position": place} for place, own in places]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture(scope="module")
def spec(
    golden: Path, pools: dict[str, Any], expected: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> LabelBiasSpec:
    splits = _recorded_splits(pools, expected, tmp_path_factory.mktemp("splits") / "splits.parquet")
    return LabelBiasSpec(
        kind="label_bias", name="golden", model=ModelSpec(path="unused"), tasks=_tasks(golden, splits=str(splits)),
        prompt=PromptSpec(n_demos=[0, 2], demo_sets=1), calibration=["cc", "dc", "looc"],
    )  # fmt: skip


def test_every_prompt_equals_the_published_code_byte_for_byte(
    shared: Path, spec: LabelBiasSpec, expected: list[dict[str, Any]]
) -> None:
    built = {}
    tokenizer = load_tokenizer(ModelSource(str(shared / "golden" / "tiny-llama")))
    for plan in plan_tasks(spec, tokenizer, 4096):
        texts = {row["context_id"]: row["text"] for row in plan.contexts.to_pylist()}
        for part in plan.parts:
            for row in part.prompts.to_pylist():
                key = (row["task"], row["n_demos"], row["purpose"], row["row"])
                built[key] = (texts[row["context_id"]] + row["input_text"], row["labels"], row["gold"])
    wanted = {}
    for row in expected:
        gold = None if row["eval_type"] in ("cc", "dc") else row["gold"]
        wanted[row["task_file"], row["k"], row["eval_type"], row["row"]] = (row["prompt"], row["labels"], gold)
    assert built == wanted


def test_the_published_codes_shared_prefix_gives_its_numbers(
    shared: Path, spec: LabelBiasSpec, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The numbers are those that the protocol found with the code's own cache: 3 decimals of means over the tasks."""
    model = ModelSource(str(shared / "golden" / "tiny-llama"))
    tokenizer, scorer = load_tokenizer(model), LabelScorer.load(model.path)
    own = spec.model_copy(update={"prompt": spec.prompt.model_copy(update={"prefix_mode": "reference"})})
    run, numbers = Run.open(str(tmp_path / "run")), itertools.count()
    write_spec(run, own.model_dump(mode="json"))
    for plan in plan_tasks(own, tokenizer, 4096):
        for name, table in (("tasks", plan.tasks), ("splits", plan.splits), ("contexts", plan.contexts)):
            run.write_part(name, next(numbers), table)
        for part in plan.parts:
            number = next(numbers)
            run.write_part("prompts", number, part.prompts)
            read = read_part(tokenizer, part.prompts, plan.contexts, ["likelihood"], ["label_scores"])
            for name, table in part_outputs(scorer, read, ["likelihood"], ["label_scores"]):
                run.write_part(name, number, table)
    write_plan(run)
    relations = Relations(run.uri)
    means = {(row["n_demos"], row["method"]): row
             for row in relations.rows("from label_bias_by_model where suite = 'all'")}  # fmt: skip
    found = means[0, "none"]["macro_f1"], means[2, "none"]["macro_f1"], means[2, "looc"]["rsd"]
    assert found == pytest.approx((0.353, 0.317, 0.381), abs=5e-4)
    full = {(row["task_file"], row["k"], row["eval_type"], row["row"]): row["full_probs"] for row in expected}
    probabilities = relations.rows("select *, list_transform(log_probabilities, lambda x: exp(x)) as probs "
                                   "from prompt_probabilities")  # fmt: skip
    differences = [
        np.abs(np.subtract(row["probs"], full[row["task"], row["n_demos"], row["purpose"], row["row"]])).max()
        for row in probabilities
    ]
    assert max(differences) == pytest.approx(0.424, abs=5e-4)
    assert relations.rows("select prefix_mode from run_settings") == [{"prefix_mode": "reference"}]
    [caution] = [row["text"] for row in relations.rows("from label_bias_cautions") if "shared prefix" in row["text"]]
    assert "not those of the full text" in caution
