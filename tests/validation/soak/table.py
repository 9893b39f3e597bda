"""What the rounds came to, as the table of the documentation and as lists of what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

NAMES = {
    "kill": "SIGKILL", "stop": "SIGTERM", "interrupt": "SIGINT (Ctrl-C)", "full": "full disk, or S3 refuses a write",
    "error": "error of torch",
}  # fmt: skip

Rounds = Sequence[Mapping[str, Any]]


def table(rounds: Rounds) -> str:
    """Return a row for each fault, and one for all, in Markdown."""
    faults = list(dict.fromkeys([*NAMES, *sorted({own["fault"] for own in rounds})]))
    rows = [_row(NAMES.get(fault, fault), [own for own in rounds if own["fault"] == fault]) for fault in faults]
    head = "| fault | rounds | hits | lost | twice | wrong end | hangs |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *filter(None, rows), _row("all", rounds)])


def _row(name: str, rounds: Rounds) -> str:
    if not rounds:
        return ""
    counts = [sum(bool(own.get(key)) for own in rounds) for key in ("hit", "lost", "twice", "wrong", "hung")]
    return f"| {name} | {len(rounds):,} | " + " | ".join(f"{count:,}" for count in counts) + " |"


def coverage(rounds: Rounds) -> str:
    """Return how often the rarest pairs of kind and point were hit, and the points and kinds that were hit least."""
    lines = []
    for keys in (("kind",), ("point",), ("kind", "point")):
        hits = Counter(tuple(own[key] for key in keys) for own in rounds if own["hit"])
        least = sorted(hits.items(), key=lambda pair: pair[1])[:3]
        shown = "; ".join(f"{', '.join(place)} {count}" for place, count in least)
        lines.append(f"{' and '.join(keys)}: {len(hits)}, hit least: {shown}")
    return "\n".join(lines)


def problems(rounds: Rounds) -> str:
    """Return a line for each bad round."""
    lines = []
    for own in rounds:
        said = [f"{key}: {'; '.join(own[key][:3])}" for key in ("lost", "twice", "wrong") if own.get(key)]
        if said or own.get("hung"):
            place = f"{own['number']} {own['kind']}, {own['point']}, {own['fault']} {own['nth']}, {own['store']}"
            lines.append(f"{place}: {' | '.join(said) or 'hangs'}")
    return "\n".join(lines)
