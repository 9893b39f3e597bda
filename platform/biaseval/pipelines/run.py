"""The path of a run from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → make missing units, stage by stage, on Ray → marts by SQL →
report. Plan, stages and report differ by kind: see `kind`; `runs.kinds` lists the kinds.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import cast

from biaseval.analysis.summary_marts import SUMMARY, summarize
from biaseval.digests import kept, record
from biaseval.left_out import left_out_files
from biaseval.pipelines.directory import FINDINGS, begin, is_planned, read_plan, refuse_foreign, settle_run
from biaseval.pipelines.failed_parts import FailedParts
from biaseval.pipelines.kind import AnyKind, Stage
from biaseval.pipelines.log import logged
from biaseval.pipelines.optional_packages import refuse_missing_extras
from biaseval.pipelines.planning import read_with_weights
from biaseval.progress import making_progress, say
from biaseval.spec import AnySpec, ExecutionSpec
from biaseval.store import Run
from biaseval.units import Done, Unit, files_of, missing_units, refuse_missing


@contextmanager
def planned_run(kind: AnyKind, spec: AnySpec, run_uri: str) -> Iterator[Run]:
    """Yield the run directory, claimed for the spec, held and planned.

    Raises:
        InputError: bad input, the directory is another's, or no Ray answers where one should; nothing is written.
        TransientError: another process is working on it, or took it over.
    """
    from biaseval.execute.address import refuse_unusable_address
    from biaseval.execute.cluster import Cluster

    run = Run.open(run_uri)
    refuse_foreign(run)
    refuse_missing_extras(kind, spec)
    inputs = None
    if not is_planned(run):
        if spec.models_used():
            refuse_unusable_address()
        inputs = read_with_weights(kind, spec)
    run.create()
    try:
        with kept(run) as run, logged(run):
            begin(run, kind, spec, inputs)
            yield run
    finally:
        Cluster.leave()  # where planning began a Ray and nothing was made


def make_missing(
    run: Run,
    stages: Iterable[Stage],
    execution: ExecutionSpec,
    kind: AnyKind | None = None,
    *,
    at_once: int | None = None,
) -> list[Done]:
    """Make the missing units, one stage after the other; Ray starts once, and only if a unit is missing.

    Args:
        run: a planned run.
        stages: in order; a stage may need the results of earlier ones.
        execution: actors and their resources.
        kind: of a whole run, which skips units whose products exist, and may not go on without those that are given up;
            None: all units of the stages are made.
        at_once: the number of runs of a search that share the cluster; None if this run has all of it.

    Returns:
        The units of this call, with those that were given up.

    Raises:
        InputError, BiasevalError: as the stages raise them; complete units stay.
        BiasevalError: parts failed, and all others are complete (`FailedParts`).
    """
    from biaseval.execute.cluster import Cluster
    from biaseval.execute.messages import STORAGE

    made, failed = list[Done](), FailedParts(run)
    run.delete(STORAGE)  # what a process left that was stopped after its last training
    with Cluster(execution, at_once) as cluster:
        for stage in stages:
            run.guard()
            missing = failed.last(missing_units(run, stage.units, needed_only=kind is not None))
            for unit in stage.units:  # a process that was stopped may have left the checkpoints of a whole model
                is_missing = unit.number in {own.number for own in missing}
                if "checkpoints" in unit.work and not is_missing and run.has(unit.work["folder"]):
                    run.delete(unit.work["checkpoints"])
            failed.n_made += len(stage.units) - len(missing)
            total, left = (sum(unit.size for unit in units) for units in (stage.units, missing))
            if not missing:
                say(f"all {total:,} {stage.noun} are {stage.verb} already")
                continue
            if left < total:
                say(f"resuming: {total - left:,} of {total:,} {stage.noun} are {stage.verb}")
            products = {name for unit in missing for name in unit.products}
            for name in sorted(products & files_of(run, products)):  # the new ones may differ in the last bits
                run.delete(name)
            cluster.settle()
            with making_progress(total, total - left, f"{stage.noun} {stage.verb}") as progress:
                own = []
                # Closed with the block: an error that somebody keeps would keep its actors and groups, too.
                with closing(cast("Generator[Done, None, None]", stage.make(run, missing, cluster))) as making:
                    for done in making:
                        own.append(done)
                        if failed.add(stage, done):
                            continue
                        for name in (*done.unit.files, *done.unit.beside):
                            run.ledger.files.setdefault(name, None)
                        run.ledger.files.update(done.digests)
                        progress.advance(done.unit.size, done.tokens)
                        run.guard()
            made += own
            record(run)
            given_up = {done.unit.number for done in own if not done.is_complete}
            left_out = [unit.files[0] for unit in missing_units(run, missing) if unit.number not in given_up]
            refuse_missing(run, left_out, len(stage.units))
            if kind is not None:
                kind.refuse_stopped([done for done in own if "attempts" not in done.facts])
            if not isinstance(stages, Sequence):  # a later stage may read what failed
                failed.refuse()
    failed.refuse()
    return made


def refuse_unfinished(run: Run, kind: AnyKind, spec: AnySpec) -> None:
    """Settle a run, and make sure that all that its metrics need is there; Raises BiasevalError: it is not."""
    plan = read_plan(run)
    lacking = settle_run(run, kind, spec, plan)
    stages = list(kind.stages(run, spec, plan))
    total = len(lacking) + sum(len(unit.files) for stage in stages for unit in stage.units)
    refuse_missing(run, [*lacking, *(name for unit in needed_units(run, stages) for name in unit.files)], total)


def needed_units(run: Run, stages: Iterable[Stage]) -> list[Unit]:
    """Return the units that a run still needs, each with the files that it lacks; none: all is made or left out."""
    without = left_out_files(run)
    lacking = (unit for stage in stages for unit in missing_units(run, stage.units, needed_only=True))
    return [unit for unit in lacking if not without.issuperset(unit.files)]


def finish(run: Run, kind: AnyKind, spec: AnySpec, *, page: bool) -> None:
    """Compute the metrics of a run, under its lease, whose tables are all there.

    With ``page`` write database, report, figures and summary; else they are deleted if the metrics are others now.
    """
    before = _marts(run)
    analyse(run, kind, spec, database=page)
    if page:
        write_page(run, kind)
    elif _marts(run) != before:
        for name in (*FINDINGS, SUMMARY):
            run.delete(name)


def analyse(run: Run, kind: AnyKind, spec: AnySpec, *, database: bool = True) -> None:
    """Compute the metrics of a run whose tables are all there; with ``database``, write ``results.duckdb``, too."""
    from biaseval.analysis import write_marts

    if kind.derive is not None:
        kind.derive(run, spec)
        record(run)  # a process that is killed in the marts would leave files that seem damaged
    write_marts(run, spec.kind, database=database)
    record(run)
    if kind.conclude is not None:
        kind.conclude(run, spec)


def _marts(run: Run) -> dict[str, str | None]:
    """Return the SHA-256 of each recorded mart."""
    return {name: own and own.sha256 for name, own in run.ledger.files.items() if name.startswith("marts/")}


def write_page(run: Run, kind: AnyKind) -> list[str]:
    """Write figures, summary and report, and return their names."""
    if kind.page is None:
        return []
    page = kind.page(run)
    files = {f"figures/{figure.name}.svg": figure.svg for figure in page.figures}
    for name, svg in files.items():
        run.write_bytes(name, svg)
    html, said = page.html, (page.conclusions, page.cautions)
    del page  # with its connection, and what that holds
    run.write_json(SUMMARY, summarize(run, *said))
    run.write_text("report.html", html)  # last: it says that the others are there
    return [*files, SUMMARY, "report.html"]
