"""What memory is worth in each of the seven games: three attempts without it, and three with it.

    python results/transfer/room.py

prints the table and writes room.json. Where a game has a model, both are exact: the attempt with the highest return for
somebody who remembers nothing, and the Bayes-adaptive optimum over three attempts (γ_traj 1). In the two games that
have none, or too large a one, they are what the scripted expert reaches on validation tasks without memory and with
all of it. Returns are those of all trials: 0 for attempts after a trial has ended with a success.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mulligan
from mulligan.app.sweep.arms import read_sweep
from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.eval.optimum import MOST_ASIDE, optimum_of
from mulligan.rollout.groups import Mixture
from mulligan.trial.settings import TrialSettings

HERE = Path(__file__).parent
ATTEMPTS, TASKS = 3, 256
"""Validation of a small game may have fewer tasks."""


def games() -> list[str]:
    """All games that an arm of the sweep trains on, those of the first pair last."""
    mixtures = [Mixture.parse(arm.settings["task.env"], {}) for arm in read_sweep(HERE / "nano.toml").arms]
    return list(dict.fromkeys(game for mixture in mixtures for game, _ in mixture.weights))


def room(game: str) -> dict[str, Any]:
    """p@1 … p@3 and the sum of the returns, without memory and with it."""
    try:
        best = optimum_of(registry.task_of(game, 0, {}), TrialSettings(episodes=ATTEMPTS), most=MOST_ASIDE)
    except UsageError:  # no model, or too large a one
        return played(game)
    alone, optimum = best.alone, best.undiscounted
    within = [1 - (1 - alone.p[0]) ** k for k in range(1, ATTEMPTS + 1)]
    ends_when_won = registry.spec(game).stop == "success"
    return {
        "exact": True,
        "without_memory": {"p": within, "return": within[-1] if ends_when_won else ATTEMPTS * alone.returns[0]},
        "with_memory": {"p": optimum.p, "return": optimum.value()},
    }


def played(game: str) -> dict[str, Any]:
    """The same of the scripted expert, on validation tasks of games that end when they are won."""
    alone, remembers = (
        mulligan.evaluate(
            game, policy, tasks=TASKS, seed_set="validation", episodes=ATTEMPTS, controls="off", room=False
        ).main
        for policy in ("expert:1:0", "expert:1:1")
    )
    by_memory = {"without_memory": alone, "with_memory": remembers}
    shares = {memory: {"p": each.p, "return": each.p[-1]} for memory, each in by_memory.items()}
    return {"exact": False, "tasks": alone.trials, **shares}


def main() -> None:
    mulligan.trust((HERE / "nano.toml").read_text(encoding="utf-8"))
    rooms = {game: room(game) for game in games()}
    (HERE / "room.json").write_text(json.dumps(rooms, indent=1) + "\n", encoding="utf-8")
    lines = ["| game | p@1 / p@2 / p@3 without memory | with it | sum of returns | |", "|---|---|---|---|---|"]
    for game, each in rooms.items():
        kinds = [each["without_memory"], each["with_memory"]]
        shares = [" / ".join(f"{100 * share:.1f}" for share in kind["p"]) for kind in kinds]
        returns = " → ".join(f"{kind['return']:.2f}" for kind in kinds)
        source = "exact" if each["exact"] else f"expert, {each['tasks']} tasks"
        lines.append(f"| `{game}` | {shares[0]} | {shares[1]} | {returns} | {source} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
