"""The GPU's kernels say what the plain functions say. Run by test_kernels.py, in a process of its own."""

from __future__ import annotations

import pytest
import torch

from mulligan.engine import kernels, plain
from mulligan.engine.plain import DONE, GREEDY, LEFT, LENGTH, SCALE, SEED, STATE, STOPS, TOP_P, KeyValues, SlotPositions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter multiplies matrices of bfloat16 wrongly.
PRECISIONS = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32]
KINDS = (torch.int32, torch.float32, torch.int32)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def whole(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize("adds", [True, False])
def test_norm(adds):
    hidden, added, weight = numbers(5, 48), numbers(5, 48, seed=1), numbers(48, seed=2)
    other = hidden.clone()
    got = kernels.add_norm(hidden, added if adds else None, weight, 1e-5)
    want = plain.add_norm(other, added if adds else None, weight, 1e-5)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(hidden, other)


def test_gate():
    both = numbers(4, 96)
    torch.testing.assert_close(kernels.gate(both), plain.gate(both))


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize(("kv", "group", "size", "normed"), [(3, 3, 16, False), (2, 4, 32, True), (2, 1, 16, False)])
def test_attention_over_slots(kv, group, size, normed, kind):
    # Two tokens that decode (slots 0 and 1), then parts of two prompts: slot 2 from position 3, slot 3 from the start.
    at = SlotPositions(whole(0, 1, *[2] * 9, *[3] * 25), whole(7, 0, *range(3, 12), *range(25)))
    packed = numbers(36, (kv * group + 2 * kv) * size).to(kind)
    cache = KeyValues(*(numbers(5, kv, 40, size, seed=seed).to(kind) for seed in (1, 2)))
    norms, table = (numbers(2, size, seed=3).to(kind) if normed else None), numbers(40, size, seed=4)
    other, other_cache = packed.clone(), KeyValues(*(each.clone() for each in cache))
    kernels.rotate_store(packed, norms, table, at, cache, 1e-6)
    plain.rotate_store(other, norms, table, at, other_cache, 1e-6)
    torch.testing.assert_close(packed, other)
    torch.testing.assert_close(tuple(cache), tuple(other_cache))
    tile = kernels.tile_tokens(group)
    pieces = [
        (begin + place, min(tile, count - place))
        for begin, count in ((2, 9), (11, 25))
        for place in range(0, count, tile)
    ]
    pieces.append((0, 0))  # an empty tile
    tiles = whole(*(begin for begin, _ in pieces)), whole(*(count for _, count in pieces))
    out = torch.zeros(36, kv * group * size, device=DEVICE, dtype=kind)
    its = out.clone()
    kernels.attend(other, at, 2, tiles, other_cache, size**-0.5, out)
    plain.attend(other, at, 2, tiles, other_cache, size**-0.5, its)
    # The kernel rounds the weights to the values' precision before it mixes them.
    close = 1e-4 if kind == torch.float32 else 2e-2
    torch.testing.assert_close(out, its, rtol=close, atol=close)


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize(("kv", "group", "size"), [(3, 3, 16), (2, 4, 32)] if DEVICE == "cuda" else [(2, 4, 32)])
def test_attention_in_shares(kv, group, size, kind, monkeypatch):
    """In a long context the keys of a sequence are shared out; some shares of a short sequence are empty."""
    monkeypatch.setattr(kernels, "LONG", 100)
    monkeypatch.setattr(kernels, "PROGRAMS", 4 * kv * 8)
    at = SlotPositions(whole(2, 0, 1, 3), whole(0, 31, 64, 199))
    assert kernels._shares(4, kv, 200) == 8
    packed = numbers(4, (kv * group + 2 * kv) * size).to(kind)
    cache = KeyValues(*(numbers(5, kv, 200, size, seed=seed).to(kind) for seed in (1, 2)))
    out = torch.zeros(4, kv * group * size, device=DEVICE, dtype=kind)
    its = out.clone()
    kernels.attend(packed, at, 4, None, cache, size**-0.5, out)
    plain.attend(packed, at, 4, None, cache, size**-0.5, its)
    close = 1e-4 if kind == torch.float32 else 2e-2
    torch.testing.assert_close(out, its, rtol=close, atol=close)


def test_short_contexts_and_many_sequences_are_not_shared_out():
    assert kernels._shares(8, 8, 2048) == 1
    assert kernels._shares(8, 8, 12_544) == 16
    assert kernels._shares(21, 8, 12_544) == 4
    assert kernels._shares(128, 8, 12_544) == 1


def drawn_alike(logits, state, rows):
    """Draw by the kernels and plainly, and compare; returns the plain way's state, and what both say of the replies."""
    other = state.clone()
    found = [[torch.zeros(len(rows), dtype=kind, device=DEVICE) for kind in KINDS] for _ in range(2)]
    kernels.draw(logits, state, rows, *found[0])
    plain.draw(logits, other, rows, *found[1])
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    return other, found[0][2], found[1][2]


def test_drawing_gives_the_same_tokens_and_moves_the_same_state():
    slots, vocabulary = 12, 2100
    state = torch.zeros(slots + 1, STATE, dtype=torch.int32, device=DEVICE)
    state[:, STOPS:] = -1
    state[:, SEED] = whole(*range(5, 5 + 7 * (slots + 1), 7))
    state[:, LENGTH] = whole(*range(slots + 1))
    state[:, LEFT] = whole(*(place % 3 + 1 for place in range(slots + 1)))
    state[:, SCALE] = torch.full((slots + 1,), 1 / 0.7, device=DEVICE).view(torch.int32)
    state[:, GREEDY] = whole(*(int(place % 5 == 0) for place in range(slots + 1)))
    state[3, DONE] = 1
    rows, logits = whole(*reversed(range(slots))), 2 * numbers(slots, vocabulary)
    state[7, STOPS + 2] = logits[slots - 1 - 7].argmax()
    state[7, GREEDY], state[7, LEFT] = 1, 5  # will say its stop token, with room left
    other, said, same = drawn_alike(logits, state, rows)
    assert torch.equal(said, same)
    assert set(said.tolist()) == {0, 1, 2, 3}
    assert torch.equal(state, other)
    begun = [[torch.zeros(slots, dtype=torch.int32, device=DEVICE) for _ in range(3)] for _ in range(2)]
    kernels.begin(state, rows, *begun[0])
    plain.begin(other, rows, *begun[1])
    assert all(torch.equal(one, same) for one, same in zip(*begun, strict=True))


def test_drawing_from_a_nucleus_that_leaves_out_most_of_the_vocabulary():
    """With top-p, most blocks of a large vocabulary hold nothing to draw from; replies would be of token 0 alone."""
    slots, vocabulary = 8, 3000
    state = torch.zeros(slots + 1, STATE, dtype=torch.int32, device=DEVICE)
    state[:, STOPS:] = -1
    state[:, SEED], state[:, LEFT] = whole(*range(slots + 1)), 9
    for place, value in ((SCALE, 1.0), (TOP_P, 0.3)):
        state[:, place] = torch.full((slots + 1,), value, device=DEVICE).view(torch.int32)
    state[:, GREEDY] = whole(*(int(place % 5 == 0) for place in range(slots + 1)))
    rows = whole(*range(slots))
    logits = plain.keep_nucleus(3 * numbers(slots, vocabulary), state, rows)
    assert any((row.view(3, -1) == -torch.inf).all(1).any() for row in logits)
    drawn_alike(logits, state, rows)
