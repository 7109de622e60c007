"""Which Python files may be run and which servers asked: those that a person names.

Not those that only a run folder or a table names, which may be somebody else's. A name is one on the command line, in a
file that stands there (``--config FILE``, a sweep's), or an argument in Python. Other processes of the same command are
told by the variable ``MULLIGAN_TRUST``.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from mulligan.errors import UsageError

_VARIABLE = "MULLIGAN_TRUST"
_BETWEEN = "\n"
_EVERYTHING = "*"
_FILE = re.compile(r"[^\s\0,;'\"=][^\0,;'\"=\n]{0,4096}?\.py(?=:|$|[\s,;'\"])")
"""Wherever it stands: in a mixture, in a table of parameters, in TOML."""
_SINGLE_FILE = re.compile(r"([^\0\n{}]+?\.py)(?::[^\0\n{}]*)?")
"""A name of its own, whose path may have anything in it."""


def trust(*names: object) -> None:
    """Let the Python files be run that these texts name; "*" is everything that a run folder names."""
    _add({_EVERYTHING} if _EVERYTHING in names else set())
    for name in names:
        _trust_files(str(name))


def trust_words(words: list[str]) -> None:
    """Let the Python files be run that a command line names, itself or in a file of settings."""
    _add({_EVERYTHING} if "--trust" in words else set())
    for word in words:
        _trust_files(word)
        file = Path(word.rpartition("=")[2])
        if file.suffix == ".toml":
            with suppress(OSError):  # which whoever reads it for its settings will tell
                _trust_files(file.read_text(encoding="utf-8", errors="replace"))


def trusts_everything() -> bool:
    """Whether a person has said so: ``--trust``."""
    return _EVERYTHING in _trusted()


def check_trusted(path: Path) -> None:
    """Raise unless a person has named this file."""
    if not trusts_everything() and str(path.resolve()) not in _trusted():
        raise UsageError(
            f"{path} is Python code that a run folder names, and you do not; to run it, name it on the command line, "
            f"or add --trust (in Python mulligan.trust({str(path)!r}))"
        )


def flag(*names: object) -> str:
    """What the command that continues a run needs besides, if a file or an endpoint is among what the run names."""
    return " --trust" if any(_FILE.search(str(name)) or str(name).startswith("endpoint") for name in names) else ""


def _trust_files(text: str) -> None:
    value = text.partition("=")[2]  # --task.env=FILE
    singles = map(_SINGLE_FILE.fullmatch, (text, value, *text.split(","), *value.split(",")))
    files = [*_FILE.findall(text), *(single[1] for single in singles if single)]
    _add({str(Path(file).resolve()) for file in files})


def _add(names: set[str]) -> None:
    if names:
        os.environ[_VARIABLE] = _BETWEEN.join(sorted({*_trusted(), *names}))


def _trusted() -> set[str]:
    return set(filter(None, os.environ.get(_VARIABLE, "").split(_BETWEEN)))
