"""Little work is done in the driver's own process, to the files that Ray's actors write; all else on Ray."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from biaseval.errors import BiasevalError, InputError
from biaseval.execute import parts as here
from biaseval.execute.cluster import Cluster
from biaseval.execute.machine import n_cores
from biaseval.execute.parts import Parts
from biaseval.execute.tasks import Made
from biaseval.pipelines.labels.causal import part_entry
from biaseval.pipelines.labels.label_scores import scoring_stage
from biaseval.runs import run_status
from biaseval.spec import ExecutionSpec, ModelSpec
from biaseval.store import Run
from biaseval.units import Unit
from tests.test_execute import environment, score_file, write_prompts

UNITS = [Unit(number, 1, (f"files/{number}",), {"tokens": 500}) for number in range(3)]


class Writer:
    """Writes what was prepared."""

    def __init__(self, run: Run, allocation: Any, *, error: Exception | None = None) -> None:
        self._run, self._error = run, error

    def make(self, task: Any, prepared: Any) -> Made:
        if self._error is not None and task.number == 1:
            raise self._error
        self._run.write_text(task.files[0], prepared)
        return Made({}, {"number": task.number})


def stage(seconds: float | None = 1.0, gpus_per_actor: Literal["auto", 0] = "auto", **arguments: Any) -> Parts:
    return Parts(
        name="writing",
        verb="written",
        units=UNITS,
        execution=ExecutionSpec(gpus_per_actor=gpus_per_actor),
        worker=Writer,
        arguments=arguments,
        prepare=lambda run, task, **settings: f"part {task.number}",
        seconds=None if seconds is None else lambda unit: seconds,
    )


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no Ray in this process: tests before may have left theirs."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))


@pytest.mark.parametrize(("changes", "is_expected"), [
    ({}, True), ({"seconds": None}, False), ({"seconds": here.LITTLE_S / 3}, True),
    ({"seconds": here.LITTLE_S / 3 + 0.001}, False),
])  # fmt: skip
def test_what_is_little_and_asks_for_nothing_is_made_here(changes: dict[str, Any], is_expected: bool) -> None:
    assert here.is_little(stage(**changes), UNITS, Cluster(ExecutionSpec())) is is_expected


@pytest.mark.parametrize(("execution", "is_expected"), [
    (ExecutionSpec(part_rows=2, max_gpu_hours=3), True), (ExecutionSpec(actors=1), False),
    (ExecutionSpec(gpus_per_actor=0), False),
])  # fmt: skip
def test_whoever_asks_for_actors_gets_them(tmp_path: Path, execution: ExecutionSpec, is_expected: bool) -> None:
    run = Run.open(str(tmp_path))
    run.write_json("environment.json", {"model_facts": {"n_parameters": 10**9}})
    parts = [part_entry(0, 0, 10, 100)]
    found = scoring_stage(run, {"parts": parts}, ModelSpec(path="m"), execution)
    assert (found.seconds is not None) is is_expected
    if found.seconds is not None:  # 2e11 operations, at 2e10 a core and second
        assert found.seconds(found.units[0]) == pytest.approx(10 / n_cores())


def test_a_cluster_or_a_gpu_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(ExecutionSpec())
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        assert not here.is_little(stage(), UNITS, cluster)
        assert here.is_little(stage(gpus_per_actor=0), UNITS, cluster)
    with monkeypatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "ray://cluster:10001")
        assert not here.is_little(stage(), UNITS, cluster)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
        assert not here.is_little(stage(), UNITS, cluster)
    assert here.is_little(stage(), UNITS, cluster)


@pytest.mark.parametrize(("error", "kind", "message"), [
    (InputError("labels.json: is empty; fill it"), InputError, "^labels.json: is empty; fill it$"),
    (OSError("no\nluck"), BiasevalError, "^writing failed: OSError: no luck; mend this and run the same"),
])  # fmt: skip
def test_an_error_is_ours_and_the_rest_stays(
    tmp_path: Path, error: Exception, kind: type[Exception], message: str
) -> None:
    run = Run.open(str(tmp_path))
    with pytest.raises(BiasevalError, match=message) as raised:
        list(stage(error=error).make(run, UNITS, Cluster(ExecutionSpec())))
    assert type(raised.value) is kind
    assert set(run.files("files")) == {"files/0"}


def test_a_small_file_of_prompts_is_scored_without_ray_and_without_a_word(
    tmp_path: Path, tiny_llama: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stand-in for Ray has nothing that could start it."""
    prompts = write_prompts(tmp_path)
    score_file(tiny_llama, prompts, tmp_path / "out")
    assert run_status(str(tmp_path / "out")).is_complete
    assert environment(tmp_path / "out")["scorer"]["path"] == "packed"
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "planning 12 prompts"
    assert [line for line in said if "starting Ray" in line or "Loading weights" in line] == []
