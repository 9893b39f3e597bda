"""Every mart of small finished runs, and every relation over two of them, as they were when somebody last looked.

    python -m tests.golden_marts

computes them anew, prints what is another by mart and column, and writes it to ``fixtures/golden``; it also renews the
words of older runs' reports (``fixtures/older_runs/*/report.txt``). Read what it prints
before you commit what it wrote: a difference that the change does not explain is a mistake.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biaseval.analysis import open_runs
from biaseval.analysis.sql_files import relations
from biaseval.runs import import_scores
from biaseval.tables import tables_of
from tests.compare.runs import HITS, label_plan
from tests.compare.test_qa_bias import qa_plan
from tests.labelplans import two_tasks
from tests.majorityplans import ANSWERS, MajorityPlan
from tests.measuring import measure
from tests.older_runs import FIXTURES, copy_older_run, renew_report_text
from tests.qaplans import two_models
from tests.test_search_sql import by_task

GOLDEN = Path(__file__).parent / "fixtures" / "golden"
SAMPLES = Path(__file__).parent / "fixtures" / "lm_eval" / "zero"

TOLERANCE = 1e-9
"""Relative and absolute: of sums in another order."""

N_DRAWS = 5
"""Draws that are kept of marts that have a row for each."""


def _older(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        return str(copy_older_run(name, folder)[1])

    return make


def _formats(folder: Path) -> str:
    """Write a run of two formats; the second gives each label the score that another one has in the first."""
    plan = two_tasks()
    plan.spec |= {"tasks": None, "data": {"train": "unused.csv", "label": "label", "fields": {"text": "text"}}}
    plan.spec["prompt"] = {"item": "{text}: {label}", "formats": {"ask": {"item": "What is {text}? {label}"}}}
    labels = {row["prompt_id"]: row["labels"] for row in plan.prompts}
    for rows in (plan.contexts, plan.prompts):
        others = [{**row, "context_id": f"{row['context_id']}/ask", "format": "ask"} for row in rows]
        rows[:] = [*({**row, "format": "base"} for row in rows), *others]
    for row in plan.prompts[len(labels) :]:
        row["prompt_id"] += "/ask"
    for row in list(plan.label_scores):
        own = labels[row["prompt_id"]]
        other = own[-1 - own.index(row["label"])]
        plan.label_scores.append({**row, "prompt_id": f"{row['prompt_id']}/ask", "label": other})
    return plan.write(folder / "formats")


def _imported(folder: Path) -> str:
    files = [path for name in ("list", "options", "uneven") for path in SAMPLES.glob(f"samples_{name}_*")]
    return import_scores("lm-eval", files, str(folder / "imported"), page=False).uri


def _two_scopes(folder: Path) -> str:
    """Write a search that chooses for each of two tasks, one of which a trial lacks."""
    sql = "select task, accuracy as f1 from label_bias_by_task"
    changes = {"algorithm": "random", "per": ["task"], "objective": {"sql": sql, "maximize": True}}
    return by_task().write(folder / "two_scopes", **changes)


def _lacking(folder: Path) -> str:
    """Write two readers, of which one lacks answers to 16 questions, with the rules of the authors' code."""
    plan = two_models(variant="reference")
    plan.spec["models"][1] |= {"path": None, "predictions": {"squad": "roberta.json"}, "on_missing": "drop"}
    lacking = {("roberta", f"q{row}") for row in range(16)}
    plan.predictions = [row for row in plan.predictions if (row["model"], row["example_id"]) not in lacking]
    return plan.write(folder / "lacking")


OLDER = ("label_bias", "label_bias_lora", "majority_bias", "qa_bias", "qa_training", "search")

RUNS: dict[str, Callable[[Path], str]] = {
    **{name: _older(name) for name in OLDER}, "imported": _imported,
    "two tasks": lambda folder: two_tasks().write(folder / "two_tasks"), "two formats": _formats,
    "two seeds": lambda folder: MajorityPlan(calibration=("cc", "looc")).write(folder / "two_seeds"),
    "large seeds": lambda folder: MajorityPlan(("likelihood",), ("cc",), n_repeats=60).write(folder / "large_seeds"),
    "one seed": lambda folder: MajorityPlan(("generate",)).only(demo_set=3).write(folder / "one_seed"),
    "two models": lambda folder: two_models().write(folder / "two_models"), "lacking answers": _lacking,
    "two scopes": _two_scopes,
}  # fmt: skip
"""By name, what writes a run whose tables are there: real ones, and made ones that have more."""


def _labels(side: int) -> Callable[[Path], str]:
    plan = label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2))
    plan.spec["model"] = {"path": "model", "tuned_from": "labels0" if side else None}
    return lambda folder: plan.write(folder / f"labels{side}")


def _majority(side: int) -> Callable[[Path], str]:
    answers = {place: own[::-1] if side else own for place, own in ANSWERS.items()}
    plan = MajorityPlan(("likelihood",), ("cc",), answers, n_repeats=3)
    plan.n_parameters = 1_000 * (side + 1)
    return lambda folder: plan.write(folder / f"majority{side}")


def _readers(side: int) -> Callable[[Path], str]:
    return lambda folder: qa_plan(side + 1, ("bert", "roberta"), lean=0.45 * side).write(folder / f"readers{side}")


PAIRS = {"label_bias": _labels, "majority_bias": _majority, "qa_bias": _readers}
"""Of kinds whose runs are compared, what writes two: a run for each side."""


def computed() -> dict[str, pa.Table]:
    """Return every mart and comparison by name, computed now; a column ``golden`` says of which run a row is."""
    found: dict[str, list[pa.Table]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in RUNS.items():
            run = Path(make(Path(folder)))
            shutil.rmtree(run / "marts", ignore_errors=True)  # those that an older version wrote
            measure(run)
            for path in sorted((run / "marts").glob("*.parquet")):
                found.setdefault(path.stem, []).append(_named(pq.read_table(path), name))
        for kind, side in PAIRS.items():
            runs = [side(0)(Path(folder)), side(1)(Path(folder))]
            for run_dir in runs:
                measure(run_dir)
            tables = {*tables_of(kind), *(path.stem for path in (Path(runs[0]) / "marts").glob("*.parquet"))}
            names = [relation.name for relation in relations("comparisons", tables=tables)]
            with closing(open_runs(runs, "\n".join(f"from {name}" for name in names))) as connection:
                for name in names:
                    rows = connection.sql(f"from {name} order by all").to_arrow_table()
                    found.setdefault(name, []).append(_named(rows, kind))
    return {name: pa.concat_tables(tables, promote_options="default") for name, tables in sorted(found.items())}


def _named(rows: pa.Table, name: str) -> pa.Table:
    """Return the rows that are stored of a relation of one run: of draws the first."""
    if "draw" in rows.column_names:
        rows = rows.filter(pc.field("draw") < N_DRAWS)
    return rows.replace_schema_metadata(None).add_column(0, "golden", pa.array([name] * rows.num_rows, pa.string()))


def differences(found: pa.Table, golden: pa.Table) -> list[str]:
    """Return, in words, in which columns two tables differ, and by how much."""
    problems = [f"no column {name}" for name in golden.column_names if name not in found.column_names]
    problems += [f"a new column {name}" for name in found.column_names if name not in golden.column_names]
    if found.num_rows != golden.num_rows:
        return [*problems, f"{found.num_rows} rows, before {golden.num_rows}"]
    for name in (name for name in golden.column_names if name in found.column_names):
        if found.schema.field(name).type != golden.schema.field(name).type:
            problems.append(f"{name} is {found.schema.field(name).type}, before {golden.schema.field(name).type}")
            continue
        pairs = list(zip(found[name].to_pylist(), golden[name].to_pylist(), strict=True))
        other = [(row, *pair) for row, pair in enumerate(pairs) if not is_same(*pair)]
        if other:
            row, now, before = other[0]
            problems.append(f"{name}: {len(other)} of {len(pairs)} values differ; in row {row} {now}, before {before}")
    return problems


def is_same(found: Any, golden: Any) -> bool:
    """Whether two values of a table are the same but for rounding."""
    if isinstance(golden, float) and isinstance(found, float):
        return math.isnan(found) == math.isnan(golden) and (
            math.isnan(golden) or math.isclose(found, golden, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        )
    if isinstance(golden, list) and isinstance(found, list):
        return len(found) == len(golden) and all(map(is_same, found, golden))
    if isinstance(golden, Mapping) and isinstance(found, Mapping):
        return found.keys() == golden.keys() and all(is_same(found[key], golden[key]) for key in golden)
    return bool(found == golden)


def golden() -> dict[str, pa.Table]:
    """Return what is stored."""
    return {path.stem: pq.read_table(path) for path in sorted(GOLDEN.glob("*.parquet"))}


def all_differences(found: Mapping[str, pa.Table], stored: Mapping[str, pa.Table]) -> list[str]:
    """Return what is another, in words, by relation and run."""
    problems = []
    for name in sorted({*found, *stored}):
        now, before = (_by_run(tables.get(name)) for tables in (found, stored))
        problems += [f"{name} of {run}: is new" for run in now if run not in before]
        problems += [f"{name} of {run}: is gone" for run in before if run not in now]
        problems += [
            f"{name} of {run}: {problem}"
            for run in now
            if run in before
            for problem in differences(now[run], before[run])
        ]
    return problems


def _by_run(rows: pa.Table | None) -> dict[str, pa.Table]:
    """Return the rows of each run, by its name."""
    names = [] if rows is None else rows["golden"].unique().to_pylist()
    return {name: rows.filter(pc.field("golden") == name) for name in names}


def main() -> None:
    """Print what is another than what is stored, and store it."""
    found = computed()
    print("\n".join(all_differences(found, golden())) or "nothing is another")
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.parquet"):
        path.unlink()
    for name, rows in found.items():
        pq.write_table(
            rows, GOLDEN / f"{name}.parquet", compression="zstd", compression_level=19, write_statistics=False
        )
    for report in FIXTURES.glob("*/report.txt"):
        with tempfile.TemporaryDirectory() as folder:
            renew_report_text(report.parent.name, Path(folder))


if __name__ == "__main__":
    main()
