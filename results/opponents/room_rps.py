"""The room for adaptation in repeated rock-paper-scissors and in the prisoner's dilemma, exact.

    python results/opponents/room_rps.py [POOL] [THROWS]

POOL is an opponent as `--env.opponent` takes it (default: seen), THROWS the longest match (default: 8; about 10 s).
"""

from __future__ import annotations

import sys
from itertools import pairwise

from rich.console import Console

import mulligan

SHOW = Console(highlight=False, soft_wrap=True).print


def differences(totals: list[float]) -> str:
    return " ".join(f"{after - before:6.3f}" for before, after in pairwise(totals))


def main(pool: str = "seen", throws: str = "8") -> None:
    best, known = [0.0], [0.0]
    for count in range(1, int(throws) + 1):
        optimum = mulligan.optimum("rps", params={"opponent": pool, "throws": count}, episodes=1)
        best.append(count * optimum.best.returns[0])
        known.append(count * optimum.clairvoyant.returns[0])
    SHOW(f"rps, {pool}: what another throw adds to a match, the first to the {throws}th")
    SHOW(f"  best without memory  {best[1]:6.3f}")
    SHOW(f"  Bayes-optimal        {differences(best)}")
    SHOW(f"  habit known          {differences(known)}")
    SHOW("dilemma, seen: return of each of 3 matches, and γ*")
    for rounds in (4, 6, 8):
        optimum = mulligan.optimum("dilemma", params={"rounds": rounds})
        figures = {"myopic": optimum.myopic, "optimum": optimum.best, "habit known": optimum.clairvoyant}
        rows = "; ".join(f"{name} {' '.join(f'{each:.3f}' for each in play.returns)}" for name, play in figures.items())
        SHOW(f"  {rounds} rounds: {rows}; γ* {optimum.threshold}")


if __name__ == "__main__":
    main(*sys.argv[1:])
