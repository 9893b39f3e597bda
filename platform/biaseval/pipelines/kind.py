"""What the main path knows of a kind of run, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from biaseval.store import Run
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    import pyarrow as pa

    from biaseval.execute.cluster import Cluster
    from biaseval.report import Page
    from biaseval.training.estimate import TrainingCost

Plan = Mapping[str, Any]
"""What ``plan.json`` holds."""


class Stage(Protocol):
    """One step of a planned run. Its missing units are a set difference of file names."""

    @property
    def verb(self) -> str:
        """The state of a complete unit: ``scored``."""

    @property
    def noun(self) -> str:
        """What the sizes of units count: ``rows``."""

    @property
    def units(self) -> Sequence[Unit]:
        """All of it, made or not."""

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Make the missing units in any order, and yield each when it is complete."""


@dataclass(frozen=True)
class Written:
    """A stage whose units are a file each, which this process writes; nothing runs for it on a cluster."""

    verb: str
    noun: str
    units: Sequence[Unit]
    rows: Callable[[Run], Callable[[Unit], pa.Table]]
    """Returns for a run the function that makes the rows of a unit."""

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Write the missing parts; Raises: what making their rows raises."""
        rows = self.rows(run)
        for unit in missing:
            [file] = unit.files
            run.write_table(file, rows(unit))
            yield Done(unit)


class Inputs(Protocol):
    """What planning starts from, validated; no weights are loaded for it."""

    @property
    def subject(self) -> str:
        """The planned work, in a few words."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What ``environment.json`` says of it."""


@dataclass(frozen=True)
class Description:
    """What `biaseval plan` says of a spec."""

    lines: Sequence[tuple[str, str]]
    """Names and values."""
    notes: Sequence[str]
    facts: Mapping[str, Any]
    """The same as JSON values."""
    training_lines: Sequence[tuple[str, str]] = ()
    """Of training in it, where the rest is not all about that."""
    training: TrainingCost | None = None
    """What training in it would cost."""


@dataclass(frozen=True)
class Need:
    """Packages beside those of every installation."""

    why: str
    """The section that needs them, with its verb: ``lora needs``."""
    extra: str
    """Of the installation, that has them."""
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Trained:
    """The result of a command that only trains."""

    uri: str
    """Of the run directory."""
    folder: str
    """The folder of the run with the trained models."""
    lines: Sequence[tuple[str, str]]
    """Names and values, for a person."""
    refuse_given_up: Callable[[], None] = field(default=lambda: None)
    """Raises a BiasevalError if a training was given up; callers print the lines first."""


S = TypeVar("S")
I = TypeVar("I", bound=Inputs)  # noqa: E741  # the field's own letter would be S again


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[S, I]):
    """All that the main path knows of a kind of run."""

    read: Callable[[S], I]
    """Validates everything that a spec names but weights; writes nothing. All mistakes come in one error."""
    problems: Callable[[S, I, str], list[str]] = field(default=lambda spec, inputs, key: [])
    """Says what keeps a spec from running on what another spec read, from which it differs by this key."""
    needs: Callable[[S], Iterable[Need]] = field(default=lambda spec: ())
    """Returns what a spec needs beside what its sections ``lora`` and ``train`` and its adapters do."""
    describe: Callable[[S, I], Description]
    write: Callable[[Run, S, I], Plan]
    """Writes the plan's Parquet parts and returns what ``plan.json`` says; the main path writes all else."""
    extend: Callable[[Run, S, I, Plan], Plan] | None = None
    """Adds to a plan's parts what a spec asks for beyond them, and returns the plan of all; None: nothing is added."""
    stages: Callable[[Run, S, Plan], Iterable[Stage]]
    """Each is asked for when those before it are done: which work is left may depend on them."""
    changes: Callable[[S, Mapping[str, Any]], list[str]] = field(default=lambda spec, environment: [])
    """Says what of a spec's inputs, beside its files and models, is not what ``environment.json`` has of them."""
    refuse_analysis: Callable[[Run, S], None] = field(default=lambda run, spec: None)
    """Raises an InputError if the stored results do not allow the analysis of a spec."""
    refuse_stopped: Callable[[Sequence[Done]], None] = field(default=lambda made: None)
    """Raises a BiasevalError where a stage gave up units that later stages need."""
    given_up: Callable[[Run, S], Mapping[str, str]] = field(default=lambda run, spec: {})
    """Returns what a run goes on without so far, by its name, and why."""
    refuse_given_up: Callable[[Run, S], None] = field(default=lambda run, spec: None)
    """Raises a BiasevalError where a run went on without something that was given up; comes last."""
    derive: Callable[[Run, S], None] | None = None
    """Writes the settings and draws that SQL reads beside the outputs; None: a run without metrics."""
    conclude: Callable[[Run, S], None] | None = None
    """Writes further files from the metrics, beside the report."""
    page: Callable[[Run], Page] | None = None
    headline: Callable[[S], str] = field(default=lambda spec: "")
    """The query whose rows `biaseval run` prints."""


@dataclass(frozen=True)
class Deferred:
    """A function whose module is imported at the first call, and not where a run is only looked at."""

    function: str
    """``module:name``."""

    def __call__(self, *given: Any, **arguments: Any) -> Any:
        """Call the function."""
        return resolve_name(self.function)(*given, **arguments)


AnyKind = Kind[Any, Any]
"""A kind, where it does not matter which."""
