"""Derive the SQL's further inputs for runs of causal LMs: the bootstrap's draws, and facts of the spec."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval import tables
from biaseval.analysis.sign_flips import MAX_UNITS, sign_flips
from biaseval.analysis.sql_files import create_tables, rows, session
from biaseval.environment import read_environment
from biaseval.left_out import left_out
from biaseval.spec import BASE, CausalSpec, ImportedSpec, LabelBiasSpec, MajorityBiasSpec
from biaseval.store import Run

N_DRAWS = 1000
"""Bootstrap resamples for every interval: of tasks (label bias), or of test rows (majority bias)."""

N_PERMUTATIONS = 2000
"""Random orders of the settings: a p-value of 5 % has a Monte Carlo error of 0.5 points."""


_FEWEST_TASKS = 6
"""The fewest tasks with which a two-sided test can reach 5 %."""


def derive_label_bias(run: Run, spec: LabelBiasSpec | ImportedSpec) -> None:
    """Write ``bootstrap_draws``, ``sign_flips`` and ``run_settings`` of a scored label-bias run."""
    tasks, without = run.read_table(tables.TASKS.name).sort_by("task"), left_out(run).get("task", set())
    names = tasks["task"].to_pylist()
    equivalent = tasks.filter(pc.field("is_semantically_equivalent"))["task"].to_pylist()
    suites = {"all": names, "semantically_equivalent": equivalent, **spec.members(names)}
    suites = {suite: [task for task in own if task not in without] for suite, own in suites.items()}
    draws = _bootstrap_draws({suite: own for suite, own in suites.items() if own or not without}, spec.seed)
    run.write_part(tables.BOOTSTRAP_DRAWS.name, 0, draws)
    run.write_part(tables.SIGN_FLIPS.name, 0, sign_flips(_n_tested(draws), spec.seed))
    run.write_part(tables.RUN_SETTINGS.name, 0, _run_settings(run, spec, ["likelihood"]))


def derive_majority_bias(run: Run, spec: MajorityBiasSpec) -> None:
    """Write the draws of rows, signs and settings, and ``run_settings``, for a scored majority-bias run."""
    n_rows, seeds = _test_rows(run)
    run.write_part(tables.ROW_DRAWS.name, 0, row_draws(n_rows, spec.seed))
    run.write_part(tables.SIGN_FLIPS.name, 0, sign_flips(max(n_rows, len(seeds)), spec.seed))
    n_settings = run.read_table(tables.SETTINGS.name).num_rows
    run.write_part(tables.SETTING_PERMUTATIONS.name, 0, setting_permutations(n_settings, seeds, spec.seed))
    run.write_part(tables.RUN_SETTINGS.name, 0, _run_settings(run, spec, spec.predict))


def _bootstrap_draws(suites: Mapping[str, Sequence[str]], seed: int) -> pa.Table:
    """Return the count of each task in each draw of each suite; tasks are sorted.

    Draws 1 to `N_DRAWS` take as many tasks as the suite has, with replacement; a suite of one task has no draws. Each
    suite has its own ``default_rng(seed)``, so that its draws do not depend on other suites.
    """
    drawn = []
    for suite, members in suites.items():
        n_drawn = _n_drawn(len(members), seed)
        draw, position = np.indices(n_drawn.shape, dtype=np.int32).reshape(2, -1)
        columns = {
            "suite": pa.array([suite] * n_drawn.size, pa.string()),
            "draw": draw,
            "task": pa.array(members, pa.string()).take(pa.array(position)),
            "n_drawn": n_drawn.ravel(),
        }
        drawn.append(pa.table(columns, schema=tables.BOOTSTRAP_DRAWS.schema))
    return pa.concat_tables(drawn)


def _n_tested(draws: pa.Table) -> int:
    """Return the number of units in tests of a label-bias run: the tasks of its suites, or the rows of a single task.

    Comparisons of runs with fewer than 6 tasks use rows as units, so the number is then as large as for rows.
    """
    sizes = (
        draws.filter(pc.field("draw") == 0).group_by("suite").aggregate([("task", "count")])["task_count"].to_pylist()
    )
    return MAX_UNITS if 1 in sizes or max(sizes, default=1) < _FEWEST_TASKS else max(sizes)


def row_draws(n_rows: int, seed: int) -> pa.Table:
    """Return the count of each test row of a majority-bias run in each draw.

    Draws 1 to `N_DRAWS` take as many rows as the test set has, with replacement; a single row has no draws. All
    settings share the draws, so that comparisons of settings, methods and instructions use the same rows.
    """
    n_drawn = _n_drawn(n_rows, seed)
    ends = np.arange(len(n_drawn) + 1, dtype=np.int32) * n_rows
    columns = {
        "draw": pa.array(range(len(n_drawn)), pa.int32()),
        "n_drawn": pa.ListArray.from_arrays(pa.array(ends), pa.array(n_drawn.ravel())),
    }
    return pa.table(columns, schema=tables.ROW_DRAWS.schema)


def _n_drawn(n_members: int, seed: int) -> npt.NDArray[np.int32]:
    """Return the count of each member in each draw, ``[1 + N_DRAWS, n_members]``, or one draw of a single member.

    Draw 0 has each member once.
    """
    itself = np.ones((1, n_members), dtype=np.int32)
    if n_members <= 1:
        return itself
    draws = np.random.default_rng(seed).multinomial(n_members, np.full(n_members, 1 / n_members), size=N_DRAWS)
    return np.concatenate([itself, draws.astype(np.int32)])


def setting_permutations(n_settings: int, seeds: Sequence[int], seed: int) -> pa.Table:
    """Return the order of a seed's settings in each draw, for tests that permute settings.

    ``seeds`` are those of the demonstrations, and ``seed`` is the run's.
    """
    placed = np.tile(np.arange(n_settings, dtype=np.int32), (N_PERMUTATIONS, len(seeds), 1))
    placed[1:] = np.random.default_rng(seed).permuted(placed[1:], axis=2)
    ends = np.arange(N_PERMUTATIONS * len(seeds) + 1, dtype=np.int32) * n_settings
    columns = {
        "draw": np.repeat(np.arange(N_PERMUTATIONS, dtype=np.int32), len(seeds)),
        "seed": np.tile(np.array(seeds, dtype=np.int32), N_PERMUTATIONS),
        "numbers": pa.ListArray.from_arrays(pa.array(ends), pa.array(placed.ravel())),
    }
    return pa.table(columns, schema=tables.SETTING_PERMUTATIONS.schema)


def _test_rows(run: Run) -> tuple[int, list[int]]:
    """Return the number of test rows of a majority-bias run, and the seeds of its demonstrations."""
    select = (
        "select count(distinct row) as n_rows, list_sort(list(distinct demo_set)) as seeds "
        f"from {tables.PROMPTS.name} where purpose = 'majority'"
    )
    [found] = _table(run, tables.PROMPTS, select).to_pylist()
    return found["n_rows"], found["seeds"] or []


def _table(run: Run, table: tables.TableSchema, select: str) -> pa.Table:
    """Return the rows of a query over a table of a run, except for rows that are left out."""
    with session([run]) as connection:
        create_tables(run, [table], connection)
        return rows(select, connection)


def _run_settings(run: Run, spec: CausalSpec | ImportedSpec, predict: Sequence[str]) -> pa.Table:
    """Return one row: the facts of the spec that the metrics need, the size of the model, and the scoring time."""
    environment = read_environment(run)
    settings = {
        "model": spec.name, **spec.model.model_dump(include={"family", "tuned_from"}),
        "n_parameters": environment.get("model_facts", {}).get("n_parameters"),
        "trained_parameters": environment.get("trained_parameters"),
        "scoring_seconds": None if left_out(run) else environment.get("scorer", {}).get("scoring_s"), "seed": spec.seed,
        **spec.scoring.model_dump(), "prefix_mode": getattr(getattr(spec, "prompt", None), "prefix_mode", "exact"),
        "predict": list(predict), "calibration": list(spec.calibration),
        "adaptations": ["none"] if spec.lora is None else ["none", "lora"],
        "formats": list(getattr(getattr(spec, "prompt", None), "all_formats", [BASE])),
    }  # fmt: skip
    if primary := getattr(spec, "primary", None):
        settings |= {"primary_metric": primary.metric, "primary_method": primary.method}
    return tables.RUN_SETTINGS.rows([settings])
