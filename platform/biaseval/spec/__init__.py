"""Specs: what a run measures, from a YAML file. Unknown keys are refused; all mistakes come in one message.

``sections`` and ``training`` are shared, each kind has a file of its own, and ``files`` reads and compares specs of any
kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from biaseval.errors import InputError
from biaseval.spec.files import differences, dump_spec, read_content, validated, with_absolute_paths
from biaseval.spec.instruct import ConversationsSpec, InstructSpec, InstructTrainingSpec
from biaseval.spec.label_bias import LabelBiasSpec, PromptSpec, TasksSpec
from biaseval.spec.majority_bias import (
    LABEL,
    DataSpec,
    MajorityBiasSpec,
    MajorityPromptSpec,
    Prediction,
    SimplexSpec,
    item_pieces,
    label_key,
)
from biaseval.spec.pool import MIN_INSTANCES, N_DEMONSTRATIONS, POOL_SIZE, training_positions
from biaseval.spec.qa_bias import (
    BootstrapSpec,
    QaBiasSpec,
    QaDatasetsSpec,
    QaModelSpec,
    QaTextSpec,
    WindowsSpec,
)
from biaseval.spec.qa_training import ADDRESSING, GUIDED, DataSource, GeneratedSpec, QaBaseSpec, QaTrainSpec
from biaseval.spec.score import ScoreSpec
from biaseval.spec.sections import ExecutionSpec, Method, ModelSpec, ScoringSpec
from biaseval.spec.training import AdapterSpec, LoraSpec, TrainingSpec

CausalSpec = LabelBiasSpec | MajorityBiasSpec
"""What scores labels with a causal LM."""

Spec = LabelBiasSpec | MajorityBiasSpec | QaBiasSpec | InstructSpec
"""Every kind of spec that a file may hold."""

AnySpec = Spec | ScoreSpec
"""Every kind of spec that a run directory may hold."""

_KINDS: dict[str, type[Spec]] = {get_args(own.model_fields["kind"].annotation)[0]: own for own in get_args(Spec)}
_STORED: dict[str, type[AnySpec]] = {**_KINDS, "score": ScoreSpec}


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> Spec:
    """Return the validated spec in the YAML file ``path``, with its relative paths made absolute.

    Args:
        path: the spec file.
        overrides: ``key.subkey=value`` strings; values are YAML.

    Raises:
        InputError: the file cannot be read, or has mistakes; the message lists all of them.
    """
    path = Path(path).expanduser()
    content = read_content(path, overrides)
    return with_absolute_paths(validated(content, str(path), _KINDS), path.resolve().parent)


def stored_spec(content: object, source: str) -> AnySpec:
    """Return the spec that a run's ``spec.yaml`` holds, as this or an older version wrote it.

    Keys that it lacks have their defaults. Its paths are absolute already, and its names of the hub stay names.

    Args:
        content: as parsed from YAML.
        source: the file's name, for messages.

    Raises:
        InputError: it is no spec of a known kind, or has mistakes.
    """
    if not isinstance(content, Mapping):
        raise InputError(f"{source}: is no spec; name the directory of a run")
    return validated(content, source, _STORED)


__all__ = [
    "ADDRESSING",
    "GUIDED",
    "LABEL",
    "MIN_INSTANCES",
    "N_DEMONSTRATIONS",
    "POOL_SIZE",
    "AdapterSpec",
    "AnySpec",
    "BootstrapSpec",
    "CausalSpec",
    "ConversationsSpec",
    "DataSource",
    "DataSpec",
    "ExecutionSpec",
    "GeneratedSpec",
    "InstructSpec",
    "InstructTrainingSpec",
    "LabelBiasSpec",
    "LoraSpec",
    "MajorityBiasSpec",
    "MajorityPromptSpec",
    "Method",
    "ModelSpec",
    "Prediction",
    "PromptSpec",
    "QaBaseSpec",
    "QaBiasSpec",
    "QaDatasetsSpec",
    "QaModelSpec",
    "QaTextSpec",
    "QaTrainSpec",
    "ScoreSpec",
    "ScoringSpec",
    "SimplexSpec",
    "Spec",
    "TasksSpec",
    "TrainingSpec",
    "WindowsSpec",
    "differences",
    "dump_spec",
    "item_pieces",
    "label_key",
    "load_spec",
    "stored_spec",
    "training_positions",
]
