import json
from pathlib import Path

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.prompting.calibration import CC_INPUTS, domain_context, split_by_template


def test_template_splits_equal_the_published_code(shared: Path) -> None:
    cases = json.loads((shared / "golden/superni/expected/metric_unit_cases.json").read_text())["template_split"]
    assert len(cases) == 5
    for case in cases:
        for text, parts in zip(case["inputs"], case["parts"], strict=True):
            assert split_by_template(case["prefixes"], text) == parts


def test_content_free_inputs_are_the_published_ones_and_draws_are_seeded() -> None:
    assert CC_INPUTS == ("N/A", "", "[MASK]")
    words = domain_context("t", "{INPUT}", [f"word{i} other{i}" for i in range(50)])
    first, again, other = (words.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 20


def test_random_inputs_have_the_mean_length_and_words_of_each_slot() -> None:
    inputs = ["Q: One two three A: four", "Q: five six A: Seven eight nine"]
    words = domain_context("t", "Q: {INPUT} A: {INPUT}", inputs)
    assert words.lengths == (0, 3, 0, 2)
    for text in words.draw(np.random.default_rng(0)):
        assert text.startswith("Q: ")
        first, second = text.removeprefix("Q: ").split(" A: ")
        assert sorted(set(first.split())) == sorted(first.split())
        assert set(first.split()) <= {"one", "two", "three", "five", "six"}
        assert set(second.split()) <= {"four", "seven", "eight", "nine"}
        assert (len(first.split()), len(second.split())) == (3, 2)


def test_inputs_that_lack_a_literal_part_give_no_words_and_are_counted() -> None:
    words = domain_context("t", "Q: {INPUT} A: {INPUT}", ["Q: a A: b", "Q: c A: d", "no part here"])
    assert words.n_unfit == 1
    assert "here" not in " ".join(word for bag in words.bags for word in bag)
    with pytest.raises(InputError, match=r"t: 2 of 3 inputs lack a literal part of the template"):
        domain_context("t", "Q: {INPUT}", ["Q: a", "b", "c"])
