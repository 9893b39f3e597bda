"""Trials of a search on Ray Tune: several at a time, each with its share of the cluster, restarted when one dies.

Ray Tune runs the trials and does not know their results: files hold the results and show which are complete. biaseval
reads no file of Ray Tune.
"""

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ray import tune

from biaseval.errors import BiasevalError, TransientError
from biaseval.execute.holdings import n_placed
from biaseval.execute.machine import quiet_worker
from biaseval.execute.resources import LEADER_CPUS, Ask
from biaseval.execute.waiting import Wait
from biaseval.execute.workers import ATTEMPTS

_QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths stay what they are
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the run, as everywhere
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}

_SECONDS_BETWEEN_LOOKS = 0.5

_ACTOR = "ImplicitFunc"
"""What Ray Tune calls the class of its actors."""


@dataclass(frozen=True)
class Attempts:
    """How trials are made."""

    attempt: Callable[..., None]
    """Makes one, ``attempt(number, **arguments)``; called again where its process dies."""
    arguments: Mapping[str, Any]
    at_once: int
    """Trials at a time."""
    num_cpus: float = LEADER_CPUS
    """The CPUs of a trial itself; its work takes the rest of its share."""


def try_all(
    numbers: Sequence[int], attempts: Attempts, has_ended: Callable[[int], bool], wait: Wait
) -> Iterator[tuple[int, str | None]]:
    """Have each trial made, and yield its number when it ended, with what kept it from that, if anything.

    ``has_ended`` asks the files of a trial, and ``wait`` hears whether any trial has a place.

    Raises:
        BiasevalError: Ray Tune itself failed.
        TransientError: no trial has a place, and nothing can give it one.
    """
    if not numbers:
        return
    tuning, asked = _Tuning(numbers, attempts), Ask("a trial", {"CPU": attempts.num_cpus})
    left = list(numbers)
    is_over = False
    try:
        while left and not is_over:
            is_over = not tuning.is_alive()
            tuning.join(_SECONDS_BETWEEN_LOOKS)
            for number in [number for number in left if has_ended(number)]:
                left.remove(number)
                yield number, None
            if left and not is_over and wait.is_due():
                wait.look(None if n_placed(_ACTOR) else asked)
    except TransientError:
        with suppress(ImportError):  # without a Ray, the thread would start another
            from ray._private import auto_init_hook

            auto_init_hook.enable_auto_connect = False
        raise
    tuning.join()
    if tuning.failure is not None:
        raise BiasevalError(f"Ray Tune failed: {tuning.failure}; run the same command again to resume")
    for number in left:
        yield number, tuning.problems.get(number, "its process died")


class _Tuning(threading.Thread):
    """Ray Tune, which does not come back before all trials have ended."""

    def __init__(self, numbers: Sequence[int], attempts: Attempts) -> None:
        super().__init__(name="biaseval-tune", daemon=True)
        self._numbers, self._attempts = list(numbers), attempts
        self.failure: str | None = None
        self.problems: dict[int, str] = {}
        """Why trials were given up whose process died as often as it may."""
        self.start()

    def run(self) -> None:
        """Run Ray Tune to its end."""
        attempts = self._attempts

        def trial(config: dict[str, Any]) -> None:
            quiet_worker()
            attempts.attempt(config["number"], **attempts.arguments)
            tune.report({"number": config["number"]})

        before = {name: os.environ.get(name) for name in _QUIET}
        os.environ.update(_QUIET)
        executes = logging.getLogger("ray.tune.execution")
        level = executes.level
        executes.setLevel(logging.CRITICAL)  # it prints tracebacks of trials that are tried again
        try:
            with tempfile.TemporaryDirectory(prefix="biaseval-tune-", ignore_cleanup_errors=True) as folder:
                failures = tune.FailureConfig(max_failures=ATTEMPTS - 1)
                results = tune.Tuner(
                    tune.with_resources(trial, {"CPU": attempts.num_cpus}),
                    param_space={"number": tune.grid_search(self._numbers)},
                    tune_config=tune.TuneConfig(max_concurrent_trials=attempts.at_once, reuse_actors=True),
                    run_config=tune.RunConfig(name="trials", storage_path=folder, verbose=0, failure_config=failures),
                ).fit()
            for result in (results[place] for place in range(len(results))):
                lines = [line for line in str(result.error or "").splitlines() if line.strip()]
                if result.config is not None and lines:
                    self.problems[result.config["number"]] = lines[-1]
        except Exception as error:
            self.failure = str(error) or repr(error)
        finally:
            executes.setLevel(level)
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})
