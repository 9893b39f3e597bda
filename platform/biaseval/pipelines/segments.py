"""The stage that splits questions by the biases that are addressed, and says which segment is the biased one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.qa_judging import judged
from biaseval.errors import InputError
from biaseval.progress import say
from biaseval.qa_bias.significance import PUBLISHED_SEGMENTS, biased_questions
from biaseval.spec import QaBiasSpec, QaTrainSpec
from biaseval.store import Run
from biaseval.tables import QA_EXAMPLES, QA_SEGMENTS
from biaseval.units import Done, Unit

if TYPE_CHECKING:
    from biaseval.execute.cluster import Cluster


@dataclass(frozen=True)
class Segments:
    """A stage: each unit is a base and the data it is trained on.

    Its ``work`` has ``base``, ``data``, ``parts`` of the training questions, ``validation``, the parts of all sets for
    that, ``judge``, the standard reader whose answers decide, ``judging``, its parts of
    ``qa_validation_predictions``, and ``judged``, the parts of the questions that these answer.
    """

    spec: QaBiasSpec
    train: QaTrainSpec
    units: Sequence[Unit]
    verb: str = "split into segments"
    noun: str = "training sets"

    def begun(self, run: Run) -> int:
        """Return 0: it is there or it is not."""
        return 0

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        """Write the missing parts; nothing runs for it on a cluster.

        Raises:
            InputError: a threshold cannot be found, or leaves too few questions to train on.
        """
        for unit in missing:
            [file] = unit.files
            run.write_table(file, QA_SEGMENTS.rows(self._rows(run, unit.work)))
            yield Done(unit)

    def _rows(self, run: Run, work: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = _published(self.train) if self.train.thresholds == "mikula2024" else self._judged(run, work)
        values = {role: _values(run, work[role]) for role in ("parts", "validation")}
        rows, problems = [], []
        for bias in self.train.biases:
            row = {"base": work["base"], "data": work["data"], "bias": bias, **found[bias]}
            row |= self._counts(
                row, {role: own.filter(pc.equal(own["heuristic"], bias)) for role, own in values.items()}
            )
            problems += self._problems(row)
            rows.append(row)
        if problems:
            raise InputError.of(problems)
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
        if problems:
            raise InputError.of(problems)
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
        if threshold is not None:
            own = attributes.filter((pc.field("heuristic") == row["heuristic"]) & pc.field("is_measured"))
            n_lower = pc.sum(pc.less_equal(own["value"], threshold)).as_py() or 0
            return (
                f"train.biases: {row['heuristic']} (threshold {threshold:g}): {row['dataset']} has {n_lower:,} lower "
                f"and {own.num_rows - n_lower:,} higher questions, and judging takes bootstrap.sample, {sample:,}, of "
                "each; choose another threshold, a larger validation set or a smaller sample, in another --run-dir, or "
                "leave it out"
            )
        return (
            f"train.biases: {row['heuristic']}: {judge} shows no biased segment on {row['dataset']} ({row['status']}; "
            f"each needs bootstrap.sample, {sample:,}, questions); give train.thresholds a number for it, a larger "
            "validation set, or leave it out"
        )

    def _counts(self, row: Mapping[str, Any], values: Mapping[str, pa.Table]) -> dict[str, int]:
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

    def _problems(self, row: Mapping[str, Any]) -> list[str]:
        """Return what keeps methods from addressing a bias."""
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


def _published(train: QaTrainSpec) -> dict[str, dict[str, Any]]:
    """Return P3's thresholds and biased segments (protocol sections 4 and 5)."""
    return {
        bias: {"threshold": threshold, "source": "published", "biased_segment": segment, "judged_by": None}
        for bias, (threshold, segment) in PUBLISHED_SEGMENTS.items()
        if bias in train.biases
    }


def _values(run: Run, parts: Sequence[int]) -> pa.Table:
    return pa.concat_tables([run.read_part("qa_training_attributes", part) for part in parts])
