"""Runs that grow: analysis changes on what is stored, additions make what is missing, and the rest keeps its bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.analysis import query
from biaseval.errors import BiasevalError, InputError
from biaseval.pipelines import reanalyse_run, run_spec, run_status
from biaseval.pipelines.directory import read_plan
from biaseval.pipelines.run import planned_run
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec, QaBiasSpec, grown_keys, load_spec
from biaseval.store import Run
from tests.commands import call
from tests.label_bias.test_lm_eval_tasks import write as write_task
from tests.label_bias.test_own_data import reviews, spec_of, write_csv
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.test_pipelines import digests

pytestmark = pytest.mark.usefixtures("here")

TABLES = ("prompts", "contexts", "splits", "tasks", "label_scores", "settings", "qa_examples", "qa_attributes")


def kept(run: Run) -> dict[str, str]:
    """Return the digests of what is planned and made."""
    return {name: digest for name, digest in digests(Path(run.uri)).items() if name.startswith(TABLES)}


def rows(run: Run, question: str) -> list[dict[str, Any]]:
    return [
        {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}
        for row in query([run.uri], question).to_pylist()
    ]


@pytest.fixture(scope="module")
def csv_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(30))
    write_csv(folder / "test.csv", reviews(20, "other"))
    return folder


def own_spec(folder: Path, model: Path, *, prompt: dict[str, Any], **changes: Any) -> LabelBiasSpec:
    return spec_of(
        folder,
        model={"path": str(model)},
        data={"test": str(folder / "test.csv")},
        prompt={"demo_sets": 1, **prompt},
        **changes,
    )


@pytest.fixture(scope="module")
def finished(csv_folder: Path, tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of one number of demonstrations."""
    from tests.inprocess import in_this_process

    folder = tmp_path_factory.mktemp("runs") / "run"
    with in_this_process():
        run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), str(folder))
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """Return a copy of the finished run, of the test's own."""
    shutil.copytree(finished, tmp_path / "run")
    return Run.open(str(tmp_path / "run"))


def test_more_demonstrations_sets_and_methods_make_only_what_is_missing(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept(run)
    first = yaml.safe_load(run.read_text("spec.yaml"))
    prompt = {"n_demos": [0, 2, 3], "demo_sets": 2}
    more = own_spec(csv_folder, tiny_llama, prompt=prompt, calibration=["cc", "dc", "looc"])
    run_spec(more, run.uri)
    n_before = sum(row["n"] for row in [{"n": part["n_prompts"]} for part in read_plan(run)["parts"]])
    fresh = run_spec(more, str(tmp_path / "fresh"))
    assert n_before == sum(part["n_prompts"] for part in read_plan(fresh)["parts"])
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert f"of {n_before:,} rows are scored" in capsys.readouterr().err
    # The numbers are those of a run that was asked for all of it at once.
    for question in (
        "from label_bias_by_task order by all",
        "select prompt_id, context_id, labels, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, text, demo_ids from contexts order by context_id",
        "select n_demos, method, metric, estimate, verdict from label_bias_verdicts order by all",
    ):
        assert rows(run, question) == rows(fresh, question)
    assert yaml.safe_load(run.read_text("specs/00000.yaml")) == first
    assert run_status(run.uri).is_complete
    # The same again changes nothing, and the first spec is now another.
    run_spec(more, run.uri)
    assert kept(run) == after
    with pytest.raises(InputError, match=r"belongs to another spec; choose another directory"):
        run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)


@pytest.mark.slow
def test_a_format_is_added_and_what_was_there_says_the_same(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    def spec(n_demos: Sequence[int], **formats: Any) -> LabelBiasSpec:
        prompt = {"n_demos": list(n_demos), "formats": formats}
        return own_spec(csv_folder, tiny_llama, prompt=prompt, calibration=["cc"])

    terse, back = {"item": "{input} => {label}", "separator": "\n"}, {"order": "reversed"}
    before, marts = kept(run), {name: run.read_bytes(name) for name in run.files("marts")}
    n_before = sum(part["n_prompts"] for part in read_plan(run)["parts"])
    run_spec(spec([0, 2], terse=terse), run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert sum(part["n_prompts"] for part in read_plan(run)["parts"]) == 2 * n_before
    changed = {name for name, content in marts.items() if run.read_bytes(name) != content}
    assert {name.removeprefix("marts/label_bias_format_") for name in changed} == {
        "marts/label_bias_by_format.parquet",
        "changes.parquet",
        "labels.parquet",
        "spread.parquet",
    }
    more = spec([0, 2, 3], terse=terse, back=back)
    run_spec(more, run.uri)
    assert {name: kept(run)[name] for name in after} == after
    fresh = run_spec(more, str(tmp_path / "fresh"))
    for question in (
        "select prompt_id, context_id, format, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, format, text, demo_ids from contexts order by context_id",
        "from label_bias_by_task order by all",
        "from label_bias_by_format order by all",
        "from label_bias_format_spread order by all",
    ):
        assert rows(run, question) == rows(fresh, question)
    counted = "select format, count(*) as n from prompts group by format order by format"
    assert [row["format"] for row in rows(run, counted)] == ["back", "base", "terse"]
    with pytest.raises(InputError, match=r"prompt\.formats"):
        run_spec(spec([0, 2, 3], terse={**terse, "separator": "\n\n"}, back=back), run.uri)


@pytest.mark.slow
def test_a_killed_addition_is_begun_again(run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path) -> None:
    more = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2, 4]}, calibration=["cc"])
    with planned_run(more, run.uri):
        pass  # planned, and killed before anything was scored
    assert not run_status(run.uri).is_complete
    planned = read_plan(run)
    # Killed earlier: parts are written, the plan is not.
    shutil.copytree(run.uri, tmp_path / "killed")
    killed = Run.open(str(tmp_path / "killed"))
    first = {**planned, "parts": planned["parts"][:1], "n_parts": 1}
    killed.write_json("plan.json", first)
    killed.write_text("spec.yaml", killed.read_text("specs/00000.yaml"))
    killed.delete("specs")
    for one in (run, killed):
        run_spec(more, one.uri)
    assert kept(killed) == kept(run)
    question = "from label_bias_by_task order by all"
    assert rows(killed, question) == rows(run, question)


def test_a_killed_addition_that_is_not_repeated_leaves_the_run_as_it_was(
    run: Run, csv_folder: Path, tiny_llama: Path
) -> None:
    before = kept(run)
    prompts = run.read_part("prompts", 0)
    run.write_part("prompts", 7, prompts.slice(0, 1))
    run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)
    assert kept(run) == before


def test_what_would_change_rows_that_are_there_is_refused(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    small = spec_of(csv_folder, model={"path": str(tiny_llama)}, prompt={"n_demos": [0, 2], "demo_sets": 1})
    run_spec(small, str(tmp_path / "small"))
    before = kept(Run.open(str(tmp_path / "small")))
    large = small.model_copy(update={"prompt": small.prompt.model_copy(update={"n_demos": [0, 2, 4]})})
    with pytest.raises(InputError, match=r"tasks would have other rows than it has, .* takes test rows"):
        run_spec(large, str(tmp_path / "small"))
    assert kept(Run.open(str(tmp_path / "small"))) == before
    for changes, said in (
        ({"prompt": {"n_demos": [0, 4]}}, "prompt.n_demos: the run has [0, 2], the spec [0, 4]"),
        ({"prompt": {"n_demos": [0, 2, 4]}, "seed": 7}, "seed: the run has 42, the spec 7"),
    ):
        with pytest.raises(InputError) as caught:
            run_spec(own_spec(csv_folder, tiny_llama, calibration=["cc"], **changes), run.uri)
        assert said in str(caught.value)


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
    assert rows(back, "from label_bias_by_task order by all") == old
    assert sorted(run.files("specs")) == ["specs/00000.yaml", "specs/00001.yaml"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
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
    assert rows(run, "from label_bias_by_task order by all") == first
    assert kept(run) == before
    run_spec(spec(0, 2), run.uri)
    assert "are going to be" not in capsys.readouterr().err
    # More may be asked for at once.
    run_spec(spec(0, 2, 3, scoring={"normalization": "sum"}), run.uri)
    assert "scoring.normalization: the run has 'mean', the spec 'sum'" in capsys.readouterr().err
    shared = "from label_bias_by_task where n_demos < 3 order by all"
    assert rows(run, shared) == summed
    # What is neither is refused with all that differs.
    with pytest.raises(InputError) as caught:
        run_spec(spec(0, 2, 3, seed=7), run.uri)
    assert "seed: the run has 42, the spec 7" in str(caught.value)
    assert "scoring.normalization: the run has 'sum', the spec 'mean'" in str(caught.value)
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
    assert rows(run, "from label_bias_by_model where suite = 'all' order by all") == whole
    # The mean over a suite is that over its tasks.
    for suite, tasks in (("a", "('a_one', 'a_two')"), ("ones", "('a_one', 'b_one')")):
        own = f"select n_demos, accuracy, n_tasks from label_bias_by_model where suite = '{suite}' order by n_demos"
        mean = f"""
            select n_demos, avg(accuracy) as accuracy, count(*) as n_tasks
            from label_bias_by_task_over_sets where task in {tasks} group by n_demos order by n_demos
        """
        assert rows(run, own) == rows(run, mean)
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


def test_data_sets_are_added_behind_those_that_are_there(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    first = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2, 3]}, calibration=["cc"])
    run_spec(first, run.uri)  # so that a part of contexts has the number that a second task would have
    before = kept(run)
    content = first.model_dump()
    second = {**content["data"][0], "name": "again", "train": content["data"][0]["test"], "test": None}
    write_csv(csv_folder / "more.csv", reviews(24, "more"))
    second["train"] = str(csv_folder / "more.csv")
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], second]})
    run_spec(two, run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert rows(run, "select distinct task from label_bias_by_task order by task") == [
        {"task": "again"},
        {"task": "reviews"},
    ]
    turned = LabelBiasSpec.model_validate({**content, "data": [second, *content["data"]]})
    with pytest.raises(InputError, match=r"belongs to another spec|would have other rows"):
        run_spec(turned, run.uri)


def test_a_task_of_the_harness_is_added_and_stays_what_it_was(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    (tmp_path / "tasks").mkdir()
    content = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]).model_dump()
    task = {"lm_eval": str(write_task(tmp_path / "tasks"))}
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], task]})
    before = kept(run)
    run_spec(two, run.uri)
    assert {name: kept(run)[name] for name in before} == before
    assert {"task": "odd-even"} in rows(run, "select distinct task from label_bias_by_task")
    run_spec(two, run.uri)
    write_task(tmp_path / "tasks", question="another?")
    with pytest.raises(InputError, match=r"odd-even\.yaml: the file, or one that it names, changed since"):
        run_spec(two, run.uri)


def test_a_refused_addition_leaves_nothing_behind(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    before = digests(Path(run.uri))
    content = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]).model_dump()
    write_csv(csv_folder / "few.csv", reviews(12, "few"))
    second = {**content["data"][0], "name": "again", "train": str(csv_folder / "few.csv"), "test": None}
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], second]})
    with pytest.raises(InputError, match=r"has 12 rows that can be used"):
        run_spec(two, run.uri)
    assert digests(Path(run.uri)) == before
    write_csv(csv_folder / "few.csv", reviews(24, "few"))
    run_spec(two, run.uri)
    assert len(rows(run, "from tasks")) == 2


def test_a_killed_addition_of_a_data_set_is_swept(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    before = kept(run)
    for table in ("tasks", "splits", "contexts", "prompts"):
        run.write_part(table, 1, run.read_part(table, 0))
    run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)
    assert kept(run) == before


@pytest.mark.slow
def test_seeds_and_methods_are_added_to_a_run_of_majority_bias(tiny_llama: Path, tmp_path: Path) -> None:
    for role, prefix in (("train", "dog"), ("test", "cat")):
        write_jsonl(tmp_path / f"{role}.jsonl", boolq_rows(prefix, 8, 8))

    def spec(**changes: Any) -> MajorityBiasSpec:
        return boolq_spec(
            tmp_path,
            model={"path": str(tiny_llama)},
            prompt={"n_demos": 2, "instruction": [False]},
            proportions=[{"True": 0.5, "False": 0.5}, {"True": 1.0}],
            predict=["likelihood"],
            **changes,
        )

    run = run_spec(spec(seeds=[0]), str(tmp_path / "run"))
    before = kept(run)
    more = spec(seeds=[0, 3], calibration=["cc"])
    run_spec(more, run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    fresh = run_spec(more, str(tmp_path / "fresh"))
    for question in (
        "select setting, method, weighted_f1, n_rows from majority_by_setting order by all",
        "select prompt_id, input_text from prompts order by prompt_id",
    ):
        assert rows(run, question) == rows(fresh, question)


def _questions(folder: Path) -> None:
    lines = []
    for number in range(60):
        context = f"The mill of town {number} is old. " + "It has a roof. " * (number % 4)
        context += f"Its owner is Ann {number}."
        answer = f"Ann {number}"
        answers = {"text": [answer], "answer_start": [context.index(answer)]}
        question = {"id": f"q{number}", "question": f"Who owns the mill of town {number}?", "context": context}
        lines.append(json.dumps({**question, "answers": answers}))
    (folder / "dev.jsonl").write_text("\n".join(lines))
    for name, every in (("a", 2), ("b", 3), ("c", 4)):
        said = {f"q{number}": f"Ann {number}" if number % every else "Bo" for number in range(60)}
        (folder / f"{name}.json").write_text(json.dumps(said))


def _qa_spec(folder: Path, models: Sequence[str], heuristics: Sequence[str]) -> QaBiasSpec:
    content = {
        "kind": "qa_bias",
        "name": "mills",
        "models": [{"name": name, "predictions": {"dev": f"{name}.json"}} for name in models],
        "datasets": {"in_distribution": {"dev": "dev.jsonl"}},
        "heuristics": list(heuristics),
        "bootstrap": {"trials": 20, "sample": 10},
        "execution": {"part_rows": 25},
    }
    (folder / "qa.yaml").write_text(yaml.safe_dump(content))
    spec = load_spec(folder / "qa.yaml")
    assert isinstance(spec, QaBiasSpec)
    return spec


@pytest.mark.slow
def test_models_and_heuristics_are_added_to_a_run_of_qa_bias(tmp_path: Path) -> None:
    _questions(tmp_path)
    run = run_spec(_qa_spec(tmp_path, "a", ["word_dist"]), str(tmp_path / "run"))
    before = kept(run)
    more = _qa_spec(tmp_path, "ab", ["word_dist", "ans_pos", "cos_sim"])
    run_spec(more, run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert len(run.parts("qa_attributes")) == 6
    # Killed between the environment and the spec, it is repeated.
    (tmp_path / "run" / "spec.yaml").write_bytes((tmp_path / "run" / "specs" / "00000.yaml").read_bytes())
    run_spec(more, run.uri)
    assert run.files("specs") == {"specs/00000.yaml"}
    assert kept(run) == after
    fresh = run_spec(more, str(tmp_path / "fresh"))
    for question in (
        "from qa_bias_by_heuristic order by all",
        "from qa_attributes order by all",
        "from qa_bias_tests order by all",
    ):
        assert rows(run, question) == rows(fresh, question)
    with pytest.raises(InputError, match=r"models: a, b of .* must stay the first"):
        run_spec(_qa_spec(tmp_path, "cab", ["word_dist", "ans_pos", "cos_sim"]), run.uri)
    before = digests(Path(run.uri))
    with pytest.raises(InputError, match=r"bootstrap.sample: 5000 of each of two groups need 10,000 questions"):
        reanalyse_run(run.uri, ["bootstrap.sample=5000"])
    assert digests(Path(run.uri)) == before
    anew = reanalyse_run(run.uri, ["thresholds={ans_pos: 1}", "bootstrap.trials=30"])
    assert {row["threshold"] for row in rows(anew, "from qa_bias_by_heuristic where heuristic = 'ans_pos'")} == {1.0}
    assert kept(run) == after


def test_what_is_trained_is_planned_once(csv_folder: Path, tiny_llama: Path) -> None:
    small = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0]})
    large = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]})
    assert grown_keys(small, large) == ["prompt.n_demos"]
    assert grown_keys(large, small) == []
    lora = LabelBiasSpec.model_validate({**large.model_dump(), "lora": {}})
    assert grown_keys(LabelBiasSpec.model_validate({**small.model_dump(), "lora": {}}), lora) == []
