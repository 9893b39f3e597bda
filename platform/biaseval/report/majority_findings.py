"""What the report of a majority-bias run shows, read from its marts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from biaseval.analysis import open_runs
from biaseval.environment import raw_spec, read_environment
from biaseval.report.findings import Adaptation, Row, read_adaptation
from biaseval.report.ways import REGIONS, row_order, way_order, ways_of
from biaseval.store import Run

METRICS_OF_VERDICTS = {
    "mean_f1": "mean weighted F1",
    "sd_f1": "sd",
    "rb_at_10": "RB@10 of a seed",
    "tails_f1": "weighted F1 at the tails",
    "middle_f1": "weighted F1 in the middle",
}
"""The display names of the metrics that verdicts are of, in the order of tables."""

N_CHANGED = 20
"""Test rows that are shown of those whose prediction changes."""


@dataclass(frozen=True)
class MajorityFindings:
    """What the report shows. Shares and F1 are in [0, 1]; a number that was not measured is None."""

    model: str
    by_model: list[Row]
    """The rows of ``majority_by_model``, by way, method and instruction."""
    by_setting: list[Row]
    """The rows of ``majority_over_seeds``, in the same order and by the setting's number."""
    gaps: list[Row]
    """The rows of ``majority_instruction_gap``, with the intervals of their tests."""
    remedies: list[Row]
    """The rows of ``majority_remedies``, by way, method and instruction."""
    verdicts: list[Row]
    """The rows of ``majority_verdicts``, by way, method, instruction and metric."""
    components: list[Row]
    """The rows of ``majority_components``, in the order of ``by_model``."""
    adaptation: Adaptation | None
    """None in a run without adapters."""
    settings: list[Row]
    outputs: list[Row]
    """The rows of ``frequent_outputs``."""
    changed: list[Row]
    """Test rows of the first way of predicting whose prediction changes between the most skewed settings: rows of
    ``majority_changed_rows``, the most changed first, by instruction."""
    queries: dict[str, str]
    """Table of the page to the query that shows its rows."""
    spec: Row
    plan: Row
    environment: Row

    def ways(self) -> list[tuple[str, str]]:
        """Return each way of predicting with its method, in the order of tables."""
        return ways_of(self.by_model)

    def of(self, predict: str, method: str, instruction: bool) -> Row:
        """Return the row of ``majority_by_model`` for this way of predicting, method and instruction."""
        return next(
            row
            for row in self.by_model
            if (row["predict"], row["method"], row["instruction"]) == (predict, method, instruction)
        )

    def first(self) -> list[Row]:
        """Return the rows of ``majority_by_model`` of the first way of predicting, by instruction."""
        return [row for row in self.by_model if (row["predict"], row["method"]) == self.ways()[0]]

    def verdict(self, row: Row, metric: str) -> Row:
        """Return what a metric of a row may be said to show; of a change, or of the instruction's gap.

        Args:
            row: of ``majority_remedies`` or ``majority_instruction_gap``, or one of ``majority_by_model`` with a
                method.
            metric: of ``majority_verdicts``.
        """
        return _verdict_of(row, metric, self.verdicts)


def read_majority_findings(run: Run) -> MajorityFindings:
    """Return what the report of a majority-bias run shows.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    spec = raw_spec(run)
    marts = ("by_model", "over_seeds", "instruction_gap", "remedies", "verdicts", "components")
    with closing(open_runs([run.uri])) as connection:
        by_model, by_setting, gaps, remedies, verdicts, components, settings = (
            connection.sql(f"from {name}").to_arrow_table().to_pylist()
            for name in (*(f"majority_{mart}" for mart in marts), "settings")
        )
        frequent = connection.sql("from frequent_outputs order by is_adapted, n_outputs desc, text, prediction")
        outputs = frequent.to_arrow_table().to_pylist()
        remedies = sorted(remedies, key=row_order)
        queries = {"changed": _changed_query(by_model)}
        changed = connection.sql(queries["changed"]).to_arrow_table().to_pylist()
        adaptation = read_adaptation(connection, remedies, place="instruction")
    return MajorityFindings(
        model=spec["name"],
        by_model=sorted(by_model, key=row_order),
        by_setting=sorted(by_setting, key=lambda row: (row_order(row), row["number"])),
        gaps=[
            _tested(row, verdicts, {"gap": f"{row['region']}_f1"})
            for row in sorted(gaps, key=lambda row: (way_order(row), REGIONS.index(row["region"])))
        ],
        remedies=remedies,
        verdicts=sorted(verdicts, key=lambda row: (row_order(row), list(METRICS_OF_VERDICTS).index(row["metric"]))),
        components=sorted(components, key=row_order),
        adaptation=adaptation,
        settings=sorted(settings, key=lambda row: row["number"]),
        # Quoted, as spaces and line ends are part of an output.
        outputs=[{**row, "shown": json.dumps(row["text"], ensure_ascii=False)} for row in outputs],
        changed=changed,
        queries=queries,
        spec=spec,
        plan=run.read_json("plan.json") if run.has("plan.json") else {},
        environment=read_environment(run),
    )


def _verdict_of(row: Row, metric: str, verdicts: Sequence[Row]) -> Row:
    place = (row["predict"], row["method"], row.get("instruction", True), metric)
    return next(
        each for each in verdicts if (each["predict"], each["method"], each["instruction"], each["metric"]) == place
    )


def _changed_query(by_model: Sequence[Row]) -> str:
    """Return what shows the rows whose prediction changes most, as many of each instruction."""
    predict, method = ways_of(by_model)[0]
    n_each = N_CHANGED // len({row["instruction"] for row in by_model})
    return (
        f"from majority_changed_rows where predict = '{predict}' and method = '{method}' and place <= {n_each} "
        "order by instruction, place"
    )


def _tested(row: Row, verdicts: Sequence[Row], metrics: Mapping[str, str]) -> Row:
    """Return a difference with the intervals of its tests in place of the percentiles of resamples.

    Those lean narrow with few test rows.

    Args:
        row: of ``majority_instruction_gap``.
        verdicts: rows of ``majority_verdicts``.
        metrics: by column of the row; what else it has is without interval.
    """
    shown = {name: None if name.endswith(("_low", "_high")) else value for name, value in row.items()}
    for column, metric in metrics.items():
        verdict = _verdict_of(row, metric, verdicts)
        shown |= {f"{column}_low": verdict["low"], f"{column}_high": verdict["high"]}
    return shown
