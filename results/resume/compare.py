"""Is a run that was stopped and resumed the run that was left alone, on this machine?

Trains one setting three times: left alone, left alone again, and stopped by SIGTERM half way and resumed. Says at which
update, if at any, the second and the third leave the first, in metrics (but for times) and in the last weights.

    python results/resume/compare.py --out FILE [--updates 8] [-- any setting of `mulligan train`]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mulligan.training import checkpoint
from mulligan.training.metrics import MetricsFile

COMMAND = [sys.executable, "-c", "from mulligan.app.cli import main; main()", "train"]
SMALL = ["--preset", "cpu", "--run.tasks", "8", "--warmstart.steps", "60", "--warmstart.trials", "600"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--updates", type=int, default=8)
    options.add_argument("settings", nargs="*")
    asked = options.parse_args()
    settings = [*SMALL, "--run.updates", str(asked.updates), *asked.settings]
    found: dict[str, Any] = {
        "settings": settings,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        alone, again, resumed = (Path(folder, name) for name in ("alone", "again", "resumed"))
        for run in (alone, again):
            start(settings, run)
        found["again"] = difference(alone, again)
        write(found, asked.out)  # time on a GPU may end before the rest does
        found["stopped after updates"] = interrupt(settings, resumed, asked.updates // 2)
        subprocess.run([*COMMAND, "--resume", str(resumed)], check=True, stdout=subprocess.DEVNULL)
        found["resumed"] = difference(alone, resumed)
    write(found, asked.out)
    sys.stdout.write(asked.out.read_text())


def start(settings: list[str], run: Path) -> None:
    subprocess.run([*COMMAND, *settings, "--run", str(run)], check=True, stdout=subprocess.DEVNULL)


def write(found: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n")


def interrupt(settings: list[str], run: Path, updates: int) -> int:
    """Start a run, ask it to stop after some updates, and say after how many it did."""
    process = subprocess.Popen([*COMMAND, *settings, "--run", str(run)], stdout=subprocess.DEVNULL)
    while process.poll() is None and len(lines(run)) < updates:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.wait()
    return len(lines(run))


def difference(one: Path, other: Path) -> dict[str, Any]:
    """The first update whose metrics differ, which of them and by how much, and whether the last weights differ."""
    left, right = lines(one), lines(other)
    result: dict[str, Any] = {"updates": [len(left), len(right)], "first difference": None}
    for here, there in zip(left, right, strict=False):
        differ = {
            key: (here.get(key), there.get(key)) for key in here.keys() | there.keys() if not key.startswith("time/")
        }
        differ = {key: pair for key, pair in differ.items() if pair[0] != pair[1]}
        if differ:
            result["first difference"] = {"update": here["update"], "metrics": dict(sorted(differ.items()))}
            break
    result["same weights"] = weights(one) == weights(other)
    return result


def lines(run: Path) -> list[dict[str, Any]]:
    return [line for line in MetricsFile(run / "metrics.jsonl").read() if line["update"]]


def weights(run: Path) -> str:
    """A fingerprint of the last checkpoint's weights."""
    last = checkpoint.newest(run)
    assert last is not None, f"nothing was saved in {run}"
    return hashlib.sha256((last / "weights.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
