"""How alike a task is to notes, by meaning rather than by words: vectors of words from a package on PyPI.

WordLlama (MIT; 16 MB, made from the token embeddings of a Llama) brings a vector for each of 32,000 pieces of words.
Two files of the package are read here and its code is not run: no torch, nothing is downloaded. A text's vector is the
mean of its pieces', and likeness is the cosine of two texts. Order and negation are lost in that; "look up the order"
and "do not look up the order" are alike.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mulligan.errors import MissingExtra, UnknownName, extra_named
from mulligan.journal.context import Similarity
from mulligan.text import storable

Vectors = NDArray[np.float32]

NAMES = ("wordllama",)
"""What `Journal(similarity=…)` may be by name."""
ENTIRELY_ALIKE = 0.5
"""The cosine from which on texts count as entirely alike: the same task in other words has about 0.45, others 0.05."""
_WEIGHTS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_LONGEST = 4_000
"""Characters of a text that are read: a task may be a whole mail."""
_MOST_KEPT = 20_000
"""Texts whose vectors are kept, about 20 MB: notes come again with every episode."""


class WordVectors:
    """A `Similarity` from one table of vectors; for any number of threads."""

    def __init__(self) -> None:
        with extra_named("similarity of notes", "similarity"):
            from tokenizers import Tokenizer
        folder = _folder()
        self._table = _table(folder / _WEIGHTS)
        self._tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        self._kept: dict[str, Vectors] = {}
        self._lock = threading.Lock()

    def __call__(self, task: str, texts: Sequence[str]) -> Sequence[float]:
        vectors = self._of([task, *texts])
        alike: list[float] = np.clip(vectors[1:] @ vectors[0] / ENTIRELY_ALIKE, 0, 1).tolist()
        return alike

    def _of(self, texts: Sequence[str]) -> Vectors:
        """Vectors of length 1, zeros for texts without words. [text, dimension]"""
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._kept]
            if len(self._kept) + len(new) > _MOST_KEPT:
                self._kept.clear()
                new = list(dict.fromkeys(texts))
            encoded = self._tokenizer.encode_batch(
                [storable(text[:_LONGEST]) for text in new], add_special_tokens=False
            )
            for text, tokens in zip(new, encoded, strict=True):
                total = self._table[tokens.ids].astype(np.float32).sum(axis=0)
                self._kept[text] = total / max(float(np.linalg.norm(total)), 1e-6)
            return np.stack([self._kept[text] for text in texts])


def similarity_named(name: str) -> Similarity:
    """The similarity of this name, loaded once for the process."""
    if name not in NAMES:
        raise UnknownName("similarity", name, NAMES)
    with _LOADING:
        if name not in _LOADED:
            _LOADED[name] = WordVectors()
        return _LOADED[name]


_LOADED: dict[str, Similarity] = {}
_LOADING = threading.Lock()


def _folder() -> Path:
    """Where the package lies; it is not imported, since that would import what it downloads with."""
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations:
        raise MissingExtra("similarity of notes", "similarity")
    return Path(package.submodule_search_locations[0])


def _table(path: Path) -> Vectors:
    """The one array of a safetensors file: a length, a header of JSON, numbers."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    [array] = [value for name, value in json.loads(content[8:start]).items() if name != "__metadata__"]
    kind = {"F16": np.float16, "F32": np.float32}[array["dtype"]]
    table: Vectors = np.frombuffer(content, dtype=kind, offset=start).reshape(array["shape"])
    return table
