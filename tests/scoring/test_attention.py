"""Tries of texts, and attention over packs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from biaseval.scoring import attention, kernels
from biaseval.scoring.attention import TreeMask, dense_mask, tree_mask
from biaseval.scoring.blocks import layout_of
from biaseval.scoring.trie import Pack, TokenTrie, build_trie, plan_packs

CPU = torch.device("cpu")


def test_a_trie_by_hand() -> None:
    # 7 8 -> 1 | 2 3 ; the last token of each is only predicted
    trie = build_trie([np.array([7, 8, 2, 3, 9]), np.array([7, 8, 1, 9]), np.array([7, 8, 2, 9])], [2, 2, 2])
    assert trie.token.tolist() == [7, 8, 1, 2, 3]
    assert trie.depth.tolist() == [0, 1, 2, 2, 3]
    assert trie.end.tolist() == [5, 5, 3, 5, 5]
    answers = sorted(zip(trie.target_slot.tolist(), trie.target_node.tolist(), trie.target_token.tolist(), strict=True))
    # slots 0-2 of the first: 2, 3, 9 after nodes 8, 2, 3; slots 3-4: 1, 9; slots 5-6: 2, 9
    assert answers == [(0, 1, 2), (1, 3, 3), (2, 4, 9), (3, 1, 1), (4, 2, 9), (5, 1, 2), (6, 3, 9)]
    assert [as_lists(pack) for pack in plan_packs(trie, 5)] == [(0, 5, [], 0)]
    assert [as_lists(pack) for pack in plan_packs(trie, 2)] == [(0, 2, [], 0), (2, 4, [0, 1], 2), (4, 5, [0, 1, 3], 3)]


def as_lists(pack: Pack) -> tuple[int, int, list[int], int]:
    return pack.start, pack.stop, pack.path.tolist(), pack.n_shared


def random_sequences(seed: int) -> Iterator[np.ndarray]:
    draw = np.random.default_rng(seed)
    for _ in range(60):
        yield np.concatenate([[0], draw.integers(1, 3, draw.integers(1, 40)), [9]])


@pytest.mark.parametrize("budget", [1, 7, 50, 10_000])
@pytest.mark.parametrize("seed", range(2))
def test_every_node_runs_once_behind_exactly_its_ancestors(seed: int, budget: int) -> None:
    sequences = list(random_sequences(seed))
    trie = build_trie(sequences, [1] * len(sequences))
    assert trie.n_nodes == len({tuple(own[: i + 1]) for own in sequences for i in range(len(own) - 1)})
    packs = list(plan_packs(trie, budget))
    assert [node for pack in packs for node in range(pack.start, pack.stop)] == list(range(trie.n_nodes))
    for pack in packs:
        assert 0 < pack.stop - pack.start <= budget
        nodes = range(pack.start, pack.stop)
        ancestors = [[other for other in range(node + 1) if trie.end[other] > node] for node in nodes]
        assert pack.path.tolist() == ancestors[0][:-1]
        assert pack.n_shared == sum(all(node in own for own in ancestors) for node in pack.path)
        columns = [*pack.path, *nodes]
        is_seen = dense_mask(trie, pack, CPU).numpy()
        for row, own in enumerate(ancestors):
            assert [columns[column] for column in np.flatnonzero(is_seen[row])] == own
            assert trie.depth[nodes[row]] == len(own) - 1


@pytest.mark.parametrize("seed", range(2))
def test_blocks_hold_every_key_that_their_queries_see(seed: int) -> None:
    draw = np.random.default_rng(seed)
    contexts = [np.concatenate([[0] * 70, draw.integers(1, 3, length)]) for length in (1, 1, 250)]
    sequences = [
        np.concatenate([contexts[row % 3], draw.integers(1, 3, draw.integers(1, 60)), [9]]) for row in range(120)
    ]
    trie = build_trie(sequences, [1] * len(sequences))
    kinds = set()
    for pack in plan_packs(trie, 600):
        n = pack.stop - pack.start
        is_seen = dense_mask(trie, pack, CPU).numpy()
        assert (dense_mask(trie, pack, CPU, np.array([pack.stop - 1, pack.start])).numpy() == is_seen[[-1, 0]]).all()
        layout = layout_of(trie, pack, CPU)
        kinds.add(len(layout.blocks))
        found = np.zeros_like(is_seen)
        found[:, : layout.n_shared] = True
        if not layout.blocks:
            found[:, layout.n_shared :] = np.tri(n, dtype=np.bool_)
        for blocks in layout.blocks:
            assert blocks.keys.shape[1] % 8 == 0
            for block, queries in enumerate(blocks.queries.numpy()):
                row, key = np.nonzero(blocks.is_seen[block, 0].numpy())
                found[queries[row], blocks.keys[block].numpy()[key]] = True
        assert (found == is_seen).all()
        if layout.places is not None:
            laid_out = torch.cat([blocks.queries.flatten() for blocks in layout.blocks])
            assert laid_out[layout.places].tolist() == list(range(n))
    assert kinds > {0, 2}


def packs(seed: int) -> tuple[TokenTrie, list[Pack]]:
    """Return packs behind a shared path, in the midst of a branch, and of one node."""
    draw = np.random.default_rng(seed)
    contexts = [np.concatenate([[0] * 70, draw.integers(1, 3, n)]) for n in (30, 60)]
    sequences = [
        np.concatenate([contexts[row % 2], draw.integers(1, 4, draw.integers(1, 90)), [9]]) for row in range(40)
    ]
    trie = build_trie(sequences, [1] * len(sequences))
    return trie, [pack for budget in (1, 37, 300) for pack in list(plan_packs(trie, budget))[-40:]]


def largest(some: list[Pack]) -> Pack:
    """Return a pack of many blocks."""
    return max(some, key=lambda pack: pack.stop - pack.start)


def states(pack: Pack, n_heads: int, n_key_heads: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    n, n_columns = pack.stop - pack.start, len(pack.path) + pack.stop - pack.start
    shapes = ((1, n_heads, n, 8), (1, n_key_heads, n_columns, 8), (1, n_key_heads, n_columns, 8))
    query, key, value = (torch.randn(shape, generator=generator) for shape in shapes)
    return 3 * query, key, value  # some keys get nearly all the weight


class Gpu:
    """Takes what CUDA's kernels take, and computes it on the CPU: of their rules all that shapes and strides can break.

    After what is known of ``_efficient_attention_forward`` and ``mha_fwd``; it was not compared with their sources,
    which no wheel has.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _scaled_dot_product_efficient_attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None,
        compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        self.calls.append("efficient, bias" if attn_bias is not None else "efficient")
        assert compute_log_sumexp
        assert query.shape[:2] == key.shape[:2] == value.shape[:2]
        per_read = 16 // query.element_size()
        for states in (query, key, value):
            assert states.stride(3) == 1
            assert all(stride % per_read == 0 for stride in states.stride()[:3])
        if attn_bias is not None:
            assert attn_bias.dtype == query.dtype
            assert attn_bias.shape == (*query.shape[:3], key.shape[2])
            assert attn_bias.stride(3) == 1
            assert all(stride % per_read == 0 for stride in attn_bias.stride()[:3])
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=is_causal, attn_mask=attn_bias, scale=scale
        )
        return output, F.pad(total, (0, -total.shape[-1] % 32), value=torch.nan), torch.empty(0), torch.empty(0)

    def _scaled_dot_product_flash_attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0,
        is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        self.calls.append("flash, causal" if is_causal else "flash")
        assert query.dtype in (torch.float16, torch.bfloat16)
        assert query.shape[1] == key.shape[1]
        assert not is_causal or query.shape[2] == key.shape[2]
        assert all(states.stride(3) == 1 for states in (query, key, value))
        output, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, is_causal=is_causal, scale=scale
        )
        return output, total, torch.empty(0)


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Have tensors of the CPU go where those of a GPU do."""
    gpu = Gpu()
    monkeypatch.setattr(kernels, "_is_cpu", lambda query: False)
    monkeypatch.setattr(kernels, "_aten", gpu)
    return gpu


@pytest.mark.parametrize("how", ["cpu", "gpu", "products"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_heads", "n_key_heads"), [(4, 4), (4, 2), (6, 1)])
def test_a_pack_attends_as_with_the_dense_mask(
    how: str, dtype: torch.dtype, n_heads: int, n_key_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = as_on_a_gpu(monkeypatch) if how != "cpu" else None
    if how == "products":
        monkeypatch.setattr(kernels, "_takes_bias", lambda *_: False)
    if how != "cpu":
        monkeypatch.setattr(attention, "_NUMBERS_AT_ONCE", 200_000)
    trie, some = packs(0)
    n_classes = set()
    for pack in some:
        query, key, value = (each.to(dtype) for each in states(pack, n_heads, n_key_heads, pack.stop))
        mask = tree_mask(trie, pack, CPU)
        assert isinstance(mask, TreeMask)
        group = n_heads // n_key_heads
        expected = F.scaled_dot_product_attention(
            query.float(), key.float().repeat_interleave(group, dim=1), value.float().repeat_interleave(group, dim=1),
            attn_mask=dense_mask(trie, pack, CPU)[None, None], scale=0.3,
        )  # fmt: skip
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3)
        assert type(found) is torch.Tensor
        assert (found - expected).abs().max() < (1e-5 if dtype == torch.float32 else 0.03)
        n_classes.add(len(mask.arranged.blocks))
    assert n_classes >= {0, 1, 2}
    if gpu is not None:
        masked = {"efficient, bias"} if how == "gpu" else set()
        plain = {"efficient"} if dtype == torch.float32 else {"flash", "flash, causal"}
        assert set(gpu.calls) == masked | plain


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_heads", "n_key_heads", "dimension"), [(32, 32, 128), (32, 8, 128), (71, 1, 64)])
def test_shapes_of_7b_models_are_those_of_the_kernels(
    n_heads: int, n_key_heads: int, dimension: int, dtype: torch.dtype
) -> None:
    # On torch's meta device the operators are CUDA's as to shapes; nothing is computed.
    trie, some = packs(0)
    for pack in (some[0], largest(some), Pack(0, 30, np.arange(0), 0)):  # the last is a path, and nothing before it
        n_columns = len(pack.path) + pack.stop - pack.start
        shapes = ((n_heads, pack.stop - pack.start), (n_key_heads, n_columns), (n_key_heads, n_columns))
        query, key, value = (torch.empty(1, *shape, dimension, dtype=dtype, device="meta") for shape in shapes)
        mask = tree_mask(trie, pack, CPU).to("meta")
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        assert (found.shape, found.dtype, found.device.type) == (query.shape, dtype, "meta")


def test_a_kernel_that_is_wrong_with_a_mask_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = as_on_a_gpu(monkeypatch)
    right = gpu._scaled_dot_product_efficient_attention

    def asked(found: Any) -> bool:
        kernels._takes_bias.cache_clear()
        monkeypatch.setattr(gpu, "_scaled_dot_product_efficient_attention", found)
        return kernels._takes_bias(CPU, torch.bfloat16, 64)

    def refuses(*_: Any, **__: Any) -> Any:
        raise RuntimeError("attn_bias is not correctly aligned (strideM)")

    def lacks_memory(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory")

    def off_by(of_output: float, of_total: float) -> Any:
        def found(*given: Any, **named: Any) -> Any:
            output, total, *rest = right(*given, **named)
            return output + of_output, total + of_total, *rest

        return found

    assert asked(right)
    assert not asked(off_by(1, 0))
    assert not asked(off_by(0, 1))
    assert not asked(lambda query, key, value, bias, *rest, **named: right(query, key, value, None, *rest, **named))
    assert not asked(refuses)
    with pytest.raises(RuntimeError, match="out of memory"):  # says nothing of the kernel
        asked(lacks_memory)
    kernels._takes_bias.cache_clear()


def test_only_attention_tells_the_mask_from_a_dense_one() -> None:
    trie, some = packs(1)
    mask = tree_mask(trie, largest(some), CPU)
    dense = dense_mask(trie, largest(some), CPU)[None, None]
    for found, expected in ((mask[..., :5], dense[..., :5]), (~mask, ~dense), (mask.float(), dense.float())):
        assert type(found) is torch.Tensor
        assert torch.equal(found, expected)
    assert mask.to(CPU) is mask
    elsewhere = mask.to("meta", non_blocking=True)  # a model over several devices, in each of its layers
    assert isinstance(elsewhere, TreeMask)
    assert mask.to("meta") is elsewhere
    assert {
        own.device.type for each in elsewhere.arranged.blocks for own in (each.keys, each.is_seen, each.queries)
    } == {"meta"}


def test_what_is_added_to_scores_is_made_once_for_all_layers() -> None:
    trie, some = packs(0)
    query, key, value = states(largest(some), 4, 2, 0)
    mask = tree_mask(trie, largest(some), CPU)
    made = []
    for _ in range(2):
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        made.append([id(bias) for blocks in mask.arranged.blocks for bias in blocks._biases.values()])
    assert made[0] == made[1]
    assert len(made[0]) == len(mask.arranged.blocks)
