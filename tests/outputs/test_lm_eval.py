"""Samples that a real lm-evaluation-harness logged, of every sub-type of multiple choice, become what it measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.outputs.lm_eval import read_samples
from biaseval.runs import import_scores
from biaseval.store import Run
from tests.commands import Command
from tests.outputs.harness import copied, lines, reported_accuracy, samples

pytestmark = pytest.mark.slow

CLASSIFICATIONS = ("list", "text", "template", "digits", "mutual", "repeats", "filters")
WITH_OPTIONS = ("options", "inputs")
SUITE = (*CLASSIFICATIONS, *WITH_OPTIONS)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run of all tasks without demonstrations."""
    folder = tmp_path_factory.mktemp("suite") / "run"
    return import_scores("lm-eval", [samples("zero", task) for task in SUITE], str(folder), page=False).uri


def rows(run: str, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([run], sql).to_pylist()
    return found


def test_accuracy_is_what_the_harness_reported(suite: str) -> None:
    found = {row["task"]: row["accuracy"] for row in rows(suite, "from label_bias_by_task")}
    assert found == {task: reported_accuracy("zero", task) for task in SUITE}
    assert len({*found.values()}) > 1


def test_a_label_has_the_score_of_the_harness_and_says_that_it_is_the_sum_without_eos(suite: str) -> None:
    [first, *_] = lines(samples("zero", "text"))  # its choices are yes and no, in this order
    found = {row["label"]: row for row in rows(suite, "from label_logprobs where prompt_id = 'text/k0.s0/main/0'")}
    for label, (logprob, _) in zip(("yes", "no"), first["filtered_resps"], strict=True):
        assert found[label]["token_logprobs"] == [found[label]["logprob_sum_without_eos"]] == [float(logprob)]
        unknown = ("n_label_tokens", "logprob_sum", "logprob_mean", "logprob_mean_without_eos")
        assert [found[label][name] for name in unknown] == [None] * 4
    assert rows(suite, "select normalization, eos from run_settings") == [{"normalization": "sum", "eos": False}]


def test_docs_with_the_same_choices_have_these_as_labels_and_others_positions(suite: str) -> None:
    labels = {row["task"]: row["labels"] for row in rows(suite, "from tasks")}
    assert labels["list"] == labels["text"] == labels["mutual"] == ["no", "yes"]
    assert labels["digits"] == ["0", "1"]
    assert labels["options"] == ["A", "B", "C", "D"]
    assert labels["inputs"] == ["A", "B"]
    notes = Run.open(suite).read_json("plan.json")["notes"]
    for task in WITH_OPTIONS:
        assert any("positions, A the first" in note and task in note for note in notes)


def test_the_gold_label_is_the_target(suite: str) -> None:
    golds: dict[str, list[str]] = {}
    for row in rows(suite, "select task, gold from prompts order by task, row"):
        golds.setdefault(row["task"], []).append(row["gold"])
    reviews = [record["doc"]["answer"] for record in lines(samples("zero", "list"))]
    for task in CLASSIFICATIONS:
        expected = [{"no": "0", "yes": "1"}[answer] for answer in reviews] if task == "digits" else reviews
        assert golds[task] == expected
    assert golds["options"] == ["ABCD"[record["doc"]["answer"]] for record in lines(samples("zero", "options"))]
    # What is right of a doc with several inputs is not logged; of two it follows from the accuracy of the doc.
    assert golds["inputs"] == ["AB"[record["doc"]["answer"] - 1] for record in lines(samples("zero", "inputs"))]


def test_a_filter_that_gives_other_scores_and_equal_scores_are_said(tmp_path: Path) -> None:
    def other(record: dict[str, Any]) -> None:
        if record["filter"] == "vote" and record["doc_id"] < 2:
            record["filtered_resps"] = [["-9.0", "False"], ["-9.5", "False"]]
            record["acc"] = float(record["doc"]["label"] == 0)

    def equal(record: dict[str, Any]) -> None:
        record["filtered_resps"] = [["-9.0", "False"]] * 2
        record["acc"] = float(record["doc"]["label"] == 0)

    outputs = read_samples([copied(tmp_path, "zero", "filters", other)])
    said = "filters: the filter vote gives 2 docs other scores than first, which is the one that is measured."
    assert (said in outputs.notes, len(outputs.prompts)) == (True, 8)
    notes = read_samples([copied(tmp_path / "equal", "zero", "list", equal)]).notes
    [note] = [note for note in notes if "equally likely" in note]
    assert note.endswith("in the order of labels: 8 of list.")


def test_metrics_of_a_small_case_by_hand(tmp_path: Path) -> None:
    """Of eight docs the first two are predicted yes, all others no."""

    def change(record: dict[str, Any]) -> None:
        is_yes = record["doc_id"] < 2
        record["filtered_resps"] = [["-2.0", "False"], ["-1.0" if is_yes else "-3.0", "False"]]
        record["target"] = str(record["doc"]["label"])
        record["acc"] = float(is_yes == record["doc"]["label"])

    path = copied(tmp_path / "samples", "zero", "list", change)
    run = import_scores("lm-eval", [path], str(tmp_path / "run"), page=False).uri
    golds = [record["doc"]["label"] for record in lines(path)]
    hits = [sum(gold == label == (place < 2) for place, gold in enumerate(golds)) for label in (0, 1)]
    recalls = [hits[label] / golds.count(label) for label in (0, 1)]
    [found] = rows(run, "from label_bias_by_task")
    assert found["accuracy"] == sum(hits) / 8
    assert found["rsd"] == pytest.approx(abs(recalls[0] - recalls[1]) / 2 / (sum(hits) / 8))
    assert (found["bias_score"], found["n_bias_score_rows"], found["share_most_frequent"]) == (None, 0, 0.75)
    [first, *_] = rows(run, "from calibrated_predictions order by row")
    assert first["probabilities"] == pytest.approx([0.26894142, 0.73105858])


def test_models_are_compared_on_the_docs_that_both_have(tmp_path: Path, command: Command) -> None:
    def worse(record: dict[str, Any]) -> None:
        record["filtered_resps"] = [["-1.0", "False"], ["-2.0", "False"]]
        record["acc"] = float(record["doc"]["label"] == 0)

    other = copied(tmp_path / "samples", "zero", "list", worse, lambda found: found.update(model_name="other/model"))
    runs = [str(tmp_path / name) for name in ("first", "second")]
    for run, file in zip(runs, (samples("zero", "list"), other), strict=True):
        assert command("import", "lm-eval", str(file), "--run-dir", run).code == 0
    found = command("compare", *runs)
    assert (found.code, "8 rows" in found.out) == (0, True), found.err
    asked = "from label_bias_comparison where metric = 'accuracy' and run = 'first'"
    [difference] = query(runs, f"select label_bias_comparison.*, (from (select list(model order by model) from "
                               f"label_bias_by_task)) as models {asked}").to_pylist()  # fmt: skip
    no = sum(record["doc"]["label"] == 0 for record in lines(other)) / 8
    assert difference["estimate"] == pytest.approx(no - reported_accuracy("zero", "list"))
    assert difference["models"] == ["model", "tiny"]


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.pop(key)


def _with(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.update(values)


REFUSED: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("list", _without("filtered_resps"), "line 1: has no filtered_resps; is no sample that lm_eval --log_samples"),
    ("list", _with(arguments=[["a", "b"]]), "line 1: arguments hold no pairs of context"),
    ("list", _with(filtered_resps=["yes"]), "line 1: filtered_resps hold no log-likelihoods"),
    ("list", _with(filtered_resps=[{"a": 1}] * 2), "line 1: filtered_resps hold no log-likelihoods"),
    ("list", _with(filtered_resps=[["-1", "False"]]), "has 2 arguments and 1 filtered_resps"),
    ("list", _with(filtered_resps=[["-inf", "a"]] * 2), "hold -inf, which is no log-likel"),
    ("list", _with(doc={}, target="7"), "line 1: target '7' is none of the choices"),
    ("list", _with(acc=0.37), "line 1: acc 0.37 does not follow from its target"),
    ("list", _with(doc_id=0), "line 2: doc 0 stands there twice, first at .*line 1; log it"),
    ("inputs", _without("acc"), "line 1: target '.*' does not tell which of the choices .* is right"),
]


@pytest.mark.parametrize(("task", "change", "message"), REFUSED)
def test_unusable_docs_are_refused(
    task: str, change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        read_samples([copied(tmp_path, "zero", task, change)])


@pytest.mark.parametrize(("task", "message"), [
    ("targets", r"line 2: target \[\d, \d\] names several right choices; label bias needs one gold label"),
    ("generate", "generate is a task of the type generate_until: it has the model write text"),
    ("loglikelihood", "is a task of the type loglikelihood: it scores one continuation of a doc"),
    ("rolling", "is a task of the type loglikelihood_rolling: it measures perplexity"),
])  # fmt: skip
def test_tasks_without_one_gold_label_are_refused(task: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"samples_{task}_.*\.jsonl: .*{message}"):
        read_samples([samples("zero", task)])


def test_a_task_scored_by_a_function_of_its_own_is_refused(tmp_path: Path) -> None:
    own = {"process_results": "def process_results(doc, results): ..."}
    path = copied(tmp_path, "zero", "list", _without("acc"), lambda found: found["configs"]["list"].update(own))
    with pytest.raises(InputError, match="has no acc, and the task is scored by a function of its own"):
        read_samples([path])


def test_files_of_another_model_are_refused_naming_both(tmp_path: Path) -> None:
    other = copied(tmp_path, "zero", "text", change_results=lambda found: found.update(model_name="other"))
    first = samples("zero", "list")
    with pytest.raises(InputError) as raised:
        read_samples([first, other])
    expected = (
        f"{other} and {first}: the model is 'other' and 'tiny'; import each as a run of its own, then biaseval compare"
    )
    assert str(raised.value) == expected
    with pytest.raises(InputError, match="the model is 'tiny-chat' and 'tiny'"):
        read_samples([first, samples("chat", "list")])


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    stray = copied(tmp_path / "stray", "zero", "list")
    [results_path] = stray.parent.glob("results_*")
    results_path.rename(results_path.with_name(results_path.name.replace("results_", "mine_")))
    assert len(read_samples([stray]).prompts) == 8  # as with an --output_path that is a file
    next(stray.parent.glob("mine_*")).unlink()
    with pytest.raises(InputError, match=r"results_.*\.json is not beside it, which says the model"):
        read_samples([stray])
    with pytest.raises(InputError, match=r"is not called samples_TASK_DATE\.jsonl"):
        read_samples([tmp_path / "other.jsonl"])
    with pytest.raises(InputError, match="is no file; check the path"):
        read_samples([tmp_path / "samples_x_2026-01-01T00-00-00.jsonl"])
    twice = copied(tmp_path / "twice", "zero", "list")
    with pytest.raises(InputError, match="both are list with n-shot 0 and the same few-shot seed; name one of them"):
        read_samples([samples("zero", "list"), twice])
    for key in ("n-shot", "model_name"):
        broken = copied(tmp_path / key, "zero", "list", change_results=_without(key))
        with pytest.raises(InputError, match=rf"has no {key}, which lm_eval 0\.4\.13 writes"):
            read_samples([broken])
    cut = copied(tmp_path / "cut", "zero", "list")
    [results_path] = cut.parent.glob("results_*")
    results_path.write_text(results_path.read_text()[:-5])
    with pytest.raises(InputError, match=r"results_.*\.json: line \d+, column \d+: is not JSON \(.*\); copy it again"):
        read_samples([cut])
    foreign = copied(tmp_path / "foreign", "zero", "list", change_results=lambda found: found["configs"].pop("list"))
    with pytest.raises(InputError, match=r"configs has no list, which samples_list_.* is of"):
        read_samples([foreign])


def test_options_of_many_numbers_are_refused(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        n_choices = 2 + record["doc_id"] % 3
        record["arguments"] = dict(list(record["arguments"].items())[:n_choices])
        record["filtered_resps"] = record["filtered_resps"][:n_choices]
        record["doc"]["answer"] = 0
        record.pop("acc")

    with pytest.raises(InputError, match="options: docs have choices of their own, and 3 of 8 have 2: positions are"):
        read_samples([copied(tmp_path, "zero", "options", change)])


def test_mistakes_exit_with_2_and_write_nothing(tmp_path: Path, command: Command) -> None:
    run = tmp_path / "run"
    found = command("import", "lm-eval", str(samples("zero", "targets")), "--run-dir", str(run))
    assert (found.code, found.out) == (2, "")
    assert "4 problems:\n  - " in found.err
    assert not run.exists()
    named = ["import", "lm-eval", str(samples("zero", "list")), "--run-dir", str(run), "--name", "a b"]
    assert "--name a b: use letters, digits" in command(*named).err
