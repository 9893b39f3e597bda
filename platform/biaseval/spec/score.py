"""The spec that the command line writes for scoring a file of prompts: it has no tasks and no metrics."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec, Name, RunSpec


class ScoreSpec(RunSpec):
    """The scored prompts, identified by content: ``biaseval score`` takes no spec file."""

    PATHS: ClassVar[tuple[str, ...]] = ("model.path", "model.adapter")
    NAMES: ClassVar[tuple[str, ...]] = PATHS
    RESOURCES: ClassVar[tuple[str, ...]] = ("execution.*",)

    kind: Literal["score"]
    name: Name = "score"
    model: ModelSpec
    prompts_sha256: str
    """The hash of the file's rows."""
    prompts: str = Field(default="", exclude=True)
    """The path of the file; a run directory does not record it."""
    execution: ExecutionSpec = ExecutionSpec()

    def files(self) -> dict[str, str | None]:
        """Return nothing: the run identifies the prompts by their content."""
        return {}

    def models_used(self) -> Mapping[tuple[str, ...], ModelSpec]:
        """Return the model."""
        return {("model",): self.model}
