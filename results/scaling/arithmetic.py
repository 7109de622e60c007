"""What an update takes on 1 to 512 GPUs, by arithmetic from measured figures: python results/scaling/arithmetic.py

Measured here: bytes of a trial as processes exchange it, and the time to write and read it. Measured on one H200 with
Qwen3-4B's shape (docs/performance.md): decoding, training. Assumed: a 32B model takes eight times as long for a token;
a machine has 8 GPUs, 450 GB/s between them and 50 GB/s to other machines; a trial of the kind "short" has the tokens of
MineSweeper 6x6 there, one of the kind "long" those of LaMer's preset at full length.
"""

from __future__ import annotations

import pickle
import random
import sys
import time
from dataclasses import dataclass

import mulligan
from mulligan.types import Completion, Episode, StopReason, Trial, Turn

TRIALS = 128
"""Of each GPU: what keeps it busy (simulation.json)."""
INSIDE, BETWEEN = 450e9, 50e9
"""Bytes a second between GPUs of a machine, and of a machine to others."""
MEMORY = 141e9


@dataclass(frozen=True)
class Kind:
    turns: int
    sampled: int
    """Tokens of a trial."""
    read: int


@dataclass(frozen=True)
class Model:
    parameters: float
    step_base: float
    """Seconds of a decoding step without sequences: the weights are read."""
    trained: float
    """Tokens a second."""


KINDS = {"short": Kind(12, 504, 2547), "long": Kind(21, 23_435, 23_435)}
MODELS = {"4B": Model(4e9, 0.0032, 17_000), "32B": Model(32e9, 0.0256, 17_000 / 8)}
STEP_EACH = 0.000015


def trial_of(kind: Kind) -> Trial:
    rng = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(151_000) for _ in range(count))

    sampled, read = kind.sampled // kind.turns, kind.read // kind.turns
    turns = []
    for _ in range(kind.turns):
        logprobs = tuple(-rng.random() for _ in range(sampled))
        reply = Completion("a word " * (sampled // 2), ids=ids(sampled), logprobs=logprobs, prompt_ids=ids(read))
        turns.append(Turn("a row of a board " * 10, reply, 0.0, True, ""))
    third = kind.turns // 3
    episodes = (Episode(n, tuple(turns[n * third : (n + 1) * third]), "", StopReason.LOST) for n in range(3))
    return Trial(mulligan.make_task("minesweeper"), tuple(episodes), "history")


def exchanged(kind: Kind) -> tuple[float, float]:
    """Bytes of a trial, and seconds to write and read it."""
    trials = [trial_of(kind) for _ in range(8)]
    began = time.process_time()
    data = pickle.dumps(trials)
    pickle.loads(data)
    return len(data) / 8, (time.process_time() - began) / 8


def rows() -> list[tuple[str, ...]]:
    lines = [("model", "trials", "GPUs", "GB/GPU", "sample", "train", "exchange", "read all", "gradients", "update")]
    for model_name, model in MODELS.items():
        for kind_name, kind in KINDS.items():
            size, seconds = exchanged(kind)
            for gpus in (1, 8, 64, 512):
                sample = kind.sampled * (model.step_base + TRIALS * STEP_EACH)
                train = TRIALS * (kind.sampled + kind.read) / model.trained
                others = TRIALS * (gpus - 1)
                exchange = others * size * 8 / BETWEEN if gpus > 8 else others * size / INSIDE
                read_all = others * seconds
                speed = BETWEEN / 8 if gpus > 8 else INSIDE
                gradients = 0.0 if gpus == 1 else 2 * 4 * model.parameters / speed + 4 * model.parameters / speed
                memory = model.parameters * (2 + 4 + 12 / gpus) / 1e9
                parts = (sample, train, exchange, read_all, gradients)
                fits = f"{memory:.0f}" + ("" if memory * 1e9 < 0.8 * MEMORY else " !")
                times = [f"{part:.1f}" for part in (*parts, sum(parts))]
                lines.append((model_name, kind_name, str(gpus), fits, *times))
    return lines


def main() -> None:
    for name, kind in KINDS.items():
        size, seconds = exchanged(kind)
        per_token = size / (kind.sampled + kind.read)
        sys.stdout.write(
            f"{name}: {size / 1e3:.0f} kB a trial, {per_token:.0f} bytes a token, {1e3 * seconds:.2f} ms\n"
        )
    sys.stdout.write("\nseconds of an update of 128 trials a GPU; '!' does not fit 141 GB with room for a cache\n")
    for row in rows():
        sys.stdout.write("  ".join(f"{cell:>9}" for cell in row) + "\n")


if __name__ == "__main__":
    main()
