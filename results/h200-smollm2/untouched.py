"""SmolLM2 as it comes: zero-shot, ReAct and Reflexion on the tasks of the sweeps.

    python results/h200-smollm2/untouched.py runs/h200-smollm2
    python results/h200-smollm2/untouched.py runs/h200-webshop --games webshop --tasks 500

Writes RUNS/<game>/untouched-<style>.json, which `collect.py` reads.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mulligan.eval.run import evaluate
from mulligan.players import as_trained, player_from
from mulligan.train.resolve import resolve
from mulligan.types import Sampling

REPLY = {"zero-shot": 32, "react": 96, "reflexion": 96}
"""Tokens: an action alone, or a few sentences and an action."""


def main(runs: Path, games: Sequence[str], tasks: int) -> None:
    player = player_from("smollm2", slots=512)
    for game in games:
        config = resolve(f"gpu-smollm2-{game}", None, {})
        _, params = as_trained(config, game)
        if "pays" in params:
            params = {**params, "pays": "score"}  # the returns then are the original's score; p@k counts successes
        for style, tokens in REPLY.items():
            began = time.perf_counter()
            found = evaluate(
                game,
                player,
                params=params,
                tasks=tasks,
                style=style,
                sampling=Sampling(0.7, 1.0, tokens),
                reflection_tokens=128,
                concurrency=512,
                room=False,
            )
            result = {
                "name": style,
                "game": game,
                "memory": found.settings.memory_mode,
                "main": asdict(found.main),
                "controls": {name: asdict(summary) for name, summary in found.controls.items()},
                "seconds": time.perf_counter() - began,
            }
            path = runs / game / f"untouched-{style}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            sys.stdout.write(f"{game} {style}: {found.main.p}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--games", nargs="+", default=["minesweeper", "sokoban"])
    parser.add_argument("--tasks", type=int, default=512)
    given = parser.parse_args()
    main(given.runs, given.games, given.tasks)
