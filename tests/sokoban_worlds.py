"""Sokoban by another implementation, and worlds of drawn levels, for the tests of Sokoban."""

from __future__ import annotations

import random
from pathlib import Path

from mulligan.envs.base import Env
from mulligan.envs.registry import make
from mulligan.envs.sokoban.env import Sokoban
from mulligan.types import Episode

ARROWS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


# --- An independent implementation: sets of coordinates, written from the rules of the game


class Simulator:
    def __init__(self, board: str) -> None:
        self.cells = {(y, x): c for y, line in enumerate(board.split("\n")) for x, c in enumerate(line.split(" "))}
        self.walls = {at for at, c in self.cells.items() if c == "#"}
        self.goals = {at for at, c in self.cells.items() if c in "O*+"}
        self.boxes = {at for at, c in self.cells.items() if c in "X*"}
        (self.player,) = (at for at, c in self.cells.items() if c in "P+")

    def move(self, name: str) -> bool:
        """Whether anything moved."""
        dy, dx = ARROWS[name]
        target = (self.player[0] + dy, self.player[1] + dx)
        behind = (target[0] + dy, target[1] + dx)
        if target in self.walls or (target in self.boxes and (behind in self.walls or behind in self.boxes)):
            return False
        if target in self.boxes:
            self.boxes = self.boxes - {target} | {behind}
        self.player = target
        return True

    @property
    def home(self) -> int:
        return len(self.boxes & self.goals)

    @property
    def won(self) -> bool:
        return self.boxes == self.goals

    def draw(self) -> str:
        def glyph(at: tuple[int, int]) -> str:
            if at in self.walls:
                return "#"
            on_goal = at in self.goals
            if at == self.player:
                return "+" if on_goal else "P"
            if at in self.boxes:
                return "*" if on_goal else "X"
            return "O" if on_goal else "_"

        rows = max(y for y, _ in self.cells) + 1
        cols = max(x for _, x in self.cells) + 1
        return "\n".join(" ".join(glyph((y, x)) for x in range(cols)) for y in range(rows))


def world_of(folder: Path, *lines: str, moves: int = 3, turns: int = 7, view: str = "board") -> Sokoban:
    file = folder / "own.txt"
    file.write_text("\n".join(lines) + "\n")
    env = make("sokoban", levels=str(file), moves=moves, turns=turns, view=view)
    assert isinstance(env, Sokoban)
    return env


def reflection(env: Env, episode: Episode) -> str:
    """What a scripted player writes after an episode of this world."""
    return env.player("expert", random.Random(0), 1.0, 0.0).reflect(episode).text  # type: ignore[attr-defined]
