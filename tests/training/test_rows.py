"""What adapters are trained on: the examples and prompts of P1's code, with the tokens that scoring has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.prompts import PromptFitter, TokenCounter
from biaseval.label_bias.splits import splits_of
from biaseval.label_bias.tasks import read_task
from biaseval.scoring.encoding import encode
from biaseval.spec import training_positions
from biaseval.tables import TASKS
from biaseval.training.batches import EncodedRow, collate, encode_rows, step_batches
from biaseval.training.rows import AdapterKey, PooledInstance, TaskPool, TrainingRow, training_rows
from tests.taskfiles import write_task
from tests.tinymodels import make_tokenizer


def pool(n_words: int = 2) -> TaskPool:
    instances = [PooledInstance(f"i{n}", f"input {n} " * n_words, ("no", "yes")[n % 2]) for n in range(64)]
    return TaskPool("task1_x", "Say which", ("no", "yes"), tuple(instances))


@pytest.mark.parametrize(
    ("n_demos", "demo_set", "first"),
    [(0, 0, 0), (0, 2, 32), (2, 0, 2), (2, 1, 18), (8, 2, 40), (16, 0, 16), (16, 1, 32), (16, 2, 48), (16, 3, 0)],
)
def test_examples_begin_where_the_protocol_says(n_demos: int, demo_set: int, first: int) -> None:
    assert training_positions(n_demos, demo_set, 16) == list(range(first, first + 16))


def test_examples_go_on_at_the_beginning_of_the_pool() -> None:
    assert training_positions(8, 3, 16) == [*range(56, 64), *range(8)]


def test_examples_and_prompts_are_those_of_the_reference(shared: Path) -> None:
    golden = shared / "golden"
    expected = json.loads((golden / "superni" / "expected" / "lora_train_examples.json").read_text())
    pools = json.loads((golden / "superni" / "expected" / "pools.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(golden / "tiny-llama")
    found: dict[str, TaskPool] = {}
    for name, drawn in pools.items():
        task = read_task(golden / "superni" / "tasks" / f"{name}.json")
        splits = splits_of(task, drawn["pool_raw_index"], [])
        row = {"task": name, "definition": task.definition, "labels": list(splits.labels)}
        found[name.split("_")[0]] = TaskPool.of(TASKS.rows([row]), splits.table(name))
    fitter = PromptFitter(TokenCounter(tokenizer), 2000)
    n_prompts = 0
    for case in expected:
        own = found[case["task"].split("_")[0]]
        rows = training_rows(own, AdapterKey(own.task, case["k"], case["set_i"]), 16, fitter)
        assert training_positions(case["k"], case["set_i"], 16) == case["train_pool_positions"]
        assert [row.instance_id for row in rows] == case["train_ids"]
        assert [row.label for row in rows] == case["completions"]
        if "prompts" in case:
            assert [row.prompt for row in rows] == case["prompts"]
            n_prompts += len(rows)
        targets = [row.n_targets for row in encode_rows(tokenizer, rows, own.labels, 2048)]
        assert targets == case["loss_tokens"]
    assert n_prompts > 0


def test_targets_are_the_tokens_that_scoring_has() -> None:
    tokenizer = make_tokenizer()
    own = pool()
    rows = training_rows(own, AdapterKey("task1_x", 2, 0), 16, PromptFitter(TokenCounter(tokenizer), 2000))
    encoded = encode_rows(tokenizer, rows, own.labels, 2048)
    for row, found in zip(rows, encoded, strict=True):
        prompts = pa.table({"prompt_id": ["p"], "text": [row.prompt], "labels": [["no", "yes"]]})
        scored = next(each for each in encode(tokenizer, prompts).to_pylist() if each["label"] == row.label)
        assert found.token_ids.tolist() == scored["token_ids"]
        assert found.n_targets == scored["n_label_tokens"] + 1
        assert found.token_ids[-1] == tokenizer.eos_token_id


def test_a_long_prompt_loses_demonstrations_as_in_evaluation() -> None:
    tokenizer = make_tokenizer()
    rows = training_rows(pool(n_words=20), AdapterKey("task1_x", 4, 0), 16, PromptFitter(TokenCounter(tokenizer), 400))
    assert 0 < rows[0].n_demos_used < 4
    assert rows[0].prompt.count(" Output: ") == rows[0].n_demos_used


def test_a_row_that_is_too_long_is_refused() -> None:
    rows = [TrainingRow("i", "Input: x.\n\nOutput:", "yes", 0)]
    with pytest.raises(InputError, match=r"lora.max_tokens 5: a training row has \d+ tokens"):
        encode_rows(make_tokenizer(), rows, ["no", "yes"], 5)


def test_a_pool_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    splits = splits_of(task, range(96), [100]).table(task.name)
    tasks = TASKS.rows([{"task": task.name, "definition": task.definition, "labels": ["no", "yes"]}])
    assert len(TaskPool.of(tasks, splits).pool) == 64
    with pytest.raises(BiasevalError, match="63 demonstrations"):
        TaskPool.of(tasks, splits.slice(1))


def encoded(*lengths: int, n_targets: int = 2) -> list[EncodedRow]:
    return [EncodedRow(np.arange(10, 10 + length), length - n_targets) for length in lengths]


def test_only_label_and_eos_count() -> None:
    batch = collate(encoded(5, 3), [0.5, 0.5])
    assert batch.positions.tolist() == [0, 1, 2, 3]
    assert batch.target_ids.tolist() == [[0, 0, 13, 14], [11, 12, 0, 0]]
    assert batch.target_weights.tolist() == [[0, 0, 0.25, 0.25], [0.25, 0.25, 0, 0]]
    assert batch.text_numbers.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]


@pytest.mark.parametrize("n_workers", [1, 2, 4])
@pytest.mark.parametrize("n_rows", [8, 5, 1])
def test_workers_share_the_rows_of_a_step(n_workers: int, n_rows: int) -> None:
    rows = encoded(*range(4, 4 + n_rows))
    own = [step_batches(rows, 1, rank, n_workers) for rank in range(n_workers)]
    assert len({len(batches) for batches in own}) == 1
    weights = [batch.target_weights.sum() for batches in own for batch in batches]
    assert sum(weights) == pytest.approx(1)
    assert sorted(weights)[-n_rows:] == pytest.approx([1 / n_rows] * n_rows)
