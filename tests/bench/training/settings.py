"""What to measure of training, and on which questions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from biaseval.qa_bias.data import question_rows, read_questions
from biaseval.spec import QaBaseSpec, QaTrainSpec, WindowsSpec
from biaseval.tables import QA_TRAINING_EXAMPLES
from tests.bench.reading import EncoderShape, generated_questions

SHAPES = {
    "tiny": EncoderShape(hidden=32, layers=2, heads=2, vocabulary=4096),
    "2x128": EncoderShape(hidden=128, layers=2, heads=2, vocabulary=30522),
    "4x256": EncoderShape(hidden=256, layers=4, heads=4, vocabulary=30522),
}
"""The last two are those of BERT-tiny and BERT-mini."""

BATCH_SIZE, SEED = 16, 42


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure, and how long."""

    cases: tuple[tuple[str, int], ...]
    """Shapes and numbers of threads; the unit whose time outside steps is measured is of the first shape."""
    n_steps: int = 6
    """Of each way in a round: one epoch of so many times 16 windows."""
    n_rounds: int = 5
    n_questions: int = 87_599
    """That are cut into windows; SQuAD's."""
    part_questions: int = 512
    """Of a part, as in a run."""
    n_unit_steps: int = 300
    """Of that unit."""
    unit_every: int = 100
    """Its steps between checkpoints, and between evaluations."""
    windows: WindowsSpec = field(default_factory=WindowsSpec)


def default_cases() -> tuple[tuple[str, int], ...]:
    """Return both shapes with all threads that torch takes, and the smaller with one."""
    n = torch.get_num_threads()
    return tuple(dict.fromkeys([("2x128", n), ("2x128", 1), ("4x256", n)]))


def read_squad(paths: Sequence[Path]) -> pa.Table:
    """Return the questions of files, in their order, with their answers; bad ones are left out.

    Raises:
        InputError: a file cannot be read.
    """
    sets = [read_questions(str(path), name="squad", on_bad_example="drop") for path in paths]
    return pa.concat_tables([question_rows(own, "train") for own in sets])


def generated_training(n: int) -> pa.Table:
    """Return generated questions about SQuAD's lengths, each with an answer of three words somewhere in its context."""
    draw = random.Random(1)
    rows = []
    for number, own in enumerate(generated_questions(n).to_pylist()):
        words = own["context"].split(" ")
        first = draw.randrange(len(words) - 2)
        rest = {"dataset": "squad", "row": number, "role": "train", "title": ""}
        start = len(" ".join([*words[:first], ""]))
        rows.append({**own, **rest, "answers": [" ".join(words[first : first + 3])], "answer_starts": [start]})
    return pa.Table.from_pylist(rows, schema=QA_TRAINING_EXAMPLES.schema)


def train_spec(base: Path, **keys: Any) -> QaTrainSpec:
    """Return the section of a spec that trains one standard reader; defaults are those of P3."""
    given: dict[str, Any] = {"bases": [QaBaseSpec(name="base", path=str(base))], "seeds": [SEED]}
    return QaTrainSpec(**given, data={"squad": "squad"}, validation={"squad": "squad"}, **keys)
