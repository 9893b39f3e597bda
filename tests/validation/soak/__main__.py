"""The command of the suite."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before anything starts threads
    os.environ.setdefault(_name, "1")

from tests.buckets import s3_server
from tests.validation import soak
from tests.validation.soak import rounds, server, table
from tests.validation.soak.kinds import KINDS, prepare


def _write(state: dict[str, Any], out: Path) -> None:
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
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    state: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    if state.setdefault("seed", asked.seed) != asked.seed or state.setdefault("only", asked.only) != asked.only:
        parser.error(f"{asked.out} is of another seed or other kinds; name another file")
    here = state.setdefault("rounds", [])
    if not asked.table:
        server.load()
        kinds = tuple(name for name in KINDS if not asked.only or name in asked.only.split(","))
        folder = Path(tempfile.gettempdir()) / f"soak-{asked.out.resolve().parent.name}-{asked.out.stem}"
        bench = rounds.Bench(folder)
        for name in ("scoring", "answering"):
            server.forked(lambda name=name: rounds.quietly(prepare, name, folder / "inputs"), folder)
        server.warm(bench.inputs("scoring") / "model", bench.inputs("answering") / "bert")
        draw = rounds.Draw(bench, asked.seed, kinds)
        with s3_server() as variables:
            for own in rounds.series(draw, here, asked.kills - asked.behind_ray, variables):
                here.append(rounds.as_json(own))
                _write(state, asked.out)
                if own.is_bad:
                    print(table.problems([here[-1]]), flush=True)
    print(table.table(here), table.coverage(here), table.problems(here), sep="\n\n")


if __name__ == "__main__":
    run()
