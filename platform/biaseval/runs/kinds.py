"""The kinds of run: the one place that knows them all."""

from __future__ import annotations

from biaseval.pipelines.instruct import INSTRUCT
from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.labels.imported_scores import IMPORTED
from biaseval.pipelines.labels.score import SCORE
from biaseval.pipelines.trial_kinds import TRIAL_KINDS
from biaseval.search.kind import SEARCH
from biaseval.spec import AnySpec, ImportedSpec

KINDS: dict[str, AnyKind] = {**TRIAL_KINDS, "instruct": INSTRUCT, "score": SCORE, "search": SEARCH}


def kind_of(spec: AnySpec) -> AnyKind:
    """Return the kind of a spec; the kind of imported scores has no stages."""
    return IMPORTED if isinstance(spec, ImportedSpec) else KINDS[spec.kind]
