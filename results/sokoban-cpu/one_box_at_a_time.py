"""How far a player gets who never thinks of both boxes: always the box that can be home soonest, the others as walls.

    python results/sokoban-cpu/one_box_at_a_time.py [--boxes 2] [--solution 12]

512 validation levels, 3 moves a turn, 7 turns. A level that this player wins sets no trap for which a retry would help.
"""

from __future__ import annotations

import argparse
import itertools
import sys

from mulligan.envs.registry import build
from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.moves import say
from mulligan.rollout.tasksets import task_set

LEVELS = 512


def plan(cols: int, cells: str) -> str:
    """The shortest way to bring one box home; the others as walls or, where that leaves no way, as if they were gone."""
    boxes, goals = ([cell for cell, glyph in enumerate(cells) if glyph in kinds] for kinds in ("X", "O+"))
    found: list[str] = []
    for box, goal in itertools.product(boxes, goals):
        for other in (solver.WALL, solver.FLOOR):
            if moves := solver.solve(cols, _alone(cells, box, goal, other)).moves:
                found.append(moves)
                break
    return min(found, key=len, default="u")


def _alone(cells: str, box: int, goal: int, other: str) -> str:
    """The position with this box and this goal only; where other boxes stood is `other`."""
    board = [glyph if glyph in "#P" else other if glyph in "X*" else solver.FLOOR for glyph in cells]
    player = solver.locate(cells)[0]
    board[box], board[goal] = solver.BOX, solver.GOAL
    board[player] = solver.PLAYER_ON_GOAL if player == goal else solver.PLAYER
    return "".join(board)


def main(boxes: int, solution: int) -> None:
    won = lost = 0
    for task in task_set("sokoban", LEVELS, "validation", boxes=boxes, solution=solution, lost="ends"):
        world = build(task)
        assert isinstance(world, Sokoban)
        for _ in range(world.task.turns):
            step = world.step(say(plan(world.cols, world.key())[: world.moves]))
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
