"""Attention over a pack gives what dense masked attention gives, by whichever kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from biaseval.scoring import attention
from biaseval.scoring.attention import TreeMask, dense_mask, tree_mask
from biaseval.scoring.trie import Pack, TokenTrie, build_trie, plan_packs

CPU = torch.device("cpu")


def packs(seed: int) -> tuple[TokenTrie, list[Pack]]:
    """Return packs behind a shared path, in the midst of a branch, and of one node."""
    draw = np.random.default_rng(seed)
    contexts = [np.concatenate([[0] * 70, draw.integers(1, 3, n)]) for n in (30, 60)]
    sequences = [
        np.concatenate([contexts[row % 2], draw.integers(1, 4, draw.integers(1, 90)), [9]]) for row in range(40)
    ]
    trie = build_trie(sequences, [1] * len(sequences))
    return trie, [pack for budget in (1, 37, 300) for pack in list(plan_packs(trie, budget))[-40:]]


def states(pack: Pack, n_heads: int, n_key_heads: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n, n_columns = pack.stop - pack.start, len(pack.path) + pack.stop - pack.start
    shapes = ((1, n_heads, n, 8), (1, n_key_heads, n_columns, 8), (1, n_key_heads, n_columns, 8))
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    return 3 * query, key, value  # some keys get nearly all the weight


@pytest.mark.parametrize("kernels", ["fused", "products"])
@pytest.mark.parametrize(("n_heads", "n_key_heads"), [(4, 4), (4, 2), (6, 1)])
def test_a_pack_attends_as_with_the_dense_mask(
    kernels: str, n_heads: int, n_key_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == "products":  # what GPUs use
        monkeypatch.setattr(attention, "_masked", attention._masked_by_products)
        monkeypatch.setattr(attention, "_SCORES_AT_ONCE", 20_000)
    trie, some = packs(0)
    n_blocked = 0
    for pack in some:
        query, key, value = states(pack, n_heads, n_key_heads, pack.stop)
        mask = tree_mask(trie, pack, CPU)
        assert isinstance(mask, TreeMask)
        group = n_heads // n_key_heads
        expected = F.scaled_dot_product_attention(
            query,
            key.repeat_interleave(group, dim=1),
            value.repeat_interleave(group, dim=1),
            attn_mask=dense_mask(trie, pack, CPU)[None, None],
            scale=0.3,
        )
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
        assert type(found) is torch.Tensor
        assert (found - expected).abs().max() < 1e-5
        n_blocked += mask.blocks.is_seen.shape[0] > 1
    assert n_blocked


def test_only_attention_tells_the_mask_from_a_dense_one() -> None:
    trie, some = packs(1)
    mask = tree_mask(trie, some[-1], CPU)
    dense = dense_mask(trie, some[-1], CPU)[None, None]
    for found, expected in ((mask[..., :5], dense[..., :5]), (~mask, ~dense), (mask.float(), dense.float())):
        assert type(found) is torch.Tensor
        assert torch.equal(found, expected)
    assert isinstance(mask.to(CPU), TreeMask)
    elsewhere = mask.to("meta")  # a model over several devices
    assert isinstance(elsewhere, TreeMask)
    assert {elsewhere.blocks.keys.device.type, elsewhere.blocks.is_seen.device.type} == {"meta"}


def test_what_the_blocks_cannot_do_is_left_to_the_dense_mask() -> None:
    trie, some = packs(2)
    pack = some[-1]
    query, key, _ = states(pack, 4, 4, 0)
    wide = torch.randn(1, 4, key.shape[2], 16)  # values wider than keys
    expected = F.scaled_dot_product_attention(query, key, wide, attn_mask=dense_mask(trie, pack, CPU)[None, None])
    found = F.scaled_dot_product_attention(query, key, wide, attn_mask=tree_mask(trie, pack, CPU))
    assert torch.equal(found, expected)
