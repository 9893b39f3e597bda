"""The record of scoring in ``environment.json``, over all actors and all processes of a resumed run."""

from collections.abc import Mapping
from typing import Any

from biaseval.environment import amend_environment, read_environment
from biaseval.progress import say
from biaseval.store import Run
from biaseval.units import Done

BUDGETS = ("token_budget", "cache_budget")
"""What of a scorer's facts says how much memory it may use; smaller is safer."""

_PATHS = (None, "packed", "prefix_cache", "full_text", "one_by_one")  # from the fastest to the slowest


class ScorerRecord:
    """Notes how a run is scored.

    Of several actors the slowest path, the smallest budgets (on one kind of device) and the largest difference count.
    An actor's time goes from the arrival of its first part to the end of its last; ``busy_share`` is the part of all
    actors' time in which they scored.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scoring_s = 0.0
        self._tokens = 0
        self._spans: dict[str, tuple[float, float]] = {}
        self.facts: dict[str, Any] = read_environment(run).get("scorer", {})

    @property
    def busy_share(self) -> float:
        """The share of their time in which the actors of this process were busy, in [0, 1]."""
        return self._scoring_s / (self._elapsed_s or 1.0)

    @property
    def _elapsed_s(self) -> float:
        return sum(ended - arrived for arrived, ended in self._spans.values())

    def add(self, done: Done) -> None:
        """Count a finished part."""
        first, last = self._spans.get(done.actor, (done.arrived_s, done.ended_s))
        self._spans[done.actor] = (min(first, done.arrived_s), max(last, done.ended_s))
        self._scoring_s += done.busy_s
        self._tokens += done.tokens
        for path, reason in done.facts["paths_left"].items():
            if path not in self.facts.get("paths_left", {}):
                say(f"the scorer's {path} path {reason}; scoring goes on with {done.facts['path']}")
        self._write(_combined(self.facts, done.facts))

    def close(self) -> None:
        """Add this process's times to the record, and print how busy the actors were."""
        if not self._spans:
            return
        scoring_s = self.facts.get("scoring_s", 0.0) + self._scoring_s
        elapsed_s = self.facts.get("elapsed_s", 0.0) + self._elapsed_s
        times = {"scoring_s": scoring_s, "elapsed_s": elapsed_s, "busy_share": scoring_s / elapsed_s}
        rounded = {name: round(value, 3) for name, value in times.items()}
        # Records of older versions have no tokens, so their times would distort the rate.
        has_all = "tokens" in self.facts or "elapsed_s" not in self.facts
        tokens = {"tokens": self.facts.get("tokens", 0) + self._tokens} if has_all else {}
        self._write({**self.facts, **rounded, **tokens})
        say(f"the scorer was busy {self.busy_share:.0%} of the time")

    def _write(self, facts: dict[str, Any]) -> None:
        if facts != self.facts:
            self.facts = facts
            amend_environment(self._run, scorer=facts)


def _combined(known: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run's scorers so far and of one more."""
    if not known:
        return dict(facts)
    combined = {**known, **facts, "paths_left": known.get("paths_left", {}) | facts["paths_left"]}
    for key in ("path", "path_beyond_window"):
        combined[key] = max(known.get(key), facts[key], key=_PATHS.index)
    found = [each["self_test_difference"] for each in (known, facts)]
    combined["self_test_difference"] = max((each for each in found if each is not None), default=None)
    if device_kind(known["device"]) == device_kind(facts["device"]):
        for name in BUDGETS:
            if known.get(name) is not None and facts.get(name) is not None:
                combined[name] = min(known[name], facts[name])
    return combined


def device_kind(device: str) -> str:
    """Return what a device is, without its number, of a scorer's ``device``: ``cpu``, or a GPU's name and share."""
    return device.split(": ", 1)[-1]


def with_share(device: str, num_gpus: float) -> str:
    """Return a scorer's device with the share of it that an actor has, if not all: memory there is another's, too."""
    return f"{device}, {num_gpus:g} of it" if 0 < num_gpus < 1 else device


def known_budgets(known: Mapping[str, Any], num_gpus: float) -> dict[str, int]:
    """Return the memory budgets that a run's scorers found for the kind of device of an actor with so many GPUs.

    What did not fit once is not tried again.
    """
    import torch

    kind = torch.cuda.get_device_name() if num_gpus and torch.cuda.is_available() else "cpu"
    kind = with_share(kind, num_gpus)
    if not known or device_kind(known["device"]) != kind:
        return {}
    return {name: known[name] for name in BUDGETS if known.get(name) is not None}
