"""Selection, pools, labels and prompts against the values computed by the authors' code (P1)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.label_bias.plan import plan_tasks
from biaseval.label_bias.sources import read_sources
from biaseval.label_bias.splits import Sampler
from biaseval.label_bias.tasks import select_tasks
from biaseval.models import ModelSource, load_tokenizer
from biaseval.prompting.task_files import read_task
from biaseval.spec import LabelBiasSpec, ModelSpec, PromptSpec, TasksSpec

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
        "path": str(golden / "tasks"),
        "table": str(golden / "task_info.csv"),
        "suite": "selection",
        "templates": str(golden / "templates.csv"),
        "max_eval": 100,
        "sampling": "reif2024",
    }
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


def test_every_prompt_equals_the_published_code_byte_for_byte(
    golden: Path, shared: Path, pools: dict[str, Any], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    splits = _recorded_splits(pools, expected, tmp_path / "splits.parquet")
    spec = LabelBiasSpec(
        kind="label_bias",
        name="golden",
        model=ModelSpec(path="unused"),
        tasks=_tasks(golden, splits=str(splits)),
        prompt=PromptSpec(n_demos=[0, 2], demo_sets=1),
        calibration=["cc", "dc", "looc"],
    )
    built = {}
    tokenizer = load_tokenizer(ModelSource(str(shared / "golden" / "tiny-llama")))
    for plan in plan_tasks(spec, read_sources(spec), tokenizer, window=4096):
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
