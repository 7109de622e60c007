"""Full-text search of the shop: BM25 over stems, in memory or on disk.

The arrays and the numbers are those of `bm25s` (method "lucene", k1 0.9, b 0.4), which the tests compare with. What is
done here by hand is what that library does not do for a million products: the index is built in pieces, so that memory
stays bounded, and read back as memory maps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mulligan.envs.base import library

K1, B = 0.9, 0.4
_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    str.split(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)
_UNSEARCHABLE = re.compile(r"[^\w.'|-]+")
_PIECE = 4_000_000
"""Words of the texts that are held in memory before they are counted and put aside."""
_COLUMNS = 1024
_FEW, _COMMON, _ROWS = 256, 8, 64
"""A stem that over 256 products and one in 8 have is added as a row; 64 are kept, 300 MB for a million products."""
FILES = ("starts", "products", "weights")


def stemmer() -> Callable[[str], str]:
    """Word -> stem, by the Snowball stemmer for English."""
    stem: Callable[[str], str] = library("Stemmer", "the search of webshop", "webshop").Stemmer("english").stemWord
    return stem


def words(text: str) -> list[str]:
    """The words of a text that count, in lower case."""
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP]


def as_query(text: str) -> str:
    """A text without signs that mean nothing to a search or end a reply's brackets, in lower case."""
    return _UNSEARCHABLE.sub(" ", text.lower()).strip()


@dataclass(frozen=True)
class Index:
    """For each stem the products whose text has it, with the score it gives them."""

    vocabulary: dict[str, int]
    """Stem -> its number."""
    starts: NDArray[np.int64]
    """[stem + 1] where the stem's part of `products` and `weights` begins."""
    products: NDArray[np.int32]
    weights: NDArray[np.float32]
    size: int
    """Number of products."""
    stem: Callable[[str], str]

    def search(self, query: str, most: int = 50) -> list[int]:
        """The `most` best products, best first; of equals the earlier one. Only such as share a stem with `query`."""
        scores = np.zeros(self.size, dtype=np.float32)
        for word in words(query):
            stem = self.vocabulary.get(self.stem(word))
            if stem is None:
                continue
            if self.starts[stem + 1] - self.starts[stem] > max(_FEW, self.size // _COMMON):
                scores += self._row(stem)
            else:
                self._add(scores, stem)
        return best(scores, most)

    def _add(self, scores: NDArray[np.float32], stem: int) -> NDArray[np.float32]:
        """Add to the scores of all products what a stem gives them."""
        part = slice(int(self.starts[stem]), int(self.starts[stem + 1]))
        np.add.at(scores, self.products[part], self.weights[part])  # three times as fast as scores[...] +=
        return scores

    @cached_property
    def _row(self) -> Callable[[int], NDArray[np.float32]]:
        """Stem -> what it gives each product: faster to add where that is something for many of them."""
        return lru_cache(maxsize=_ROWS)(lambda stem: self._add(np.zeros(self.size, dtype=np.float32), stem))

    @staticmethod
    def load(folder: Path, size: int) -> Index:
        """An index from disk; of its arrays only what a query touches is read."""
        # As plain arrays: the class of memory maps costs microseconds at every slice.
        arrays: list[Any] = [np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in FILES]
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        return Index(vocabulary, arrays[0], arrays[1], arrays[2], size, stemmer())


def best(scores: NDArray[np.float32], most: int) -> list[int]:
    """Indices of the `most` highest scores above 0, highest first, ties by index."""
    # As a table, whose columns' maxima are so many different scores: less than the `most`-th of them is not among the
    # best. Of the scores 3 1 | 5 2 | 4 0 in two columns the maxima are 5 and 2, so that the best two are 2 or more.
    rows = len(scores) // _COLUMNS
    maxima = scores[: rows * _COLUMNS].reshape(rows, _COLUMNS).max(axis=0) if rows else scores
    least = np.partition(maxima, -most)[-most] if len(maxima) > most else 0
    candidates = np.flatnonzero(scores >= least if least else scores)
    indices: list[int] = candidates[np.argsort(-scores[candidates], kind="stable")[:most]].tolist()
    return indices


class IndexBuilder:
    """Takes the texts one by one, in the order of the products; `folder` keeps the pieces on disk."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.stem = folder, stemmer()
        self.vocabulary: dict[str, int] = {}
        """Stem -> its number, in order of appearance."""
        self.number_of: dict[str, int] = {}
        """Word -> number of its stem."""
        self.lengths: list[int] = []
        self.waiting: list[int] = []
        self.first = 0
        """The product that `waiting` begins with."""
        self.pieces: list[NDArray[np.int32]] = []

    def add(self, text: str) -> None:
        counted = words(text)
        for word in counted:
            if word not in self.number_of:
                self.number_of[word] = self.vocabulary.setdefault(self.stem(word), len(self.vocabulary))
        self.waiting += [self.number_of[word] for word in counted]
        self.lengths.append(len(counted))
        if len(self.waiting) >= _PIECE:
            self._count()

    def finish(self) -> Index:
        """The index of all texts; with a folder, written into the files that `Index.load` reads."""
        self._count()
        size, stems = len(self.lengths), len(self.vocabulary)
        lengths = np.array(self.lengths, dtype=np.float32)
        spread = np.float32(K1) * (1 - B + B * lengths / max(lengths.mean() if size else 1.0, 1e-9))
        holders = np.zeros(stems, dtype=np.int64)
        for stem, _, _ in self.pieces:
            holders += np.bincount(stem, minlength=stems)
        starts = np.concatenate([[0], np.cumsum(holders)])
        rarity = np.log(1 + (size - holders + 0.5) / (holders + 0.5)).astype(np.float32)
        products = self._array("products", np.int32, starts[-1])
        weights = self._array("weights", np.float32, starts[-1])
        free = starts[:-1].copy()
        for stem, product, times in self.pieces:
            # A piece is sorted by stem: its n-th product of a stem goes to the n-th free index of that stem. With
            # stems [0, 0, 2] whose free indices are 5 and 9, changes = [0, 2], counts = [2, 1], indices = [5, 6, 9].
            changes = np.flatnonzero(np.diff(stem, prepend=-1))
            counts = np.diff(changes, append=len(stem))
            indices = np.repeat(free[stem[changes]] - changes, counts) + np.arange(len(stem))
            products[indices] = product
            weights[indices] = rarity[stem] * (times / (times + spread[product]))
            free[stem[changes]] += counts
        if self.folder is not None:
            (self.folder / "vocabulary.json").write_text(json.dumps(self.vocabulary), encoding="utf-8")
            np.save(self.folder / "starts.npy", starts)
            for file in self.folder.glob("piece*.npy"):
                file.unlink()
        return Index(self.vocabulary, starts, products, weights, size, self.stem)

    def _count(self) -> None:
        """Put aside how often each stem stands in each of the waiting texts, sorted by stem, then product."""
        if self.waiting:
            count = len(self.lengths) - self.first
            product = np.repeat(np.arange(count), self.lengths[self.first :])
            pairs, times = np.unique(np.array(self.waiting, dtype=np.int64) * count + product, return_counts=True)
            piece = np.stack([pairs // count, pairs % count + self.first, times]).astype(np.int32)
            if self.folder is not None:
                file = self.folder / f"piece{len(self.pieces)}.npy"
                np.save(file, piece)
                piece = np.load(file, mmap_mode="r")
            self.pieces.append(piece)
        self.waiting, self.first = [], len(self.lengths)

    def _array(self, name: str, kind: Any, length: int) -> Any:
        shape = (max(1, int(length)),)  # a file of nothing cannot be mapped
        if self.folder is None:
            return np.zeros(shape, dtype=kind)
        return np.lib.format.open_memmap(self.folder / f"{name}.npy", mode="w+", dtype=kind, shape=shape)
