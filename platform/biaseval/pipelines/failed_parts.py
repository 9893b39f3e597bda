"""Parts that failed while a run went on: the table ``failed_parts``, and the error at the end."""

from collections.abc import Sequence

from biaseval.errors import BiasevalError, TransientError
from biaseval.execute.tasks import RESUMES
from biaseval.left_out import asks_to_leave_out, failed_rows, is_anything_left, left_out, rows_of
from biaseval.pipelines.directory import FINDINGS
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
        self._rows = failed_rows(run)
        if self._rows:  # a command that was killed may have made what stands there as failed, and the spec may change
            is_left_out = any(row["is_left_out"] for row in self._rows.values()) and asks_to_leave_out(run)
            for file in files_of(run, self._rows):
                self._rows.pop(file, None)
            self._store(is_left_out=is_left_out)
        self._said = ""
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
            table = file.partition("/")[0]
            where = {"table_name": table, "part": part_number(file), "rows_of": rows_of(self._run, table, done.unit)}
            self._rows[file] = {**where, "problem": _problem(done), "attempts": done.facts["attempts"]}
        self._store()
        say(f"{done.unit.files[0]}: {_problem(done)}")
        if len(self._failed) >= _FEW and len(self._failed) > self.n_made:
            self._raise()
        return True

    def refuse(self) -> None:
        """Make sure that no part failed, or that the spec has the metrics leave out what did.

        Raises:
            TransientError: the processes of a part ended.
            BiasevalError: a part failed otherwise.
        """
        if self._may_be_left_out():
            names = ", ".join(sorted({name for row in self._rows.values() for name in row["rows_of"]}))
            if names != self._said:
                say(f"left out of all numbers, because parts failed: {names}; the same command tries them again")
            self._said = names
            return
        if self._failed:
            self._raise()

    def _raise(self) -> None:
        (stage, first), n_failed = self._failed[0], len(self._failed)
        n_rows = sum(done.unit.size for own, done in self._failed if own.noun == stage.noun)
        said = (
            f"{self._run.uri}: {stage.noun} that are missing: {n_rows:,}, in {n_failed} part{'s' * (n_failed > 1)} "
            f"that failed (first {first.unit.files[0]}: {_problem(first)}); biaseval status {self._run.uri} names all; "
            "the same command tries them again"
        )
        if asks_to_leave_out(self._run):
            said += "; the metrics cannot leave them out, because nothing would be left, or because they need them"
        elif all(row["rows_of"] for row in self._rows.values()):
            said += "; with analysis.missing_parts: leave_out it computes the metrics without them"
        kind = TransientError if any(done.facts["has_ended"] for _, done in self._failed) else BiasevalError
        raise kind(said if self.n_made else first.facts["problem"])

    def _may_be_left_out(self) -> bool:
        """Store the rows, and return whether the spec has the metrics leave them out, and something is left."""
        is_asked = bool(self._rows) and asks_to_leave_out(self._run)
        may_be = is_asked and all(row["rows_of"] for row in self._rows.values())
        self._store(is_left_out=may_be)
        if may_be and not is_anything_left(self._run):
            self._store()
            may_be = False
        return may_be

    def _store(self, *, is_left_out: bool = False) -> None:
        before = left_out(self._run)
        self._rows = {file: {**row, "is_left_out": is_left_out} for file, row in self._rows.items()}
        after = {one for row in self._rows.values() for one in row["rows_of"] or () if is_left_out}
        if after != {f"{column} {value}" for column, values in before.items() for value in values}:
            for name in (*FINDINGS, "marts"):  # they are of other rows
                self._run.delete(name)
        if self._rows:
            self._run.write_part(FAILED_PARTS.name, 0, FAILED_PARTS.rows(list(self._rows.values())))
            self._run.ledger.files.pop(f"{FAILED_PARTS.name}/{part_name(0)}", None)  # has no digest
        elif self._run.has(FAILED_PARTS.name):
            self._run.delete(FAILED_PARTS.name)


def _problem(done: Done) -> str:
    return str(done.facts["problem"]).removesuffix(RESUMES)


def failed_parts(run: Run) -> dict[str, str]:
    """Return the files that no command has made since they failed last, and why they failed."""
    rows = failed_rows(run)
    said = {name: f"; without {', '.join(row['rows_of'])}" if row["is_left_out"] else "" for name, row in rows.items()}
    left = rows.keys() - files_of(run, rows)
    return {name: f"tried {rows[name]['attempts']}×: {rows[name]['problem']}{said[name]}" for name in sorted(left)}
