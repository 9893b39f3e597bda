"""Searches of the papers, by name, with their searched keys and objectives."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from biaseval.qa_bias.heuristics.built_in import HEURISTICS
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.spec.majority_bias import MajorityBiasSpec
from biaseval.spec.qa_bias import QaBiasSpec

EVERY_THRESHOLD = "thresholds.*"
"""A searched key whose one number is the threshold of every measured heuristic."""

_SCALES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1]
"""The grid of P3's appendix, as the removed share and as the kept share (protocol section 9.4)."""

_PENALTIES = [0.2, 0.4, 2.0]
"""The penalties in the QA code of Clark et al."""

_HIGHEST = 100
_TENTHS = [number / 10 for number in range(1, 10)]

_OF_MIXINS = "from qa_out_of_distribution where dataset = 'adversarialqa' and method = 'learned_mixin'"

_WHOLE = ", ".join(f"'{own.id}'" for own in HEURISTICS.values() if own.step == 1)


@dataclass(frozen=True)
class Preset:
    """A search of a paper."""

    content: Mapping[str, Any]
    """Keys of a search with their values, as a run stores them."""
    lacks: Callable[[QaBiasSpec], Iterator[str]]
    """A function that yields the keys that a spec lacks for this search."""

    def problems(self, spec: LabelBiasSpec | MajorityBiasSpec | QaBiasSpec) -> Iterator[str]:
        """Yield the reasons why this search cannot take a spec."""
        if isinstance(spec, QaBiasSpec):
            yield from self.lacks(spec)
        else:
            yield f"searches a qa_bias spec, and not a {spec.kind} one"


def _scale(sql: str, per: list[str]) -> dict[str, Any]:
    return {
        "search": {
            "train.learned_mixin.bias_scale": {"grid": _SCALES},
            "train.learned_mixin.entropy_penalty": {"grid": _PENALTIES},
        },
        "objective": {"sql": sql, "maximize": True},
        "per": per,
        "algorithm": "grid",
    }


def _lacks_mixin(spec: QaBiasSpec) -> Iterator[str]:
    if spec.train is None or "learned_mixin" not in spec.train.methods:
        yield "needs readers with learned_mixin; add it to train.methods"
    if "adversarialqa" not in spec.datasets.out_of_distribution:
        yield "chooses on a set adversarialqa; add it to datasets.out_of_distribution"


def _lacks_word_distance(spec: QaBiasSpec) -> Iterator[str]:
    yield from _lacks_mixin(spec)
    if spec.train is not None and "word_dist" not in spec.train.biases:
        yield "chooses by readers that address word_dist; add it to train.biases"


def _lacks_models(spec: QaBiasSpec) -> Iterator[str]:
    if spec.train is not None:
        yield "searches the thresholds of models that are there; leave out train, and name them under models"


PRESETS: Mapping[str, Preset] = {
    # The readers that address word_dist decide for all biases (P3, section 4.3 and appendix).
    "mikula2024-scale": Preset(
        _scale(f"select avg(f1) as f1 {_OF_MIXINS} and bias = 'word_dist'", []), _lacks_word_distance
    ),
    # P3's discussion suggests this search: the readers that address a bias choose for it.
    "mikula2024-scale-per-bias": Preset(
        _scale(f"select bias, avg(f1) as f1 {_OF_MIXINS} group by bias", ["bias"]), _lacks_mixin
    ),
    # One number serves all heuristics; each model, data set and heuristic gets its own best point (section 5).
    "mikula2024-thresholds": Preset(
        {
            "search": {EVERY_THRESHOLD: {"grid": [0, *_TENTHS, *range(1, _HIGHEST + 1)]}},
            "objective": {
                "sql": "select model, dataset, heuristic, bias_significance, n_lower, n_higher, sample "
                "from qa_bias_candidates cross join qa_settings "
                f"where threshold = floor(threshold) or heuristic not in ({_WHOLE})",
                "maximize": True,
            },
            "per": ["model", "dataset", "heuristic"],
            "algorithm": "grid",
        },
        _lacks_models,
    ),
}
