"""What trials share: files that come out the same whatever the searched keys are; and what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.runs import describe
from biaseval.search.kind import SEARCH, _batches
from biaseval.search.shared_work import own_readers, varies
from biaseval.spec import SearchSpec
from biaseval.units import Unit
from tests.searches import BASE
from tests.test_search_presets import MIXINS
from tests.test_search_spec import PENALTY, QA, SCALE, loaded

LORA = {**BASE, "lora": {}}


def _shares(search: SearchSpec, file: str, **work: Any) -> bool:
    return not varies(search)(Unit(0, 1, (file,), work), file)


@pytest.mark.parametrize(
    ("base", "key", "shares"),
    [
        (LORA, "lora.r", True),
        (LORA, "scoring.eos", True),
        # Adapters make other parts of the plan, and so the scores of the base model other files.
        (BASE, "lora.r", False),
        # Rows that a setting trains on are not held out.
        ({**LORA, "held_out": True}, "lora.n_examples", False),
        ({**LORA, "held_out": True}, "lora.r", True),
        (BASE, "prompt.demo_sets", False),
    ],
)
def test_scores_of_the_base_model_are_shared_where_they_are_the_same(
    tmp_path: Path, base: dict[str, Any], key: str, shares: bool
) -> None:
    domain = [True, False] if key == "scoring.eos" else [1, 2]
    search = loaded(tmp_path, spec=base, search={key: domain})
    assert _shares(search, "label_scores/part-00000.parquet") is shares
    assert _shares(search, "adapted_scores/part-00000.parquet") is (key == "scoring.eos")


@pytest.mark.parametrize(
    ("key", "domain", "standard", "bias_model", "own"),
    [
        (SCALE, [0.1, 0.2], True, True, ["bert+learned_mixin(word_dist)", "bert+learned_mixin(ans_len)"]),
        ("train.bias_model.max_steps", [5, 6], True, False, None),
        # Another number of readers, whose files are numbered.
        ("train.bias_model.tfidf", [True, False], False, False, None),
        ("train.learning_rate", [0.1, 0.2], False, False, None),
    ],
)
def test_readers_are_shared_where_a_key_does_not_change_them(
    tmp_path: Path, key: str, domain: list[Any], standard: bool, bias_model: bool, own: list[str] | None
) -> None:
    search = loaded(tmp_path, spec=MIXINS, search={key: domain})
    file = "trained_models/part-00000.parquet"
    assert _shares(search, file, model="bert") is standard
    assert _shares(search, file, model="bert+bias_model(ans_len)") is bias_model
    assert not _shares(search, file, model="bert+learned_mixin(ans_len)")
    assert own is None or own_readers(search, [key]) == own


def test_keys_that_change_no_reader_are_refused(tmp_path: Path) -> None:
    standard = {**QA, "train": {**QA["train"], "methods": ["standard"], "biases": []}}
    for key in (PENALTY, "train.bias_model.max_steps"):
        search = loaded(tmp_path, spec=standard, search={key: [1, 2]})
        with pytest.raises(
            InputError, match=rf"search.{key}: no reader of train.methods changes with it; leave it out"
        ):
            SEARCH.read(search)
    stopped = loaded(tmp_path, spec=QA, search={"bootstrap.sample": [9, 10]}, stop_early={"grace_steps": 3})
    with pytest.raises(InputError, match="stop_early: no trial trains a reader that is watched; leave it out"):
        describe(stopped)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trials": 10, "batch": 4}, [range(4), range(4, 8), range(8, 10)]),
        # Nothing is learned: the first batch tells whether anything works, and the others need not wait for each other.
        ({"trials": 10, "batch": 4, "algorithm": "random"}, [range(4), range(4, 10)]),
        ({"trials": 3, "batch": 4, "algorithm": "random"}, [range(3)]),
    ],
)
def test_trials_come_in_batches_where_something_is_learned(
    tmp_path: Path, changes: dict[str, Any], expected: list[range]
) -> None:
    search = loaded(tmp_path, **changes)
    assert list(_batches(search, search.n_trials)) == expected
