"""The expected texts are the words of P2 as printed, with the separators that the protocol suggests (section 11.2)."""

import pytest

from biaseval.errors import InputError
from biaseval.inputs.template import PromptTemplate
from biaseval.majority_bias.prompts import item_fields, template_of
from biaseval.prompting.labels import separator
from biaseval.spec import MajorityPromptSpec, item_pieces

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


@pytest.mark.parametrize(
    ("preset", "fields", "labels", "expected"),
    [
        ("boolq", [{"sentence": text} for text in _SENTENCES], ["True", "False"], BOOLQ),
        ("rte", [{"premise": one, "hypothesis": other} for one, other in _PAIRS], ["True"], RTE),
        ("covid5g", [{"tweet": text} for text in _TWEETS], ["misinformation", "correct"], COVID5G),
    ],
)
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
        n_demos=1,
        instruction_text="Say it {literally}.",
        item="On {target} {{x}}: {tweet} ({target})\nstance: {label}.",
        separator="\n",
    )
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


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("{tweet}: {label", "is no template"),
        ("{tweet} {label} {tweet}", "{label} last"),
        ("{tweet} {label} {label}", "has the fields"),
        ("{tweet}", "has the fields"),
        ("Label: {label}", "has the fields"),
        ("{} {label}", "no plain name"),
        ("{0} {label}", "no plain name"),
        ("{tweet.upper} {label}", "no plain name"),
        ("{tweet!r} {label}", "no plain name"),
        ("{tweet:>9} {label}", "no plain name"),
        ("{tweet} Label:{label}", "no white space before {label}"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(item: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        item_pieces(item)


def test_the_definition_of_a_task_file_is_the_instruction_where_the_spec_has_none() -> None:
    spec = MajorityPromptSpec(n_demos=1, item="{input} {label}")
    assert template_of(spec, "Say yes or no.", instruction=True).instruction == "Say yes or no."
    with pytest.raises(InputError, match=r"prompt.instruction_text: is missing"):
        template_of(spec, instruction=True)
    assert template_of(spec, instruction=False).instruction is None
