"""The kinds of run: the one place that knows them all."""

from biaseval.pipelines.instruct import INSTRUCT
from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.labels.imported_scores import IMPORTED
from biaseval.pipelines.labels.score import SCORE
from biaseval.pipelines.trial_kinds import TRIAL_KINDS
from biaseval.search.kind import SEARCH
from biaseval.spec import AnySpec, ImportedSpec, InstructSpec, ScoreSpec, SearchSpec

_KINDS: dict[type[AnySpec], AnyKind] = {
    ImportedSpec: IMPORTED,
    InstructSpec: INSTRUCT,
    ScoreSpec: SCORE,
    SearchSpec: SEARCH,
}
_KINDS |= TRIAL_KINDS


def kind_of(spec: AnySpec) -> AnyKind:
    """Return the kind of a spec."""
    return _KINDS[type(spec)]
