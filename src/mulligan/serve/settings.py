"""How the proxy is run, as data."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from mulligan.errors import ParameterError, UsageError

LARGEST_BODY = 32 * 2**20
"""Bytes of a request: pictures and files in messages come to several megabytes."""


@dataclass(frozen=True)
class ProxySettings:
    """What `mulligan serve` can be told."""

    upstream: str
    """The address that stands where the proxy's /v1 does: https://api.openai.com/v1."""
    host: str = "127.0.0.1"
    port: int = 8790
    token: str = field(default="", repr=False)
    """What a request must bring as Mulligan-Token; needed to listen to other machines."""
    namespace: str = "default"
    """Of requests that name none, as `task_class`."""
    task_class: str = "default"
    context_role: Literal["user", "system"] = "user"
    """Whether notes go before the first user message, since they are data, or to the end of the system message."""
    context_tokens: int = 1500
    outcome_timeout: float = 3_600.0
    """Seconds after its last request for which an episode waits for its outcome; then it is abandoned."""
    upstream_timeout: float = 600.0
    """Seconds without a byte of the upstream after which it counts as hung."""

    def __post_init__(self) -> None:
        address = urlsplit(self.upstream)
        if address.scheme not in ("http", "https") or not address.hostname or address.query or address.fragment:
            raise ParameterError(f"upstream must be an address like https://api.openai.com/v1 (got {self.upstream!r})")
        if address.username or address.password:
            raise ParameterError("upstream must hold no password: agents send their own key, which is passed on")
        if self.context_tokens < 0:
            raise ParameterError(f"context_tokens must be >= 0 (got {self.context_tokens})")
        for name in ("outcome_timeout", "upstream_timeout"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"{name} must be > 0 (got {getattr(self, name)})")
        if not self.token and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines: name the variable that holds a token "
                "(--token-env NAME), which every request then brings as Mulligan-Token"
            )

    @property
    def base(self) -> str:
        """The upstream's address without a slash at its end."""
        return self.upstream.rstrip("/")

    @property
    def origin(self) -> str:
        address = urlsplit(self.upstream)
        return f"{address.scheme}://{address.netloc}"


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def token_from(variable: str | None) -> str:
    """The token that an environment variable holds; empty where none is named."""
    if variable is None:
        return ""
    token = os.environ.get(variable, "")
    if not token.isascii() or not token.isprintable() or len(token) < 16:
        raise UsageError(f"the variable {variable} must hold a token of at least 16 plain characters")
    return token
