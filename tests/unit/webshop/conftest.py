"""What the tests of the shop share: a cache of their own, and a shop with twelve shirts."""

from __future__ import annotations

import pytest

from mulligan.envs import registry
from mulligan.envs.webshop.catalogue import from_files, from_people
from shirts import NOTE, item, shop_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))
    yield
    from_files.cache_clear()
    from_people.cache_clear()


@pytest.fixture
def shirts(tmp_path):
    """Twelve shirts; goal 0 asks for the third, in some colour and size."""
    where = shop_of(tmp_path, [item(number) for number in range(1, 13)], {"B03": NOTE})
    return registry.make("webshop", 0, catalogue=where, goal=0)
