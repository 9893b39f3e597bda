"""Which choice of a doc is right, of all that a task's configuration may say of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from biaseval.outputs.harness_docs import DocError, read_doc

LOGPROBS = (-2.0, -1.0, -3.0)


def record(target: str, choices: Sequence[str], doc: dict[str, Any] | None = None, **further: Any) -> dict[str, Any]:
    """Return a line whose second choice is the most likely."""
    return {
        "doc_id": 0,
        "doc": doc or {},
        "target": target,
        "arguments": {f"gen_args_{n}": {"arg_0": "Q:", "arg_1": f" {choice}"} for n, choice in enumerate(choices)},
        "filtered_resps": [[str(logprob), "False"] for logprob in LOGPROBS[: len(choices)]],
        **further,
    }


@pytest.mark.parametrize(
    ("key", "doc", "target", "choices", "acc", "gold"),
    [
        ("label", {"label": 2}, "2", ["a", "b", "c"], None, 2),
        ("label", {"label": True}, "True", ["a", "b", "c"], None, 1),
        ("label", {"label": "2"}, "2", ["1", "2", "3"], None, 1),  # text that looks like an index
        ("label", {"label": [1]}, "[1]", ["a", "b", "c"], None, 1),
        ("label", {"label": ["c"]}, "['c']", ["a", "b", "c"], None, 2),
        (0, {}, "0", ["a", "b", "c"], None, 0),
        ("{{x}}", {}, "2", ["1", "2", "3"], None, 2),  # of a template digits are an index
        ("{{x}}", {}, "c", ["a", "b", "c"], None, 2),
        ("{{x}}", {}, "[1]", ["a", "b", "c"], None, 1),
        ("{{x}}", {}, "[a", ["b", "[a", "c"], None, 1),
        ("{{x}}", {}, "[a]", ["b", "[a]", "c"], None, 1),
        ("def f(doc): ...", {}, "c", ["a", "b", "c"], None, 2),
        ("def f(doc): ...", {}, "1", ["1", "0"], 1.0, 1),  # an index, as what is predicted is right
        ("def f(doc): ...", {}, "1", ["1", "0"], 0.0, 0),  # a choice, as it is not
        (None, {}, "2", ["a", "b", "c"], 0.0, 2),
    ],
)
def test_the_right_choice_is_what_the_configuration_and_the_accuracy_say(
    key: object, doc: dict[str, Any], target: str, choices: list[str], acc: float | None, gold: int
) -> None:
    further = {} if acc is None else {"acc": acc}
    found = read_doc("line 1", record(target, choices, doc, **further), {"doc_to_target": key})
    assert (found.gold, found.predicted, found.choices) == (gold, 1, tuple(choices))


@pytest.mark.parametrize(
    ("doc", "acc", "gold"), [({"right": 2}, None, 2), ({}, 1.0, 1), ({}, None, None), ({}, 0.0, None)]
)
def test_where_choices_are_contexts_a_field_or_a_hit_says_it(
    doc: dict[str, Any], acc: float | None, gold: int | None
) -> None:
    line = record("end", ["end"] * 3, doc, **({} if acc is None else {"acc": acc}))
    for number, request in enumerate(line["arguments"].values()):
        request["arg_0"] = f"context {number}"
    config = {"doc_to_text": "right", "doc_to_target": "def f(doc): ..."}
    if gold is None:
        with pytest.raises(DocError, match="does not tell which of the choices"):
            read_doc("line 1", line, config)
        return
    found = read_doc("line 1", line, config)
    assert (found.gold, found.prompt, found.choices) == (gold, None, ("context 0", "context 1", "context 2"))


def test_choices_that_are_scored_again_are_not_choices_and_contexts_may_be_empty() -> None:
    line = record("1", ["a", "b"], acc=1.0, acc_mutual_info=0.0)
    again = {f"gen_args_{n}": {"arg_0": "", "arg_1": f" {choice}"} for n, choice in enumerate("ab", start=2)}
    line["arguments"] |= again
    line["filtered_resps"] += [["-0.1", "True"], ["-9.0", "False"]]
    assert read_doc("line 1", line, {"doc_to_target": "{{x}}"}).logprobs == (-2.0, -1.0)
    line = record("0", ["good", "bad"])
    for request in line["arguments"].values():
        request["arg_0"] = ""
    assert read_doc("line 1", line, {"doc_to_target": 0, "target_delimiter": ""}).choices == (" good", " bad")


def test_a_target_that_is_none_of_the_choices_and_a_score_above_nothing_are_refused() -> None:
    for target in ("3", "[]", "d"):
        with pytest.raises(DocError, match="is none of the choices"):
            read_doc("line 1", record(target, ["a", "b", "c"]), {"doc_to_target": "{{x}}"})
    line = record("0", ["a", "b"], filtered_resps=[["0.4", "False"], ["0.6", "False"]])
    with pytest.raises(DocError, match=r"hold 0\.4, which is no log-likelihood"):
        read_doc("line 1", line, {"doc_to_target": 0})
