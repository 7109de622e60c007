"""nano: a tiny Llama with its own small tokenizer, trained from scratch, for the CPU demo and the tests.

Both are ordinary objects of transformers: `save_pretrained`, `AutoModelForCausalLM` and PEFT take them as they are.

The tokenizer knows the games. Any text round-trips, byte by byte if need be, but

- a MineSweeper cell (``b3``) or fact (``b3=2``) is one token, and the same one after a space, at the start of a line
  and inside ``<action>``: naming or avoiding a cell that was read means naming or avoiding that very token;
- a number is one token a digit, and a coordinate ``(2, 3)`` is two tokens;
- a phrase that the prompts say over and over (``Write a short reflection for yourself:``) is one token: with rules and
  reflections, a trial of compact MineSweeper takes 2.6 times fewer tokens than with words alone. Reworded prompts still
  encode, as words.

How: a space is put before every text, and after every line break and ``<action>`` that something follows, and decoding
takes it away again. The text is then cut into phrases, digits and cells; what is in the vocabulary is one token
(``ignore_merges``), all else goes through byte-level BPE merges that stay inside words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mulligan.errors import ParameterError, UnknownName
from mulligan.seeding import derive

TOKENIZER_FILE = Path(__file__).with_name("nano_tokenizer.json")
CELLS = tuple(f"{column}{row}" for row in range(1, 9) for column in "abcdefgh")
FACTS = tuple(f"{cell}={value}" for cell in CELLS for value in (*"012345678*", "ok"))
PAD, END, SYSTEM, USER, ASSISTANT = SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<|assistant|>{{ message.content }}<|end|>"
    "{% elif message.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'assistant' %}"
    "{{ message.content }}"
    "{% elif message.role == 'user' or message.content %}<|{{ message.role }}|>{{ message.content }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Two tokens a turn: one before a reply, one that ends it; what follows that is the user's. An empty system message
leaves no trace."""

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


@dataclass(frozen=True, slots=True)
class NanoSize:
    """How big a nano model is; the default has 0.4 million parameters."""

    hidden: int = 96
    layers: int = 2
    heads: int = 4
    feedforward: int = 256
    context: int = 1024
    """The longest sequence, in tokens."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ParameterError(f"nano: {field.name}={getattr(self, field.name)} cannot be; give at least 1")
        if self.hidden % (2 * self.heads):  # rotary positions turn pairs
            raise ParameterError(
                f"nano: hidden={self.hidden} does not suit heads={self.heads}; give a multiple of {2 * self.heads}"
            )


def nano_model(seed: int = 0, **size: int) -> LlamaForCausalLM:
    """A fresh model with the weights that `seed` draws; `size` are fields of `NanoSize`. Leaves torch's own seed alone.

    Input and output embeddings are tied: cloning an expert of compact MineSweeper, the loss falls as fast as with two
    tables of embeddings, with 30 % fewer parameters to hold, to save and to step.
    """
    names = [field.name for field in fields(NanoSize)]
    for name in size:
        if name not in names:
            raise UnknownName("size of nano", name, names)
    chosen = NanoSize(**size)
    tokenizer = nano_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=chosen.hidden,
        intermediate_size=chosen.feedforward,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.heads,
        num_key_value_heads=chosen.heads,
        max_position_embeddings=chosen.context,
        tie_word_embeddings=True,
        initializer_range=0.6 * chosen.hidden**-0.5,  # cloning goes much faster than from 0.02
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with own_randomness(derive(seed, "nano")):
        model = LlamaForCausalLM(config)
    model.eval()
    return model


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from `seed`; afterwards, it goes on as if nothing had happened."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the accelerators too
    try:
        yield
    finally:
        torch.set_rng_state(before)


def nano_tokenizer(context: int = 1024) -> Any:
    """The tokenizer of every nano model, as it was built once from what the environments say."""
    return wrap(Tokenizer.from_file(str(TOKENIZER_FILE)), context)


def wrap(tokenizer: Tokenizer, context: int = 1024) -> Any:
    """`tokenizer` with its chat template, as transformers takes it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=context,
        chat_template=TEMPLATE,
    )


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
