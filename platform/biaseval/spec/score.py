"""The spec that the command line writes for scoring a file of prompts: it has no tasks and no metrics."""

from typing import Literal

from pydantic import Field

from biaseval.spec.shared_sections import ExecutionSpec, ModelSpec, Name, RunSpec


class ScoreSpec(RunSpec):
    """The scored prompts, identified by content: ``biaseval score`` takes no spec file."""

    PATHS = ("model.path", "model.adapter")
    NAMES = PATHS
    RESOURCES = ("execution.*",)

    kind: Literal["score"]
    name: Name = "score"
    model: ModelSpec
    prompts_sha256: str
    """The hash of the file's rows."""
    prompts: str = Field(default="", exclude=True)
    """The path of the file; a run directory does not record it."""
    execution: ExecutionSpec = ExecutionSpec()
