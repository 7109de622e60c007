"""Scripted players of Sokoban, good and mediocre, and what they write between two episodes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache

from mulligan.envs.base import reflection_text
from mulligan.envs.sokoban import solver
from mulligan.envs.sokoban.env import PlayedTurn, Sokoban, after, move_names, say, usual_replies
from mulligan.envs.sokoban.views import cells_view
from mulligan.errors import StopReason
from mulligan.types import Completion, Episode, Step

AT_RANDOM = 0.1
"""Share of a hasty player's thoughtless turns that is random all the same, so that it is seen in odd positions too."""
_DOUBTFUL = 0.5
"""Share of the advice in doubtful notes that loses the level as well."""
_TRIES = 16
"""Other moves that are looked at until some are found that lose it."""


class Planner:
    """Follows the solver's plan, and plans anew wherever other moves led; in a lost position all moves are random.

    kind    ``expert`` makes random moves where it does not follow the plan. ``hasty`` mostly plays `one_box` there:
            mistakes of a kind, made again in every episode, where random ones are hardly ever the same twice. The board
            hides nothing, so ``omniscient`` is the expert at skill 1.
    skill   share of its turns on which it follows the plan
    recall  share of the turns on which it takes care where other moves have lost the level before: there it plays its
            plan whatever its skill. At skill 1 there is nothing to remember.
    """

    def __init__(self, world: Sokoban, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.rng, self.recall, self.hasty = world, rng, recall, kind == "hasty"
        self.skill = 1.0 if kind == "omniscient" else skill
        self.position = ""
        self.plan: str | None = None
        """The moves still to play from `position`; None where there is no way to win."""
        self.follows = False
        """Whether the last reply was the plan's."""
        self.lost_from: set[str] = set()
        """Positions from which other moves lost the level, in any episode of the trial."""
        self.notes: dict[str, list[str]] = {}
        """Position -> moves that lost the level there, and last what to play instead."""

    def act(self) -> str:
        world, position = self.world, self.world.key()
        if position != self.position:
            self.position, self.plan = position, solver.solve(world.cols, position).moves
        careful = position in self.lost_from and self.rng.random() < self.recall
        if careful and position in self.notes:
            self.follows = False
            return f"<action>{self.notes[position][-1]}</action>"
        self.follows = bool(self.plan) and (careful or self.rng.random() < self.skill)
        if self.follows and self.plan:
            return say(self.plan[: world.moves])
        if self.hasty and self.rng.random() >= AT_RANDOM and (moves := one_box(world.cols, position)):
            return say(moves[: world.moves])
        return self.rng.choice(world.legal())

    def see(self, step: Step) -> None:
        if self.follows and self.plan:
            self.position, self.plan = step.state_key, self.plan[self.world.moves :]
        elif self.plan and self.world.is_lost(step.state_key, self.world.turn):
            self.lost_from.add(self.position)

    def reflect(self, episode: Episode) -> Completion:
        """What there is to learn from an episode.

        In cells: where the level was lost, what to play there instead (if there is advice), and what lost it, as
        ``boxes b2 d3``, ``you c2``, ``left, up``, ``up, up: lost``: moves follow a position as in an episode.
        """
        world, played = self.world, self.world.replay(episode)
        if world.view == "board":
            return Completion(_report(world, episode, played))
        wrong = next((index for index, turn in enumerate(played) if world.is_lost(turn.key, index + 1)), None)
        if wrong is None:
            return Completion(f"<reflection>{'won' if episode.won else 'too slow'}</reflection>")
        position, moves = played[wrong - 1].key if wrong else world.level.cells, played[wrong].moves
        instead, is_mistaken = self._advise(position, moves, wrong + 1)
        lines = "\n".join(filter(None, (cells_view(position, world.cols), instead, f"{moves}: lost")))
        return Completion(f"<reflection>{lines}</reflection>", mistaken=is_mistaken)

    def _advise(self, position: str, moves: str, turn: int) -> tuple[str, bool]:
        """What to play instead of `moves`, which lost the level (empty for nothing), and whether that loses it as well.

        Doubtful advice is the player's own: it heeds it when it remembers, and gives none that has lost the level.
        """
        solution = move_names(_advice(self.world, position)[: self.world.moves])
        if self.world.task.text("advice") != "doubtful":
            return solution, False
        lost = [*self.notes.get(position, [""])[:-1], moves]
        losing = self._other_way_to_lose(position, lost, turn) if self.rng.random() < _DOUBTFUL else ""
        self.notes[position] = [*lost, losing or solution]
        return losing or solution, bool(losing)

    def _other_way_to_lose(self, position: str, lost: Sequence[str], turn: int) -> str:
        """Moves that lose the level there, other than those; empty where none are soon found."""
        world = self.world
        replies = list(usual_replies(world.moves).values())
        for _ in range(_TRIES):
            names = replies[int(self.rng.random() * len(replies))]
            if move_names(names) not in lost and world.is_lost(after(position, world.cols, names, world.boxes), turn):
                return move_names(names)
        return ""


@lru_cache(maxsize=1024)
def one_box(cols: int, cells: str) -> str:
    """The fewest moves that bring one box home, without a thought for the others; empty where there are none.

    The other boxes count as walls or, where that leaves no way, as floor.
    """
    boxes = [cell for cell, glyph in enumerate(cells) if glyph == solver.BOX]
    goals = [cell for cell, glyph in enumerate(cells) if glyph in (solver.GOAL, solver.PLAYER_ON_GOAL)]
    ways = [
        _way(cols, cells, box, goal, solver.WALL) or _way(cols, cells, box, goal, solver.FLOOR)
        for box, goal in itertools.product(boxes, goals)
    ]
    return min(filter(None, ways), key=len, default="")


def _way(cols: int, cells: str, box: int, goal: int, other: str) -> str:
    """The fewest moves from `box` to `goal` with `other` where other boxes stand; empty where there is no way."""
    player = solver.locate(cells)[0]
    glyphs = {solver.WALL: solver.WALL, solver.BOX: other, solver.BOX_ON_GOAL: other}
    board = [glyphs.get(glyph, solver.FLOOR) for glyph in cells]
    board[box], board[goal] = solver.BOX, solver.GOAL
    board[player] = solver.PLAYER_ON_GOAL if player == goal else solver.PLAYER
    return solver.solve(cols, "".join(board)).moves or ""


def _advice(world: Sokoban, position: str) -> str:
    """The solver's moves from there; empty where there are none, or none are to be told."""
    return (solver.solve(world.cols, position).moves or "") if world.task.text("advice") != "none" else ""


def _report(world: Sokoban, episode: Episode, played: Sequence[PlayedTurn]) -> str:
    """What happened, where the level was lost, and a plan that solves it from the start."""
    final = played[-1].key if played else world.level.cells
    ending = f"{final.count(solver.BOX_ON_GOAL)} of {world.boxes} boxes on goals"
    failed_at, category, why = _failure(world, episode, played, final)
    answer = episode.turns[failed_at - 1].feedback if failed_at else ""
    failed_moves = next((turn.moves for turn in played if turn.number == failed_at), "no move")
    strategy = " | ".join(turn.moves for turn in played)
    solution = _advice(world, world.level.cells)
    chunks = [solution[start : start + world.moves] for start in range(0, len(solution), world.moves)]
    plan = strategy if episode.won else " | ".join(map(move_names, chunks))
    return reflection_text(
        strategy=f"played {strategy or 'nothing'}",
        outcome=f"{'won' if episode.won else 'not won'}, {ending}",
        reward=f"{episode.reward:g}",
        failed_at=f"turn {failed_at}, {failed_moves}" if failed_at else "nothing",
        reasoning=why,
        env_answer=answer or ending,
        error_category=category,
        plan=f"play {plan or 'the boxes in another order'}",
    )


def _failure(world: Sokoban, episode: Episode, played: Sequence[PlayedTurn], final: str) -> tuple[int, str, str]:
    """The turn that failed (0 for none), the category of the error, and the reason."""
    if episode.won:
        return 0, "none", "these moves bring every box onto a goal"
    verdict = solver.solve(world.cols, final)
    last_turn = played[-1].number if played else 0
    if verdict.dead:
        dead_turn = next(turn.number for turn in played if solver.solve(world.cols, turn.key).dead)
        return dead_turn, "wrong-move", "after it no moves can bring every box onto a goal"
    if played and world.is_lost(final, len(played)):
        return last_turn, "out-of-turns", "after it the turns that are left are too few"
    invalid = [number for number, turn in enumerate(episode.turns, start=1) if not turn.valid]
    if invalid:
        return invalid[0], "invalid-reply", "a reply that cannot be read costs a turn"
    why = f"{len(verdict.moves)} more moves would have solved it" if verdict.moves else "it was not solved in time"
    return last_turn, "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other", why
