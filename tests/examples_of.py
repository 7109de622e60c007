"""The examples, as modules."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> Callable[..., str]:
    """The function `run` of an example."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Callable[..., str] = module.run
    return run
