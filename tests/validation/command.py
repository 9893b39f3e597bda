"""Simulates runs whose truth is known and says how often verdicts are wrong and intervals miss it.

    python jobs/validate.py --out runs/validation

Loads no model: the simulated answers go through the SQL of real runs. Kill it at any moment and repeat it: what is
there is kept, also where the SQL has changed since; then give another --out. Prints Markdown tables and writes them
beside the outcomes. About 3 hours on two cores with the default numbers of runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from biaseval.errors import BiasevalError
from biaseval.progress import say
from biaseval.store import Run
from tests.validation import KINDS
from tests.validation.study import simulate_missing, summary
from tests.validation.written import markdown


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/validation", help="where outcomes go (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=500, help="of each small cell (default: %(default)s)")
    parser.add_argument("--large-runs", type=int, default=150, help="of each large cell (default: %(default)s)")
    parser.add_argument("--cells", nargs="*", default=[], help="only those whose name begins so")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="another one needs another --out (default: %(default)s)")
    return parser.parse_args(arguments)


def main() -> None:
    """Simulate what is missing; print the tables and write them."""
    own = parse()
    out = Run.open(own.out)
    cells = [cell for kind in KINDS for cell in kind.cells(own.runs, own.large_runs)]
    chosen = [cell for cell in cells if not own.cells or cell.name.startswith(tuple(own.cells))]
    try:
        simulate_missing(out, chosen, own.seed, say, processes=own.processes)
    except BiasevalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    out.write_text("validation.md", markdown(summary(out, cells)))
    print(markdown(summary(out, chosen)))
