"""Readers that several workers train, as processes on this machine: at every ZeRO stage the same as one does alone."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer
from biaseval.qa_models import WindowSettings
from biaseval.spec import InstructTrainingSpec
from biaseval.store import Run
from biaseval.training import loss_scale
from biaseval.training.evaluation import Evaluated, Watch
from biaseval.training.features import question_features
from biaseval.training.loop import StepRecord
from biaseval.training.outcome import Outcome, train
from biaseval.training.preparation import Base, load_base
from biaseval.training.questions import LearnedMixin, Questions, Standard
from biaseval.training.recipe import Recipe
from biaseval.training.work import Work
from tests.test_qa_pipeline import make_bert, question
from tests.training.trainingtexts import CPU

# The limit is for what hangs: both workers import DeepSpeed, which a busy machine takes minutes for.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STAGES = (None, 0, 1, 2, 3)
DECIDES: dict[str, Any] = {"standard": ("exact_match", "other"), "mixin": ("loss", "squad")}
"""What decides which weights of a reader are kept, and of which set."""
BEST = {"standard": 2, "mixin": 9}
"""The first of equal evaluations, as no answer can match; and a loss that falls."""
N_WORKERS, N_STEPS = 2, 10
HAS_FLOAT16 = bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
"""Whether DeepSpeed takes it on this processor."""
FITTING = 2.0**10
"""A scale of losses in float16 with which no gradient overflows."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SETTINGS = WindowSettings(max_tokens=60, stride=12, n_best=5, max_answer_tokens=8)
ASKED = {"squad": range(5), "other": range(20, 23)}
"""The answers of the other questions are not what their contexts say."""

UNMOVED = "qa_outputs.bias"
"""It moves all logits of a window alike: its gradient is rounding, which Adam makes steps of."""


class KilledError(Exception):
    """Stands for the death of all workers."""


def make_reader(folder: Path) -> Path:
    """Write a BERT without dropout, as results of several workers are compared."""
    made = make_bert(folder)
    config = (made / "config.json").read_text()
    (made / "config.json").write_text(config.replace('_dropout_prob": 0.1', '_dropout_prob": 0.0'))
    return made


def questions(numbers: range, *, has_others: bool = False) -> pa.Table:
    """Return questions, with answers of other people in the places of the right ones if so asked."""
    rows = [
        {
            **{name: own[name] for name in ("question", "context")}, "example_id": own["id"],
            "answers": ["Zoe"] if has_others else own["answers"]["text"],
            "answer_starts": own["answers"]["answer_start"],
        }
        for own in (question(number, "squad") for number in numbers)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def objective(bert: str, reader: str) -> Questions:
    """Return seven questions, for the standard reader, or for one with a gate beside a bias that is drawn."""
    tokenizer = load_reader_tokenizer(ModelSource(bert))
    windows = question_features(tokenizer, questions(range(7)), max_tokens=60, stride=12)
    if reader == "standard":
        return Questions(windows, INPUTS, 0, Standard())
    draw = np.random.default_rng(5)
    bias = [
        (draw.normal(size=len(own)).astype(np.float32), draw.normal(size=len(own)).astype(np.float32))
        for own in windows["token_ids"]
    ]
    method = LearnedMixin.new(16, 3, bias_scale=0.3, entropy_penalty=0.4)
    return Questions(windows, INPUTS, 0, method, {"bias": bias})


def asked_of(base: Base, dataset: str) -> Evaluated:
    shown = questions(ASKED[dataset], has_others=dataset == "other")
    return Evaluated.of(dataset, shown, base, INPUTS, SETTINGS)


def recipe(bert: str, *, is_new: bool = False, precision: str = "float32", **training: Any) -> Recipe:
    settings = {"learning_rate": 1e-3, "epochs": 6, "batch_size": 4, "accumulation": 2, "warmup": 0.0}
    settings |= {"gradient_checkpointing": False}
    section = InstructTrainingSpec(**{**settings, **training}).model_copy(update={"precision": precision})
    source = ModelSource(bert)
    return Recipe(
        model=source, task="extractive", is_new=is_new, training=section, adapter=None, seed=7,
        checkpoint_steps=4, max_steps=N_STEPS,
    )  # fmt: skip


def trained(
    folder: Path, how: Recipe, reader: str, killed_behind: int | None = None, rank: int = 0, n_workers: int = 1
) -> Outcome:
    """Train, watched on two sets of which one decides."""
    base = load_base(how, CPU, rank, n_workers)
    sets = [asked_of(base, name) for name in ASKED]
    criterion, deciding = DECIDES[reader]
    watch = Watch(sets, every=3, criterion=criterion, deciding=frozenset({deciding}))

    def hear(record: StepRecord) -> None:
        if record.step == killed_behind:
            raise KilledError

    run = Run.open(str(folder))
    work = Work(objective(how.model.path, reader), {"model": reader}, watch=watch)
    return train(run, base, work, how, "model", hear)


def begin_with(scale: float) -> None:
    """Set by how much losses in float16 are scaled at first."""
    loss_scale._FIRST_SCALE = scale


def work_together(rank: int, folder: Path, bert: str) -> None:
    """Train everything one after another; what one worker of two does."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(N_WORKERS)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), N_WORKERS), rank=rank, world_size=2)
    place = {"rank": rank, "n_workers": N_WORKERS}
    for zero in STAGES:
        for reader in DECIDES:
            trained(folder / f"{reader}-{zero}", recipe(bert, zero=zero, workers=2), reader, **place)
    trained(folder / "new", recipe(bert, is_new=True, zero=3, workers=2), "mixin", **place)
    # Begun under ZeRO 2, ended under ZeRO 3; the best step may be before the checkpoint.
    for reader in DECIDES:
        with pytest.raises(KilledError):
            trained(folder / f"{reader}-resumed", recipe(bert, zero=2, workers=2), reader, killed_behind=6, **place)
        outcome = trained(folder / f"{reader}-resumed", recipe(bert, zero=3, workers=2), reader, **place)
        assert (outcome.first_step, outcome.best_step) == (4, BEST[reader])
    if HAS_FLOAT16:
        halves = {"workers": 2, "precision": "float16"}
        begin_with(FITTING)
        for zero in STAGES:
            trained(folder / f"halves-{zero}", recipe(bert, zero=zero, **halves), "standard", **place)
        # The first steps overflow, all those before the checkpoint among them.
        begin_with(2.0**21)
        trained(folder / "overflown", recipe(bert, zero=3, **halves), "mixin", **place)
        for zero in (0, 2):
            own = folder / f"overflown-{zero}"
            with pytest.raises(KilledError):
                trained(own, recipe(bert, zero=zero, **halves), "mixin", killed_behind=6, **place)
        begin_with(1.0)  # not what they are to go on with
        for zero in (0, 2):
            trained(folder / f"overflown-{zero}", recipe(bert, zero=3, **halves), "mixin", **place)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_reader(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, bert: str) -> Path:
    folder = tmp_path_factory.mktemp("together")
    torch.multiprocessing.start_processes(work_together, args=(folder, bert), nprocs=N_WORKERS, start_method="spawn")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, bert: str) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    for reader in DECIDES:
        trained(folder / reader, recipe(bert), reader)
    trained(folder / "new", recipe(bert, is_new=True), "mixin")
    return folder


def logits_of(folder: Path, bert: str) -> torch.Tensor:
    """Return the log-probabilities of start and end that the reader in a folder gives, window by window."""
    model: Any = load_extractive_model(ModelSource(str(folder / "model")))
    found = []
    for own in objective(bert, "standard").windows.to_pylist():
        with torch.no_grad():
            outputs = model(
                input_ids=torch.tensor([own["token_ids"]]), token_type_ids=torch.tensor([own["token_types"]])
            )
        found.append(torch.cat([outputs.start_logits, outputs.end_logits]).log_softmax(dim=-1).flatten())
    return torch.cat(found)


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Run.open(str(folder)).read_table(table).to_pylist()
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def assert_same(found: Path, expected: Path, bert: str) -> None:
    for table in ("training", "evaluations"):
        for row, want in zip(rows_of(found, table), rows_of(expected, table), strict=True):
            assert row == {key: pytest.approx(v, abs=1e-4) if isinstance(v, float) else v for key, v in want.items()}
    weights, wanted = (load_file(folder / "model" / "model.safetensors") for folder in (found, expected))
    assert weights.keys() == wanted.keys()
    off = {name: (weights[name] - value).abs().max().item() for name, value in wanted.items()}
    assert {name: far for name, far in off.items() if far > 1e-4 and name != UNMOVED} == {}
    torch.testing.assert_close(logits_of(found, bert), logits_of(expected, bert), rtol=0, atol=1e-4)


def test_shares_are_uneven(bert: str) -> None:
    """Else the tests below would not show what they are for."""
    n_rows = objective(bert, "standard").n_rows
    assert 0 < n_rows % 8 <= 4  # the second worker has nothing of an epoch's last step
    base = load_base(recipe(bert), CPU)
    for name, numbers in ASKED.items():
        own = asked_of(base, name)
        assert len(own.contexts) == len(numbers)
        assert len(own.contexts) % 2 == 1
        assert own.shown.n_rows > len(own.contexts)


@pytest.mark.parametrize("reader", DECIDES)
def test_two_workers_train_the_same_reader_as_one_at_every_stage(
    together: Path, alone: Path, bert: str, reader: str
) -> None:
    for zero in STAGES:
        assert_same(together / f"{reader}-{zero}", alone / reader, bert)
    assert_same(together / f"{reader}-resumed", alone / reader, bert)  # it went on under another stage


def test_a_new_reader_may_be_partitioned(together: Path, alone: Path, bert: str) -> None:
    assert_same(together / "new", alone / "new", bert)


@pytest.mark.skipif(not HAS_FLOAT16, reason="this processor has no float16")
@pytest.mark.parametrize("zero", STAGES)
def test_float16_is_near_float32_at_every_stage(together: Path, alone: Path, zero: int | None) -> None:
    """From stage 1 on the model itself is in float16, and so are its gradients; it updates float32 copies."""
    folder = together / f"halves-{zero}"
    for table in ("training", "evaluations"):
        found, expected = rows_of(folder, table), rows_of(alone / "standard", table)
        assert [row["loss"] for row in found] == pytest.approx([row["loss"] for row in expected], abs=1e-3)
        if table == "training":
            norms = [row["grad_norm"] for row in expected]
            assert [row["grad_norm"] for row in found] == pytest.approx(norms, rel=1e-2)
    weights = load_file(folder / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16 if zero else torch.float32}


@pytest.mark.skipif(not HAS_FLOAT16, reason="this processor has no float16")
@pytest.mark.parametrize(("zero", "tolerance"), [(0, 2e-2), (2, 1e-4)])
def test_a_scale_goes_on_under_another_stage(together: Path, zero: int, tolerance: float) -> None:
    """The steps before the checkpoint were all skipped. Under stage 0 the weights are not rounded to float16."""
    resumed, whole = (rows_of(together / name, "training") for name in (f"overflown-{zero}", "overflown"))
    for row, want in zip(resumed, whole, strict=True):
        assert row == {key: pytest.approx(v, abs=tolerance) if isinstance(v, float) else v for key, v in want.items()}
    is_skipped = np.isinf([row["grad_norm"] for row in whole])
    assert is_skipped[:4].all()
    assert not is_skipped.all()
