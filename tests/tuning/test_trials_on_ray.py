"""Trials on a real Ray Tune: one that dies is begun again, and one that dies each time is named."""

import os
import signal
from pathlib import Path

import pytest

from biaseval.errors import BiasevalError
from biaseval.execute.resources import Resources
from biaseval.execute.tune import Attempts, try_all
from biaseval.execute.waiting import Wait
from biaseval.execute.workers import ATTEMPTS
from biaseval.spec import ExecutionSpec

pytestmark = pytest.mark.ray

WAIT = Wait("the search", ExecutionSpec(), Resources([], True, 2))


def attempt(number: int, *, folder: str, deaths: dict[int, int]) -> None:
    """Note that a trial is begun, and end it, once it has died as often as it is told to; 9 has a mistake."""
    begun = Path(folder, f"begun-{number}")
    with begun.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(begun.read_text().splitlines()) <= deaths.get(number, 0):
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 9:
        raise ZeroDivisionError("nine is no trial")
    Path(folder, f"ended-{number}").touch()


def n_begun(folder: Path, number: int) -> int:
    return len((folder / f"begun-{number}").read_text().splitlines())


@pytest.mark.slow
def test_a_trial_whose_process_dies_is_begun_again(
    ray_cluster: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers, deaths = [0, 1, 4, 9], {1: ATTEMPTS - 1, 4: ATTEMPTS}
    attempts = Attempts(attempt, {"folder": str(tmp_path), "deaths": deaths}, at_once=2)
    before = {name: value for name, value in os.environ.items() if name.startswith(("RAY_", "TUNE_"))}
    found = dict(try_all(numbers, attempts, lambda number: (tmp_path / f"ended-{number}").exists(), WAIT))
    assert found.keys() == set(numbers)
    assert (found[0], found[1]) == (None, None)
    assert [n_begun(tmp_path, number) for number in numbers] == [1, ATTEMPTS, ATTEMPTS, ATTEMPTS]
    assert not (tmp_path / "ended-4").exists()
    assert found[4] is not None
    assert "died" in found[4]
    assert found[9] == "ZeroDivisionError: nine is no trial"
    assert "Traceback" not in capfd.readouterr().err
    # What Ray Tune was told by the environment is taken back.
    assert {name: value for name, value in os.environ.items() if name.startswith(("RAY_", "TUNE_"))} == before


def test_what_ray_tune_cannot_begin_is_said(ray_cluster: None, tmp_path: Path) -> None:
    attempts = Attempts(attempt, {"folder": str(tmp_path), "deaths": {}}, at_once=1, num_cpus=-1)
    with pytest.raises(BiasevalError, match=r"Ray Tune failed: .*; run the same command again to resume"):
        list(try_all([0], attempts, lambda _: False, WAIT))
    assert not list(tmp_path.iterdir())


def test_nothing_starts_where_no_trial_is_left() -> None:
    assert not list(try_all([], Attempts(attempt, {}, at_once=1), lambda _: False, WAIT))
