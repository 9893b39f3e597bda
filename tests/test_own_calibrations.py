"""Calibrations of a user's own: a folder of SQL beside the spec, kept by the run and seen wherever others are."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.errors import BiasevalError, InputError
from biaseval.runs import analyse_run, reanalyse_run
from biaseval.spec import load_spec, spec_of
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
    "calibrations/cc.sql": ("-- shown: x", "cc is a calibration that every run has; choose another name"),
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
    for folder, message in (("none", "has no SQL file"), ("sql", "unknown")):
        own = {"sql": str(tmp_path / folder)} if folder == "none" else {"sql": str(EXAMPLE)}
        (tmp_path / "spec.yaml").write_text(
            f"kind: label_bias\nname: own\nmodel: {{path: m}}\ntasks: {{path: .}}\nanalysis: {own}\n"
            f"calibration: [cc, {'half_bc' if folder == 'none' else 'unknown'}]\n"
        )
        with pytest.raises(InputError, match=message):
            load_spec(tmp_path / "spec.yaml")


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
    with pytest.raises(BiasevalError, match="half_bc is stored and stays in every table"):
        reanalyse_run(run, ["calibration=[cc, dc, looc]"])
