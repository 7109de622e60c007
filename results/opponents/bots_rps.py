"""A policy against each of OpenSpiel's 43 bots, in points of a match of 1,000 throws, as arXiv 2303.03196 has them.

    python results/opponents/bots_rps.py [POLICY] [MATCHES]

POLICY is one as `mulligan eval` takes it (default: expert), MATCHES how many it plays against each bot (default: 1).
"""

from __future__ import annotations

import sys

from rich.console import Console

import mulligan
from mulligan.envs.repeated import LONGEST
from mulligan.envs.rps import bot_names


def main(policy: str = "expert", matches: str = "1") -> None:
    show = Console(highlight=False, soft_wrap=True).print
    points = {}
    for name in bot_names():
        params = {"opponent": f"bot:{name}", "throws": LONGEST}
        result = mulligan.evaluate(
            "rps", policy, params=params, tasks=int(matches), episodes=1, controls=(), room=False
        )
        points[name] = LONGEST * result.main.returns[0]
    for name in sorted(points, key=points.__getitem__):
        show(f"{name:16} {points[name]:8.1f}")
    show(f"population return {sum(points.values()) / len(points):.1f}")
    show(f"within-population exploitability {-min(points.values()):.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
