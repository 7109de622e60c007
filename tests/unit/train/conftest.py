"""Runs of seconds do not collect garbage: in a test process with all its modules, that takes half of their time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mulligan.training import loop


@pytest.fixture(autouse=True)
def no_collection(monkeypatch, request):
    if "collects" not in request.fixturenames:
        nothing = SimpleNamespace(collect=lambda: None, freeze=lambda: None, unfreeze=lambda: None)
        monkeypatch.setattr(loop, "gc", nothing)


@pytest.fixture
def collects():
    """For tests that are about memory."""
