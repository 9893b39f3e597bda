"""The benchmark on a tiny model: every method scores the same labels alike; no test looks at a time."""

import gc
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biaseval
from biaseval.majority_bias.prompts import template_of
from biaseval.scoring.trie import build_trie
from biaseval.spec import MajorityPromptSpec
from tests.bench import flops
from tests.bench.commands import scoring as job
from tests.bench.flops import useful_flops
from tests.bench.measure import Settings, benchmark
from tests.bench.methods import has_harness
from tests.bench.results import Measured, records
from tests.bench.shapes import SHAPES, random_model, train_tokenizer
from tests.bench.texts import scenarios, training_texts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
N_ROWS = 3


@pytest.fixture(scope="module", autouse=True)
def _hasty() -> Iterator[None]:
    """Leave out what only makes measurements exact: repeated products, and a search for garbage in what is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flops, "_N_TRIALS", 1)
        gc.freeze()
        yield
        gc.unfreeze()


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Run the benchmark on generated texts: few and many demonstrations, few and many labels."""
    chosen = [own for own in scenarios(None, ["base", "8-labels"]) if own.n_demos in (0, 4)]
    tokenizer = train_tokenizer(training_texts(None, chosen), SHAPES["tiny"].vocabulary)
    return benchmark(chosen, tokenizer, Settings("tiny", ("float32",), "cpu", n_rows=N_ROWS, baseline_s=0.1))


def _rows(report: dict[str, Any], start: str) -> list[dict[str, Any]]:
    return [row for row in report["records"] if row["method"].startswith(start)]


def test_methods_agree(report: dict[str, Any]) -> None:
    methods = ["biaseval", "transformers, full texts", "prefix-cached loop", *["lm-eval HF"] * has_harness()]
    for method in methods:
        rows = _rows(report, method)
        settings = [(row["scenario"], row["n_demos"], row["n_labels"]) for row in rows]
        assert settings == [("base", 0, 3), ("base", 4, 3), ("8-labels", 4, 8)]
        for row in rows:
            assert row["largest_difference"] < 1e-4
            assert (row["flipped"], row["n_rows"]) == (0, N_ROWS)
            assert row["label_tokens"] > 1


def test_useful_flops_equal_a_count_by_hand() -> None:
    # Two layers of 64x64 query and output, 64x32 key and value, three 64x128: 36,864 weights each.
    # Texts 1 2 3 4 and 1 2 5 4 with two tokens of context: nodes 1, 2, 3, 5 see 1, 2, 3, 3 tokens; 2, 3, 5 predict.
    trie = build_trie([np.array([1, 2, 3, 4]), np.array([1, 2, 5, 4])], [2, 2])
    by_hand = 2 * (2 * 36_864) * 4 + 4 * 2 * 64 * (1 + 2 + 3 + 3) + 2 * 64 * 512 * 3
    assert by_hand == 791_040
    assert useful_flops(random_model(SHAPES["tiny"], "float32", "cpu"), trie) == by_hand


def _measured(**changes: Any) -> Measured:
    own: dict[str, Any] = {
        "scenario": "base", "task": "t", "n_demos": 0, "prompt_tokens": 10.0, "n_labels": 2, "dtype": "float32",
        "method": "biaseval", "is_ours": True, "n_rows": 2, "seconds": 1.0, "prepare_s": 0.5, "peak_memory_mib": 1.0,
        "n_tokens": 20, "n_unique_tokens": 20, "useful_flops": 100, "scores": np.array([-2.0, -3.0, -4.0, -3.0]),
        "n_label_tokens": np.array([1, 2, 1, 2], dtype=np.int32),
    }  # fmt: skip
    return Measured(**{**own, **changes})


def test_predictions_are_by_mean_and_compared_with_float32() -> None:
    # Means over label tokens and EOS: row 0 has -1.0 and -1.0 (the first wins), row 1 has -2.0 and -1.0.
    other = {"method": "other", "is_ours": False, "prepare_s": None, "n_rows": 1, "seconds": 3.0}
    lower = {"dtype": "bfloat16", "scores": np.array([-2.2, -3.0, -4.0, -3.25]), "seconds": 0.5, "prepare_s": 0.25}
    found = records(
        [
            _measured(),
            _measured(**other, scores=np.array([-2.0, -3.5]), n_label_tokens=np.array([1, 2], dtype=np.int32)),
            _measured(**lower),
        ],
        {"float32": 1000.0, "bfloat16": 2000.0},
    )
    assert [(row.flipped, row.largest_difference) for row in found] == [(0, 0), (0, 0.5), (1, pytest.approx(0.25))]
    assert [row.ratio for row in found] == [1, 6, 0.5]
    assert [row.share_of_matrix_rate for row in found] == pytest.approx([0.1, 100 / 3 / 1000, 0.1])
    assert [row.share_without_preparing for row in found] == [0.2, None, 0.2]


def test_a_majority_prompt_of_the_benchmark_is_that_of_a_run(shared: Path) -> None:
    (scenario,) = scenarios(None, ["majority"], shared / "data" / "majority" / "boolq" / "train.jsonl")
    template = template_of(MajorityPromptSpec(preset="boolq", n_demos=50), instruction=True)
    items = [template.demonstration({"sentence": text}, label) for text, label in scenario.task.instances[:50]]
    context = template.head + "".join(items)
    rows = scenario.prompts(256)["text"].to_pylist()
    assert len(rows) == 256
    assert rows[0] == context + template.test({"sentence": scenario.task.instances[50][0]})
    assert all(row.startswith(context) for row in rows)


def _run_script(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the script in this process."""
    monkeypatch.setattr(sys, "argv", ["jobs/benchmark.py", *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    runpy.run_path(str(ROOT / "jobs" / "benchmark.py"), run_name="__main__")


def test_the_script_prints_the_table_and_writes_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "b.json"
    options = ("--shape=tiny", "--rows=2", "--seconds=0.1", "--scenarios=short", "--dtype=float32")
    _run_script(monkeypatch, *options, f"--out={out}")
    assert capfd.readouterr().out.startswith("| texts | k |")
    assert len(json.loads(out.read_text())["records"]) == 3 + has_harness()
    with pytest.raises(SystemExit) as stop:
        _run_script(monkeypatch, "--scenarios=small")
    assert stop.value.code == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("error: --scenarios: small is not one of base,")


def test_a_model_of_a_folder_takes_the_place_of_a_random_one(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.json"
    options = ("--rows=2", "--seconds=0.1", "--scenarios=short", "--dtype=float32", "--demos=0,1")
    _run_script(monkeypatch, *options, f"--model={tiny_llama}", f"--out={out}")
    found = json.loads(out.read_text())["records"]
    assert [row["n_demos"] for row in found] == [0] * len(found[: len(found) // 2]) + [1] * (len(found) // 2)
    assert f"{tiny_llama.name} (" in capfd.readouterr().out
    by_method = {(row["n_demos"], row["method"].split(",")[0]): row["tokens_per_row"] for row in found}
    for n_demos in (0, 1):
        ours, others = by_method[n_demos, "biaseval (packed)"], by_method[n_demos, "transformers"]
        assert ours < by_method[n_demos, "prefix-cached loop"] < others
    with pytest.raises(SystemExit):
        _run_script(monkeypatch, f"--model={tiny_llama}", "--engines=vllm,other")
    assert "--engines: other is not one of vllm, llama.cpp" in capfd.readouterr().err
    for options, said in {
        ("--engines=vllm",): "--engines: needs a real model; name its folder with --model",
        ("--scenarios=base", "--demos=99"): "--demos 99: give numbers from 0 to 16, with commas between them",
        (f"--model={tmp_path}",): f"--model {tmp_path}: give a folder with model.safetensors, and no --gpus",
    }.items():
        with pytest.raises(SystemExit):
            _run_script(monkeypatch, *options)
        assert said in capfd.readouterr().err


@pytest.mark.ray
def test_it_runs_inside_a_ray_task(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("ray.init", asked.update)  # this process is connected already
    chosen = scenarios(None, ["short"])
    trained = train_tokenizer(training_texts(None, chosen), SHAPES["tiny"].vocabulary)
    report = job._in_ray_task(0, chosen, trained, Settings("tiny", ("float32",), "cpu", n_rows=2, baseline_s=0.1))
    assert max(row["largest_difference"] for row in report["records"]) < 1e-4
    assert capsys.readouterr().err == "", "it said its progress here, not in a worker"
    modules = [str(Path(biaseval.__file__).parent), str(ROOT / "tests")]
    assert asked == {"runtime_env": {"py_modules": modules}}
