"""The state of slots, and the kernels of `mulligan.engine.kernels` in torch.

The GPU goes on by itself with what a slot's row of int32 numbers says. The host writes it when a reply is asked for;
from then on sampling moves it, step by step. Without a GPU the functions here run instead of the kernels of the same
names, where they are described; with one, they are what the kernels must equal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

LAST, LENGTH, LEFT, DONE, SEED, SCALE, GREEDY, TOP_P, STOPS = range(9)
"""What each number of a slot's state is.

LAST    the newest token of the sequence, which the model has not seen yet
LENGTH  tokens whose keys and values are in the cache: the position that the newest one goes to
LEFT    tokens that may still be drawn for this reply
DONE    1: nothing is to be drawn
SEED    of this reply's random numbers; the position counts them
SCALE   what logits are multiplied by: the bits of a float32
GREEDY  1: the most likely token is taken
TOP_P   tokens are drawn from the fewest whose probability reaches this: the bits of a float32
STOPS   from here on: tokens that end a reply; -1 where there are fewer
"""
MOST_STOPS = 8
STATE = STOPS + MOST_STOPS
"""Numbers a slot."""

Tiles = tuple[Tensor, Tensor]
"""First token and number of tokens of each tile: [tile], [tile]."""


class SlotPositions(NamedTuple):
    """Where tokens belong. [T] each."""

    slots: Tensor
    positions: Tensor


class KeyValues(NamedTuple):
    """The cache of one layer: [slot, kv head, position, size] each."""

    keys: Tensor
    values: Tensor


TILE_ROWS = 64
"""Rows of queries, of all heads of a group, in a tile."""


def tile_tokens(group: int) -> int:
    """Tokens of one sequence in a tile."""
    return max(1, TILE_ROWS // group)


def add_norm(hidden: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    if added is not None:
        hidden += added
    return weight * _norm(hidden, eps)


def _norm(x: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotate_store(
    packed: Tensor, norms: Tensor | None, table: Tensor, at: SlotPositions, cache: KeyValues, eps: float
) -> None:
    _, kv, _, size = cache.keys.shape
    slots, positions = at.slots.long(), at.positions.long()
    heads = packed.view(len(packed), -1, size)
    turned = heads[:, :-kv]
    query = turned.shape[1] - kv
    if norms is not None:
        norm_of_head = norms.repeat_interleave(torch.tensor([query, kv], device=norms.device), dim=0)
        turned = norm_of_head * _norm(turned, eps)
    low, high = turned.float().chunk(2, -1)
    cosine, sine = table[positions].unsqueeze(1).chunk(2, -1)
    turned = torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(packed.dtype)
    heads[:, :query] = turned[:, :query]
    cache.keys[slots, :, positions] = turned[:, query:]
    cache.values[slots, :, positions] = heads[:, -kv:]


def attend(
    packed: Tensor, at: SlotPositions, decoding: int, tiles: Tiles | None, cache: KeyValues, scale: float, out: Tensor
) -> None:
    _, kv, _, size = cache.keys.shape
    heads = packed.view(len(packed), -1, size)
    queries = heads[:, : heads.shape[1] - 2 * kv].reshape(len(heads), kv, -1, size).float()
    tokens = list(range(decoding))
    if tiles is not None:
        for start, count in torch.stack(tiles, 1).tolist():
            tokens += range(start, start + count)
    if not tokens:
        return
    which = torch.tensor(tokens, device=packed.device)
    slot, position = at.slots[which].long(), at.positions[which]
    reach = int(position.max()) + 1
    score = torch.einsum("thgd,thnd->thgn", queries[which], cache.keys[slot, :, :reach].float()) * scale
    later = torch.arange(reach, device=packed.device) > position.unsqueeze(1)
    weight = score.masked_fill(later[:, None, None], -torch.inf).softmax(-1)
    mixed = torch.einsum("thgn,thnd->thgd", weight, cache.values[slot, :, :reach].float())
    out[which] = mixed.flatten(1).to(out.dtype)


def gate(both: Tensor) -> Tensor:
    first, second = both.chunk(2, -1)
    return silu(first) * second


def begin(state: Tensor, rows: Tensor, slots: Tensor, positions: Tensor, tokens: Tensor) -> None:
    states = state[rows.long()]
    busy = states[:, DONE] == 0
    slots.copy_(torch.where(busy, rows, len(state) - 1))
    positions.copy_(torch.where(busy, states[:, LENGTH], 0))
    tokens.copy_(torch.where(busy, states[:, LAST], 0))


def draw(logits: Tensor, state: Tensor, rows: Tensor, ids: Tensor, logprobs: Tensor, done: Tensor) -> None:
    states = state[rows.long()]
    scale = states[:, SCALE].contiguous().view(torch.float32)
    logp = torch.log_softmax(logits.float() * scale.unsqueeze(1), -1)
    cumulative = logp.double().exp().cumsum(-1)
    number = uniform(states[:, SEED], states[:, LENGTH]).double().unsqueeze(1) * cumulative[:, -1:]
    token = torch.searchsorted(cumulative, number, right=True).squeeze(1).clamp(max=logits.shape[1] - 1)
    token = torch.where(states[:, GREEDY] != 0, logp.argmax(-1), token)
    busy = states[:, DONE] == 0
    stopped = (states[:, STOPS:] == token.unsqueeze(1)).any(1)
    finished = stopped | (states[:, LEFT] <= 1)
    ids.copy_(token)
    logprobs.copy_(logp.gather(1, token.unsqueeze(1)).squeeze(1))
    done.copy_(torch.where(busy, torch.where(stopped, 2, torch.where(finished, 3, 1)), 0))
    after = states.clone()
    after[:, LAST], after[:, LENGTH], after[:, LEFT] = token.int(), states[:, LENGTH] + 1, states[:, LEFT] - 1
    after[:, DONE] = finished.int()
    state[rows.long()[busy]] = after[busy]


def keep_nucleus(logits: Tensor, state: Tensor, rows: Tensor) -> Tensor:
    """Logits without the tokens outside each row's nucleus: the fewest whose probability reaches the slot's top-p."""
    states = state[rows.long()]
    scale, top_p = (states[:, field].contiguous().view(torch.float32).unsqueeze(1) for field in (SCALE, TOP_P))
    ordered, order = torch.softmax(logits.float() * scale, -1).sort(-1, descending=True)
    outside = ordered.cumsum(-1) - ordered >= top_p
    return logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -torch.inf)


def uniform(seed: Tensor, position: Tensor) -> Tensor:
    """A number in [0, 1) for each pair of int32 numbers: Philox-4x32-10, as Triton's ``rand`` has it."""
    mask = 0xFFFFFFFF
    key0, key1 = seed.long() & mask, (seed.long() >> 32) & mask
    c0 = position.long() & mask
    c1, c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0), torch.zeros_like(c0)
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # 64 bits, whatever sign they stand for
        c0, c1, c2, c3 = (b >> 32 & mask) ^ c1 ^ key0, b & mask, (a >> 32 & mask) ^ c3 ^ key1, a & mask
        key0, key1 = (key0 + 0x9E3779B9) & mask, (key1 + 0xBB67AE85) & mask
    return torch.minimum(c0, mask - c0).float() * 4.6566127342e-10
