# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""What a step of a Llama-like model does between its matrix products, as Triton kernels.

`mulligan.engine.plain` says the same in torch, one function each; the tests hold the two together. No shape is compiled
in: a kernel is compiled once a model, in a second or two, whatever the number of tokens, slots or positions.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mulligan.engine.plain import (
    DONE,
    GREEDY,
    LAST,
    LEFT,
    LENGTH,
    SCALE,
    SEED,
    STATE,
    STOPS,
    KeyValues,
    SlotPositions,
    Tiles,
    tile_tokens,
)


@triton.jit
def _add_norm(hidden, added, weight, out, size, eps, HAS_ADDED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    valid = column < size
    value = tl.load(hidden + row * size + column, mask=valid, other=0.0)
    if HAS_ADDED:
        value = value + tl.load(added + row * size + column, mask=valid, other=0.0)
        tl.store(hidden + row * size + column, value, mask=valid)
    wide = value.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 0) / size + eps)
    scaled = wide.to(out.dtype.element_ty) * tl.load(weight + column, mask=valid, other=0.0)
    tl.store(out + row * size + column, scaled.to(out.dtype.element_ty), mask=valid)


def add_norm(hidden: Tensor, added: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add into `hidden` [T, size] in place, and return its RMS norm."""
    out = torch.empty_like(hidden)
    rows, size = hidden.shape
    block = triton.next_power_of_2(size)
    _add_norm[(rows,)](
        hidden, hidden if added is None else added, weight, out, size, eps, added is not None, block,
        num_warps=4 if block <= 2048 else 8,
    )  # fmt: skip
    return out


@triton.jit
def _rotate_store(
    packed, norms, table, slots, positions, keys, values, stride_slot, stride_head, eps,
    QUERY: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr,
    NORMED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot, position = tl.load(slots + token).to(tl.int64), tl.load(positions + token).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None, :]
    is_head = head < QUERY + 2 * KV
    head_at = packed + token * ((QUERY + 2 * KV) * SIZE) + head * SIZE + column
    low, high = tl.load(head_at, mask=is_head, other=0.0), tl.load(head_at + HALF, mask=is_head, other=0.0)
    x, y = low.to(tl.float32), high.to(tl.float32)
    if NORMED:
        # Norms of queries and keys, one after the other: [2, SIZE].
        norm = norms + (head >= QUERY).to(tl.int32) * SIZE + column
        shrink = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / SIZE + eps)[:, None]
        x = ((x * shrink).to(low.dtype) * tl.load(norm)).to(tl.float32)
        y = ((y * shrink).to(low.dtype) * tl.load(norm + HALF)).to(tl.float32)
    cosine, sine = tl.load(table + position * SIZE + column), tl.load(table + position * SIZE + HALF + column)
    turned, other = (x * cosine - y * sine).to(low.dtype), (y * cosine + x * sine).to(low.dtype)
    tl.store(head_at, turned, mask=head < QUERY)
    tl.store(head_at + HALF, other, mask=head < QUERY)
    cached_at = slot * stride_slot + position * SIZE + column
    key = keys + cached_at + (head - QUERY) * stride_head
    tl.store(key, turned, mask=(head >= QUERY) & (head < QUERY + KV))
    tl.store(key + HALF, other, mask=(head >= QUERY) & (head < QUERY + KV))
    value = values + cached_at + (head - QUERY - KV) * stride_head
    tl.store(value, low, mask=(head >= QUERY + KV) & is_head)
    tl.store(value + HALF, high, mask=(head >= QUERY + KV) & is_head)


def rotate_store(
    packed: Tensor, norms: Tensor | None, table: Tensor, at: SlotPositions, cache: KeyValues, eps: float
) -> None:
    """Norm and rotate queries and keys of `packed` [T, (query + 2 kv) heads × size]; keys and values go to the cache.

    Queries stay in `packed`. table: [position, size], cosines then sines.
    """
    _, kv, _, size = cache.keys.shape
    heads = packed.shape[1] // size
    block = triton.next_power_of_2(heads)
    _rotate_store[(len(packed),)](
        packed, packed if norms is None else norms, table, *at, *cache,
        cache.keys.stride(0), cache.keys.stride(1), eps, heads - 2 * kv, kv, size, size // 2, block, norms is not None,
        num_warps=2 if block * size <= 1024 else 4,
    )  # fmt: skip


@triton.jit
def _attend(
    packed, slots, positions, starts, counts, keys, values, out, scale, stride_slot, stride_head,
    QUERY: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, TILED: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    if TILED:
        token, count = tl.load(starts + tile), tl.load(counts + tile)
    else:
        token, count = tile, 1
    if count > 0:
        slot, position = tl.load(slots + token).to(tl.int64), tl.load(positions + token)
        row = tl.arange(0, ROWS)
        offset = row // GROUP
        real = offset < count
        column = tl.arange(0, SIZE)
        width: tl.constexpr = (QUERY + 2 * KV) * SIZE
        query_at = (
            (token + offset).to(tl.int64)[:, None] * width
            + (head * GROUP + row % GROUP)[:, None] * SIZE
            + column[None, :]
        )
        query = tl.load(packed + query_at, mask=real[:, None], other=0.0)
        past = slot * stride_slot + head * stride_head
        last_key = position + offset
        best = tl.full([ROWS], -float("inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, SIZE], tl.float32)
        end = position + count
        for begin in range(0, end, KEYS):
            key_at = begin + tl.arange(0, KEYS)
            in_reach = key_at < end
            key = tl.load(keys + past + key_at[None, :] * SIZE + column[:, None], mask=in_reach[None, :], other=0.0)
            score = tl.dot(query, key, input_precision="ieee") * scale
            score = tl.where(key_at[None, :] <= last_key[:, None], score, -float("inf"))
            highest = tl.maximum(best, tl.max(score, 1))
            weight = tl.exp2(score - highest[:, None])
            shrink = tl.exp2(best - highest)
            total = total * shrink + tl.sum(weight, 1)
            value = tl.load(values + past + key_at[:, None] * SIZE + column[None, :], mask=in_reach[:, None], other=0.0)
            mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
            best = highest
        mixed = mixed / total[:, None]
        out_at = (token + offset).to(tl.int64)[:, None] * (QUERY * SIZE)
        out_at += (head * GROUP + row % GROUP)[:, None] * SIZE + column[None, :]
        tl.store(out + out_at, mixed.to(out.dtype.element_ty), mask=real[:, None])


@triton.jit
def _attend_share(
    packed, slots, positions, keys, values, mixed_out, best_out, total_out, scale, stride_slot, stride_head,
    QUERY: tl.constexpr, KV: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    KEYS: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    token, head, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot, position = tl.load(slots + token).to(tl.int64), tl.load(positions + token)
    row, column = tl.arange(0, ROWS), tl.arange(0, SIZE)
    real = row < GROUP
    width: tl.constexpr = (QUERY + 2 * KV) * SIZE
    query_at = token.to(tl.int64) * width + (head * GROUP + row)[:, None] * SIZE + column[None, :]
    query = tl.load(packed + query_at, mask=real[:, None], other=0.0)
    past = slot * stride_slot + head * stride_head
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    # 100 keys in 3 shares of whole blocks of 32: [0, 64), [64, 100) and nothing.
    end = position + 1
    length = ((end + SHARES - 1) // SHARES + KEYS - 1) // KEYS * KEYS
    last = tl.minimum(end, (share + 1) * length)
    for begin in range(share * length, last, KEYS):
        key_at = begin + tl.arange(0, KEYS)
        in_share = key_at < last
        key = tl.load(keys + past + key_at[None, :] * SIZE + column[:, None], mask=in_share[None, :], other=0.0)
        score = tl.dot(query, key, input_precision="ieee") * scale
        score = tl.where(in_share[None, :], score, -float("inf"))
        highest = tl.maximum(best, tl.max(score, 1))
        weight = tl.exp2(score - highest[:, None])
        shrink = tl.exp2(best - highest)
        total = total * shrink + tl.sum(weight, 1)
        value = tl.load(values + past + key_at[:, None] * SIZE + column[None, :], mask=in_share[:, None], other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        best = highest
    out_at = ((token.to(tl.int64) * KV + head) * SHARES + share) * GROUP + row
    tl.store(best_out + out_at, best, mask=real)
    tl.store(total_out + out_at, total, mask=real)
    tl.store(mixed_out + out_at[:, None] * SIZE + column[None, :], mixed, mask=real[:, None])


@triton.jit
def _join_shares(
    mixed_in, best_in, total_in, out,
    KV: tl.constexpr, SIZE: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, ROWS), tl.arange(0, SIZE)
    real = row < GROUP
    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, SIZE], tl.float32)
    for share in range(SHARES):  # the first is never empty, so that the highest score is a number from then on
        share_at = ((token.to(tl.int64) * KV + head) * SHARES + share) * GROUP + row
        share_best = tl.load(best_in + share_at, mask=real, other=0.0)
        highest = tl.maximum(best, share_best)
        kept, added = tl.exp2(best - highest), tl.exp2(share_best - highest)
        total = total * kept + tl.load(total_in + share_at, mask=real, other=1.0) * added
        part = tl.load(mixed_in + share_at[:, None] * SIZE + column[None, :], mask=real[:, None], other=0.0)
        mixed = mixed * kept[:, None] + part * added[:, None]
        best = highest
    mixed = mixed / total[:, None]
    out_at = (token.to(tl.int64) * (KV * GROUP) + head * GROUP + row)[:, None] * SIZE + column[None, :]
    tl.store(out + out_at, mixed.to(out.dtype.element_ty), mask=real[:, None])


LONG = 2048
"""In contexts longer than this, few sequences have their keys shared out among many programs."""
PROGRAMS = 1024
"""Programs that keep a GPU's memory busy, about eight on each multiprocessor of an H200."""
DECODE, PREFILL = (32, 1, 2), (128, 4, 3)
"""How attention is laid out on the GPU: keys a turn, warps, stages; the fastest of those tried on an H200."""


def attend(
    packed: Tensor, at: SlotPositions, decoding: int, tiles: Tiles | None, cache: KeyValues, scale: float, out: Tensor
) -> None:
    """Each query of `packed` against the keys of its slot up to its own position; [T, query heads × size] to `out`.

    The first `decoding` tokens stand for themselves; tiles: (first token [tile], tokens [tile]), each of one slot with
    consecutive positions.
    """
    _, kv, context, size = cache.keys.shape
    query = packed.shape[1] // size - 2 * kv
    group = query // kv
    scale *= 1.4426950408889634  # the exponential's base is 2 on the GPU: log2(e) goes into the scale
    strides = cache.keys.stride(0), cache.keys.stride(1)
    rows = max(16, triton.next_power_of_2(group))
    block, warps, stages = DECODE
    shares = _shares(decoding, kv, context)
    if shares > 1:
        # Each share of the keys by itself, then all of them together.
        mixed = torch.empty(decoding, kv, shares, group, size, device=packed.device, dtype=torch.float32)
        best, total = (torch.empty(mixed.shape[:-1], device=packed.device, dtype=torch.float32) for _ in range(2))
        _attend_share[(decoding, kv, shares)](
            packed, *at, *cache, mixed, best, total, scale, *strides,
            query, kv, size, group, rows, block, shares, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        _join_shares[(decoding, kv)](mixed, best, total, out, kv, size, group, rows, shares, num_warps=warps)
    elif decoding:
        _attend[(decoding, kv)](
            packed, *at, at.slots, at.slots, *cache, out, scale, *strides,
            query, kv, size, group, rows, block, False, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    if tiles is not None:
        block, warps, stages = PREFILL
        _attend[(len(tiles[0]), kv)](
            packed, *at, *tiles, *cache, out, scale, *strides,
            query, kv, size, group, max(16, triton.next_power_of_2(tile_tokens(group) * group)), block, True,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip


def _shares(decoding: int, kv: int, context: int) -> int:
    """Among how many programs the keys of one sequence and head are shared out: a power of 2, 1 for short contexts.

    8 sequences of 8 heads in a context of 12,544: 1024 // 64 = 16; 21 sequences: 1024 // 168 = 6, so 4.
    """
    if not decoding or context <= LONG:
        return 1
    return 1 << max(1, min(32, PROGRAMS // (decoding * kv))).bit_length() - 1


@triton.jit
def _gate(both, out, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = column < size
    gate = tl.load(both + row * 2 * size + column, mask=valid, other=0.0)
    up = tl.load(both + row * 2 * size + size + column, mask=valid, other=0.0)
    wide = gate.to(tl.float32)
    active = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * size + column, active * up, mask=valid)


def gate(both: Tensor) -> Tensor:
    """silu of the first half of each row, times the second half. both: [T, 2 × size]."""
    rows, size = both.shape[0], both.shape[1] // 2
    out = both.new_empty(rows, size)
    block = min(2048, triton.next_power_of_2(size))
    _gate[(rows, triton.cdiv(size, block))](both, out, size, block, num_warps=4)
    return out


@triton.jit
def _begin(
    state, rows, slots, positions, tokens, scratch,
    STATE: tl.constexpr, LAST: tl.constexpr, LENGTH: tl.constexpr, DONE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    slot = tl.load(rows + row)
    idle = tl.load(state + slot * STATE + DONE) != 0
    slot = tl.where(idle, scratch, slot)
    tl.store(slots + row, slot)
    tl.store(positions + row, tl.where(idle, 0, tl.load(state + slot * STATE + LENGTH)))
    tl.store(tokens + row, tl.where(idle, 0, tl.load(state + slot * STATE + LAST)))


def begin(state: Tensor, rows: Tensor, slots: Tensor, positions: Tensor, tokens: Tensor) -> None:
    """Where each row's slot stands: its last token, and the position that goes to. Rows of done slots do idle work."""
    _begin[(len(rows),)](state, rows, slots, positions, tokens, len(state) - 1, STATE, LAST, LENGTH, DONE, num_warps=1)


@triton.jit
def _block_sums(
    logits, state, rows, highest, sums, vocabulary, blocks,
    STATE: tl.constexpr, SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(rows + row)
    scale = tl.load(state + slot * STATE + SCALE).to(tl.float32, bitcast=True)
    token = block * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=-float("inf")).to(tl.float32)
    value = value * scale
    top = tl.max(value, 0)
    tl.store(highest + row * blocks + block, top)
    # A block that is all outside the nucleus has no mass; -inf less -inf would be no number.
    tl.store(sums + row * blocks + block, tl.sum(tl.exp(value - tl.maximum(top, -3.0e38)), 0))


@triton.jit
def _draw(
    logits, state, rows, highest, sums, ids, logprobs, done, vocabulary, blocks,
    STATE: tl.constexpr, LAST: tl.constexpr, LENGTH: tl.constexpr, LEFT: tl.constexpr, DONE: tl.constexpr,
    SEED: tl.constexpr, SCALE: tl.constexpr, GREEDY: tl.constexpr, STOPS: tl.constexpr, STOP_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    entry = state + tl.load(rows + row) * STATE
    idle = tl.load(entry + DONE) != 0
    length, left = tl.load(entry + LENGTH), tl.load(entry + LEFT)
    scale = tl.load(entry + SCALE).to(tl.float32, bitcast=True)
    greedy = tl.load(entry + GREEDY) != 0
    block = tl.arange(0, BLOCKS)
    is_block = block < blocks
    top = tl.load(highest + row * blocks + block, mask=is_block, other=-float("inf"))
    best = tl.max(top, 0)
    mass = tl.where(is_block, tl.load(sums + row * blocks + block, mask=is_block, other=0.0) * tl.exp(top - best), 0.0)
    total = tl.sum(mass, 0)
    # A number in [0, total) falls into a block, and then onto a token of it.
    before = tl.cumsum(mass, 0)
    number = tl.rand(tl.load(entry + SEED), length) * total
    # Rounding may leave the number behind all of them: it is then in the last block that has any mass.
    chosen = tl.minimum(tl.sum((before <= number).to(tl.int32), 0), tl.max(tl.where(mass > 0.0, block, 0), 0))
    chosen = tl.where(greedy, tl.argmax(top, 0), chosen)
    # Nor may it leave it before the first: that may be a token without any weight.
    rest = tl.maximum(number - tl.sum(tl.where(block < chosen, mass, 0.0), 0), 0.0)
    token_at = chosen * BLOCK + tl.arange(0, BLOCK)
    is_token = token_at < vocabulary
    value = tl.load(logits + row * vocabulary + token_at, mask=is_token, other=-float("inf")).to(tl.float32) * scale
    weight = tl.where(is_token, tl.exp(value - best), 0.0)
    reached = tl.cumsum(weight, 0)
    # Rounding may leave the number behind the last token: it is then the last one that has any weight.
    last = tl.max(tl.where(weight > 0.0, tl.arange(0, BLOCK), 0), 0)
    within = tl.minimum(tl.sum((reached <= rest).to(tl.int32), 0), last)
    within = tl.where(greedy, tl.argmax(value, 0), within)
    token = tl.minimum(chosen * BLOCK + within, vocabulary - 1)  # also where logits are not numbers
    logprob = tl.sum(tl.where(tl.arange(0, BLOCK) == within, value, 0.0), 0) - best - tl.log(total)
    stop = tl.arange(0, STOP_BLOCK)
    stopped = tl.sum((tl.load(entry + STOPS + stop, mask=stop < STATE - STOPS, other=-1) == token).to(tl.int32), 0) > 0
    finished = stopped | (left <= 1)
    # 0: nothing was drawn; 1: a token; 2: the last one, a stop token; 3: the last one, of the limit.
    outcome = tl.where(idle, 0, tl.where(stopped, 2, tl.where(finished, 3, 1)))
    tl.store(ids + row, token)
    tl.store(logprobs + row, logprob)
    tl.store(done + row, outcome)
    if not idle:
        tl.store(entry + LAST, token)
        tl.store(entry + LENGTH, length + 1)
        tl.store(entry + LEFT, left - 1)
        tl.store(entry + DONE, finished.to(tl.int32))


def draw(logits: Tensor, state: Tensor, rows: Tensor, ids: Tensor, logprobs: Tensor, done: Tensor) -> None:
    """One token for each row of logits [row, vocabulary], by its slot's own number; the slot's state goes on."""
    count, vocabulary = logits.shape
    block = 1024
    blocks = triton.cdiv(vocabulary, block)
    highest = torch.empty(count, blocks, device=logits.device, dtype=torch.float32)
    sums = torch.empty_like(highest)
    _block_sums[(count, blocks)](
        logits, state, rows, highest, sums, vocabulary, blocks, STATE, SCALE, block, num_warps=4
    )
    _draw[(count,)](
        logits, state, rows, highest, sums, ids, logprobs, done, vocabulary, blocks,
        STATE, LAST, LENGTH, LEFT, DONE, SEED, SCALE, GREEDY, STOPS, triton.next_power_of_2(STATE - STOPS),
        block, triton.next_power_of_2(blocks), num_warps=4,
    )  # fmt: skip
