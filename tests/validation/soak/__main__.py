"""The command of the suite."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from tests.validation import soak
from tests.validation.soak import behind_ray, rounds, server, table
from tests.validation.soak.kinds import KINDS, of_tests, prepare

_FEW = 20
"""Kills for which nothing is prepared that pays in a long series."""


def _write(state: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(state, indent=0))
    os.replace(part, out)


def run() -> None:
    """Make rounds until enough kills have hit, and print the table."""
    parser = argparse.ArgumentParser(description=soak.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--behind-ray", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--part", choices=("all", "here", "ray"), default="all")
    parser.add_argument("--disk", action="store_true", help="no S3, and so no server")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    states = {part: _state(asked, part) for part in ("here", "ray")}
    if not asked.table:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the S3 server ends, too
        _make(asked, states)
    here, behind = (states[part]["rounds"] for part in ("here", "ray"))
    for found in filter(None, (here, behind)):
        print(table.table(found), table.coverage(found), table.problems(found), sep="\n\n")


def _file(asked: argparse.Namespace, part: str) -> Path:
    out: Path = asked.out
    return out if part == "here" else out.with_suffix(".ray.json")


def _state(asked: argparse.Namespace, part: str) -> dict[str, Any]:
    path = _file(asked, part)
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rounds": []}
    if state.setdefault("seed", asked.seed) != asked.seed or state.setdefault("only", asked.only) != asked.only:
        raise SystemExit(f"{path} is of another seed or other kinds; name another file")
    return state


def _make(asked: argparse.Namespace, states: dict[str, dict[str, Any]]) -> None:
    """Make the rounds that are missing, and write each to its file."""
    server.load()
    kinds = tuple(name for name in KINDS if not asked.only or name in asked.only.split(","))
    folder = Path(tempfile.gettempdir()) / f"soak-{asked.out.resolve().parent.name}-{asked.out.stem}"
    folder.mkdir(exist_ok=True)
    bench, on_ray = rounds.Bench(folder), rounds.Bench(folder / "ray", is_on_ray=True)
    if asked.kills > _FEW:
        for name in ("scoring", "answering"):
            server.forked(partial(rounds.quietly, prepare, name, folder / "inputs"), folder)
        server.warm(bench.inputs("scoring") / "model", bench.inputs("answering") / "bert")
    with nullcontext({}) if asked.disk else of_tests("buckets:s3_server")() as variables:
        here, behind = states["here"]["rounds"], states["ray"]["rounds"]
        shares = {"on_s3": 0.0} if asked.disk else {}
        draw = rounds.Draw(bench, asked.seed, kinds, **shares)
        rays = behind_ray.Rays(on_ray, asked.seed, **shares)
        made = {
            "here": rounds.series(
                partial(rounds.made, draw, variables=variables), here, asked.kills - asked.behind_ray
            ),
            "ray": rounds.series(partial(rays.made, variables=variables), behind, asked.behind_ray),
        }
        for part in [asked.part] if asked.part != "all" else list(made):
            for own in made[part]:
                states[part]["rounds"].append(rounds.as_json(own))
                _write(states[part], _file(asked, part))
                print(table.problems([states[part]["rounds"][-1]]), end="\n" if own.is_bad else "", flush=True)


if __name__ == "__main__":
    run()
