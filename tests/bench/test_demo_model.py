"""The demo's model, loaded from the package as a user would."""

from typing import Any

import numpy as np
import pytest

from biaseval.demo import MODEL_PATH
from tests.bench.demo_models.measure import measure

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL_PATH)


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL_PATH, dtype=torch.float32).eval()


def test_the_model_is_a_small_llama_with_a_window_of_4096(model: Any) -> None:
    assert model.config.model_type == "llama"
    assert model.config.max_position_embeddings == 4096
    assert sum(weight.numel() for weight in model.parameters()) < 1_800_000
    assert sum(path.stat().st_size for path in MODEL_PATH.glob("*.safetensors")) <= 4 * 2**20


def test_every_text_begins_with_bos_and_eos_is_one_token(tokenizer: Any, model: Any) -> None:
    ids = tokenizer(f"Input: x.{tokenizer.eos_token}")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id == model.config.bos_token_id
    assert ids[-1] == tokenizer.eos_token_id == model.config.eos_token_id
    assert len(tokenizer) == model.config.vocab_size


@pytest.mark.parametrize(
    "text", ["", " two  spaces\n\n", "naïve café – „Straße“…", "日本語 😀 \u202e\x00", "[MASK] N/A"]
)
def test_any_text_is_encoded_without_loss(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_four_demonstrations_lift_macro_f1_well_above_guessing_on_new_tasks(model: Any, tokenizer: Any) -> None:
    rows = measure(model, tokenizer, seed=77, n_main=24, n_demos=(4,), demo_sets=1, methods=("none",))
    for kind, guessing in (("binary", 0.50), ("three_labels", 0.33), ("multi_choice", 0.25)):
        assert np.mean([row.macro_f1 for row in rows if row.kind == kind]) > guessing + 0.15


def test_without_demonstrations_domain_context_calibration_removes_bias(model: Any, tokenizer: Any) -> None:
    rows = measure(model, tokenizer, seed=77, n_main=24, n_demos=(0,), methods=("none", "dc"))
    means = {
        (metric, method): np.mean([getattr(row, metric) for row in rows if row.method == method])
        for metric in ("rsd", "macro_f1")
        for method in ("none", "dc")
    }
    assert means["rsd", "dc"] < means["rsd", "none"] - 0.2
    assert means["macro_f1", "dc"] > means["macro_f1", "none"] + 0.1
