"""Scoring of parts: what Ray decides on a real one, all else in this process.

Parts are prepared while others are scored, budgets last, and errors arrive as they are.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import torch

from biaseval.errors import BiasevalError
from biaseval.execute.cluster import Cluster
from biaseval.execute.parts import Parts
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.labels import label_scores
from biaseval.pipelines.labels.label_scores import BUDGETS, LabelScoresWorker, ScorerRecord, read_part
from biaseval.runs import score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import Run
from biaseval.units import Done, Unit
from tests.inprocess import in_this_process
from tests.tinymodels import make_llama

pytestmark = pytest.mark.slow

EXECUTION = ExecutionSpec(part_rows=3)
PATIENCE_S = 120.0
"""How long a part waits for what must come; only a failure takes it."""


def write_prompts(folder: Path, n: int = 12, last: str = "river stone") -> Path:
    """Write prompts that begin alike, with labels of one and of several tokens."""
    texts = [f"Say which.\n\nInput: river {number} stone.\n\nOutput:" for number in range(n - 1)] + [last]
    rows = [{"prompt_id": f"p{i}", "text": text, "labels": ["yes", "not sure"]} for i, text in enumerate(texts)]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def score_file(model: Path, prompts: Path, out: Path, execution: ExecutionSpec = EXECUTION) -> None:
    score_prompts(ModelSpec(path=str(model)), execution, prompts, str(out))


def environment(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = Run.open(str(run_dir)).read_json("environment.json")
    return content


# ---- preparing while scoring -----------------------------------------------------------------------------------------


def noted_read_part(run: Run, task: Any, **settings: Any) -> Any:
    """Prepare a part, and say so."""
    prepared = read_part(run, task, **settings)
    Path(run.uri, f"prepared-{task.number}").touch()
    return prepared


class AwaitingWorker(LabelScoresWorker):
    """Ends a part, but the last, only when another is prepared, which it waits for while its own is being scored."""

    def __init__(self, run: Run, allocation: Any, **arguments: Any) -> None:
        super().__init__(run, allocation, **arguments)
        score, ended = self.scorer.score_prepared, []
        n_parts = len(run.parts("prompts"))

        def when_another_is_prepared(prepared: Any) -> pa.Table:
            scores = score(prepared)
            ended.append(scores)
            deadline = time.monotonic() + PATIENCE_S
            while len(list(Path(run.uri).glob("prepared-*"))) < min(len(ended) + 1, n_parts):
                if time.monotonic() > deadline:
                    raise BiasevalError("nothing is prepared while a part is scored")
                time.sleep(0.01)
            return scores

        self.scorer.score_prepared = when_another_is_prepared  # type: ignore[method-assign]


@pytest.mark.ray
def test_parts_are_prepared_while_others_are_scored(
    tmp_path: Path, tiny_llama: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_scores, "read_part", noted_read_part)
    monkeypatch.setattr(label_scores, "LabelScoresWorker", AwaitingWorker)
    scored: list[Done] = []
    add = ScorerRecord.add

    def note(record: ScorerRecord, done: Done) -> None:
        scored.append(done)
        add(record, done)

    monkeypatch.setattr(ScorerRecord, "add", note)
    prompts, model = write_prompts(tmp_path, n=12), ModelSpec(path=str(tiny_llama))
    score_prompts(model, ExecutionSpec(part_rows=2), prompts, str(tmp_path / "out"))
    assert sorted(done.unit.number for done in scored) == list(range(6))
    assert len({done.actor for done in scored}) == 1
    assert all(0 < done.busy_s <= done.ended_s - done.arrived_s for done in scored)
    # One is scored at a time.
    span = max(done.ended_s for done in scored) - min(done.arrived_s for done in scored)
    assert sum(done.busy_s for done in scored) <= span
    assert 0 < environment(tmp_path / "out")["scorer"]["busy_share"] <= 1


class SlowStore:
    """Makes a part, which takes its store so long to write that the next is made meanwhile, but for the last."""

    def __init__(self, run: Run, allocation: Any, *, n_parts: int) -> None:
        made = self._made = []

        def write(run: Run, file: str, rows: pa.Table) -> None:
            n_made, deadline = len(made), time.monotonic() + PATIENCE_S
            while len(made) == n_made < n_parts:
                if time.monotonic() > deadline:
                    raise BiasevalError("nothing is made while a part is written")
                time.sleep(0.01)
            run.write_bytes(file, b"whole")

        Run.write_table = write  # type: ignore[method-assign]  # of this process, which is the actor's own

    def make(self, task: Task, prepared: None) -> Made:
        self._made.append(task.number)
        return Made({file: pa.table({}) for file in task.files}, {"n_made": len(self._made)})


@pytest.mark.ray
def test_a_part_is_written_while_the_next_is_made_and_heard_of_behind_it(tmp_path: Path, ray_cluster: None) -> None:
    run, units = Run.open(str(tmp_path)), [Unit(number, 1, (f"files/{number}",)) for number in range(5)]
    named: dict[str, Any] = {"name": "writing", "verb": "written", "execution": ExecutionSpec(actors=1)}
    stage = Parts(units=units, worker=SlowStore, arguments={"n_parts": len(units)}, **named)
    heard = []
    with Cluster(ExecutionSpec()) as cluster:
        for done in stage.make(run, units, cluster):
            assert run.read_bytes(done.unit.files[0]) == b"whole"
            heard.append(done.facts["n_made"])
    assert sorted(heard) == [1, 2, 3, 4, 5]


class DiesOnce:
    """Makes parts, and dies once, between the write of a part and its report."""

    def __init__(self, run: Run, allocation: Any) -> None:
        def write(run: Run, file: str, rows: pa.Table) -> None:
            run.write_bytes(file, b"whole")
            with open(run.path("written"), "a") as written:
                print(file, file=written)
            if not run.has("died"):
                run.write_text("died", "")
                os._exit(1)

        Run.write_table = write  # type: ignore[method-assign]  # of this process, which is the actor's own

    def make(self, task: Task, prepared: None) -> Made:
        return Made({file: pa.table({}) for file in task.files}, {"is_made": True})


@pytest.mark.ray
def test_a_part_whose_report_got_lost_is_not_made_again(tmp_path: Path, ray_cluster: None) -> None:
    run, units = Run.open(str(tmp_path)), [Unit(number, 1, (f"files/{number}",)) for number in range(3)]
    stage = Parts(units=units, worker=DiesOnce, name="w", verb="written", execution=ExecutionSpec(actors=1))
    with Cluster(ExecutionSpec()) as cluster:
        heard = {done.unit.number: dict(done.facts) for done in stage.make(run, units, cluster)}
    written = run.read_text("written").split()
    assert (len(heard), {} in heard.values(), len(written)) == (3, True, len(set(written)))


def part(actor: str, arrived_s: float, ended_s: float, busy_s: float, **facts: Any) -> Done:
    known = {"path": "packed", "path_beyond_window": None, "paths_left": {}, "device": "cuda:0: NVIDIA X"}
    known |= {"token_budget": 2048, "cache_budget": 9000}
    facts = {**known, "self_test_difference": None, **facts}
    return Done(Unit(0, 1, ()), 1, facts, actor, arrived_s, ended_s, busy_s)


def test_the_record_counts_all_actors_and_all_sittings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.open(str(tmp_path))
    run.write_text("environment.json", json.dumps({"seed": 42}))
    record = ScorerRecord(run)
    record.add(part("a", 100, 103, 2, token_budget=1024, device="cuda:1: NVIDIA X"))
    left = {"packed": "is 0.5 nats off"}
    record.add(part("b", 7, 9, 2, path="prefix_cache", self_test_difference=1e-6, paths_left=left))
    assert "the scorer's packed path is 0.5 nats off; scoring goes on with prefix_cache" in capsys.readouterr().err
    record.add(part("a", 106, 108, 2, cache_budget=4000))
    assert record.busy_share == 6 / 10  # a: 4 of 8 seconds; b: 2 of 2
    record.close()
    expected = {"path": "prefix_cache", "token_budget": 1024, "cache_budget": 4000, "self_test_difference": 1e-6}
    expected |= {"path_beyond_window": None, "paths_left": left}
    expected |= {"device": "cuda:0: NVIDIA X", "scoring_s": 6, "elapsed_s": 10, "busy_share": 0.6, "tokens": 3}
    assert environment(tmp_path) == {"seed": 42, "scorer": expected}

    again = ScorerRecord(run)
    assert again.facts == expected
    again.add(part("c", 0, 10, 9, path="full_text", self_test_difference=1e-7))
    assert again.busy_share == 0.9
    again.close()
    expected |= {"path": "full_text", "scoring_s": 15, "elapsed_s": 20, "busy_share": 0.75, "tokens": 4}
    assert environment(tmp_path)["scorer"] == expected

    # Another kind of device: its budgets are its own.
    record = ScorerRecord(run)
    record.add(part("d", 0, 1, 1, device="cpu", token_budget=5000, cache_budget=5000))
    assert {name: record.facts[name] for name in BUDGETS} == {"token_budget": 5000, "cache_budget": 5000}


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    """Return the folder of prompts and of an undisturbed run, ``out``."""
    folder = tmp_path_factory.mktemp("finished")
    with in_this_process():
        score_file(tiny_llama, write_prompts(folder), folder / "out")
    return folder


def assert_same_scores(run_dir: Path, expected: Path) -> None:
    found, wanted = (Run.open(str(folder)).read_table("label_scores").to_pylist() for folder in (run_dir, expected))
    assert [(row["prompt_id"], row["label"]) for row in found] == [(row["prompt_id"], row["label"]) for row in wanted]
    for row, want in zip(found, wanted, strict=True):
        assert row["token_logprobs"] == pytest.approx(want["token_logprobs"], abs=1e-4)


def budgets(run_dir: Path) -> dict[str, int]:
    return {name: environment(run_dir)["scorer"][name] for name in BUDGETS}


def interrupted(finished: Path, run_dir: Path, device: str) -> dict[str, int]:
    """Copy a run, as one that lacks two parts and ended on a device with budgets that no scorer takes by itself."""
    shutil.copytree(finished / "out", run_dir)
    content = environment(run_dir)
    # One budget halved often, one beyond a scorer's own.
    ended_with = {"token_budget": 33, "cache_budget": 7 * content["scorer"]["cache_budget"]}
    content["scorer"] |= {**ended_with, "device": device}
    Run.open(str(run_dir)).write_sealed("environment.json", content)
    for number in (0, 2):
        (run_dir / "label_scores" / f"part-{number:05d}.parquet").unlink()
    return ended_with


class WorkerWithLittleMemory(LabelScoresWorker):
    """Takes few tokens in a pass."""

    n_tokens = 80

    def __init__(self, run: Run, allocation: Any, **arguments: Any) -> None:
        super().__init__(run, allocation, **arguments)
        most = self.n_tokens

        def refuse_more(module: torch.nn.Module, args: tuple[torch.Tensor]) -> None:
            if args[0].numel() > most:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        self.scorer.model.get_input_embeddings().register_forward_pre_hook(refuse_more)


def test_a_budget_that_was_halved_is_recorded(
    finished: Path, tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_scores, "LabelScoresWorker", WorkerWithLittleMemory)
    score_file(tiny_llama, finished / "prompts.jsonl", tmp_path / "out", ExecutionSpec(part_rows=12))
    assert environment(tmp_path / "out")["scorer"]["token_budget"] == 64
    assert_same_scores(tmp_path / "out", finished / "out")
    # Each part says how it was scored, its rows do not: the tables are those of the undisturbed run.
    assert {how["token_budget"] for how in hows(tmp_path / "out")} == {64}
    undisturbed = environment(finished / "out")["scorer"]
    for how in hows(finished / "out"):
        assert how == {name: undisturbed[name] for name in label_scores.HOW}
    schemas = [Run.open(str(folder / "out")).read_table("label_scores").schema for folder in (tmp_path, finished)]
    assert schemas[0].equals(schemas[1])


def hows(run_dir: Path) -> list[dict[str, Any]]:
    """Return how each part of a run was scored, by SQL."""
    files = f"{run_dir}/label_scores/*.parquet"
    select = f"select decode(value) from parquet_kv_metadata('{files}') where decode(key) = 'scorer'"
    found = [json.loads(value) for (value,) in duckdb.sql(select).fetchall()]
    assert len(found) == len(Run.open(str(run_dir)).parts("label_scores"))
    return found


def test_a_part_says_by_which_path_and_budget_it_was_scored(
    finished: Path, tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is resumed with less memory has parts of both kinds, and both can be told."""
    run_dir = tmp_path / "out"
    shutil.copytree(finished / "out", run_dir)
    (run_dir / "label_scores" / "part-00001.parquet").unlink()
    monkeypatch.setattr(WorkerWithLittleMemory, "n_tokens", 40)
    monkeypatch.setattr(label_scores, "LabelScoresWorker", WorkerWithLittleMemory)
    score_file(tiny_llama, finished / "prompts.jsonl", run_dir)
    first = Run.open(str(run_dir))
    metadata = {part: first.read_part("label_scores", part).schema.metadata for part in first.parts("label_scores")}
    budgets_of = {part: json.loads(own[b"scorer"])["token_budget"] for part, own in metadata.items()}
    assert budgets_of[1] == 32
    assert {budget for part, budget in budgets_of.items() if part != 1} == {budgets(finished / "out")["token_budget"]}


# ---- errors ----------------------------------------------------------------------------------------------------------


def broken_for_one_letter(folder: Path) -> Path:
    """Write a model that gives no number where the letter z stands in the prompt."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    model = make_llama(folder)
    (letter,) = AutoTokenizer.from_pretrained(model)(" z", add_special_tokens=False)["input_ids"][-1:]
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"][letter] = float("nan")
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return model


@pytest.mark.ray
def test_a_prompt_without_a_finite_score_fails_its_part_and_leaves_the_rest(tmp_path: Path, ray_cluster: None) -> None:
    model, run_dir = broken_for_one_letter(tmp_path / "model"), tmp_path / "out"
    prompts = write_prompts(tmp_path, n=25, last="a z")
    with pytest.raises(BiasevalError) as caught:
        score_file(model, prompts, run_dir)
    message = str(caught.value)
    assert "missing: 1, in 1 part that failed (first label_scores/part-00008.parquet: prompt 'p24', lab" in message
    assert "label 'yes': the model gives a log-probability that is not finite" in message
    assert "\n" not in message
    assert Run.open(str(run_dir)).parts("label_scores") == set(range(8))
    assert environment(run_dir)["scorer"]["busy_share"] > 0
