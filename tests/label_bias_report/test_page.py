"""The page of a label-bias run."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.runs import describe, run_spec, write_report
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.commands import call
from tests.handmade import sql_of
from tests.label_bias.test_own_data import ITEM, reviews, spec_of, write_csv
from tests.label_bias_report.runs import make_run, said
from tests.pages import assert_answered, assert_of_marts, assert_said, assert_whole, page_of, printed_queries
from tests.relation import Relations, told

pytestmark = pytest.mark.slow


def test_the_page_is_whole_the_same_each_time_and_its_numbers_are_those_of_marts(run: Run) -> None:
    metrics = ("rsd", "accuracy", "macro_f1", "bias_score")
    figures = [f"figures/{metric}{suite}.svg" for suite in ("", "_semantically_equivalent") for metric in metrics]
    files = [*figures, "summary.json", "report.html"]
    before = {name: run.read_bytes(name) for name in files}
    code = f"from biaseval.runs import write_report; print(*write_report({run.uri!r}), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{run.uri}/{name}" for name in files]
    assert {name: run.read_bytes(name) for name in before} == before
    assert_whole(run.read_text("report.html"))
    assert_answered(run.read_text("report.html"), [run.uri], 10)
    assert_of_marts(run.read_text("report.html"), run)


def test_the_page_says_what_the_relations_and_the_files_of_the_run_say(run: Run) -> None:
    text = page_of(run).text
    for name in ("conclusions", "cautions"):
        for row in query([run.uri], f"select text from label_bias_{name}").to_pylist():
            assert row["text"] in text
    assert_said(text, ["has <4 labels> & more", "3 inputs do not fit the template", "cd" * 32, "1 task is left out"])
    assert "tasks · 12 tasks · 288 test rows, 2 to 4 labels · 0, 2 and 8 demonstrations (2 sets of them)" in text
    assert "Every demonstration set" in text
    chips = [row for row in page_of(run).values("class") if row.startswith("word")]
    assert {"word gain", "word"} <= set(chips)


def test_rows_behind_a_verdict_are_wrong_and_of_the_preferred_label(run: Run) -> None:
    [shown] = [sql for sql in printed_queries(run.read_text("report.html")) if "from wrong_answers" in sql]
    best = "select prompt_id, arg_max(label, list_sum(token_logprobs)) as best from label_scores group by 1"
    answers = {row["prompt_id"]: row["best"] for row in query([run.uri], best).to_pylist()}
    beyond = """
        select task, arg_max(label, n) as label from (
            select task, label, sum(n_predicted - n_gold) as n from label_bias_by_label
            where n_demos = 8 and method = 'none' group by all
        ) group by task"""
    preferred = {row["task"]: row["label"] for row in query([run.uri], beyond).to_pylist()}
    rows = query([run.uri], shown).to_pylist()
    for row in rows:
        assert row["prediction"] == preferred[row["task"]]
        assert answers[f"{row['task']}/k8.s{row['demo_set']}/main/{row['row']}"] == row["prediction"] != row["gold"]
        assert row["gold_probability"] <= row["probability"] < 1
    assert len(rows) > 10


def test_markup_is_shown_and_not_interpreted_and_missing_facts_are_left_out(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), labels=[hostile, "ok & <b>'fine'</b>"])
    for name in ("plan.json", "environment.json", "digests.json"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    write_report(run.uri)
    page = page_of(run)
    for shown in (hostile, "ok & <b>'fine'</b>", "Say which of the labels fits <input> & task 1."):
        assert shown in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert "<b>" not in run.read_text("report.html")
    assert_said(page.text, ["Settings", "!None"])


def test_what_is_no_label_bias_run_is_refused(tmp_path: Path) -> None:
    scored = {"kind": "score", "model": {"path": "models/tiny"}, "prompts_sha256": "0"}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(scored))
    with pytest.raises(InputError, match="holds a run of the kind score, which has no metrics"):
        write_report(str(tmp_path))
    with pytest.raises(InputError, match="is not a run directory"):
        write_report(str(tmp_path / "absent"))


def test_the_report_needs_no_torch_and_no_ray() -> None:
    modules = "{'torch', 'ray', 'transformers', 'vl_convert'}"
    code = f"import sys, biaseval.report; print(sorted({modules} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "adapted", n_tasks=6, losses=(2.0, 1.5, 1.25, 1.0))
    write_report(run.uri)
    return run


def test_the_training_loss_is_shown_and_said_where_it_does_not_fall(adapted: Run, tmp_path: Path) -> None:
    losses = query([adapted.uri], "from training_by_step order by step").to_pylist()
    assert [row["n_adapters"] for row in losses] == [30] * 4
    assert losses[0]["mean_loss"] == pytest.approx(2 + 14.5 / 1000)  # adapter number n of 30 adds n / 1000
    assert (losses[-1]["low"], losses[-1]["high"]) == pytest.approx((1 + 2.9 / 1000, 1 + 26.1 / 1000))
    page = page_of(adapted)
    assert " 0 6 4 2.0" in page.text  # demonstrations, adapters, steps, first loss
    assert_said(" ".join(page.values("alt")), [r"loss 2\.014 at 1, .*1\.014 at 4", r"RSD with LoRA .*LoRA \+ LOOC"])
    assert_said(page.text, ["!The training loss of", r"LoRA \+ CC", "What mitigation needs"])
    assert_whole(adapted.read_text("report.html"))
    rising = make_run(tmp_path / "run", n_tasks=1, n_demos=(0,), losses=(1.0, 2.0), is_measured=False)
    said_of = told(Relations(rising.root), "label_bias_cautions")
    assert_said(said_of, ["The training loss of 1 of 1 adapter is not lower"])


TERSE = {"item": "{review} ({shop}) => {label}", "separator": "\n"}
FORMATS = {"terse": TERSE, "back": {"order": "reversed"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(60))
    return folder


def spec(folder: Path, model: Path, **prompt: Any) -> LabelBiasSpec:
    return spec_of(
        folder, model={"path": str(model)}, data={"fields": {}},
        prompt={"n_demos": [0, 2], "demo_sets": 2, "item": ITEM, **prompt}, calibration=["cc", "dc"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def several(folder: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    from tests.inprocess import in_this_process

    with in_this_process():
        return run_spec(spec(folder, tiny_llama, formats=FORMATS), str(tmp_path_factory.mktemp("run") / "several"))


def rows(run: Run, question: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([run.uri], question).to_pylist()
    return found


METRICS = "n_demos, method, macro_f1, accuracy, rsd, bias_score, n_rows, n_bias_score_rows"


def test_the_page_has_a_section_whose_numbers_are_those_of_sql(several: Run) -> None:
    page = several.read_text("report.html")
    assert_said(page, ["Wordings of the prompt", r"\{review\} \(\{shop\}\) =&gt; \{label", r"&#34;\\n&#34;|\n"])
    for row in rows(several, "from label_bias_by_format where suite = 'all'"):
        assert f'title="{row["rsd"]:.6g}"' in page
    spread = "from label_bias_format_spread where suite = 'all' and method = 'none' and task is null"
    for row in rows(several, f"{spread} and metric not in ('relative_variance', 'squared_preference')"):
        assert f'title="{row["deviation"]:.6g}"' in page
    [rsd] = rows(several, f"{spread} and metric = 'rsd' and n_demos = 2")
    ends = [rf"{rsd[end]:.3f} \({rsd[f'{end}_format']}\)" for end in ("minimum", "maximum")]
    spread_said = rf"Which wording\? .*ccuracy with 2 demonstrations goes from .* %.*, and RSD from {' to '.join(ends)}"
    assert_said(said(several), [spread_said, "Where no wording is named, numbers are of the wording “base”"])


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
