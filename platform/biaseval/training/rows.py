"""What each adapter is trained on: the prompts of evaluation, with their labels (P1's code; protocol section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs

from biaseval.errors import BiasevalError
from biaseval.label_bias.prompts import PromptFitter, definition_text, demonstration_text, test_text
from biaseval.spec import N_DEMONSTRATIONS, LabelBiasSpec, training_positions
from biaseval.store import Run

ADAPTERS = "adapters"
"""The folder of a run that holds its adapters."""

WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""What PEFT calls the files of an adapter."""


@dataclass(frozen=True)
class AdapterKey:
    """Which adapter: one for each task, number of demonstrations and demonstration set."""

    task: str
    n_demos: int
    demo_set: int

    @property
    def name(self) -> str:
        """The adapter's folder below ``adapters/``; its contexts' identifiers begin alike."""
        return f"{self.task}/k{self.n_demos}.s{self.demo_set}"


@dataclass(frozen=True)
class TrainingRow:
    """One training example."""

    instance_id: str
    prompt: str
    label: str
    n_demos_used: int
    """Fewer than asked for under the length limit."""


@dataclass(frozen=True)
class PooledInstance:
    """An instance of a task's pool that may be a demonstration or a training example."""

    id: str
    input: str
    label: str


@dataclass(frozen=True)
class TaskPool:
    """What training needs of a task, from the run's tables."""

    task: str
    definition: str
    labels: tuple[str, ...]
    pool: tuple[PooledInstance, ...]
    """The 64 demonstrations in the order of their positions."""

    @classmethod
    def of(cls, tasks: pa.Table, splits: pa.Table) -> TaskPool:
        """Return the pool of the one task in these parts of ``tasks`` and ``splits``.

        Raises:
            BiasevalError: the parts hold other than one task and its 64 demonstrations.
        """
        rows = tasks.to_pylist()
        drawn = [row for row in splits.to_pylist() if row["role"] == "demonstration"]
        drawn.sort(key=lambda row: row["position"])
        if len(rows) != 1 or [row["position"] for row in drawn] != list(range(N_DEMONSTRATIONS)):
            raise BiasevalError(
                f"splits: {len(rows)} tasks with {len(drawn)} demonstrations in a part, not one with "
                f"{N_DEMONSTRATIONS}; start the run anew in another directory"
            )
        pool = tuple(PooledInstance(row["instance_id"], row["input"], row["label"]) for row in drawn)
        return cls(rows[0]["task"], rows[0]["definition"], tuple(rows[0]["labels"]), pool)


def adapter_keys(task: str, spec: LabelBiasSpec) -> Iterator[AdapterKey]:
    """Yield the adapters of a task in order; without demonstrations all sets have the same prompts, so there is one."""
    for n_demos in spec.prompt.n_demos:
        for demo_set in range(spec.prompt.demo_sets if n_demos else 1):
            yield AdapterKey(task, n_demos, demo_set)


def training_rows(pool: TaskPool, key: AdapterKey, n_examples: int, fitter: PromptFitter) -> list[TrainingRow]:
    """Return the examples that an adapter is trained on, in the order of their positions.

    Prompts are those of evaluation: definition, the set's demonstrations as far as the length limit lets them, and the
    example's input.

    Args:
        pool: of the adapter's task.
        key: which adapter.
        n_examples: how many.
        fitter: applies ``prompt.max_tokens``.
    """
    definition = definition_text(pool.definition)
    demos = pool.pool[key.n_demos * key.demo_set : key.n_demos * (key.demo_set + 1)]
    shown = [demonstration_text(demo.input, demo.label) for demo in demos]
    rows = []
    for position in training_positions(key.n_demos, key.demo_set, n_examples):
        example = pool.pool[position]
        test = test_text(example.input)
        fitted = fitter.fit(definition, shown, test)
        prompt = definition + "".join(shown[: fitted.n_demos_used]) + test if fitted.text is None else fitted.text
        rows.append(TrainingRow(example.id, prompt, example.label, fitted.n_demos_used))
    return rows


def trained_adapters(run: Run) -> set[str]:
    """Return the names of the run's complete adapters: those whose configuration, which is written last, is there."""
    folder = run.path(ADAPTERS)
    found = run.fs.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
    # The last two folders name an adapter, however a file system writes the path of the run.
    return {"/".join(info.path.split("/")[-3:-1]) for info in found if info.base_name == CONFIG_FILE}
