"""The kinds of run that a search may try."""

from __future__ import annotations

from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.labels.label_bias import LABEL_BIAS
from biaseval.pipelines.labels.majority_bias import MAJORITY_BIAS
from biaseval.pipelines.qa.kind import QA_BIAS
from biaseval.spec import SearchedSpec

TRIAL_KINDS: dict[str, AnyKind] = {"label_bias": LABEL_BIAS, "majority_bias": MAJORITY_BIAS, "qa_bias": QA_BIAS}


def trial_kind(spec: SearchedSpec) -> AnyKind:
    """Return what the main path knows of the kind of a trial."""
    return TRIAL_KINDS[spec.kind]
