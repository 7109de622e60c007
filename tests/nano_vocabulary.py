"""Builds the tokenizer of nano models from what the environments say: see `tests/unit/models/test_nano.py`.

How: a space is put before every text, and after every line break and ``<action>`` that something follows, and decoding
takes it away again. The text is then cut into phrases, digits and cells; what is in the vocabulary is one token
(``ignore_merges``), all else goes through byte-level BPE merges that stay inside words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mulligan.models.nano import SPECIAL

CELLS = tuple(f"{column}{row}" for row in range(1, 9) for column in "abcdefgh")
FACTS = tuple(f"{cell}={value}" for cell in CELLS for value in (*"012345678*", "ok"))
_WORDS = (
    r" [a-h][1-8](?:=(?:[0-8*]|ok))?(?![\w=*])"  # a cell or a fact
    r"|\n* ?</?(?:action|reflection)>"
    r"| \([1-9],(?= [1-9]\))| [1-9]\)"  # the halves of a coordinate
    r"| ?\d"
)
_PHRASES = (
    r"\n+(?= [A-Za-z]+$)"  # a word that has its line to itself, or its line's beginning, is that word, not a phrase
    r"|\n*[^\n]*?[.,:;!?)|](?= |\n|$)"
    r"|\n*[^\n]+|\n+"
)
_INSIDE_PHRASES = r" ?[A-Za-z]+| ?[^\sA-Za-z]|\s"
_TAGS = tuple(
    f"{before}{tag}"
    for before in ("", " ", "\n ")
    for tag in ("<action>", "</action>", "<reflection>", "</reflection>")
)
_STARTS = ("\n", "<action>")
"""What a word starts behind, as behind a space."""


def build_tokenizer(texts: Iterable[str], *, phrases: int = 384, merges: int = 512) -> Tokenizer:
    """A tokenizer for conversations like `texts`: the same for the same texts, in whatever order.

    It has about 1,000 tokens of its own (bytes, cells, facts, digits, tags, special ones), and at most so many `merges`
    and `phrases` learned from the texts.
    """
    shaped = _shape(Tokenizer(models.BPE()))
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_pieces(shaped, text))
    fixed = re.compile(_WORDS)
    spoken = {piece: count for piece, count in counts.items() if not fixed.search(piece)}
    words = _learn_words(sorted(spoken), merges)
    vocabulary: dict[str, int] = words["vocab"]
    cells = [f" {word}" for word in (*CELLS, *FACTS)]
    digits = [f" {digit}" for digit in range(10)]
    halves = [half for digit in range(1, 10) for half in (f" ({digit},", f" {digit})")]
    for piece in (*cells, *digits, *halves, *_TAGS, *_choose(spoken, words, phrases)):
        vocabulary.setdefault(_as_bytes(piece), len(vocabulary))
    built = _shape(Tokenizer(_bpe(words)))
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return built


def _shape(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with all that stands around its vocabulary."""
    spaced = [normalizers.Replace(Regex(f"{start}(?=[^\n])"), f"{start} ") for start in _STARTS]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(" "), *spaced])
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (_WORDS, _PHRASES)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, _byte_level()])
    unspaced = [decoders.Replace(f"{start} ", start) for start in _STARTS]
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), *unspaced, decoders.Strip(" ", 1, 0)])
    return tokenizer


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _as_bytes(text: str) -> str:
    """`text` in the letters that byte-level vocabularies spell bytes with."""
    return str(_byte_level().pre_tokenize_str(text)[0][0])


def _pieces(shaped: Tokenizer, text: str) -> list[str]:
    """The pieces `text` is cut into, in plain letters."""
    spaced = shaped.normalizer.normalize_str(text)
    return [spaced[start:end] for _, (start, end) in shaped.pre_tokenizer.pre_tokenize_str(spaced)]


def _learn_words(pieces: list[str], merges: int) -> dict[str, Any]:
    """Vocabulary and merges of a BPE over the words in `pieces`, each piece counted once.

    Once, because what is said over and over becomes a phrase; the words are for all that is said otherwise.
    """
    learner = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(_INSIDE_PHRASES), "isolated")
    learner.pre_tokenizer = pre_tokenizers.Sequence([words, _byte_level()])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + merges, initial_alphabet=alphabet, min_frequency=2, show_progress=False
    )
    learner.train_from_iterator(pieces, trainer)
    learned: dict[str, Any] = json.loads(learner.to_str())["model"]
    return learned


def _bpe(words: dict[str, Any]) -> Any:
    return models.BPE(vocab=words["vocab"], merges=[tuple(pair) for pair in words["merges"]], ignore_merges=True)


def _choose(spoken: dict[str, int], words: dict[str, Any], phrases: int) -> list[str]:
    """The phrases that save the most tokens; a board's line is none, since its parts must stay apart."""
    plain = Tokenizer(_bpe(words))
    plain.pre_tokenizer = _byte_level()
    saved = {
        piece: (len(plain.encode(piece).ids) - 1) * count
        for piece, count in spoken.items()
        if count > 1 and re.search("[a-z]{2}", piece)
    }
    useful = [piece for piece, tokens in saved.items() if tokens > 0]
    return sorted(useful, key=lambda piece: (-saved[piece], piece))[:phrases]
