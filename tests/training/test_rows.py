"""What adapters are trained on: the examples and prompts of P1's code, with the tokens that scoring has."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from biaseval.label_bias.prompts import PromptFitter, PublishedFormat
from biaseval.label_bias.splits import Splits, splits_of
from biaseval.label_bias.training_rows import training_rows
from biaseval.prompting.lengths import TokenCounter
from biaseval.prompting.task_files import Task, read_task
from biaseval.spec import LoraSpec, training_positions
from biaseval.tables import TRAINING_ROWS
from biaseval.training.batches import EncodedRow, collate
from biaseval.training.objectives import LabelledPrompts, Share
from biaseval.training.rows import adapters_of, encoded_rows, rows_of, with_tokens
from tests.taskfiles import write_task
from tests.tinymodels import make_tokenizer


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Splits]:
    task = read_task(write_task(tmp_path_factory.mktemp("tasks")))
    return task, splits_of(task, range(96), [100])


def planned(drawn: tuple[Task, Splits], *contexts: tuple[int, int], max_tokens: int = 2000) -> pa.Table:
    fitter = PromptFitter(TokenCounter(make_tokenizer()), max_tokens)
    form = PublishedFormat(drawn[0].definition)
    rows = [row for context in contexts for row in training_rows(*drawn, *context, 16, form=form, fitter=fitter)]
    return TRAINING_ROWS.rows(rows)


def test_examples_go_on_at_the_beginning_of_the_pool() -> None:
    assert training_positions(8, 3, 16) == [*range(56, 64), *range(8)]


def test_examples_and_prompts_are_those_of_the_reference(shared: Path) -> None:
    golden = shared / "golden"
    expected = json.loads((golden / "superni" / "expected" / "lora_train_examples.json").read_text())
    pools = json.loads((golden / "superni" / "expected" / "pools.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(golden / "tiny-llama")
    found = {}
    for name, pool in pools.items():
        task = read_task(golden / "superni" / "tasks" / f"{name}.json")
        found[name.split("_")[0]] = (task, splits_of(task, pool["pool_raw_index"], []))
    fitter = PromptFitter(TokenCounter(tokenizer), 2000)
    n_prompts = 0
    for case in expected:
        own = found[case["task"].split("_")[0]]
        form = PublishedFormat(own[0].definition)
        rows = training_rows(*own, case["k"], case["set_i"], 16, form=form, fitter=fitter)
        table = TRAINING_ROWS.rows(list(rows))
        found_rows = table.to_pylist()
        assert training_positions(case["k"], case["set_i"], 16) == case["train_pool_positions"]
        assert [row["instance_id"] for row in found_rows] == case["train_ids"]
        assert [row["label"] for row in found_rows] == case["completions"]
        if "prompts" in case:
            assert [row["prompt"] for row in found_rows] == case["prompts"]
            n_prompts += len(found_rows)
        assert [row.n_targets for row in encoded_rows(tokenizer, table)] == case["loss_tokens"]
    assert n_prompts > 0


def test_tokens_are_counted_and_rows_that_are_too_long_are_named(drawn: tuple[Task, Splits]) -> None:
    tokenizer, table = make_tokenizer(), planned(drawn, (0, 0), (2, 0))
    counted, problems = with_tokens(tokenizer, table, LoraSpec(), None)
    assert not problems
    assert counted.drop_columns("n_tokens").equals(table.drop_columns("n_tokens"))
    lengths = [len(row.token_ids) for row in encoded_rows(tokenizer, rows_of(f"{drawn[0].name}/k2.s0", table))]
    assert counted["n_tokens"].to_pylist()[16:] == lengths
    assert adapters_of(counted)[1] == {
        "adapter": f"{drawn[0].name}/k2.s0", "n_rows": 16, "tokens": sum(lengths), "longest": max(lengths),
    }  # fmt: skip
    longest = max(counted["n_tokens"].to_pylist()[:16])
    _, problems = with_tokens(tokenizer, table, LoraSpec(max_tokens=longest), None)
    assert len(problems) == 1
    assert f"{drawn[0].name}/k2.s0: a training row has {max(lengths)} tokens with label and EOS" in problems[0]
    assert f"lora.max_tokens is {longest}" in problems[0]
    _, problems = with_tokens(tokenizer, table, LoraSpec(), longest)
    assert len(problems) == 1
    assert f"and the model's window {longest}" in problems[0]


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
    objective = LabelledPrompts(encoded(*range(4, 4 + n_rows)))
    own = [objective.batches(range(n_rows), Share(1, rank, n_workers)) for rank in range(n_workers)]
    assert len({len(batches) for batches in own}) == 1
    weights = [batch.target_weights.sum() for batches in own for batch in batches]
    assert sum(weights) == pytest.approx(1)
    assert sorted(weights)[-n_rows:] == pytest.approx([1 / n_rows] * n_rows)
