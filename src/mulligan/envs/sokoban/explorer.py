"""The scripted players of Sokoban in the dark: they find out what they do not know, and then plan."""

from __future__ import annotations

import random
from functools import lru_cache

from mulligan.envs.base import reflection_text
from mulligan.envs.sokoban import dark, solver
from mulligan.envs.sokoban.env import Sokoban, move_names, say
from mulligan.envs.sokoban.player import AT_RANDOM, one_box
from mulligan.envs.sokoban.views import player_at
from mulligan.errors import StopReason
from mulligan.types import Completion, Episode, Step

_POSITIONS = 3_000
"""Positions that are looked at in search of one that shows more."""


class Explorer:
    """Explores until it knows every box and goal, and then follows the solver's plan with unknown cells as floor.

    kind    ``expert``, ``hasty`` and ``omniscient`` as in full view: the expert errs at random, the hasty player brings
            home any one box that it knows, and the omniscient one knows the level from the start and never errs
    skill   share of its turns on which it thinks
    recall  the chance that an attempt begins with the map of the earlier ones
    """

    def __init__(self, world: Sokoban, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.recall = world, kind, rng, recall
        self.skill = 1.0 if kind == "omniscient" else skill
        self.cells_found = 0
        """Bit set of the cells that were seen in the episodes before this one."""
        self.remembered = (1 << len(world.level.cells)) - 1 if kind == "omniscient" else 0
        """Bit set of the cells that it knows without having seen them in this episode."""

    def act(self) -> str:
        world = self.world
        # a cell that was not seen in this episode is as it was at the start: boxes are not moved unseen
        known_cells = dark.masked(world.key(), world.seen_cells | self.remembered)
        if self.rng.random() < self.skill:
            moves = _plan(world, known_cells)
        elif self.kind == "hasty" and self.rng.random() >= AT_RANDOM:
            moves = _one_known_box(world, known_cells) or _explore(world, known_cells)
        else:
            moves = ""
        return say(moves[: world.moves]) if moves else self.rng.choice(world.legal())

    def see(self, step: Step) -> None:
        if step.done and self.kind != "omniscient":
            self.cells_found |= self.world.seen_cells
            self.remembered = self.cells_found if self.rng.random() < self.recall else 0

    def reflect(self, episode: Episode) -> Completion:
        """The level as all episodes together have shown it; with advice also how to begin, once all is known."""
        world = self.world
        self.cells_found |= world.map_seen(episode)
        start = dark.masked(world.level.cells, self.cells_found)
        advised = world.task.text("advice") != "none" and knows_all(world, start)
        plan = (world.verdict(start).moves or "") if advised else ""
        if world.view == "board":
            return Completion(_report(world, episode, self.cells_found, plan))
        first = f"{player_at(start, world.cols)}: {move_names(plan[: world.moves])}" if plan else ""
        lines = "\n".join(filter(None, (world.map_of(self.cells_found), first)))
        return Completion(f"<reflection>{lines}</reflection>")


def knows_all(world: Sokoban, cells: str) -> bool:
    """Whether every box and every goal was seen."""
    return dark.boxes_seen(cells) == dark.goals_seen(cells) == world.boxes


def _plan(world: Sokoban, known: str) -> str:
    """The moves of somebody who thinks, as letters; empty where none are left to hope for."""
    verdict = world.verdict(known)
    if knows_all(world, known):
        return verdict.moves or ""
    return _explore(world, known) or verdict.moves or ""


def _explore(world: Sokoban, known: str) -> str:
    return way_to_see(world.level.rows, world.cols, known, world.sight, world.boxes)


def _one_known_box(world: Sokoban, known: str) -> str:
    """The fewest moves that bring a known box to a known goal, whatever becomes of the others."""
    return one_box(world.cols, dark.hopeful(world.cols, known, dark.goals_seen(known)))


@lru_cache(maxsize=1 << 14)
def way_to_see(rows: int, cols: int, known: str, sight: int, boxes: int) -> str:
    """The moves that show most unknown cells a move, as letters; boxes are pushed only where walking shows nothing.

    Unknown cells count as floor; pushes that lose the level for sure are left out. Empty where nothing more can be
    seen.
    """
    walls = sum(1 << cell for cell, glyph in enumerate(known) if glyph == solver.WALL)
    inside = [row * cols + col for row in range(1, rows - 1) for col in range(1, cols - 1)]
    walls |= ~sum(1 << cell for cell in inside)
    unknown = sum(1 << cell for cell in inside if known[cell] == dark.UNKNOWN)
    in_sight, around = (
        dark.cells_in_sight(rows, cols, sight),
        list(zip(solver.deltas(cols), solver.DIRECTIONS, strict=True)),
    )
    for pushes in (False, True):
        start = solver.locate(known)
        shown, ways = {start: 0}, {start: ""}
        best, best_rate = "", 0.0
        frontier = [start]
        for player, boxed in frontier:  # grows while it is walked
            for delta, letter in around:
                ahead, pushed = player + delta, boxed
                if walls >> ahead & 1:
                    continue
                if boxed >> ahead & 1:
                    behind = ahead + delta
                    if not pushes or (walls | boxed) >> behind & 1:
                        continue
                    pushed = boxed ^ 1 << ahead ^ 1 << behind
                position = (ahead, pushed)
                if position in ways or (pushed != boxed and _loses(cols, known, boxes, position)):
                    continue
                shown[position] = shown[player, boxed] | in_sight[ahead] & unknown
                ways[position] = way = ways[player, boxed] + letter
                if (rate := shown[position].bit_count() / len(way)) > best_rate + 1e-9:
                    best, best_rate = way, rate
                if len(frontier) < _POSITIONS:
                    frontier.append(position)
        if best:
            return best
    return ""


def _loses(cols: int, known: str, boxes: int, position: tuple[int, int]) -> bool:
    """Whether the level is lost for sure with player and boxes there."""
    player, boxed = position
    cells = list(solver.terrain_of(known))
    for box in solver.bits(boxed):
        cells[box] = solver.BOX_ON_GOAL if cells[box] == solver.GOAL else solver.BOX
    cells[player] = solver.PLAYER_ON_GOAL if cells[player] == solver.GOAL else solver.PLAYER
    return solver.solve(cols, dark.hopeful(cols, "".join(cells), boxes)).dead


def _report(world: Sokoban, episode: Episode, seen: int, plan: str) -> str:
    """The reflection in parts: what was played, what the level looks like, and how to solve it once all is known."""
    played = world.replay(episode)
    final = played[-1].key if played else world.known_at_start()
    ending = f"{final.count(solver.BOX_ON_GOAL)} of {world.boxes} boxes on goals"
    lost = next((turn for index, turn in enumerate(played, 1) if world.is_lost(turn.key, index)), None)
    out_of_turns = episode.stop is StopReason.TURN_LIMIT
    moves = " | ".join(turn.moves for turn in played)
    chunks = [plan[start : start + world.moves] for start in range(0, len(plan), world.moves)]
    return reflection_text(
        strategy=f"played {moves or 'nothing'}",
        outcome=f"{'won' if episode.won else 'not won'}, {ending}",
        reward=f"{episode.reward:g}",
        failed_at=f"turn {lost.number}, {lost.moves}" if lost else "nothing",
        env_answer=f"at the start, as far as it was seen: {world.map_of(seen).replace(chr(10), ' / ')}",
        error_category="none" if episode.won else "wrong-move" if lost else "out-of-turns" if out_of_turns else "other",
        plan=f"play {moves if episode.won else ' | '.join(map(move_names, chunks)) or 'on where nothing was seen yet'}",
    )
