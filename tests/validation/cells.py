"""A cell: simulated runs of one kind, size and truth. All that the study knows of a kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

import pyarrow as pa


@dataclass(frozen=True)
class Cell:
    """Simulated runs of one size and one truth."""

    kind: str
    """Of measurement; cells of a kind have the same names of sizes, and stand in the same tables."""
    effect: str
    """What is true of the runs."""
    sizes: Mapping[str, int]
    n_runs: int
    """At least so many: parts are whole."""
    n_per_part: int
    """Runs that are simulated at a time, and kept. It does not depend on ``n_runs``: more of them only add parts."""
    judged: Callable[[int, list[int]], pa.Table]
    """Simulates so many runs from a seed, and returns what the marts say of them: rows of
    `tests.validation.outcomes.OUTCOMES`."""

    @property
    def name(self) -> str:
        """Names its folder."""
        return f"{self.kind}-{self.effect}-{'x'.join(map(str, self.sizes.values()))}"

    @property
    def parts(self) -> range:
        """The numbers of its parts."""
        return range(ceil(self.n_runs / self.n_per_part))

    @property
    def place(self) -> dict[str, object]:
        """The columns of tables that say which cell it is."""
        return {"kind": self.kind, "effect": self.effect, **self.sizes}
