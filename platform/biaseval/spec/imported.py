"""The spec of a run whose scores somebody else made, which the command line writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from biaseval.spec.data import OnBadRow
from biaseval.spec.shared_sections import ExecutionSpec, Method, ModelSpec, Name, RunSpec, ScoringSpec, Section

Source = Literal["lm-eval", "table"]
"""What files of scores may be: samples that lm-evaluation-harness logged, or a table of label scores."""


class ImportedSection(Section):
    """Where the scores come from."""

    source: Source
    model: str | None
    """What the files call the model; null where they do not say."""
    sha256: str
    """Of all that was read."""
    on_bad_row: OnBadRow = "error"
    """Prompts without their right label: refuse the table, or leave them out."""


class ImportedSpec(RunSpec):
    """Label bias of scores that are there already: nothing is loaded and nothing is scored.

    It is measured as that of every other run of its kind. A file has one number for a label, the sum over its tokens
    without EOS, so ``scoring`` says no other.
    """

    PATHS: ClassVar[tuple[str, ...]] = ()
    RESOURCES: ClassVar[tuple[str, ...]] = ()

    kind: Literal["label_bias"] = "label_bias"
    name: Name
    imported: ImportedSection
    scoring: ScoringSpec = ScoringSpec(normalization="sum", eos=False)
    calibration: list[Method] = []
    lora: ClassVar[None] = None
    execution: ClassVar[ExecutionSpec] = ExecutionSpec()
    files_read: tuple[str, ...] = Field(default=(), exclude=True)
    """Where the files are; a run directory does not say."""

    def files(self) -> dict[str, str | None]:
        """Return nothing: the files are known by their content."""
        return {}

    def models_used(self) -> Mapping[tuple[str, ...], ModelSpec]:
        """Return nothing: no model is loaded."""
        return {}

    def members(self, tasks: Sequence[str]) -> dict[str, list[str]]:
        """Return nothing: an import has the suites of every run and no others.

        Args:
            tasks: those of the run.
        """
        return {}
