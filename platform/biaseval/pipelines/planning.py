"""Plans the tasks and settings of a run one by one: in this process, or in actors of Ray if the work is much.

The driver receives the numbers of each in order. The names of files depend on the earlier ones: until those are known,
the files wait where they were made. A plan needs no weights; a run checks at its start that all are there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from biaseval.cache import is_remote
from biaseval.errors import Problems
from biaseval.pipelines.kind import AnyKind, Inputs
from biaseval.prompting.parts import PlannedPart
from biaseval.spec import AnySpec, CausalSpec, ModelSpec
from biaseval.store import Digest, Ledger, Run, parquet_bytes, part_name
from biaseval.training.rows import adapters_of

if TYPE_CHECKING:
    from biaseval.models.causal import ModelFacts

MUCH = 400_000
"""Prompts that a process plans in about half a minute; Ray and its workers take ten seconds to start."""


@dataclass(frozen=True)
class PlanSummary:
    """What a run is going to score, in numbers."""

    n_tasks: int = 0
    n_prompts: int = 0
    n_scores: int = 0
    """(prompt, label) pairs; with adapters each counts twice."""
    tokens: int = 0
    """To compute with shared prefixes (about)."""
    tokens_unshared: int = 0
    """To compute with one full text per (prompt, label) (about)."""
    n_shortened: int = 0
    """Prompts that hold fewer demonstrations than asked for."""
    n_cut: int = 0
    """Prompts that are too long without demonstrations and lose their end."""
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    n_test_rows: int = 0
    """Inputs of all tasks that performance is measured on, each counted once."""
    n_bias_score_rows: int | None = None
    """Rows of all tasks that BiasScore is measured on."""
    n_pool_rows: int | None = None
    """Rows of all tasks that demonstrations are drawn from."""
    n_gold_labels: int | None = None
    """Gold labels among the test rows, of all tasks together."""
    n_fewest_rows: int | None = None
    """Test rows of the gold label that has the fewest, of all tasks together."""
    n_settings: int | None = None
    """Label proportions of a majority-bias run."""

    def __add__(self, other: PlanSummary) -> PlanSummary:
        """Return the summary of both, which are of the same kind of run."""
        counts = [name for name, value in asdict(self).items() if isinstance(value, int)]
        return PlanSummary(
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            notes=list(dict.fromkeys([*self.notes, *other.notes])),
            left_out={**self.left_out, **other.left_out},
        )

    def facts(self) -> dict[str, Any]:
        """Return the fields that say something of this kind of run."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Planned:
    """What one task, or one setting of label proportions, adds to a run."""

    tables: dict[str, pa.Table]
    """Its part of each table, prompts left out."""
    parts: Sequence[PlannedPart]
    summary: PlanSummary
    problems: list[str]
    """What keeps it from being scored, or its adapters from being trained."""
    sha256: dict[str, str] = field(default_factory=dict)
    """Of its files, by name."""

    @property
    def adapters(self) -> list[dict[str, Any]]:
        """Its adapters in their order: name, and tokens of their examples."""
        return adapters_of(self.tables["training_rows"]) if "training_rows" in self.tables else []

    def plan(self, tokenizer: Any) -> Planned:
        """Return itself: a `Piece` that had to be planned where it was begun."""
        return self


@dataclass(frozen=True)
class Outline:
    """What one task, or one setting, adds to a run, without its rows."""

    summary: PlanSummary
    problems: list[str]
    sha256: dict[str, str]
    adapters: list[dict[str, Any]]
    parts: list[tuple[int, int, str | None]]
    """Prompts, tokens and adapter of each part of ``prompts``."""
    tables: list[str]
    """That it has a part of, ``prompts`` left out."""

    @classmethod
    def of(cls, planned: Planned) -> Outline:
        """Return the outline of a planned piece."""
        parts = [(part.prompts.num_rows, part.tokens, part.adapter) for part in planned.parts]
        return cls(planned.summary, planned.problems, planned.sha256, planned.adapters, parts, list(planned.tables))


@dataclass(frozen=True)
class Files:
    """The Parquet files of one task, or one setting, which have no names yet."""

    tables: dict[str, bytes]
    """Its part of each table, prompts left out."""
    prompts: list[bytes]

    @classmethod
    def of(cls, planned: Planned) -> Files:
        """Return a planned piece as files."""
        tables = {table: parquet_bytes(rows) for table, rows in planned.tables.items()}
        return cls(tables, [parquet_bytes(part.prompts) for part in planned.parts])

    def write(self, run: Run, number: int, first: int) -> None:
        """Write them under the number of the task or setting, and prompts under numbers from ``first`` on."""
        for table, data in self.tables.items():
            run.write_bytes(f"{table}/{part_name(number)}", data)
        for part, data in enumerate(self.prompts, first):
            run.write_bytes(f"prompts/{part_name(part)}", data)


Write = Callable[[Run, int, int], None]
"""Writes files as `Files.write` does, perhaps later, and before the last outline is followed by nothing."""


class Piece(Protocol):
    """One task, or one setting, that is to be planned. Can be sent to another process."""

    def plan(self, tokenizer: Any) -> Planned:
        """Return its additions to the run, with its mistakes."""


@dataclass(frozen=True)
class CausalInputs:
    """What planning starts from, validated."""

    subject: str
    model: ModelFacts
    tokenizer: Any
    start: PlanSummary
    """The summary of the run before the planned additions."""
    problems: list[str]
    """Mistakes so far that did not stop the check of the rest."""
    pieces: Callable[[], Iterator[Piece]]
    """Returns a new iterator, with one task or setting in memory at a time."""
    most_prompts: int = 0
    """That may be planned apart from each other, at most; 0: all in one process."""

    @property
    def facts(self) -> dict[str, Any]:
        """What ``environment.json`` says of it."""
        return {"model_facts": asdict(self.model), "data": {}}

    def all_planned(self) -> Iterator[Planned]:
        """Yield the planned pieces with their rows, and refuse the plan after the last if any has a mistake.

        Raises:
            InputError: with every problem.
        """
        problems = Problems()
        problems.found += self.problems
        with problems.noted():
            for piece in self.pieces():
                planned = piece.plan(self.tokenizer)
                problems.found += planned.problems
                yield planned
        problems.refuse()

    def outlined(self, spec: CausalSpec, *, with_files: bool) -> Iterator[tuple[Outline, Write]]:
        """Yield the outline of each in order, and what writes its files; refuse all after the last as `all_planned`.

        Without ``with_files`` there is nothing to write, and the run does not go on from there.

        Raises:
            InputError: with every problem.
            BiasevalError: Ray failed, or something cannot be written.
        """
        from biaseval.execute.actor_pool import is_spread, spread

        if self.most_prompts < MUCH or not is_spread():
            for planned in self.all_planned():
                yield Outline.of(planned), Files.of(planned).write if with_files else lambda *_: None
            return
        problems = Problems()
        problems.found += self.problems
        make = functools.partial(_made, spec.model, with_files)
        with problems.noted():
            for outline, write in spread(self.pieces(), make, _write, spec.execution, "planning", hands_on=with_files):
                problems.found += outline.problems
                yield outline, functools.partial(_have_written, outline, write)
        problems.refuse()


def _made(model: ModelSpec, with_files: bool, piece: Piece) -> tuple[Outline, Files | None]:
    """Return what a piece adds to a run; what runs in an actor of Ray."""
    planned = piece.plan(tokenizer_of(model))
    return Outline.of(planned), Files.of(planned) if with_files else None


def _have_written(outline: Outline, write: Callable[..., None], run: Run, number: int, first: int) -> None:
    """Have an actor write its files, whose names this process notes."""
    write(run.uri, run.ledger.known if run.keeps else None, number, first)
    files = [f"{table}/{part_name(number)}" for table in outline.tables]
    files += [f"prompts/{part_name(part)}" for part in range(first, first + len(outline.parts))]
    run.ledger.files.update(dict.fromkeys(files))


def _write(files: Files, run_uri: str, known: Mapping[str, Digest] | None, number: int, first: int) -> None:
    run = Run.open(run_uri)
    files.write(run if known is None else replace(run, keeps=True, ledger=Ledger(known=known)), number, first)


@functools.lru_cache(maxsize=1)
def tokenizer_of(model: ModelSpec) -> Any:
    """Return a model's tokenizer, which this process loads once."""
    from biaseval.models import ModelSource, load_tokenizer

    return load_tokenizer(ModelSource.of(model))


def read_with_weights(kind: AnyKind, spec: AnySpec) -> Inputs:
    """Return what planning a run starts from, whose models have their weights; remote ones are fetched.

    Raises:
        InputError: bad input; the message has all of it.
    """
    problems = _lacking_weights(_loaded(spec))
    with problems.noted():
        inputs: Inputs = kind.read(spec)
    problems.refuse()
    return inputs


def weights_notes(spec: AnySpec) -> list[str]:
    """Return what a plan says of weights that a run will need and that are not there; remote ones are not looked at."""
    problems = _lacking_weights(path for path in _loaded(spec) if not is_remote(path))
    return [f"note: a run begins when the weights are there: {problem}" for problem in problems.found]


def _lacking_weights(paths: Iterable[str]) -> Problems:
    from biaseval.models import check_weights

    problems = Problems()
    for path in paths:
        with problems.noted():
            check_weights(path)
    return problems


def _loaded(spec: AnySpec) -> Iterator[str]:
    """Yield the path of each model whose weights are read, once."""
    paths = {
        section.path: None for section in spec.models_used().values() if getattr(section, "init", None) != "random"
    }
    yield from (path for path in paths if path is not None)
