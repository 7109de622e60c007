"""Randomness derived by name from one root seed.

`random.Random` instead of numpy's generator: environments draw single numbers, where it is about ten times faster, and
its stream for a given integer seed is fixed by the language's documentation, so that frozen task sets stay frozen.
"""

from __future__ import annotations

import hashlib
import random

from mulligan.types import plain


def derive(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and its place: ``derive(root, "board")``.

    Equal numbers give equal seeds, numpy's whole numbers too.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in map(plain, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: int | str) -> random.Random:
    """A generator of its own for the purpose that `parts` name."""
    return random.Random(derive(*parts))
