"""Calibrations and metrics of a user's own, and metrics that a spec names: kept by the run, and wherever others are."""

import html
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import compare_runs
from biaseval.analysis.gates import check_run
from biaseval.analysis.own_sql import own_sql_problems
from biaseval.analysis.sql_files import chosen_by
from biaseval.errors import BiasevalError, InputError
from biaseval.metric_files import MORE, Metric, metric_files
from biaseval.pipelines.directory import read_spec
from biaseval.prompting.calibration import Calibration
from biaseval.runs import reanalyse_run, report_run
from biaseval.runs.kinds import kind_of
from biaseval.search.objectives import Computing, Objective, Value
from biaseval.search.trials import deriving
from biaseval.spec import analysed_as, grown_keys, spec_of
from biaseval.store import Run
from tests.labelplans import rows
from tests.majorityplans import MajorityPlan
from tests.older_runs import copy_older_run

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[1] / "examples" / "sql"
OWN = "confident_errors"
CONTENT = {"kind": "label_bias", "name": "own", "model": {"path": "m"}, "tasks": {"path": "."}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a finished run to which calibrations and metrics were added without a model; their folder is gone."""
    folder = tmp_path_factory.mktemp("own")
    uri = str(copy_older_run("label_bias", folder)[1])
    shutil.copytree(EXAMPLE, folder / "sql")
    asked = ["calibration=[cc, dc, looc, half_bc, half_bc@0.5]", f"analysis.metrics=[{', '.join(MORE)}]"]
    asked += [f"primary.metric={OWN}", "primary.method=half_bc"]
    began = time.monotonic()
    reanalyse_run(uri, [*asked, f"analysis.sql={folder / 'sql'}"])
    assert time.monotonic() - began < 60  # 5 s on a quiet machine
    shutil.rmtree(folder / "sql")
    return uri


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the same run without them."""
    uri = str(copy_older_run("label_bias", tmp_path_factory.mktemp("plain"))[1])
    report_run(uri, page=False)
    return uri


def test_a_finished_run_takes_a_calibration_without_a_model(run: str) -> None:
    """Q is p over the mean of every second row's p, normalised."""
    asked = "select task, n_demos, demo_set, row, labels, probabilities as p from calibrated_predictions "
    asked += "where purpose = 'main' and method = '{}' order by all"
    before, after = (rows(run, asked.format(method)) for method in ("none", "half_bc"))
    assert len(before) == len(after) > 0
    of_setting: dict[Any, list[Any]] = {}
    for row in before:
        of_setting.setdefault((row["task"], row["demo_set"], row["n_demos"]), []).append(row["p"])
    for row, own in zip(before, after, strict=True):
        evens = of_setting[row["task"], row["demo_set"], row["n_demos"]][::2]
        weighted = [p / (sum(each[place] for each in evens) / len(evens)) for place, p in enumerate(row["p"])]
        assert own["p"] == pytest.approx([value / sum(weighted) for value in weighted], abs=1e-9)


def test_a_calibration_is_wherever_others_are(run: str, plain: str) -> None:
    for mart in ("label_bias_by_model", "label_bias_changes", "label_bias_remedies", "label_bias_verdicts"):
        assert {"half_bc", "half_bc@0.5"} <= {row["method"] for row in rows(run, f"select method from {mart}")}, mart
    page = Path(run, "report.html").read_text()
    metric = Metric.of(OWN, (EXAMPLE / "metrics" / f"{OWN}.sql").read_text())
    heads = [metric, Calibration.of("half_bc", (EXAMPLE / "calibrations" / "half_bc.sql").read_text())]
    for word in ("half_bc", "BiasScore", *(text for head in heads for text in (head.shown, head.meaning))):
        assert html.escape(word) in page, word
    values = rows(
        run, f"select value from label_bias_metrics where metric = '{OWN}' and suite = 'all' and task is null"
    )
    [table] = [
        part
        for part in page.split("<table")[1:]
        if "Metrics of analysis.metrics and analysis.sql" in part.partition("</table")[0]
    ]
    assert all(f"{row['value']:.3f}" in table for row in values)
    methods = query([run, plain], "select distinct run, method from calibrated_predictions").to_pylist()
    assert len({row["run"] for row in methods}) == 2
    assert len({row["run"] for row in methods if row["method"] == "half_bc"}) == 1
    assert rows(run, "select method from calibration_methods where number >= 8") == [{"method": "half_bc"}]


def test_every_mart_of_differences_and_values_has_metrics(run: str) -> None:
    for mart in ("metrics", "changes_by_task", "verdicts", "components"):
        found = {row["metric"] for row in rows(run, f"select metric from label_bias_{mart}")}
        assert found == metric_files(MORE).keys() | {OWN}, mart
    by_hand = rows(
        run,
        "select task, n_demos, method, avg((prediction <> gold and list_max(probabilities) >= 0.8)::int) as share "
        "from calibrated_predictions where purpose = 'main' group by all",
    )
    asked = f"from label_bias_metrics where metric = '{OWN}' and suite = 'all' and task is"
    stored = {(row["task"], row["n_demos"], row["method"]): row["value"] for row in rows(run, f"{asked} not null")}
    expected = {(row["task"], row["n_demos"], row["method"]): row["share"] for row in by_hand}
    assert stored == pytest.approx(expected)
    assert max(stored.values()) > 0
    mean = rows(run, f"{asked} null")[0]
    own = [value for (_, *setting), value in stored.items() if setting == [mean["n_demos"], mean["method"]]]
    assert mean["value"] == pytest.approx(sum(own) / len(own))


def test_comparisons_gates_and_searches_take_a_metric(run: str, tmp_path: Path) -> None:
    runs = [run, str(shutil.copytree(run, tmp_path / "other"))]
    found = query(runs, f"from label_bias_comparison where metric in ('{OWN}', 'brier')").to_pylist()
    assert {row["metric"] for row in found} == {OWN, "brier"}
    assert {row["estimate"] for row in found} == {0}  # the same answers
    asked = rows(run, "select distinct metric, method from label_bias_verdicts where is_primary")
    assert asked == [{"metric": OWN, "method": "half_bc"}]
    [said] = rows(run, "select lead from label_bias_conclusions where lead like 'Primary%'")
    assert said["lead"] == "Primary question, confident errors with BC of half:"
    assert OWN in {row["metric"] for row in compare_runs(runs).told}
    assert check_run(run, [f"label_bias_metrics.value <= 1 where metric = '{OWN}'"]).holds
    stored = Run.open(run)
    spec: Any = read_spec(stored)
    sql = f"select avg(value) as share from label_bias_metrics where metric = '{OWN}' and task is not null"
    objective = Objective("label_bias", "share", sql, (), "half", 42, chosen_by(stored))
    values = [own for _, own in objective.values(stored, [Computing(deriving(kind_of(spec), spec), [()])])]
    assert all(isinstance(own, Value) and own.value is not None and 0 <= own.value <= 1 for own in values)
    assert {own.sample for own in values if isinstance(own, Value)} == {"choice", "evaluation"}


SHOWN = "-- shown: x\n-- meaning: x\n-- by: x\n-- inputs: {}\n"
HEAD = "-- shown: x\n-- meaning: x\n-- better: lower\n-- rows: main\n"
CALIBRATIONS = {
    "calibrations/mine.sql": ("select 1", "its head lacks shown, meaning, by, inputs"),
    "calibrations/cc.sql": ("-- shown: x", "cc is a name that every run has; choose another one"),
    "calibrations/none.sql": ("-- shown: x", "none is a name that every run has"),
    "calibrations/three.sql": (SHOWN.format("cc, dc"), "cc, dc: are several"),
    "calibrations/two.sql": (SHOWN.format("cd"), "'cd' is no purpose of prompts"),
    "metrics.sql": ("select 1", "is no calibration and no metric; name files calibrations/NAME.sql or metrics"),
}
METRICS = {
    "metrics/nothing.sql": ("select 1", "its head lacks shown, meaning, better, rows"),
    "metrics/rsd.sql": (HEAD, "rsd is a name that every run has; choose another one"),
    "metrics/worse.sql": (HEAD.replace("lower", "worse"), "better: 'worse' is unknown; use higher or lower"),
    "metrics/rows.sql": (HEAD.replace("main", "train"), "rows: 'train' is unknown; use predictions or main or"),
    "metrics/range.sql": (f"{HEAD}-- range: 0 - 1\n", "range: '0 - 1' is not understood; write it as"),
    "metrics/turned.sql": (f"{HEAD}-- range: 1 to 0\n", "is out of bounds"),
    "metrics/effect.sql": (f"{HEAD}-- least_effect: small\n", "least_effect: 'small' is not understood"),
    "metrics/partner.sql": (f"{HEAD}-- requires: smooth\n", "requires: 'smooth' is no metric"),
    "mine/metric.sql": (HEAD, "is no calibration and no metric; name files"),
}


@pytest.mark.parametrize("bad", [CALIBRATIONS, METRICS])
def test_files_with_mistakes_are_refused_together(bad: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    for path, (text, _) in bad.items():
        (tmp_path / "sql" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sql" / path).write_text(text)
    with pytest.raises(InputError) as refused:
        spec_of({**CONTENT, "analysis": {"sql": "sql"}}, "spec.yaml", tmp_path)
    said = str(refused.value)
    assert [path for path, (_, message) in bad.items() if f"{path}: " not in said or message not in said] == []


@pytest.mark.parametrize(("content", "problem"), [
    ({**CONTENT, "analysis": {"sql": str(EXAMPLE)}, "calibration": ["unknown"]}, r"unknown(.|\n)*half_bc"),
    ({**CONTENT, "analysis": {"sql": "elsewhere"}}, r"analysis\.sql: .*elsewhere is no folder"),
    ({**CONTENT, "analysis": {"metrics": ["f2"]}}, r"analysis\.metrics: 'f2' is no metric .*; use brier, ckld,"),
    (MajorityPlan().spec | {"analysis": {"metrics": ["brier"]}},
        "brier: metrics are added to runs of label bias alone"),
])  # fmt: skip
def test_what_is_no_name_or_folder_is_refused(content: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        spec_of(content, "spec.yaml", tmp_path)


def test_the_question_of_a_run_may_be_about_a_calibration(tmp_path: Path) -> None:
    own = {"analysis": {"sql": str(EXAMPLE)}, "calibration": ["half_bc"]}
    primary = {"metric": "rsd", "method": "half_bc"}
    spec: Any = spec_of({**CONTENT, **own, "primary": primary}, "spec.yaml", tmp_path)
    assert spec.primary.method == "half_bc"
    # A stored spec keeps the text; one that brings more files adds to it.
    stored = {**spec.model_dump(), "analysis": {"sql": "gone", "files": spec.analysis.files}}
    gone: Any = spec_of(stored, "spec.yaml", tmp_path)
    assert gone.own_calibrations == spec.own_calibrations
    before = spec_of({**CONTENT, "calibration": ["cc"]}, "spec.yaml", tmp_path)
    after = spec_of({**CONTENT, **own, "calibration": ["cc", "half_bc"]}, "spec.yaml", tmp_path)
    assert grown_keys(before, analysed_as(before, after)) == ["calibration", "analysis.files"]


SELECTS = {
    "reads_itself": ("select * from calibrated_predictions", "depends on its own result in calibrations"),
    "two": ("select 1); create table more (a int); select * from (select 1", "mend the query"),
    "semicolon": ("select 1; select 2", "is not one select"),
    "writes": ("create table more as select 1", "is not one select"),
}
OF_METRICS = {
    "select * from label_bias_verdicts": "depends on its own result in metrics; read answer_cells",
    "select * from calibrated_predictions": "metrics/own.sql: .*row_value",
    "select 1; select 2": "is not one select",
}


def _problems(path: str, text: str) -> list[str]:
    return own_sql_problems(spec_of({**CONTENT, "analysis": {"files": {path: text}}}, "spec.yaml", EXAMPLE))


def test_a_query_only_reads_what_stands_below_it() -> None:
    for name, (sql, message) in SELECTS.items():
        [problem] = _problems(f"calibrations/{name}.sql", f"{SHOWN.format('cc')}{sql}")
        assert problem.startswith(f"analysis.sql: calibrations/{name}.sql: ")
        assert message in problem
    for sql, message in OF_METRICS.items():
        [problem] = _problems("metrics/own.sql", f"{HEAD}-- gives: row_value\n{sql}")
        assert re.search(message, problem)


BY_PROMPT = f"{SHOWN.format('cc')}-- gives: log_probability\n"


def _add(run: str, folder: Path, name: str, text: str) -> None:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    (folder / "calibrations" / f"{name}.sql").write_text(text)
    reanalyse_run(run, [f"calibration=[cc, dc, looc, {name}]", f"analysis.sql={folder}"], page=False)


def test_another_is_added_and_taken_back(tmp_path: Path) -> None:
    """Keywords may be of any case; an unfinished answer is refused before any metric."""
    run = str(copy_older_run("label_bias", tmp_path)[1])
    columns = "prompt_id, adaptation, label, log_probability"
    _add(run, tmp_path / "a", "same", f"{BY_PROMPT}SELECT {columns}\nFROM\n  label_probabilities")
    asked = "select method, accuracy from label_bias_by_model where suite = 'all' and n_demos = 0"
    accuracies = {row["method"]: row["accuracy"] for row in rows(run, asked)}
    assert accuracies["same"] == accuracies["none"]
    _add(run, tmp_path / "a", "third", f"{BY_PROMPT}select {columns} from label_probabilities -- from nowhere")
    assert "same" not in {row["method"] for row in rows(run, asked)}
    for name, less in (("rows", "row > 0"), ("labels", "label <> (select min(label) from label_probabilities)")):
        text = f"{BY_PROMPT}select {columns} from label_probabilities where {less}"
        with pytest.raises(BiasevalError, match=f"calibration_logits_are_whole: .*{name} gives"):
            _add(run, tmp_path / "b", name, text)


def test_a_query_that_does_not_run_ends_in_one_message_that_names_it(run: str, tmp_path: Path) -> None:
    (tmp_path / "sql" / "calibrations").mkdir(parents=True)
    head = "".join((EXAMPLE / "calibrations" / "half_bc.sql").read_text().splitlines(keepends=True)[:5])
    wrong = f"{head}select no_such_column from calibration_scores"
    (tmp_path / "sql" / "calibrations" / "half_bc.sql").write_text(wrong)
    before = Run.open(run).read_text("spec.yaml")
    with pytest.raises(InputError, match=r"analysis\.sql: calibrations/half_bc\.sql: .*no_such_column"):
        reanalyse_run(run, ["primary=null", f"analysis.sql={tmp_path / 'sql'}"])
    assert Run.open(run).read_text("spec.yaml") == before
    with pytest.raises(InputError, match="cc is stored and stays in every table"):
        reanalyse_run(run, ["primary=null", "calibration=[dc, looc]"])
