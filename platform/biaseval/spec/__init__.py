"""Read and check specs, the YAML files that say what a run measures.

A spec with an unknown key is refused; one message lists all mistakes. ``shared_sections`` and ``training`` serve
several kinds of runs. Each kind has its own file. ``files`` reads and compares specs of any kind.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from biaseval.cache import local_path
from biaseval.errors import InputError
from biaseval.spec.allowed_changes import analysed_as, blocking, grown_keys, of_analysis, of_no_section
from biaseval.spec.data import (
    BASE,
    LABEL,
    DataSpec,
    FormatSpec,
    OnBadRow,
    is_label,
    item_pieces,
    label_key,
    template_fields,
)
from biaseval.spec.data_pool import MIN_INSTANCES, N_DEMONSTRATIONS, POOL_SIZE, training_positions
from biaseval.spec.files import (
    differences,
    dump_spec,
    of_kind,
    override_keys,
    read_content,
    validated,
    with_absolute_paths,
    with_own_sql,
)
from biaseval.spec.imported import ImportedSection, ImportedSpec, ScoreSpec, Source
from biaseval.spec.instruct import ConversationsSpec, InstructSpec, InstructTrainingSpec
from biaseval.spec.label_bias import LabelBiasSpec, LabelDataSpec, LmEvalDataSpec, PromptSpec, TasksSpec
from biaseval.spec.line_breaks import break_cautions, written_breaks
from biaseval.spec.majority_bias import MajorityBiasSpec, MajorityPromptSpec, Prediction, SimplexSpec
from biaseval.spec.qa_bias import QaBiasSpec, QaDatasetsSpec, QaModelSpec, QaTextSpec, WindowsSpec
from biaseval.spec.qa_training import ADDRESSING, GUIDED, DataSource, GeneratedSpec, QaBaseSpec, QaTrainSpec, TableSpec
from biaseval.spec.search import SearchedSpec, SearchSpec, StopEarlySpec
from biaseval.spec.several_models import contents_of
from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec
from biaseval.spec.training import AdapterSpec, LabelLoraSpec, LoraSpec, TrainingSpec

CausalSpec = LabelBiasSpec | MajorityBiasSpec
"""Specs whose runs score labels with a causal LM."""

Spec = LabelBiasSpec | MajorityBiasSpec | QaBiasSpec | InstructSpec | SearchSpec
"""Every kind of spec that a file may hold."""

AnySpec = Spec | ScoreSpec | ImportedSpec
"""Every kind of spec that a run directory may hold."""

_KINDS: dict[str, type[Spec]] = {get_args(own.model_fields["kind"].annotation)[0]: own for own in get_args(Spec)}
_SEARCHED: dict[str, type[SearchedSpec]] = {
    get_args(own.model_fields["kind"].annotation)[0]: own for own in get_args(SearchedSpec)
}
_STORED: dict[str, type[AnySpec]] = {**_KINDS, "score": ScoreSpec}

_OF_SEARCHED = "spec."


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Return the validated spec in the YAML file ``path``, with its relative paths made absolute.

    An override is ``key.subkey=value``, and the value is YAML.

    Raises:
        InputError: the file cannot be read or has mistakes; the message lists all of them.
    """
    folder, path = local_path(path).parent, Path(path).expanduser()
    return spec_of(read_content(path), str(path), folder, overrides)


def load_specs(path: str | Path, overrides: Sequence[str] = (), run_dir: str | None = None) -> dict[str, Spec]:
    """Return the specs in the YAML file ``path``, one or one for each of ``models``, by the directory of their run.

    That is ``run_dir``, by default ``runs/NAME``, or a folder in it for each model. ``models.NAME.key=value`` changes
    one model, ``models=[NAME, …]`` chooses models, and every other override is of each model. Raises: as `load_spec`.
    """
    folder, path = local_path(path).parent, Path(path).expanduser()
    content, source = read_content(path), str(path)
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None or "model" not in kind.model_fields or "models" not in content:
        spec = spec_of(content, source, folder, overrides)
        return {run_dir or f"runs/{spec.name}": spec}
    first = [one for one in overrides if one.startswith(("models.", "name="))]
    override_keys(content, first)
    known = {each.get("name"): each for each in content["models"] or () if isinstance(each, dict)}
    chosen = [one for one in overrides if one.startswith("models=")]
    override_keys(content, chosen)
    if isinstance(content["models"], list):
        content["models"] = [known.get(each, each) if isinstance(each, str) else each for each in content["models"]]
    contents = contents_of(content, source, named_by_model=kind.NAMED_BY_MODEL)
    rest = [one for one in overrides if one not in (*first, *chosen)]
    place = (run_dir or f"runs/{content['name']}").rstrip("/")
    return {f"{place}/{name}": spec_of(own, f"{source}: {name}", folder, rest) for name, own in contents.items()}


def spec_of(content: dict[str, Any], source: str, folder: Path, overrides: Sequence[str] = ()) -> Spec:
    """Return the validated spec of parsed content, with the overrides applied.

    ``source`` names the content in messages, and relative paths start from ``folder``.

    Raises:
        InputError: the content has mistakes; the message lists all of them.
    """
    of_searched = [override for override in overrides if override.startswith(_OF_SEARCHED)]
    override_keys(content, [override for override in overrides if override not in of_searched])
    if content.get("kind") == "search":
        searched = [override.removeprefix(_OF_SEARCHED) for override in of_searched]
        return _search(content, source, folder, searched)
    override_keys(content, of_searched)
    return with_own_sql(with_absolute_paths(validated(content, source, _KINDS), folder), source, folder)


def _search(content: dict[str, Any], source: str, folder: Path, overrides: Sequence[str]) -> Spec:
    """Return the spec of a search; its key ``spec`` names the searched spec file or holds the searched spec itself."""
    base, place = content.get("spec"), f"{source}: spec"
    if isinstance(base, str):
        own = local_path(folder / os.path.expanduser(base))
        place, folder, base = str(own), own.parent, read_content(own, overrides)
    else:
        override_keys(content, [f"{_OF_SEARCHED}{override}" for override in overrides])
        base = content.get("spec")
    if not isinstance(base, dict):
        raise InputError(f"{place}: is missing; name the spec file whose keys are searched, or write it in place")
    if not isinstance(base.get("kind"), str) or base["kind"] not in _SEARCHED:
        raise InputError(f"{place}: kind: {base.get('kind')!r} cannot be searched; use {' or '.join(_SEARCHED)}")
    searched = with_own_sql(with_absolute_paths(validated(base, place, _SEARCHED), folder), place, folder)
    return validated({**content, "spec": searched.model_dump()}, source, _KINDS)


def stored_spec(content: object, source: str) -> AnySpec:
    """Return the spec in a run's ``spec.yaml``, which this version or an older one wrote.

    Missing keys get their defaults. Paths are already absolute, and names on the Hugging Face hub stay names.
    ``source`` is the file's name, for messages.

    Raises:
        InputError: the content is no spec of a known kind, or has mistakes.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{source}: is no spec; name the directory of a run")
    if isinstance(content.get("objective"), list):
        content = {**content, "objective": content["objective"][0]}  # of several, an older run uses the first
    return validated(content, source, {**_STORED, "label_bias": ImportedSpec} if "imported" in content else _STORED)


__all__ = [
    "ADDRESSING", "BASE", "GUIDED", "LABEL", "MIN_INSTANCES", "N_DEMONSTRATIONS", "POOL_SIZE", "AdapterSpec", "AnySpec",
    "CausalSpec", "ConversationsSpec", "DataSource", "DataSpec", "ExecutionSpec", "FormatSpec", "GeneratedSpec",
    "ImportedSection", "ImportedSpec", "InstructSpec", "InstructTrainingSpec", "LabelBiasSpec", "LabelDataSpec",
    "LabelLoraSpec", "LmEvalDataSpec", "LoraSpec", "MajorityBiasSpec", "MajorityPromptSpec", "ModelSpec", "OnBadRow",
    "Prediction",
    "PromptSpec", "QaBaseSpec", "QaBiasSpec", "QaDatasetsSpec", "QaModelSpec", "QaTextSpec", "QaTrainSpec", "ScoreSpec",
    "SearchSpec", "SearchedSpec", "SimplexSpec", "Source", "Spec", "StopEarlySpec", "TableSpec", "TasksSpec",
    "TrainingSpec", "WindowsSpec", "analysed_as", "blocking", "break_cautions", "differences", "dump_spec",
    "grown_keys", "is_label", "item_pieces", "label_key", "load_spec", "load_specs", "of_analysis", "of_kind",
    "of_no_section", "override_keys", "spec_of", "stored_spec", "template_fields", "training_positions", "with_own_sql",
    "written_breaks",
]  # fmt: skip
