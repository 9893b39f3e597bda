"""Settings: shares of labels among the demonstrations, and the resulting number of demonstrations of each label."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from biaseval.errors import InputError, first_of, refuse
from biaseval.spec import MajorityBiasSpec, SimplexSpec

BINARY_11 = tuple((tenths / 10, (10 - tenths) / 10) for tenths in range(11))
"""Two labels: the first has no demonstrations, then a tenth more in each setting (P2, BoolQ and RTE)."""

TERNARY_15 = tuple(
    (first / 4, second / 4, third / 4)
    for first, second, third in (
        *((0, 0, 4), (4, 0, 0), (0, 4, 0)),
        *((0, 1, 3), (0, 3, 1), (1, 0, 3), (3, 0, 1), (3, 1, 0), (1, 3, 0)),
        *((1, 1, 2), (1, 2, 1), (2, 1, 1)),
        *((2, 0, 2), (0, 2, 2), (2, 2, 0)),
    )
)
"""Three labels, in P2's order: one alone, three quarters and a quarter, one with a half, two with a half each."""

_MOST_SETTINGS = 1000


@dataclass(frozen=True)
class Setting:
    """One choice of shares."""

    number: int
    """The position in the grid, 0-based."""
    name: str
    """The percentages in the order of the labels, such as ``30/70``."""
    labels: tuple[str, ...]
    shares: tuple[float, ...]
    counts: tuple[int, ...]
    """Demonstrations of each label."""
    counts_asked: tuple[int, ...]
    """The number of demonstrations of each label in the full prompt; above ``counts`` if there are too few examples."""

    def row(self) -> dict[str, object]:
        """Return the row of the ``settings`` table."""
        return {
            "setting": self.name,
            "number": self.number,
            "labels": list(self.labels),
            "shares": list(self.shares),
            "counts": list(self.counts),
            "counts_asked": list(self.counts_asked),
        }


def settings_of(spec: MajorityBiasSpec, labels: Sequence[str], available: Mapping[str, int]) -> list[Setting]:
    """Return the settings of a run, in the order of its grid; ``available``: possible demonstrations of each label.

    Raises:
        InputError: the grid does not fit the labels, or a label has too few examples for a setting; the message lists
            the needed and the available numbers. With ``data.on_shortage: reduce`` a setting's prompt is shortened
            instead, see `reduced_counts`.
    """
    n_demos = spec.prompt.n_demos
    found: list[Setting] = []
    problems: list[str] = []
    there = [available.get(label, 0) for label in labels]
    for number, shares in enumerate(_grid(spec.proportions, labels)):
        name, asked = setting_name(shares), largest_remainder(shares, n_demos)
        counts: tuple[int, ...] | None = asked
        if any(count > n_there for count, n_there in zip(asked, there, strict=True)):
            counts = reduced_counts(shares, n_demos, there) if spec.data.on_shortage == "reduce" else None
        if counts is None:
            short = [
                f"{count} of {label!r} and data.train has {n_there}"
                for count, n_there, label in zip(asked, there, labels, strict=True)
                if count > n_there
            ]
            problems.append(f"setting {name} needs {', '.join(short)}")
        else:
            found.append(Setting(number, name, tuple(labels), shares, counts, asked))
    if problems:
        remedy = "no shorter prompt keeps its shares; add examples, or leave the setting out"
        if spec.data.on_shortage == "error":
            remedy = "add examples, lower prompt.n_demos, or set data.on_shortage: reduce"
        shown = first_of(problems, "proportions: ", "settings")
        raise InputError.of([f"{problem}; {remedy}" for problem in shown])
    return found


def largest_remainder(shares: Sequence[float], total: int) -> tuple[int, ...]:
    """Return whole numbers in proportion to ``shares`` that sum to ``total``.

    Each gets the whole part of its quota. The rest goes one by one to the largest remainders; of equal remainders, the
    earlier one comes first.
    """
    quotas = [share * total for share in shares]
    counts = [math.floor(quota) for quota in quotas]
    # Rounded, because 0.93 * 50 and 0.07 * 50 have equal remainders, but in float64 only almost.
    order = sorted(range(len(quotas)), key=lambda index: (round(counts[index] - quotas[index], 6), index))
    for index in order[: total - sum(counts)]:
        counts[index] += 1
    return tuple(counts)


def reduced_counts(shares: Sequence[float], total: int, available: Sequence[int]) -> tuple[int, ...] | None:
    """Return the counts of the longest prompt that keeps the shares with the available examples.

    The whole prompt gets shorter. It has the largest number of demonstrations, at most ``total``, whose counts by
    `largest_remainder` are all available. Each label with a demonstration in the full prompt must keep at least one.
    None: there is no such prompt.
    """
    asked = largest_remainder(shares, total)
    for shorter in range(total, 0, -1):
        counts = largest_remainder(shares, shorter)
        fits = all(count <= n_there for count, n_there in zip(counts, available, strict=True))
        if fits and all(bool(count) == bool(full) for count, full in zip(counts, asked, strict=True)):
            return counts
    return None


def same_counts(settings: Sequence[Setting]) -> list[list[str]]:
    """Return the names of settings with equal counts, in groups of at least two, in the order of the grid."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for setting in settings:
        groups.setdefault(setting.counts, []).append(setting.name)
    return [names for names in groups.values() if len(names) > 1]


def setting_name(shares: Sequence[float]) -> str:
    """Return the percentages joined by ``/``, each with at most one decimal: ``30/70``, ``33.3/66.7``."""
    return "/".join(f"{100 * share:.1f}".removesuffix(".0") for share in shares)


def _grid(
    proportions: str | SimplexSpec | Sequence[Mapping[str, float]], labels: Sequence[str]
) -> list[tuple[float, ...]]:
    grids = {"binary_11": BINARY_11, "ternary_15": TERNARY_15}
    if isinstance(proportions, str):
        grid = grids[proportions]
        if len(grid[0]) != len(labels):
            raise InputError(
                f"proportions: {proportions} is for {len(grid[0])} labels and the data has {_listed(labels)}; "
                "use {simplex: 0.25}, or a list of label to share"
            )
        return list(grid)
    if isinstance(proportions, SimplexSpec):
        n_steps = round(1 / proportions.simplex)
        n_settings = math.comb(n_steps + len(labels) - 1, n_steps)
        if n_settings > _MOST_SETTINGS:
            raise InputError(
                f"proportions: the step {proportions.simplex:g} makes {n_settings:,} settings of {len(labels)} labels; "
                f"use a larger step (at most {_MOST_SETTINGS:,} settings)"
            )
        return [tuple(count / n_steps for count in counts) for counts in _compositions(n_steps, len(labels))]
    problems = [
        f"proportions: setting {number} has the label {label!r} and the data has {_listed(labels)}; mend it"
        for number, row in enumerate(proportions)
        for label in row
        if label not in labels
    ]
    listed = [tuple(float(row.get(label, 0)) for label in labels) for row in proportions]
    first: dict[str, int] = {}
    for number, shares in enumerate(listed):
        name = setting_name(shares)
        if name in first and not problems:
            problems.append(
                f"proportions: settings {first[name]} and {number} are both {name} (in percent, to one decimal); "
                "keep one"
            )
        first.setdefault(name, number)
    refuse(first_of(problems))
    return listed


def _compositions(total: int, n_parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide ``total`` among ``n_parts``, in ascending order."""
    if n_parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, n_parts - 1):
            yield (first, *rest)


def _listed(labels: Sequence[str]) -> str:
    return f"{len(labels)}: {', '.join(map(repr, labels))}"
