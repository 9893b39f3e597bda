"""What a run is said to show is what its tests support: sentences of relations, over runs and over altered marts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from biaseval.environment import raw_spec, read_environment
from biaseval.report.label_bias import label_bias_notes
from biaseval.runs import reanalyse_run
from biaseval.store import Run
from tests.label_bias_report.runs import Row, make_run, said
from tests.pages import assert_said, mart
from tests.relation import Relations, changeable, sentences, told
from tests.specs import as_older

LAST = "where suite = 'all' and n_demos = 8 and method = 'none'"


@pytest.fixture(scope="module")
def relations(run: Run) -> Iterator[Relations]:
    yield from changeable(run, "label_bias_conclusions", "label_bias_cautions")


test_conclusions_follow_the_verdicts_of_marts = sentences("label_bias_conclusions", {
    "as it is": ([],
        [r"^Biased\. Without dem.* the most frequent answer takes .* of a task’s rows and .* of its gold labels\. Mo",
        r"More bias than sampling noise explains: without demonstrations by RSD in \d+ of 12 tasks and by BiasScore in",
        "How sure: the chance of any false finding is about 5 %, for new rows of these 12 tasks with the same dem",
        r"Sets of dem.*: a set is one draw .* over 2 sets, .* on average over tasks, the best set .* by \d+\.\d points",
        r"Price of mitigation: .*, 20 prompts for domain-context calibration \(DC\).*, per task",
        r"Ready to deploy\? Better than always answering one label, as a test supports: .* Whether \d+\.\d % is enough",
        "Best mitigation: .* ha(s|ve) the highest macro-F1 of all that reduce bias without a loss of accuracy: RSD",
        "!none was measured", "!the p-values under", "!Price of dem", "!without a loss of accuracy: .*–",
        "Other tasks: bias also changes in tasks like these with ", "!Primary"]),
    "a bias that is highest between the ends":
        (["update label_bias_by_model set rsd = 9 where suite = 'all' and n_demos = 2 and method = 'none'"],
        [r"explains: without demonstrations by RSD .* with 2 demonstrations by RSD in .* with 8"]),
    "no bias": (["update label_bias_by_model set is_bias_shown = false"], [r"^No bias shown\. ", "!Biased",
        "!Cannot say"]),
    "no bias of a model that does nothing":
        (["update label_bias_by_model set is_bias_shown = false, is_above_constant = null"],
        ["^Cannot say: the answers are not shown"]),
    "no better than a constant answer": (["update label_bias_by_model set is_above_constant = false"],
        ["^Biased without mitigation, and not shown to be better than always"]),
    "better than a constant answer in macro-F1 alone":
        (["update label_bias_by_format set accuracy = 0.3, majority_accuracy = 0.4, is_above_constant = true"],
        [r"No: .* on 40.0 %\. The exception: if rare labels count .*, .* is better: .* against .*, which a"]),
    "right less often than one label":
        (["update label_bias_by_model set is_above_constant = true, accuracy = majority_accuracy - 0.01"],
        ["^Biased without mitigation, and right less often than always answering one label. "]),
    "no setting that is right more often than one label":
        (["update label_bias_by_format set accuracy = 0, majority_accuracy = 0.4, is_above_constant = false"],
        [r"Ready to deploy\? No: the most accurate setting, .*, is right on 0.0 % of the rows, and .* on 40.0 %\."]),
    "no test says that a setting is better": (["update label_bias_by_format set is_above_constant = null"],
        [r"Ready to deploy\? Not shown: the most accurate setting, "]),
    "lengths and sets": (["insert into prompt_lengths values (0, 10, 5, 1), (2, 3, 2, 3), (4, 5, 4, 5), (8, 90, 85, 9)",
        "update label_bias_by_task set accuracy = demo_set / 4 + n_demos / 99"],
        [r"ations: on average, a prompt has 10 tokens without dem\w+ and 90 tokens with 8 dem.* \(9\.0 times",
        r"accuracy by 25\.0 points with 2 demonstrations and 25\.0 points with 8 demonstrations\. To choose"]),
    "a bias that would be found":
        ([f"update label_bias_by_model set n_tasks_rsd = 0, rsd_smallest_detectable = 0.5 {LAST}"],
        [r"^Biased.*\. This run may miss an RSD below 0.500"]),
    "nothing found for other tasks": (["update label_bias_verdicts set verdict = 'unclear'"],
        ["Other tasks: no change of bias is shown for tasks like these."]),
    "changes that stay unseen":
        (["update label_bias_verdicts set same_tasks_verdict = 'unclear', same_tasks_smallest_detectable = 0.25"],
        ["may miss changes of up to 0.250 in RSD and 25.0 points of accuracy; four times as many rows halve that"]),
    "bias that only tasks like these can show": (["update label_bias_remedies set is_of_these_tasks = false"],
        ["How sure: .* over tasks like these. Changes in new rows of these very tasks cannot", "!Other tasks"]),
    "no test of words": (["update label_bias_verdicts set same_tasks_verdict = 'too few', n_units = 4"],
        ["How sure: 4 rows are too few for a test", "!Other tasks"]),
    "a cheaper mitigation": (["update label_bias_remedies set macro_f1 = n_demos, "
            "shown_advice = if(method = 'none', 'mixed', 'bias falls, no loss')"],
        [r"Best mitigation: \w+ with 8 dem.* Cheaper: CC without demonstrations also reduces bias .* \d+\.\d % an"]),
    "no support": (["update label_bias_remedies set shown_advice = 'mixed'"],
        ["Best mitigation: none is shown to reduce bias without a loss of accuracy."]),
    "a wording that is better with a mitigation":
        (["update label_bias_by_format set is_above_constant = false", "insert into label_bias_by_format select * "
        "replace ('colon' as format, n_demos / 8 as macro_f1, method = 'cc' as is_above_constant) "
        "from label_bias_by_format"],
        [r"wording\? Without mitigation and .*, no wording can .* better, wording “colon”, CC with 8 dem\w+ has .* "
        r"macro-F1 \(1\.000\)\. Where no wording is named, numbers are of the wording “base”",
        "^Biased in the wording “base”", "accuracy in the wording “base”: ",
        r"In other wordings, .* takes accuracy from \d+\.\d % to \d+\.\d % \(colon\)\."]),
    "a loss that is not ruled out": (["update label_bias_remedies set shown_advice = 'bias falls, loss not ruled out', "
        "same_tasks_bias_falls_in = if(method = 'cc', 'rsd and bias_score', 'bias_score')"],
        ["mitigation: none is shown to be safe. RSD falls after CC, and BiasScore falls after .*; a loss of"]),
})  # fmt: skip


@pytest.mark.parametrize(("advice", "word", "where_less_accurate"), [
    ("bias falls, accuracy rises", "helps", "helps, not enough"),
    ("bias falls, no loss", "helps", "helps, not enough"),
    ("bias falls, loss not ruled out", "less bias, accuracy unclear", "helps, not enough"),
    ("bias falls, accuracy falls", "at a price", "at a price"),
    ("mixed", "mixed", "mixed"),
    ("bias rises", "mixed", "mixed"),
    ("bias falls, no better than a constant answer", "helps, not enough", "helps, not enough"),
    ("bias falls, not shown to be better than a constant answer", "helps, not enough", "helps, not enough"),
    ("not shown", "no change shown", "no change shown"),
    ("do not use: bias rises or performance falls", "do not use", "do not use"),
    (None, None, None),
])  # fmt: skip
def test_an_advice_has_one_word(relations: Relations, advice: str, word: str, where_less_accurate: str) -> None:
    asked = "select advised($1, false), advised($1, true), advised($1, false, 'none')"
    words = relations.connection.execute(asked, [advice]).fetchone()
    assert words == (word, where_less_accurate, word and f"more demonstrations: {word}")


test_cautions_follow_the_tables = sentences("label_bias_cautions", {
    "as they are": ([], ["24 prompts contain fewer", "template of 6 tasks is inferred", "^ Intervals over", "!few:"]),
    "an unreachable BiasScore": (["update label_bias_by_task_over_sets set bias_score_of_perfect = 0.2"],
        [r"more than 0\.1 in task\S+ \(0\.200\), .* and 7 more\."]),
    "one gold label": (["update label_bias_by_task_over_sets set n_main_gold_labels = 1 where task like 'task003%'"],
        ["All test rows have the same gold label in task003_synthetic; RSD is 0"]),
    "no correct answer": ([f"update label_bias_by_model set n_tasks_without_hit = 2 {LAST}"],
        [r"improves the mean RSD: 2 tasks \(no mitigation, with 8 demonstrations\)"]),
    "few tasks": (["update label_bias_by_model set n_tasks = 6"], ["^ 6 tasks are few"]),
    "another way of scoring": (["update run_settings set normalization = 'sum'"],
        ["scored by the sum over their tokens, with EOS; the published"]),
})  # fmt: skip


ONE: Row = {"n_tasks": 1, "n_demos": (0,), "labels": ["no", "yes"]}

RUNS: dict[str, tuple[Row, Sequence[str]]] = {
    "constant in all tasks": ({"n_tasks": 6, "n_demos": (0, 8), "preference": 40.0},
        ["^Biased without mitigation, and not shown to be better",
        "Tasks without mitigation that are not shown to be better than always answering one label: 6 of 6"]),
    "constant in the only task": ({**ONE, "n_main": 60, "preference": 40.0},
        ["^Biased without mitigation, and not .* Without demonstrations it answers “no” for 100.0 % of the rows"]),
    # Calibration inverts the scores: inputs without an answer prefer what is right.
    "below the majority class": ({"n_tasks": 8, "n_demos": (0,), "demo_sets": 1, "signal": -3.0, "labels": ["A", "B"]},
        ["Best mitigation: none is shown to reduce bias"]),
    "too few tasks for words on others": ({"n_tasks": 3, "n_demos": (0, 2), "n_main": 120, "n_bias_score": 32},
        ["How sure: .* these 3 tasks with", r"known: no test .* so \w+ may be the best by chance. 3 tasks say"]),
    "too few rows for words on these tasks": ({"n_tasks": 8, "n_demos": (0,), "n_main": 8, "n_bias_score": 2},
        ["How sure: the chance .* over tasks like these"]),
    "too few rows for words": ({**ONE, "n_main": 4, "n_bias_score": 4}, ["How sure: 4 rows are too few",
        "known: BiasScore cannot be tested, because 2 of its 4 rows are “no”. ", "!Best mitigation"]),
    "a task tested over its rows": ({"n_tasks": 1, "demo_sets": 1, "n_main": 120, "n_bias_score": 32},
        [r"\(gold \S+ %\), p < 0.001\. With", "new rows of this task with", "!Other tasks", "!Sets of dem",
        "same demonstrations. This holds for all tests of the page together; the p-val"]),
    "no remedy": ({"n_tasks": 3, "n_demos": (0,), "calibration": ()}, ["Best mitigation: none was measured",
        "!How sure"]),
    "always right": ({"n_tasks": 6, "n_demos": (0, 2), "signal": 50.0}, ["^No bias shown", "!RSD fall"]),
    "BiasScore that no task can test": ({"n_tasks": 2, "n_demos": (0,), "n_main": 20, "n_bias_score": 8},
        ["known: BiasScore cannot be tested, because each task has a label with fewer than 5 rows. "]),
    "BiasScore of just enough rows": ({**ONE, "n_main": 20, "n_bias_score": 10}, ["!cannot be tested"]),
    "no rows of BiasScore": ({"n_tasks": 2, "n_demos": (0, 2), "n_bias_score": 0}, ["!BiasScore [0-9]"]),
}  # fmt: skip
"""By name, a run, and what its conclusions say; with !, what they do not say."""


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_told_what_its_tests_show(name: str, tmp_path: Path) -> None:
    given, words = RUNS[name]
    relations = Relations(make_run(tmp_path / "run", is_measured=False, **given).root)
    assert_said(told(relations, "label_bias_conclusions"), words)
    relations.connection.close()


def test_a_label_that_one_set_prefers_is_not_that_of_all(tmp_path: Path) -> None:
    """Each of two sets has 20 rows; the first is answered "no" 19 times."""
    given: Row = {"n_tasks": 1, "n_demos": (4,), "n_main": 20, "labels": ["no", "yes"], "is_measured": False}
    for relations in changeable(make_run(tmp_path / "run", **given), "label_bias_conclusions"):
        for second, is_told in (
            ([20, 0], "it answers “no” for 97.5 % of"),
            ([1, 19], "With 4 demonstrations its most frequent answer is “no” in 1 set and “yes” in 1 set"),
        ):
            counts = {(0, "no"): 19, (0, "yes"): 1, (1, "no"): second[0], (1, "yes"): second[1]}
            changes = [
                f"update label_bias_by_label set n_predicted = {n} where demo_set = {one} and label = '{label}'"
                for (one, label), n in counts.items()
            ]
            assert is_told in told(relations, "label_bias_conclusions", *changes)


# The primary question


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run whose primary question was named after it was scored."""
    run = make_run(tmp_path_factory.mktemp("primary") / "run", n_tasks=6, n_demos=(0, 2))
    return reanalyse_run(run.uri, ["primary.metric=rsd", "primary.method=dc"])


def test_the_primary_question_is_answered_behind_the_headline(asked: Run) -> None:
    lines = said(asked).splitlines()
    assert lines[1].startswith("Primary question, RSD with DC: ")
    for row in mart(asked, "label_bias_verdicts"):
        if row["suite"] == "all" and row["is_primary"] and row["metric"] == "rsd":
            p = row["same_tasks_word_p_adjusted"]
            shown = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
            estimate = f"{row['estimate']:.3f}".replace("-", "\N{MINUS SIGN}")
            assert f"({estimate}, adjusted {shown})" in lines[1]
    assert_said(said(asked), ["adjusted for these 2 tests only", "5 % for the primary question and 5 % for the rest"])


LATE = "The primary question was chosen after scoring"


def test_a_question_that_was_chosen_late_is_said_to_be(asked: Run, tmp_path: Path) -> None:
    def late(own: Run) -> str:
        notes = label_bias_notes(own, raw_spec(own), read_environment(own))
        return " ".join(line for line in notes if line.startswith(LATE))

    assert "(before, there was none)" in late(asked)
    assert late(asked) in asked.read_json("summary.json")["cautions"]
    assert late(asked) in asked.read_text("report.html")
    # Of a question that the run began with nothing is said, also when it comes back to that.
    make_run(tmp_path / "early", n_tasks=1, n_demos=(0,), calibration=("cc",))
    early = as_older(tmp_path / "early")
    spec = yaml.safe_load(early.read_text("spec.yaml")) | {"primary": {"metric": "rsd", "method": "cc"}}
    early.write_text("spec.yaml", yaml.safe_dump(spec))
    for changes, words in (
        (["primary.metric=accuracy"], "(before, it was rsd with cc)"),
        (["primary.metric=rsd"], ""),
        (["primary=null"], ""),
    ):
        reanalyse_run(early.uri, changes, page=False)
        assert (words in late(early), bool(late(early))) == (True, bool(words))
    assert not any(row["is_primary"] for row in mart(early, "label_bias_verdicts"))
