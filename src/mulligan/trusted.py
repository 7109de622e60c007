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
from urllib.parse import urlsplit

from mulligan.errors import UsageError

TRUSTED = "MULLIGAN_TRUST"
_BETWEEN = "\n"
_EVERYTHING = "*"
_FILE = re.compile(r"[^\s\0,;'\"=][^\0,;'\"=\n]{0,4096}?\.py(?=:|$|[\s,;'\"])")
"""Wherever it stands: in a mixture, in a table of parameters, in TOML."""
_SINGLE_FILE = re.compile(r"([^\0\n{}]+?\.py)(?::[^\0\n{}]*)?")
"""A name of its own, whose path may have anything in it."""
_ENDPOINT = re.compile(r"endpoint:[^\s\0,;'\"=>]+")
"""A server's model that is an opponent."""
_CLUSTER = re.compile(r"(?:ray://)?[\w.-]+:\d{2,5}\b")
_URL = re.compile(r"https?://[^\s\0,;'\"<>]+")


def trust(*names: object) -> None:
    """Let the files be run and the endpoints asked that these texts name; "*": all that a run folder names.

    >>> mulligan.trust("worlds/mine.py:MyWorld")  # a run folder may now name this file
    """
    _add({_EVERYTHING} if _EVERYTHING in names else set())
    for name in names:
        _trust_named(str(name))


def trust_words(words: list[str]) -> None:
    """Let the files be run and the endpoints be asked that a command line names, itself or in a file of settings."""
    _add({_EVERYTHING} if "--trust" in words else set())
    for word in words:
        _trust_named(word)
        file = Path(word.rpartition("=")[2])
        if file.suffix == ".toml":
            with suppress(OSError):  # which whoever reads it for its settings will tell
                _trust_named(file.read_text(encoding="utf-8", errors="replace"))


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


def check_server(model: str) -> None:
    """Raise unless a person has named this model of a server (``endpoint:MODEL``)."""
    if not trusts_everything() and model not in _trusted():
        raise UsageError(
            f"{model} is a server's model that a run folder names, and you do not; to ask it, name it on the command "
            f"line, or add --trust (in Python mulligan.trust({model!r}))"
        )


def check_cluster(address: str) -> None:
    """Raise unless a person has named this cluster of Ray: its answers are Python objects, which may run code."""
    if address not in ("", "auto") and not trusts_everything() and address not in _trusted():
        raise UsageError(
            f"{address} is a cluster that a run folder names, and you do not; to use it, name it on the command line "
            f"(--ray.address {address}; in Python mulligan.trust({address!r}))"
        )


def check_url(url: str) -> None:
    """Raise unless a person has named this server, or it is on this machine: it is sent prompts, and perhaps a key."""
    if not _is_here(url) and not trusts_everything() and url not in _trusted():
        raise UsageError(
            f"{url} is a server that a run folder names, and you do not; to use it, name it on the command line "
            f"(--backend.url {url}), or add --trust (in Python mulligan.trust({url!r}))"
        )


def _is_here(url: str) -> bool:
    with suppress(ValueError):
        return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return False


def flag(*names: object) -> str:
    """What the command that continues a run needs besides, if a file or an endpoint is among what the run names."""
    texts = [str(name) for name in names]
    named = any(
        _FILE.search(text)
        or _ENDPOINT.search(text)
        or text.startswith("endpoint")
        or not all(map(_is_here, _URL.findall(text)))
        for text in texts
    )
    return " --trust" if named else ""


def _trust_named(text: str) -> None:
    value = text.partition("=")[2]  # --task.env=FILE
    singles = map(_SINGLE_FILE.fullmatch, (text, value, *text.split(","), *value.split(",")))
    files = [*_FILE.findall(text), *(single[1] for single in singles if single)]
    paths = {str(Path(file).resolve()) for file in files}
    _add(paths | {each for pattern in (_ENDPOINT, _CLUSTER, _URL) for each in pattern.findall(text)})


def _add(names: set[str]) -> None:
    if names:
        os.environ[TRUSTED] = _BETWEEN.join(sorted({*_trusted(), *names}))


def _trusted() -> set[str]:
    return set(filter(None, os.environ.get(TRUSTED, "").split(_BETWEEN)))
