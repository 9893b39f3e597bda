"""Parts that fail, kill their process or hang: all others are made, and a later command tries them again."""

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from biaseval import progress
from biaseval.errors import BiasevalError
from biaseval.execute import stalls
from biaseval.execute.cluster import Cluster
from biaseval.execute.parts import Parts
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.labels import label_scores
from biaseval.pipelines.labels.label_scores import LabelScoresWorker
from biaseval.runs import run_status, score_prompts
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import Run
from biaseval.units import Done, Unit
from tests.test_execute import EXECUTION, write_prompts


class BadWorker(LabelScoresWorker):
    """Scores, but for the parts in the run's file ``bad``; it counts the attempts."""

    def make(self, task: Task, prepared: Any) -> Made:
        bad = Path(self._run.root, "..", "bad")
        if bad.exists() and str(task.number) in bad.read_text().split():
            with bad.with_name("attempts").open("a") as attempts:
                print(task.number, file=attempts)
            raise RuntimeError("a kernel failed")
        return super().make(task, prepared)


def scored(model: Path, folder: Path) -> Run:
    return score_prompts(ModelSpec(path=str(model)), EXECUTION, folder / "prompts.jsonl", str(folder / "out"))


@pytest.mark.parametrize(("bad", "made", "said"), [
    ([1], {0, 2, 3}, r"that are missing: 3, in 1 part that failed \(first .*part-00001.*{}\); biaseval status .*"),
    ([1, 2, 3], {0}, "rows that are missing: 9, in 3 parts that failed .*{}"),
    ([0, 1, 2], set(), "{}; mend this and run the same command again"),
])  # fmt: skip
def test_a_run_goes_on_without_a_few_parts_and_a_later_command_tries_them_again(
    tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch, bad: list[int], made: set[int],
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(label_scores, "LabelScoresWorker", BadWorker)
    write_prompts(tmp_path)
    (tmp_path / "bad").write_text(" ".join(map(str, bad)))
    problem = "scoring failed: RuntimeError: a kernel failed"
    with pytest.raises(BiasevalError, match=said.format(problem)):
        scored(tiny_llama, tmp_path)
    assert (run := Run.open(str(tmp_path / "out"))).parts("label_scores") == made
    row = {"table_name": "label_scores", "problem": problem, "attempts": 3, "rows_of": None, "is_left_out": False}
    assert run.read_table("failed_parts").to_pylist() == [{**row, "part": part} for part in bad]
    assert (tmp_path / "attempts").read_text().split() == [str(part) for part in bad for _ in range(3)]
    told = {f"label_scores/part-{part:05d}.parquet": f"tried 3×: {problem}" for part in bad}
    assert (run_status(run.uri).given_up, run_status(run.uri).is_complete) == (told, False)
    (tmp_path / "bad").unlink()
    (tmp_path / "out" / "failed_parts" / "part-00000.parquet").write_bytes(b"damaged")
    assert run_status(run.uri).given_up == {}
    scored(tiny_llama, tmp_path)
    assert (run_status(run.uri).is_complete, run.parts("failed_parts")) == (True, set())


class EndsBadly:
    """Makes parts; part 3 kills its process, or stops it, as often as it is told."""

    def __init__(self, run: Run, allocation: Any, *, by: int, times: int) -> None:
        self._run, self._by, self._times = run, by, times

    def make(self, task: Task, prepared: None) -> Made:
        logging.getLogger("biaseval.tests").warning("part %d", task.number)
        if task.number == 3:
            time.sleep(1)  # the driver hears of earlier parts
            with open(self._run.path("attempts"), "a+") as attempts:
                attempts.seek(0)
                if len(attempts.read().split()) < self._times:
                    print(3, file=attempts, flush=True)
                    os.kill(os.getpid(), self._by)
        return Made({file: pa.table({"number": [task.number]}) for file in task.files}, {"number": task.number})


def prepared(run: Run, task: Task, **_: Any) -> None:
    """Prepare a part, but for part 2, with which a tokenizer fails."""
    if task.number == 2:
        raise RuntimeError("a tokenizer failed")


@pytest.mark.parametrize("is_here", [True, pytest.param(False, marks=[pytest.mark.ray, pytest.mark.slow])])
def test_a_part_that_cannot_be_prepared_fails_alone(tmp_path: Path, is_here: bool, request: Any) -> None:
    request.getfixturevalue("here" if is_here else "ray_cluster")
    run, units = Run.open(str(tmp_path)), [Unit(n, 1, (f"files/part-{n:05d}.parquet",)) for n in range(4)]
    stage = Parts(
        name="writing", verb="written", units=units, execution=ExecutionSpec(actors=1), worker=EndsBadly,
        arguments={"by": 0, "times": 0}, prepare=prepared,
    )  # fmt: skip
    with Cluster(ExecutionSpec()) as cluster:
        made = {done.unit.number: done for done in stage.make(run, units, cluster)}
    assert {number for number, done in made.items() if done.is_complete} == {0, 1, 3}
    assert (made[2].facts["attempts"], run.parts("files")) == (3, {0, 1, 3})
    assert "writing failed: RuntimeError: a tokenizer failed" in made[2].facts["problem"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(("by", "times"), [(signal.SIGKILL, 99), (signal.SIGSTOP, 1)])
def test_a_part_that_ends_or_stops_its_process_is_tried_again_and_then_left(
    tmp_path: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch, by: signal.Signals, times: int
) -> None:
    monkeypatch.setattr(stalls, "_LEAST_S", 3.0)
    run, units = (
        Run.open(str(tmp_path)),
        [Unit(number, 1, (f"files/part-{number:05d}.parquet",)) for number in range(4)],
    )
    stage = Parts(
        name="writing", verb="written", units=units, execution=ExecutionSpec(actors=1), worker=EndsBadly,
        arguments={"by": int(by), "times": times},
    )  # fmt: skip
    heard: dict[int, Done] = {}
    said = list[str]()
    with progress.heard(said.append), Cluster(ExecutionSpec()) as cluster:
        for done in stage.make(run, units, cluster):
            assert done.unit.number not in heard
            heard[done.unit.number] = done
    assert heard.keys() == {0, 1, 2, 3}
    assert {f"warning: part {number} (in an actor)" for number in range(3)} <= {*said}
    is_made = times == 1
    assert [heard[number].is_complete for number in range(4)] == [True, True, True, is_made]
    assert run.has(units[3].files[0]) is is_made
    if not is_made:
        assert heard[3].facts["attempts"] == 3 <= len(run.read_text("attempts").split()) <= 4
        assert "writing failed: the process that makes it ended" in heard[3].facts["problem"]
    assert not run.files("trouble")
