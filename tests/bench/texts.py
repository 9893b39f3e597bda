"""The benchmark's texts: prompts of real Super-NaturalInstructions tasks, or of generated ones where those are absent.

The scenarios vary one thing at a time: the number of demonstrations, tokens per label, labels, length of the input.
One more is a setting of majority-label bias: BoolQ's questions, without passages, behind 50 demonstrations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.parsing import json_value
from tests.bench.demo_models import words
from tests.bench.demo_models.tasks import build_prompt

_N_RESERVED = 16
_N_GENERATED = 400
_N_TRAINING_INPUTS = 300

WORD_LABELS = tuple(
    f"{adjective} {noun}"
    for adjective, noun in zip(
        words.PLEASANT + words.UNPLEASANT + words.SOUND, words.MEAL_PARTS + words.MACHINE_PARTS, strict=False
    )
)
"""28 labels of two words each, no two with a word in common."""


@dataclass(frozen=True)
class Task:
    """A classification task."""

    name: str
    definition: str
    instances: tuple[tuple[str, str], ...]
    """(input, label) pairs."""

    @classmethod
    def read(cls, file: Path) -> Task:
        """Read a task file in the Super-NaturalInstructions format."""
        try:
            content = json_value(file.read_bytes())
            pairs = tuple((str(row["input"]), str(row["output"][0]).strip()) for row in content["Instances"])
            return cls(file.stem, str(content["Definition"][0]), pairs)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(f"{file}: not a task file ({error!r}); give a folder of task files") from error

    @classmethod
    def read_boolq(cls, file: Path) -> Task:
        """Read BoolQ's own JSONL format, passages left out; the definition is P2's instruction."""
        try:
            rows = [json_value(line) for line in file.read_text(encoding="utf-8").splitlines()]
            answers = [str(row["answer"] if "answer" in row else row["label"]).capitalize() for row in rows]
            questions = [str(row["question"]) for row in rows]
            return cls("BoolQ", _BOOLQ_INSTRUCTION, tuple(zip(questions, answers, strict=True)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file}: not a file of BoolQ ({error!r}); give its train.jsonl") from error


_Build = Callable[[str, Sequence[tuple[str, str]], str], str]
"""Takes a definition, demonstrations as (input, label), and an input; returns the prompt."""


@dataclass(frozen=True)
class Scenario:
    """A task's prompts with a number of demonstrations and a set of labels."""

    name: str
    task: Task
    labels: tuple[str, ...]
    n_demos: int
    n_reserved: int
    """Instances that serve as demonstrations only, so that all numbers of demonstrations score the same rows."""
    build: _Build

    def prompts(self, n_rows: int) -> pa.Table:
        """Return at most ``n_rows`` prompts, with the columns that ``LabelScorer.score`` takes."""
        demos = self.task.instances[: self.n_demos]
        rows = self.task.instances[self.n_reserved : self.n_reserved + n_rows]
        return pa.table(
            {
                "prompt_id": [str(row) for row in range(len(rows))],
                "text": [self.build(self.task.definition, demos, text) for text, _ in rows],
                "labels": [list(self.labels)] * len(rows),
            }
        )


# P2's words for BoolQ, as in majority_bias/prompts.py; the benchmark runs where specs, and so that module, do not.
_BOOLQ_INSTRUCTION = "You need to classify the following sentence as True or False. Below, some examples are provided"


def _boolq_prompt(definition: str, demos: Sequence[tuple[str, str]], text: str) -> str:
    items = [f"Sentence: {sentence}\noutput: {label}" for sentence, label in demos]
    return "\n\n".join([definition, *items, f"Sentence: {text}\noutput:"])


@dataclass(frozen=True)
class _Plan:
    name: str
    file: str
    """Stem of the task file."""
    labels: int | tuple[str, ...]
    """How many of the task's own labels, the most frequent ones, or labels to put in their place."""
    n_demos: tuple[int, ...]
    generated_labels: tuple[str, ...]
    """What the labels are in place of the task's own where the texts are generated."""
    n_words: int
    """Words of an input, about, where the texts are generated: as in the task file."""
    build: _Build = build_prompt


_PRIVACY = "task682_online_privacy_policy_text_classification"
_BOOLQ = "boolq"
_SHORT_LABELS = words.MEAL_PARTS[:3]

_PLANS = (
    _Plan("base", _PRIVACY, 3, (0, 2, 4, 8, 16), WORD_LABELS[:3], 25),
    _Plan("single-token", "task1612_sick_label_classification", 3, (4, 16), _SHORT_LABELS, 21),
    _Plan("2-labels", "task1495_adverse_drug_event_classification", 2, (16,), WORD_LABELS[:2], 18),
    _Plan("8-labels", _PRIVACY, WORD_LABELS[:8], (4, 16), WORD_LABELS[:8], 25),
    _Plan("26-labels", _PRIVACY, WORD_LABELS[:26], (4,), WORD_LABELS[:26], 25),
    _Plan("short", "task1208_atomic_classification_xreason", 2, (16,), _SHORT_LABELS[:2], 7),
    _Plan("long", "task623_ohsumed_yes_no_answer_generation", 2, (4,), _SHORT_LABELS[:2], 178),
    _Plan("majority", _BOOLQ, 2, (50,), ("True", "False"), 9, _boolq_prompt),
)

SCENARIOS = tuple(plan.name for plan in _PLANS)


def scenarios(folder: Path | None, names: Sequence[str] = SCENARIOS, boolq: Path | None = None) -> list[Scenario]:
    """Return the scenarios of these names, on real texts where they are there, else on generated ones.

    Args:
        folder: the task files.
        names: some of ``SCENARIOS``.
        boolq: BoolQ's ``train.jsonl``.

    Raises:
        InputError: a file that cannot be read.
    """
    found = []
    for plan in _PLANS:
        if plan.name not in names:
            continue
        file = folder / f"{plan.file}.json" if folder is not None else None
        if plan.file == _BOOLQ and boolq is not None:
            task = Task.read_boolq(boolq)
        elif file is not None and file.exists():
            task = Task.read(file)
            task = _with_most_frequent(task, plan.labels) if isinstance(plan.labels, int) else task
        else:
            task = _generated(plan)
        labels = tuple(sorted({label for _, label in task.instances}))
        if not isinstance(plan.labels, int):
            labels = plan.labels
            task = replace(
                task, instances=tuple((text, labels[i % len(labels)]) for i, (text, _) in enumerate(task.instances))
            )
        n_reserved = max(_N_RESERVED, *plan.n_demos)
        found += [Scenario(plan.name, task, labels, n_demos, n_reserved, plan.build) for n_demos in plan.n_demos]
    return found


def training_texts(folder: Path | None, chosen: Sequence[Scenario]) -> list[str]:
    """Return texts to train a tokenizer on: of all task files in ``folder``, and of the chosen scenarios."""
    tasks = [Task.read(file) for file in sorted(folder.glob("task*.json"))] if folder is not None else []
    tasks += {scenario.task.name: scenario.task for scenario in chosen}.values()
    return [
        text
        for task in {task.name: task for task in tasks}.values()
        for text in (task.definition, *(text for text, _ in task.instances[:_N_TRAINING_INPUTS]))
    ]


def _with_most_frequent(task: Task, n_labels: int) -> Task:
    kept = {label for label, _ in Counter(label for _, label in task.instances).most_common(n_labels)}
    return replace(task, instances=tuple((text, label) for text, label in task.instances if label in kept))


def _generated(plan: _Plan) -> Task:
    """Draw a task whose texts are as long as those of the file; the same for the same name, anywhere."""
    groups = (words.COMPANIONS, words.MEAL_PARTS, words.MACHINES, words.PROPOSALS, words.FOR, words.AGAINST,
              words.UNDECIDED, words.SPORT, words.TRANSPORT, words.EVENTS, words.NO_ANIMALS, words.ON_LAND)  # fmt: skip
    vocabulary = [word for group in groups for text in group for word in text.split()]
    generator = np.random.default_rng(list(plan.name.encode()))

    def draw(n_words: int) -> str:
        return " ".join(vocabulary[i] for i in generator.integers(len(vocabulary), size=max(3, n_words)))

    labels = plan.generated_labels
    return Task(
        name=f"generated ({plan.name})",
        definition=draw(80).capitalize() + ".",
        instances=tuple(
            (draw(int(generator.poisson(plan.n_words))) + ".", labels[i % len(labels)]) for i in range(_N_GENERATED)
        ),
    )
