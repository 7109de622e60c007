"""How far a player gets who never thinks of both boxes: always the box that can be home soonest, the others as walls.

    python results/sokoban-cpu/one_box_at_a_time.py [--boxes 2] [--solution 12]

512 validation levels, 3 moves a turn, 7 turns. A level that this player wins sets no trap for which a retry would help.
"""

from __future__ import annotations

import argparse
import sys

from mulligan.envs.registry import build
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.moves import say
from mulligan.envs.sokoban.planner import one_box
from mulligan.rollout.tasksets import task_set

LEVELS = 512


def main(boxes: int, solution: int) -> None:
    won = lost = 0
    for task in task_set("sokoban", LEVELS, "validation", boxes=boxes, solution=solution, lost="ends"):
        world = build(task)
        assert isinstance(world, Sokoban)
        for _ in range(world.task.turns):
            step = world.step(say(one_box(world.cols, world.key())[: world.moves] or "u"))
            if step.done:
                break
        won, lost = won + step.won, lost + (step.done and not step.won)
    sys.stdout.write(f"{boxes} boxes, up to {solution} moves: {won} of {LEVELS} levels won, {lost} lost\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=2)
    parser.add_argument("--solution", type=int, default=12)
    given = parser.parse_args()
    main(given.boxes, given.solution)
