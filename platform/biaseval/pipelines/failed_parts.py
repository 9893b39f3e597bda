"""Parts that failed while a run went on: the table ``failed_parts``, and the error at the end."""

from biaseval.errors import BiasevalError
from biaseval.execute.tasks import RESUMES
from biaseval.pipelines.kind import Stage
from biaseval.progress import say
from biaseval.store import Run, part_name, part_number
from biaseval.tables import FAILED_PARTS
from biaseval.units import Done, files_of

_FEW = 3
"""Parts that may fail, even if no other part was made."""


class FailedParts:
    """Those of one command; a later command tries them again."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._failed: list[tuple[Stage, Done]] = []
        self._n_made = 0

    def add(self, stage: Stage, done: Done) -> bool:
        """Hear of a unit, and return whether it is a part that failed.

        Raises:
            BiasevalError: so many failed that the others would, too.
        """
        if "attempts" not in done.facts:
            self._n_made += 1
            return False
        self._failed.append((stage, done))
        rows: list[dict[str, object]] = [
            {
                "table_name": file.partition("/")[0],
                "part": part_number(file),
                "problem": _problem(own),
                "attempts": own.facts["attempts"],
            }
            for _, own in self._failed
            for file in own.unit.files
        ]
        self._run.write_part(FAILED_PARTS.name, 0, FAILED_PARTS.rows(rows))
        say(f"{done.unit.files[0]}: {_problem(done)}")
        if len(self._failed) >= _FEW and len(self._failed) > self._n_made:
            self.refuse()
        return True

    def refuse(self) -> None:
        """Make sure that no part failed, and delete the table of earlier ones; Raises BiasevalError: some did."""
        if not self._failed:
            if self._run.has(FAILED_PARTS.name):
                self._run.delete(FAILED_PARTS.name)
            return
        stage, first = self._failed[0]
        if not self._n_made:
            raise BiasevalError(first.facts["problem"])
        n_failed = len(self._failed)
        n_rows = sum(done.unit.size for own, done in self._failed if own.noun == stage.noun)
        raise BiasevalError(
            f"{self._run.uri}: {n_failed} part{'s' if n_failed > 1 else ''} with {n_rows:,} {stage.noun} failed "
            f"(first: {first.unit.files[0]}: {_problem(first)}); biaseval status {self._run.uri} names all, and the "
            "same command tries them again"
        )


def _problem(done: Done) -> str:
    return str(done.facts["problem"]).removesuffix(RESUMES)


def failed_parts(run: Run) -> dict[str, str]:
    """Return the files that no command has made since they failed last, and why they failed."""
    rows = run.read_table(FAILED_PARTS.name).to_pylist() if run.parts(FAILED_PARTS.name) else []
    why = {f"{row['table_name']}/{part_name(row['part'])}": row for row in rows}
    left = why.keys() - files_of(run, why)
    return {name: f"tried {row['attempts']} times: {row['problem']}" for name, row in why.items() if name in left}
