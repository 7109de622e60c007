"""Headers: what they name of an episode, and which ones are passed on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mulligan.errors import ParameterError
from mulligan.journal.episode import name_of, stored_text

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, as ASGI has them."""
OURS = b"mulligan-"
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade host content-length expect".split()
)
_READABLE = ("gzip", "deflate", "identity")
"""Encodings of an answer that the record can read; others are not asked for."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a request says of its episode."""

    namespace: str
    task_class: str
    episode: str
    """Empty where the request is an episode of its own."""
    task: str
    agent: str
    person: str
    untrusted: bool

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]], namespace: str, task_class: str) -> Named:
        """Read ``Mulligan-Namespace``, ``-Class``, ``-Episode``, ``-Task``, ``-Agent``, ``-Person``, ``-Untrusted``."""
        given = {name[len(OURS) :].decode("ascii"): _text(value) for name, value in headers if name.startswith(OURS)}
        for name in given:
            if name not in ("namespace", "class", "episode", "task", "agent", "person", "untrusted", "token"):
                raise ParameterError(f"unknown header Mulligan-{name.title()}")
        untrusted = given.get("untrusted", "").lower()
        if untrusted not in ("", "0", "1", "true", "false"):
            raise ParameterError(f"Mulligan-Untrusted must be 1 or 0 (got {untrusted!r:.80})")
        return cls(
            namespace=name_of("Mulligan-Namespace", given.get("namespace") or namespace),
            task_class=name_of("Mulligan-Class", given.get("class") or task_class),
            episode=name_of("Mulligan-Episode", given.get("episode", ""), empty=True),
            task=stored_text(given.get("task", "")),
            agent=name_of("Mulligan-Agent", given.get("agent", ""), empty=True),
            person=name_of("Mulligan-Person", given.get("person", ""), empty=True),
            untrusted=untrusted in ("1", "true"),
        )


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The headers of a request that go to the upstream."""
    kept = [(name, value) for name, value in headers if not name.startswith(OURS)]
    left_out = _HOP_BY_HOP | _named_by_connection(kept)
    passed = []
    for name, value in kept:
        if name == b"accept-encoding":
            value = _readable(value)
        if name not in left_out:
            passed.append((name.decode("latin-1"), value.decode("latin-1")))
    return passed


def passed_back(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an answer that go to the client; its length stays, because its bytes do."""
    kept = [(name.lower(), value) for name, value in headers]
    left_out = (_HOP_BY_HOP | _named_by_connection(kept)) - {b"content-length"}
    return [(name, value) for name, value in kept if name not in left_out and not name.startswith(OURS)]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """The value of a header; empty where there is none."""
    return next((value.decode("latin-1").strip() for key, value in headers if key == name), "")


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))


def _readable(accepted: bytes) -> bytes:
    offers = [offer.strip() for offer in accepted.decode("latin-1").split(",")]
    kept = [offer for offer in offers if offer.partition(";")[0].strip().lower() in _READABLE]
    return ", ".join(kept or ["identity"]).encode("latin-1")


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")
