"""Rounds without Ray: a command is forked, a fault stops it at a named point, and the same command is forked again."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from biaseval.store import Run
from tests.validation.soak import oracle, server
from tests.validation.soak.kinds import KINDS, RUN, prepare
from tests.validation.soak.points import POINTS, Plan

CODES = {"kill": -9, "stop": 143, "interrupt": 130, "full": 1, "error": 1}
"""Faults to the exit code of a command."""

_ON_S3 = 0.2
"""Share of the rounds on S3."""

_FROM_NOTHING = 0.08
"""Share of the rounds that compute everything again, whatever is remembered."""

_AGAIN, _MOST_STRIKES = 0.3, 3
"""Share of the rounds, and of these again, in which the command that follows is disturbed, too."""

_QUERY = "marts, in a query"
"""The point that is met only where metrics are computed."""

BUCKET = "s3://bias"


@dataclass
class Strike:
    """One fault in a command."""

    point: str
    fault: str
    nth: int = 1
    """Which event of the point."""
    hit: bool = False
    """The fault came."""
    code: int | None = None
    """How the command ended."""
    message: str = ""
    """Its last line."""


@dataclass
class Round:
    """One disturbed run, and what became of it."""

    number: int
    kind: str
    store: str
    """``disk`` or ``s3``."""
    strikes: list[Strike]
    """One after another: the second one strikes the command that was to finish the run."""
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """A wrong exit code, a traceback, several errors, a false alarm, a file that is left, or a failed last command."""
    hung: bool = False
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.lost or self.twice or self.wrong or self.hung)

    @property
    def hits(self) -> int:
        """How many faults came."""
        return sum(own.hit for own in self.strikes)


class Bench:
    """A folder with the inputs, an undisturbed run of each kind, and what is remembered of its metrics."""

    def __init__(self, folder: Path, *, is_on_ray: bool = False) -> None:
        self.folder, self.is_on_ray = folder, is_on_ray
        for name in ("memory", "undisturbed", "rounds"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def memory(self) -> Path:
        """What is remembered."""
        return self.folder / "memory"

    def inputs(self, kind: str) -> Path:
        """Return the folder with the spec of a kind."""
        return self.folder / "inputs" / kind

    def undisturbed(self, kind: str) -> Path:
        """Return the folder of the undisturbed run of a kind, which is made at the first call."""
        own = self.folder / "undisturbed" / kind
        if (own / "found.json").exists():
            return own
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        self.begin(kind, own, str(own / "run"))
        _expect(server.forked(lambda: quietly(prepare, kind, self.folder / "inputs"), own))
        arguments = self.arguments(kind, str(own / "run"))
        _expect(server.forked(lambda: server.command(arguments, Plan(str(own)), memory=self.memory), own))
        _expect(server.forked(lambda: oracle.examine(str(own / "run"), own, None), own))
        return own

    def begin(self, kind: str, folder: Path, uri: str) -> list[str]:
        """Put what a run of a kind begins with at its place, and return the names of these files."""
        before = KINDS[kind].begins_as
        if before is None:
            return []
        source = self.undisturbed(before)
        if uri.startswith("s3://"):
            _expect(server.forked(lambda: quietly(_copy, source / "run", uri), folder))
        else:
            shutil.copytree(source / "run", uri)
        return list(json.loads((source / "found.json").read_text())["contents"])

    def arguments(self, kind: str, uri: str) -> list[str]:
        """Return the arguments of the command of a kind for a run directory."""
        return [one.replace(RUN, uri) for one in KINDS[kind].arguments(self.inputs(kind), is_on_ray=self.is_on_ray)]

    def events(self, kind: str) -> dict[str, int]:
        """Return how often the undisturbed run of a kind met each point."""
        found: dict[str, int] = json.loads((self.undisturbed(kind) / "counts").read_text())
        if "marts, before a write" in found:
            found.setdefault(_QUERY, 2)
        return found


def quietly(work: Any, *given: Any) -> int:
    work(*given)
    return 0


def _copy(source: Path, uri: str) -> None:
    import pyarrow.fs as pafs

    pafs.copy_files(str(source), Run.open(uri).root, destination_filesystem=Run.open(uri).fs)


def _expect(ended: server.Ended) -> None:
    if ended.code != 0:
        raise RuntimeError(f"what no fault disturbed ended with {ended.code}: {ended.said[-2000:]}")


@dataclass(frozen=True)
class Draw:
    """Draws the rounds of a seed, each from its number alone."""

    bench: Bench
    seed: int
    kinds: tuple[str, ...]
    on_s3: float = _ON_S3

    @cached_property
    def places(self) -> list[tuple[str, str]]:
        """All pairs of a kind and a point that it meets."""
        return [(kind, point) for kind in self.kinds for point in POINTS if self.bench.events(kind).get(point)]

    def round(self, number: int) -> Round:
        """Return a round: every pair of kind and point comes first once before any does again."""
        order = list(self.places)
        random.Random(f"{self.seed}/{number // len(order)}").shuffle(order)
        kind, point = order[number % len(order)]
        chance = random.Random(f"{self.seed}/{number}/round")
        events = self.bench.events(kind)
        strikes = [_strike(chance, kind, point, events[point])]
        while len(strikes) < _MOST_STRIKES and chance.random() < _AGAIN:
            point = chance.choice([own for own in POINTS if events.get(own)])
            strikes.append(_strike(chance, kind, point, max(1, events[point] // 2)))
        return Round(number, kind, "s3" if chance.random() < self.on_s3 else "disk", strikes)

    def remembers(self, own: Round, strike: Strike) -> bool:
        """Return whether a disturbed command takes its metrics from what is remembered."""
        chance = random.Random(f"{self.seed}/{own.number}/memory")
        return strike.point != _QUERY and chance.random() >= _FROM_NOTHING


def _strike(chance: random.Random, kind: str, point: str, most: int) -> Strike:
    # A search records a trial whose model fails, and goes on: no later command makes it again.
    faults = [own for own in POINTS[point].faults if (kind, own) != ("search", "error")]
    return Strike(point, chance.choice(["kill", *faults]), chance.randint(1, most))


def made(draw: Draw, number: int, variables: Mapping[str, str]) -> Round:
    """Make a round; ``variables`` point to the S3 server."""
    own, bench, begun = draw.round(number), draw.bench, time.monotonic()
    folder = bench.folder / "rounds" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.environ.update(variables)
    uri = f"{BUCKET}/{draw.seed}/{number}" if own.store == "s3" else str(folder / "run")
    there = bench.begin(own.kind, folder, uri)
    arguments = bench.arguments(own.kind, uri)
    for place, strike in enumerate(own.strikes):
        plan = Plan(str(folder), strike.point, strike.fault, strike.nth)
        memory = bench.memory if draw.remembers(own, strike) else None
        ended = server.forked(partial(server.command, arguments, plan, memory=memory), folder)
        strike.hit = (folder / "fired").exists()
        heard(own, strike, ended, folder, place)
        own.wrong += wrong(ended, {CODES[strike.fault]}) if strike.hit else []
    conclude(own, bench, uri, folder, there, variables)
    own.seconds = round(time.monotonic() - begun, 1)
    return own


def heard(own: Round, strike: Strike, ended: server.Ended, folder: Path, place: int) -> None:
    """Note how a disturbed command ended, and keep what it said."""
    strike.code, own.hung = ended.code, own.hung or ended.code is None
    lines = [line for line in ended.said.splitlines() if line.strip()]
    strike.message = lines[-1][:300] if lines and ended.code not in (0, -9) else ""
    (folder / f"said{place}").write_text(ended.said)
    (folder / "fired").unlink(missing_ok=True)


def conclude(own: Round, bench: Bench, uri: str, folder: Path, there: list[str], variables: Mapping[str, str]) -> None:
    """Run the command of a round once more, and examine the run."""
    arguments, undisturbed = bench.arguments(own.kind, uri), bench.undisturbed(own.kind)
    last = server.forked(lambda: server.command(arguments, Plan(str(folder)), memory=bench.memory), folder)
    own.hung = own.hung or last.code is None
    if last.code != 0 or "Traceback" in last.said:
        own.wrong.append(f"the same command again ended with {last.code}: {last.said[-300:]}")
    (folder / "said").write_text(last.said)
    examined = server.forked(lambda: oracle.examine(uri, folder, undisturbed, there), folder)
    if examined.code == 0:
        found = json.loads((folder / "found.json").read_text())
        own.lost, own.twice = found["lost"], found["twice"]
        own.wrong += [f"a whole file counts as damaged: {name}" for name in found["aside"]]
        own.wrong += [f"{name} is left" for name in found["left"]]
    else:
        own.lost = [f"the run cannot be read: {examined.said[-300:]}"]
    if own.store == "s3":
        _empty(variables["AWS_ENDPOINT_URL"])
    if not own.is_bad:
        shutil.rmtree(folder, ignore_errors=True)


def _empty(endpoint: str) -> None:
    """Empty the S3 server: it lists all that it holds at every listing."""
    for method, path in (("POST", "moto-api/reset"), ("PUT", BUCKET.removeprefix("s3://"))):
        with urlopen(Request(f"{endpoint}/{path}", method=method)):
            pass


def wrong(ended: server.Ended, right: set[int]) -> list[str]:
    """Return what a disturbed command should not have done; ``right`` has the exit codes that it may have."""
    found = []
    if ended.code not in (*right, None):
        found.append(f"exit code {ended.code} where {' or '.join(map(str, sorted(right)))} is right")
    if "Traceback (most recent call last)" in ended.said:
        found.append(f"traceback: {ended.said.strip().splitlines()[-1][:200]}")
    if "did not expect this" in ended.said:
        found.append(f"unforeseen: {ended.said[-300:]}")
    errors = [line for line in ended.said.splitlines() if line.startswith("error:")]
    if ended.code == 1 and len(errors) != 1:
        found.append(f"{len(errors)} errors are said")
    if ended.code in (130, 143, -2, -15) and "run the same command again" not in ended.said:
        found.append("it ends without a word")
    return found


def series(make: Callable[[int], Round], known: list[dict[str, Any]], kills: int) -> Iterator[Round]:
    """Yield new rounds, made by their numbers, until so many kills have hit, those of the known rounds included."""
    n_hits, number = sum(strike["hit"] for own in known for strike in own["strikes"]), len(known)
    while n_hits < kills:
        own = make(number)
        n_hits += own.hits
        number += 1
        yield own


def as_json(own: Round) -> dict[str, Any]:
    """Return a round as JSON, without what is not worth saying."""
    return {name: value for name, value in asdict(own).items() if value is not False and value != []}
