"""What a report reads of the readers that a QA-bias run trained (P3): rows of marts and tables, by where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb

from biaseval.analysis import open_runs
from biaseval.report.findings import Row
from biaseval.report.qa_findings import QaFindings
from biaseval.report.qa_training_names import BIAS_MODEL, MEAN, METHODS
from biaseval.store import Run


@dataclass(frozen=True)
class Block:
    """The readers of one base and training set."""

    number: int
    name: str
    """``BASE``, or ``BASE@DATA`` where the study has several training sets."""
    base: str
    data: str
    heuristics: tuple[str, ...]
    """Of the study, in the spec's order."""
    readers: tuple[Row, ...]
    """All of ``trained_models``, bias models too, in the study's order."""

    @property
    def methods(self) -> list[str]:
        """The methods that address a bias and have readers, in the order of `METHODS`."""
        found = {row["method"] for row in self.readers} - {"standard", BIAS_MODEL}
        return [method for method in METHODS if method in found]

    @property
    def seeds(self) -> list[int]:
        """In the study's order."""
        return list(dict.fromkeys(row["seed"] for row in self.readers))

    @property
    def biases(self) -> list[str]:
        """The heuristics that readers address."""
        found = {row["bias"] for row in self.readers if row["method"] in self.methods}
        return [heuristic for heuristic in self.heuristics if heuristic in found]

    def of_method(self, method: str) -> list[Row]:
        """Return its readers that were not given up."""
        return [row for row in self.readers if row["method"] == method and row["problem"] is None]

    def model(self, method: str, bias: str | None, seed: int) -> str:
        """Return the name of a reader; nothing if there is none, or it was given up."""
        for row in self.of_method(method):
            if (row["bias"], row["seed"]) == (bias, seed):
                return str(row["model"])
        return ""


@dataclass(frozen=True)
class QaTraining:
    """All that the report shows of trained readers; scales are the marts': points, and 0 to 1 of data sets."""

    blocks: tuple[Block, ...]
    readers: tuple[Row, ...]
    """``trained_models`` with the costs of ``qa_training_costs``."""
    debiasing: dict[tuple[str, str, str], Row]
    """(model, data set, heuristic) to the row of ``qa_debiasing``."""
    elsewhere: dict[tuple[str, str], Row]
    """(model, data set) to the row of ``qa_out_of_distribution``; (model, `MEAN`): of ``..._by_model``."""
    addressed: dict[tuple[int, str, int, str], Row]
    """(block, method, seed, data set) to the row of ``qa_debiasing_by_method``."""
    over_biases: dict[tuple[int, str, int, str], Row]
    """(block, method, seed, data set or `MEAN`) to the row of ``qa_out_of_distribution_by_method``."""
    bias_models: tuple[Row, ...]
    correlations: tuple[Row, ...]
    segments: tuple[Row, ...]
    windows: tuple[Row, ...]
    """Of training questions: ``qa_training_windows``."""
    courses: dict[tuple[int, str], list[Row]]
    """(block, method) to the rows of ``qa_training_curves``, by data set and step."""

    @property
    def is_searched(self) -> bool:
        """Whether a change was tested at a threshold that was searched on a standard reader's answers."""
        return any(row["verdict"] and row["searched_on"] is not None for row in self.debiasing.values())


def read_qa_training(run: Run, findings: QaFindings) -> QaTraining | None:
    """Return what the report shows of the readers that a run trained; None where it trained none.

    Raises:
        BiasevalError: the run has no metrics yet.
    """
    if not run.parts("trained_models"):
        return None
    with closing(open_runs([run.uri])) as connection:
        readers = _rows(connection, _READERS)
        debiasing = _rows(connection, "from qa_debiasing")
        elsewhere = _rows(connection, "from qa_out_of_distribution")
        elsewhere_means = _rows(connection, "from qa_out_of_distribution_by_model")
        addressed = _rows(connection, "from qa_debiasing_by_method")
        over_biases = _rows(connection, "from qa_out_of_distribution_by_method")
        bias_models = _rows(connection, "from qa_bias_models")
        correlations = _rows(connection, "from qa_debiasing_correlation")
        segments = _rows(connection, "from qa_segments order by base, data, bias")
        windows = _rows(connection, "from qa_training_windows order by base, dataset")
        curves = _rows(connection, "from qa_training_curves order by dataset, step")
    blocks = _blocks(readers, findings.heuristics)
    numbers = {(block.base, block.data): block.number for block in blocks}

    def place(row: Row) -> tuple[int, str, int, str]:
        return numbers[row["base"], row["data"]], row["method"], row["seed"], row["dataset"]

    courses: dict[tuple[int, str], list[Row]] = {}
    for row in curves:
        courses.setdefault((numbers[row["base"], row["data"]], row["method"]), []).append(row)
    return QaTraining(
        blocks=tuple(blocks),
        readers=tuple(readers),
        debiasing={(row["model"], row["dataset"], row["heuristic"]): row for row in debiasing},
        elsewhere={(row["model"], row["dataset"]): row for row in elsewhere}
        | {(row["model"], MEAN): row | {"dataset": MEAN} for row in elsewhere_means},
        addressed={place(row): row for row in addressed},
        over_biases={place(row): row for row in over_biases},
        bias_models=tuple(bias_models),
        correlations=tuple(correlations),
        segments=tuple(segments),
        windows=tuple(windows),
        courses=courses,
    )


def _blocks(readers: Sequence[Row], heuristics: tuple[str, ...]) -> list[Block]:
    places = dict.fromkeys((row["base"], row["data"]) for row in readers)
    has_several = len({data for _, data in places}) > 1
    return [
        Block(
            number,
            f"{base}@{data}" if has_several else base,
            base,
            data,
            heuristics,
            tuple(row for row in readers if (row["base"], row["data"]) == (base, data)),
        )
        for number, (base, data) in enumerate(places)
    ]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    rows: list[Row] = connection.sql(sql).to_arrow_table().to_pylist()
    return rows


_READERS = """
select
    trained_models.*,
    costs.seconds,
    costs.accelerator_hours,
    costs.n_evaluations,
    costs.evaluation_seconds
from trained_models
left join qa_training_costs as costs using (model)
order by trained_models.number
"""
