"""A scored run of the published suite without a model: real sizes, parts as planning cuts them, and scores drawn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.environment import FILE, describe_environment
from biaseval.errors import InputError
from biaseval.pipelines.labels.causal import part_entry
from biaseval.prompting.calibration import CC_INPUTS, N_DC_INPUTS, PURPOSES
from biaseval.prompting.parts import even_bounds, how_many_parts
from biaseval.spec import dump_spec, stored_spec
from biaseval.store import Run
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS, SPLITS, TASKS

N_POOL = 64
"""Demonstrations that a task keeps apart: four sets of sixteen."""

N_BIAS_SCORE = 32
_MOST_ROWS = 1000

_SMALLER: Mapping[int, tuple[int, Sequence[int]]] = {
    2: (
        181,
        (
            *(304, 382, 400, 402, 404, 408, 496, 501, 533, 603, 636, 654, 677, 718, 778, 899, 899, 900, 900, 902, 902),
            *(903, 903, 903, 904, 904, 904, 904, 904, 940, 969, 983),
        ),
    ),
    3: (24, (613, 627, 879, 933)),
    4: (14, (304, 337, 401, 855)),
    5: (15, (404, 587, 701, 730, 897)),
    6: (9, (896,)),
    7: (2, (565,)),
    8: (1, (830,)),
    9: (2, (697,)),
    10: (3, (802, 897, 898)),
    13: (2, (904,)),
    14: (1, ()),
    24: (1, ()),
    40: (1, ()),
}
"""Number of labels to how many of 256 tasks of Super-NaturalInstructions have so many, and to the numbers of main rows
of those that have fewer than a thousand."""

_CATEGORIES = ("Question Answering", "Textual Entailment", "Sentiment Analysis", "Toxic Language Detection")
_LABEL_WORDS = ("Yes", "No", "Positive", "Negative", "Neutral", "Entailment", "Contradiction", "True", "False", "Other")
_WORDS = (
    "a",
    "the",
    "of",
    "it",
    "in",
    "question",
    "answer",
    "sentence",
    "said",
    "was",
    "before",
    "people",
    "review",
    "not",
)
_TEXT_WORDS = 40
_ITEM_TOKENS = 80
"""Of an input behind its context."""


@dataclass(frozen=True)
class Suite:
    """How large the run is; the defaults are the published suite's."""

    n_tasks: int = 256
    """Evenly taken of all 256."""
    max_rows: int = _MOST_ROWS
    """Main rows of a task, at most."""
    n_demos: tuple[int, ...] = (0, 2, 4, 8, 16)
    n_demo_sets: int = 3
    seed: int = 42

    def tasks(self) -> list[tuple[int, int]]:
        """Return the numbers of labels and of main rows of each task, in their order."""
        every = [
            (n_labels, n_rows)
            for n_labels, (n_tasks, fewer) in _SMALLER.items()
            for n_rows in (*fewer, *[_MOST_ROWS] * (n_tasks - len(fewer)))
        ]
        if not 1 <= self.n_tasks <= len(every):
            raise InputError(f"tasks: {self.n_tasks} are not 1 to {len(every)}")
        order = np.random.default_rng(self.seed).permutation(len(every))[: self.n_tasks]
        return [(every[place][0], min(every[place][1], self.max_rows)) for place in order]

    @property
    def settings(self) -> list[tuple[int, int]]:
        """Numbers of demonstrations and of the set."""
        return [(n_demos, own) for n_demos in self.n_demos for own in range(self.n_demo_sets if n_demos else 1)]


def write_suite(run: Run, suite: Suite) -> None:
    """Write a run that is planned and scored, and not analysed yet; the same suite gives the same tables.

    Raises:
        InputError: there are no such tasks.
    """
    spec = stored_spec(
        {
            "kind": "label_bias",
            "name": "drawn",
            "seed": suite.seed,
            "model": {"path": "drawn"},
            "tasks": {"path": "tasks", "max_eval": suite.max_rows},
            "prompt": {"n_demos": list(suite.n_demos), "demo_sets": suite.n_demo_sets},
            "calibration": [purpose.name for purpose in PURPOSES.values() if not purpose.permutes],
        },
        "benchmark",
    )
    run.create()
    environment = {**describe_environment(), "seed": suite.seed, "model_facts": {"n_parameters": 7_000_000_000}}
    run.write_json(FILE, {**environment, "scorer": {"scoring_s": 36_000.0}})
    run.write_text("spec.yaml", dump_spec(spec))
    parts: list[dict[str, Any]] = []
    n_scores = 0
    for number, (n_labels, n_rows) in enumerate(suite.tasks()):
        task = _DrawnTask(suite, number, n_labels, n_rows)
        run.write_part("tasks", number, task.row())
        run.write_part("splits", number, task.splits())
        run.write_part("contexts", number, task.contexts())
        for prompts, scores in task.parts():
            part = len(parts)
            run.write_part("prompts", part, prompts)
            run.write_part("label_scores", part, scores)
            parts.append(part_entry(part, number, prompts.num_rows, sum(prompts["n_tokens"].to_pylist())))
            n_scores += scores.num_rows
    facts = {
        "n_tasks": suite.n_tasks,
        "n_prompts": sum(part["n_prompts"] for part in parts),
        "n_scores": n_scores,
        "tokens": sum(part["tokens"] for part in parts),
        "tokens_unshared": sum(part["tokens"] for part in parts),
        "n_shortened": 0,
        "n_cut": 0,
        "notes": [],
        "left_out": {},
    }
    run.write_json("plan.json", {**facts, "n_parts": len(parts), "parts": parts})


class _DrawnTask:
    """One task: its rows, a model that knows a share of the answers and prefers some labels, and what it gives."""

    def __init__(self, suite: Suite, number: int, n_labels: int, n_rows: int) -> None:
        self._suite = suite
        self._n_rows = n_rows
        self._rng = np.random.default_rng([suite.seed, number])
        self.name = f"task{number:04d}_drawn_classification"
        self._number = number
        self._labels = sorted([*_LABEL_WORDS, *(f"Label {i}" for i in range(n_labels))][:n_labels])
        self._n_label_tokens = self._rng.integers(1, 4, n_labels)
        balanced = self._rng.random() < 0.6
        shares = np.full(n_labels, 1 / n_labels) if balanced else self._rng.dirichlet(np.full(n_labels, 5.0))
        sizes = {"demonstration": N_POOL, "bias_score": N_BIAS_SCORE, "main": n_rows}
        self._golds = {role: self._rng.choice(n_labels, size=size, p=shares) for role, size in sizes.items()}
        self._texts = {role: [self._text() for _ in range(size)] for role, size in sizes.items()}
        self._definition = f"Definition: {self._text()}\n\n"
        self._knows = self._rng.uniform(0.0, 2.5)
        self._prefers = self._rng.normal(0.0, self._rng.uniform(0.2, 1.5), n_labels)

    def _text(self) -> str:
        n_words = int(self._rng.integers(_TEXT_WORDS // 2, _TEXT_WORDS * 3 // 2))
        return " ".join(_WORDS[i] for i in self._rng.integers(0, len(_WORDS), n_words))

    def _ids(self, role: str) -> list[str]:
        return [f"{self.name}-{role}-{place}" for place in range(len(self._golds[role]))]

    def row(self) -> pa.Table:
        """Return its row of ``tasks``."""
        return TASKS.rows(
            [
                {
                    "task": self.name,
                    "number": self._number,
                    "run_key": self.name,
                    "category": _CATEGORIES[self._number % len(_CATEGORIES)],
                    "definition": self._definition,
                    "labels": self._labels,
                    "n_instances": self._n_rows + N_POOL + N_BIAS_SCORE,
                    "n_main": self._n_rows,
                    "template": "{INPUT}",
                    "template_source": "inferred",
                    "is_semantically_equivalent": self._number % 9 == 0,
                }
            ]
        )

    def splits(self) -> pa.Table:
        """Return its rows of ``splits``."""
        return pa.concat_tables(
            pa.table(
                {
                    "task": [self.name] * len(golds),
                    "instance_id": self._ids(role),
                    "role": [role] * len(golds),
                    "position": pa.array(range(len(golds)), pa.int32()),
                    "input": self._texts[role],
                    "label": [self._labels[gold] for gold in golds],
                },
                schema=SPLITS.schema,
            )
            for role, golds in self._golds.items()
        )

    def _demonstrations(self, n_demos: int, demo_set: int) -> list[int]:
        return list(range(n_demos * demo_set, n_demos * (demo_set + 1)))

    def contexts(self) -> pa.Table:
        """Return its rows of ``contexts``: one for each setting, and one without each of its demonstrations."""
        rows: list[dict[str, object]] = []
        ids, golds, texts = self._ids("demonstration"), self._golds["demonstration"], self._texts["demonstration"]
        for n_demos, demo_set in self._suite.settings:
            every = self._demonstrations(n_demos, demo_set)
            for name, shown in [("all", every)] + [(f"without{i}", every[:i] + every[i + 1 :]) for i in range(n_demos)]:
                pairs = [f"Input: {texts[own]}\nOutput: {self._labels[golds[own]]}\n\n" for own in shown]
                text = self._definition + "".join(pairs)
                rows.append(
                    {
                        "context_id": f"{self._place(n_demos, demo_set)}/{name}",
                        "task": self.name,
                        "n_demos": n_demos,
                        "demo_set": demo_set,
                        "setting": None,
                        "instruction": True,
                        "text": text,
                        "demo_ids": [ids[own] for own in shown],
                        "demo_labels": [self._labels[golds[own]] for own in shown],
                        "n_tokens": len(text) // 4,
                    }
                )
        return CONTEXTS.rows(rows)

    def _place(self, n_demos: int, demo_set: int) -> str:
        return f"{self.name}/k{n_demos}.s{demo_set}"

    def parts(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield its parts of ``prompts`` and ``label_scores``, cut as planning cuts them."""
        settings = [self._setting(n_demos, demo_set) for n_demos, demo_set in self._suite.settings]
        prompts = pa.concat_tables(own for own, _, _ in settings).combine_chunks()
        scores = pa.concat_tables(own for _, own, _ in settings).combine_chunks()
        blocks = [size for _, _, sizes in settings for size in sizes if size]
        n_labels = len(self._labels)
        # A context is computed once: what is new of a prompt is its item and its labels.
        unshared = n_labels * sum(prompts["n_tokens"].to_pylist())
        tokens = [_ITEM_TOKENS + 2 * n_labels] * prompts.num_rows
        n_parts = how_many_parts(sum(tokens), unshared, self._suite.n_tasks)
        for start, stop in even_bounds(tokens, blocks, n_parts):
            n_rows = stop - start
            yield prompts.slice(start, n_rows), scores.slice(start * n_labels, n_rows * n_labels)

    def _setting(self, n_demos: int, demo_set: int) -> tuple[pa.Table, pa.Table, list[int]]:
        """Return prompts and scores of a setting, and the sizes of their blocks."""
        shown = self._demonstrations(n_demos, demo_set)
        place = self._place(n_demos, demo_set)
        free = [*CC_INPUTS, *islice(self._texts["main"], N_DC_INPUTS)]
        purposes = {
            "main": (self._texts["main"], self._golds["main"], self._ids("main")),
            "bias_score": (self._texts["bias_score"], self._golds["bias_score"], self._ids("bias_score")),
            "cc": (free[: len(CC_INPUTS)], None, None),
            "dc": (free[len(CC_INPUTS) :], None, None),
            "looc": (
                [self._texts["demonstration"][own] for own in shown],
                self._golds["demonstration"][shown],
                [self._ids("demonstration")[own] for own in shown],
            ),
        }
        # Of a setting the model has preferences of its own, and demonstrations help it a little.
        prefers = self._prefers + self._rng.normal(0.0, 0.4, len(self._labels))
        knows = self._knows * (1 + 0.1 * n_demos**0.5)
        prompts, scores = [], []
        for purpose, (texts, golds, ids) in purposes.items():
            n_rows = len(texts)
            prompt_ids = [f"{place}/{purpose}/{row}" for row in range(n_rows)]
            contexts = [f"{place}/without{row}" if purpose == "looc" else f"{place}/all" for row in range(n_rows)]
            columns = {
                "prompt_id": prompt_ids,
                "context_id": contexts,
                "task": [self.name] * n_rows,
                "purpose": [purpose] * n_rows,
                "n_demos": pa.array([n_demos] * n_rows, pa.int32()),
                "demo_set": pa.array([demo_set] * n_rows, pa.int32()),
                "row": pa.array(range(n_rows), pa.int32()),
                "instance_id": pa.array(ids if ids is not None else [None] * n_rows, pa.string()),
                "gold": pa.array(
                    [None] * n_rows if golds is None else [self._labels[gold] for gold in golds], pa.string()
                ),
                "labels": pa.array([self._labels] * n_rows, PROMPTS.schema.field("labels").type),
                "input_text": [f"Input: {text}\nOutput:" for text in texts],
                "n_demos_used": pa.array([n_demos - (purpose == "looc")] * n_rows, pa.int32()),
                "is_truncated": pa.array([False] * n_rows),
                "n_tokens": pa.array([60 + 70 * n_demos + len(text) // 4 for text in texts], pa.int32()),
            }
            prompts.append(pa.table(columns, schema=pa.schema([PROMPTS.schema.field(name) for name in columns])))
            logits = prefers + self._rng.normal(0.0, 1.0, (n_rows, len(self._labels)))
            if golds is not None:
                logits[np.arange(n_rows), golds] += knows
            scores.append(self._scores(prompt_ids, logits))
        sizes = [sum(table.num_rows for table in prompts[:-1]), prompts[-1].num_rows]
        return pa.concat_tables(prompts), pa.concat_tables(scores), sizes

    def _scores(self, prompt_ids: Sequence[str], logits: npt.NDArray[np.float64]) -> pa.Table:
        """Return rows of ``label_scores`` whose means over tokens and EOS differ as the logits do."""
        n_rows, n_labels = logits.shape
        n_tokens = np.tile(self._n_label_tokens + 1, n_rows)
        means = (logits - logits.max(axis=1, keepdims=True) - self._rng.exponential(0.5, (n_rows, 1))).ravel()
        # Tokens share a label's sum unevenly; none is above 0.
        ends = np.concatenate([[0], np.cumsum(n_tokens)]).astype(np.int32)
        parts = self._rng.exponential(1.0, int(ends[-1]))
        sums = np.add.reduceat(parts, ends[:-1])
        tokens = (parts / np.repeat(sums, n_tokens) * np.repeat(means * n_tokens, n_tokens)).astype(np.float32)
        columns = {
            "prompt_id": pa.array(prompt_ids).take(pa.array(np.repeat(np.arange(n_rows), n_labels))),
            "label": pa.array(self._labels * n_rows),
            "token_logprobs": pa.ListArray.from_arrays(pa.array(ends), pa.array(tokens)),
            "n_label_tokens": pa.array(np.tile(self._n_label_tokens, n_rows).astype(np.int32)),
        }
        return pa.table(columns, schema=LABEL_SCORES.schema)
