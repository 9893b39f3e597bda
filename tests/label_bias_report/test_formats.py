"""A run of several formats of a prompt, from the spec to what its page, summary and gates say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.report.cautions import caveats
from biaseval.report.compare_words import PARTNERS
from biaseval.report.findings import Findings, read_findings
from biaseval.report.format_words import formats_words
from biaseval.report.formats import formats_of
from biaseval.report.summary import BESIDE_CONSTANT
from biaseval.report.verdict import conclude
from biaseval.runs import describe, run_spec
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.commands import call
from tests.label_bias.test_own_data import ITEM, reviews, spec_of, write_csv

TERSE = {"item": "{review} ({shop}) => {label}", "separator": "\n"}
FORMATS = {"terse": TERSE, "back": {"order": "reversed"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(60))
    return folder


def spec(folder: Path, model: Path, **prompt: Any) -> LabelBiasSpec:
    return spec_of(
        folder,
        model={"path": str(model)},
        data={"fields": {}},
        prompt={"n_demos": [0, 2], "demo_sets": 2, "item": ITEM, **prompt},
        calibration=["cc", "dc"],
    )


@pytest.fixture(scope="module")
def several(folder: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.inprocess import in_this_process

    with in_this_process():
        return run_spec(spec(folder, tiny_llama, formats=FORMATS), str(tmp_path_factory.mktemp("run") / "several"))


def rows(run: Run, question: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([run.uri], question).to_pylist()
    return found


METRICS = "n_demos, method, macro_f1, accuracy, rsd, bias_score, n_rows, n_bias_score_rows"


@pytest.mark.usefixtures("here")
def test_a_format_is_measured_as_if_it_were_the_prompt(
    several: Run, folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    for form, prompt in (("base", {}), ("terse", TERSE)):
        alone = run_spec(spec(folder, tiny_llama, **prompt), str(tmp_path / form))
        expected = rows(alone, f"select {METRICS} from label_bias_by_model where suite = 'all' order by all")
        where = f"where suite = 'all' and format = '{form}'"
        found = rows(several, f"select {METRICS} from label_bias_by_format {where} order by all")
        assert found == [pytest.approx(row, abs=1e-6) for row in expected]
        scores = (
            "select prompt_id, label, list_sum(token_logprobs) as s from label_scores join prompts using (prompt_id)"
        )
        own = {(row["prompt_id"], row["label"]): row["s"] for row in rows(alone, scores)}
        there = {
            (row["prompt_id"].replace(".terse", ""), row["label"]): row["s"]
            for row in rows(several, f"{scores} where format = '{form}'")
        }
        assert there == pytest.approx(own, abs=1e-4)
    assert rows(several, "from label_bias_by_model") == [
        pytest.approx(row, abs=1e-6) for row in rows(Run.open(str(tmp_path / "base")), "from label_bias_by_model")
    ]


def test_the_page_has_a_section_whose_numbers_are_those_of_sql(several: Run) -> None:
    page = several.read_text("report.html")
    assert "Wordings and orders of the prompt" in page
    assert '<a href="#formats">' in page
    for row in rows(several, "from label_bias_by_format where suite = 'all'"):
        assert f'title="{row["rsd"]:.6g}">{row["rsd"]:.3f}' in page
    for row in rows(several, "from label_bias_format_spread where suite = 'all' and method = 'none' and task is null"):
        if row["metric"] not in PARTNERS:
            assert f'title="{row["deviation"]:.6g}">{row["deviation"]:.3f}' in page
    assert "{review} ({shop}) =&gt; {label}" in page
    assert "&#34;\\n&#34;" in page
    findings = read_findings(several)
    assert findings.formats is not None
    first, *sentences, last = formats_words(findings.formats)
    assert first.startswith("3 formats of one prompt")
    [rsd] = rows(
        several,
        "from label_bias_format_spread where task is null and suite = 'all' and method = 'none' and metric = 'rsd' "
        "and n_demos = 2",
    )
    is_above = {
        row["format"]: row["is_above_constant"]
        for row in findings.formats.means
        if (row["n_demos"], row["method"]) == (2, "none")
    }
    least, most = (
        f"{rsd[end]:.3f} ({name}{'' if is_above[name] else f', {BESIDE_CONSTANT[is_above[name]]}'})"
        for end in ("minimum", "maximum")
        for name in (rsd[f"{end}_format"],)
    )
    reach = f"{least} to {most}"
    assert f"RSD is {reach}: a standard deviation of {rsd['deviation']:.3f}" in sentences[1]
    [line] = [line for line in conclude(findings) if line.lead == "RSD over 3 formats, no calibration"]
    assert f"{reach} with 2 demonstrations (standard deviation {rsd['deviation']:.3f}, where rows alone" in line.text
    asked = f"from label_bias_format_changes where suite = 'all' and method = 'none' and metric not in {PARTNERS}"
    [n] = rows(several, f"select count(p_adjusted) as n {asked}")
    assert f"Of {n['n']} differences" in last


def test_a_run_of_one_format_has_no_section(findings: Findings, run: Run) -> None:
    assert findings.formats is None
    assert "Wordings and orders" not in run.read_text("report.html")
    assert "label_bias_format_spread" not in json.loads(run.read_text("summary.json"))["metrics"]


def test_summary_gates_and_plan_know_formats(
    several: Run,
    folder: Path,
    tiny_llama: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summary = json.loads(several.read_text("summary.json"))
    assert {row["n_formats"] for row in summary["metrics"]["label_bias_format_spread"]} == {2, 3}
    gate = "label_bias_format_spread.{} where metric = 'rsd' and method = 'none' and task is null"
    assert call(capsys, monkeypatch, "check", several.uri, gate.format("range >= 0")).code == 0
    assert call(capsys, monkeypatch, "check", several.uri, gate.format("maximum < 0")).code == 3
    lines = dict(describe(spec(folder, tiny_llama, formats=FORMATS)).lines)
    assert lines["formats of the prompt"] == "3 (base, terse, back)"
    [n_prompts] = rows(several, "select count(*) as n from prompts")
    assert lines["prompts"] == f"{n_prompts['n']:,}"
    done = call(capsys, monkeypatch, "export", "lm-eval", several.uri, "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err


def test_a_preferred_label_that_changes_is_a_caution(several: Run) -> None:
    findings = read_findings(several)
    place = {"task": "reviews", "n_demos": 2}
    labels = [{**place, "format": form, "label": label} for form, label in (("base", "good"), ("terse", "bad"))]
    shown: dict[str, list[dict[str, Any]]] = {
        "means": [],
        "changes": [],
        "base_changes": [],
        "spread": [],
        "labels": labels,
    }
    said = "The preferred label is another in another format of the prompt: reviews (2 demonstrations: “good” in base"
    for formats, n in ((formats_of({"formats": FORMATS}, shown), 1), (findings.formats, 0)):
        assert formats is not None
        own = Findings(**{**vars(findings), "formats": formats})
        assert sum(sentence.startswith(said) for sentence in caveats(own)) == n
