"""What a run is, from spec to report. Read this first.

spec → claim the run directory → plan (Parquet parts) → make what is missing, stage by stage, on Ray → marts by SQL →
report. What is planned, which stages there are and what is shown differs by kind: see `kind` and `kinds`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from biaseval.analysis.headlines import SUMMARY, summarize
from biaseval.analysis.own_sql import own_sql_problems
from biaseval.digests import kept, record
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.adapters import refuse_given_up
from biaseval.pipelines.directory import (
    adopt_analysis,
    begin,
    is_planned,
    lost_parts,
    read_plan,
    read_spec,
    refuse_foreign,
    settle_run,
)
from biaseval.pipelines.extras import refuse_missing_extras
from biaseval.pipelines.imported import imported_spec
from biaseval.pipelines.kind import AnyKind, Description, Stage
from biaseval.pipelines.kinds import kind_of
from biaseval.pipelines.log import logged
from biaseval.pipelines.prompts_file import score_spec
from biaseval.pipelines.weights import read_with_weights, weights_notes
from biaseval.pipelines.words import idle_budget
from biaseval.progress import making_progress, say
from biaseval.spec import (
    AnySpec,
    ExecutionSpec,
    ModelSpec,
    OnBadRow,
    Source,
    differences,
    of_analysis,
    of_no_section,
    override_keys,
    stored_spec,
    with_own_sql,
)
from biaseval.store import Run
from biaseval.units import Done, Unit, files_of, missing_units


def run_spec(spec: AnySpec, run_uri: str) -> Run:
    """Plan, train, score, analyse and report a run; on a directory that has it already, only what is missing.

    The metrics are those of the spec, also where the run was analysed otherwise before.

    Returns:
        The complete run.

    Raises:
        InputError: bad input, before any model is loaded.
        BiasevalError: making something or a check failed; the same call resumes.
    """
    kind = kind_of(spec)
    if kind.page is None:
        raise InputError(f"kind: {spec.kind} is a training, not a measurement; use biaseval train {spec.kind}")
    with planned_run(spec, run_uri) as run:
        make_missing(run, kind.stages(run, spec, read_plan(run)), spec.execution)
        say("computing the metrics")
        analyse(run, kind, spec)
        _write_page(run, kind)
        kind.refuse_given_up(run, spec)
    return run


def score_prompts(model: ModelSpec, execution: ExecutionSpec, prompts_file: Path, out_uri: str) -> Run:
    """Score any prompts with any labels; the scores are OUT/label_scores/part-*.parquet.

    Args:
        model: what to score with.
        execution: actors and their resources.
        prompts_file: Parquet or JSONL with ``prompt_id``, ``text`` and ``labels`` (list of text).
        out_uri: the directory for the scores; the same call resumes.

    Raises:
        InputError: bad input; the directory belongs to other prompts or another model.
    """
    spec = score_spec(model, execution, prompts_file)
    with planned_run(spec, out_uri) as run:
        make_missing(run, kind_of(spec).stages(run, spec, read_plan(run)), execution)
    return run


def import_scores(
    source: Source,
    files: Sequence[Path],
    run_uri: str,
    name: str | None = None,
    on_bad_row: OnBadRow = "error",
) -> Run:
    """Make a finished label-bias run of scores that somebody else made; no model, no Ray.

    Args:
        source: what the files are.
        files: with scores of one model.
        run_uri: the run's directory; the same files give the same run.
        name: of the run; None: what the files call the model.
        on_bad_row: of a table: ``drop`` leaves prompts out that lack their right label, counted.

    Returns:
        The run, with metrics and report.

    Raises:
        InputError: bad input; nothing is written.
    """
    spec = imported_spec(source, files, name, on_bad_row)
    kind = kind_of(spec)
    with planned_run(spec, run_uri) as run:
        say("computing the metrics")
        analyse(run, kind, spec)
        _write_page(run, kind)
    return run


def describe(spec: AnySpec) -> Description:
    """Return what a spec would run; loads no weights and writes nothing.

    Raises:
        InputError: bad input.
    """
    kind = kind_of(spec)
    refuse_missing_extras(kind, spec)
    found = kind.describe(spec, kind.read(spec))
    return replace(found, notes=[*found.notes, *idle_budget(spec.execution), *weights_notes(spec)])


def headline(spec: AnySpec) -> str:
    """Return the query whose rows are the metrics of a whole run of a spec."""
    return kind_of(spec).headline(spec)


@contextmanager
def planned_run(spec: AnySpec, run_uri: str) -> Iterator[Run]:
    """Yield the run directory, claimed for the spec, held and planned.

    Raises:
        InputError: bad input, the directory is another's, or no Ray answers where one should; nothing is written.
        TransientError: another process is working on it, or took it over.
    """
    from biaseval.execute.address import refuse_unusable_address
    from biaseval.execute.cluster import Cluster

    kind = kind_of(spec)
    run = Run.open(run_uri)
    refuse_foreign(run)
    refuse_missing_extras(kind, spec)
    if spec.models_used() and not is_planned(run):
        refuse_unusable_address()
    inputs = None if is_planned(run) else read_with_weights(kind, spec)
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
    *,
    is_whole_run: bool = True,
    at_once: int | None = None,
) -> list[Done]:
    """Make what each stage lacks, one stage behind the other; Ray starts once, and only if something is missing.

    Args:
        run: a planned run.
        stages: in order; what one makes the next may need.
        execution: actors and their resources.
        is_whole_run: what nothing needs is not made, as its products are there, and what is given up ends the run;
            otherwise the stages are made for themselves.
        at_once: runs of a search that share the cluster, of which this is one; None: it has all of it.

    Returns:
        What was made now; a unit that was given up is among it.

    Raises:
        InputError, BiasevalError: as the stages raise them; complete units stay.
    """
    from biaseval.execute.cluster import Cluster

    made: list[Done] = []
    with Cluster(execution, at_once) as cluster:
        for stage in stages:
            run.guard()
            missing = missing_units(run, stage.units, needed_only=is_whole_run)
            total, left = (sum(unit.size for unit in units) for units in (stage.units, missing))
            if not missing:
                say(f"all {total:,} {stage.noun} are {stage.verb} already")
                continue
            if left < total:
                say(f"resuming: {total - left:,} of {total:,} {stage.noun} are {stage.verb}")
            _delete_products(run, missing)
            cluster.settle()
            with making_progress(total, total - left, f"{stage.noun} {stage.verb}") as progress:
                own = []
                # Closed with the block: an error that somebody keeps would keep its actors and groups, too.
                with closing(cast("Generator[Done, None, None]", stage.make(run, missing, cluster))) as making:
                    for done in making:
                        for name in (*done.unit.files, *done.unit.beside):
                            run.ledger.files.setdefault(name, None)
                        run.ledger.files.update(done.digests)
                        progress.advance(done.unit.size, done.tokens)
                        run.guard()
                        own.append(done)
            made += own
            record(run)
            _refuse_missing(run, stage, missing, own)
            if is_whole_run:
                refuse_given_up(own)
    return made


def report_run(run_uri: str | Path) -> Run:
    """Compute the metrics of a finished run anew, and write its report.

    Raises:
        InputError: it holds no run of a kind that has metrics.
        BiasevalError: the run is not finished, or a check failed.
    """
    with _finished(run_uri) as (run, kind, spec):
        analyse(run, kind, spec)
        _write_page(run, kind)
    return run


def analyse_run(run_uri: str | Path) -> Run:
    """Compute the metrics of a finished run anew; Raises: as `report_run`."""
    with _finished(run_uri) as (run, kind, spec):
        analyse(run, kind, spec)
    return run


@contextmanager
def _finished(run_uri: str | Path) -> Iterator[tuple[Run, AnyKind, AnySpec]]:
    """Yield a finished run of a kind that has metrics, held, with its kind and spec; Raises: as `report_run`."""
    run, kind, spec = _opened(run_uri)
    with kept(run) as run, logged(run):
        _refuse_unfinished(run, kind, spec, settle_run(run, kind, spec))
        yield run, kind, spec


def _refuse_unfinished(run: Run, kind: AnyKind, spec: AnySpec, made: Collection[str]) -> None:
    """Make sure that all that a run's metrics need is there; Raises BiasevalError: it is not."""
    plan = read_plan(run)
    stages = list(kind.stages(run, spec, plan))
    units = [unit for stage in stages for unit in missing_units(run, stage.units, needed_only=True)]
    lacking = [name for unit in units for name in unit.files]
    total = sum(len(unit.files) for stage in stages for unit in stage.units)
    if lost := lost_parts(run, plan, made):
        lacking, total = [*lost, *lacking], len(lost) + total
    if lacking:
        raise BiasevalError(
            f"{run.uri}: {len(lacking)} of {total} parts missing (first: {lacking[0]}); run the same command again"
        )


def reanalyse_run(run_uri: str | Path, overrides: Sequence[str]) -> Run:
    """Change keys of the analysis of a finished run, and compute its metrics and report anew from what is stored.

    Args:
        run_uri: of the run.
        overrides: ``key.subkey=value`` strings; values are YAML.

    Raises:
        InputError: it holds no run of a kind that has metrics, or a key is none of the analysis.
        BiasevalError: the run is not finished, or a check failed.
    """
    with _finished(run_uri) as (run, kind, own):
        _refuse(run, of_no_section(own, overrides))
        content = own.model_dump(mode="json")
        override_keys(content, overrides)
        spec = stored_spec(content, "--set")
        if any(override.partition("=")[0].strip().startswith("analysis") for override in overrides):
            spec = with_own_sql(spec, "--set", Path.cwd())
        _refuse(run, of_analysis(own, spec))
        _refuse(run, own_sql_problems(spec.kind, spec.own_calibrations))
        kind.refuse_analysis(run, spec)
        if spec != own:
            for line in differences(own, spec):
                say(f"changed: {line.replace('the run has ', 'was ').replace(', the spec ', ', now ')}")
            adopt_analysis(run, spec)
        analyse(run, kind, spec)
        _write_page(run, kind)
    return run


def _refuse(run: Run, problems: Sequence[str]) -> None:
    if problems:
        raise InputError.of([f"{run.uri}: {problem}" for problem in problems])


def write_report(run_uri: str | Path) -> list[str]:
    """Write the report of a run that has its metrics; the same run gives the same bytes.

    Returns:
        The URIs of the files written, the report last.

    Raises:
        InputError: it holds no run of a kind that has metrics.
        BiasevalError: it has no metrics yet.
    """
    run, kind, _ = _opened(run_uri)
    return [f"{run.uri}/{name}" for name in _write_page(run, kind)]


def _opened(run_uri: str | Path) -> tuple[Run, AnyKind, AnySpec]:
    """Return a run of a kind that has metrics.

    Raises:
        InputError: it holds none.
    """
    run = Run.open(str(run_uri))
    spec = read_spec(run)
    kind = kind_of(spec)
    if kind.page is None:
        raise InputError(
            f"{run.uri}: holds a run of the kind {spec.kind}, which has no metrics; name another directory"
        )
    return run, kind, spec


def analyse(run: Run, kind: AnyKind, spec: AnySpec) -> None:
    """Compute the metrics of a run whose tables are all there."""
    from biaseval.analysis import write_marts

    if kind.derive is not None:
        kind.derive(run, spec)
    write_marts(run, spec.kind)
    record(run)
    if kind.conclude is not None:
        kind.conclude(run, spec)


def _write_page(run: Run, kind: AnyKind) -> list[str]:
    """Write figures, summary and report, and return their names."""
    if kind.page is None:
        return []
    page = kind.page(run)
    files = {f"figures/{figure.name}.svg": figure.svg for figure in page.figures}
    for name, svg in files.items():
        run.write_bytes(name, svg)
    run.write_json(SUMMARY, summarize(run, page.cautions))
    run.write_text("report.html", page.html)  # last: it says that the others are there
    return [*files, SUMMARY, "report.html"]


def _delete_products(run: Run, units: Sequence[Unit]) -> None:
    """Delete what was made with units that are made anew: it may not be the same to the last bit."""
    products = {name for unit in units for name in unit.products}
    for name in sorted(products & files_of(run, products)):
        run.delete(name)


def _refuse_missing(run: Run, stage: Stage, asked: Sequence[Unit], made: Sequence[Done]) -> None:
    """Make sure that a stage left nothing out silently.

    Raises:
        BiasevalError: units are missing that nothing said why of.
    """
    given_up = {done.unit.number for done in made if not done.is_complete}
    still = [unit for unit in missing_units(run, asked) if unit.number not in given_up]
    if still:
        raise BiasevalError(
            f"{run.uri}: {len(still)} of {len(stage.units)} parts are missing (first: {still[0].files[0]}); "
            "run the same command again to make them"
        )
