"""Whose a run directory is: nothing foreign is written over, and no run goes on with another spec, model or data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from biaseval.errors import BiasevalError, InputError
from biaseval.spec import (
    InstructSpec,
    LabelBiasSpec,
    MajorityBiasSpec,
    ModelSpec,
    QaBiasSpec,
    QaModelSpec,
    Spec,
    differences,
)
from biaseval.store import Run


def refuse_foreign(run: Run) -> None:
    """Make sure that the directory is new, or a run: nothing else is ever written over.

    Raises:
        InputError: it holds files and none says that they are a run's.
    """
    if not set(run.names()) - run.leftovers():
        return
    # The first file that a run writes.
    if run.has("environment.json"):
        try:
            if "versions" in run.read_json("environment.json"):
                return
        except (BiasevalError, TypeError):
            pass
    raise InputError(f"{run.uri}: is not empty and not a run directory; choose another, nothing is written over")


def refuse_another(run: Run, spec: Spec) -> None:
    """Make sure that a planned run is this spec's, on the same model and data.

    Raises:
        InputError: it belongs to another spec, or an input changed since it was planned.
    """
    different = differences(run.read_text("spec.yaml"), spec)
    if different:
        lines = "".join(f"\n  - {line}" for line in different)
        raise InputError(
            f"{run.uri}: belongs to another spec; choose another --run-dir, or undo the difference:{lines}"
        )
    environment = run.read_json("environment.json")
    problems = []
    if isinstance(spec, LabelBiasSpec):
        folder = Path(spec.tasks.path)
        for name, sha256 in environment["data"].items():
            path = folder / name if folder.is_dir() else folder
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
                problems.append(f"{path}: changed")
    for key, digest in file_digests(spec).items():
        if environment["inputs"].get(key) != digest:
            problems.append(f"{key}: the file changed")
    if problems:
        raise InputError.of(
            [f"{problem} since {run.uri} was planned; restore it, or choose another --run-dir" for problem in problems]
        )
    if isinstance(spec, QaBiasSpec):
        for model in spec.models:
            if model.path is not None:
                _refuse_another_model(run, model, environment["models"][model.name])
    else:
        _refuse_another_model(run, spec.model, environment["model"])


def refuse_another_model(run: Run, model: ModelSpec) -> None:
    """Make sure that a planned run's model is still the same.

    Raises:
        InputError: its files are others.
    """
    _refuse_another_model(run, model, run.read_json("environment.json")["model"])


def _refuse_another_model(run: Run, model: ModelSpec | QaModelSpec, recorded: dict[str, Any]) -> None:
    from biaseval.models import ModelSource, fingerprint_model

    if fingerprint_model(ModelSource.of(model))["digest"] != recorded["digest"]:
        raise InputError(
            f"{model.path}: is not the model that {run.uri} was planned with; restore it, or choose another --run-dir"
        )


def file_digests(spec: Spec) -> dict[str, str]:
    """Return the SHA-256 of each input file of a spec that is no task file of its folder, by its key."""
    uris: dict[str, str | None]
    if isinstance(spec, QaBiasSpec):
        named = {**spec.datasets.in_distribution, **spec.datasets.out_of_distribution}
        uris = {"datasets.train": spec.datasets.train, **{f"datasets.{name}": uri for name, uri in named.items()}}
        for model in spec.models:
            uris |= {f"predictions of {model.name} for {name}": uri for name, uri in (model.predictions or {}).items()}
    elif isinstance(spec, MajorityBiasSpec):
        uris = {"data.train": spec.data.train, "data.test": spec.data.test}
    elif isinstance(spec, InstructSpec):
        uris = {"data.path": spec.data.path}
    else:
        uris = {
            "tasks.table": spec.tasks.table,
            "tasks.templates": spec.tasks.templates,
            "tasks.splits": spec.tasks.splits,
        }
    return {key: _digest(uri) for key, uri in uris.items() if uri is not None}


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


def read_plan(run: Run) -> dict[str, Any]:
    """Return what ``plan.json`` holds.

    Raises:
        InputError: there is no planned run.
    """
    if not run.has("plan.json"):
        raise InputError(f"{run.uri}: holds no planned run; check the path, or start one")
    plan: dict[str, Any] = run.read_json("plan.json")
    return plan


def as_json(content: object) -> str:
    """Return JSON as a run's files have it."""
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=False) + "\n"
