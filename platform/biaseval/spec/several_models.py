"""The key ``models`` in place of ``model``: one file with a spec for each model."""

from copy import deepcopy
from typing import Annotated, Any

from pydantic import Field, field_validator

from biaseval.errors import InputError
from biaseval.parsing import yaml_flow
from biaseval.spec.files import override_keys, validated
from biaseval.spec.shared_sections import ModelSpec, Name, RunSpec, named_twice, refuse


class NamedModelSpec(ModelSpec):
    """One of several models."""

    name: Name
    """The name of the folder of its run."""
    set: dict[str, Any] = {}
    """Dotted keys of the spec that have other values for this model, as with ``--set``."""


class SeveralModelsSpec(RunSpec):
    """The keys of a spec that differ in the specs of its models."""

    models: Annotated[list[NamedModelSpec], Field(min_length=1)]

    @field_validator("models")
    @classmethod
    def _each_is_named_once(cls, models: list[NamedModelSpec]) -> list[NamedModelSpec]:
        refuse(named_twice("models", [one.name for one in models]))
        return models


def contents_of(content: dict[str, Any], source: str, *, named_by_model: bool) -> dict[str, dict[str, Any]]:
    """Return the content of each model's spec by the model's name, which is also the spec's if ``named_by_model``.

    ``source`` names the content in messages; Raises InputError: ``models`` has mistakes; the message lists all.
    """
    if "model" in content:
        raise InputError(f"{source}: has model and models; keep one of the two")
    own = {key: content[key] for key in SeveralModelsSpec.model_fields if key in content}
    validated(own, source, {content["kind"]: SeveralModelsSpec})
    found: dict[str, dict[str, Any]] = {}
    for entry in deepcopy(content.pop("models")):
        name, changes = entry.pop("name"), entry.pop("set", {})
        found[name] = deepcopy(content) | {"model": entry} | ({"name": name} if named_by_model else {})
        override_keys(found[name], [f"{key}={yaml_flow(value)}" for key, value in changes.items()])
    return found
