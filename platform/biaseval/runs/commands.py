"""What the commands do: each takes a spec or the directory of a run, and asks its kind once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from biaseval import spec as specs
from biaseval.analysis.own_sql import refuse_own_sql
from biaseval.digests import kept
from biaseval.environment import SPEC
from biaseval.errors import BiasevalError, InputError, Problems, refuse
from biaseval.left_out import left_out_files
from biaseval.pipelines.cost_lines import idle_budget
from biaseval.pipelines.directory import adopt_analysis, fingerprints, is_planned, read_plan, read_spec
from biaseval.pipelines.instruct import instruct_summary
from biaseval.pipelines.kind import AnyKind, Description, Trained
from biaseval.pipelines.labels.adapters import lora_of, training_summary
from biaseval.pipelines.labels.imported_scores import imported_spec
from biaseval.pipelines.labels.score import score_spec
from biaseval.pipelines.log import logged
from biaseval.pipelines.optional_packages import refuse_missing_extras
from biaseval.pipelines.planning import read_with_weights, weights_notes
from biaseval.pipelines.qa.kind import readers_summary
from biaseval.pipelines.qa.training_stages import TrainingStages
from biaseval.pipelines.run import finish, make_missing, planned_run, refuse_unfinished, write_page
from biaseval.progress import say
from biaseval.runs.kinds import kind_of
from biaseval.runs.status import run_status
from biaseval.store import Run


def run_spec(spec: specs.AnySpec, run_uri: str, *, page: bool = True) -> Run:
    """Plan, train, score, analyse and report a run; in a directory of the same run, only the missing parts.

    The analysis follows the spec, also if `reanalyse_run` changed the analysis before. Without ``page`` there is no
    report, with its figures and summary, and no ``results.duckdb``.

    Returns:
        The complete run.

    Raises:
        InputError: bad input, before any model is loaded.
        BiasevalError: a stage or a check failed; the same call resumes.
    """
    kind = kind_of(spec)
    if kind.page is None:
        raise InputError(f"kind: {spec.kind} is a training, not a measurement; use biaseval train {spec.kind}")
    with planned_run(kind, spec, run_uri) as run:
        make_missing(run, kind.stages(run, spec, read_plan(run)), spec.execution, kind)
        say("computing the metrics")
        finish(run, kind, spec, page=page)
        kind.refuse_given_up(run, spec)
    return run


def run_each(wanted: Mapping[str, specs.AnySpec]) -> list[str]:
    """Make the run of each spec that is not complete, and one page over all; return the URIs of runs and page.

    The key of a spec is the directory of its run. All are in one folder, whose ``report.html`` is the page.

    Raises:
        InputError: keys or files of a run are bad, and no run begins; or the rows of every run are.
        BiasevalError: a run failed, and the others were made all the same; the same call makes it again.
    """
    from biaseval.report import write_comparison

    new = {uri: own for uri, own in wanted.items() if not is_planned(Run.open(uri))}
    for_each(new, lambda own: (read_with_weights(kind_of(own), own), fingerprints(own)))
    failed: dict[str, BiasevalError] = {}
    for uri, spec in wanted.items():
        run = Run.open(uri)
        try:
            is_complete = run.has(SPEC) and read_spec(run) == spec and run_status(uri).is_complete
            is_complete = is_complete and not left_out_files(run)
            say(f"{uri} {'is complete' if is_complete else 'begins or goes on'}")
            _ = is_complete or run_spec(spec, uri)
        except BiasevalError as error:
            say(f"error: {error}")
            failed[uri] = error
    if failed:
        all_bad = failed.keys() == wanted.keys() and all(isinstance(error, InputError) for error in failed.values())
        said = f"{', '.join(failed)}: failed, as said above; mend it, and run the same command again"
        raise (InputError if all_bad else BiasevalError)(said)
    return [*wanted, write_comparison([*wanted], f"{uri.rpartition('/')[0]}/report.html")]


def for_each(wanted: Mapping[str, specs.AnySpec], work: Callable[[specs.AnySpec], Any]) -> dict[str, Any]:
    """Return the result of ``work`` for each spec; Raises InputError: with all that is wrong with any."""
    problems, found = Problems(), {}
    for uri, spec in wanted.items():
        with problems.noted():
            found[uri] = work(spec)
    problems.refuse()
    return found


def score_prompts(model: specs.ModelSpec, execution: specs.ExecutionSpec, prompts_file: Path, out_uri: str) -> Run:
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
    kind = kind_of(spec)
    with planned_run(kind, spec, out_uri) as run:
        make_missing(run, kind.stages(run, spec, read_plan(run)), execution, kind)
    return run


def import_scores(
    source: specs.Source,
    files: Sequence[Path],
    run_uri: str,
    name: str | None = None,
    on_bad_row: specs.OnBadRow = "error",
    *,
    page: bool = True,
) -> Run:
    """Make a finished label-bias run of scores that somebody else made; no model, no Ray.

    Args:
        source: what the files are.
        files: with scores of one model.
        run_uri: the run's directory; the same files give the same run.
        name: of the run; None: what the files call the model.
        on_bad_row: of a table: ``drop`` leaves prompts out that lack their right label, counted.
        page: as in `run_spec`.

    Returns:
        The run, with metrics and report.

    Raises:
        InputError: bad input; nothing is written.
    """
    return run_spec(imported_spec(source, files, name, on_bad_row), run_uri, page=page)


def describe(spec: specs.AnySpec) -> Description:
    """Return what a spec would run; loads no weights and writes nothing; Raises InputError: bad input."""
    kind = kind_of(spec)
    refuse_missing_extras(kind, spec)
    found = kind.describe(spec, kind.read(spec))
    return replace(found, notes=[*found.notes, *idle_budget(spec.execution), *weights_notes(spec)])


def headline(spec: specs.AnySpec) -> str:
    """Return the query whose rows are the metrics of a whole run of a spec."""
    return kind_of(spec).headline(spec)


def report_run(run_uri: str | Path, *, page: bool = True) -> Run:
    """Compute the metrics of a finished run again, and write its report; ``page`` is that of `run_spec`.

    Raises:
        InputError: the directory holds no run of a kind with metrics.
        BiasevalError: the run is not finished, or a check failed.
    """
    with _finished(run_uri) as (run, kind, spec):
        finish(run, kind, spec, page=page)
    return run


@contextmanager
def _finished(run_uri: str | Path) -> Iterator[tuple[Run, AnyKind, specs.AnySpec]]:
    """Yield a finished run of a kind with metrics, under its lease, with its kind and spec; Raises: as `report_run`."""
    run, kind, spec = _opened(run_uri)
    with kept(run) as run, logged(run):
        refuse_unfinished(run, kind, spec)
        yield run, kind, spec


def reanalyse_run(run_uri: str | Path, overrides: Sequence[str], *, page: bool = True) -> Run:
    """Change keys of the analysis of a finished run, and compute metrics and report from the stored results.

    The overrides are ``key.subkey=value`` strings with values in YAML; ``page`` is that of `run_spec`.

    Raises:
        InputError: the directory holds no run of a kind with metrics, or a key does not belong to the analysis.
        BiasevalError: the run is not finished, or a check failed.
    """
    with _finished(run_uri) as (run, kind, own):
        refuse(specs.of_no_section(own, overrides), f"{run.uri}: ")
        content = own.model_dump(mode="json")
        specs.override_keys(content, overrides)
        keys = {override.partition("=")[0].strip() for override in overrides}
        if is_other_sql := bool(keys & {"analysis", "analysis.sql"}):
            content["analysis"] = {key: value for key, value in content["analysis"].items() if key != "files"}
        spec = specs.stored_spec(content, "--set")
        if is_other_sql:
            spec = specs.with_own_sql(spec, "--set", Path.cwd())
        refuse(specs.of_analysis(own, spec), f"{run.uri}: ")
        keeps = getattr(getattr(spec, "analysis", None), "missing_parts", None) == "leave_out"
        if (lacking := left_out_files(run)) and not keeps:
            raise BiasevalError(f"{run.uri}/{min(lacking)}: failed, and is left out; biaseval run tries it again")
        refuse_own_sql(spec)
        kind.refuse_analysis(run, spec)
        if spec != own:
            for line in specs.differences(own, spec):
                change = line.replace("the run has ", "was ").replace(", the spec ", ", now ")
                say(f"changed: {shorten(change, 160, placeholder=' …')}")
            adopt_analysis(run, spec)
        finish(run, kind, spec, page=page)
    return run


def write_report(run_uri: str | Path) -> list[str]:
    """Write the report of a run that has its metrics; the same run gives the same bytes.

    Returns:
        The URIs of the files written, the report last.

    Raises:
        InputError: it holds no run of a kind that has metrics.
        BiasevalError: it has no metrics yet.
    """
    run, kind, _ = _opened(run_uri)
    return [f"{run.uri}/{name}" for name in write_page(run, kind)]


def _opened(run_uri: str | Path) -> tuple[Run, AnyKind, specs.AnySpec]:
    """Return a run of a kind that has metrics; Raises InputError: it holds none."""
    run = Run.open(str(run_uri))
    spec = read_spec(run)
    kind = kind_of(spec)
    if kind.page is None:
        raise InputError(
            f"{run.uri}: holds a run of the kind {spec.kind}, which has no metrics; name another directory"
        )
    return run, kind, spec


def claimed_run(spec: specs.AnySpec, run_uri: str) -> AbstractContextManager[Run]:
    """Yield the run directory, claimed for a spec, held and planned; Raises: as `planned_run`."""
    return planned_run(kind_of(spec), spec, run_uri)


def train_lora(spec: specs.AnySpec, run_uri: str) -> Trained:
    """Plan a run as `run_spec` does, and train its adapters; on a directory that has it, only those that are missing.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed; the same call resumes.
    """
    lora_of(spec)
    kind = kind_of(spec)
    with planned_run(kind, spec, run_uri) as run:
        stage, *_ = kind.stages(run, spec, read_plan(run))
        return training_summary(run, stage, make_missing(run, [stage], spec.execution))


def train_instruct(spec: specs.AnySpec, run_uri: str) -> Trained:
    """Tune a model on conversations; on a directory that has begun to, go on after its last checkpoint.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed, or a loss or gradient was not finite; the same call resumes.
    """
    spec = specs.of_kind(spec, "kind: {kind} is a measurement; name a spec of the kind instruct", specs.InstructSpec)
    kind = kind_of(spec)
    with planned_run(kind, spec, run_uri) as run:
        made = make_missing(run, kind.stages(run, spec, read_plan(run)), spec.execution, kind)
        return instruct_summary(run, spec, made)


def train_qa(spec: specs.AnySpec, run_uri: str) -> Trained:
    """Plan a run as `run_spec` does, and train its readers; on a directory that has it, only those that are missing.

    Raises:
        InputError: bad input, before any weights are loaded; or segments with too few questions to train on.
        BiasevalError: training failed; the same call resumes.
    """
    spec = specs.of_kind(
        spec, "kind: {kind} trains no readers; name a qa_bias spec with a section train", specs.QaBiasSpec
    )
    if spec.train is None:
        raise InputError("train: the spec has no such section, which says what to train; add bases, data, validation")
    with claimed_run(spec, run_uri) as run:
        stages = TrainingStages(run, spec, spec.train, read_plan(run))
        return readers_summary(stages, make_missing(run, stages, spec.execution))
