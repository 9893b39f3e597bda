"""Whose a run directory is: nothing foreign is written over, and no run goes on with another spec, model or data."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from biaseval import environment as env
from biaseval.analysis.own_sql import refuse_own_sql
from biaseval.digests import LASTING, record, settle
from biaseval.errors import BiasevalError, InputError, refuse
from biaseval.pipelines.kind import Inputs, Kind, Plan
from biaseval.pipelines.planning import read_with_weights
from biaseval.progress import say
from biaseval.records import digest
from biaseval.spec import AnySpec, analysed_as, blocking, differences, dump_spec, grown_keys, of_analysis, stored_spec
from biaseval.store import DIGESTS, Ledger, Run, part_number
from biaseval.tables import PLANNED, TABLES
from biaseval.units import plan_files

_PLAN = "plan.json"
_HISTORY = "specs"
"""Holds the specs that a run had, the oldest first."""


def is_planned(run: Run) -> bool:
    """Return whether the run's plan is complete: its file is written last."""
    return run.has(_PLAN)


def read_plan(run: Run) -> Plan:
    """Return what ``plan.json`` holds; Raises InputError: there is no planned run, or its plan is damaged."""
    if not is_planned(run):
        raise InputError(f"{run.uri}: holds no planned run; check the path, or start one")
    plan: Plan = run.read_json(_PLAN)
    if not isinstance(plan, Mapping):
        raise InputError(f"{run.uri}/{_PLAN}: is damaged; biaseval run plans again")
    return plan


def read_spec(run: Run) -> AnySpec:
    """Return the spec of a run, which this version or an older one wrote.

    Raises:
        InputError: there is none, it is damaged, or none of a kind that this version knows.
    """
    source = f"{run.uri}/{env.SPEC}"
    content = env.raw_spec(run)
    spec = stored_spec(content, source)
    # The last key that any version wrote of such a spec.
    if content.keys() & {"execution", "prompts_sha256"} or content.keys() >= {"imported", "calibration"}:
        return spec
    raise InputError(f"{source}: is damaged (its end is missing); restore it, or start the run again elsewhere")


def refuse_foreign(run: Run) -> None:
    """Make sure that the directory is new, or a run: nothing else is ever written over.

    Raises:
        InputError: it holds files and none says that they are a run's, or the one that does is damaged.
    """
    there = set(run.names()) - run.leftovers()
    if not there:
        return
    # The first file that a run writes.
    own = sorted(there & {*TABLES, _PLAN, DIGESTS, "adapters", "models", "model", "adapter"})
    try:
        if "versions" in env.read_environment(run):
            return
    except BiasevalError:
        if own:
            raise
    if own:
        raise InputError(
            f"{run.uri}/{env.FILE}: is missing. It names the model and data of the run, but "
            f"{', '.join(own)} are there; restore it, or choose another directory"
        )
    raise InputError(f"{run.uri}: is not empty and not a run directory; choose another, nothing is written over")


class Change(Enum):
    """What a spec asks of a planned run that the run's own did not."""

    NONE = "nothing"
    ANALYSIS = "another analysis of the stored scores"
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
            f"{run.uri}/{env.SPEC}):{lines}"
        )
    environment = env.read_environment(run)
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
    refuse(problems)
    if not different:
        return Change.NONE
    if not grown:
        refuse_own_sql(spec)
        kind.refuse_analysis(run, spec)
    for line in differences(aligned, spec) if grown else different:
        say(f"metrics are going to be those of the spec: {line}")
    return Change.MORE if grown else Change.ANALYSIS


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
    before, kept = run.read_text(env.SPEC), sorted(run.files(_HISTORY))
    if not kept or run.read_text(kept[-1]) != before:  # else a killed call has kept it
        run.write_text(f"{_HISTORY}/{len(kept):05d}.yaml", before)
    env.write_spec(run, dump_spec(spec))


def _record_primary(run: Run, spec: AnySpec) -> None:
    """Record which primary question a run had when its scores came, where a spec names another."""
    old, new = (getattr(each, "primary", None) for each in (read_spec(run), spec))
    if old != new and run.parts("label_scores") and env.PRIMARY_BEFORE not in env.read_environment(run):
        env.amend_environment(run, **{env.PRIMARY_BEFORE: None if old is None else old.model_dump(mode="json")})


def begin(run: Run, kind: Kind[Any, Any], spec: AnySpec, inputs: Inputs | None) -> None:
    """Make a directory the planned run of a spec: plan a new run, resume a run, or extend it by the spec's additions.

    The run is as `biaseval.digests.kept` yields it; ``inputs`` are those of the plan, if they have been read.

    Raises:
        InputError: the directory belongs to another run, or its content does not fit the spec.
    """
    plan = _stored_plan(run)
    if plan is None and not _holds_results(run):
        _plan_new(run, kind, spec, inputs or read_with_weights(kind, spec))
        return
    _restore_spec(run, spec)
    change = refuse_another(run, kind, spec)
    if change is Change.MORE:
        own = read_spec(run)
        _extend(run, kind, spec, _resumed(run, kind, own, plan))
        return
    _resumed(run, kind, spec, plan)
    if change is Change.ANALYSIS:
        adopt_analysis(run, spec)


def _plan_new(run: Run, kind: Kind[Any, Any], spec: AnySpec, inputs: Inputs) -> None:
    """Write the plan of a run, in Parquet parts; ``plan.json`` comes last and says that it is complete.

    Raises:
        InputError: the spec's inputs do not make a run; nothing of it is left.
    """
    environment = {"date": env.date_of(run), **env.describe_environment(), "seed": getattr(spec, "seed", None)}
    # First of all: it is what tells a run from other people's files.
    _write_environment(run, spec, environment, inputs.facts)
    env.write_spec(run, dump_spec(spec))
    for table in PLANNED:  # what a killed process began
        run.delete(table)
    say(f"planning {inputs.subject}")
    try:
        plan = _planned(run, kind.write, spec, inputs)
    except InputError:
        # Nothing of a plan that cannot be is left behind; what marks the directory as a run goes last.
        for name in (*PLANNED, env.SPEC, env.FILE):
            run.delete(name)
        raise
    run.write_sealed(_PLAN, plan)
    record(run)
    settle(run, set(), set())


def _resumed(run: Run, kind: Kind[Any, Any], spec: AnySpec, plan: Plan | None) -> Plan:
    """Return the plan of an existing run, after planning its missing parts again; existing parts stay.

    Raises:
        InputError: an existing part would change, or a missing part is not planned again.
    """
    if plan is None:
        _refuse_growth(run, spec)
        say(f"{run.uri}/{_PLAN}: is missing; planning again; existing parts stay")
        run.write_sealed(_PLAN, _planned(run, kind.write, spec, read_with_weights(kind, spec), keeps=True))
        plan = read_plan(run)
    if lost := settle_run(run, kind, spec, plan):
        say(f"{run.uri}/{lost[0]}: is missing; planning again; existing parts stay")
        _planned(run, kind.write, spec, read_with_weights(kind, spec), keeps=True)
        for name in lost:
            if name not in run.ledger.files:
                raise InputError(f"{run.uri}/{name}: is missing or damaged, and is not planned again; restore it")
    return plan


def _extend(run: Run, kind: Kind[Any, Any], spec: AnySpec, known: Plan) -> None:
    """Add the additions of a spec to the plan of a run; existing files keep their bytes.

    A killed call changes nothing: parts that the plan does not name do not belong to the run, and the same call starts
    again.

    Raises:
        InputError: the spec's inputs do not make a run, or would change existing parts.
    """
    assert kind.extend is not None
    inputs = read_with_weights(kind, spec)
    say(f"adding to the plan of {inputs.subject}")
    plan = _planned(run, kind.extend, spec, inputs, known)
    for name in FINDINGS:  # they are of the run as it was
        run.delete(name)
    run.write_sealed(_PLAN, plan)
    record(run)
    # The data of the plan are those of the extended one; how a run was scored so far stays.
    facts = {name: fact for name, fact in inputs.facts.items() if name != "data"}
    _write_environment(run, spec, env.read_environment(run), facts)
    adopt_spec(run, spec)


def settle_run(run: Run, kind: Kind[Any, Any], spec: AnySpec, plan: Plan) -> list[str]:
    """Have a planned run count only the parts that its plan, its stages or its digests name; older runs count all.

    Returns:
        The planned parts that it lacks, and lasting ones that no stage makes.
    """
    units = [unit for stage in kind.stages(run, spec, plan) for unit in stage.units]
    made = {name for unit in units for name in (*unit.files, *unit.beside)}
    planned = plan_files(plan)
    settle(run, planned, made)
    env.seal_spec(run)
    # A plan of an older version does not name all of its tables.
    unnamed = LASTING - {name.partition("/")[0] for name in planned}
    lost = {name for name in run.ledger.lost - made if name.partition("/")[0] in unnamed}
    return sorted((planned | lost) - run.ledger.files.keys())


def _planned(run: Run, write: Callable[..., Plan], *given: object, keeps: bool = False) -> Plan:
    """Have a kind write the parts of a plan, and return it, with the number of parts that each table of it has."""
    ledger = Ledger(known=run.ledger.known)
    plan = write(replace(run, ledger=ledger, keeps=keeps), *given)
    for name, written in ledger.files.items():
        run.ledger.files[name] = written or run.ledger.files.get(name)
    tables = dict(plan.get("tables", {}))
    for name in ledger.files:
        table, number = name.partition("/")[0], part_number(name)
        if number is not None:
            tables[table] = max(tables.get(table, 0), number + 1)
    return {**plan, "tables": dict(sorted(tables.items()))}


def _stored_plan(run: Run) -> Plan | None:
    """Return the plan of a run; None: there is none, or it is damaged, which is said."""
    if not is_planned(run):
        return None
    try:
        return read_plan(run)
    except InputError as error:
        say(str(error).partition(";")[0])
        return None


def _holds_results(run: Run) -> bool:
    """Return whether there is anything in a run that planning does not write; else a killed process was planning it."""
    return bool(run.ledger.known) or any(name.partition("/")[0] not in PLANNED for name in run.ledger.files)


def _restore_spec(run: Run, spec: AnySpec) -> None:
    """Write the spec of a run that lost it, where it is this one; Raises InputError: it may be another."""
    if run.has(env.SPEC):
        return
    known = (run.ledger.known or {}).get(env.SPEC)
    env.write_spec(run, dump_spec(spec))
    if known is None or run.ledger.files[env.SPEC] != known._replace(time_ns=None):
        run.delete(env.SPEC)
        raise InputError(
            f"{run.uri}/{env.SPEC}: is missing, and the run was not made with this spec, or nothing says that it was; "
            "restore the file, or choose another directory"
        )
    say(f"{run.uri}/{env.SPEC}: was missing; written again")


def _refuse_growth(run: Run, spec: AnySpec) -> None:
    """Make sure that a run has always had what a spec asks for; Raises InputError: it grew, in an order of its own."""
    for name in sorted(run.files(_HISTORY))[:1]:
        before = stored_spec(run.read_yaml(name), f"{run.uri}/{name}")
        if grown_keys(before, spec):
            raise InputError(
                f"{run.uri}/{_PLAN}: is missing or damaged, and the run grew since it was planned; restore it, or "
                "choose another directory"
            )


def fingerprints(spec: AnySpec) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what identifies each model that a spec loads, by its place in ``environment.json``."""
    from biaseval.models import ModelSource, fingerprint_model

    return {place: fingerprint_model(ModelSource.of(model)) for place, model in spec.models_used().items()}


def _write_environment(run: Run, spec: AnySpec, known: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    environment = dict(known)
    for place, fingerprint in fingerprints(spec).items():
        section = environment
        for name in place[:-1]:
            section = section.setdefault(name, {})
        section[place[-1]] = fingerprint
    run.write_sealed(env.FILE, {**environment, "inputs": file_digests(spec), **facts})


def _fingerprints(environment: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Return what ``environment.json`` has of each model, by its place there."""
    found: dict[tuple[str, ...], Any] = {("model",): environment["model"]} if "model" in environment else {}
    several = [(key, name, known) for key in ("models", "bases") for name, known in environment.get(key, {}).items()]
    return found | {(key, name): known for key, name, known in several}


def file_digests(spec: AnySpec) -> dict[str, str]:
    """Return the SHA-256 of each input file of a spec, by its key."""
    return {key: digest(uri) for key, uri in spec.files().items() if uri is not None}
