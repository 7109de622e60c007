"""nano: a tiny Llama with its own small tokenizer, trained from scratch, for the CPU demo and the tests.

The tokenizer knows the games. Any text round-trips, byte by byte if need be, but a MineSweeper cell (``b3``) or fact
(``b3=2``) is one token wherever it stands, a number is one token a digit, a coordinate ``(2, 3)`` is two tokens, and a
phrase that the prompts say over and over is one token: a trial of compact MineSweeper takes 2.6 times fewer than with
words alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mulligan.errors import ParameterError, UnknownName
from mulligan.seeding import derive

TOKENIZER_FILE = Path(__file__).with_name("nano_tokenizer.json")
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
SIZES = {"hidden": 96, "layers": 2, "heads": 4, "feedforward": 256, "context": 1024}
"""The default, of 0.4 million parameters; `context` is the longest sequence, in tokens."""


def nano_model(seed: int = 0, **sizes: int) -> LlamaForCausalLM:
    """A fresh model with the weights that `seed` draws, of other `sizes` than `SIZES` where given.

    Input and output embeddings are tied: cloning an expert, the loss falls as fast, with 30 % fewer parameters.
    """
    for name, value in sizes.items():
        if name not in SIZES:
            raise UnknownName("size of nano", name, SIZES)
        if value < 1:
            raise ParameterError(f"nano: {name} must be >= 1 (got {value})")
    size = SIZES | sizes
    pairs = 2 * size["heads"]  # rotary positions turn pairs
    if size["hidden"] % pairs:
        raise ParameterError(f"nano: hidden must be a multiple of 2 * heads = {pairs} (got {size['hidden']})")
    tokenizer = nano_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size["hidden"],
        intermediate_size=size["feedforward"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["heads"],
        max_position_embeddings=size["context"],
        tie_word_embeddings=True,
        initializer_range=0.6 * size["hidden"] ** -0.5,  # cloning goes much faster than from 0.02
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with seeded_randomness(derive(seed, "nano")):
        return LlamaForCausalLM(config)


@contextmanager
def seeded_randomness(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from `seed`; afterwards, it goes on as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the accelerators too
        yield


def nano_tokenizer(context: int = 1024) -> Any:
    """The tokenizer of every nano model, as `tests/nano_vocabulary.py` built it from what the environments say."""
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(TOKENIZER_FILE)),
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=context,
        chat_template=TEMPLATE,
    )
