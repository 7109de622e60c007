"""Micro-batches: every sampled token once, at its place, in as few and as equal ones as can be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.training.pack import PATIENCE, Budget, _cuts, pack, token_budget
from mulligan.training.rows import Row, Span


def a_row(length: int, spans: list[tuple[int, int]], trial: int, step: int, old: bool = False) -> Row:
    """Ids that tell where they stand; `spans` are (start, length)."""
    ids = [1000 * trial + place for place in range(length)]
    row = Row(ids)
    for number, (start, count) in enumerate(spans):
        logprobs = tuple(-float(token) for token in ids[start : start + count])
        row.spans.append(Span(start, tuple(ids[start : start + count]), logprobs, step + number, trial, number == 1))
        if old:
            row.spans[-1].old = [value - 1.0 for value in logprobs]
    return row


def test_every_field_by_hand():
    """A row of four tokens with one span, and before it, being longer, one of six with two."""
    rows = [a_row(4, [(2, 1)], 1, 2), a_row(6, [(1, 2), (4, 2)], 2, 7)]
    (batch,) = pack(rows, 100)
    assert batch.ids.tolist() == [2000, 2001, 2002, 2003, 2004, 2005, 1000, 1001, 1002, 1003]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert batch.target.tolist() == [2001, 2002, 2004, 2005, 1002]
    assert batch.keep.tolist() == [0, 1, 3, 4, 7]  # each one before its target
    assert batch.logp_sampler.tolist() == [-2001.0, -2002.0, -2004.0, -2005.0, -1002.0]
    assert batch.step.tolist() == [7, 7, 8, 8, 2]
    assert batch.reflects.tolist() == [False, False, True, True, False]
    assert batch.first.tolist() == [0, 2, 4]
    assert [span.step for span in batch.spans] == [7, 8, 2]
    assert batch.logp_old is None
    assert batch.logp_ref is None
    assert batch.plan.lengths == [6, 4]


def test_what_was_noted_comes_along_and_demonstrations_have_no_logprobs():
    (batch,) = pack([a_row(3, [(1, 2)], 0, 0, old=True)], 10)
    assert batch.logp_old.tolist() == [-2.0, -3.0]
    shown = a_row(3, [(1, 2)], 0, 0)
    shown.spans[0].logprobs = None
    assert pack([shown], 10)[0].logp_sampler.isnan().all()


def alike(length: int, spans: list[tuple[int, int]], trial: int, same: int) -> Row:
    """As `a_row`, but with the same `same` first tokens in every row."""
    row = a_row(length, spans, trial, 10 * trial)
    row.ids[:same] = range(same)
    return row


def test_what_all_rows_begin_with_stands_once():
    """Twenty tokens alike, of which nothing is predicted before the one after them."""
    rows = [alike(24, [(22, 1)], 1, 20), alike(27, [(21, 2), (25, 2)], 2, 20)]
    (batch,) = pack(rows, 100, share=True)
    assert batch.ids.tolist() == [*range(20), *range(2020, 2027), *range(1020, 1024)]
    assert batch.positions.tolist() == [*range(27), *range(20, 24)]
    assert batch.target.tolist() == [2021, 2022, 2025, 2026, 1022]
    assert batch.keep.tolist() == [20, 21, 24, 25, 28]
    assert batch.plan.lengths == [20, 7, 4]
    assert batch.plan.opening.ends.tolist() == [0, 20, 47, 71]
    (apart,) = pack(rows, 100)
    assert len(apart.ids) == 51
    assert apart.plan.opening is None


def test_openings_end_before_what_is_predicted():
    """The token before the first sampled one predicts it: it belongs to its own row."""
    rows = [alike(30, [(25, 2)], 1, 25), alike(30, [(25, 2)], 2, 25)]
    (batch,) = pack(rows, 100, share=True)
    assert batch.plan.lengths == [24, 6, 6]
    assert len(set(batch.keep.tolist())) == len(batch.keep)


@pytest.mark.parametrize(
    "rows",
    [
        [alike(24, [(22, 1)], 1, 20)],  # alone
        [alike(24, [(22, 1)], 1, 15), alike(24, [(22, 1)], 2, 15)],  # too little
        [alike(24, [(1, 1)], 1, 20), alike(24, [(22, 1)], 2, 20)],  # sampled from the beginning
        [alike(24, [(22, 1)], 1, 24), alike(24, [(22, 1)], 2, 0)],  # nothing
    ],
)
def test_where_nothing_is_worth_sharing_rows_stay_whole(rows):
    (batch,) = pack(rows, 100, share=True)
    assert batch.plan.opening is None
    assert len(batch.ids) == 24 * len(rows)


def test_a_row_that_is_left_alone_has_its_beginning_with_it():
    """By a budget of 45: the opening with what follows it in two rows, ten tokens each, and the third row."""
    rows = [alike(30, [(25, 2)], number, 20) for number in range(3)]
    found = pack(rows, 45, share=True)
    assert sorted(len(batch.ids) for batch in found) == [30, 40]
    whole = sorted(token for batch in found for token in batch.target.tolist())
    assert whole == [25, 26, 1025, 1026, 2025, 2026]


def test_rows_without_a_sampled_token_are_left_out():
    assert pack([Row([1, 2, 3])], 10) == []
    (batch,) = pack([Row([1, 2, 3]), a_row(2, [(1, 1)], 0, 0)], 10)
    assert len(batch.ids) == 2


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 150))
@settings(deadline=None)
def test_few_and_equal(sizes, tokens):
    sizes = sorted(sizes, reverse=True)
    cuts = _cuts(sizes, tokens)
    assert [place for begin, end in cuts for place in range(begin, end)] == list(range(len(sizes)))
    loads = [sum(sizes[begin:end]) for begin, end in cuts]
    assert all(load <= tokens or end - begin == 1 for load, (begin, end) in zip(loads, cuts, strict=True))
    # As many as are filled one after another, and none larger than the largest of those.
    filled = [0]
    for size in sizes:
        if filled[-1] and filled[-1] + size > tokens:
            filled.append(0)
        filled[-1] += size
    assert len(cuts) <= len(filled)
    assert max(loads) <= max(filled)


def test_a_small_rest_is_shared_out():
    """Ten rows of 10 by a budget of 90: 50 and 50, not 90 and 10."""
    rows = [a_row(10, [(5, 2)], number, number) for number in range(10)]
    assert [len(batch.ids) for batch in pack(rows, 90)] == [50, 50]


@pytest.mark.parametrize(
    ("hidden", "inner", "layers", "checkpointing", "expected"),
    [
        (576, 1536, 30, False, 65536),  # 2·30·(8·576 + 4·1536) = 0.645 MB a token; 0.35 · 150 GB / that = 81,000
        (2560, 9728, 36, False, 8192),  # 4.28 MB a token: 12,300
        (2560, 9728, 36, True, 65536),  # 0.18 MB a token
    ],
)
def test_the_budget_of_a_gpu_falls_with_the_model(monkeypatch, hidden, inner, layers, checkpointing, expected):
    from types import SimpleNamespace

    config = SimpleNamespace(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=150e9))
    assert token_budget(config, torch.device("cuda"), checkpointing=checkpointing) == expected
    assert token_budget(config, torch.device("cpu"), checkpointing=checkpointing) == 16384


def test_a_budget_is_halved_and_tried_again_after_a_while():
    budget = Budget(4096)
    for _ in range(100):
        budget.proceed()
    assert budget.tokens == 4096
    budget.halve()
    budget.halve()
    sizes = []
    for _ in range(2 * (PATIENCE + 1)):
        budget.proceed()
        sizes.append(budget.tokens)
    assert sizes == [1024] * PATIENCE + [2048] * (PATIENCE + 1) + [4096]


def test_a_budget_goes_on_where_it_was_saved():
    budget, other, smaller = Budget(4096), Budget(4096), Budget(1024)
    budget.halve()
    for _ in range(PATIENCE):
        budget.proceed()
    other.load_state_dict(budget.state_dict())
    smaller.load_state_dict(budget.state_dict())
    for each in (budget, other, smaller):
        each.proceed()
    assert (budget.tokens, other.tokens, smaller.tokens) == (4096, 4096, 1024)
