"""`biaseval compare`: what runs share, how they differ, and what that may be called, against NumPy and by hand."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import N_LISTED, compare_runs
from biaseval.errors import BiasevalError, InputError
from biaseval.report import write_comparison
from biaseval.report.compare_page import render_compare_page, write_compared
from biaseval.report.compare_tables import matrix, overview
from biaseval.report.compare_tables import test_lines as lines_of_tests
from biaseval.report.compare_words import VERDICTS, caveats, sentences
from biaseval.store import Run
from tests.commands import call
from tests.measuring import measure
from tests.specs import write_plan
from tests.test_analysis import Plan
from tests.test_majority_comparisons import LARGE
from tests.test_majority_sql import ANSWERS, GOLD, MajorityPlan
from tests.test_qa_sql import QaPlan
from tests.test_report import Page

Rows = list[dict[str, Any]]
Array = npt.NDArray[np.float64]

GOLDS = "aaabbbab"
"""The gold labels of the main rows of each task."""


def label_plan(hits: Mapping[str, str], n_demos: Sequence[int] = (0,), golds: str = GOLDS) -> Plan:
    """Return a run whose predictions are right (1) or wrong (0) on the main rows of each task."""
    plan = Plan()
    for task, right in hits.items():
        plan.task(task, ["a", "b"])
        for number in n_demos:
            for gold, hit in zip(golds * (len(right) // len(golds)), right, strict=True):
                p = 0.9 if (gold == "a") == (hit == "1") else 0.1
                plan.probabilities(task, "main", gold, [p, 1 - p], n_demos=number)
            for gold in "aabb":
                plan.probabilities(task, "bias_score", gold, [0.8, 0.2], n_demos=number)
    for row in plan.prompts:
        row["input_text"] = f"Input:  {row['instance_id']}\nOutput:"
    return plan


def make(plan: Plan | MajorityPlan | QaPlan, folder: Path) -> str:
    run = plan.write(folder)
    measure(run)
    return run


HITS = {
    "task1": ("11110000", "11111100"),
    "task2": ("11110000", "11111110"),
    "task3": ("11111100", "11111110"),
    "task4": ("11000000", "11110011"),
    "task5": ("11110001", "11111101"),
    "task6": ("10110000", "11011010"),
    "task7": ("11110000", "11110100"),
}
"""Of seven tasks, in which rows the first and the other run are right: the other always more often."""


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make(label_plan({task: hits[side] for task, hits in HITS.items()}), folder / name)
        for side, name in enumerate(("first", "other"))
    ]


def compared_rows(runs: Sequence[str], kind: str = "label_bias", where: str = "true") -> Rows:
    found: Rows = query(runs, f"from {kind}_comparison where {where} order by all").to_pylist()
    return found


def flipped(values: Array, signs: Array) -> Array:
    """Return the statistic of each pattern of signs: |mean| over the root of the mean square, times sqrt(n)."""
    squares = np.sqrt((values**2).sum())
    return np.round(np.abs(signs @ values) / squares, 9) if squares > 0 else np.zeros(len(signs))


# Label bias, by task


def test_differences_of_tasks_are_tested_by_all_patterns_of_signs(labels: list[str]) -> None:
    by_task = {
        run: {row["task"]: row for row in query([run], "from label_bias_by_task_over_sets").to_pylist()}
        for run in labels
    }
    metrics = ("macro_f1", "accuracy", "rsd", "bias_score")
    differences = {
        metric: np.array([by_task[labels[1]][task][metric] - by_task[labels[0]][task][metric] for task in HITS])
        for metric in metrics
    }
    assert differences["accuracy"] == pytest.approx(np.array([2, 3, 1, 4, 2, 2, 1]) / 8)
    signs = np.array(list(product((1, -1), repeat=7)), dtype=float)
    statistics = {metric: flipped(values, signs) for metric, values in differences.items()}
    largest = np.max(list(statistics.values()), axis=0)
    found = {row["metric"]: row for row in compared_rows(labels, where="run = 'first'")}
    assert found.keys() == set(metrics)
    for metric, values in differences.items():
        row = found[metric]
        assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["other_value"] - row["value"] == pytest.approx(values.mean(), abs=1e-12)
        assert row["standard_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(7), abs=1e-9)
        assert row["p"] == pytest.approx(np.mean(statistics[metric] >= statistics[metric][0]))
        assert row["p_adjusted"] == pytest.approx(np.mean(largest >= statistics[metric][0]))
        assert row["smallest_detectable"] == pytest.approx(2.8 * row["standard_error"])
        assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("task", 7, 7, 56)
    # All seven differences have one sign: two of 128 patterns are as extreme.
    assert found["accuracy"]["p"] == 2 / 128
    assert found["accuracy"]["verdict"] == "higher"
    assert found["bias_score"]["verdict"] == "negligible"  # equal in both


def test_both_directions_say_the_same(labels: list[str]) -> None:
    own, back = (compared_rows(labels, where=f"run = '{run}'") for run in ("first", "other"))
    assert len(own) == len(back) == 4
    for row, other in zip(own, back, strict=True):
        assert other["estimate"] == -row["estimate"]
        assert (other["low"], other["high"]) == (-row["high"], -row["low"])
        assert (other["simultaneous_low"], other["simultaneous_high"]) == (
            -row["simultaneous_high"],
            -row["simultaneous_low"],
        )
        assert (other["value"], other["other_value"]) == (row["other_value"], row["value"])
        assert (other["p"], other["p_adjusted"]) == (row["p"], row["p_adjusted"])
        opposite = {"higher": "lower", "lower": "higher"}
        assert other["verdict"] == opposite.get(row["verdict"], row["verdict"])


def test_a_run_and_its_copy_are_not_told_apart(labels: list[str], tmp_path: Path) -> None:
    shutil.copytree(labels[0], tmp_path / "copy")
    compared = compare_runs([labels[0], str(tmp_path / "copy")])
    assert {row["verdict"] for row in compared.tests} == {"negligible"}
    assert {(row["estimate"], row["p_adjusted"]) for row in compared.tests} == {(0, 1)}
    assert (compared.wins, compared.disagreements, compared.facts) == ([], [], [])
    assert "0 of 4 comparisons told apart. 4 negligible (below 0.01)." in " ".join(sentences(compared))


def test_rows_that_only_one_has_right_are_listed_and_counted(labels: list[str]) -> None:
    compared = compare_runs(labels)
    expected = {
        (task, row): (right == "0")
        for task, hits in HITS.items()
        for row, (right, other) in enumerate(zip(*hits, strict=True))
        if right != other
    }
    found = {(row["task"], row["row"]): row for row in compared.disagreements}
    assert {place: row["is_win"] for place, row in found.items()} == expected
    for (task, number), row in found.items():
        assert row["gold"] == GOLDS[number]
        assert (row["other_prediction"] == row["gold"]) is row["is_win"]
        assert row["prediction"] != row["other_prediction"]
        assert row["input"] == f"Input: {task}-main-{number} Output:"
    [wins] = compared.wins
    assert (wins["n_wins"], wins["n_losses"]) == (sum(expected.values()), len(expected) - sum(expected.values()))
    order = [row["shuffled"] for row in compared.disagreements]
    assert order == sorted(order)


def test_more_methods_and_settings_make_one_family(tmp_path: Path) -> None:
    """The same differences at two numbers of demonstrations add nothing that could be larger."""
    runs = [
        make(label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2)), tmp_path / name)
        for side, name in enumerate(("first", "other"))
    ]
    found = compared_rows(runs, where="run = 'first' and metric = 'accuracy'")
    assert [row["n_demos"] for row in found] == [0, 2]
    assert len({row["p_adjusted"] for row in found}) == 1
    compared = compare_runs(runs)
    assert {row["n_demos"] for row in compared.disagreements} == {2}
    assert [(row["n_demos"], row["n_wins"]) for row in compared.wins] == [(2, 16)]


# Label bias, by row


def test_with_few_tasks_the_units_are_rows_whose_mean_is_that_over_tasks(tmp_path: Path) -> None:
    """Two tasks, one of 8 and one of 24 rows: each counts half."""
    sides = (
        {"small": "11110000", "large": "111100001111000010100000"},
        {"small": "11111110", "large": "111111001111110011111100"},
    )
    runs = [make(label_plan(hits), tmp_path / name) for hits, name in zip(sides, ("first", "other"), strict=True)]
    [row] = compared_rows(runs, where="run = 'first' and metric = 'accuracy'")
    values = []
    for task in ("large", "small"):
        first, other = (np.array([hit == "1" for hit in side[task]], dtype=float) for side in sides)
        values.append((other - first) * 32 / (2 * len(first)))
    units = np.concatenate(values)
    expected = ((7 - 4) / 8 + (18 - 10) / 24) / 2
    assert units.mean() == pytest.approx(expected)
    assert row["estimate"] == pytest.approx(expected, abs=1e-12)
    assert row["other_value"] - row["value"] == pytest.approx(expected, abs=1e-12)
    assert row["standard_error"] == pytest.approx(units.std(ddof=1) / np.sqrt(32), abs=1e-9)
    assert (row["unit"], row["n_units"], row["n_tasks"], row["n_rows"]) == ("row", 32, 2, 32)
    compared = compare_runs(runs)
    assert "the units of the tests are rows" in " ".join(caveats(compared))
    assert " of 4 comparisons told apart on these tasks." in " ".join(sentences(compared))
    words = {row["metric"]: row["word"] for row in lines_of_tests(compared)}
    assert words["accuracy"] == f"{VERDICTS[row['verdict']]} on these tasks"
    assert f"{words['accuracy']}</td>" in render_compare_page(compared)
    assert {row["metric"] for row in compared_rows(runs)} == {"macro_f1", "accuracy", "rsd", "bias_score"}


# Label bias, the guard


def _named(labels: list[str]) -> Plan:
    return label_plan({task: hits[1] for task, hits in HITS.items()})


def _other_gold(plan: Plan) -> None:
    for row in plan.prompts:
        if (row["task"], row["purpose"], row["row"]) == ("task7", "main", 3):
            row["gold"] = "a"


def _other_instance(plan: Plan) -> None:
    for row in plan.prompts:
        if (row["task"], row["purpose"], row["row"]) == ("task7", "main", 3):
            row["instance_id"] = "another"


def _fewer_rows(plan: Plan) -> None:
    dropped = {row["prompt_id"] for row in plan.prompts if (row["task"], row["row"]) == ("task7", 7)}
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in dropped]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in dropped]


@pytest.mark.parametrize("change", [_other_gold, _other_instance, _fewer_rows])
def test_a_task_with_other_rows_is_left_out_and_named(
    change: Callable[[Plan], None], labels: list[str], tmp_path: Path
) -> None:
    plan = _named(labels)
    change(plan)
    changed = make(plan, tmp_path / "changed")
    compared = compare_runs([labels[0], changed])
    pair = compared.pair("first", "changed")
    assert (pair["n_tasks"], pair["n_rows"], pair["differing_tasks"]) == (6, 48, ["task7"])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert (row["n_units"], row["estimate"]) == (6, pytest.approx((2 + 3 + 1 + 4 + 2 + 2) / 8 / 6))
    assert "changed against first: left out, with other rows or labels in each: task7." in caveats(compared)
    assert "task7" not in {row["task"] for row in compared.disagreements}


def _other_seed(plan: Plan) -> None:
    plan.spec["seed"] = 43


def _other_scoring(plan: Plan) -> None:
    plan.spec["scoring"] = {"normalization": "sum", "eos": True}


def _other_context(plan: Plan) -> None:
    plan.contexts[0]["text"] = "Here is another example."


def _other_input(plan: Plan) -> None:
    plan.prompts[0]["input_text"] = "Q: written otherwise"


def _more_settings(plan: Plan) -> None:
    more = _named([])
    twice = label_plan({task: hits[1] for task, hits in HITS.items()}, n_demos=(0, 2))
    assert len(more.prompts) * 2 == len(twice.prompts)
    plan.prompts, plan.contexts, plan.label_scores = twice.prompts, twice.contexts, twice.label_scores


def _another_task(plan: Plan) -> None:
    extra = label_plan({"task8": "11110000"})
    plan.tasks += extra.tasks
    plan.prompts += extra.prompts
    plan.contexts += extra.contexts
    plan.label_scores += extra.label_scores


@pytest.mark.parametrize(
    ("change", "column", "said"),
    [
        (_other_seed, "has_same_seed", "other seeds in the specs"),
        (_other_scoring, "has_same_scoring", "scored in another way"),
        (_other_context, "has_same_contexts", "other demonstrations or another text"),
        (_other_input, "has_same_inputs", "written otherwise in the prompt"),
        (_more_settings, "has_same_n_demos", "other numbers of demonstrations"),
        (_another_task, None, "left out, in one of the two only: task8"),
    ],
)
def test_what_runs_do_not_share_is_named(
    change: Callable[[Plan], None], column: str | None, said: str, labels: list[str], tmp_path: Path
) -> None:
    plan = _named(labels)
    change(plan)
    changed = make(plan, tmp_path / "changed")
    compared = compare_runs([labels[0], changed])
    pair = compared.pair("first", "changed")
    met = {name: value for name, value in pair.items() if name.startswith("has_same")}
    assert met == {**dict.fromkeys(met, True), **({column: False} if column else {})}
    assert [caveat for caveat in caveats(compared) if said in caveat], caveats(compared)
    assert len(compared.tests) == 2 * 4
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)


def test_means_are_over_the_demonstration_sets_that_both_have(labels: list[str], tmp_path: Path) -> None:
    plan = _named(labels)
    second = label_plan(dict.fromkeys(HITS, "00000000"))
    for rows in (second.prompts, second.contexts):
        for row in rows:
            row["demo_set"] = 1
            row["context_id"] += "/1"
    for row in (*second.prompts, *second.label_scores):
        row["prompt_id"] += "/1"
    for name in ("prompts", "contexts", "label_scores"):
        getattr(plan, name).extend(getattr(second, name))
    more = make(plan, tmp_path / "more")
    compared = compare_runs([labels[0], more])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)  # and not what all wrong answers of the second set make of it
    assert compared.pair("first", "more")["has_same_sets"] is False
    assert [caveat for caveat in caveats(compared) if "other demonstration sets" in caveat]


def test_specs_and_environments_are_compared_key_by_key(labels: list[str], tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(labels[0], changed)
    Run.open(str(changed)).write_text(
        "environment.json", json.dumps({"versions": {"torch": "2.9"}, "model": {"digest": "abc", "model": {}}})
    )
    spec = (changed / "spec.yaml").read_text()
    (changed / "spec.yaml").write_text(spec.replace("path: models/tiny", "path: models/other"))
    facts = {row["fact"]: row["values"] for row in compare_runs([labels[0], str(changed)]).facts}
    assert facts == {
        "spec.model.path": {"first": "models/tiny", "changed": "models/other"},
        "versions.torch": {"first": None, "changed": "2.9"},
        "fingerprint.model": {"first": None, "changed": "abc"},
    }


def test_a_constant_answer_is_said_first(tmp_path: Path) -> None:
    constant = make(
        label_plan(dict.fromkeys(HITS, "".join("1" if gold == "a" else "0" for gold in GOLDS))), tmp_path / "a"
    )
    other = make(label_plan({task: hits[1] for task, hits in HITS.items()}), tmp_path / "b")
    told = sentences(compare_runs([other, constant]))
    assert told[0].startswith("a gives almost always the same answer")
    assert "in 7 of 7 tasks" in told[0]
    assert len([sentence for sentence in told if "almost always" in sentence]) == 1


# Refusals


def test_what_cannot_be_compared_is_refused_with_one_message(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    majority = make(MajorityPlan(("likelihood",)), tmp_path / "boolq")
    elsewhere = make(label_plan({"elsewhere": "11110000"}), tmp_path / "elsewhere")
    plan = label_plan({"task1": "11110000"})
    plan.prompts[0]["instance_id"] = "another"
    others = make(plan, tmp_path / "others")
    unfinished = Plan()
    unfinished.task("task1", ["a", "b"])
    unfinished.probabilities("task1", "main", "a", [0.5, 0.5])
    begun = unfinished.write(tmp_path / "begun")
    old = tmp_path / "old"
    shutil.copytree(labels[1], old)
    shutil.rmtree(old / "sign_flips")
    cases: list[tuple[list[str], int, str]] = [
        ([labels[0]], 2, "compare: needs at least two runs"),
        ([labels[0], labels[0]], 2, "a run is named twice"),
        ([labels[0], majority], 2, "name runs of one kind"),
        ([labels[0], str(tmp_path / "absent")], 2, "is not a run directory"),
        ([labels[0], elsewhere], 2, "first and elsewhere: nothing can be compared: no task is in both"),
        ([labels[0], others], 2, "task1 have other main rows or labels in each; tasks.splits: RUN/splits"),
        ([labels[0], begun], 1, "is missing; biaseval report"),
        ([labels[0], str(old)], 1, "analysed by a version that stored no sign_flips"),
        ([*labels, "--out", str(tmp_path / "page.htm")], 2, "does not end in .html"),
    ]
    for arguments, code, said in cases:
        found = call(capsys, monkeypatch, "compare", *arguments)
        assert (found.code, found.out) == (code, ""), arguments
        assert found.err.startswith("error: ")
        assert said in found.err, found.err
        assert "Traceback" not in found.err


def test_kinds_without_metrics_of_a_model_are_refused(labels: list[str], tmp_path: Path) -> None:
    run = Run.open(str(tmp_path / "search"))
    run.write_text("spec.yaml", "kind: search\n")
    with pytest.raises(InputError, match="is of the kind 'search', which has no metrics to compare"):
        compare_runs([labels[0], run.uri])


def test_a_run_that_shares_nothing_is_left_out_beside_others_that_do(labels: list[str], tmp_path: Path) -> None:
    elsewhere = make(label_plan({"elsewhere": "11110000"}), tmp_path / "elsewhere")
    compared = compare_runs([*labels, elsewhere])
    assert compared.others == ["other"]
    assert "elsewhere shares nothing with first that could be compared, and is left out." in caveats(compared)
    with pytest.raises(InputError, match="name another one first"):
        compare_runs([elsewhere, *labels])


# Majority bias


@pytest.fixture(scope="module")
def majority(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for name, answers in (("small", ANSWERS), ("large", LARGE)):
        plan = MajorityPlan(("likelihood",), answers=answers, n_repeats=3)
        plan.spec |= {"name": name, "model": {"path": f"models/{name}", "dtype": "float32"}}
        plan.n_parameters = {"small": 1_000, "large": 13_000}[name]
        runs.append(make(plan, folder / name))
    return runs


def _accuracy(answers: Mapping[tuple[str, bool], tuple[str, str]], instruction: bool) -> Array:
    """Return the share of settings and seeds in which each of the four test rows is right."""
    given = [predictions for (_, one), of_seeds in answers.items() if one is instruction for predictions in of_seeds]
    return np.array([[answer == gold for answer, gold in zip(text, GOLD, strict=True)] for text in given]).mean(axis=0)


def test_majority_runs_are_compared_row_by_row(majority: list[str]) -> None:
    rows = compared_rows(majority, "majority_bias", "run = 'small' and instruction and method = 'none'")
    found = {row["metric"]: row for row in rows}
    values = np.tile(_accuracy(LARGE, True) - _accuracy(ANSWERS, True), 3)
    row = found["accuracy"]
    assert row["value"] == pytest.approx(_accuracy(ANSWERS, True).mean())
    assert row["estimate"] == pytest.approx(values.mean(), abs=1e-12)
    signs = np.array(list(product((1, -1), repeat=12)), dtype=float)
    assert row["p"] == pytest.approx(np.mean(flipped(values, signs) >= flipped(values, signs)[0]))
    assert (row["unit"], row["n_units"]) == ("row", 12)
    marts = {
        run["run"]: run
        for run in query(majority, "from majority_by_model where instruction and method = 'none'").to_pylist()
    }
    for metric in ("mean_f1", "sd_f1"):
        assert found[metric]["estimate"] == pytest.approx(marts["large"][metric] - marts["small"][metric], abs=1e-9)
        assert found[metric]["value"] == pytest.approx(marts["small"][metric], abs=1e-9)
    without = compared_rows(majority, "majority_bias", "run = 'small' and not instruction")
    assert {row["verdict"] for row in without if row["metric"] != "sd_f1"} == {"negligible"}


def test_rows_of_majority_runs_are_listed_with_their_setting(majority: list[str]) -> None:
    compared = compare_runs(majority)
    expected = sum(
        before != after
        for place, of_seeds in ANSWERS.items()
        for own, others in zip(of_seeds, LARGE[place], strict=True)
        for before, after in zip(own, others, strict=True)
    )
    assert len(compared.disagreements) == 3 * expected
    assert sum(row["n_wins"] + row["n_losses"] for row in compared.wins) == 3 * expected
    assert {row["setting"] for row in compared.disagreements} == {"0/100", "100/0"}


def _other_questions(plan: MajorityPlan) -> None:
    for row in plan.prompts:
        row["input_text"] = f"another {row['row']}"


def _other_grid(plan: MajorityPlan) -> None:
    for row in (*plan.settings, *plan.contexts):
        row["setting"] = row["setting"].replace("50/50", "51/49")


@pytest.mark.parametrize(
    ("change", "said"),
    [(_other_questions, "0 of 12 test rows of the first are in both"), (_other_grid, "their proportions are others")],
)
def test_majority_runs_over_other_data_are_refused(
    change: Callable[[MajorityPlan], None], said: str, majority: list[str], tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood",), n_repeats=3)
    change(plan)
    with pytest.raises(InputError, match=said):
        compare_runs([majority[0], make(plan, tmp_path / "changed")])


def _other_demonstrations(plan: MajorityPlan) -> None:
    plan.contexts[0]["text"] = "other demonstrations"


def _other_seeds(plan: MajorityPlan) -> None:
    for row in (*plan.contexts, *plan.prompts):
        row["demo_set"] += 1


@pytest.mark.parametrize(
    ("change", "lacking", "said"),
    [
        (_other_demonstrations, {"has_same_contexts"}, "other demonstrations or another instruction"),
        (_other_seeds, {"has_same_contexts", "has_same_seeds"}, "other seeds of the demonstrations"),
    ],
)
def test_what_majority_runs_do_not_share_is_named(
    change: Callable[[MajorityPlan], None], lacking: set[str], said: str, majority: list[str], tmp_path: Path
) -> None:
    plan = MajorityPlan(("likelihood",), n_repeats=3)
    change(plan)
    compared = compare_runs([majority[0], make(plan, tmp_path / "changed")])
    pair = compared.pair("small", "changed")
    assert {name for name, value in pair.items() if value is False} == lacking
    assert [caveat for caveat in caveats(compared) if said in caveat]
    assert {row["estimate"] for row in compared.tests} == {0}


# QA bias


def qa_plan(
    seed: int,
    models: Sequence[str] = ("bert",),
    lean: float = 0.0,
    n_articles: int = 40,
    spec: Mapping[str, Any] | None = None,
) -> QaPlan:
    """Return a run over questions of articles of 1 to 5 questions; longer answers are found more often by ``lean``."""
    shared, own = np.random.default_rng(0), np.random.default_rng(seed)
    articles = np.repeat(np.arange(n_articles), np.arange(n_articles) % 5 + 1)
    lengths = shared.integers(1, 10, size=len(articles)).astype(float)
    plan = QaPlan(models, **{"heuristics": ["ans_len"], "bootstrap": {"trials": 20, "sample": 20}, **(spec or {})})
    plan.questions({"ans_len": lengths.tolist()})
    for example, article in zip(plan.examples, articles, strict=True):
        example["title"] = f"article {article:03}"
        example["question"] = f"What is {example['row']}?"
        example["answers"] = ["right"]
    for model in models:
        right = (own.random(len(articles)) < 0.5 + lean * (lengths > 5)).astype(float)
        plan.answers(right.tolist(), model=model)
    return plan


def hits_of(plan: QaPlan, model: str = "bert") -> Array:
    found = {row["example_id"]: row["exact_match"] for row in plan.predictions if row["model"] == model}
    return np.array([found.get(example["example_id"], np.nan) for example in plan.examples])


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[QaPlan]]:
    folder = tmp_path_factory.mktemp("runs")
    plans = [qa_plan(1), qa_plan(2, lean=0.45)]
    return [make(plan, folder / name) for plan, name in zip(plans, ("plain", "leaning"), strict=True)], plans


def test_exact_match_of_questions_is_tested_by_article(readers: tuple[list[str], list[QaPlan]]) -> None:
    runs, plans = readers
    before, after = map(hits_of, plans)
    _, articles = np.unique([example["title"] for example in plans[0].examples], return_inverse=True)
    sums = np.bincount(articles, weights=after - before) * 40 / len(before)
    [row] = compared_rows(runs, "qa_bias", "run = 'plain' and metric = 'exact_match'")
    assert row["estimate"] == pytest.approx((after - before).mean(), abs=1e-12)
    assert row["standard_error"] == pytest.approx(sums.std(ddof=1) / np.sqrt(40), abs=1e-9)
    signs = np.array(_signs(runs), dtype=float)[:, :40]
    statistics = flipped(sums, signs)
    assert row["p"] == pytest.approx(np.mean(statistics >= statistics[0]))
    assert (row["unit"], row["n_units"], row["n_questions"]) == ("article", 40, 120)
    [wins] = query(runs, "from qa_bias_wins where run = 'plain'").to_pylist()
    assert (wins["n_wins"], wins["n_losses"]) == (int((after > before).sum()), int((after < before).sum()))


def _signs(runs: Sequence[str]) -> list[list[int]]:
    found: Rows = query(runs, "from comparison_sign_flips order by draw").to_pylist()
    return [row["signs"] for row in found]


def test_the_gap_is_at_the_threshold_that_both_models_together_choose(readers: tuple[list[str], list[QaPlan]]) -> None:
    runs, plans = readers
    before, after = map(hits_of, plans)
    values = np.array([row["value"] for row in plans[0].attributes])
    tried = [row["threshold"] for row in query(runs, "from qa_thresholds where run = 'leaning'").to_pylist()]
    mean = (before + after) / 2
    scores = {}
    for threshold in tried:
        lower = values <= threshold
        if min(lower.sum(), (~lower).sum()) >= 20:
            spread = mean.mean() * (1 - mean.mean()) * (1 / lower.sum() + 1 / (~lower).sum())
            scores[threshold] = abs(mean[lower].mean() - mean[~lower].mean()) / np.sqrt(spread)
    best = max(scores, key=lambda threshold: (round(scores[threshold], 9), -threshold))
    lower = values <= best
    gaps = [hits[~lower].mean() - hits[lower].mean() for hits in (before, after)]
    [row] = compared_rows(runs, "qa_bias", "run = 'plain' and metric = 'gap'")
    assert (row["threshold"], row["better_segment"]) == (best, "higher")
    assert [row["value"], row["other_value"]] == pytest.approx(gaps, abs=1e-9)
    assert row["estimate"] == pytest.approx(gaps[1] - gaps[0], abs=1e-9)
    assert row["verdict"] == "higher"
    [back] = compared_rows(runs, "qa_bias", "run = 'leaning' and metric = 'gap'")
    assert (back["estimate"], back["threshold"], back["verdict"]) == (-row["estimate"], best, "lower")


def test_answers_that_change_sides_choose_the_same_threshold(
    readers: tuple[list[str], list[QaPlan]], tmp_path: Path
) -> None:
    """What sign flips exchange, the answers of an article, moves no threshold: else they would not be exact."""
    runs, _ = readers
    swapped = [qa_plan(1), qa_plan(2, lean=0.45)]
    for left, right in zip(swapped[0].predictions, swapped[1].predictions, strict=True):
        if int(left["example_id"][1:]) < 60:
            for name in ("exact_match", "f1"):
                left[name], right[name] = right[name], left[name]
    others = [make(plan, tmp_path / name) for plan, name in zip(swapped, ("plain", "leaning"), strict=True)]
    chosen = [query(pair, "from qa_bias_comparison_thresholds").to_pylist() for pair in (runs, others)]
    assert chosen[0] == chosen[1] != []


def test_a_threshold_that_the_spec_fixes_is_kept(tmp_path: Path) -> None:
    fixed = {"thresholds": {"ans_len": 7}}
    runs = [make(qa_plan(seed, spec=fixed), tmp_path / f"run{seed}") for seed in (1, 2)]
    [row] = query(runs, "from qa_bias_comparison_thresholds").to_pylist()
    assert (row["threshold"], row["is_fixed"]) == (7, True)


def test_only_questions_that_both_answered_count(readers: tuple[list[str], list[QaPlan]], tmp_path: Path) -> None:
    runs, plans = readers
    plan = qa_plan(2, lean=0.45)
    plan.spec["models"] = [{"name": "bert", "predictions": {"squad": "answers.json"}, "on_missing": "drop"}]
    plan.predictions = [row for row in plan.predictions if row["example_id"] not in ("q3", "q50")]
    plan.examples[10]["question"] = "Something else?"
    changed = make(plan, tmp_path / "changed")
    compared = compare_runs([runs[0], changed])
    pair = compared.pair("plain", "changed")
    assert (pair["n_questions"], pair["n_differing"], pair["n_lacking"]) == (119, 1, 0)
    kept = np.array([row not in (3, 50, 10) for row in range(120)])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("plain", "exact_match")]
    assert row["n_questions"] == 117
    assert row["estimate"] == pytest.approx((hits_of(plans[1]) - hits_of(plans[0]))[kept].mean())
    assert "changed against plain: left out: 1 question with the same id and another text." in caveats(compared)


def test_models_of_one_name_are_compared_with_each_other_and_others_with_all(tmp_path: Path) -> None:
    first = make(qa_plan(1, ("bert", "roberta")), tmp_path / "first")
    other = make(qa_plan(2, ("bert", "electra")), tmp_path / "other")
    pairs = {(row["model"], row["other_model"]) for row in compared_rows([first, other], "qa_bias", "run = 'first'")}
    assert pairs == {("bert", "bert"), ("bert", "electra"), ("roberta", "bert"), ("roberta", "electra")}
    shown = overview(compare_runs([first, other]))
    assert shown.columns == ["other: bert", "other: electra"]
    assert [line.place for line in shown.lines] == ["bert, squad"] * 3 + ["roberta, squad"] * 3
    assert not any(cell is None for line in shown.lines for cell in line.cells)


def test_runs_over_other_questions_are_refused(readers: tuple[list[str], list[QaPlan]], tmp_path: Path) -> None:
    plan = qa_plan(2)
    for example in plan.examples:
        example["context"] = "elsewhere"
    changed = make(plan, tmp_path / "changed")
    with pytest.raises(
        InputError, match="no question is in both, by dataset, id and text; 120 questions have the same"
    ):
        compare_runs([readers[0][0], changed])


# What is said and shown


def test_the_command_prints_verdicts_rows_and_a_page(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    found = call(capsys, monkeypatch, "compare", *labels, "--out", str(page))
    assert found.code == 0, found.err
    assert "other against first, 7 tasks with 56 rows: 2 of 4 comparisons told apart" in found.out
    assert re.search(r"accuracy +│ 0\.5000 │ 0\.7679 │ +\+0\.268", found.out)
    assert found.out.endswith(f"page: {page}\n")
    text = Page(page.read_text()).text
    assert "2 of 4 comparisons told apart" in text
    assert "16 predictions that only other has right" in text
    assert not re.search(r"(src|href)=.(http|//)", page.read_text())
    as_json = json.loads(call(capsys, monkeypatch, "compare", *labels, "--json").out)
    compared = compare_runs(labels)
    assert as_json["runs"] == ["first", "other"]
    assert as_json["tests"] == json.loads(json.dumps(compared.tests))
    assert len(as_json["disagreements"]) == len(compared.disagreements)


def test_every_number_of_the_page_is_a_column(labels: list[str]) -> None:
    compared = compare_runs(labels)
    assert compared.tests == compared_rows(labels)
    assert compared.shared == query(labels, "from label_bias_shared order by all").to_pylist()
    rows = query(labels, "from label_bias_disagreements where run = 'first' order by shuffled").to_pylist()
    assert compared.disagreements == rows[:N_LISTED]


def test_ten_runs_stand_side_by_side(labels: list[str], tmp_path: Path) -> None:
    runs = [labels[0]]
    for number in range(9):
        copy = tmp_path / f"model{number}"
        shutil.copytree(labels[number % 2], copy)
        runs.append(str(copy))
    compared = compare_runs(runs)
    shown = overview(compared)
    assert shown.columns == [f"model{number}" for number in range(9)]
    words = {line.metric: [cell.word for cell in line.cells if cell] for line in shown.lines}
    assert words["accuracy"] == ["negligible", "higher"] * 4 + ["negligible"]
    square = matrix(compared)
    assert square is not None
    assert (square.metric, len(square.subjects)) == ("RSD", 10)
    for own, line in enumerate(square.lines):
        assert [row is None for row in line] == [other == own for other in range(10)]
    assert any("9 such pairs" in caveat for caveat in caveats(compared))
    page = Path(write_compared(runs, str(tmp_path / "page.html"))).read_text()
    assert page.count("predictions that only") == 9
    assert len(page) < 3_000_000
    again = Path(write_compared(runs, str(tmp_path / "again.html"))).read_text()
    assert again == page


def test_the_page_of_majority_runs_has_the_tables_of_all_models(majority: list[str], tmp_path: Path) -> None:
    page = Path(write_compared(majority, str(tmp_path / "page.html"))).read_text()
    text = Page(page).text
    assert "large against small, 12 test rows" in text
    assert "The effect of model size" in text
    before = Path(write_comparison(majority, str(tmp_path / "before.html"))).read_text()
    assert "Majority-label bias, 2 models" in before
    part = before[
        before.index('<section aria-labelledby="way-1">') : before.index('<section aria-labelledby="metrics">')
    ]
    assert part.strip() in page


def test_two_runs_of_one_majority_model_are_compared_without_a_table_of_models(
    majority: list[str], tmp_path: Path
) -> None:
    shutil.copytree(majority[0], tmp_path / "copy")
    page = Path(write_compared([majority[0], str(tmp_path / "copy")], str(tmp_path / "page.html"))).read_text()
    assert "copy against small, 12 test rows" in Page(page).text
    assert "The effect of model size" not in page


def test_report_with_out_is_the_comparison_of_other_kinds(
    readers: tuple[list[str], list[QaPlan]], tmp_path: Path
) -> None:
    page = Path(write_comparison(readers[0], str(tmp_path / "page.html"))).read_text()
    assert "leaning against plain, 120 questions on 40 articles" in Page(page).text
    with pytest.raises(InputError, match=r"does not end in \.html"):
        write_comparison(readers[0], str(tmp_path / "page.txt"))


def test_markup_in_the_rows_is_shown_and_not_interpreted(tmp_path: Path) -> None:
    hostile = "<img src=//evil onerror=alert(1)>"
    runs = []
    for side, name in enumerate(("first", "other")):
        plan = label_plan({task: hits[side] for task, hits in HITS.items()})
        for row in plan.prompts:
            row["input_text"] = hostile
        runs.append(make(plan, tmp_path / name))
    page = Path(write_compared(runs, str(tmp_path / "page.html"))).read_text()
    assert "<img src=//evil" not in page
    assert hostile in Page(page).text


def test_an_unfinished_run_stays_an_error_of_its_own(labels: list[str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(labels[1], begun)
    (begun / "label_scores" / "part-00000.parquet").unlink()
    write_plan(Run.open(str(begun)))
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        compare_runs([labels[0], str(begun)])
