"""Choose the demonstrations, BiasScore rows and main rows of a task (P1 section 3)."""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biaseval.errors import InputError
from biaseval.prompting.labels import flipped
from biaseval.prompting.task_files import Instance, Task
from biaseval.spec import N_DEMONSTRATIONS, POOL_SIZE
from biaseval.store import Run
from biaseval.tables import SPLITS


@dataclass(frozen=True)
class Splits:
    """The drawn instances of one task, each role in its order, and the task's labels."""

    demonstrations: tuple[Instance, ...]
    bias_score: tuple[Instance, ...]
    main: tuple[Instance, ...]
    labels: tuple[str, ...]
    """The labels in code-point order; P1's are the distinct first outputs outside the pool of 96."""
    shuffled_by: int | None = None
    """The seed that gives each demonstration set its own order; None: the order of the pool."""
    noise: tuple[float, int] = (0, 0)
    """The chance of a set's demonstrations to show another label (`flipped`), and the seed of the draw."""

    def by_role(self) -> dict[str, tuple[Instance, ...]]:
        """Return the instances under the names of their roles."""
        return {"demonstration": self.demonstrations, "bias_score": self.bias_score, "main": self.main}

    def table(self, task: str) -> pa.Table:
        """Return the rows of the ``splits`` table."""
        return SPLITS.rows(
            [
                {
                    "task": task,
                    "instance_id": instance.id,
                    "role": role,
                    "position": position,
                    "input": instance.input,
                    "label": instance.label,
                }
                for role, instances in self.by_role().items()
                for position, instance in enumerate(instances)
            ]
        )

    def demonstration_set(self, n_demos: int, demo_set: int) -> tuple[Instance, ...]:
        """Return pool positions ``[n_demos * demo_set, n_demos * (demo_set + 1))``, in pool order, as prompts show it.

        If labels take turns in the pool, sets in pool order would all end with the same label; such sets are shuffled.
        """
        demos = self.demonstrations[n_demos * demo_set : n_demos * (demo_set + 1)]
        share, seed = self.noise
        if share and demos:
            generator = generator_of(seed, demos[0].id, f"flip/{n_demos}/{demo_set}")
            shown = flipped([demo.label for demo in demos], self.labels, share, generator)
            demos = tuple(replace(demo, outputs=(label,)) for demo, label in zip(demos, shown, strict=True))
        if self.shuffled_by is None or not demos:
            return demos
        order = generator_of(self.shuffled_by, demos[0].id, f"balanced/{n_demos}/{demo_set}").permutation(len(demos))
        return tuple(demos[place] for place in order)


class Sampler:
    """Draw splits, and give the generator of the random words of domain-context calibration.

    ``per_task`` seeds each task by its name, so its rows do not depend on the other tasks of the run. ``reif2024`` uses
    P1's single stream: each task must be drawn exactly once, in suite order.
    """

    def __init__(self, sampling: Literal["per_task", "reif2024"], seed: int) -> None:
        self._sampling = sampling
        self.seed = seed
        self._pool_stream = np.random.RandomState(seed)
        self._main_stream = random.Random(seed)
        self._word_stream = np.random.default_rng(seed)

    def draw(self, task: Task, max_eval: int) -> Splits:
        """Return the splits of ``task`` with up to ``max_eval`` main rows."""
        n_instances = len(task.instances)
        if self._sampling == "reif2024":
            pool = [int(index) for index in self._pool_stream.choice(np.arange(n_instances), POOL_SIZE, replace=False)]
            in_pool = set(pool)
            rest = [index for index in range(n_instances) if index not in in_pool]
            order = self.shuffled(rest)
        else:
            permutation = [int(index) for index in self.generator(task.name, "splits").permutation(n_instances)]
            pool, order = permutation[:POOL_SIZE], permutation[POOL_SIZE:]
        return splits_of(task, pool, order[:max_eval])

    def shuffled(self, indices: Sequence[int]) -> list[int]:
        """Return ``indices`` in the order of P1's evaluation stream (one ``random.seed(seed)`` for all tasks)."""
        order = list(indices)
        self._main_stream.shuffle(order)
        return order

    def words_generator(self, task: str, method: str) -> np.random.Generator:
        """Return the generator of a task's inputs of a calibration method; P1 has one generator of random words."""
        is_published = self._sampling == "reif2024" and method == "dc"
        return self._word_stream if is_published else self.generator(task, method)

    def generator(self, task: str, use: str) -> np.random.Generator:
        """Return the generator of one use of randomness in a task, independent of all others."""
        return generator_of(self.seed, task, use)


def generator_of(seed: int, task: str, use: str) -> np.random.Generator:
    """Return the generator of one use of randomness in a task, from the run's seed and independent of all others."""
    digest = hashlib.sha256(f"{task}/{use}".encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])


def in_rounds(indices: Sequence[int], label: Callable[[int], str], generator: np.random.Generator) -> list[int]:
    """Return indices so that neighbours have each label equally often, or once more, while all labels have rows.

    They come in rounds with one index of each label, all rounds in the same order. With two different orders,
    neighbours across two rounds could lack a label. Indices of one label keep their order.
    """
    left: dict[str, list[int]] = {}
    for index in indices:
        left.setdefault(label(index), []).append(index)
    by_label = list(left.values())
    labels = [by_label[place] for place in generator.permutation(len(by_label))]
    return [own[number] for number in range(max(map(len, labels), default=0)) for own in labels if number < len(own)]


def splits_of(
    task: Task,
    pool: Sequence[int],
    main: Sequence[int],
    n_demonstrations: int = N_DEMONSTRATIONS,
    labels: tuple[str, ...] | None = None,
) -> Splits:
    """Return the splits with these instance indices: those of the pool, and those of the main rows in their order.

    The first ``n_demonstrations`` of the pool become demonstrations, the others BiasScore rows. Labels are by default
    those of the instances outside the pool, as in P1.
    """
    chosen = [task.instances[index] for index in pool]
    if labels is None:
        in_pool = set(pool)
        outside = {instance.label for index, instance in enumerate(task.instances) if index not in in_pool}
        labels = tuple(sorted(outside))
    return Splits(
        demonstrations=tuple(chosen[:n_demonstrations]),
        bias_score=tuple(chosen[n_demonstrations:]),
        main=tuple(task.instances[index] for index in main),
        labels=labels,
    )


def read_splits(uri: str) -> dict[str, pa.Table]:
    """Return the rows of another run's ``splits`` table, a folder or one Parquet file, local or ``s3://``, by task.

    Raises:
        InputError: the path is neither a folder of Parquet parts nor a Parquet file, or lacks a column.
    """
    columns = {"task": "string", "instance_id": "string", "role": "string", "position": "int64"}
    folder = Run.open(uri)
    files = [folder.path(name) for name in folder.names() if name.endswith(".parquet")] or [folder.root]
    try:
        parts = (pq.read_table(file, columns=[*columns], filesystem=folder.fs, partitioning=None) for file in files)
        table = pa.concat_tables([part.cast(pa.schema(columns.items())) for part in parts])
        table.validate(full=True)  # of a damaged file, texts may not be UTF-8
        if any(column.null_count for column in table.columns):
            raise pa.ArrowInvalid("a value is missing")
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{uri}: is no splits table ({error}); tasks.splits needs {', '.join(columns)}") from error
    return {name: table.filter(pa.compute.equal(table["task"], name)) for name in table["task"].unique().to_pylist()}


def reproduce(task: Task, splits: Mapping[str, pa.Table]) -> Splits:
    """Return exactly the instances, roles and positions that another run recorded for ``task``.

    Raises:
        InputError: the recorded splits lack the task, name an instance that the file does not hold, or hold a pool
            other than 64 demonstrations and 32 BiasScore rows.
    """
    rows = splits.get(task.name)
    if rows is None:
        raise InputError(f"tasks.splits: holds no row of {task.name}; leave the task out or draw its splits again")
    index_of = {instance.id: index for index, instance in enumerate(task.instances)}
    by_role: dict[str, list[tuple[int, int]]] = {"demonstration": [], "bias_score": [], "main": []}
    for row in rows.to_pylist():
        if row["instance_id"] not in index_of:
            raise InputError(
                f"tasks.splits: {task.name} has no instance {row['instance_id']!r}; use the task file of that run"
            )
        if row["role"] not in by_role:
            raise InputError(f"tasks.splits: {task.name}: role {row['role']!r} is unknown; use {', '.join(by_role)}")
        by_role[row["role"]].append((row["position"], index_of[row["instance_id"]]))
    drawn = {role: [index for _, index in sorted(pairs)] for role, pairs in by_role.items()}
    pool = drawn["demonstration"] + drawn["bias_score"]
    if len(drawn["demonstration"]) != N_DEMONSTRATIONS or len(pool) != POOL_SIZE:
        raise InputError(
            f"tasks.splits: {task.name} has {len(drawn['demonstration'])} demonstrations and "
            f"{len(drawn['bias_score'])} BiasScore rows; "
            f"{N_DEMONSTRATIONS} and {POOL_SIZE - N_DEMONSTRATIONS} are needed"
        )
    if not drawn["main"]:
        raise InputError(f"tasks.splits: {task.name} has no main row; use the splits of a complete run")
    if len({*pool, *drawn["main"]}) != len(pool) + len(drawn["main"]):
        raise InputError(f"tasks.splits: {task.name} uses an instance twice; each may have one role and position")
    return splits_of(task, pool, drawn["main"])
