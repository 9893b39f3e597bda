"""Parts that failed while a run went on: the table ``failed_parts``, and the error at the end."""

from collections.abc import Sequence

from pyarrow import ArrowException

from biaseval.errors import BiasevalError, TransientError
from biaseval.execute.tasks import RESUMES
from biaseval.pipelines.kind import Stage
from biaseval.progress import say
from biaseval.store import Run, part_name, part_number
from biaseval.tables import FAILED_PARTS
from biaseval.units import Done, Unit, files_of

_FEW = 3
"""Parts that may fail, even if no other part was made."""


class FailedParts:
    """The failed parts of one command, and those of earlier commands that it has not tried again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failed: list[tuple[Stage, Done]] = []
        self._rows = _rows(run)
        self.n_made = 0
        """Units that are made, also by earlier commands."""

    def last(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units, with those that failed before at the end."""
        return sorted(units, key=lambda unit: not self._rows.keys().isdisjoint(unit.files))

    def add(self, stage: Stage, done: Done) -> bool:
        """Hear of a unit, and return whether it is a part that failed.

        Raises:
            BiasevalError: so many failed that the others would, too.
        """
        for file in done.unit.files:
            self._rows.pop(file, None)
        if "attempts" not in done.facts:
            self.n_made += 1
            return False
        self._failed.append((stage, done))
        for file in done.unit.files:
            where = {"table_name": file.partition("/")[0], "part": part_number(file)}
            self._rows[file] = {**where, "problem": _problem(done), "attempts": done.facts["attempts"]}
        self._store()
        say(f"{done.unit.files[0]}: {_problem(done)}")
        if len(self._failed) >= _FEW and len(self._failed) > self.n_made:
            self.refuse()
        return True

    def refuse(self) -> None:
        """Make sure that no part failed.

        Raises:
            TransientError: the processes of a part ended.
            BiasevalError: a part failed otherwise.
        """
        if not self._failed:
            self._store()
            return
        (stage, first), n_failed = self._failed[0], len(self._failed)
        n_rows = sum(done.unit.size for own, done in self._failed if own.noun == stage.noun)
        said = (
            f"{self._run.uri}: {stage.noun} that are missing: {n_rows:,}, in {n_failed} part{'s' * (n_failed > 1)} "
            f"that failed (first {first.unit.files[0]}: {_problem(first)}); biaseval status {self._run.uri} names all; "
            "the same command tries them again"
        )
        kind = TransientError if any(done.facts["has_ended"] for _, done in self._failed) else BiasevalError
        raise kind(said if self.n_made else first.facts["problem"])

    def _store(self) -> None:
        if self._rows:
            self._run.write_part(FAILED_PARTS.name, 0, FAILED_PARTS.rows(list(self._rows.values())))
            self._run.ledger.files.pop(f"{FAILED_PARTS.name}/{part_name(0)}", None)  # has no digest
        elif self._run.has(FAILED_PARTS.name):
            self._run.delete(FAILED_PARTS.name)


def _problem(done: Done) -> str:
    return str(done.facts["problem"]).removesuffix(RESUMES)


def _rows(run: Run) -> dict[str, dict[str, object]]:
    """Return the rows of the table, by the file that is missing; none of a damaged table, which has no digest."""
    if not run.has(f"{FAILED_PARTS.name}/{part_name(0)}"):
        return {}
    try:
        rows = run.read_part(FAILED_PARTS.name, 0).select(FAILED_PARTS.schema.names).cast(FAILED_PARTS.schema)
        return {f"{row['table_name']}/{part_name(row['part'])}": row for row in rows.to_pylist()}
    except (ArrowException, OSError, ValueError, LookupError, TypeError):
        return {}


def failed_parts(run: Run) -> dict[str, str]:
    """Return the files that no command has made since they failed last, and why they failed."""
    rows = _rows(run)
    left = rows.keys() - files_of(run, rows)
    return {name: f"tried {row['attempts']}×: {row['problem']}" for name, row in rows.items() if name in left}
