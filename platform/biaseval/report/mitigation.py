"""What runs with adapters tell of every kind: the costs of mitigation, and how the adapters were trained."""

from __future__ import annotations

from collections.abc import Callable

from biaseval.report.findings import Adaptation, Row


def cost_groups(adaptation: Adaptation, heading: Callable[[Row], object]) -> list[tuple[object, list[Row]]]:
    """Return the costs under the heading of each, in their order."""
    groups: dict[object, list[Row]] = {}
    for row in adaptation.costs:
        groups.setdefault(heading(row), []).append(row)
    return list(groups.items())


def training_caveats(adaptation: Adaptation) -> list[str]:
    """Return a sentence where the loss of adapters does not fall; none where there is one step only."""
    training = [row for row in adaptation.training if row["n_steps"] > 1]
    n_not_falling = sum(row["n_not_falling"] for row in training)
    if not n_not_falling:
        return []
    n_adapters = sum(row["n_adapters"] for row in training)
    return [
        f"The loss of {n_not_falling:,} of {_count(n_adapters, 'adapter')} is not lower at the last step than at the "
        "first. Each step has other examples, so that some may rise by chance; where most do, training did not help."
    ]


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
