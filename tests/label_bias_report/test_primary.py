"""The primary question on the page, and what is said where it was chosen late."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from biaseval.report.cautions import caveats
from biaseval.report.findings import Findings, read_findings
from biaseval.runs import reanalyse_run
from biaseval.store import Run
from tests.label_bias_report.runs import told
from tests.pages import mart, page_of
from tests.specs import as_older

_LATE = "The primary question was chosen when the scores were there already"


@pytest.fixture(scope="module")
def asked(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run whose primary question was named after it was scored."""
    folder = tmp_path_factory.mktemp("primary") / "run"
    shutil.copytree(run.uri, folder)
    return reanalyse_run(folder, ["primary.metric=rsd", "primary.method=dc"])


def test_the_page_answers_the_primary_question_first(asked: Run, findings: Findings) -> None:
    own = read_findings(asked)
    rows = {
        row["n_demos"]: row
        for row in mart(asked, "label_bias_verdicts")
        if row["suite"] == "all" and row["is_primary"] and row["metric"] == "rsd"
    }
    assert rows.keys() == {0, 2, 8}
    [lead, *_] = told(own)
    assert lead == "Primary question, RSD with DC"
    line = told(own)[lead]
    for row in rows.values():
        p = row["same_tasks_word_p_adjusted"]
        shown = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        signed = f"{row['estimate']:+.3f}".replace("-", "\N{MINUS SIGN}")
        assert f"with {row['n_demos']} ({signed}, adjusted {shown})" in line
    assert line.startswith("on these tasks, ")
    assert "; for other tasks like these, " in line
    assert line.endswith("Its p is adjusted for the 3 tests of this line only.")
    assert "about 5 %, of the primary question and of the rest each." in told(own)["How sure"]
    page = page_of(asked)
    assert page.text.count("primary question") >= 3
    assert "The primary question is tested apart from the rest." in page.text
    assert not any(line.startswith("Primary question") for line in told(findings))


def test_a_question_that_was_chosen_late_is_said_to_be(asked: Run, run: Run, tmp_path: Path) -> None:
    [said] = [line for line in caveats(read_findings(asked)) if line.startswith(_LATE)]
    assert "(before, there was none)" in said
    assert any(line.startswith(_LATE) for line in json.loads(asked.read_text("summary.json"))["cautions"])
    assert asked.read_part("label_scores", 0).equals(run.read_part("label_scores", 0))
    # Of a question that the run began with nothing is said, also when it comes back to that.
    shutil.copytree(run.uri, tmp_path / "early")
    early = as_older(tmp_path / "early")
    spec = yaml.safe_load(early.read_text("spec.yaml")) | {"primary": {"metric": "rsd", "method": "cc"}}
    early.write_text("spec.yaml", yaml.safe_dump(spec))
    reanalyse_run(early.uri, [])
    assert not any(line.startswith(_LATE) for line in caveats(read_findings(early)))
    reanalyse_run(early.uri, ["primary.metric=accuracy"])
    [said] = [line for line in caveats(read_findings(early)) if line.startswith(_LATE)]
    assert "(before, it was rsd with cc)" in said
    reanalyse_run(early.uri, ["primary.metric=rsd"])
    assert not any(line.startswith(_LATE) for line in caveats(read_findings(early)))
    reanalyse_run(early.uri, ["primary=null"])
    assert not any(line.startswith(_LATE) for line in caveats(read_findings(early)))
    assert not any(row["is_primary"] for row in mart(early, "label_bias_verdicts"))
