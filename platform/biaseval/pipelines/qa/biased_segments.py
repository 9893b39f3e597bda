"""The stage that splits questions by the biases that are addressed, and says which segment is the biased one.

`segment_problems` says before any training which of these splits cannot work, from the questions alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.biased_segments_query import judged
from biaseval.errors import refuse
from biaseval.progress import say
from biaseval.qa_bias.data import QuestionSet, question_rows
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.built_in import resources_of
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.qa_bias.heuristics.spacy_pipeline import load_annotator
from biaseval.qa_bias.heuristics.text import load_text
from biaseval.qa_bias.splits.significance import PUBLISHED_SEGMENTS, biased_questions, threshold_grid
from biaseval.spec import QaBiasSpec, QaTrainSpec
from biaseval.store import Run
from biaseval.tables import QA_EXAMPLES, QA_SEGMENTS
from biaseval.units import Unit

SEGMENT_KEYS = ("train.thresholds", "train.thresholds.*", "train.methods", "train.batch_size", "train.accumulation",
                "bootstrap.sample")  # fmt: skip
"""Keys of a spec on which it depends whether segments have enough questions."""

_FIRST = 512
"""Questions that are counted first; twice as many follow for as long as they are too few."""

_MOST_ANNOTATED = 2_000
"""Questions of a set that a spaCy pipeline reads for a plan, in about 40 seconds; beyond them the run decides."""


@dataclass(frozen=True)
class Segments:
    """Makes the rows of a base and of its training data.

    The ``work`` of such a unit has ``base``, ``data``, ``parts`` of the training questions, ``validation``, the parts
    of all sets for that, ``judge``, the standard reader whose answers decide, ``judging``, its parts of
    ``qa_validation_predictions``, and ``judged``, the parts of the questions that these answer.
    """

    spec: QaBiasSpec
    train: QaTrainSpec

    def rows_of(self, run: Run) -> Callable[[Unit], pa.Table]:
        """Return the function for the rows of a unit; it raises InputError if a threshold leaves too few questions."""
        return lambda unit: QA_SEGMENTS.rows(self._rows(run, unit.work))

    def _rows(self, run: Run, work: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = _published(self.train) if self.train.thresholds == "mikula2024" else self._judged(run, work)
        values = {role: _values(run, work[role]) for role in ("parts", "validation")}
        rows, problems = [], []
        for bias in self.train.biases:
            row = {"base": work["base"], "data": work["data"], "bias": bias, **found[bias]}
            row |= self.counts(
                row, {role: own.filter(pc.equal(own["heuristic"], bias)) for role, own in values.items()}
            )
            problems += self.problems(row)
            rows.append(row)
        refuse(problems)
        return rows

    def _judged(self, run: Run, work: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        given = self.train.thresholds if isinstance(self.train.thresholds, dict) else {}
        tables = {
            name: pa.concat_tables([run.read_part(table, part) for part in work[parts]])
            for name, table, parts in (
                ("examples", "qa_training_examples", "judged"),
                ("attributes", "qa_training_attributes", "judged"),
                ("predictions", "qa_validation_predictions", "judging"),
            )
        }
        examples = tables["examples"]
        role = pa.array(["in_distribution"] * examples.num_rows, pa.string())
        tables["examples"] = examples.set_column(QA_EXAMPLES.schema.get_field_index("role"), "role", role)
        found = judged(self.spec, given, heuristics=self.train.biases, **tables)
        problems = [
            self._unjudged(row, work["judge"], tables["attributes"], given.get(row["heuristic"]))
            for row in found
            if row["biased_segment"] is None
        ]
        refuse(problems)
        for row in found:
            if row["bias_significance"] == 0:
                say(
                    f"{row['heuristic']}: {work['judge']} shows no significant bias on {row['dataset']}; the "
                    f"{row['biased_segment']} segment is taken for the biased one, and nothing supports that"
                )
        return {
            row["heuristic"]: {
                "threshold": row["threshold"],
                "source": "given" if row["heuristic"] in given else "searched",
                "biased_segment": row["biased_segment"],
                "judged_by": work["judge"],
                "lower_high": row["lower_high"],
                "higher_high": row["higher_high"],
                "bias_significance": row["bias_significance"],
            }
            for row in found
        }

    def _unjudged(self, row: Mapping[str, Any], judge: str, attributes: pa.Table, threshold: float | None) -> str:
        """Return why a standard reader's answers on validation do not say which segment is biased."""
        sample = self.spec.bootstrap.sample
        own = attributes.filter(pc.field("heuristic") == row["heuristic"])
        if threshold is not None and (problems := self.unjudgeable(row["heuristic"], row["dataset"], own)):
            return problems[0]
        return (
            f"train.biases: {row['heuristic']}: {judge} shows no biased segment on {row['dataset']} ({row['status']}; "
            f"each needs bootstrap.sample, {sample:,}, questions); give train.thresholds a number for it, a larger "
            "validation set, or leave it out"
        )

    def threshold(self, bias: str) -> float | None:
        """Return the threshold that the spec gives, or P3 published; None: it is searched."""
        if self.train.thresholds == "mikula2024":
            return PUBLISHED_SEGMENTS[bias][0]
        return self.train.thresholds.get(bias) if isinstance(self.train.thresholds, dict) else None

    def untrainable(self, bias: str, data: str, values: pa.Table, *validation: pa.Table) -> list[str]:
        """Return what keeps methods from addressing a bias whose threshold is known, whichever segment is biased.

        ``values`` are the bias's rows of ``qa_attributes`` on the training set, ``validation`` those on each other set.
        """
        known = _published(self.train).get(bias) if self.train.thresholds == "mikula2024" else None
        tables = {"parts": values, "validation": pa.concat_tables(validation)}
        found = []
        for segment in ("lower", "higher") if known is None else (known["biased_segment"],):
            row = {"bias": bias, "data": data, "threshold": self.threshold(bias), "biased_segment": segment}
            found.append(self.problems(row | self.counts(row, tables)))
        return found[-1] if all(found) else []

    def unjudgeable(self, bias: str, dataset: str, values: pa.Table) -> list[str]:
        """Return why a validation set cannot say which segment of a bias is the biased one, whatever a reader answers.

        The threshold is given or searched; ``values`` are the bias's rows of ``qa_attributes`` on this set.
        """
        threshold = self.threshold(bias)
        measured = np.sort(values.filter(values["is_measured"])["value"].to_numpy())
        sample, place = self.spec.bootstrap.sample, f"train.biases: {bias}"
        needed = f"judging takes bootstrap.sample, {sample:,}, of each"
        remedy = "a larger validation set or a smaller sample, in another --run-dir, or leave it out"
        if threshold is not None:
            n_lower = int(np.searchsorted(measured, threshold, side="right"))
            n_higher = len(measured) - n_lower
            if min(n_lower, n_higher) >= sample:
                return []
            found = f"{dataset} has {n_lower:,} lower and {n_higher:,} higher questions"
            return [f"{place} (threshold {threshold:g}): {found}, and {needed}; choose another threshold, {remedy}"]
        seen = measured if self.spec.variant == "paper" else values["value"].to_numpy()
        seen = seen[np.isfinite(seen)]
        grid = threshold_grid(bias, seen.min(), seen.max(), variant=self.spec.variant) if len(seen) else []
        lower = np.searchsorted(measured, grid, side="right")
        smaller = np.minimum(lower, len(measured) - lower)
        if len(grid) and smaller.max() >= sample:
            return []
        best = int(smaller.argmax()) if len(grid) else None
        found = (
            f"{len(measured):,} questions of {dataset} have a value, and there is no threshold to try"
            if best is None
            else f"of {len(grid):,} thresholds on {dataset} the most even, {grid[best]:g}, has {lower[best]:,} lower "
            f"and {len(measured) - lower[best]:,} higher questions"
        )
        return [f"{place}: {found}, and {needed}; choose {remedy}"]

    def counts(self, row: Mapping[str, Any], values: Mapping[str, pa.Table]) -> dict[str, int]:
        """Return how many questions lie in each segment of a row with ``threshold`` and ``biased_segment``.

        ``values`` are the bias's rows of ``qa_attributes``: ``parts`` of the training set, and ``validation``.
        """
        is_biased = {
            role: biased_questions(
                own["value"].to_numpy(),
                own["is_measured"].to_numpy(),
                row["threshold"],
                row["biased_segment"],
                variant=self.spec.variant,
            )
            for role, own in values.items()
        }
        value, is_measured = (values["parts"][name].to_numpy() for name in ("value", "is_measured"))
        is_in = is_measured | (self.spec.variant == "reference")  # undefined ones are lower there
        return {
            "n_lower": int(np.count_nonzero(is_in & (value <= row["threshold"]))),
            "n_higher": int(np.count_nonzero(is_in & (value > row["threshold"]))),
            "n_undefined": int(np.count_nonzero(~is_measured)),
            "n_biased": int(is_biased["parts"].sum()),
            "n_biased_validation": int(is_biased["validation"].sum()),
            "n_other_validation": int((~is_biased["validation"]).sum()),
        }

    def problems(self, row: Mapping[str, Any]) -> list[str]:
        """Return what keeps methods from addressing a bias; ``row`` is one of ``qa_segments``."""
        train, place = self.train, f"train.biases: {row['bias']} (threshold {row['threshold']:g}, {row['data']})"
        advice = "choose another threshold, give more questions, or leave the bias out"
        problems = []
        if "resample" in train.methods and not (row["n_lower"] and row["n_higher"]):
            problems.append(f"{place}: {row['n_lower']:,} lower and {row['n_higher']:,} higher questions; {advice}")
        if train.has_bias_models:
            at_least = train.batch_size * train.accumulation
            if row["n_biased"] < at_least:
                problems.append(
                    f"{place}: {row['n_biased']:,} training questions in the biased segment, and a step of a bias "
                    f"model takes {at_least:,}; {advice}"
                )
            elif not (row["n_biased_validation"] and row["n_other_validation"]):
                problems.append(
                    f"{place}: of the questions for validation {row['n_biased_validation']:,} are biased and "
                    f"{row['n_other_validation']:,} are not, and a bias model is chosen by both; {advice}"
                )
        return problems


def segment_problems(
    spec: QaBiasSpec, sets: Sequence[tuple[str, QuestionSet]], tfidf: Callable[[], Tfidf]
) -> list[str]:
    """Return why training would fail for lack of questions in a segment, from the questions alone, without a model.

    The function counts the first questions of a set, and more while they are too few. So its result holds for whole
    sets, and it reads only a part of a study without a problem.

    Args:
        spec: has a section ``train``.
        sets: roles (``train``, ``validation``) and questions of training, in the order of the spec.
        tfidf: fits the document frequencies of ``cos_sim``.

    Returns:
        For each heuristic that fails its threshold, the counts and the correction.

    Raises:
        InputError: a user's heuristic fails, or has too many thresholds to try.
    """
    train = spec.train
    assert train is not None
    segments = Segments(spec, train)
    training = [own for role, own in sets if role == "train"]
    validation = [own for role, own in sets if role == "validation"]

    @cache
    def resource(name: str) -> Any:
        if name == "annotator":
            return load_annotator(spec.text.spacy, spec.heuristics)
        return tfidf() if name == "tfidf" else load_text(spec.text.nltk_data)

    def first_problems(bias: str, asked: Sequence[QuestionSet], check: Callable[..., list[str]]) -> list[str]:
        """Return what a check says of ever more questions of each set, until it says nothing or has seen them all."""
        needed = resources_of([bias])
        rows = [question_rows(own, "in_distribution") for own in asked]
        longest, n = max(own.num_rows for own in rows), _FIRST
        given = {name: resource(name) for name in needed}
        while True:
            found = check(*(attributes(own.slice(0, n), [bias], variant=spec.variant, **given) for own in rows))
            if not found or n >= longest:
                return found
            if "annotator" in needed and n >= _MOST_ANNOTATED:
                return []
            n *= 2

    problems = []
    for bias in train.biases:
        found: list[str] = []
        if train.thresholds != "mikula2024":
            found = first_problems(bias, validation[:1], partial(segments.unjudgeable, bias, validation[0].name))
            problems += found
        if not found and segments.threshold(bias) is not None:
            for own in training:
                problems += first_problems(bias, [own, *validation], partial(segments.untrainable, bias, own.name))
    return problems


def _published(train: QaTrainSpec) -> dict[str, dict[str, Any]]:
    """Return P3's thresholds and biased segments (protocol sections 4 and 5)."""
    return {
        bias: {"threshold": threshold, "source": "published", "biased_segment": segment, "judged_by": None}
        for bias, (threshold, segment) in PUBLISHED_SEGMENTS.items()
        if bias in train.biases
    }


def _values(run: Run, parts: Sequence[int]) -> pa.Table:
    return pa.concat_tables([run.read_part("qa_training_attributes", part) for part in parts])
