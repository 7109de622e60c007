"""RL and meta-RL after the same time rather than the same updates, from the metrics that are kept here.

    python results/h200-smollm2/wall_time.py > results/h200-smollm2/wall-time.md

Time is that of rollouts and updates; a seed's two runs are compared when the first of them ends, by the last validation
(128 tasks) that each had by then. How many others shared the GPU differs from run to run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
RL = "RL, GiGPO"
PAIRS = {
    "minesweeper": ("meta-RL, reflection", "meta-RL, history"),
    "sokoban": ("as many episodes, meta-RL, reflection", "meta-RL, reflection", "meta-RL, history"),
}
Curve = list[tuple[float, float]]


def curve(metrics: Path) -> Curve:
    """Minutes of training -> p@3 on validation tasks, at every validation."""
    seconds, points = 0.0, []
    for line in map(json.loads, metrics.read_text(encoding="utf-8").splitlines()):
        seconds += line.get("time/rollout", 0.0) + line.get("time/update", 0.0)
        if "validation/p@3" in line:
            points.append((seconds / 60, line["validation/p@3"]))
    return points


def at(points: Curve, minutes: float) -> float:
    return [share for when, share in points if when <= minutes][-1]


def table() -> str:
    rows = json.loads((HERE / "table.json").read_text(encoding="utf-8"))
    curves = {
        (row["env"], row["name"], row["seed"]): curve(HERE / "metrics" / row["metrics"])
        for row in rows
        if row["metrics"]
    }
    lines = ["| | | minutes, by seed | RL, p@3 | meta-RL, p@3 |", "|---|---|---|---|---|"]
    for game, names in PAIRS.items():
        for name in names:
            pairs = [(curves[game, RL, seed], curves[game, name, seed]) for seed in range(3)]
            ends = [min(rl[-1][0], meta[-1][0]) for rl, meta in pairs]
            cells = [game, name, " / ".join(f"{end:.1f}" for end in ends)]
            for side in (0, 1):
                shares = [at(pair[side], end) for pair, end in zip(pairs, ends, strict=True)]
                by_seed = " / ".join(f"{100 * share:.1f}" for share in shares)
                cells.append(f"{100 * sum(shares) / len(shares):.1f} ({by_seed})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
