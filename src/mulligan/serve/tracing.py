"""Spans of OpenTelemetry, where its API is installed; who exports them is configured by its own variables."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

try:
    from opentelemetry import trace
except ModuleNotFoundError:
    trace = None


def span(name: str, **attributes: str) -> AbstractContextManager[Any]:
    """A span with ``mulligan.NAME`` for each attribute that is not empty."""
    if trace is None:
        return nullcontext()
    given = {f"mulligan.{key}": value for key, value in attributes.items() if value}
    opened: AbstractContextManager[Any] = trace.get_tracer("mulligan").start_as_current_span(name, attributes=given)
    return opened
