"""Plans of questions about articles, and relations over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from biaseval.analysis.sign_flips import sign_flips
from biaseval.analysis.sql_files import connect, create, relations
from biaseval.qa_bias.significance import segment_draws
from biaseval.tables import tables_of
from tests.qaplans import QaPlan, Rows


@contextmanager
def opened(plan: QaPlan, names: Sequence[str], fixed: dict[str, float], n_units: int = 64) -> Iterator[Any]:
    """Yield a connection with relations over the rows of a plan, whose thresholds are fixed."""
    bootstrap = plan.spec["bootstrap"]
    datasets = list(dict.fromkeys(row["dataset"] for row in plan.examples))
    models = [model["name"] for model in plan.spec["models"]]
    given: dict[str, Rows] = {
        "qa_examples": plan.examples,
        "qa_attributes": plan.attributes,
        "qa_predictions": plan.predictions,
        "qa_settings": [{"seed": 1, "variant": "paper", "heuristics": plan.spec["heuristics"], **bootstrap}],
        "qa_models": [
            {"number": number, "model": model, "on_missing": "drop", "is_trained": False, "is_people": False}
            for number, model in enumerate(models)
        ],
        "qa_thresholds": [
            {"dataset": dataset, "heuristic": heuristic, "threshold": threshold, "is_fixed": True}
            for dataset in datasets
            for heuristic, threshold in fixed.items()
        ],
    }
    tables = tables_of("qa_bias")
    with closing(connect([])) as connection:
        for name, table in tables.items():
            if name not in ("qa_draws", "sign_flips"):
                connection.from_arrow(table.rows(given.get(name, []))).create(name)
        connection.from_arrow(sign_flips(n_units, 1)).create("sign_flips")
        made = relations("intermediate", "marts", tables=tables)
        first = ["qa_articles", "qa_measured", "qa_model_pairs", "qa_model_pair_answers"]
        for relation in made:
            if relation.name in first:
                create("table", relation.name, relation.sql, connection)
        draws = [
            segment_draws(
                model,
                connection.sql(f"from qa_measured where model = '{model}' order by dataset, row").to_arrow_table(),
                tables["qa_thresholds"].rows(given["qa_thresholds"]),
                seed=1,
                **bootstrap,
            )
            for model in models
        ]
        connection.from_arrow(pa.concat_tables(draws)).create("qa_draws")
        for relation in made:
            if relation.name in names:
                create("table", relation.name, relation.sql, connection)
        yield connection


def read(connection: duckdb.DuckDBPyConnection, sql: str) -> Rows:
    found: Rows = connection.sql(sql).to_arrow_table().to_pylist()
    return found


TITLES = [*"AAABBBCCCDDDEEFFGG", "H", "I"]


def small_plan(models: Sequence[str] = ("bert",), **spec: Any) -> QaPlan:
    """Return a plan of twenty questions about nine articles; the first ten have short answers."""
    plan = QaPlan(models, thresholds={"ans_len": 1.0}, bootstrap={"trials": 20, "sample": 8}, **spec)
    rng = np.random.default_rng(7)
    values = rng.permutation([1.0] * 10 + [3.0] * 10).tolist()
    plan.questions({"ans_len": values})
    for example, title in zip(plan.examples, TITLES, strict=True):
        example["title"] = title
    for number, model in enumerate(models):
        exact = (rng.random(20) < 0.5 + 0.3 * (np.array(values) == 1) * (number == 0)).astype(float)
        plan.answers(exact.tolist(), np.maximum(exact, rng.random(20)).tolist(), model=model)
    return plan
