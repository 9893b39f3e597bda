"""The page as a file: it is whole, safe, the same each time, and its numbers are those of the run."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from biaseval.analysis import query
from biaseval.errors import BiasevalError, InputError
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run
from tests.pages import assert_answered, assert_of_marts, assert_said, assert_whole, page_of, printed_queries


def test_the_page_is_whole_the_same_each_time_and_its_numbers_are_those_of_marts(run: Run) -> None:
    metrics = ("rsd", "accuracy", "macro_f1", "bias_score")
    figures = [f"figures/{metric}{suite}.svg" for suite in ("", "_semantically_equivalent") for metric in metrics]
    files = [*figures, "summary.json", "report.html"]
    assert write_report(run.uri) == [f"{run.uri}/{name}" for name in files]
    before = {name: run.read_bytes(name) for name in files}
    code = f"from biaseval.runs import write_report; write_report({run.uri!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
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
    assert (
        "synthetic · tasks · 12 tasks · 288 test rows, 2 to 4 labels · 0, 2 and 8 demonstrations (2 sets of them)"
        in text
    )
    chips = [row for row in page_of(run).values("class") if row.startswith("word")]
    assert {"word gain", "word"} <= set(chips)


def test_rows_behind_a_verdict_are_wrong_and_of_the_preferred_label(run: Run) -> None:
    [shown] = [sql for sql in printed_queries(run.read_text("report.html")) if "from wrong_answers" in sql]
    best = "select prompt_id, arg_max(label, list_sum(token_logprobs)) as best from label_scores group by 1"
    answers = {row["prompt_id"]: row["best"] for row in query([run.uri], best).to_pylist()}
    rows = query([run.uri], shown).to_pylist()
    for row in rows:
        assert answers[f"{row['task']}/k8.s{row['demo_set']}/main/{row['row']}"] == row["prediction"] != row["gold"]
        assert row["gold_probability"] <= row["probability"] < 1
    assert len(rows) > 10


def test_markup_in_labels_and_names_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    run = make_run(tmp_path / "run", n_tasks=2, n_demos=(0, 2), labels=[hostile, "ok & <b>'fine'</b>"])
    write_report(run.uri)
    page = page_of(run)
    for shown in (hostile, "ok & <b>'fine'</b>", "Say which of the labels fits <input> & task 1."):
        assert shown in page.text
    assert "onerror" not in {name for _, name, _ in page.attributes}
    assert "<b>" not in run.read_text("report.html")


def test_a_suite_of_one_task_repeats_no_table_of_tasks(tmp_path: Path) -> None:
    for n, is_shown in ((1, False), (2, True)):
        run = make_run(tmp_path / f"run{n}", n_tasks=3, n_demos=(0,), calibration=(), n_equivalent=n)
        files = write_report(run.uri)
        assert any("_semantically_equivalent" in name for name in files) is is_shown
    for path in Path(run.root, "marts").iterdir():
        path.unlink()
    with pytest.raises(BiasevalError, match=r"marts/.*missing; biaseval report .* writes it"):
        write_report(run.uri)


def test_missing_facts_of_plan_and_environment_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", n_tasks=1, n_demos=(0,), calibration=())
    for name in ("plan.json", "environment.json", "digests.json"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    write_report(run.uri)
    assert_said(page_of(run).text, ["Settings", "!None"])


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
