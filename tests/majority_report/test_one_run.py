"""The page of one run, with and without adapters, its sentences and its charts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.report.charts import triangle_chart
from biaseval.runs import write_report
from biaseval.store import Run
from tests.majority_report.runs import HOSTILE, make_run, table
from tests.majorityplans import ANSWERS, MajorityPlan
from tests.measuring import measure
from tests.pages import Page, assert_answered, assert_of_marts, assert_said, assert_whole, page_of
from tests.relation import Relations, changeable, sentences, told

CONCLUSIONS, CAUTIONS = "majority_bias_conclusions", "majority_bias_cautions"


def said(run: str) -> str:
    rows = query([run], f"from {CONCLUSIONS} union all from {CAUTIONS}").to_pylist()
    return "\n".join(f"{row['lead']} {row['text']}" for row in rows)


def test_the_page_of_a_run_is_whole_and_says_what_relations_say(runs: list[str]) -> None:
    run = Run.open(runs[1])
    write_report(run.uri)
    source = run.read_text("report.html")
    assert_whole(source)
    assert_answered(source, [run.uri], 8)
    assert_of_marts(source, run)
    text = page_of(run).text
    for line in said(run.uri).splitlines():
        assert line.strip() in text
    assert_said(
        text, ["of llm-7000000000 .run boolq-small. ", "· 200 test rows · 3 settings of 2 demonstrations · 2 seeds"]
    )
    # Only the best of 0.767, 1 and 0.821, and of 0.1, 0.883 and 0.643, is inside.
    inside = [line for line in table(source, "Inside: within 10 points") if line[2:4] == ["no mitigation", "no"]]
    assert {line[5] for line in inside} <= {"yes", "no"}


@pytest.fixture(scope="module")
def relations(runs: list[str]) -> Iterator[Relations]:
    yield from changeable(Run.open(runs[1]), CONCLUSIONS, CAUTIONS)


test_conclusions_follow_the_verdicts_of_marts = sentences(CONCLUSIONS, {
    "as it is": ([], ["^The prop|^No effect of|^Cannot say",
            r"Robustness boundary: .*1 of 3 settings are within 10 points of the best one \(RB@10 0\.333\)",
            r"Seeds: a seed is one draw .* over 2 seeds, .* deviation of 0\.\d+ over the seeds\. To choose a seed, ",
            "judged by 200 rows and 2 seeds.* The p of the effect .* is corrected for all such tests",
            r"Price of mitigation: 2 prompts for leave.* \(LOOC\), per draw",
            "The instruction changes weighted F1: at the most skewed settings "]),
    "proportions matter": (["update majority_by_model set proportions_p_adjusted = 0.0005, is_bias_shown = true"],
        ["^The proportions of the demonstrations change its performance",
            r"weighted F1 depends on them \(p < 0.001; sta"]),
    "proportions are not shown to matter": (
        ["update majority_by_model set proportions_p_adjusted = 0.4, is_bias_shown = false, "
            "sd_f1_smallest_detectable = 0.125"], [r"^No effect of the proportions is shown\.",
            r"not shown to depend on them \(p = 0.400; this run detects a standard deviation of 0.125"]),
    "nothing is better than a constant answer": (
        ["update majority_by_model set is_any_setting_above_constant = false, is_bias_shown = false"],
        ["^Cannot say: it does not do the task", "!Robustness boundary"]),
    "proportions matter to a model that does nothing": (
        ["update majority_by_model set is_any_setting_above_constant = false, is_bias_shown = true"],
        ["^The proportions of the demonstrations change its answers, and no setting is better than always", "!do the"]),
    "nothing is shown to be better": (["update majority_by_model set is_any_setting_above_constant = null"],
        ["^Cannot say: no setting is shown to be better", "!Robustness boundary"]),
    "better than a constant answer": (["update majority_by_model set is_above_constant = true, constant_f1 = 0.1"],
        [r"Ready to deploy\? Better than always answering one label: the highest .* one label has 0\.100\."]),
    "no better than a constant answer": (["update majority_by_model set constant_f1 = 0.99"],
        [r"Ready to deploy\? No: the highest weighted F1, a mean over all proportions, is 0\."]),
    "draws with one answer": (["update majority_label_shares set share_predicted = (share_shown > 0.5)::int"],
        [r"In (\d+) of these draws one label is the most .*, and it is the answer in all of them", "!always “"]),
    "one answer in all draws": (["update majority_label_shares set share_predicted = (label = 'True')::int"],
        [r"one label in (\d+) of \1 draws of demonstrations[^.]*, always “True”", "!is the most frequent one"]),
    "too few rows": (["update majority_by_model set has_enough_rows = false, half_width = 0.25"],
        [r"too few rows for RB@10 \(the intervals of settings reach 0.250\)", "!settings are within"]),
    "most outputs are no label": (["update majority_by_model set n_marked = 0"],
        ["RB@10 cannot be judged: most outputs are no label", "!settings are within"]),
    "a mitigation that helps": (["update majority_remedies set is_supported = true"],
        [r"Best mitigation: LOOC.* has the highest mean weighted F1 of all .*: standard dev.* → \d.\d+, mean w"]),
    "none that helps": (["update majority_remedies set is_supported = false"],
        ["Best mitigation: none is shown to reduce bias without a loss of weighted F1", "!could not be tested"]),
    "bias that no test can compare": (["update majority_remedies set is_supported = false, sd_f1_reason = 'constant "
        "answer', evidence = 'F1 rises, bias not shown to fall'"], [r"Best mitigation: the effect on bias could not be "
        r"tested\. A test needs .*\. Weighted F1 rises after \w+"]),
    "a loss that is not ruled out": (["update majority_remedies set is_supported = false, is_above_constant = true, "
        "evidence = 'bias falls, loss not ruled out'"],
        ["Best mitigation: none is shown .* F1; bias falls after .*LOOC.*, but a loss cannot be ruled out"]),
    "no mitigation": (["delete from majority_remedies"], ["Best mitigation: none was measured"]),
})  # fmt: skip


REMEDY: dict[str, Any] = {"is_supported": False, "evidence": "not shown", "sd_f1_reason": None, "mean_f1_reason": None}
REMEDY |= {f"{name}_verdict": "unclear" for name in ("sd_f1", "rb_at_10", "mean_f1")}
REMEDY |= {"is_above_constant": True, "is_rb_at_10_judged": True}


@pytest.mark.parametrize(("changes", "word"), [
    ({}, "no change shown"),
    ({"is_supported": True}, "helps"),
    ({"evidence": "bias rises"}, "mixed"),
    ({"evidence": "mixed", "mean_f1_verdict": "lower"}, "mixed"),
    ({"mean_f1_verdict": "higher"}, "helps in part"),
    ({"rb_at_10_verdict": "higher"}, "helps in part"),
    ({"rb_at_10_verdict": "higher", "is_rb_at_10_judged": False}, "no change shown"),
    ({"sd_f1_verdict": "lower", "sd_f1_reason": "too few rows"}, "no change shown"),
    ({"sd_f1_verdict": "lower", "is_above_constant": None}, "helps, not enough"),
    ({"mean_f1_verdict": "lower"}, "at a price"),
    ({"mean_f1_verdict": "lower", "is_above_constant": False}, "helps, not enough"),
])  # fmt: skip
def test_verdicts_on_a_mitigation_amount_to_a_word(relations: Relations, changes: dict[str, Any], word: str) -> None:
    assert relations.connection.execute("select advised_majority($1)", [REMEDY | changes]).fetchone() == (word,)


ALWAYS = dict.fromkeys(ANSWERS, ("TTTT", "TTTT"))

RUNS: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "always the same": ({"answers": ALWAYS},
        ["^Cannot say: it does not do the task, .* Mean weighted F1 without instruction is 0.643 and accuracy "
        "75.0 %. Always answering one label has weighted F1 0.643 and accuracy 75.0 %. 100.0 % of all answers are the",
        "!settings are within"]),
    "too few rows": ({"calibration": ("looc",), "n_repeats": 1},
        ["too few rows for RB@10", "Too few test rows for RB@10 in every way of predicting", "2 seeds say too little"]),
    "always right": ({"answers": dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))}, ["!^Cannot say: it does not"]),
    # No right answer at all (FF-T has none for T T T F, as one output more is no label), or mostly no label.
    **{f"the same {given}": ({"answers": dict.fromkeys(ANSWERS, (given, given)), "predict": ("generate",)},
        ["!settings are within 10 points", "!has the highest"]) for given in ("----", "FF-T", "T---")},
}  # fmt: skip
"""By name, a run, and what its sentences say; with !, what they do not say."""


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_told_what_its_tests_show(name: str, tmp_path: Path) -> None:
    given, words = RUNS[name]
    relations = Relations(make_run(tmp_path / "run", 7_000, is_measured=False, **given))
    assert_said(told(relations, CONCLUSIONS) + "\n" + told(relations, CAUTIONS), words)
    relations.connection.close()


def test_one_seed_is_said_to_be_one_draw(tmp_path: Path) -> None:
    relations = MajorityPlan(("likelihood",), n_repeats=50).only(demo_set=3).relations(tmp_path)
    assert_said(told(relations, CAUTIONS), ["There is one seed: all numbers hold for one draw"])
    assert_said(told(relations, CONCLUSIONS), ["one seed cannot tell whether they matter", "!not shown to depend"])
    relations.connection.close()


def test_outputs_stand_with_the_label_they_were_taken_for(tmp_path: Path) -> None:
    answers = {("0/100", True): ("TTTF", "TTT-"), ("50/50", True): ("TTTF",) * 2, ("100/0", True): ("TTTF",) * 2}
    plan = MajorityPlan(("generate", "likelihood"), answers=answers)
    for row in plan.generations:
        row["text"] = {"True": " true\n", "False": HOSTILE, None: ""}[row["prediction"]]
    run = Run.open(plan.write(tmp_path))
    measure(run.uri, has_checks=False)
    write_report(run.uri)
    source = run.read_text("report.html")
    _, *lines = table(source, "most frequent outputs over all settings")
    # 0/100, seed 3, has one more output that is no label.
    assert [line[2:] for line in lines] == [
        ["True", "17", "70.8 %"], ["False", "5", "20.8 %"], ["no label", "2", "8.3 %"],
    ]  # fmt: skip
    found = Page(source)
    assert all(shown in found.text for shown in ('" true\\n"', f'"{HOSTILE}"', '""'))
    assert "onerror" not in {name for _, name, _ in found.attributes}


# With adapters


def test_the_page_with_adapters_has_costs_by_method(adapted_run: str) -> None:
    source = Run.open(adapted_run).read_text("report.html")
    assert_whole(source)
    assert_answered(source, [adapted_run], 10)
    assert_of_marts(source, Run.open(adapted_run))
    costs = {tuple(line[:2]): line[2:] for line in table(source, "Beyond scoring the rows")[1:]}
    # 3 settings and 2 seeds; the run does not say how long scoring took.
    assert costs["LoRA", "yes"] == ["2", "0", "480", "6", "512", "6.0"]
    # Each demonstration is left out of a context of its own, of 10 tokens, and has 5 more and two labels of 2.
    assert costs["LOOC", "yes"][1:3] == ["12", f"{12 * (10 + 5 + 4)}"]
    assert costs["LoRA + LOOC", "yes"][-1] == "–"
    assert_said(" ".join(Page(source).values("alt")), ["likelihood, LoRA .* 0.643 at 100", "loss 2.000 at 1"])


# Charts


def test_marks_stand_at_the_label_that_they_hold_and_have_a_ring_inside_the_boundary() -> None:
    shares = {"100/0/0": (1.0, 0.0, 0.0), "0/100/0": (0.0, 1.0, 0.0), "0/0/100": (0.0, 0.0, 1.0)}
    rows = [
        {"setting": setting, "shares": own, "value": 0.4 + 0.4 * own[0], "is_marked": own[0] > 0.75}
        for setting, own in {**shares, "50/50/0": (0.5, 0.5, 0.0)}.items()
    ]
    labels = ["against", "favor", "none $x$"]
    chart = triangle_chart("f1", rows, title="F1", labels=labels, domain=(0.4, 0.8))
    places = {row["setting"]: (row["x"], row["y"]) for row in chart.spec["data"]["values"]}
    top = (0.5, 3**0.5 / 2)
    wanted = {"100/0/0": (0, 0), "0/100/0": (1, 0), "0/0/100": top, "50/50/0": (0.5, 0)}
    assert {name: pytest.approx(place) for name, place in wanted.items()} == places
    corners = {row["label"]: (row["x"], row["y"]) for row in chart.spec["layer"][1]["data"]["values"]}
    assert [corners[label] for label in labels] == [(0, 0), (1, 0), pytest.approx(top)]
    assert [row["setting"] for row in chart.spec["data"]["values"] if row["ring"]] == ["100/0/0"]
    assert "by % of against, favor, none $x$: 0.800 at 100/0/0" in chart.text
    assert "(1 of 4 inside the boundary)" in chart.text
    assert b"none $x$" in chart.svg


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_a_chart_is_the_same_file_each_time(ending: str) -> None:
    row = {"setting": "a", "shares": (1, 0, 0), "value": 0.5, "is_marked": True}
    chart = triangle_chart("f1", [row], title="F1", labels=["</script>", "'b'", '"c"'], domain=(0.4, 0.8))
    assert len({chart.file(ending) for _ in range(3)}) == 1
