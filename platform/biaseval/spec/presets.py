"""Searches of the papers, by name: what is varied, and what is looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from biaseval.qa_bias.heuristics import HEURISTICS
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.spec.majority_bias import MajorityBiasSpec
from biaseval.spec.qa_bias import QaBiasSpec

EVERY_THRESHOLD = "thresholds.*"
"""Searched key: one number, the threshold of every heuristic that is measured."""

_SCALES = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1]
"""Of P3's appendix, as the part that is removed and as the part that is kept (protocol section 9.4)."""

_PENALTIES = [0.2, 0.4, 2.0]
"""Those that Clark et al. used for QA, by their code."""

_HIGHEST = 100
_TENTHS = [number / 10 for number in range(1, 10)]

_OF_MIXINS = "from qa_out_of_distribution where dataset = 'adversarialqa' and method = 'learned_mixin'"

_WHOLE = ", ".join(f"'{own.id}'" for own in HEURISTICS.values() if own.step == 1)


@dataclass(frozen=True)
class Preset:
    """A search of a paper."""

    content: Mapping[str, Any]
    """Keys of a search and their values, as a run keeps them."""
    lacks: Callable[[QaBiasSpec], Iterator[str]]
    """Yields what a spec lacks to be searched so."""

    def problems(self, spec: LabelBiasSpec | MajorityBiasSpec | QaBiasSpec) -> Iterator[str]:
        """Yield why a spec cannot be searched so."""
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
    # The readers that address word_dist decide, for all biases (P3, section 4.3 and appendix).
    "mikula2024-scale": Preset(
        _scale(f"select avg(f1) as f1 {_OF_MIXINS} and bias = 'word_dist'", []), _lacks_word_distance
    ),
    # What P3's discussion asks for: for each bias by the readers that address it.
    "mikula2024-scale-per-bias": Preset(
        _scale(f"select bias, avg(f1) as f1 {_OF_MIXINS} group by bias", ["bias"]), _lacks_mixin
    ),
    # One number for all heuristics at a time; a point is chosen for each model, data set and heuristic (section 5).
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
