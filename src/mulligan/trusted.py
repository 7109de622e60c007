"""Which Python files may be run: those that a person names, never those that only a run folder or a table names.

A name is one on the command line, in a file that stands there (``--config FILE``, a sweep's), or an argument in Python.
Other processes of the same command are told by the variable ``MULLIGAN_TRUST``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mulligan.errors import UsageError

_VARIABLE = "MULLIGAN_TRUST"
_EVERYTHING = "*"
_FILE = re.compile(r"[^\s,;'\"=][^,;'\"=\n]*?\.py(?=:|$|[\s,;'\"])")


def trust(*names: object) -> None:
    """Let the Python files be run that these texts name; "*" is every file, also those that a run folder names."""
    paths = {str(Path(file).resolve()) for name in names for file in _FILE.findall(str(name))}
    paths |= {_EVERYTHING} if _EVERYTHING in names else set()
    if paths:
        os.environ[_VARIABLE] = os.pathsep.join(sorted({*_trusted(), *paths}))


def trust_words(words: list[str]) -> None:
    """Let the Python files be run that a command line names, itself or in a file of settings."""
    for word in words:
        trust(word)
        file = Path(word.rpartition("=")[2])
        if file.suffix == ".toml" and file.is_file():
            trust(file.read_text(encoding="utf-8", errors="replace"))


def check_trusted(path: Path) -> None:
    """Raise unless a person has named this file."""
    if not {_EVERYTHING, str(path.resolve())} & _trusted():
        raise UsageError(
            f"{path} is Python code that a run folder names, and you do not; to run it, name it on the command line, "
            f"or add --trust (in Python mulligan.trust({str(path)!r}))"
        )


def flag(text: str) -> str:
    """What a command that continues a run needs besides, if the run's environment (`text`) is a file."""
    return " --trust" if _FILE.search(text) else ""


def _trusted() -> set[str]:
    return set(filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep)))
