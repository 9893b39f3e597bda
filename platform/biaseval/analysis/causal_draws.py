"""What runs of causal LMs derive for SQL beside their outputs: the bootstrap's draws, and facts of the spec."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.relations import connect, read_parquet, rows
from biaseval.spec import CausalSpec, LabelBiasSpec, MajorityBiasSpec
from biaseval.store import Run
from biaseval.tables import BOOTSTRAP_DRAWS, PROMPTS, ROW_DRAWS, RUN_SETTINGS, TASKS

N_DRAWS = 1000
"""Bootstrap resamples behind every interval: of tasks (label bias), of test rows (majority bias)."""


def derive_label_bias(run: Run, spec: LabelBiasSpec) -> None:
    """Write ``bootstrap_draws`` and ``run_settings`` of a scored label-bias run."""
    run.write_part(BOOTSTRAP_DRAWS.name, 0, _bootstrap_draws(run.read_table(TASKS.name), spec.seed))
    run.write_part(RUN_SETTINGS.name, 0, _run_settings(run, spec, ["likelihood"]))


def derive_majority_bias(run: Run, spec: MajorityBiasSpec) -> None:
    """Write ``row_draws`` and ``run_settings`` of a scored majority-bias run."""
    run.write_part(ROW_DRAWS.name, 0, _row_draws(_n_test_rows(run), spec.seed))
    run.write_part(RUN_SETTINGS.name, 0, _run_settings(run, spec, spec.predict))


def _bootstrap_draws(tasks: pa.Table, seed: int) -> pa.Table:
    """Return how often each draw of each suite holds each of its tasks.

    Draws 1 to `N_DRAWS` are as many tasks drawn with replacement; a suite of one task has none. Each suite has its own
    ``default_rng(seed)``, so that no suite changes another's draws.
    """
    tasks = tasks.sort_by("task")
    suites = {"all": tasks, "semantically_equivalent": tasks.filter(pc.field("is_semantically_equivalent"))}
    tables = []
    for suite, members in suites.items():
        n_drawn = _n_drawn(members.num_rows, seed)
        draw, position = np.indices(n_drawn.shape, dtype=np.int32).reshape(2, -1)
        columns = {
            "suite": pa.array([suite] * n_drawn.size, pa.string()),
            "draw": draw,
            "task": members["task"].take(pa.array(position)),
            "n_drawn": n_drawn.ravel(),
        }
        tables.append(pa.table(columns, schema=BOOTSTRAP_DRAWS.schema))
    return pa.concat_tables(tables)


def _row_draws(n_rows: int, seed: int) -> pa.Table:
    """Return how often each draw holds each test row of a majority-bias run.

    Draws 1 to `N_DRAWS` are as many rows drawn with replacement; a single row has none. They are the same for every
    setting, so that settings, methods and instructions are compared on equal rows.
    """
    n_drawn = _n_drawn(n_rows, seed)
    ends = np.arange(len(n_drawn) + 1, dtype=np.int32) * n_rows
    columns = {
        "draw": pa.array(range(len(n_drawn)), pa.int32()),
        "n_drawn": pa.ListArray.from_arrays(pa.array(ends), pa.array(n_drawn.ravel())),
    }
    return pa.table(columns, schema=ROW_DRAWS.schema)


def _n_drawn(n_members: int, seed: int) -> npt.NDArray[np.int32]:
    """Return how often each draw holds each member, ``[1 + N_DRAWS, n_members]``, or one draw of a single member.

    Draw 0 holds each once.
    """
    itself = np.ones((1, n_members), dtype=np.int32)
    if n_members <= 1:
        return itself
    draws = np.random.default_rng(seed).multinomial(n_members, np.full(n_members, 1 / n_members), size=N_DRAWS)
    return np.concatenate([itself, draws.astype(np.int32)])


def _n_test_rows(run: Run) -> int:
    prompts = read_parquet(run, f"{PROMPTS.name}/part-*.parquet")
    count = f"select count(distinct row) as n_rows from ({prompts}) where purpose = 'majority'"
    with closing(connect([run])) as connection:
        n_rows: int = rows(count, connection)["n_rows"][0].as_py()
    return n_rows


def _run_settings(run: Run, spec: CausalSpec, predict: Sequence[str]) -> pa.Table:
    """Return one row: the facts of the spec that the metrics need, the size of the model, and how long it scored."""
    environment = run.read_json("environment.json") if run.has("environment.json") else {}
    settings = {
        "model": spec.name,
        "n_parameters": environment.get("model_facts", {}).get("n_parameters"),
        "trained_parameters": environment.get("trained_parameters"),
        "scoring_seconds": environment.get("scorer", {}).get("scoring_s"),
        "seed": spec.seed,
        "normalization": spec.scoring.normalization,
        "eos": spec.scoring.eos,
        "predict": list(predict),
        "calibration": list(spec.calibration),
        "adaptations": ["none"] if spec.lora is None else ["none", "lora"],
    }
    return RUN_SETTINGS.rows([settings])
