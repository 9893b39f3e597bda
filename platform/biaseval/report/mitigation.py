"""What runs with adapters tell of every kind: the costs of mitigation, and how the adapters were trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from biaseval.report.findings import Adaptation, Row
from biaseval.report.methods import method_name, method_order

_SAME = 1e-9


def cost_sentence(costs: Sequence[Row]) -> str:
    """Return what each method needed over the whole run; a calibration with LoRA needs what both do.

    Args:
        costs: rows of `Adaptation.costs`, of one way of predicting.
    """
    told = []
    for method in sorted({row["method"] for row in costs}, key=method_order):
        rows = [row for row in costs if row["method"] == method]
        if "+" in method:
            continue
        tokens = f"{sum(row['tokens'] for row in rows):,} tokens"
        if method == "lora":
            n_adapters = sum(row["n_adapters"] for row in rows)
            size = rows[0]["trained_parameters"]
            each = "" if size is None else f" of {size:,} parameters"
            what = f"{tokens} of training for {_count(n_adapters, 'adapter')}{each}"
        else:
            what = f"{tokens} of {_count(sum(row['n_prompts'] for row in rows), 'calibration prompt')}"
        is_timed = all(row["seconds"] is not None for row in rows)
        time = f" in {sum(row['seconds'] for row in rows):,.1f} s" if is_timed else ""
        told.append(f"{method_name(method)} {what}{time}")
    return f"Beyond scoring the rows, mitigation needed in all: {'; '.join(told)}."


def cost_groups(adaptation: Adaptation, heading: Callable[[Row], object]) -> list[tuple[object, list[Row]]]:
    """Return the costs under the heading of each, in their order."""
    groups: dict[object, list[Row]] = {}
    for row in adaptation.costs:
        groups.setdefault(heading(row), []).append(row)
    return list(groups.items())


def training_sentence(training: Sequence[Row]) -> str:
    """Return how the loss went over the whole run; rows are those of `Adaptation.training`."""
    n_adapters = sum(row["n_adapters"] for row in training)
    first, last = (_mean_loss(training, end) for end in ("first_loss", "last_loss"))
    steps = sorted({row["n_steps"] for row in training})
    many = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    if steps[-1] == 1:
        return (
            f"The {_count(n_adapters, 'adapter')} were trained for one step each, at a mean loss of {first:.4f} nats."
        )
    verb = "stays the same" if abs(last - first) <= _SAME else "falls" if last < first else "rises"
    return (
        f"The mean training loss of {_count(n_adapters, 'adapter')} {verb} from {first:.4f} nats at the first step to "
        f"{last:.4f} at the last ({many} steps each)."
    )


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


def _mean_loss(training: Sequence[Row], end: str) -> float:
    weighted = sum(row[end] * row["n_adapters"] for row in training)
    return float(weighted / sum(row["n_adapters"] for row in training))


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
