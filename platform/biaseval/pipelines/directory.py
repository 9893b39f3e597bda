"""Whose a run directory is: nothing foreign is written over, and no run goes on with another spec, model or data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from biaseval.environment import FILE, date_of, describe_environment, read_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines.kind import Inputs, Kind, Plan
from biaseval.progress import say
from biaseval.spec import AnySpec, differences, dump_spec, stored_spec
from biaseval.store import Run
from biaseval.tables import TABLES

_PLAN = "plan.json"
_SPEC = "spec.yaml"


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


def refuse_another(run: Run, kind: Kind[Any, Any], spec: AnySpec) -> None:
    """Make sure that a planned run is this spec's, on the same models and data.

    Raises:
        InputError: it belongs to another spec, or an input changed since it was planned; the message lists all.
    """
    different = differences(read_spec(run), spec)
    if different:
        lines = "".join(f"\n  - {line}" for line in different)
        raise InputError(
            f"{run.uri}: belongs to another spec; choose another directory, or undo the difference:{lines}"
        )
    environment = read_environment(run)
    recorded = environment.get("inputs", {})
    changed = [f"{key}: the file changed" for key, digest in file_digests(spec).items() if recorded.get(key) != digest]
    changed += kind.changes(spec, environment)
    problems = [f"{one} since {run.uri} was planned; restore it, or choose another directory" for one in changed]
    known = _fingerprints(environment)
    for place, fingerprint in fingerprints(spec).items():
        if fingerprint["digest"] != known[place]["digest"]:
            path = spec.models_used()[place].path
            problems.append(
                f"{path}: is not the model that {run.uri} was planned with; restore it, or choose another directory"
            )
    if problems:
        raise InputError.of(problems)


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
        section = environment
        for name in place[:-1]:
            section = section.setdefault(name, {})
        section[place[-1]] = fingerprint
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


def _fingerprints(environment: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return what ``environment.json`` has of each model, by its place there."""
    found: dict[tuple[str, ...], Any] = {("model",): environment["model"]} if "model" in environment else {}
    several = [(key, name, known) for key in ("models", "bases") for name, known in environment.get(key, {}).items()]
    return found | {(key, name): known for key, name, known in several}


def file_digests(spec: AnySpec) -> dict[str, str]:
    """Return the SHA-256 of each input file of a spec, by its key."""
    return {key: _digest(uri) for key, uri in spec.files().items() if uri is not None}


def _digest(uri: str) -> str:
    """Return the SHA-256 of a file, or of the Parquet files of a folder in the order of their names."""
    folder = Run.open(uri)
    digest = hashlib.sha256()
    for path in [folder.path(name) for name in folder.names() if name.endswith(".parquet")] or [folder.root]:
        try:
            with folder.fs.open_input_stream(path, compression=None) as stream:
                digest.update(stream.read())
        except OSError as error:
            raise InputError(f"{uri}: cannot be read ({error}); check the spec's paths") from error
    return digest.hexdigest()
