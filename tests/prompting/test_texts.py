"""Labels, parts and matches of texts."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.prompting.labels import label_cautions
from biaseval.prompting.matching import constrained_choice, match_label
from biaseval.prompting.parts import even_bounds
from biaseval.scoring import LabelScorer, prepare
from tests.scoring.families import few_shot_prompts
from tests.tinymodels import make_llama


@pytest.mark.parametrize(("one", "other", "shown"), [
    ("caf\u00e9", "cafe\u0301", r"'caf\xe9' and 'cafe\u0301'"), ("yes", "yes\u200b", r"'yes' and 'yes\u200b'"),
    ("\ufeffyes", "yes", r"'\ufeffyes' and 'yes'"), ("co\u00adop", "coop", r"'co\xadop' and 'coop'"),
    ("\u2764\ufe0f", "\u2764", r"'\u2764\ufe0f' and '\u2764'"),
    ("e\u200d\u0301t\u00e9", "\u00e9t\u00e9", r"'e\u200d\u0301t\xe9' and '\xe9t\xe9'"),
    ("\uff39\uff45\uff53", "Yes", r"'\uff39\uff45\uff53' and 'Yes'"),
    ("not\u00a0good", "not good", r"'not\xa0good' and 'not good'"), ("Yes", "yes", "'Yes' and 'yes'"),
    ("STRASSE", "Straße", "'STRASSE' and 'Straße'"), ("yes", "yes ", "'yes' and 'yes '"),
    ("not  good", "not good", "'not  good' and 'not good'"), ("Да", "да", "'Да' and 'да'"),
    ("1", "1.0", "'1' and '1.0'"), ("-0.50", "-.5", ""), ("01", "+1.00", "'01' and '+1.00'"),
    ("１", "1.0", "'１' and '1.0'"), ("True", "true", "'True' and 'true'"), ("1", "1.", "'1' and '1.'"),
    ("1", "1e0", "'1' and '1e0'"), ("2E+1", "20.0", "'2E+1' and '20.0'"), ("1e1", "1e2", ""), ("1e", "1", ""),
])  # fmt: skip
def test_labels_that_look_alike_are_said_so_that_they_can_be_told_apart(one: str, other: str, shown: str) -> None:
    found = list(label_cautions([one, "something else", other]))
    expected = f"the labels {shown} look alike and count as different; if they mean the same, mend them"
    assert found == ([expected] if shown else [])


def test_what_else_is_odd_of_a_label_is_said() -> None:
    for label in ("\u200b", "\u2060 \ufeff", "\u3164", "\ufe0f"):
        assert list(label_cautions(["yes", label])) == [f"the label {label!a} cannot be seen; write a word for it"]
    for label in ("None", "nan", "NULL"):
        assert list(label_cautions(["yes", label, "none of these", "NA"])) == [
            f"the label {label!r} may be a missing value; where it is, leave its cells empty"
        ]
    for label in ("“x”", "„x“", "»x«", "«x»", "‘x’", "‚x‘", "‹x›", "＂x＂", "”x"):
        [caution] = label_cautions([label, "y", "’tis", "it’s"])
        assert caution.startswith(f"the quotes of {label!r} count as part of the label")
    assert list(label_cautions(['"pos"', '"neg', "'x'", "it's", "'tis", 'a "b"'])) == [
        "the quotes of '\"pos\"', '\"neg', \"'x'\" count as part of the label; where they are only the file's, take "
        "them out"
    ]
    together, other = label_cautions(["Yes", "no", "YES", "yes", "NO"])
    assert together.startswith("the labels 'Yes' and 'YES' and 'yes' look alike and count as different; if they mean")
    assert other.startswith("the labels 'no' and 'NO' look alike")


BINARY = ("True", "False")
TERNARY = ("misinformation", "correct", "irrelevant")
SHARING = ("not", "not sure", "not so", "no")


@pytest.mark.parametrize(("output", "labels", "expected"), [
    (" True\n", BINARY, "True"), ("TRUE story", BINARY, "True"), ("False\n\nSentence", BINARY, "False"),
    ("True.", BINARY, "True"), (" mis", TERNARY, "misinformation"), (" Misinfo", TERNARY, "misinformation"),
    ("correct", TERNARY, "correct"),
    ("information", TERNARY, None),  # a label that holds the word, but does not start with it
    ("Truest", BINARY, None), ("", BINARY, None), (" \n", BINARY, None), ("...", BINARY, None),
    (" not", SHARING, "not"), ("Not  sure", SHARING, "not sure"), ("not su", SHARING, "not sure"),
    ("not s", SHARING, None),  # of two labels
    ("not the", SHARING, "not"), ("no thing", SHARING, "no"), ("n", SHARING, None),
    ("very", ("very good", "very bad"), None), ("very bad", ("very good", "very bad"), "very bad"),
    ("none", ("favor", "none", "against"), "none"),  # a label may be called none
    ("n/a", ("n/a", "n"), "n/a"),
])  # fmt: skip
def test_an_output_stands_for_the_label_it_begins(output: str, labels: tuple[str, ...], expected: str | None) -> None:
    assert match_label(output, labels) == expected


def test_the_likeliest_token_wins_where_labels_part() -> None:
    # "a c" has the smaller likelihood as a whole, and the likelier first token.
    tokens = [[5, 7, 1], [5, 8, 1], [6, 9, 1]]
    logprobs = [[-0.5, -3.0, -9.0], [-0.5, -2.0, -9.0], [-0.9, -0.1, -0.1]]
    assert constrained_choice(tokens, logprobs) == 1
    # A label that begins another competes by its EOS.
    for eos, rest, choice in ((-1.0, -0.1, 0), (-1.2, -9.0, 1), (-1.1, -0.1, 0)):
        assert constrained_choice([[5, 1], [5, 8, 1]], [[-0.5, eos], [-0.5, -1.1, rest]]) == choice


@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_that_of_a_constrained_decoder(seed: int, tmp_path: Path) -> None:
    """Transformers' own generate, which may only write the labels' tokens (``prefix_allowed_tokens_fn``)."""
    folder = str(make_llama(tmp_path, seed=seed))
    model, tokenizer = load_model(ModelSource(folder)), load_tokenizer(ModelSource(folder))
    labels = ["yes", "yes sure", "not", "not sure", "not so", "no"]
    texts = few_shot_prompts()
    prompts = pa.table({**{name: texts[name] for name in ("prompt_id", "text")}, "labels": [labels] * texts.num_rows})
    prepared = prepare(tokenizer, prompts)
    tokens = prepared.target_tokens()
    logprobs = LabelScorer(model, tokenizer).score_prepared(prepared)["token_logprobs"].to_pylist()
    found = []
    for row, text in enumerate(texts["text"].to_pylist()):
        own = slice(row * len(labels), (row + 1) * len(labels))
        context = tokenizer(text, return_tensors="pt")["input_ids"]
        n_context, endings = context.shape[1], tokens[own]

        def allowed(
            _: int, ids: torch.Tensor, n_context: int = n_context, endings: list[list[int]] = endings
        ) -> list[int]:
            written = ids[n_context:].tolist()
            return sorted({ending[len(written)] for ending in endings if ending[: len(written)] == written})

        whole = model.generate(
            input_ids=context, attention_mask=torch.ones_like(context), max_new_tokens=max(map(len, endings)),
            do_sample=False, pad_token_id=0, prefix_allowed_tokens_fn=allowed,
        )  # fmt: skip
        written = whole[0, n_context:].tolist()
        choice = constrained_choice(endings, logprobs[own])
        assert endings[choice] == written
        found.append(labels[choice])
    assert len(set(found)) > 1


@pytest.mark.parametrize(("tokens", "blocks", "n_parts", "expected"), [
    # 12 tokens in 3 parts of 4: the blocks end at 3, 7 and 12, and each is one token away at most.
    ([1] * 12, [3, 4, 5], 3, [(0, 3), (3, 7), (7, 12)]),
    # In 2 parts of 6: 7 is one away, which is less than a quarter of 6.
    ([1] * 12, [3, 4, 5], 2, [(0, 7), (7, 12)]),
    # No block ends near the middle: it is cut where the tokens say, not the rows.
    ([5, 1, 1, 1, 1, 1], [6], 2, [(0, 1), (1, 6)]),
    # The first block may be the nearest one.
    ([4, 4], [1, 1], 2, [(0, 1), (1, 2)]),
    # More parts than rows: a row is the least that a part holds.
    ([7, 7], [2], 5, [(0, 1), (1, 2)]),
])  # fmt: skip
def test_parts_have_about_as_many_tokens_and_end_with_a_block_where_one_is_near(
    tokens: list[int], blocks: list[int], n_parts: int, expected: list[tuple[int, int]]
) -> None:
    assert list(even_bounds(tokens, blocks, n_parts)) == expected
