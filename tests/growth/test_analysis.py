"""Analysis changes on what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import BiasevalError, InputError
from biaseval.runs import reanalyse_run, run_spec, run_status
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.alike import assert_alike
from tests.commands import call
from tests.growth.runs import kept, own_spec, rows
from tests.label_bias.test_own_data import reviews, write_csv
from tests.test_pipelines import digests

pytestmark = pytest.mark.usefixtures("here")


def test_analysis_is_changed_on_what_is_stored(
    run: Run, csv_folder: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, old = kept(run), rows(run, "from label_bias_by_task order by all")
    done = call(
        *(capsys, monkeypatch, "analyse", run.uri),
        *("--set", "scoring.normalization=sum", "--set", "calibration=[cc, cc@0.5]"),
    )
    assert done.code == 0, done.err
    assert "cc@0.5" in done.out
    assert "caution: One task: what holds for rows like these says nothing about other tasks." in done.err
    assert (
        "caution: Labels are scored by the sum over their tokens, with EOS; published: the mean, with EOS." in done.err
    )
    assert "changed: scoring.normalization: was 'mean', now 'sum'\n" in done.err
    assert kept(run) == before
    assert rows(run, "from label_bias_by_task order by all") != old
    assert yaml.safe_load(run.read_text("specs/00000.yaml"))["scoring"]["normalization"] == "mean"
    assert run_status(run.uri).is_complete
    # A run of the changed spec goes on with it.
    spec = own_spec(
        csv_folder,
        tiny_llama,
        prompt={"n_demos": [0, 2]},
        calibration=["cc", "cc@0.5"],
        scoring={"normalization": "sum"},
    )
    run_spec(spec, run.uri)
    back = reanalyse_run(run.uri, ["scoring.normalization=mean", "calibration=[cc]"])
    assert_alike(rows(back, "from label_bias_by_task order by all"), old)
    assert sorted(run.files("specs")) == ["specs/00000.yaml", "specs/00001.yaml"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            "bootstrap.sample=100",
            "bootstrap.sample: is no key of the analysis of a run of the kind label_bias (scoring",
        ),
        ("prompt.n_demos=[0, 2, 4]", "prompt.n_demos: is no key of the analysis of a run of the kind label_bias"),
        ("calibration=[cc, dc]", "calibration: dc: nothing is stored for it; biaseval run adds it"),
        ("calibration=[]", "calibration: cc is stored and stays in every table; name it too"),
        ("scoring.normalisation=sum", "scoring.normalisation: unknown key; did you mean normalization?"),
    ],
)
def test_what_is_no_analysis_is_refused(run: Run, change: str, problem: str) -> None:
    before = digests(Path(run.uri))
    with pytest.raises(InputError) as caught:
        reanalyse_run(run.uri, [change])
    assert problem in str(caught.value)
    assert digests(Path(run.uri)) == before


@pytest.mark.slow
def test_a_spec_says_how_its_run_is_analysed(
    run: Run, csv_folder: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def spec(*n_demos: int, **changes: Any) -> LabelBiasSpec:
        return own_spec(csv_folder, tiny_llama, prompt={"n_demos": list(n_demos)}, calibration=["cc"], **changes)

    before, first = kept(run), rows(run, "from label_bias_by_task order by all")
    reanalyse_run(run.uri, ["scoring.normalization=sum"])
    summed = rows(run, "from label_bias_by_task order by all")
    assert summed != first
    capsys.readouterr()
    # The spec that the run began with takes its analysis back, and says so once.
    run_spec(spec(0, 2), run.uri)
    said = "metrics are going to be those of the spec: scoring.normalization: the run has 'sum', the spec 'mean'"
    assert capsys.readouterr().err.count(said) == 1
    assert_alike(rows(run, "from label_bias_by_task order by all"), first)
    assert kept(run) == before
    run_spec(spec(0, 2), run.uri)
    assert "are going to be" not in capsys.readouterr().err
    # More may be asked for at once.
    run_spec(spec(0, 2, 3, scoring={"normalization": "sum"}), run.uri)
    assert "scoring.normalization: the run has 'mean', the spec 'sum'" in capsys.readouterr().err
    shared = "from label_bias_by_task where n_demos < 3 order by all"
    assert_alike(rows(run, shared), summed)
    # What is neither is refused, and named alone.
    with pytest.raises(InputError) as caught:
        run_spec(spec(0, 2, 3, seed=7), run.uri)
    assert "seed: the run has 42, the spec 7" in str(caught.value)
    assert "scoring.normalization" not in str(caught.value)
    assert len(run.files("specs")) == 3


def test_suites_of_tasks_are_changed_on_what_is_stored(csv_folder: Path, tiny_llama: Path, tmp_path: Path) -> None:
    first = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}).model_dump()
    names = ["a_one", "a_two", "b_one"]
    for name in names:
        write_csv(tmp_path / f"{name}.csv", reviews(24, name))
    sets = [{**first["data"][0], "name": name, "train": str(tmp_path / f"{name}.csv"), "test": None} for name in names]
    spec = LabelBiasSpec.model_validate({**first, "data": sets})
    run = run_spec(spec, str(tmp_path / "run"))
    before, whole = kept(run), rows(run, "from label_bias_by_model where suite = 'all' order by all")
    for change, problem in (
        ("{x: [a_one]}", "suites.x: has a_one alone; name two or more"),
        ("{x: [a_on]}", "suites.x: no task is called a_on; did you mean a_one?"),
        ("{all: [a_*]}", "suites.all: is the name of a suite that every run has; choose another"),
        ("{x: []}", "suites.x"),
    ):
        with pytest.raises(InputError) as caught:
            reanalyse_run(run.uri, [f"suites={change}"])
        assert problem in str(caught.value)
    reanalyse_run(run.uri, ["suites={a: ['a_*'], ones: [a_one, b_one]}"])
    assert kept(run) == before
    assert_alike(rows(run, "from label_bias_by_model where suite = 'all' order by all"), whole)
    # The mean over a suite is that over its tasks.
    for suite, tasks in (("a", "('a_one', 'a_two')"), ("ones", "('a_one', 'b_one')")):
        own = f"select n_demos, accuracy, n_tasks from label_bias_by_model where suite = '{suite}' order by n_demos"
        mean = f"""
            select n_demos, avg(accuracy) as accuracy, count(*) as n_tasks
            from label_bias_by_task_over_sets where task in {tasks} group by n_demos order by n_demos
        """
        assert_alike(rows(run, own), rows(run, mean))
        drawn = f"select draw, sum(n_drawn) as n from bootstrap_draws where suite = '{suite}' group by draw"
        assert {row["n"] for row in rows(run, drawn)} == {2}
    assert "<caption>ones (2)" in run.read_text("report.html")
    # A spec with other suites is the same run.
    run_spec(spec.model_copy(update={"suites": {"a": ["a_two", "a_one"]}}), run.uri)
    assert kept(run) == before
    found = rows(run, "select distinct suite from label_bias_by_model order by suite")
    assert [row["suite"] for row in found] == ["a", "all"]


def test_an_unfinished_run_is_not_analysed(run: Run) -> None:
    run.delete("label_scores/part-00000.parquet")
    with pytest.raises(BiasevalError, match=r"1 of 1 parts missing"):
        reanalyse_run(run.uri, ["scoring.normalization=sum"])
    assert not run.has("specs")
