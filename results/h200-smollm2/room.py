"""What there is to gain: scripted players on the frozen tasks of the sweeps, without memory and with it.

python results/h200-smollm2/room.py > results/h200-smollm2/room.md
"""

from __future__ import annotations

import sys
from typing import Any

from mulligan.eval.run import evaluate
from mulligan.players import as_trained, player_from
from mulligan.train.resolve import resolve

PLAYERS = {
    "minesweeper": {
        "expert without memory": "expert:1:0",
        "expert with perfect memory": "expert:1:1",
        "demonstrator without memory": "expert:0.6:0",
        "demonstrator": "expert:0.6:0.2",
        "demonstrator with perfect memory": "expert:0.6:1",
    },
    "sokoban": {
        "demonstrator without memory": "hasty:0.1:0",
        "demonstrator": "hasty:0.1:0.2",
        "demonstrator with perfect memory": "hasty:0.1:1",
    },
}
"""Sokoban's expert is a solver: it needs no second attempt."""


def rows(game: str) -> list[str]:
    _, params = as_trained(resolve(f"gpu-smollm2-{game}", None, {}), game)
    lines = []
    for name, spec in PLAYERS[game].items():
        memory = "none" if spec.endswith(":0") else "history"
        options: dict[str, Any] = {"params": params, "tasks": 512, "memory": memory}
        found = evaluate(game, player_from(spec), controls=(), room=False, **options).main
        shares = [f"{100 * p:.1f} ± {50 * (high - low):.1f}" for p, (low, high) in zip(found.p, found.ci, strict=True)]
        lines.append(f"| {' | '.join([game, name, f'`{spec}`', *shares])} |\n")
    return lines


if __name__ == "__main__":
    sys.stdout.write("| | | `--policy` | p@1 | p@2 | p@3 |\n|---|---|---|---|---|---|\n")
    sys.stdout.writelines(line for game in PLAYERS for line in rows(game))
