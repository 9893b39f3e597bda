"""How a page of trained readers calls methods of training, means, files and anchors."""

from __future__ import annotations

import re
from typing import NamedTuple

MEAN = "mean"
"""What stands for the mean of the out-of-distribution sets, where a data set could stand; as in the marts."""

BIAS_MODEL = "bias_model"


class Method(NamedTuple):
    """How tables and sentences call a method of training, and what it is."""

    shown: str
    meaning: str


METHODS = {
    "standard": Method(
        "standard", "Trained on the questions as they are; the reader that the others are compared with."
    ),
    "resample": Method(
        "RESAM",
        "Questions of the smaller segment are repeated until both segments are equally large (Mikula et al. 2024).",
    ),
    "learned_mixin": Method(
        "LMIX",
        "LearnedMixin+H: trained together with a bias model whose scores are weighted by a learned factor, with a "
        "penalty on the entropy of what is weighted; the reader answers alone (Clark et al. 2019).",
    ),
    "confidence_regularization": Method(
        "CREG",
        "Confidence regularisation: learns the probabilities of a standard reader, flattened the more the likelier the "
        "bias model finds the label (Utama et al. 2020).",
    ),
    "product_of_experts": Method(
        "PoE",
        "Product of experts: trained on the product of its probabilities and those of a bias model; the reader answers "
        "alone (He et al. 2019, Clark et al. 2019). Not in Mikula et al.",
    ),
    BIAS_MODEL: Method(
        "bias models",
        "Trained on the biased segment alone, and kept at the step where it is better there than elsewhere by most; it "
        "guides other methods and is not measured itself (Mikula et al. 2024).",
    ),
}
"""In the order of tables and figures."""


def slug(*names: str) -> str:
    """Return names as the part of a file's name, or of an anchor."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(names))
