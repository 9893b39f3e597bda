"""The kinds of run: the one place that knows them all."""

from __future__ import annotations

from biaseval.pipelines.imported import IMPORTED
from biaseval.pipelines.instruct import INSTRUCT
from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.label_bias import LABEL_BIAS
from biaseval.pipelines.majority_bias import MAJORITY_BIAS
from biaseval.pipelines.prompts_file import SCORE
from biaseval.pipelines.qa_bias import QA_BIAS
from biaseval.pipelines.search import SEARCH
from biaseval.spec import AnySpec, ImportedSpec

KINDS: dict[str, AnyKind] = {
    "label_bias": LABEL_BIAS,
    "majority_bias": MAJORITY_BIAS,
    "qa_bias": QA_BIAS,
    "instruct": INSTRUCT,
    "score": SCORE,
    "search": SEARCH,
}


def kind_of(spec: AnySpec) -> AnyKind:
    """Return what the main path knows of a spec's kind; scores that are there already need none of what makes them."""
    return IMPORTED if isinstance(spec, ImportedSpec) else KINDS[spec.kind]
