"""The command line, called in this process or as a program of its own."""

from __future__ import annotations

import os
import sys

import pytest

from mulligan.app.cli import main

COMMAND = [sys.executable, "-c", "from mulligan.app.cli import main; main()"]


def call(*words: str) -> int:
    os.environ.pop("MULLIGAN_TRUST", None)  # a process of its own would not know what another one was told to trust
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)
