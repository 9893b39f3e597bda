"""The spec of scoring a file of prompts, which the command line makes: no tasks, no metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec, Name, RunSpec


class ScoreSpec(RunSpec):
    """What is scored, by content: ``biaseval score`` takes no spec file."""

    PATHS: ClassVar[tuple[str, ...]] = ("model.path", "model.adapter")
    NAMES: ClassVar[tuple[str, ...]] = PATHS
    RESOURCES: ClassVar[tuple[str, ...]] = ("execution.*",)

    kind: Literal["score"]
    name: Name = "score"
    model: ModelSpec
    prompts_sha256: str
    """Of the rows of the file."""
    prompts: str = Field(default="", exclude=True)
    """Where the file is; a run directory does not say."""
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return nothing: the prompts are known by their content."""
        return {}

    def models_used(self) -> Mapping[tuple[str, ...], ModelSpec]:
        """Return the model."""
        return {("model",): self.model}
