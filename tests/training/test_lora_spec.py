"""The section ``lora`` of a label-bias spec."""

import re
from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.runs import train_lora
from biaseval.spec import LabelBiasSpec, LoraSpec, differences, load_spec

MINIMAL = "kind: label_bias\nname: x\nmodel: {path: m}\ntasks: {path: tasks}\n"


def load(folder: Path, text: str, *overrides: str) -> LabelBiasSpec:
    path = folder / "spec.yaml"
    path.write_text(MINIMAL + text)
    return load_spec(path, overrides)


def test_defaults_are_those_of_the_published_code(tmp_path: Path) -> None:
    lora = load(tmp_path, "lora: {preset: reif2024}\n").lora
    assert (lora.r, lora.alpha, lora.dropout, lora.targets) == (64, 16, 0.0, "all_linear")
    assert (lora.learning_rate, lora.epochs, lora.batch_size, lora.accumulation) == (2e-4, 5, 1, 8)
    assert (lora.weight_decay, lora.max_grad_norm, lora.beta2, lora.warmup) == (0.03, 0.3, 0.999, 0.0)
    assert (lora.max_tokens, lora.seed, lora.n_examples, lora.precision) == (2048, 42, 16, "bfloat16")
    assert lora.gradient_checkpointing


MISTAKES = {
    "lora: {rank: 8}\n": "lora.rank: unknown key",
    "lora: {alhpa: 8}\n": "lora.alhpa: unknown key; did you mean alpha?",
    "lora: {r: 0}\n": "lora.r:",
    "lora: {zero: 4}\n": "lora.zero:",
    "lora: {preset: other}\n": "lora.preset:",
    "lora: {n_examples: 65}\n": "lora.n_examples:",
    "lora: {learning_rate: fast}\n": "lora.learning_rate:",
    "lora: {workers: 3}\n": "lora: 3 workers cannot share accumulation 8 evenly",
    "lora: {deepspeed_config: ds.json}\n": "deepspeed_config is set and zero is null",
    "lora: {targets: [q_proj, q_proj]}\n": "names a layer twice",
    "lora: {n_examples: 50}\n": "lora: 50 training examples beside demonstration set",
    "lora: {}\ncalibration: [cc, cc]\n": "names a method twice",
}


def test_a_mistake_names_the_key_and_the_remedy(tmp_path: Path) -> None:
    for text, expected in MISTAKES.items():
        with pytest.raises(InputError, match=re.escape(expected)):
            load(tmp_path, text)
    for override in ("model.adapter=./a", "model.quantization=8bit"):
        with pytest.raises(InputError, match=r"lora: adapters are not trained on"):
            load(tmp_path, "lora: {}\n", override)


def test_sections_are_read_as_written(tmp_path: Path) -> None:
    assert load(tmp_path, "lora: {learning_rate: 2e-3}\n").lora == LoraSpec(learning_rate=0.002)  # for YAML a text
    assert load(tmp_path, "lora: null\n", "lora.r=8").lora == LoraSpec(r=8)
    lora = load(tmp_path, "lora: {zero: 2, deepspeed_config: ds.json}\n").lora
    assert lora.deepspeed_config == str(tmp_path / "ds.json")


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
        assert [line[: len(want)] for line, want in zip(found, expected, strict=True)] == expected


def test_train_needs_the_section(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such section.*add lora: \{preset: reif2024\}"):
        train_lora(load(tmp_path, ""), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
