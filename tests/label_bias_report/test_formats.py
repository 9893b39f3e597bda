"""A run of several formats of a prompt, from the spec to what its page, summary and gates say."""

from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.runs import describe, run_spec
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.commands import call
from tests.handmade import sql_of
from tests.label_bias.test_own_data import ITEM, reviews, spec_of, write_csv
from tests.label_bias_report.runs import said
from tests.pages import assert_said
from tests.relation import Relations

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
    assert_said(page, ["Wordings of the prompt", r"\{review\} \(\{shop\}\) =&gt; \{label", r"&#34;\\n&#34;|\n"])
    for row in rows(several, "from label_bias_by_format where suite = 'all'"):
        assert f'title="{row["rsd"]:.6g}"' in page
    spread = "from label_bias_format_spread where suite = 'all' and method = 'none' and task is null"
    for row in rows(several, f"{spread} and metric not in ('relative_variance', 'squared_preference')"):
        assert f'title="{row["deviation"]:.6g}"' in page
    [rsd] = rows(several, f"{spread} and metric = 'rsd' and n_demos = 2")
    ends = [rf"{rsd[end]:.3f} \({rsd[f'{end}_format']}[^)]*\)" for end in ("minimum", "maximum")]
    assert_said(
        said(several), [rf"RSD over 3 wordings: .*{' to '.join(ends)} with 2 demonstrations; standard deviation"]
    )


def test_summary_gates_and_plan_know_formats(
    several: Run, folder: Path, tiny_llama: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given = [request.getfixturevalue(name) for name in ("capsys", "monkeypatch")]
    spread = several.read_json("summary.json")["metrics"]["label_bias_format_spread"]
    assert {row["n_formats"] for row in spread} == {2, 3}
    gate = "label_bias_format_spread.{} where metric = 'rsd' and method = 'none' and task is null"
    assert call(*given, "check", several.uri, gate.format("range >= 0")).code == 0
    assert call(*given, "check", several.uri, gate.format("maximum < 0")).code == 3
    lines = dict(describe(spec(folder, tiny_llama, formats=FORMATS)).lines)
    assert lines["formats of the prompt"] == "3 (base, terse, back)"
    [n_prompts] = rows(several, "select count(*) as n from prompts")
    assert lines["prompts"] == f"{n_prompts['n']:,}"
    done = call(*given, "export", "lm-eval", several.uri, "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err


def test_a_preferred_label_that_changes_is_a_caution(several: Run) -> None:
    relations = Relations(several.root).changeable()
    relations.rows("from label_bias_cautions")
    asked = f"select text from ({sql_of('label_bias_cautions')}) where text like 'The preferred label changes%'"
    relations.connection.execute("delete from label_bias_format_labels").fetchall()
    assert relations.rows(asked) == []
    for form, label in LABELS:
        relations.connection.execute(
            "insert into label_bias_format_labels by name select 'reviews' as task, 2 as n_demos, 'none' as method, "
            f"'{form}' as format, '{label}' as label, true as is_rsd_above"
        ).fetchall()
    [found] = relations.rows(asked)
    assert "reviews (with 2 demonstrations: “bad” in terse and “good” in base)" in found["text"]
    relations.connection.close()


LABELS = (("base", "good"), ("terse", "bad"))
