"""Training rows, features and the section lora."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.label_bias.plan import training_rows
from biaseval.label_bias.prompts import PromptFitter, PublishedFormat
from biaseval.label_bias.splits import Splits, splits_of
from biaseval.prompting.lengths import TokenCounter
from biaseval.prompting.task_files import Task, read_task
from biaseval.runs import train_lora
from biaseval.spec import LabelBiasSpec, LoraSpec, differences, load_spec, training_positions
from biaseval.tables import TRAINING_ROWS
from biaseval.training.batches import EncodedRow, encode_rows
from biaseval.training.features import FEATURES, question_features
from biaseval.training.rows import adapters_of, rows_of, with_tokens
from tests.qa_models.families import CONTEXTS, QUESTIONS, bpe, features, left_padding, unigram, wordpiece
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
        assert [row.n_targets for row in encode_rows(tokenizer, table)] == case["loss_tokens"]
    assert n_prompts > 0


def test_tokens_are_counted_and_rows_that_are_too_long_are_named(drawn: tuple[Task, Splits]) -> None:
    tokenizer, table = make_tokenizer(), planned(drawn, (0, 0), (2, 0))
    counted, problems = with_tokens(tokenizer, table, LoraSpec(), None)
    assert not problems
    assert counted.drop_columns("n_tokens").equals(table.drop_columns("n_tokens"))
    lengths = [len(row.token_ids) for row in encode_rows(tokenizer, rows_of(f"{drawn[0].name}/k2.s0", table))]
    assert counted["n_tokens"].to_pylist()[16:] == lengths
    assert adapters_of(counted)[1] == {
        "adapter": f"{drawn[0].name}/k2.s0", "n_rows": 16, "tokens": sum(lengths), "longest": max(lengths),
    }  # fmt: skip
    longest = max(counted["n_tokens"].to_pylist()[:16])
    _, [problem] = with_tokens(tokenizer, table, LoraSpec(max_tokens=longest), None)
    assert f"{drawn[0].name}/k2.s0: a training row has {max(lengths)} tokens with label and EOS" in problem
    assert f"lora.max_tokens is {longest}" in problem
    _, [problem] = with_tokens(tokenizer, table, LoraSpec(), longest)
    assert f"and the model's window {longest}" in problem


def encoded(*lengths: int, n_targets: int = 2) -> list[EncodedRow]:
    return [EncodedRow(np.arange(10, 10 + length), length - n_targets) for length in lengths]


TOKENIZERS = {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram, "left padding": left_padding}


def questions(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows)


def asked(question: str, context: str, answer: tuple[int, int] | None) -> dict[str, Any]:
    start, stop = answer or (0, 0)
    return {
        "example_id": f"{question}/{context}/{answer}", "question": question, "context": context,
        "answers": [context[start:stop], "not this one"] if answer else [],
        "answer_starts": [start, 0] if answer else [],
    }  # fmt: skip


def published_labels(feature: dict[str, Any], cls: int, start: int, stop: int) -> tuple[int, int]:
    """Return the labels as Hugging Face's examples make them, from which the published code has its own."""
    offsets = feature["offsets"]
    inside = [place for place, own in enumerate(offsets) if own is not None]
    first, last = inside[0], inside[-1]
    if not (offsets[first][0] <= start and offsets[last][1] >= stop):
        return cls, cls
    while first < len(offsets) and offsets[first] is not None and offsets[first][0] <= start:
        first += 1
    while last >= inside[0] and offsets[last][1] >= stop:
        last -= 1
    return first - 1, last + 1


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
def test_labels_are_those_of_the_published_preparation(make: Callable[[], PreTrainedTokenizerFast]) -> None:
    tokenizer = make()
    longest = max(len(tokenizer(question)["input_ids"]) for question in QUESTIONS)
    max_tokens, stride = longest + 26, 7
    draw = random.Random(5)
    rows = []
    for context in CONTEXTS:
        words = [place for place, letter in enumerate(context) if letter != " "]
        for _ in range(12):
            start = draw.choice(words)
            stop = min(len(context), start + draw.randint(1, 40))
            rows.append(asked(draw.choice(QUESTIONS), context, (start, stop)))
    rows.append(asked(QUESTIONS[0], CONTEXTS[0], None))
    found = question_features(tokenizer, questions(rows), max_tokens=max_tokens, stride=stride)
    assert found.schema == FEATURES
    expected = []
    for row in rows:
        for window, feature in enumerate(features(tokenizer, row["question"], row["context"], max_tokens, stride)):
            ids = feature["ids"]
            cls = ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0
            labels = (cls, cls)
            if row["answers"]:
                start = row["answer_starts"][0]
                labels = published_labels(feature, cls, start, start + len(row["answers"][0]))
            expected.append((row["example_id"], window, ids, feature["types"], *labels))
    names = ("example_id", "window", "token_ids", "token_types", "start_position", "end_position")
    assert [tuple(one[name] for name in names) for one in found.to_pylist()] == expected
    held = [one["has_answer"] for one in found.to_pylist()]
    assert 20 < sum(held) < len(held) - 20


MINIMAL = "kind: label_bias\nname: x\nmodel: {path: m}\ntasks: {path: tasks}\n"


def load(folder: Path, text: str, *overrides: str) -> LabelBiasSpec:
    path = folder / "spec.yaml"
    path.write_text(MINIMAL + text)
    return load_spec(path, overrides)


MISTAKES = {
    "lora: {rank: 8}\n": "lora.rank: unknown key", "lora: {alhpa: 8}\n": "lora.alhpa: unknown key; did you mean alpha?",
    "lora: {r: 0}\n": "lora.r:", "lora: {zero: 4}\n": "lora.zero:", "lora: {preset: other}\n": "lora.preset:",
    "lora: {n_examples: 65}\n": "lora.n_examples:", "lora: {learning_rate: fast}\n": "lora.learning_rate:",
    "lora: {workers: 3}\n": "lora: 3 workers cannot share accumulation 8 evenly",
    "lora: {deepspeed_config: ds.json}\n": "deepspeed_config is set and zero is null",
    "lora: {targets: [q_proj, q_proj]}\n": "names a layer twice",
    "lora: {n_examples: 50}\n": "lora: 50 training examples beside demonstration set",
    "lora: {}\ncalibration: [cc, cc]\n": "names a method twice",
}  # fmt: skip


def test_a_mistake_names_the_key_and_the_remedy(tmp_path: Path) -> None:
    for text, expected in MISTAKES.items():
        with pytest.raises(InputError, match=re.escape(expected)):
            load(tmp_path, text)
    for override in ("model.adapter=./a", "model.quantization=8bit"):
        with pytest.raises(InputError, match=r"lora: adapters are not trained on"):
            load(tmp_path, "lora: {}\n", override)


def test_a_resumed_run_may_change_the_resources_of_training_alone(tmp_path: Path) -> None:
    before = load(tmp_path, "lora: {precision: float32}\n")
    resources = ("lora.workers=2", "lora.zero=2", "lora.deepspeed_config=ds.json", "lora.gradient_checkpointing=false")
    assert differences(before, load(tmp_path, "lora: {precision: float32}\n", *resources)) == []
    assert differences(before, load(tmp_path, "lora: {precision: float32, r: 8}\n")) == [
        "lora.r: the run has 64, the spec 8"
    ]
    assert differences(before, load(tmp_path, "")) != []


def test_resources_that_would_change_adapters_stay(tmp_path: Path) -> None:
    would = "which would train another model"
    for before, after, expected in (
        ("zero: null", "zero: 2", [f"lora.zero: the run has None, the spec 2, {would}"]),
        ("zero: 3", "zero: 0", [f"lora.zero: the run has 3, the spec 0, {would}"]),
        ("zero: 1", "zero: 3", []),
        ("zero: null", "zero: 0", []),
        ("workers: 1", "workers: 2", []),
        ("dropout: 0.1", "dropout: 0.1, workers: 2", [f"lora.workers: the run has 1, the spec 2, {would}"]),
    ):
        found = differences(load(tmp_path, f"lora: {{{before}}}\n"), load(tmp_path, f"lora: {{{after}}}\n"))
        assert [line[: len(want)] for line, want in zip(found, expected, strict=True)] == expected  # fmt: skip


def test_train_needs_the_section(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such section.*add lora: \{preset: reif2024\}"):
        train_lora(load(tmp_path, ""), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
