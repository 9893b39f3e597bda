"""Every type that transformers loads as a causal language model scores as a plain pass does, or is refused by name."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from transformers import PretrainedConfig

from biaseval.errors import InputError
from biaseval.models import REFUSED, ModelSource, causal, describe_model, load_model, load_tokenizer
from biaseval.scoring import LabelScorer
from tests.bench.causaltypes import TYPES, save_small, small_config
from tests.bench.models_page import ENCODERS, NEEDS, PROMPTS, WITH_ENCODER, decoder_settings, measured, rows_of_the_page
from tests.scoring.families import EXACT, by_the_rule, largest_difference

pytestmark = pytest.mark.filterwarnings("ignore")  # what transformers says of its own models

FAST = {
    "bloom", "deepseek_v3", "gemma3n_text", "gemma4", "gemma4_text", "gpt_oss", "jamba", "llama4", "mamba2",
    "openai-gpt", "qwen3_5_moe", "roberta",
}  # fmt: skip


def each(types: set[str] | frozenset[str]) -> list[object]:
    return [pytest.param(own, marks=() if own in FAST else pytest.mark.slow) for own in sorted(types)]


@pytest.mark.parametrize("model_type", each({*TYPES} - {*REFUSED}))
def test_every_type_scores_as_a_plain_pass(model_type: str, tmp_path: Path) -> None:
    package = NEEDS.get(model_type)
    if package is not None and importlib.util.find_spec(package) is None:
        with pytest.raises(InputError, match=package):
            describe_model(config_alone(small_config(model_type), tmp_path))
        return
    folder = save_small(small_config(model_type, **decoder_settings(model_type)), tmp_path / "model")
    model, tokenizer = load_model(ModelSource(str(folder))), load_tokenizer(ModelSource(str(folder)))
    assert describe_model(ModelSource(str(folder))).n_parameters == model.num_parameters()
    expected = by_the_rule(model, tokenizer, PROMPTS)
    assert np.concatenate(expected).std() > 0.01
    assert largest_difference(LabelScorer(model, tokenizer, path="full_text").score(PROMPTS), expected) < EXACT
    found, stated = measured(model, tokenizer, expected), rows_of_the_page()[model_type]
    assert (found.path, found.reason) == (stated.path, stated.reason), "renew it: python -m tests.bench.models_page"
    assert found.difference <= min(10 * stated.difference, EXACT)


def test_the_page_has_every_type() -> None:
    rows = rows_of_the_page()
    assert [*rows] == sorted(TYPES)
    assert {name: row.reason for name, row in rows.items() if row.path == "refused"} == REFUSED
    assert {name for name, row in rows.items() if row.path == "not measured"} == {*NEEDS}


def config_alone(config: PretrainedConfig, folder: Path) -> ModelSource:
    config.save_pretrained(folder)
    return ModelSource(str(folder))


@pytest.mark.parametrize("model_type", sorted(REFUSED))
def test_types_that_cannot_be_scored_are_refused_by_name(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = rf"{model_type}\), as {REFUSED[model_type]}|encoder with a decoder \({model_type}\)"
    source = config_alone(small_config(model_type), tmp_path)
    for read in (describe_model, load_model):
        with pytest.raises(InputError, match=reason):
            read(source)
    monkeypatch.setattr(causal, "REFUSED", {})
    assert not is_scored_right(model_type, tmp_path / "model"), f"take {model_type} off the list of refusals"


def is_scored_right(model_type: str, folder: Path) -> bool:
    try:
        source = ModelSource(str(save_small(small_config(model_type), folder)))
        model, tokenizer = load_model(source), load_tokenizer(source)
        scores = LabelScorer(model, tokenizer).score(PROMPTS)
        return largest_difference(scores, by_the_rule(model, tokenizer, PROMPTS)) < EXACT
    except Exception as error:
        print(model_type, repr(error))  # for who looks at why
        return False


@pytest.mark.parametrize("model_type", sorted(ENCODERS))
def test_encoders_are_refused_and_do_look_ahead(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_small(small_config(model_type), tmp_path)
    for read in (describe_model, load_model):
        with pytest.raises(InputError, match=rf"no causal language model \({model_type}\), as its tokens see"):
            read(ModelSource(str(folder)))
    with pytest.raises(InputError, match=rf"no causal language model \({model_type}\), as its tokens see"):
        LabelScorer.load(str(folder))
    monkeypatch.setattr(causal, "_ENCODERS", set())
    with pytest.raises(InputError, match="changes with later tokens"):
        load_model(ModelSource(str(folder)))


def test_encoders_with_a_decoder_and_decoders_that_look_both_ways_are_refused(tmp_path: Path) -> None:
    for model_type in sorted(WITH_ENCODER):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        for read in (describe_model, load_model):
            with pytest.raises(InputError, match=rf"is an encoder with a decoder \({model_type}\)"):
                read(ModelSource(str(tmp_path)))
    for model_type, both in (("gemma", True), ("gemma4_text", "all")):
        source = config_alone(small_config(model_type, use_bidirectional_attention=both), tmp_path)
        with pytest.raises(InputError, match=rf"no causal language model \({model_type}\), as its tokens see"):
            describe_model(source)
