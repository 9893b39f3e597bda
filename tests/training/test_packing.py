"""Packing: rows of several conversations give the losses and gradients of each alone."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from biaseval.training.batches import Batch
from biaseval.training.loss import attention_inputs
from biaseval.training.objectives import Conversations, Loss, Share
from biaseval.training.packing import why_not_packed
from biaseval.training.templates import EncodedConversation
from tests.training.trainingtexts import CPU, random_conversations

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LAYERS = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "initializer_range": 0.3}
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}
FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False, "initializer_range": 0.3}
OPT = {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3}

CONFIGS = {
    "llama": hf.LlamaConfig(**LAYERS), "mistral": hf.MistralConfig(**LAYERS, sliding_window=64),
    "gemma2": hf.Gemma2Config(**LAYERS, head_dim=8, sliding_window=64),
    "gpt2": hf.GPT2Config(**GPT2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
    "gpt_neox": hf.GPTNeoXConfig(**SMALL, intermediate_size=64, initializer_range=0.3),
    "opt": hf.OPTConfig(**OPT, dropout=0, attention_dropout=0), "falcon": hf.FalconConfig(**SMALL, **FALCON),
}  # fmt: skip


def make(name: str, attention: str = "sdpa") -> hf.PreTrainedModel:
    torch.manual_seed(0)
    auto: Any = hf.AutoModelForCausalLM
    model: hf.PreTrainedModel = auto.from_config(CONFIGS[name], attn_implementation=attention, dtype=torch.float32)
    return model.train()


def some(n: int = 7) -> list[EncodedConversation]:
    return random_conversations(n, vocabulary=97)


def batches_of(conversations: list[EncodedConversation], capacity: int | None, share: Share) -> list[Batch]:
    return Conversations(conversations, capacity).batches(range(len(conversations)), share)


def loss_and_gradients(
    model: hf.PreTrainedModel, conversations: list[EncodedConversation], capacity: int | None, share: Share
) -> Any:
    model.zero_grad()
    module = Loss(model, Conversations(conversations, capacity), "float32", CPU)
    total = 0.0
    for batch in batches_of(conversations, capacity, share):
        loss = module(batch)
        loss.backward()
        total += loss.item()
    return total, {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}


def plain_loss(model: hf.PreTrainedModel, conversations: list[EncodedConversation]) -> torch.Tensor:
    """Return the mean over all answer tokens with nothing but the model, one conversation at a time."""
    losses = []
    for one in conversations:
        ids = torch.from_numpy(one.token_ids)[None]
        logprobs = model(input_ids=ids).logits[0].log_softmax(-1)
        losses += [-logprobs[place - 1, ids[0, place]] for place in np.flatnonzero(one.is_answer)]
    return torch.stack(losses).mean()


@pytest.mark.parametrize(
    ("name", "attention"),
    [*((name, "sdpa") for name in CONFIGS if name != "gemma2"), ("llama", "eager"), ("gemma2", "eager")],
)
def test_packed_rows_have_the_loss_and_the_gradients_of_each_conversation_alone(name: str, attention: str) -> None:
    model, conversations = make(name, attention), some()
    assert why_not_packed(model, 64) is None
    expected = plain_loss(model, conversations)
    expected.backward()
    wanted = {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}
    for how in ((64, Share(1)), (64, Share(3)), (None, Share(2))):
        loss, gradients = loss_and_gradients(model, conversations, *how)
        assert loss == pytest.approx(expected.item(), abs=1e-5), how
        assert gradients.keys() == wanted.keys()
        largest = max((gradients[key] - value).abs().max().item() for key, value in wanted.items())
        assert largest < 1e-5, how


def test_workers_share_a_step_evenly_and_sum_to_it() -> None:
    model, conversations = make("llama"), some(5)
    whole = plain_loss(model, conversations).item()
    for capacity in (None, 40):
        module = Loss(model, Conversations(conversations, capacity), "float32", CPU)
        for n_workers in (2, 3, 7):
            dealt = [batches_of(conversations, capacity, Share(1, rank, n_workers)) for rank in range(n_workers)]
            assert len({len(own) for own in dealt}) == 1
            assert sum(module(batch).item() for own in dealt for batch in own) == pytest.approx(whole, abs=1e-5)


def test_a_row_is_laid_out_by_hand() -> None:
    one = EncodedConversation(np.array([5, 6, 7]), np.array([False, True, True]))
    other = EncodedConversation(np.array([8, 9]), np.array([False, True]))
    [batch] = batches_of([one, other, one], 5, Share(2))
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]]
    assert batch.text_numbers.tolist() == [[1, 1, 1, 2, 2], [1, 1, 1, 0, 0]]
    assert batch.positions.tolist() == [0, 1, 3]
    assert batch.target_ids.tolist() == [[6, 7, 9], [6, 7, 0]]
    assert np.allclose(batch.target_weights, [[0.2, 0.2, 0.2], [0.2, 0.2, 0]])
    inputs = attention_inputs(make("llama"), batch.text_numbers, CPU)
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 0, 1]]
    assert inputs["attention_mask"].shape == (2, 1, 5, 5)
    assert inputs["attention_mask"][0, 0].int().tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]
    ]  # fmt: skip
    alone = attention_inputs(make("llama"), np.array([[1, 1, 1], [1, 1, 0]]), CPU)
    assert {key: value.tolist() for key, value in alone.items()} == {"attention_mask": [[1, 1, 1], [1, 1, 0]]}


def test_models_that_packing_would_get_wrong_say_why() -> None:
    auto: Any = hf.AutoModelForCausalLM
    with torch.device("meta"):
        mpt = auto.from_config(hf.MptConfig(vocab_size=97, d_model=32, n_heads=4, n_layers=2))
    assert why_not_packed(mpt, 64) == "mpt is not known to be right on packed rows"
    assert why_not_packed(make("mistral"), 65) == "max_tokens 65 is beyond the sliding window 64"
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    dynamic = auto.from_config(hf.LlamaConfig(**LAYERS, max_position_embeddings=128, rope_parameters=rope))
    assert why_not_packed(dynamic, 128) is None
    assert (
        why_not_packed(dynamic, 129)
        == "max_tokens 129 is beyond 128, where positions depend on the longest text of a batch"
    )
