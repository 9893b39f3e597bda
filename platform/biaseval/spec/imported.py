"""The specs that the command line writes: for a run on imported scores, and for scoring a file of prompts."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from biaseval.spec import shared_sections as shared
from biaseval.spec.data import OnBadRow

Source = Literal["lm-eval", "table"]
"""The kinds of score files: samples that lm-evaluation-harness logged, or a table of label scores."""


class ImportedSection(shared.Section):
    """The origin of the scores."""

    source: Source
    model: str | None
    """The model's name in the files; null if they do not name it."""
    sha256: str
    """The hash of all files that the import read."""
    on_bad_row: OnBadRow = "error"
    """The treatment of prompts that lack their right label: refuse the table, or drop them."""


class ImportedSpec(shared.RunSpec):
    """Label bias of imported scores: the run loads no model and scores nothing.

    The analysis is the same as for every other label-bias run. A file has one number for each label, the sum over its
    tokens without EOS. So ``scoring`` allows no other choice.
    """

    PATHS = ()
    RESOURCES = ()
    ANALYSIS = ("model.*",)

    kind: Literal["label_bias"] = "label_bias"
    name: shared.Name
    imported: ImportedSection
    model: shared.LineageSpec = shared.LineageSpec()
    scoring: shared.ScoringSpec = shared.ScoringSpec(normalization="sum", eos=False)
    calibration: list[shared.Method] = []
    lora: ClassVar[None] = None
    execution: ClassVar[shared.ExecutionSpec] = shared.ExecutionSpec()
    files_read: tuple[str, ...] = Field(default=(), exclude=True)
    """The paths of the files; a run directory does not record them."""

    def members(self, tasks: Sequence[str]) -> dict[str, list[str]]:
        """Return nothing: an import has only the suites that every run has."""
        return {}


class ScoreSpec(shared.RunSpec):
    """The scored prompts, identified by content: ``biaseval score`` takes no spec file."""

    PATHS = ("model.path", "model.adapter")
    NAMES = PATHS
    RESOURCES = ("execution.*",)

    kind: Literal["score"]
    name: shared.Name = "score"
    model: shared.ModelSpec
    prompts_sha256: str
    """The hash of the file's rows."""
    prompts: str = Field(default="", exclude=True)
    """The path of the file; a run directory does not record it."""
    execution: shared.ExecutionSpec = shared.ExecutionSpec()
