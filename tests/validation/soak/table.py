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
SEVERAL = "two or three of them in a row"


def table(rounds: Rounds) -> str:
    """Return a row for each fault, and one for all, in Markdown."""
    found = [(_fault(own), own) for own in rounds]
    names = [*NAMES.values(), *sorted({fault for fault, _ in found} - {*NAMES.values(), SEVERAL}), SEVERAL]
    rows = [_row(name, [own for fault, own in found if fault == name]) for name in names]
    head = f"| fault | rounds | hits | lost | twice | wrong end | hangs | worst message |\n{'|---' * 8}|"
    return "\n".join([head, *filter(None, rows), _row("all", rounds, worst=False)])


def _fault(own: Mapping[str, Any]) -> str:
    faults = [strike["fault"] for strike in own["strikes"]]
    return NAMES.get(faults[0], faults[0]) if len(faults) == 1 else SEVERAL


def _row(name: str, rounds: Rounds, *, worst: bool = True) -> str:
    if not rounds:
        return ""
    counts = [len(rounds), sum(strike["hit"] for own in rounds for strike in own["strikes"])]
    counts += [sum(bool(own.get(key)) for own in rounds) for key in ("lost", "twice", "wrong", "hung")]
    return f"| {name} | " + " | ".join(f"{count:,}" for count in counts) + f" | {_worst(rounds) if worst else ''} |"


def _worst(rounds: Rounds) -> str:
    """Return the last line of a command whose end was wrong, or else the longest last line of a message."""
    bad = [own["wrong"][0] for own in rounds if own.get("wrong")]
    said = [strike.get("message", "") for own in rounds for strike in own["strikes"]]
    text = " ".join((bad or sorted(said, key=len) or [""])[-1].replace("|", "/").split())
    return f"{text[:100]} …" if len(text) > 100 else text


def coverage(rounds: Rounds) -> str:
    """Return how many kinds, points and pairs of them were hit, and which were hit least."""
    hits = [(own["kind"], strike["point"]) for own in rounds for strike in own["strikes"] if strike["hit"]]
    lines = []
    for name, places in (
        ("kinds", [kind for kind, _ in hits]),
        ("points", [point for _, point in hits]),
        ("pairs of kind and point", [", ".join(pair) for pair in hits]),
    ):
        counts = Counter(places).most_common()
        least = "; ".join(f"{place} {count}" for place, count in counts[-3:])
        lines.append(f"{name}: {len(counts)}, {sum(count > 2 for _, count in counts)} three times; least: {least}")
    return "\n".join(lines)


def problems(rounds: Rounds) -> str:
    """Return a line for each bad round."""
    lines = []
    for own in rounds:
        said = [f"{key}: {'; '.join(own[key][:3])}" for key in ("lost", "twice", "wrong") if own.get(key)]
        if said or own.get("hung"):
            struck = ", then ".join(
                f"{strike['point']}, {strike['fault']} {strike['nth']}" for strike in own["strikes"]
            )
            lines.append(
                f"{own.get('number', 0)} {own['kind']}, {own['store']}, {struck}: {' / '.join(said) or 'hangs'}"
            )
    return "\n".join(lines)
