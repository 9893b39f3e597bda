"""Majority-bias runs with adapters: trained for each context, scored and continued beside the base model."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.prompting.matching import match_label
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.inprocess import in_this_process
from tests.majority_bias.datafiles import boolq_rows, write_jsonl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LORA: dict[str, Any] = {
    "precision": "float32", "r": 4, "epochs": 2, "learning_rate": 5e-3, "gradient_checkpointing": False,
    "n_examples": 8,
}  # fmt: skip


def write_spec(folder: Path, model: Path, **changes: Any) -> Any:
    content: dict[str, Any] = {
        "kind": "majority_bias", "name": "tiny", "model": {"path": str(model)},
        "data": {"train": "train.jsonl", "test": "test.jsonl"},
        "prompt": {"preset": "boolq", "n_demos": 4, "instruction": [False]},
        "proportions": [{"True": 0.0, "False": 1.0}, {"True": 0.5, "False": 0.5}], "seeds": [0, 1], "lora": LORA,
        **changes,
    }  # fmt: skip
    (folder / "spec.yaml").write_text(yaml.safe_dump(content))
    return load_spec(folder / "spec.yaml")


@pytest.fixture(scope="module")
def majority(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """Return the directory of a majority-bias run with adapters."""
    folder = tmp_path_factory.mktemp("majority")
    write_jsonl(folder / "train.jsonl", boolq_rows("train", 20, 19))
    write_jsonl(folder / "test.jsonl", boolq_rows("test", 5, 4))
    spec = write_spec(folder, tiny_llama, predict=["likelihood", "generate", "constrained"], calibration=["cc"])
    with in_this_process():
        run_spec(spec, str(folder / "run"), page=False)
    return folder / "run"


def test_majority_runs_measure_with_and_without_adapters(majority: Path) -> None:
    rows = query([majority], "select predict, method, count(*) as n from majority_by_setting group by all").to_pylist()
    ways = {"constrained": {"lora"}, "generate": {"lora"}, "likelihood": {"cc", "lora", "lora+cc"}}
    gained = {(predict, method) for predict, own in ways.items() for method in own}
    assert {(row["predict"], row["method"]) for row in rows} == gained | {(predict, "none") for predict in ways}
    assert {row["n"] for row in rows} == {4}
    gains = query([majority], "select predict, method from majority_calibration_gain").to_pylist()
    assert {tuple(row.values()) for row in gains} == gained


def test_majority_adapters_learn_from_examples_that_their_contexts_do_not_show(majority: Path) -> None:
    run = Run.open(str(majority))
    contexts = {(row["setting"], row["demo_set"]): row for row in run.read_table("contexts").to_pylist()}
    examples: dict[int, list[set[str]]] = {0: [], 1: []}
    for (setting, seed), context in contexts.items():
        rows = [
            row
            for row in run.read_table("training_rows").to_pylist()
            if (row["setting"], row["demo_set"]) == (setting, seed)
        ]
        ids = {row["instance_id"] for row in rows}
        assert len(ids) == len(rows) == 8
        assert not ids & set(context["demo_ids"])
        assert all(row["prompt"].startswith(context["text"]) for row in rows)
        assert {row["adapter"] for row in rows} == {f"{setting.replace('/', '-')}/s{seed}.without"}
        examples[seed].append(ids)
    # Settings of a seed share their examples, but for those that are demonstrations of one of them.
    for seed, (one, other) in examples.items():
        shown = set(contexts["0/100", seed]["demo_ids"]) | set(contexts["50/50", seed]["demo_ids"])
        assert len(one & other) >= 8 - len(shown & (one | other))
    assert examples[0][0] != examples[1][0]


def test_majority_outputs_are_those_of_the_adapted_model(majority: Path, tiny_llama: Path) -> None:
    run = Run.open(str(majority))
    texts = {row["context_id"]: row["text"] for row in run.read_table("contexts").to_pylist()}
    found = {
        row["prompt_id"]: row for row in run.read_table("adapted_generations").to_pylist() if row["mode"] == "generate"
    }
    model = load_model(ModelSource(str(tiny_llama), adapter=str(majority / "adapters" / "50-50" / "s1.without")))
    tokenizer = load_tokenizer(ModelSource(str(tiny_llama)))
    n_compared = 0
    for prompt in run.read_table("prompts").to_pylist():
        if prompt["purpose"] == "majority" and prompt["prompt_id"].startswith("tiny/50-50/s1/"):
            ids = tokenizer(texts[prompt["context_id"]] + prompt["input_text"], return_tensors="pt")["input_ids"]
            whole = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=2, do_sample=False, pad_token_id=0
            )
            output = found[prompt["prompt_id"]]
            assert output["text"] == tokenizer.decode(whole[0, ids.shape[1] :], skip_special_tokens=True)
            assert output["prediction"] == match_label(output["text"], prompt["labels"])
            n_compared += 1
    assert n_compared == 9


def test_too_few_examples_are_said(tmp_path: Path, tiny_llama: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("train", 8, 8))
    write_jsonl(tmp_path / "test.jsonl", boolq_rows("test", 2, 2))
    spec = write_spec(tmp_path, tiny_llama, proportions=[{"True": 0.5, "False": 0.5}], lora={})
    with pytest.raises(InputError, match=r"lora.n_examples: 4 training examples are missing .* data.train has 16"):
        run_spec(spec, str(tmp_path / "run"))
