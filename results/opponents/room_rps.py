"""The room for adaptation in repeated rock-paper-scissors and in the prisoner's dilemma, exact.

    python results/opponents/room_rps.py [POOL] [THROWS]
    python results/opponents/room_rps.py expects POOL     # what a player wins who expects the opponents of training

POOL is an opponent as `--env.opponent` takes it (default: seen), THROWS the longest match (default: 8; `unseen 6` takes
95 s and 1.7 GB the first time). The player that expects POOL is the scripted one with a perfect memory, in 512 tasks of
3 matches of 6 throws; it does not look ahead.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from rich.console import Console

import mulligan
from mulligan.eval.matches import Values, values_of_matches
from mulligan.trial.settings import TrialSettings

SHOW = Console(highlight=False, soft_wrap=True).print


def differences(totals: list[float]) -> str:
    return " ".join(f"{after - before:6.3f}" for before, after in pairwise(totals))


def values_of(pool: str, throws: int, matches: int) -> Values:
    task = mulligan.make_task("rps", params={"opponent": pool, "throws": throws})
    values = values_of_matches(task, TrialSettings(episodes=matches))
    assert values is not None, "habits that never change have values"
    return values


def main(pool: str = "seen", throws: str = "8") -> None:
    best, known = [0.0], [0.0]
    for count in range(1, int(throws) + 1):
        values = values_of(pool, count, matches=1)
        best.append(count * values.optimal[0])
        known.append(count * values.clairvoyant)
    SHOW(f"rps, {pool}: what another throw adds to a match, the first to the {throws}th")
    SHOW(f"  best without memory  {0:6.3f}")
    SHOW(f"  Bayes-optimal        {differences(best)}")
    SHOW(f"  habit known          {differences(known)}")
    SHOW(f"rps, {pool}: a throw of three matches of {throws}")
    values = values_of(pool, int(throws), matches=3)
    SHOW(f"  best without memory  {values.static:6.3f}")
    SHOW(f"  Bayes-optimal        {' '.join(f'{each:6.3f}' for each in values.optimal)}")
    SHOW(f"  habit known          {values.clairvoyant:6.3f}")
    SHOW("dilemma, seen: return of each of 3 matches, and γ*")
    for rounds in (4, 6, 8):
        optimum = mulligan.optimum("dilemma", params={"rounds": rounds})
        figures = {"myopic": optimum.myopic, "optimum": optimum.best, "habit known": optimum.clairvoyant}
        rows = "; ".join(f"{name} {' '.join(f'{each:.3f}' for each in play.returns)}" for name, play in figures.items())
        SHOW(f"  {rounds} rounds: {rows}; γ* {optimum.threshold}")


def expecting(pool: str, groups: str = "seen,validation,unseen") -> None:
    SHOW(f"rps, a player that expects {pool}\n")
    SHOW("| against | value of a throw, by match | its share of the room |\n|---|---|---|")
    for group in groups.split(","):
        params = {"opponent": group, "pool": pool, "throws": 6}
        result = mulligan.evaluate(
            "rps", "expert:1:1", params=params, tasks=512, memory="history", controls=(), room=False
        )
        ceilings = result.ceilings or {}
        values = " / ".join(f"{value:.3f}" for value in result.main.returns)
        shares = " / ".join("–" if share is None else f"{100 * share:.0f} %" for share in ceilings.get("share", []))
        SHOW(f"| `{group}` | {values} | {shares} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["expects"]:
        expecting(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
