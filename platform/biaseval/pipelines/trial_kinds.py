"""The kinds of run that a search may try."""

from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.labels.label_bias import LABEL_BIAS
from biaseval.pipelines.labels.majority_bias import MAJORITY_BIAS
from biaseval.pipelines.qa.kind import QA_BIAS
from biaseval.spec import AnySpec, LabelBiasSpec, MajorityBiasSpec, QaBiasSpec, SearchedSpec

TRIAL_KINDS: dict[type[AnySpec], AnyKind] = {
    LabelBiasSpec: LABEL_BIAS,
    MajorityBiasSpec: MAJORITY_BIAS,
    QaBiasSpec: QA_BIAS,
}


def trial_kind(spec: SearchedSpec) -> AnyKind:
    """Return what the main path knows of the kind of a trial."""
    return TRIAL_KINDS[type(spec)]
