"""The benchmark of training on a tiny model: both sides make the same steps; no test looks at how fast."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from biaseval.errors import BiasevalError, InputError
from biaseval.spec import WindowsSpec
from biaseval.training.features import question_features
from tests.bench.commands.training import cases
from tests.bench.reading import random_encoder, train_tokenizer
from tests.bench.training import SHAPES, Settings, generated_training, steps
from tests.bench.training.steps import GROUPED, OURS, OURS_PADDED, THEIRS, THEIRS_GROUPED, THEIRS_PADDED, Bench, Trained

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MAX_TOKENS, STRIDE, N_STEPS, N_QUESTIONS = 96, 32, 3, 32


@pytest.fixture(scope="module", autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.fixture(scope="module")
def settings() -> Settings:
    windows = WindowsSpec(max_tokens=MAX_TOKENS, stride=STRIDE)
    sizes = {"n_questions": 60, "part_questions": 25, "n_unit_steps": 4, "unit_every": 2}
    return Settings(cases=(("tiny", 1),), n_steps=N_STEPS, n_rounds=2, windows=windows, **sizes)


@pytest.fixture(scope="module")
def questions() -> pa.Table:
    return generated_training(N_QUESTIONS)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, questions: pa.Table, settings: Settings) -> Bench:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = train_tokenizer(questions, SHAPES["tiny"].vocabulary)
    random_encoder(SHAPES["tiny"], "float32", "cpu").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    windows = question_features(tokenizer, questions, max_tokens=MAX_TOKENS, stride=STRIDE)
    assert windows.num_rows > 16 * N_STEPS
    return Bench(folder, windows.slice(0, 16 * N_STEPS), settings)


@pytest.fixture(scope="module")
def trained(bench: Bench) -> dict[str, Trained]:
    """Return what comes of each way without dropout, at a rate that makes losses depend on the steps before."""
    return {name: way() for name, way in bench.ways(1e-3, has_dropout=False).items()}


def test_both_sides_make_as_many_steps_of_the_same_windows(bench: Bench, trained: dict[str, Trained]) -> None:
    lengths = [len(own) for own in bench.windows["token_ids"].to_pylist()]
    assert len(set(lengths)) > 5
    for name in (OURS, THEIRS, OURS_PADDED, THEIRS_PADDED):
        assert trained[name].n_tokens == trained[OURS].n_tokens
    for name in (GROUPED, THEIRS_GROUPED):
        by_length = [sum(sorted(lengths)[first : first + 16]) for first in range(0, len(lengths), 16)]
        assert sorted(trained[name].n_tokens) == by_length
        assert trained[name].n_tokens != trained[OURS].n_tokens
    assert all(len(own.losses) == len(own.n_tokens) == N_STEPS for own in trained.values())
    assert all(sum(own.n_tokens) == sum(lengths) for own in trained.values())


def test_losses_agree_where_padding_takes_part(trained: dict[str, Trained]) -> None:
    ours, theirs = trained[OURS_PADDED].losses, trained[THEIRS_PADDED].losses
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert max(ours) - min(ours) > 0.01, "steps change what comes behind them"


def test_sides_that_differ_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= bench.largest_difference() < 1e-4
    monkeypatch.setattr(steps, "_TOLERANCE", -1.0)
    with pytest.raises(BiasevalError, match="losses of biaseval and Trainer differ by"):
        bench.largest_difference()
    monkeypatch.setattr(steps, "_example", lambda row, pad_id, padded_to: {**example(row), "input_ids": [1, 2]})
    with pytest.raises(BiasevalError, match="not shown the same windows"):
        bench.largest_difference()


def example(row: dict[str, Any]) -> dict[str, Any]:
    return {"token_type_ids": [0, 0], "attention_mask": [1, 1], "start_positions": 0, "end_positions": 0}


@pytest.mark.parametrize("text", ["", "base:1", "tiny:0", "tiny:x", "tiny:1,"])
def test_cases_are_shapes_with_threads(text: str) -> None:
    assert cases("2x128:1,4x256:12") == (("2x128", 1), ("4x256", 12))
    with pytest.raises(InputError, match="is not SHAPE:THREADS"):
        cases(text)
