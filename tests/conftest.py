"""One thread for each test process: two of them share the cores, and tiny models gain nothing from more.

Nothing is said of how long a test takes: machines are slow at times.
"""

import atexit
import gc
import os
from contextlib import suppress

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
with suppress(ModuleNotFoundError):  # the comparison with TextWorld has an installation of its own
    from hypothesis import HealthCheck, settings

    settings.register_profile("patient", deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("patient")

FREEZE = gc.freeze
atexit.register(gc.unfreeze)  # some libraries complain of what is left
gc.disable()  # until all modules are loaded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)


def pytest_collection_finish() -> None:
    """Modules stay to the end: the garbage collector, which would take a third of the tests' time, passes over them."""
    FREEZE()
    gc.enable()
    gc.freeze = gc.unfreeze = lambda: None  # training would unfreeze them


@pytest.fixture(autouse=True, scope="module")
def modules_stay_frozen():
    """Also those that the tests of the file before loaded. Collected first: what leaked must be noticed."""
    gc.collect()
    FREEZE()


@pytest.fixture(autouse=True)
def trust_ends_with_the_test():
    """What one test has trusted, another one has to say itself."""
    before = os.environ.get("MULLIGAN_TRUST", "")
    yield
    os.environ["MULLIGAN_TRUST"] = before
