"""Additions to a label-bias run make what is missing, and the rest keeps its bytes; its analysis is changed."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.errors import InputError
from biaseval.label_bias import data
from biaseval.pipelines.directory import read_plan
from biaseval.runs import reanalyse_run, run_spec, run_status
from biaseval.runs.commands import claimed_run
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.alike import assert_alike
from tests.commands import call
from tests.growth.runs import BY_TASK, SpecOf, assert_same_answers, kept, rows
from tests.label_bias.test_lm_eval_tasks import write as write_task
from tests.label_bias.test_own_data import reviews, spec_of, write_csv
from tests.test_pipelines import digests

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.slow]

CONSTANT = "marts/label_bias_constant_differences.parquet"


def n_planned(run: Run) -> int:
    return sum(part["n_prompts"] for part in read_plan(run)["parts"])


def with_data(spec: LabelBiasSpec, *sets: dict[str, Any]) -> LabelBiasSpec:
    """Return a spec with more sets of data, each with what it has otherwise than the first."""
    content = spec.model_dump()
    more = [own if "lm_eval" in own else {**content["data"][0], "test": None, **own} for own in sets]
    return LabelBiasSpec.model_validate({**content, "data": [*content["data"], *more]})


def test_more_demonstrations_sets_and_methods_make_only_what_is_missing(
    run: Run, spec: SpecOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, first = kept(run), yaml.safe_load(run.read_text("spec.yaml"))
    more = spec(0, 2, 3, prompt={"demo_sets": 2}, calibration=["cc", "dc", "looc"])
    run_spec(more, run.uri, page=False)
    fresh = run_spec(more, str(tmp_path / "fresh"), page=False)
    assert n_planned(run) == n_planned(fresh)
    after = kept(run)
    assert before.items() <= after.items()
    assert f"of {n_planned(run):,} rows are scored" in capsys.readouterr().err
    # The numbers are those of a run that was asked for all of it at once.
    assert_same_answers(
        *(run, fresh, BY_TASK),
        "select prompt_id, context_id, labels, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, text, demo_ids from contexts order by context_id",
        "select n_demos, method, metric, estimate, verdict from label_bias_verdicts order by all",
    )
    assert yaml.safe_load(run.read_text("specs/00000.yaml")) == first
    assert run_status(run.uri).size_done == run_status(run.uri).size
    # The same again changes nothing, and the first spec is now another.
    with claimed_run(more, run.uri):
        assert kept(run) == after
    with pytest.raises(InputError, match=r"belongs to another spec; choose another directory"):
        run_spec(spec(0, 2), run.uri)


def test_a_format_is_added_and_what_was_there_says_the_same(run: Run, spec: SpecOf, tmp_path: Path) -> None:
    terse, back = {"item": "{input} => {label}", "separator": "\n"}, {"order": "reversed"}
    before, marts = kept(run), {name: run.read_bytes(name) for name in run.files("marts")}
    n_before = n_planned(run)
    run_spec(spec(0, 2, prompt={"formats": {"terse": terse}}), run.uri, page=False)
    after = kept(run)
    assert before.items() <= after.items()
    assert n_planned(run) == 2 * n_before
    of_base = rows(run, "from label_bias_constant_differences where format = 'base' order by all")
    assert of_base == pq.read_table(pa.BufferReader(marts[CONSTANT])).to_pylist()
    changed = {name for name, content in marts.items() if run.read_bytes(name) != content}
    of_formats = (
        "by_format", "metrics", "conclusions", "constant_differences",
        *(f"format_{x}" for x in ("changes", "labels", "spread")),
    )  # fmt: skip
    named = (*(f"label_bias_{name}" for name in of_formats), "metric_errors", "metric_values")
    assert changed == {f"marts/{name}.parquet" for name in named}
    both = {"terse": terse, "back": back}
    run_spec(spec(0, 2, 3, prompt={"formats": both}), run.uri, page=False)
    assert after.items() <= kept(run).items()
    assert_same_answers(
        *(run, run_spec(spec(0, 2, 3, prompt={"formats": both}), str(tmp_path / "fresh"), page=False), BY_TASK),
        "select prompt_id, context_id, format, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, format, text, demo_ids from contexts order by context_id",
        "from label_bias_by_format order by all",
        "from label_bias_format_spread order by all",
    )
    formats = [row["format"] for row in rows(run, "select distinct format from prompts order by format")]
    assert formats == ["back", "base", "terse"]
    with pytest.raises(InputError, match=r"prompt\.formats"):
        run_spec(
            spec(0, 2, 3, prompt={"formats": {"terse": {**terse, "separator": "\n\n"}, "back": back}}),
            run.uri,
            page=False,
        )


def test_a_killed_addition_is_begun_again(run: Run, spec: SpecOf, tmp_path: Path) -> None:
    more = spec(0, 2, 4)
    with claimed_run(more, run.uri):
        pass  # planned, and killed before anything was scored
    assert not run_status(run.uri).is_complete
    planned = read_plan(run)
    # Killed earlier: parts are written, the plan is not.
    killed = Run.open(str(shutil.copytree(run.uri, tmp_path / "killed")))
    killed.write_json("plan.json", {**planned, "parts": planned["parts"][:1], "n_parts": 1})
    killed.write_text("spec.yaml", killed.read_text("specs/00000.yaml"))
    killed.delete("specs")
    for one in (run, killed):
        run_spec(more, one.uri, page=False)
    assert kept(killed) == kept(run)
    assert_same_answers(killed, run, BY_TASK)


def test_a_run_of_an_older_version_keeps_the_rows_of_bias_score_that_it_drew(spec: SpecOf, tmp_path: Path) -> None:
    """They were the first rows, whatever their labels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.DataSet, "_bias_score_rows", lambda self, order, n_fewest, seed: [*order[:n_fewest]])
        run = run_spec(spec(0, 2), str(tmp_path / "run"), page=False)
    before = kept(run)
    more = spec(0, 2, 3, calibration=["cc", "dc"])
    with claimed_run(more, run.uri), claimed_run(more, str(tmp_path / "fresh")) as fresh:
        assert before.items() <= kept(run).items()
        of_role = pc.field("role") == "bias_score"
        drawn, anew = (each.read_table("splits").filter(of_role).sort_by("position") for each in (run, fresh))
    assert len(drawn) == len(anew) == 6
    assert {*drawn["instance_id"].to_pylist()} != {*anew["instance_id"].to_pylist()}
    assert sorted(anew["label"].to_pylist()) == ["bad", "bad", "good", "good", "mixed", "mixed"]


def test_what_would_change_rows_that_are_there_is_refused(
    run: Run, spec: SpecOf, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    def small(*n_demos: int) -> LabelBiasSpec:
        return spec_of(csv_folder, model={"path": str(tiny_llama)}, prompt={"n_demos": [*n_demos], "demo_sets": 1})

    with claimed_run(small(0, 2), str(tmp_path / "small")) as of_small:
        before = kept(of_small)
    with pytest.raises(InputError, match=r"tasks would have other rows than it has, .* takes test rows"):
        run_spec(small(0, 2, 4), of_small.uri)
    assert kept(of_small) == before
    for changed, said in (
        (spec(0, 4), "prompt.n_demos: the run has [0, 2], the spec [0, 4]"),
        (spec(0, 2, 4, seed=7), "seed: the run has 42, the spec 7"),
    ):
        with pytest.raises(InputError) as caught:
            run_spec(changed, run.uri)
        assert said in str(caught.value)


def test_data_sets_are_added_behind_those_that_are_there(run: Run, spec: SpecOf, csv_folder: Path) -> None:
    """A refused addition leaves nothing behind."""
    first = spec(0, 2, 3)
    run_spec(first, run.uri, page=False)  # so that a part of contexts has the number that a second task would have
    before, whole = kept(run), digests(Path(run.uri))
    write_csv(csv_folder / "more.csv", reviews(12, "more"))
    second = {"name": "again", "train": str(csv_folder / "more.csv")}
    two = with_data(first, second)
    with pytest.raises(InputError, match=r"has 12 rows that can be used"):
        run_spec(two, run.uri)
    assert digests(Path(run.uri)) == whole
    write_csv(csv_folder / "more.csv", reviews(24, "more"))
    run_spec(two, run.uri, page=False)
    assert before.items() <= kept(run).items()
    tasks = rows(run, "select distinct task from label_bias_by_task order by task")
    assert [row["task"] for row in tasks] == ["again", "reviews"]
    turned = LabelBiasSpec.model_validate({**two.model_dump(), "data": two.model_dump()["data"][::-1]})
    with pytest.raises(InputError, match=r"belongs to another spec|would have other rows"):
        run_spec(turned, run.uri)


def test_a_task_of_the_harness_is_added_and_stays_what_it_was(run: Run, spec: SpecOf, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    two = with_data(spec(0, 2), {"lm_eval": str(write_task(tmp_path / "tasks"))})
    before = kept(run)
    run_spec(two, run.uri, page=False)
    assert before.items() <= kept(run).items()
    assert {"task": "odd-even"} in rows(run, "select distinct task from label_bias_by_task")
    with claimed_run(two, run.uri):
        pass
    write_task(tmp_path / "tasks", question="another?")
    with pytest.raises(InputError, match=r"odd-even\.yaml: the file, or one that it names, changed since"):
        run_spec(two, run.uri)


def test_analysis_is_changed_on_what_is_stored(
    run: Run, spec: SpecOf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, old = kept(run), rows(run, BY_TASK)
    changes = ("--set", "scoring.normalization=sum", "--set", "calibration=[cc, cc@0.5]")
    done = call(capsys, monkeypatch, "analyse", run.uri, *changes)
    assert done.code == 0, done.err
    assert "cc@0.5" in done.out
    assert "nothing about other tasks; measure 6 or more." in done.out
    for said in (
        "caution: Labels are scored by the sum over their tokens, with EOS; the published method takes the mean",
        "changed: scoring.normalization: was 'mean', now 'sum'\n",
    ):
        assert said in done.err
    assert kept(run) == before
    assert rows(run, BY_TASK) != old
    assert yaml.safe_load(run.read_text("specs/00000.yaml"))["scoring"]["normalization"] == "mean"
    assert run_status(run.uri).is_complete
    # A run of the changed spec goes on with it.
    run_spec(spec(0, 2, calibration=["cc", "cc@0.5"], scoring={"normalization": "sum"}), run.uri, page=False)
    reanalyse_run(run.uri, ["scoring.normalization=where_unequal"], page=False)
    said = "by the mean (or sum, where all labels have as many) over their tokens, with EOS"
    assert rows(run, f"select count(*) as n from label_bias_cautions where contains(text, '{said}')") == [{"n": 1}]
    back = reanalyse_run(run.uri, ["scoring.normalization=mean", "calibration=[cc]"], page=False)
    assert_alike(rows(back, BY_TASK), old)
    assert sorted(run.files("specs")) == [f"specs/0000{n}.yaml" for n in range(3)]


NO_KEY = "is no key of the analysis of a run of the kind label_bias"


@pytest.mark.parametrize(("change", "problem"), [
    ("bootstrap.sample=100", f"bootstrap.sample: {NO_KEY} (scoring"),
    ("prompt.n_demos=[0, 2, 4]", f"prompt.n_demos: {NO_KEY}"),
    ("calibration=[cc, dc]", "calibration: dc: nothing is stored for it; biaseval run adds it"),
    ("calibration=[]", "calibration: cc is stored and stays in every table; name it too"),
    ("scoring.normalisation=sum", "scoring.normalisation: unknown key; did you mean normalization?"),
])  # fmt: skip
def test_what_is_no_analysis_is_refused(run: Run, change: str, problem: str) -> None:
    before = digests(Path(run.uri))
    with pytest.raises(InputError) as caught:
        reanalyse_run(run.uri, [change])
    assert problem in str(caught.value)
    assert digests(Path(run.uri)) == before


def test_suites_of_tasks_are_changed_on_what_is_stored(spec: SpecOf, tmp_path: Path) -> None:
    first = spec(0, 2, calibration=[]).model_dump()
    names = ["a_one", "a_two", "b_one"]
    for name in names:
        write_csv(tmp_path / f"{name}.csv", reviews(24, name))
    sets = [{**first["data"][0], "name": name, "train": str(tmp_path / f"{name}.csv"), "test": None} for name in names]
    of_three = LabelBiasSpec.model_validate({**first, "data": sets})
    run = run_spec(of_three, str(tmp_path / "run"), page=False)
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
        mean = "select n_demos, avg(accuracy) as accuracy, count(*) as n_tasks from label_bias_by_task_over_sets "
        mean += f"where task in {tasks} group by n_demos order by n_demos"
        assert_alike(rows(run, own), rows(run, mean))
        drawn = f"select draw, sum(n_drawn) as n from bootstrap_draws where suite = '{suite}' group by draw"
        assert {row["n"] for row in rows(run, drawn)} == {2}
    assert ">ones<" in run.read_text("report.html")
    # A spec with other suites is the same run.
    run_spec(of_three.model_copy(update={"suites": {"a": ["a_two", "a_one"]}}), run.uri, page=False)
    assert kept(run) == before
    found = rows(run, "select distinct suite from label_bias_by_model order by suite")
    assert [row["suite"] for row in found] == ["a", "all"]
