"""The GPU's kernels against the plain functions: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.slow
def test_kernels_say_what_the_plain_functions_say():
    pytest.importorskip("triton")
    # Triton decides when it is imported, and torch imports it: so in a process of its own.
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    checks = Path(__file__).with_name("kernels_alone.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)],
        env={**os.environ, **interpreted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "......." in done.stdout, done.stdout
