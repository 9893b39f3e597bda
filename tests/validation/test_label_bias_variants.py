"""The readings of P1's code and of P1's text, of the same scores, equal NumPy's."""

from pathlib import Path

import numpy as np
import pytest

from tests.labelplans import Plan
from tests.relation import Relations
from tests.validation.label_bias_variants import TOLERANCE, VARIANTS, by_numpy, largest_difference

pytestmark = pytest.mark.slow

TASKS = {"short": {"A": 1, "B": 1}, "long": {"A b": 3, "C d": 3, "e": 3}, "unequal": {"no": 1, "not sure": 2, "yes": 1}}
"""Tasks to their labels, and the tokens of each."""


def scored(normalization: str, eos: bool) -> Plan:
    """Return a plan with zero and four demonstrations, the same scores whatever the normalization."""
    rng, plan = np.random.default_rng(0), Plan(normalization=normalization, eos=eos)
    plan.spec["calibration"] = ["cc", "dc", "looc", "cc_softmax", "dc_softmax"]
    for task, n_tokens in TASKS.items():
        labels = list(n_tokens)
        plan.task(task, labels)
        for n_demos in (0, 4):
            given = {"main": 20, "bias_score": 8, "cc": 3, "dc": 5, "looc": n_demos}
            for purpose in (purpose for purpose, n in given.items() for _ in range(n)):
                gold = None if purpose in ("cc", "dc") else str(rng.choice(labels))
                plan.prompt(task, purpose, gold, [(-rng.exponential(1, n_tokens[one] + 1)).tolist() for one in labels],
                            n_demos=n_demos)  # fmt: skip
    return plan


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_readings_of_code_and_text_equal_numpy(variant: str, tmp_path: Path) -> None:
    normalization, eos, methods = VARIANTS[variant]
    run = scored(normalization, eos).write(tmp_path)
    found = Relations(run).rows("from label_bias_by_task")
    expected = by_numpy(run, normalization, eos, methods)
    assert len(expected) == len(TASKS) * (3 + 4)
    assert largest_difference(expected, found) < TOLERANCE
    plain = {key: own["bias_score"] for key, own in expected.items() if key[-1] == "none"}
    for other in ("mean", "sum"):
        of_other = by_numpy(run, other, eos, ("none",))
        same = {key[0] for key, value in plain.items() if abs(of_other[key]["bias_score"] - value) < TOLERANCE}
        assert same == _alike(normalization, other, eos)


def _alike(normalization: str, other: str, eos: bool) -> set[str]:
    """Return the tasks in which two normalizations are one: of one token, or where the rule takes the other."""
    one_token = set() if eos else {"short"}
    if normalization == other:
        return set(TASKS)
    if normalization == "where_unequal":
        return one_token | ({"unequal"} if other == "mean" else {"short", "long"})
    return one_token
