"""Whole runs on a real Ray, with a tiny random model: exact, resumable, and not to be confused with another run."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.errors import BiasevalError, InputError
from biaseval.runs import run_spec, run_status, score_prompts
from biaseval.runs.commands import claimed_run
from biaseval.spec import ExecutionSpec, ModelSpec, load_spec
from biaseval.store import LOGS, Run
from tests.inprocess import in_this_process
from tests.processes import ROOT, killed_in_the_end, wait_until
from tests.taskfiles import write_task
from tests.tinymodels import make_llama
from tests.waiting import MARKERS, N_BEFORE

pytestmark = pytest.mark.ray

MARTS = [
    "label_bias_by_task", "label_bias_by_model", "label_bias_by_label", "label_bias_changes", "calibration_parameters",
]  # fmt: skip


SPEC = """
kind: label_bias
name: tiny
prompt: {n_demos: [0, 2], demo_sets: 2}
calibration: [cc, dc, looc]
execution: {part_rows: 16}
tasks: {path: tasks, include: [task9501_two_classification, task9502_three_detection], min_instances: 130, max_eval: 40}
"""


def write_spec(folder: Path, model: Path, **changes: Any) -> Path:
    tasks = folder / "tasks"
    if not tasks.exists():
        write_task(tasks, "task9501_two_classification", n_instances=140, number=9501)
        write_task(tasks, "task9502_three_detection", n_instances=150, number=9502, labels=("no", "not sure", "yes"))
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(SPEC), "model": {"path": str(model)}, **changes}))
    return path


def marts(run_dir: Path) -> dict[str, list[Any]]:
    return {name: duckdb.sql(f"from '{run_dir}/marts/{name}.parquet' order by all").fetchall() for name in MARTS}


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a run by its name; logs, which say when, are left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != LOGS)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_same(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    for name in MARTS:
        assert len(found[name]) == len(expected[name]) > 0
        for row, wanted in zip(found[name], expected[name], strict=True):
            for value, want in zip(row, wanted, strict=True):
                assert value == (pytest.approx(want, rel=1e-6, abs=1e-6) if isinstance(want, float) else want), name


def run_beside(spec: Path) -> tuple[Path, Path]:
    """Return a spec file and the directory of its run, made beside it."""
    run_spec(load_spec(spec), str(spec.parent / "run"))
    return spec, spec.parent / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, ray_cluster: None) -> tuple[Path, Path]:
    """Return (spec file, run directory) of an undisturbed run."""
    return run_beside(write_spec(tmp_path_factory.mktemp("finished"), tiny_llama))


def test_a_run_leaves_what_the_contract_names(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    for name in ("spec.yaml", "environment.json", "results.duckdb", "report.html"):
        assert (run_dir / name).is_file(), name
    for table in ("splits", "contexts", "prompts", "label_scores"):
        assert (run_dir / table / "part-00000.parquet").is_file(), table
        compression = pq.ParquetFile(run_dir / table / "part-00000.parquet").metadata.row_group(0).column(0).compression
        assert compression == "ZSTD"
    environment = json.loads((run_dir / "environment.json").read_text())
    assert environment["scorer"]["path"] == "packed"
    assert environment["versions"]["ray"]
    assert environment["model"]["digest"]
    assert set(environment["data"]) == {"task9501_two_classification.json", "task9502_three_detection.json"}
    assert run_status(str(run_dir)).is_complete


def test_scores_are_those_of_plain_forward_passes(finished: tuple[Path, Path], tiny_llama: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = Run.open(str(finished[1]))
    texts = {row["context_id"]: row["text"] for row in run.read_table("contexts").to_pylist()}
    scores: dict[str, dict[str, list[float]]] = {}
    for row in run.read_table("label_scores").to_pylist():
        scores.setdefault(row["prompt_id"], {})[row["label"]] = row["token_logprobs"]
    prompts = run.read_table("prompts").to_pylist()
    assert set(scores) == {row["prompt_id"] for row in prompts}
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    model = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    for row in prompts[::29]:
        assert set(scores[row["prompt_id"]]) == set(row["labels"])
        prompt = texts[row["context_id"]] + row["input_text"]
        n_context = len(tokenizer(prompt)["input_ids"])
        for label, found in scores[row["prompt_id"]].items():
            ids = torch.tensor([tokenizer(f"{prompt} {label}</s>")["input_ids"]])
            with torch.no_grad():
                logprobs = model(ids).logits[0].float().log_softmax(-1)
            expected = [logprobs[i - 1, ids[0, i]].item() for i in range(n_context, ids.shape[1])]
            assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_what_is_missing_is_computed_and_by_more_actors_the_same(finished: tuple[Path, Path], tmp_path: Path) -> None:
    spec, run_dir = finished[0], tmp_path / "run"
    shutil.copytree(finished[1], run_dir)
    run = Run.open(str(run_dir))
    before = run.read_table("label_scores").to_pylist()
    times = {path.name: path.stat().st_mtime_ns for path in (run_dir / "label_scores").iterdir()}
    lost = {f"part-{number:05d}.parquet" for number in (1, 4, 7)}
    for name in lost:
        (run_dir / "label_scores" / name).unlink()
    run_spec(load_spec(spec, ["execution.actors=2"]), str(run_dir), page=False)
    found = {path.name: path.stat().st_mtime_ns for path in (run_dir / "label_scores").iterdir()}
    assert found.keys() == times.keys()
    assert {name for name in times if times[name] != found[name]} == lost
    after = run.read_table("label_scores").to_pylist()
    assert [(row["prompt_id"], row["label"]) for row in after] == [(row["prompt_id"], row["label"]) for row in before]
    for row, wanted in zip(after, before, strict=True):
        assert row["token_logprobs"] == pytest.approx(wanted["token_logprobs"], abs=1e-4)
    assert_same(marts(run_dir), marts(finished[1]))


def test_a_different_spec_is_refused_and_nothing_is_touched(finished: tuple[Path, Path]) -> None:
    spec, run_dir = finished
    before = digests(run_dir)
    with pytest.raises(InputError, match="seed: the run has 42, the spec 7"):
        run_spec(load_spec(spec, ["seed=7"]), str(run_dir))
    assert digests(run_dir) == before
    with claimed_run(load_spec(spec, ["execution.part_rows=99"]), str(run_dir)):
        assert len(list((run_dir / "prompts").iterdir())) == len(list((run_dir / "label_scores").iterdir()))


@pytest.mark.parametrize("is_finished", [True, False])
def test_another_model_or_other_tasks_are_refused(
    is_finished: bool, finished: tuple[Path, Path], tmp_path: Path
) -> None:
    spec, run_dir = finished[0], tmp_path / "run"
    shutil.copytree(finished[1], run_dir)
    if not is_finished:
        (run_dir / "label_scores" / "part-00000.parquet").unlink()
    before = digests(run_dir)
    other = make_llama(tmp_path / "model", seed=3)
    with pytest.raises(InputError, match="is not the model that"):
        run_spec(load_spec(spec, [f"model.path={other}"]), str(run_dir))
    tasks = tmp_path / "tasks"
    write_task(tasks, "task9501_two_classification", n_instances=141, number=9501)
    with pytest.raises(InputError) as refused:
        run_spec(load_spec(spec, [f"tasks.path={tasks}"]), str(run_dir))
    # One is another, one is gone.
    for name in ("task9501_two_classification", "task9502_three_detection"):
        assert f"{name}.json: changed since" in str(refused.value)
    assert digests(run_dir) == before


def test_a_second_process_is_kept_out_of_a_run(finished: tuple[Path, Path]) -> None:
    spec, run_dir = finished
    with Run.open(str(run_dir)).lock(), pytest.raises(BiasevalError, match="another process is working on this run"):
        run_spec(load_spec(spec), str(run_dir))


def test_a_plan_that_fails_leaves_nothing_in_the_way_of_a_mended_spec(tmp_path: Path, tiny_llama: Path) -> None:
    spec = write_spec(tmp_path, tiny_llama, calibration=[], prompt={"n_demos": [0]})
    (tmp_path / "templates.csv").write_text("task,template\ntask9502_three_detection,Nothing {INPUT} of it\n")
    bad = load_spec(spec, ["calibration=[dc]", "tasks.templates=templates.csv"])
    with pytest.raises(InputError, match="inputs lack a literal part of the template"):
        run_spec(bad, str(tmp_path / "run"))
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}
    with claimed_run(load_spec(spec), str(tmp_path / "run")) as run:
        assert run.parts("prompts")
    assert yaml.safe_load((tmp_path / "run" / "spec.yaml").read_text())["calibration"] == []


def test_a_prompt_that_is_too_long_to_score_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "model", window=32)
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt_id": "long one", "text": "river stone " * 60, "labels": ["a", "b"]}) + "\n")
    with pytest.raises(InputError, match=r"'long one' needs .* tokens with label and EOS"):
        score_prompts(ModelSpec(path=str(model)), ExecutionSpec(), path, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_be_loaded_is_said_once(tmp_path: Path, tiny_llama: Path, ray_cluster: None) -> None:
    """8-bit weights need CUDA and bitsandbytes; the worker finds out, the user hears it."""
    spec = write_spec(tmp_path, tiny_llama, calibration=[], prompt={"n_demos": [0]})
    with pytest.raises(InputError, match="8bit"):
        run_spec(load_spec(spec, ["model.quantization=8bit"]), str(tmp_path / "run"))


def test_any_prompts_can_be_scored(tmp_path: Path, tiny_llama: Path, here: None) -> None:
    from biaseval.scoring import LabelScorer

    rows = [{"prompt_id": f"p{i}", "text": f"river {i} stone", "labels": ["yes", "not sure"]} for i in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "prompts.parquet")
    model, execution = ModelSpec(path=str(tiny_llama)), ExecutionSpec(part_rows=8)
    run = score_prompts(model, execution, tmp_path / "prompts.parquet", str(tmp_path / "out"))
    found = run.read_table("label_scores").to_pylist()
    expected = LabelScorer.load(str(tiny_llama)).score(pa.Table.from_pylist(rows)).to_pylist()
    assert [(row["prompt_id"], row["label"]) for row in found] == [(r["prompt_id"], r["label"]) for r in expected]
    for row, wanted in zip(found, expected, strict=True):
        assert row["token_logprobs"] == pytest.approx(wanted["token_logprobs"], abs=1e-4)
    pq.write_table(pa.Table.from_pylist(rows[:5]), tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"belongs to another spec(.|\n)*prompts_sha256: the run has"):
        score_prompts(model, execution, tmp_path / "other.parquet", str(tmp_path / "out"))


def planned(finished: tuple[Path, Path], folder: Path, n_scored: int) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a copy of which so many parts are scored, and nothing is measured."""
    spec, run_dir = finished[0], folder / "run"
    shutil.copytree(finished[1], run_dir, ignore=shutil.ignore_patterns("marts", "figures", "results.*", "report.*"))
    for path in sorted((run_dir / "label_scores").iterdir())[n_scored:]:
        path.unlink()
    return spec, run_dir


@pytest.mark.slow
def test_a_run_outlives_its_actor_and_resumes_when_it_is_killed(finished: tuple[Path, Path], tmp_path: Path) -> None:
    spec, run_dir = planned(finished, tmp_path, 0)
    first, second = (tmp_path / marker for marker in MARKERS)
    code = "from tests.waiting import *; waiting_command(WaitingWorker)"
    command = ["run", str(spec), "--run-dir", str(run_dir), "--set", "execution.actors=1"]  # an actor, for little work
    with killed_in_the_end(code, *command) as process:
        wait_until(first.exists, process)
        before = digests(run_dir / "label_scores")
        (scorer,) = [each for each in process.children(recursive=True) if "_Actor" in "".join(each.cmdline())]
        scorer.kill()
        # Another actor takes its place, and does the part again.
        wait_until(second.exists, process)
    kept = digests(run_dir / "label_scores")
    # One may have been on its way to the disk when the next one waited.
    assert len(before) in (N_BEFORE, N_BEFORE + 1)
    assert len(kept) in (2 * N_BEFORE, 2 * N_BEFORE + 1)
    assert kept.items() >= before.items()
    status = run_status(str(run_dir))
    assert 0 < status.size_done < status.size
    assert not status.has_marts
    with in_this_process():
        run_spec(load_spec(spec), str(run_dir), page=False)
    assert digests(run_dir / "label_scores").items() >= kept.items()
    assert_same(marts(run_dir), marts(finished[1]))


@pytest.mark.slow
@pytest.mark.parametrize("actors", ["auto", "1"])  # in the driver itself, and on Ray
def test_an_interrupted_run_can_be_resumed(finished: tuple[Path, Path], tmp_path: Path, actors: str) -> None:
    """Whoever presses Ctrl-C while a part is scored: the command ends, and what it started ends."""
    spec, run_dir = planned(finished, tmp_path, N_BEFORE)
    # Whoever runs these tests in the background has them, and all that they start, ignore the signal.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from tests.waiting import *; waiting_command(WaitingWorker)"
    command = [sys.executable, "-c", code, "run", str(spec), "--run-dir", str(run_dir)]
    command += ["--set", f"execution.actors={actors}"]
    process = psutil.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    wait_until((tmp_path / MARKERS[0]).exists, process)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert messages.rstrip().endswith("complete parts are kept, run the same command again to resume")
    assert "Traceback" not in messages
    status = run_status(str(run_dir))
    assert N_BEFORE == status.stages[0].n_units_done < status.stages[0].n_units
