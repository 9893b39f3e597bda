"""The benchmark of the analysis on a small share of its generated run; no test looks at how fast."""

import json
import re
import runpy
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.analysis import open_runs, query
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run
from tests.bench.analysis import Suite, benchmark, write_suite
from tests.measuring import measure

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SMALL = Suite(n_tasks=3, max_rows=300, n_demos=(0, 2), n_demo_sets=2)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return a small run, and its record as the job writes it; the run then has its marts and page."""
    folder = tmp_path_factory.mktemp("analysis")
    run, out = folder / "run", folder / "record.json"
    write_suite(Run.open(str(run)), SMALL)
    with pytest.MonkeyPatch.context() as patch:
        job = str(ROOT / "jobs" / "benchmark_analysis.py")
        patch.setattr(sys, "argv", [job, "--run", str(run), "--starts", "1", "--out", str(out)])
        runpy.run_path(job, run_name="__main__")
    assert out.with_suffix(".md").read_text().startswith("| what | seconds |")
    return str(run), json.loads(out.read_text())


def test_the_whole_suite_has_the_sizes_of_the_published_one() -> None:
    """Of a task: in 13 settings its rows, 32 of bias_score, 3 of cc, 20 of dc; three times 2 + 4 + 8 + 16 of looc."""
    tasks = Suite().tasks()
    assert len(tasks) == 256
    assert len(Suite().settings) == 13
    n_prompts = [13 * (n_rows + 32 + 3 + 20) + 3 * 30 for _, n_rows in tasks]
    assert sum(n_prompts) == 3_341_368
    assert sum(own * n_labels for own, (n_labels, _) in zip(n_prompts, tasks, strict=True)) == 10_299_224


def test_accuracies_of_the_drawn_model_are_those_of_its_scores(measured: tuple[str, dict[str, Any]]) -> None:
    run = Run.open(measured[0])
    golds = {row["prompt_id"]: row for row in run.read_table("prompts").to_pylist() if row["purpose"] == "main"}
    best: dict[str, tuple[float, str]] = {}
    for score in run.read_table("label_scores").to_pylist():
        mean = float(np.mean(np.array(score["token_logprobs"], dtype=np.float64)))
        assert len(score["token_logprobs"]) == score["n_label_tokens"] + 1
        assert mean <= 0
        best[score["prompt_id"]] = max(best.get(score["prompt_id"], (-np.inf, "")), (mean, score["label"]))
    hits: dict[tuple[str, int, int], list[bool]] = {}
    for prompt_id, row in golds.items():
        place = (row["task"], row["n_demos"], row["demo_set"])
        hits.setdefault(place, []).append(best[prompt_id][1] == row["gold"])
    found = query([run.uri], "from label_bias_by_task where method = 'none'").to_pylist()
    assert len(found) == len(hits) == 9
    for row in found:
        assert row["accuracy"] == pytest.approx(np.mean(hits[row["task"], row["n_demos"], row["demo_set"]]))


def test_a_question_about_a_setting_reads_the_parts_that_hold_it(measured: tuple[str, dict[str, Any]]) -> None:
    run, report = measured
    n_parts = report["run"]["n_parts"]
    [task] = query([run], "select min(task) as task from tasks")["task"].to_pylist()
    asked = f"from prompt_probabilities where task = '{task}'"
    with closing(open_runs([run])) as connection:
        [(_, plan)] = connection.execute(f"explain analyze {asked}").fetchall()
    scanned = [int(n) for n in re.findall(rf"Row Groups Scanned: (\d+) / {n_parts}\b", plan)]
    tasks = [Run.open(run).read_part("prompts", part)["task"].unique().to_pylist() for part in range(n_parts)]
    assert scanned == [tasks.count([task])] * 2  # of prompts, and of their scores
    assert scanned[0] < n_parts
    n_own = Run.open(run).read_table("prompts")["task"].to_pylist().count(task)
    assert query([run], f"select prompt_id {asked}").num_rows == n_own


def test_what_cannot_be_generated_or_analysed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tasks: 257 are not 1 to 256"):
        write_suite(Run.open(str(tmp_path / "run")), Suite(n_tasks=257))
    write_suite(Run.open(str(tmp_path / "run")), Suite(1, 20, (0,)))
    (tmp_path / "run" / "label_scores" / "part-00000.parquet").unlink()
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        benchmark(str(tmp_path / "run"))


def test_a_run_of_a_quarter_of_a_million_prompts_is_analysed(tmp_path: Path) -> None:
    """DuckDB 2.0.0 failed from here on, in a join that carries texts of the smaller side into a filter."""
    run = Run.open(str(tmp_path / "run"))
    write_suite(run, Suite(n_tasks=24, max_rows=1000))
    measure(run.uri)
    assert query([run.uri], "select count(distinct method) as n from label_bias_by_model").to_pylist() == [{"n": 4}]
