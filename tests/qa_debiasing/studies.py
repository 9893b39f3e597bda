"""Two studies: one of twenty questions whose changes are done by hand, one of five hundred for loops in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.qa_debiasing.study import Floats, Study
from tests.qaplans import OVERLAP, RIGHT, VALUES

ARTICLES = list("ABCDABCDAB") + list("CDABCDABCD")
DEBIASED = [1] * 7 + [0] * 3 + [0] * 3 + [1] * 6 + [0] * 1
"""70 % of the lower and 60 % of the higher segment, where the standard reader has 80 % and 50 %."""
LESS = [(one + 1) / 2 for one in DEBIASED]


def two_readers(**spec: Any) -> Study:
    """Return a study whose trials hold all of a segment: its significances are the differences, 30 and 10."""
    study = Study({"ans_len": [1]}, **spec)
    study.questions({"ans_len": [*VALUES, None]})
    study.titles([*ARTICLES, "E"])
    study.reader("base")
    study.reader("careful", "learned_mixin", "ans_len")
    study.answers([*RIGHT, 1], [*OVERLAP, 1.0], model="base")
    study.answers([*DEBIASED, 0], [*LESS, 0.5], model="careful")
    return study


def hand_draws(study: Study) -> None:
    study.tables["qa_change_draws"] = [
        {
            "model": "careful", "dataset": "squad", "heuristic": "ans_len", "draw": draw,
            "lower": lower, "higher": higher, "standard_lower": 0.9, "standard_higher": 0.5,
        }
        for draw, (lower, higher) in enumerate([(0.7, 0.6), (0.7, 0.5), (0.3, 0.6), (0.6, 0.6), (None, 0.6)])
    ]  # fmt: skip


PLACES = {"ans_len": (2.0, 4), "cos_sim": (0.35, 0), "word_dist": (3.0, 0)}
"""The thresholds, and how much better the standard reader is below them."""


def large_study(seed: int = 0, **spec: Any) -> tuple[Study, dict[str, Floats]]:
    """Return a study of three readers on 500 questions about 12 articles, and its columns."""
    rng = np.random.default_rng(seed)
    n_rows = 500
    columns: dict[str, Floats] = {
        "ans_len": rng.integers(1, 6, size=n_rows).astype(float),
        "cos_sim": rng.random(n_rows),
        "word_dist": rng.integers(-1, 8, size=n_rows).astype(float),
        "article": rng.integers(12, size=n_rows),
    }
    study = Study(
        spec.pop("thresholds", {heuristic: [threshold] for heuristic, (threshold, _) in PLACES.items()}),
        bootstrap={"trials": 20, "sample": 100, **spec.pop("bootstrap", {})},
        **spec,
    )
    study.questions({name: [None if one < 0 else one for one in columns[name]] for name in PLACES})
    study.titles([f"title {one}" for one in columns["article"]])
    study.reader("base")
    study.reader("mixin", "learned_mixin", "ans_len")
    study.reader("again", "resample", "cos_sim")
    skill = rng.normal(0, 0.15, size=12)[columns["article"]]
    for model, slope in (("base", 0.5), ("mixin", 0.1), ("again", 0.4)):
        chance = np.clip(0.5 + skill + slope * (columns["ans_len"] <= 2), 0, 1)
        columns[model] = (rng.random(n_rows) < chance).astype(float)
        columns[f"{model} f1"] = np.maximum(columns[model], rng.random(n_rows))
        study.answers(columns[model].tolist(), columns[f"{model} f1"].tolist(), model=model)
    return study, columns
