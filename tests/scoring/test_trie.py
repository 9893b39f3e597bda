"""The trie holds every shared prefix once, and its packs run every node once behind exactly its ancestors."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from biaseval.scoring.attention import dense_mask
from biaseval.scoring.blocks import layout_of
from biaseval.scoring.trie import Pack, build_trie, plan_packs

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


@pytest.mark.parametrize("seed", range(2))
def test_a_subset_is_the_trie_of_those_sequences(seed: int) -> None:
    sequences = list(random_sequences(seed))
    trie = build_trie(sequences, [1] * len(sequences))
    draw = np.random.default_rng(seed)
    is_kept = draw.random(len(sequences)) < 0.3
    n_targets = [len(own) - 1 for own in sequences]
    part = trie.subset(np.repeat(is_kept, n_targets))
    expected = build_trie([own for own, kept in zip(sequences, is_kept, strict=True) if kept], [1] * is_kept.sum())
    for name in ("token", "depth", "end"):
        assert np.array_equal(getattr(part, name), getattr(expected, name))
    slots = np.flatnonzero(np.repeat(is_kept, n_targets))  # slots keep their numbers
    found = sorted(zip(part.target_slot, part.target_node, part.target_token, strict=True))
    answers = zip(slots[expected.target_slot], expected.target_node, expected.target_token, strict=True)
    assert found == sorted(answers)
