"""Calibrations of a user's own: a folder of SQL beside the spec, kept by the run and seen wherever others are."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis.own_sql import own_sql_problems
from biaseval.errors import BiasevalError, InputError
from biaseval.runs import analyse_run, reanalyse_run
from biaseval.spec import LabelBiasSpec, analysed_as, grown_keys, spec_of
from biaseval.store import Run
from tests.labelplans import rows
from tests.older_runs import copy_older_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "sql"
ASKED = "calibration=[cc, dc, looc, half_bc, half_bc@0.5]"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a finished run to which the example was added, whose folder is gone."""
    folder = tmp_path_factory.mktemp("own")
    uri = str(copy_older_run("label_bias", folder)[1])
    shutil.copytree(EXAMPLE, folder / "sql")
    began = time.monotonic()
    reanalyse_run(uri, [ASKED, f"analysis.sql={folder / 'sql'}"])
    assert time.monotonic() - began < 60  # 5 s on a quiet machine
    shutil.rmtree(folder / "sql")
    return uri


def test_a_finished_run_takes_it_without_a_model(run: str) -> None:
    """Q is p over the mean of every second row's p, normalised."""
    asked = "select task, n_demos, demo_set, row, labels, probabilities as p from calibrated_predictions "
    asked += "where purpose = 'main' and method = '{}' order by all"
    plain, own = (rows(run, asked.format(method)) for method in ("none", "half_bc"))
    assert len(plain) == len(own) > 0
    for before, after in zip(plain, own, strict=True):
        setting = [row["p"] for row in plain if (row["task"], row["demo_set"], row["n_demos"]) == _setting(before)]
        evens = setting[::2]
        weighted = [p / (sum(row[place] for row in evens) / len(evens)) for place, p in enumerate(before["p"])]
        assert after["p"] == pytest.approx([value / sum(weighted) for value in weighted], abs=1e-9)


def _setting(row: dict[str, object]) -> tuple[object, object, object]:
    return (row["task"], row["demo_set"], row["n_demos"])


def test_it_is_wherever_others_are(run: str, tmp_path: Path) -> None:
    for mart in ("label_bias_by_model", "label_bias_changes", "label_bias_remedies", "label_bias_verdicts"):
        assert {"half_bc", "half_bc@0.5"} <= {row["method"] for row in rows(run, f"select method from {mart}")}, mart
    assert "half_bc" in Path(run, "report.html").read_text()
    other = str(copy_older_run("label_bias", tmp_path)[1])
    analyse_run(other)
    methods = query([run, other], "select distinct run, method from calibrated_predictions").to_pylist()
    assert len({row["run"] for row in methods}) == 2
    assert len({row["run"] for row in methods if row["method"] == "half_bc"}) == 1
    analyse_run(run)  # the folder is gone
    assert rows(run, "select method from calibration_methods where number >= 8") == [{"method": "half_bc"}]


BAD = {
    "calibrations/mine.sql": ("select 1", "its head lacks shown, meaning, by, inputs"),
    "calibrations/cc.sql": ("-- shown: x", "cc is a name that every run has; choose another one"),
    "calibrations/none.sql": ("-- shown: x", "none is a name that every run has"),
    "calibrations/three.sql": ("-- shown: x\n-- meaning: x\n-- by: x\n-- inputs: cc, dc\n", "cc, dc: are several"),
    "metrics.sql": ("select 1", "is no calibration; name files calibrations/NAME.sql"),
    "calibrations/two.sql": ("-- shown: x\n-- meaning: x\n-- by: x\n-- inputs: cd\n", "'cd' is no purpose of prompts"),
}


def test_files_with_mistakes_are_refused_together(tmp_path: Path) -> None:
    for path, (text, _) in BAD.items():
        (tmp_path / "sql" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sql" / path).write_text(text)
    content = {"kind": "label_bias", "name": "own", "model": {"path": "m"}, "tasks": {"path": "."}}
    with pytest.raises(InputError) as refused:
        spec_of({**content, "analysis": {"sql": "sql"}}, "spec.yaml", tmp_path)
    for path, (_, message) in BAD.items():
        assert f"{path}: " in str(refused.value)
        assert message in str(refused.value)
    with pytest.raises(InputError, match="unknown") as refused:
        spec_of({**content, "analysis": {"sql": str(EXAMPLE)}, "calibration": ["unknown"]}, "spec.yaml", tmp_path)
    assert "half_bc" in str(refused.value)
    with pytest.raises(InputError, match=r"analysis\.sql: .*elsewhere is no folder"):
        spec_of({**content, "analysis": {"sql": "elsewhere"}, "calibration": ["half_bc"]}, "spec.yaml", tmp_path)


def test_the_question_of_a_run_may_be_about_it(tmp_path: Path) -> None:
    content = {"kind": "label_bias", "name": "own", "model": {"path": "m"}, "tasks": {"path": "."}}
    own = {"analysis": {"sql": str(EXAMPLE)}, "calibration": ["half_bc"]}
    primary = {"metric": "rsd", "method": "half_bc"}
    spec = spec_of({**content, **own, "primary": primary}, "spec.yaml", tmp_path)
    assert isinstance(spec, LabelBiasSpec)
    assert spec.primary is not None
    # A stored spec keeps the text; one that brings more files adds to it.
    gone = spec_of({**spec.model_dump(), "analysis": {"sql": "gone", **_files(spec)}}, "spec.yaml", tmp_path)
    assert gone.own_calibrations == spec.own_calibrations
    before = spec_of({**content, "calibration": ["cc"]}, "spec.yaml", tmp_path)
    after = spec_of({**content, **own, "calibration": ["cc", "half_bc"]}, "spec.yaml", tmp_path)
    assert grown_keys(before, analysed_as(before, after)) == ["calibration", "analysis.files"]


def _files(spec: LabelBiasSpec) -> dict[str, object]:
    return {"files": spec.analysis.files}


HEAD = "-- shown: x\n-- meaning: x\n-- by: x\n-- inputs: cc\n"
BY_PROMPT = f"{HEAD}-- gives: log_probability\n"
QUERIES = {
    "reads_itself": (f"{HEAD}select * from calibrated_predictions", "reads what is made of calibrations"),
    "two": (f"{HEAD}select 1); create table more (a int); select * from (select 1", "mend the query"),
    "semicolon": (f"{HEAD}select 1; select 2", "is not one select"),
    "writes": (f"{HEAD}create table more as select 1", "is not one select"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_only_reads_what_stands_below_it(name: str) -> None:
    text, message = QUERIES[name]
    [problem] = own_sql_problems("label_bias", {name: text})
    assert problem.startswith(f"analysis.sql: calibrations/{name}.sql: ")
    assert message in problem


def _add(run: str, folder: Path, name: str, text: str) -> None:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    (folder / "calibrations" / f"{name}.sql").write_text(text)
    reanalyse_run(run, [f"calibration=[cc, dc, looc, {name}]", f"analysis.sql={folder}"])


def test_another_is_added_and_taken_back(tmp_path: Path) -> None:
    """Keywords may be of any case; an unfinished answer is refused before any metric."""
    run = str(copy_older_run("label_bias", tmp_path)[1])
    columns = "prompt_id, adaptation, label, log_probability"
    _add(run, tmp_path / "a", "same", f"{BY_PROMPT}SELECT {columns}\nFROM\n  label_probabilities")
    asked = "select method, accuracy from label_bias_by_model where suite = 'all' order by all"
    found = {row["method"] for row in rows(run, asked)}
    assert {"same", "none"} <= found
    accuracy = "select distinct accuracy from label_bias_by_model where method in ('same', 'none') and n_demos = 0"
    assert len(rows(run, accuracy)) == 1
    _add(run, tmp_path / "a", "third", f"{BY_PROMPT}select {columns} from label_probabilities -- from nowhere")
    assert "same" not in {row["method"] for row in rows(run, asked)}
    for name, less in (("rows", "row > 0"), ("labels", "label <> (select min(label) from label_probabilities)")):
        text = f"{BY_PROMPT}select {columns} from label_probabilities where {less}"
        with pytest.raises(BiasevalError, match=f"calibration_logits_are_whole: .*{name} gives"):
            _add(run, tmp_path / "b", name, text)


def test_a_query_that_does_not_run_ends_in_one_message_that_names_it(run: str, tmp_path: Path) -> None:
    (tmp_path / "sql" / "calibrations").mkdir(parents=True)
    head = "".join((EXAMPLE / "calibrations" / "half_bc.sql").read_text().splitlines(keepends=True)[:5])
    (tmp_path / "sql" / "calibrations" / "half_bc.sql").write_text(
        f"{head}select no_such_column from calibration_scores"
    )
    before = Run.open(run).read_text("spec.yaml")
    with pytest.raises(InputError, match=r"analysis\.sql: calibrations/half_bc\.sql: .*no_such_column"):
        reanalyse_run(run, [f"analysis.sql={tmp_path / 'sql'}"])
    assert Run.open(run).read_text("spec.yaml") == before
    with pytest.raises(InputError, match="cc is stored and stays in every table"):
        reanalyse_run(run, ["calibration=[dc, looc]"])
