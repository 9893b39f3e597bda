"""The benchmark on a tiny model: every method scores the same labels alike; no test looks at a time."""

from __future__ import annotations

import gc
import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import biaseval
from biaseval.majority_bias.prompts import template_of
from biaseval.runs import analyse_run
from biaseval.scoring.trie import build_trie
from biaseval.spec import MajorityPromptSpec
from jobs import benchmark as job
from tests.bench import flops
from tests.bench.flops import useful_flops
from tests.bench.measure import Settings, benchmark
from tests.bench.methods import has_harness
from tests.bench.results import COLUMNS, Measured, markdown, records, summary
from tests.bench.shapes import SHAPES, random_model, train_tokenizer
from tests.bench.texts import SCENARIOS, Task, scenarios, training_texts
from tests.labelplans import two_tasks

ROOT = Path(__file__).resolve().parents[1]
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
    settings = Settings("tiny", ("float32", "bfloat16"), "cpu", n_rows=N_ROWS, baseline_s=0.1)
    return benchmark(chosen, tokenizer, settings)


def _rows(report: dict[str, Any], start: str, dtype: str = "float32") -> list[dict[str, Any]]:
    return [row for row in report["records"] if row["method"].startswith(start) and row["dtype"] == dtype]


@pytest.mark.parametrize(
    "method",
    [
        "biaseval",
        "transformers, full texts",
        "prefix-cached loop",
        pytest.param(
            "lm-eval HF",
            marks=pytest.mark.skipif(not has_harness(), reason="lm_eval (extra 'harness') is not installed"),
        ),
    ],
)
def test_methods_agree(report: dict[str, Any], method: str) -> None:
    rows = _rows(report, method)
    assert [(row["scenario"], row["n_demos"], row["n_labels"]) for row in rows] == [
        ("base", 0, 3),
        ("base", 4, 3),
        ("8-labels", 4, 8),
    ]
    for row in rows:
        assert row["largest_difference"] < 1e-4
        assert row["flipped"] == 0
        assert row["label_tokens"] > 1
        assert row["n_rows"] == N_ROWS
        assert row["share_of_matrix_rate"] > 0


def test_bfloat16_is_measured_for_ours_alone_and_differs(report: dict[str, Any]) -> None:
    rows = [row for row in report["records"] if row["dtype"] == "bfloat16"]
    assert [row["method"] for row in rows] == ["biaseval (packed)"] * 3
    assert all(1e-4 < row["largest_difference"] < 1 for row in rows)
    assert all(row["ratio"] != 1 for row in rows)


def test_the_table_has_every_column(report: dict[str, Any]) -> None:
    table = markdown(report).splitlines()
    assert [cell.strip() for cell in table[0].strip("|").split("|")] == list(COLUMNS)
    body = [line for line in table[2:] if line.startswith("|")]
    assert len(body) == len(report["records"])
    assert all(len(line.strip("|").split("|")) == len(COLUMNS) for line in body)
    assert {"k", "prompt tokens", "labels", "label tokens", "method", "rows timed", "rows/s", "ratio"} <= set(COLUMNS)
    assert {"largest difference", "flipped", "peak memory, MiB", "of matrix rate", "suite, h"} <= set(COLUMNS)


def test_the_summary_has_a_line_per_setting(report: dict[str, Any]) -> None:
    header, _, *lines = (line.split(" | ") for line in summary(report).splitlines() if line.startswith("|"))
    assert [tuple(line[:2]) for line in lines] == [
        (f"| {name}", str(k)) for name, k in dict.fromkeys((r["scenario"], r["n_demos"]) for r in report["records"])
    ]
    assert all(len(line) == len(header) for line in lines)
    ours, loop = _rows(report, "biaseval")[0], _rows(report, "prefix-cached loop")[0]
    assert f"{ours['rows_per_s']:.1f}" in lines[0]
    assert lines[0][header.index("time of prefix-cached loop")] == f"{loop['ratio']:.1f}x"


def test_the_report_is_json_and_names_the_machine(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report)) == report
    assert report["device"].endswith("(CPU)")
    assert set(report["matrix_flops_per_s"]) == {"float32", "bfloat16"}
    assert report["scorer"]["float32"]["path"] == "packed"
    ours = _rows(report, "biaseval")[0]
    assert ours["suite_hours"] == pytest.approx(264_176 / ours["rows_per_s"] / 3600)
    assert ours["flops_per_s"] == pytest.approx(ours["share_of_matrix_rate"] * report["matrix_flops_per_s"]["float32"])


def test_useful_flops_equal_a_count_by_hand() -> None:
    # Two layers of 64x64 query and output, 64x32 key and value, three 64x128: 36,864 weights each.
    # Texts 1 2 3 4 and 1 2 5 4 with two tokens of context: nodes 1, 2, 3, 5 see 1, 2, 3, 3 tokens; 2, 3, 5 predict.
    trie = build_trie([np.array([1, 2, 3, 4]), np.array([1, 2, 5, 4])], [2, 2])
    by_hand = 2 * (2 * 36_864) * 4 + 4 * 2 * 64 * (1 + 2 + 3 + 3) + 2 * 64 * 512 * 3
    assert by_hand == 791_040
    assert useful_flops(random_model(SHAPES["tiny"], "float32", "cpu"), trie) == by_hand


def test_weights_are_the_same_numbers_in_every_dtype() -> None:
    single, half = (random_model(SHAPES["tiny"], dtype, "cpu") for dtype in ("float32", "bfloat16"))
    for left, right in zip(single.parameters(), half.parameters(), strict=True):
        assert (left == right.float()).all()


def _measured(**changes: Any) -> Measured:
    own: dict[str, Any] = {
        "scenario": "base", "task": "t", "n_demos": 0, "prompt_tokens": 10.0, "n_labels": 2, "dtype": "float32",
        "method": "biaseval", "is_ours": True, "n_rows": 2, "seconds": 1.0, "prepare_s": 0.5, "peak_memory_mib": 1.0,
        "n_unique_tokens": 20, "useful_flops": 100, "scores": np.array([-2.0, -3.0, -4.0, -3.0]),
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


def test_all_numbers_of_demonstrations_score_the_same_rows() -> None:
    base = scenarios(None, ["base"])
    assert [own.n_demos for own in base] == [0, 2, 4, 8, 16]
    tests = [[text.split("Input:")[-1] for text in own.prompts(20)["text"].to_pylist()] for own in base]
    assert all(own == tests[0] for own in tests)
    shown = [text.count("Output: ") for own in base for text in own.prompts(1)["text"].to_pylist()]
    assert shown == [0, 2, 4, 8, 16]


def test_scenarios_have_the_labels_that_they_name() -> None:
    n_labels = {own.name: len(set(own.labels)) for own in scenarios(None)}
    assert n_labels == {
        "base": 3, "single-token": 3, "2-labels": 2, "8-labels": 8, "26-labels": 26, "short": 2, "long": 2,
        "majority": 2,
    }  # fmt: skip
    assert tuple(n_labels) == SCENARIOS


def test_real_tasks_are_taken_where_their_files_are(shared: Path) -> None:
    folder = shared / "data" / "superni" / "tasks"
    boolq = shared / "data" / "majority" / "boolq" / "train.jsonl"
    found = {own.name: own for own in scenarios(folder, boolq=boolq)}
    assert not any(own.task.name.startswith("generated") for own in found.values())
    task = Task.read(folder / f"{found['base'].task.name}.json")
    frequent = [label for label, _ in Counter(label for _, label in task.instances).most_common(3)]
    assert sorted(found["base"].labels) == sorted(frequent)
    assert {label for _, label in found["base"].task.instances} == set(frequent)


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


def test_the_time_to_start_is_measured_and_written(tmp_path: Path) -> None:
    run = two_tasks().write(tmp_path / "run")
    analyse_run(run)
    out = tmp_path / "new" / "start.json"
    command = [sys.executable, "jobs/benchmark_start.py", "--starts=1", f"--out={out}"]
    done = subprocess.run([*command, run], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == out.with_suffix(".md").read_text()
    starts = json.loads(out.read_text())["starts"]
    assert [start["command"].split()[:2] for start in starts] == [
        ["python", "-c"],
        ["biaseval", "--help"],
        ["biaseval", "sql"],
    ]
    assert all(0 < start["smallest_s"] <= start["median_s"] for start in starts)
    failed = subprocess.run([*command, "nowhere"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert failed.returncode == 1
    assert "is not a run directory" in failed.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_the_benchmark_runs_inside_a_ray_task(
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
