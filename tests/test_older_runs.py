"""Golden marts, and runs of older versions."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.analysis.sql_files import relations
from biaseval.tables import TABLES
from tests.commands import Command
from tests.golden_marts import all_differences, computed, differences, golden
from tests.older_runs import FIXTURES, NAMES, command_of, copy_older_run, older_report_text, report_text

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_marts_and_comparisons_are_those_stored() -> None:
    assert all_differences(computed(), golden()) == []


def test_a_changed_cell_column_or_row_is_a_difference() -> None:
    before = pa.table({"task": ["a", "b"], "rsd": [0.5, None], "pair": [[1.0], [2.0]]})
    assert differences(before, before) == []
    rounded = before.set_column(1, "rsd", [[0.5 + 1e-12, None]])
    assert differences(rounded, before) == []
    other = before.set_column(1, "rsd", [[0.5 + 1e-6, None]]).set_column(2, "pair", [[[1.0], [2.1]]])
    assert differences(other, before) == [
        "rsd: 1 of 2 values differ; in row 0 0.500001, before 0.5",
        "pair: 1 of 2 values differ; in row 1 [2.1], before [2.0]",
    ]
    null = before.set_column(1, "rsd", pa.array([None, None], pa.float64()))
    assert differences(null, before) == ["rsd: 1 of 2 values differ; in row 0 None, before 0.5"]
    assert differences(before.slice(1), before) == ["1 rows, before 2"]
    assert differences(before.rename_columns(["task", "sd", "pair"]), before) == ["no column rsd", "a new column sd"]
    one, two = (before.add_column(0, "golden", [[name] * 2]) for name in ("one", "two"))
    three = ["m of one: is new", "m of two: is gone", "new of one: is new"]
    assert all_differences({"m": one, "new": one}, {"m": two}) == three


WITHOUT_ROWS = {
    "label_bias_compare_cautions", "label_bias_size_effect", "majority_tuning_effect", "qa_bias_models",
    "search_thresholds",
}  # fmt: skip
"""What no small run has: bias models, searched thresholds, and pairs both of size and of tuning."""


def test_every_mart_and_comparison_is_stored_and_has_rows() -> None:
    every = {relation.name for relation in relations("marts", "comparisons", tables=TABLES)}
    stored = golden()
    assert stored.keys() == every
    assert {name for name, rows in stored.items() if not rows.num_rows} == WITHOUT_ROWS


MEASURED = ("label_bias", "label_bias_lora", "majority_bias", "qa_bias")

MADE = {
    "label_bias": {"rows": 248}, "label_bias_lora": {"adapters": 2, "rows": 84}, "majority_bias": {"rows": 32},
    "qa_bias": {"questions": 34}, "instruct": {"steps": 6}, "score": {"rows": 20},
}  # fmt: skip
"""What they consist of; several stages may count the same questions."""

QUERIES = {
    "label_bias": "select count(*) as n from calibrated_predictions where method = 'looc'",
    "label_bias_lora": "select count(*) as n from calibrated_predictions where method = 'lora+looc'",
    "majority_bias": "select count(*) as n from majority_predictions where predict = 'constrained'",
    "qa_bias": "select count(*) as n from qa_measured where model = 'bert' and heuristic = 'ans_pos'",
    "instruct": "select count(*) as n from training where eval_loss is not null",
    "score": "select count(*) as n from label_scores where n_label_tokens > 0",
}
ANSWERS = {"label_bias": 76, "label_bias_lora": 38, "majority_bias": 24, "qa_bias": 34, "instruct": 2, "score": 40}

LOST = {
    "label_bias": ["label_scores/part-00001.parquet"],
    "label_bias_lora": ["adapters/task9601_meal_classification/k2.s0", "adapted_scores/part-00001.parquet"],
    "majority_bias": ["generations/part-00002.parquet", "label_scores/part-00001.parquet"],
    "qa_bias": ["qa_attributes/part-00001.parquet", "qa_predictions/part-00004.parquet"], "instruct": ["adapter"],
    "score": ["label_scores/part-00001.parquet"],
}  # fmt: skip
"""What is deleted, and made again by the same command."""

MADE_ANEW = (
    "marts", "bootstrap_draws", "row_draws", "sign_flips", "setting_permutations", "run_settings", "qa_draws",
    "qa_settings", "qa_thresholds",
)  # fmt: skip

_OTHER = ("label_bias_by_model", "label_bias_changes", "qa_bias_by_heuristic", "qa_by_dataset", "qa_curves")
OTHER_INTERVALS = tuple(f"{name}.parquet" for name in _OTHER)
"""Marts whose intervals an older version took from percentiles of the resampled tasks, or from questions as if each had
an article of its own; of one task or article there are none."""


def is_interval(mart: str, column: str) -> bool:
    """Whether a column is an interval, or the F1 significance that is null without a threshold and once was 0."""
    if mart == "qa_bias_by_heuristic.parquet":
        return column.startswith(("difference_low", "difference_high")) or column == "bias_significance_f1"
    return column.endswith(("_low", "_high"))


def is_seconds(column: str) -> bool:
    return "seconds" in column.split("_")


def is_close(found: Any, wanted: Any, tolerance: float) -> bool:
    """Whether two values of a table are the same but for rounding."""
    if isinstance(wanted, float) and isinstance(found, float):
        same_nan = math.isnan(wanted) and math.isnan(found)
        return same_nan or math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(is_close, found, wanted, [tolerance] * len(wanted)))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(is_close(found[key], value, tolerance) for key, value in wanted.items())
    return bool(found == wanted)


def assert_tables_are_those_stored(name: str, run_dir: Path, tolerance: float) -> None:
    """Every stored table has its rows again, in their order; columns and tables may have been added."""
    stored = FIXTURES / name / "run"
    files = {path.relative_to(stored) for path in stored.rglob("*.parquet")}
    # A training that is made anew has one part of steps, where older versions wrote one for each checkpoint.
    places = {path.parent if path.parent.name == "training" else path for path in files}
    assert places
    for path in sorted(places):
        wanted, found = pq.read_table(stored / path), pq.read_table(run_dir / path)
        assert found.num_rows == wanted.num_rows, path
        for column in wanted.column_names:
            assert found.schema.field(column).type == wanted.schema.field(column).type, (path, column)
            is_other = path.name in OTHER_INTERVALS and is_interval(path.name, column)
            if not is_seconds(column) and not is_other:
                pairs = zip(found[column].to_pylist(), wanted[column].to_pylist(), strict=True)
                different = [pair for pair in pairs if not is_close(*pair, tolerance)]
                assert not different, (path.name, column, different[:3])


def status_of(run_dir: Path, command: Command) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(command("status", str(run_dir), "--json").out)
    return shown


def made(status: dict[str, Any]) -> dict[str, int]:
    return {stage["noun"]: stage["size_done"] for stage in status["stages"]}


@pytest.mark.parametrize("name", NAMES)
def test_an_older_run_opens_and_its_numbers_are_computed_anew(
    name: str, tmp_path: Path, here: None, command: Command
) -> None:
    _, run_dir = copy_older_run(name, tmp_path)
    assert made(status_of(run_dir, command)) == MADE[name]
    asked = command("sql", str(run_dir), QUERIES[name], "--format", "json")
    assert json.loads(asked.out) == [{"n": ANSWERS[name]}], asked.err
    if name in MEASURED:
        for folder in MADE_ANEW:
            shutil.rmtree(run_dir / folder, ignore_errors=True)
        reported = command("report", str(run_dir))
        assert (reported.code, reported.out) == (0, f"report: {run_dir}/report.html\n"), reported.err
        assert_tables_are_those_stored(name, run_dir, 1e-6)
        assert list((run_dir / "figures").glob("*.svg"))
        assert report_text(run_dir / "report.html") == older_report_text(name, tmp_path)
    assert status_of(run_dir, command)["is_complete"]


@pytest.fixture
def by_rules(tmp_path: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a run whose entities and subjects an older version's rules found."""
    spec, run_dir = copy_older_run("qa_bias", tmp_path)
    for path in (spec, run_dir / "spec.yaml"):
        content = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**content, "heuristics": [*content["heuristics"], "sim_ents", "subj_pos"]}))
    for path in (run_dir / "qa_attributes").iterdir():
        measured = pq.read_table(path)
        own = measured.filter(pc.field("heuristic") == "ans_pos")
        place = own.column_names.index("heuristic")
        names = [pa.array([name] * own.num_rows) for name in ("sim_ents", "subj_pos")]
        more = [own.set_column(place, "heuristic", column) for column in names]
        pq.write_table(pa.concat_tables([measured, *more]), path)
    environment = json.loads((run_dir / "environment.json").read_text())
    rules = {"name": "embedded rules", "is_approximate": True, "version": "1"}
    environment["text"]["entities and subjects"] = rules
    (run_dir / "environment.json").write_text(json.dumps(environment))
    return spec, run_dir


def test_a_run_by_rules_that_went_opens_reports_and_resumes_what_needs_none(
    by_rules: tuple[Path, Path], here: None, command: Command
) -> None:
    spec, run_dir = by_rules
    assert command("report", str(run_dir)).code == 0
    caution = "Entities and subjects are found by embedded rules, which only approximates the published way."
    assert caution in report_text(run_dir / "report.html")
    asked = "select count(*) as n from qa_measured where model = 'bert' and heuristic in ('sim_ents', 'subj_pos')"
    answered = json.loads(command("sql", str(run_dir), asked, "--format", "json").out)
    assert answered == [{"n": 2 * ANSWERS["qa_bias"]}]
    (run_dir / "qa_predictions" / "part-00004.parquet").unlink()
    resumed = command(*command_of("qa_bias", spec, run_dir))
    assert resumed.code == 0, resumed.err
    assert status_of(run_dir, command)["is_complete"]
    (run_dir / "qa_attributes" / "part-00001.parquet").unlink()
    refused = command(*command_of("qa_bias", spec, run_dir))
    assert refused.code == 2
    assert "sim_ents, subj_pos: cannot be measured without a spaCy pipeline" in " ".join(refused.err.split())


@pytest.mark.parametrize("name", NAMES)
def test_an_older_run_that_lost_a_part_resumes_to_the_same_numbers(
    name: str, tmp_path: Path, here: None, command: Command
) -> None:
    spec, run_dir = copy_older_run(name, tmp_path)
    for lost in LOST[name]:
        path = run_dir / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    outputs = ("label_scores", "adapted_scores", "generations", "qa_attributes", "qa_predictions", "adapters")
    made_before = [path for folder in outputs for path in (run_dir / folder).rglob("*") if path.is_file()]
    kept = {path: path.stat().st_mtime_ns for path in made_before}
    assert any(stage["n_units_done"] < stage["n_units"] for stage in status_of(run_dir, command)["stages"])
    done = command(*command_of(name, spec, run_dir))
    assert done.code == 0, done.err
    status = status_of(run_dir, command)
    assert (made(status), status["is_complete"]) == (MADE[name], True)
    assert all((run_dir / lost).exists() for lost in LOST[name])
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert_tables_are_those_stored(name, run_dir, 1e-4)


def test_an_older_search_for_several_objectives_is_shown_by_the_first(
    tmp_path: Path, here: None, command: Command
) -> None:
    _, run_dir = copy_older_run("search_several", tmp_path)
    chosen = ("sql", str(run_dir), "select objective, trial from search_best", "--format", "json")
    before = json.loads(command(*chosen).out)
    assert before == [{"objective": "f1", "trial": 1}, {"objective": "rsd", "trial": 1}]
    drawn = command("figures", str(run_dir), "--out", str(tmp_path / "figures"))
    assert f"biaseval report {run_dir} computes them for the first alone" in drawn.err
    reported = command("report", str(run_dir))
    assert reported.code == 0, reported.err
    assert json.loads(command(*chosen).out) == [{"objective": "f1", "trial": 0}]
    assert "- cc@0.3\n" in (run_dir / "best.yaml").read_text()
    first = "This page shows the first, f1, and chooses by it alone; the table trials has the values of the others."
    assert first in report_text(run_dir / "report.html")
    asked = ("sql", str(run_dir), "select trial from trials where (objectives->>'rsd')::double > 5", "--format", "json")
    assert json.loads(command(*asked).out) == [{"trial": 2}]
    assert status_of(run_dir, command)["is_complete"]
    # As the spec of a new search it is refused.
    refused = command("tune", str(run_dir / "spec.yaml"), "--run-dir", str(tmp_path / "new"))
    assert refused.code == 2
    assert "objective: lists 2, and a search looks for one number; name one" in refused.err
