"""Stages of a run, made in this process instead of on Ray: what prepares, measures and trains is a run's own.

What Ray adds (processes, their deaths, resources, uploads, the order of parts) is tested on a real one, at least once
for every kind of run; of searches, trials alone and the death of Ray. All else would pay for a new process, which
imports transformers for longer than a tiny model scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from biaseval.execute import groups, parts, workers
from biaseval.execute.cluster import Cluster
from biaseval.execute.messages import Queue
from biaseval.execute.resources import Resources
from biaseval.execute.tune import Attempts
from biaseval.execute.waiting import Wait


@contextmanager
def in_this_process() -> Iterator[None]:
    """Have runs in the block start no Ray; errors and files are those of a run."""
    machine = Resources([{"CPU": 4.0}], is_local=True, n_cores=torch.get_num_threads())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "resources", lambda _: machine)
        patch.setattr(parts, "is_little", lambda parts, missing, cluster: True)
        patch.setattr(groups, "queued", lambda units: _Actor(Queue(units)))
        patch.setattr(groups, "lead", _Leader())
        patch.setattr(workers, "this_node", lambda: None)
        patch.setattr("ray.wait", lambda led, **of_ray: (led, []))
        patch.setattr("ray.get", _Led.result)
        patch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_worker_id=lambda: "this process"))
        patch.setattr("biaseval.execute.tune.try_all", _try_all)
        for module in (groups, workers):  # it would silence this process
            patch.setattr(module, "quiet_worker", lambda: None)
        yield


def _try_all(
    numbers: Sequence[int], attempts: Attempts, has_ended: Callable[[int], bool], wait: Wait
) -> Iterator[tuple[int, str | None]]:
    """Have trials of a search made, one after another; one that Ray Tune would have to give up is an error."""
    for number in numbers:
        attempts.attempt(number, **attempts.arguments)
        assert has_ended(number)
        yield number, None


class _Led:
    """What came of a call, or of a group that trains."""

    def __init__(self, value: object = None, error: Exception | None = None) -> None:
        self._value, self._error = value, error

    def result(self) -> object:
        """Return, or raise, as ``ray.get`` does."""
        if self._error is not None:
            raise self._error
        return self._value


class _Actor:
    """An actor that answers in this process."""

    def __init__(self, own: object) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: _Led(getattr(self._own, name)(*arguments)))


class _Leader:
    """Leads a group that is one worker, in this process."""

    _lead = staticmethod(groups.lead._function)

    def options(self, **of_ray: Any) -> _Leader:
        return self

    def remote(self, *arguments: Any) -> _Led:
        try:
            self._lead(*arguments)
        except Exception as error:
            return _Led(error=error)
        return _Led()
