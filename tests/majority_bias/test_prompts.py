"""Prompts and proportions of majority bias."""

from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.inputs.template import PromptTemplate
from biaseval.majority_bias import proportions as grids
from biaseval.majority_bias.prompts import item_fields, template_of
from biaseval.prompting.labels import separator
from biaseval.spec import MajorityPromptSpec, item_pieces
from tests.majority_bias.datafiles import boolq_spec

MANY = {"True": 1000, "False": 1000, "a": 1000, "b": 1000, "c": 1000, "d": 1000}


def _settings(proportions: object, labels: str = "a b c", n_demos: int = 28, **data: Any) -> list[grids.Setting]:
    available = data.pop("available", MANY)
    spec = boolq_spec(Path("unused"), proportions=proportions, prompt={"n_demos": n_demos}, data=data)
    return grids.settings_of(spec, labels.split(), available)


def test_the_binary_grid_goes_from_none_of_the_first_label_to_all_in_tenths() -> None:
    settings = _settings("binary_11", "True False", 50)
    assert [setting.name for setting in settings] == [f"{10 * n}/{100 - 10 * n}" for n in range(11)]
    assert [setting.counts for setting in settings] == [(5 * n, 50 - 5 * n) for n in range(11)]
    assert [setting.number for setting in settings] == list(range(11))


def test_the_ternary_grid_is_the_papers_in_its_order_with_whole_counts() -> None:
    # Protocol section 11.1.
    published = (
        "0/0/100 100/0/0 0/100/0 0/25/75 0/75/25 25/0/75 75/0/25 75/25/0 25/75/0 25/25/50 25/50/25 50/25/25 "
        "50/0/50 0/50/50 50/50/0"
    )
    settings = _settings("ternary_15")
    assert " ".join(setting.name for setting in settings) == published
    assert {count for setting in settings for count in setting.counts} == {0, 7, 14, 21, 28}
    assert len(set(grids.TERNARY_15)) == 15
    assert all(sum(shares) == 1 for shares in (*grids.TERNARY_15, *grids.BINARY_11))


@pytest.mark.parametrize(("shares", "total", "counts"), [
    ((0.25, 0.75), 10, (3, 7)),  # 2.5 and 7.5: equal remainders, the earlier label gets the one left
    ((0.75, 0.25), 10, (8, 2)),
    ((1 / 3, 1 / 3, 1 / 3), 10, (4, 3, 3)),
    ((0.15, 0.15, 0.7), 3, (1, 0, 2)),  # .45 .45 2.1: one left, to the earlier of the equal remainders
    ((0.29, 0.71), 100, (29, 71)),  # 0.29 * 100 is 28.999999999999996 in float64
    ((0.93, 0.07), 50, (47, 3)),  # 0.07 * 50 is 3.5000000000000004
    ((0.7, 0.3), 10, (7, 3)),  # 0.7 * 10 is 7.000000000000001
    ((0.47, 0.16, 0.37), 10, (5, 1, 4)),  # 4.7 1.6 3.7: two left, to .7 and .7
    ((0.5, 0.5), 1, (1, 0)),
    ((0.0, 1.0), 7, (0, 7)),
])  # fmt: skip
def test_counts_are_of_the_largest_remainders(shares: tuple[float, ...], total: int, counts: tuple[int, ...]) -> None:
    assert grids.largest_remainder(shares, total) == counts


@pytest.mark.parametrize(
    ("shares", "name"),
    [((0.3, 0.7), "30/70"), ((1 / 3, 2 / 3), "33.3/66.7"), ((0.125, 0.875), "12.5/87.5"), ((0.0, 1.0), "0/100")],
)
def test_a_setting_is_named_by_its_percentages(shares: tuple[float, ...], name: str) -> None:
    assert grids.setting_name(shares) == name


def test_settings_with_the_same_counts_are_found_together() -> None:
    assert grids.same_counts(_settings("binary_11", "True False", 50)) == []
    assert grids.same_counts(_settings("binary_11", "True False", 4)) == [
        ["0/100", "10/90"], ["20/80", "30/70"], ["40/60", "50/50", "60/40"], ["70/30", "80/20"], ["90/10", "100/0"],
    ]  # fmt: skip


def test_a_simplex_has_all_settings_of_its_step() -> None:
    names = " ".join(setting.name for setting in _settings({"simplex": 0.5}))
    assert names == "0/0/100 0/50/50 0/100/0 50/0/50 50/50/0 100/0/0"
    assert [s.name for s in _settings({"simplex": 0.1}, "a b")] == [s.name for s in _settings("binary_11", "a b")]
    assert len(_settings({"simplex": 0.25}, "a b c d")) == 35  # 7 over 4
    with pytest.raises(InputError, match="makes 176,851 settings of 4 labels"):
        _settings({"simplex": 0.01}, "a b c d")


def test_listed_settings_keep_their_order_and_leave_out_labels_without_a_share() -> None:
    settings = _settings([{"c": 1}, {"b": 0.4, "a": 0.6}], n_demos=5)
    assert [(s.number, s.name, s.counts) for s in settings] == [(0, "0/0/100", (0, 0, 5)), (1, "60/40/0", (3, 2, 0))]


@pytest.mark.parametrize(("proportions", "labels", "problem"), [
    ("binary_11", "a b c", "binary_11 is for 2 labels and the data has 3: 'a', 'b', 'c'"),
    ("ternary_15", "a b", "ternary_15 is for 3 labels and the data has 2"),
    ([{"a": 1}, {"x": 1}], "a b", "setting 1 has the label 'x' and the data has 2: 'a', 'b'"),
    ([{"a": 1}, {"a": 1, "b": 0}], "a b", "settings 0 and 1 are both 100/0"),
])  # fmt: skip
def test_a_grid_that_does_not_fit_the_labels_is_refused(proportions: object, labels: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        _settings(proportions, labels)
    assert problem in str(caught.value)


def test_too_few_examples_are_refused_with_the_numbers_of_each_setting_and_label() -> None:
    with pytest.raises(InputError) as caught:
        _settings("binary_11", "True False", 10, available={"True": 8, "False": 9})
    title, first, second, third = str(caught.value).splitlines()
    assert title == "3 problems:"
    assert "setting 0/100 needs 10 of 'False' and data.train has 9; add examples, lower prompt.n_demos" in first
    assert "setting 90/10 needs 9 of 'True' and data.train has 8" in second
    assert "setting 100/0 needs 10 of 'True' and data.train has 8" in third


def test_a_prompt_with_too_few_examples_is_shortened_as_a_whole_and_its_shares_hold() -> None:
    available = {"True": 4, "False": 9}
    grid = [{"True": share, "False": 1 - share} for share in (0, 0.3, 0.5, 0.7, 1)]
    settings = _settings(grid, "True False", 10, available=available, on_shortage="reduce")
    assert [(setting.number, setting.counts_asked, setting.counts) for setting in settings] == [
        (0, (0, 10), (0, 9)),
        (1, (3, 7), (3, 7)),
        (2, (5, 5), (4, 4)),  # of 9: 4.5 and 4.5, a tie that needs a fifth True
        (3, (7, 3), (4, 2)),  # of 6: 4.2 and 1.8; of 7: 4.9 and 2.1, which needs a fifth True
        (4, (10, 0), (4, 0)),
    ]


def test_no_label_is_lost_when_a_prompt_is_shortened() -> None:
    assert grids.reduced_counts((0.1, 0.9), 10, [1, 4]) == (1, 4)  # of 5: .5 and 4.5, the tie goes to the first
    assert grids.reduced_counts((0.1, 0.9), 10, [1, 3]) is None  # of 4: .4 and 3.6, so that the first would have none
    halves, available = [{"True": 0.5, "False": 0.5}], {"True": 0, "False": 99}
    message = r"setting 50/50 needs 2 of 'True' and data.train has 0.*no shorter prompt keeps its shares"
    with pytest.raises(InputError, match=message):
        _settings(halves, "True False", 4, available=available, on_shortage="reduce")


BOOLQ = """\
You need to classify the following sentence as True or False. Below, some examples are provided

Sentence: is grass green
output: True

Sentence: do pigs fly
output: False

Sentence: is ice warm
output:"""

RTE = """\
You need to classify the following premise-hypothesis pair as True or False. Below, some examples are provided

Premise A dog barks.
hypothesis An animal barks.
entailment True

Premise A dog sleeps.
hypothesis A cat sleeps.
entailment"""

COVID5G = """\
You need to classify a following tweet into one of the following - misinformation, correct or irrelevant. Below some \
examples are provided.

Tweet : masts spread it
Label: misinformation

Tweet : no, they do not
Label: correct

Tweet : my lunch
Label:"""


def _whole(template: PromptTemplate, demos: list[tuple[dict[str, str], str]], test: dict[str, str]) -> str:
    shown = "".join(template.demonstration(fields, label) for fields, label in demos)
    return template.head + shown + template.test(test)


_SENTENCES = ["is grass green", "do pigs fly", "is ice warm"]
_PAIRS = [("A dog barks.", "An animal barks."), ("A dog sleeps.", "A cat sleeps.")]
_TWEETS = ["masts spread it", "no, they do not", "my lunch"]


@pytest.mark.parametrize(("preset", "fields", "labels", "expected"), [
    ("boolq", [{"sentence": text} for text in _SENTENCES], ["True", "False"], BOOLQ),
    ("rte", [{"premise": one, "hypothesis": other} for one, other in _PAIRS], ["True"], RTE),
    ("covid5g", [{"tweet": text} for text in _TWEETS], ["misinformation", "correct"], COVID5G),
])  # fmt: skip
def test_presets_are_the_words_of_the_paper(
    preset: str, fields: list[dict[str, str]], labels: list[str], expected: str
) -> None:
    spec = MajorityPromptSpec.model_validate({"preset": preset, "n_demos": 2})
    *shown, test = fields
    demos = list(zip(shown, labels, strict=True))
    assert _whole(template_of(spec, instruction=True), demos, test) == expected
    # Without the instruction everything else is the same.
    assert _whole(template_of(spec, instruction=False), demos, test) == expected.partition("\n\n")[2]


def test_a_template_of_ones_own_may_repeat_fields_and_end_behind_the_label() -> None:
    spec = MajorityPromptSpec(
        n_demos=1, instruction_text="Say it {literally}.",
        item="On {target} {{x}}: {tweet} ({target})\nstance: {label}.", separator="\n",
    )  # fmt: skip
    assert item_fields(spec) == ("target", "tweet")
    template = template_of(spec, instruction=True)
    fields = {"target": "tea", "tweet": "I like {tea}"}
    shown = "On tea {x}: I like {tea} (tea)\nstance: favor."
    assert template.item(fields, "favor") == shown
    assert template.head + template.demonstration(fields, "favor") == f"Say it {{literally}}.\n{shown}\n"
    assert template.test(fields) == "On tea {x}: I like {tea} (tea)\nstance:"


@pytest.mark.parametrize("before", ["Label: ", "Label:\n", "Label:  ", "Label:\n ", "Label:\t", " "])
def test_a_label_stands_behind_the_test_item_as_in_a_demonstration(before: str) -> None:
    spec = MajorityPromptSpec(n_demos=1, instruction=[False], item="{tweet}" + before + "{label}")
    template = template_of(spec, instruction=False)
    for tweet in ("some text", ""):
        test = template.test({"tweet": tweet})
        assert test + separator(test, "favor") + "favor" == template.item({"tweet": tweet}, "favor")


@pytest.mark.parametrize(("item", "problem"), [
    ("{tweet}: {label", "is no template"), ("{tweet} {label} {tweet}", "{label} last"),
    ("{tweet} {label} {label}", "has the fields"), ("{tweet}", "has the fields"), ("Label: {label}", "has the fields"),
    ("{} {label}", "no plain name"), ("{0} {label}", "no plain name"), ("{tweet.upper} {label}", "no plain name"),
    ("{tweet!r} {label}", "no plain name"), ("{tweet:>9} {label}", "no plain name"),
    ("{tweet} Label:{label}", "no white space before {label}"),
])  # fmt: skip
def test_a_template_that_cannot_be_filled_is_refused(item: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        item_pieces(item)


def test_the_definition_of_a_task_file_is_the_instruction_where_the_spec_has_none() -> None:
    spec = MajorityPromptSpec(n_demos=1, item="{input} {label}")
    assert template_of(spec, "Say yes or no.", instruction=True).instruction == "Say yes or no."
    with pytest.raises(InputError, match=r"prompt.instruction_text: is missing"):
        template_of(spec, instruction=True)
    assert template_of(spec, instruction=False).instruction is None
