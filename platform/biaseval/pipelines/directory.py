"""Whose a run directory is: nothing foreign is written over, and no run goes on with another spec, model or data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from biaseval.environment import (
    FILE,
    PRIMARY_BEFORE,
    amend_environment,
    date_of,
    describe_environment,
    read_environment,
)
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.kind import Inputs, Kind, Plan
from biaseval.pipelines.weights import read_with_weights
from biaseval.progress import say
from biaseval.records import digest
from biaseval.spec import AnySpec, analysed_as, blocking, differences, dump_spec, grown_keys, of_analysis, stored_spec
from biaseval.store import Run, part_name
from biaseval.tables import TABLES

_PLAN = "plan.json"
_SPEC = "spec.yaml"
_HISTORY = "specs"
"""Holds the specs that a run had, the oldest first."""


def is_planned(run: Run) -> bool:
    """Return whether the run's plan is complete: its file is written last."""
    return run.has(_PLAN)


def read_plan(run: Run) -> Plan:
    """Return what ``plan.json`` holds.

    Raises:
        InputError: there is no planned run.
    """
    if not is_planned(run):
        raise InputError(f"{run.uri}: holds no planned run; check the path, or start one")
    plan: Plan = run.read_json(_PLAN)
    return plan


def read_spec(run: Run) -> AnySpec:
    """Return the spec of a run, which this version or an older one wrote.

    Raises:
        InputError: there is none, or none of a kind that this version knows.
    """
    if not run.has(_SPEC):
        raise InputError(f"{run.uri}: is not a run directory (no {_SPEC} in it); name the directory of a run")
    return stored_spec(run.read_yaml(_SPEC), f"{run.uri}/{_SPEC}")


def refuse_foreign(run: Run) -> None:
    """Make sure that the directory is new, or a run: nothing else is ever written over.

    Raises:
        InputError: it holds files and none says that they are a run's.
    """
    if not set(run.names()) - run.leftovers():
        return
    # The first file that a run writes.
    try:
        if "versions" in read_environment(run):
            return
    except BiasevalError:  # it is damaged
        pass
    raise InputError(f"{run.uri}: is not empty and not a run directory; choose another, nothing is written over")


class Change(Enum):
    """What a spec asks of a planned run that the run's own did not."""

    NONE = "nothing"
    ANALYSIS = "another analysis of what is stored"
    MORE = "more than it was planned for"


def refuse_another(run: Run, kind: Kind[Any, Any], spec: AnySpec) -> Change:
    """Make sure that a planned run is this spec's, on the same models and data; the analysis may be another.

    Raises:
        InputError: it belongs to another spec, or an input changed since it was planned; the message lists all.
    """
    own = read_spec(run)
    different = differences(own, spec)
    is_same_kind = type(own) is type(spec)
    aligned = analysed_as(own, spec) if different and is_same_kind else spec
    grown = grown_keys(own, aligned) if different and kind.extend is not None else []
    if different and not grown and (not is_same_kind or of_analysis(own, spec)):
        named = (blocking(own, spec) if kind.extend is not None else []) or different
        lines = "".join(f"\n  - {line}" for line in named)
        raise InputError(
            f"{run.uri}: belongs to another spec; choose another directory, or undo the difference (its own is "
            f"{run.uri}/{_SPEC}):{lines}"
        )
    environment = read_environment(run)
    recorded = environment.get("inputs", {})
    changed = [
        f"{key}: the file changed"
        for key, digest in file_digests(spec).items()
        if recorded.get(key) != digest and not (grown and key not in recorded)
    ]
    changed += kind.changes(spec if not grown else own, environment)
    problems = [f"{one} since {run.uri} was planned; restore it, or choose another directory" for one in changed]
    known = _fingerprints(environment)
    for place, fingerprint in fingerprints(spec).items():
        if grown and place not in known:
            continue
        if fingerprint["digest"] != known[place]["digest"]:
            path = spec.models_used()[place].path
            problems.append(
                f"{path}: is not the model that {run.uri} was planned with; restore it, or choose another directory"
            )
    if problems:
        raise InputError.of(problems)
    if not different:
        return Change.NONE
    if not grown:
        kind.refuse_analysis(run, spec)
    for line in differences(aligned, spec) if grown else different:
        say(f"metrics are going to be those of the spec: {line}")
    return Change.MORE if grown else Change.ANALYSIS


def extend_plan(run: Run, kind: Kind[Any, Any], spec: AnySpec) -> None:
    """Add to the plan of a run what a spec asks for beyond it; what is there keeps its bytes.

    A killed call changes nothing: parts that the plan does not name are swept, and the same call begins again.

    Raises:
        InputError: the spec's inputs do not make a run, or would change what is there.
    """
    assert kind.extend is not None
    inputs = read_with_weights(kind, spec)
    say(f"adding to the plan of {inputs.subject}")
    plan = kind.extend(run, spec, inputs, read_plan(run))
    for name in FINDINGS:  # they are of the run as it was
        run.delete(name)
    run.write_json(_PLAN, plan)
    environment = read_environment(run)
    for place, fingerprint in fingerprints(spec).items():
        _put(environment, place, fingerprint)
    # The data of the plan are those of the extended one; how a run was scored so far stays.
    facts = {name: fact for name, fact in inputs.facts.items() if name != "data"}
    run.write_json(FILE, {**environment, "inputs": file_digests(spec), **facts})
    adopt_spec(run, spec)


FINDINGS = ("report.html", "results.duckdb")
"""The files that say that a run has metrics."""


def adopt_analysis(run: Run, spec: AnySpec) -> None:
    """Make a spec of another analysis that of a run, whose metrics are then still to be computed."""
    for name in FINDINGS:
        run.delete(name)
    adopt_spec(run, spec)


def adopt_spec(run: Run, spec: AnySpec) -> None:
    """Make a spec that of a run, and keep the one that it had."""
    _record_primary(run, spec)
    before, kept = run.read_text(_SPEC), sorted(run.files(_HISTORY))
    if not kept or run.read_text(kept[-1]) != before:  # else a killed call has kept it
        run.write_text(f"{_HISTORY}/{len(kept):05d}.yaml", before)
    run.write_text(_SPEC, dump_spec(spec))


def _record_primary(run: Run, spec: AnySpec) -> None:
    """Record which primary question a run had when its scores came, where a spec names another."""
    old, new = (getattr(each, "primary", None) for each in (read_spec(run), spec))
    if old != new and run.parts("label_scores") and PRIMARY_BEFORE not in read_environment(run):
        amend_environment(run, **{PRIMARY_BEFORE: None if old is None else old.model_dump(mode="json")})


def sweep_unplanned(run: Run, plan: Plan) -> None:
    """Delete parts of what is planned that the plan does not name: a killed addition left them."""
    parts = plan.get("parts", ())
    if not parts or "contexts_part" not in parts[0]:
        return
    for table, named in (
        ("prompts", {part["part"] for part in parts}),
        ("contexts", {part["contexts_part"] for part in parts}),
    ):
        for number in run.parts(table) - named:
            run.delete(f"{table}/{part_name(number)}")
    n_planned = plan.get("n_settings") or plan.get("n_tasks")
    if n_planned is None:  # of a run that only scores prompts
        return
    for table in ("tasks", "splits", "settings"):
        for number in run.parts(table):
            if number >= n_planned:
                run.delete(f"{table}/{part_name(number)}")


def write_plan(run: Run, kind: Kind[Any, Any], spec: AnySpec, inputs: Inputs) -> None:
    """Write the plan of a run, in Parquet parts; ``plan.json`` comes last and says that it is complete.

    Raises:
        InputError: the spec's inputs do not make a run; nothing of it is left.
    """
    environment: dict[str, Any] = {
        "date": date_of(run),
        **describe_environment(),
        "seed": getattr(spec, "seed", None),
    }
    for place, fingerprint in fingerprints(spec).items():
        _put(environment, place, fingerprint)
    # First of all: it is what tells a run from other people's files.
    run.write_json(FILE, {**environment, "inputs": file_digests(spec), **inputs.facts})
    run.write_text(_SPEC, dump_spec(spec))
    for table in TABLES:
        run.delete(table)
    say(f"planning {inputs.subject}")
    try:
        plan = kind.write(run, spec, inputs)
    except InputError:
        # Nothing of a plan that cannot be is left behind; what marks the directory as a run goes last.
        for name in (*TABLES, _SPEC, FILE):
            run.delete(name)
        raise
    run.write_json(_PLAN, plan)


def fingerprints(spec: AnySpec) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what identifies each model that a spec loads, by its place in ``environment.json``."""
    from biaseval.models import ModelSource, fingerprint_model

    return {place: fingerprint_model(ModelSource.of(model)) for place, model in spec.models_used().items()}


def _put(environment: dict[str, Any], place: tuple[str, ...], fingerprint: Mapping[str, Any]) -> None:
    section = environment
    for name in place[:-1]:
        section = section.setdefault(name, {})
    section[place[-1]] = fingerprint


def _fingerprints(environment: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return what ``environment.json`` has of each model, by its place there."""
    found: dict[tuple[str, ...], Any] = {("model",): environment["model"]} if "model" in environment else {}
    several = [(key, name, known) for key in ("models", "bases") for name, known in environment.get(key, {}).items()]
    return found | {(key, name): known for key, name, known in several}


def file_digests(spec: AnySpec) -> dict[str, str]:
    """Return the SHA-256 of each input file of a spec, by its key."""
    return {key: digest(uri) for key, uri in spec.files().items() if uri is not None}
