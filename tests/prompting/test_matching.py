"""Which label an output stands for, by hand; and the choice among scored labels against a real constrained decoder."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.prompting.matching import constrained_choice, match_label
from biaseval.scoring import LabelScorer, prepare
from tests.scoring.families import few_shot_prompts
from tests.tinymodels import make_llama

BINARY = ("True", "False")
TERNARY = ("misinformation", "correct", "irrelevant")
SHARING = ("not", "not sure", "not so", "no")


@pytest.mark.parametrize(
    ("output", "labels", "expected"),
    [
        (" True\n", BINARY, "True"),
        ("TRUE story", BINARY, "True"),
        ("False\n\nSentence", BINARY, "False"),
        ("True.", BINARY, "True"),
        (" mis", TERNARY, "misinformation"),
        (" Misinfo", TERNARY, "misinformation"),
        ("correct", TERNARY, "correct"),
        ("information", TERNARY, None),  # a label that holds the word, but does not start with it
        ("Truest", BINARY, None),
        ("", BINARY, None),
        (" \n", BINARY, None),
        ("...", BINARY, None),
        (" not", SHARING, "not"),
        ("Not  sure", SHARING, "not sure"),
        ("not su", SHARING, "not sure"),
        ("not s", SHARING, None),  # of two labels
        ("not the", SHARING, "not"),
        ("no thing", SHARING, "no"),
        ("n", SHARING, None),
        ("very", ("very good", "very bad"), None),
        ("very bad", ("very good", "very bad"), "very bad"),
        ("none", ("favor", "none", "against"), "none"),  # a label may be called none
        ("n/a", ("n/a", "n"), "n/a"),
    ],
)
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
            input_ids=context,
            attention_mask=torch.ones_like(context),
            max_new_tokens=max(map(len, endings)),
            do_sample=False,
            pad_token_id=0,
            prefix_allowed_tokens_fn=allowed,
        )
        written = whole[0, n_context:].tolist()
        choice = constrained_choice(endings, logprobs[own])
        assert endings[choice] == written
        found.append(labels[choice])
    assert len(set(found)) > 1
