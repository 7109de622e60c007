"""The shop's search: the numbers of bm25s, the best few, pieces on disk."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.webshop import search
from mulligan.envs.webshop.search import Index, IndexBuilder, best, stemmer, words
from mulligan.errors import MissingExtra

WORDS = ("red", "shoe", "shoes", "running", "run", "runs", "cotton", "the", "with", "x", "größe", "42", "bottle")
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=30)


def index_of(texts: list[str], folder=None) -> Index:
    builder = IndexBuilder(folder)
    for text in texts:
        builder.add(text)
    return builder.finish()


@settings(max_examples=30, deadline=None)
@given(texts=TEXTS, query=st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=8).map(" ".join))
def test_ranks_as_bm25s_does(texts, query):
    import bm25s

    stem = stemmer()
    tokens = [[stem(word) for word in words(text)] for text in texts]
    asked = [stem(word) for word in words(query)]
    if not any(tokens):
        assert index_of(texts).search(query) == []
        return
    oracle = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    oracle.index(tokens, show_progress=False)
    in_vocabulary = [word for word in asked if word in oracle.vocab_dict]
    scores = oracle.get_scores(in_vocabulary) if in_vocabulary else np.zeros(len(texts))
    hits = index_of(texts).search(query, most=5)
    expected = sorted((text for text in range(len(texts)) if scores[text] > 0), key=lambda text: -scores[text])[:5]
    assert len(hits) == len(expected)
    assert np.allclose(scores[hits], scores[expected], rtol=1e-4)


def test_weighs_by_hand():
    """Two texts of 1 and 3 words (mean 2). "cotton" is in both: ln(1 + 0.5/2.5) = 0.1823.

    First: 1 / (1 + 0.9·(0.6 + 0.4·1/2)) = 1/1.72, second: 1 / (1 + 0.9·(0.6 + 0.4·3/2)) = 1/2.08.
    """
    index = index_of(["cotton", "cotton red bottle"])
    stem = index.vocabulary["cotton"]
    weights = index.weights[index.starts[stem] : index.starts[stem + 1]]
    assert weights == pytest.approx([0.1823 / 1.72, 0.1823 / 2.08], abs=1e-4)
    assert index.search("cottons") == [0, 1]


def test_equals_keep_their_order_and_the_unrelated_are_not_found():
    index = index_of(["red shoe", "blue hat", "red shoe", "red shoe"])
    assert index.search("shoes", most=2) == [0, 2]
    assert index.search("shoes") == [0, 2, 3]
    assert index.search("of the") == index.search("zebra") == index.search("") == []


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 50]), st.sampled_from([3, 60, 5000, 120_000]))
def test_the_best_of_many_are_those_of_a_full_sort(seed, most, size):
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random(size) < 0.02, rng.integers(0, 30, size), 0).astype(np.float32)
    full = sorted(np.flatnonzero(scores).tolist(), key=lambda index: (-scores[index], index))[:most]
    assert best(scores, most) == full


def test_common_words_give_the_same_as_a_row_and_one_by_one(monkeypatch):
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 9))) for _ in range(700)]
    queries = [" ".join(rng.choice(WORDS, size=4)) for _ in range(30)]
    with_rows = [index_of(texts).search(query) for query in queries]
    monkeypatch.setattr(search, "_FEW", len(texts))
    assert [index_of(texts).search(query) for query in queries] == with_rows


def test_pieces_on_disk_make_the_same_index(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 9))) for _ in range(200)]
    in_memory = index_of(texts)
    monkeypatch.setattr(search, "_PIECE", 50)
    index_of(texts, tmp_path)
    loaded = Index.load(tmp_path, len(texts))
    for name in ("vocabulary", *search.FILES):
        assert np.array_equal(getattr(loaded, name), getattr(in_memory, name)), name
    assert not list(tmp_path.glob("piece*"))


def test_nothing_to_index_is_an_empty_shop(tmp_path):
    index_of(["", "the"], tmp_path)
    assert Index.load(tmp_path, 2).search("anything") == []


def test_says_which_extra_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(MissingExtra, match=r"-e '\.\[webshop\]'"):
        stemmer()
