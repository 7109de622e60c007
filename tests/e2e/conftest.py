"""Fixtures of the end-to-end tests, for the files that ask for them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and a terminal that is wide enough."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.fixture
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No key and no proxy from outside; and connections left open are found in the test that left them."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield
    gc.collect()
