"""Sokoban: push every box onto a goal, with several moves in one reply.

Levels come from a generator, from Boxoban's files or from a file of one's own (`mulligan.envs.sokoban.levels`). The
board is kept as the text the agent sees, one byte a cell and one between cells, and a move patches the two or three
cells that change; so cell number n of the board stands at byte 2n.

Two views of the same game: the ``compact`` one remembers the moves of an episode and no boards, for short contexts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

from mulligan.envs.base import Player, action_text
from mulligan.envs.sokoban import levels as level_source
from mulligan.envs.sokoban import solver
from mulligan.errors import ParameterError, StopReason, UnknownName
from mulligan.types import Episode, ParamValue, Step, Task

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = map(ord, solver.GLYPHS)
_PUSHED = (BOX, BOX_ON_GOAL)
NAMES = ("up", "down", "left", "right")
_INDEX = {word: index for index, name in enumerate(NAMES) for word in (name, name[0])}
_LISTED = 3
"""Longest combination that `legal` lists: longer ones would be hundreds."""
_MOST_BOXES, _MOST_MOVES, _LONGEST_SOLUTION = 8, 20, 200
_SIDES = (5, 16)


class Reply(NamedTuple):
    """A reply that was understood."""

    deltas: tuple[int, ...]
    """What each move adds to the player's place on the rendered board."""
    names: tuple[str, ...]


def push(cells: bytearray, player: int, deltas: tuple[int, ...], home: int, boxes: int) -> tuple[int, int, int]:
    """Play moves on `cells` until all `boxes` are home.

    Returns the player's place, the number of boxes on goals, and the bit set of the moves that were blocked.
    """
    blocked, bit = 0, 1
    for delta in deltas:
        ahead = player + delta
        there = cells[ahead]
        if there in _PUSHED:
            beyond = cells[ahead + delta]
            if beyond == FLOOR:
                cells[ahead + delta] = BOX
            elif beyond == GOAL:
                cells[ahead + delta] = BOX_ON_GOAL
                home += 1
            else:
                there = WALL  # a box that cannot move is as good as one
            if there == BOX:
                there = FLOOR
            elif there == BOX_ON_GOAL:
                there = GOAL
                home -= 1
        if there == WALL:
            blocked |= bit
        else:
            cells[ahead] = PLAYER if there == FLOOR else PLAYER_ON_GOAL
            cells[player] = FLOOR if cells[player] == PLAYER else GOAL
            player = ahead
            if home == boxes:
                break
        bit <<= 1
    return player, home, blocked


def say(moves: Sequence[str]) -> str:
    """Moves as a reply, given as names or letters."""
    return f"<action>{', '.join(NAMES[_INDEX[move]] for move in moves)}</action>"


@lru_cache(maxsize=64)
def usual_replies(cols: int, moves: int) -> dict[str, Reply]:
    """Replies as this environment writes them, shortest first; looked up before anything is parsed."""
    longest = min(moves, _LISTED)
    choices = [names for length in range(1, longest + 1) for names in product(NAMES, repeat=length)]
    return {say(names): _reply(cols, names) for names in choices}


@lru_cache(maxsize=64)
def _listed(cols: int, moves: int) -> tuple[str, ...]:
    return tuple(usual_replies(cols, moves))


def _reply(cols: int, names: tuple[str, ...]) -> Reply:
    deltas = solver.deltas(cols)
    return Reply(tuple(2 * deltas[_INDEX[name]] for name in names), names)


def read(text: str, cols: int, moves: int) -> Reply | str:
    """What a reply says, or what is wrong with it."""
    action = action_text(text)
    if action is None:
        return f"No moves could be read from the answer; give them as in {say(NAMES[: min(moves, 2)])}."
    words = action.replace(",", " ").lower().split()
    unknown = next((word for word in words if word not in _INDEX), None)
    if unknown is not None:
        return f"{unknown[:20]!r} is not a move; use up, down, left or right."
    if not 1 <= len(words) <= moves:
        return f"{len(words)} moves are not allowed; give {_range(moves)}."
    return _reply(cols, tuple(NAMES[_INDEX[word]] for word in words))


def _range(moves: int) -> str:
    return "1 move" if moves == 1 else f"1 to {moves} moves"


@lru_cache(maxsize=1024)
def _blocked_feedback(names: tuple[str, ...], blocked: int) -> str:
    said = [f"move {index + 1} ({name})" for index, name in enumerate(names) if blocked >> index & 1]
    return f"Blocked: {', '.join(said)}."


class Sokoban:
    """Push every box onto a goal; boxes cannot be pulled, so a wrong push can lose the level."""

    __slots__ = ("_cells", "_home", "_listed", "_place", "_start", "_usual", "boxes", "cols", "level", "moves", "task")

    defaults: ClassVar[dict[str, ParamValue]] = {
        "rows": 6, "cols": 6, "boxes": 2, "moves": 3, "solution": 15, "levels": "generated", "level": -1,
        "view": "board",
    }  # fmt: skip
    turns: ClassVar[int] = 7
    kind: ClassVar[str] = "solve"
    glyphs: ClassVar[dict[str, str]] = {
        "#": "bright_black", "_": "dim", "O": "yellow", "X": "bold red", "*": "bold green", "P": "bold cyan",
        "+": "bold cyan",
    }  # fmt: skip

    def __init__(self, task: Task) -> None:
        self.task = task
        self.moves = task.integer("moves")
        self.level = _level(task)
        self.cols, self.boxes = self.level.cols, self.level.boxes
        self._usual, self._listed = usual_replies(self.cols, self.moves), _listed(self.cols, self.moves)
        cells, cols = self.level.cells, self.cols
        board = "\n".join(" ".join(cells[row : row + cols]) for row in range(0, len(cells), cols))
        self._start = (board, 2 * solver.locate(cells)[0], cells.count("*"))
        self.reset()

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters; a level from a file gives its own rows, cols, boxes and number."""
        moves, level, levels = int(params["moves"]), int(params["level"]), str(params["levels"])
        if not 1 <= moves <= _MOST_MOVES:
            raise ParameterError(f"sokoban: moves={moves} a turn cannot be; give 1 to {_MOST_MOVES}")
        if params["view"] not in ("board", "compact"):
            raise ParameterError(f"sokoban: view={params['view']!r} is unknown; choose 'board' or 'compact'")
        if levels == "generated":
            _check_generated(params)
            return params
        number, found = level_source.pick(levels, level, seed)
        return {**params, "level": number, "rows": found.rows, "cols": found.cols, "boxes": found.boxes, "solution": 0}

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A level must be solvable within the turns the task was asked for with."""
        moves, solution = int(params["moves"]), int(params["solution"])
        if solution > turns * moves:
            raise ParameterError(
                f"sokoban: solution={solution} moves do not fit into turns={turns} of moves={moves}; "
                f"give turns={-(-solution // moves)} or solution={turns * moves}"
            )

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        size = f"sokoban/{params['rows']}x{params['cols']}/{params['boxes']}"
        levels = str(params["levels"])
        return size if levels == "generated" else f"{size}/{'boxoban' if levels == 'boxoban' else 'file'}"

    def rules(self) -> str:
        legend = ", ".join(f"{glyph} {meaning}" for glyph, meaning in solver.GLYPHS.items())
        example = say(("up", "left", "left")[: self.moves])
        return (
            f"Sokoban on a board of {self.level.rows} rows and {self.cols} columns. Push every box onto a goal; you "
            "win as soon as all boxes are on goals.\n"
            f"The board shows {legend}.\n"
            "You move up, down, left or right, one cell a move. Moving into a box pushes it one cell on, if the cell "
            "behind it is free; you can never pull a box. A move into a wall, or into a box with a wall or another box "
            "behind it, does nothing.\n"
            f"Answer with {_range(self.moves)}, played in order: {example}"
        )

    def reset(self, chance: int = 0) -> str:
        board, self._place, self._home = self._start
        self._cells = bytearray(board, "ascii")
        return board

    def step(self, reply: str) -> Step:
        cells, before, boxes = self._cells, self._home, self.boxes
        if before == boxes:
            return Step(cells.decode(), valid=False, state_key=self.key(), feedback="The level is solved already.")
        understood = self._usual.get(reply) or read(reply, self.cols, self.moves)
        if isinstance(understood, str):
            return Step(cells.decode(), valid=False, state_key=self.key(), feedback=understood)
        deltas, names = understood
        self._place, home, blocked = push(cells, self._place, deltas, before, boxes)
        self._home = home
        won = home == boxes
        return Step(
            cells.decode(),
            1.0 if won else 0.0,
            won,
            won,
            True,
            cells[::2].decode(),
            _blocked_feedback(names, blocked) if blocked else "",
            (home - before) / boxes,
        )

    def key(self) -> str:
        """The position as the solver reads it: row by row, one character a cell."""
        return self._cells[::2].decode()

    def legal(self) -> Sequence[str]:
        """Every combination of up to three moves, shortest first: a blocked move is legal too. None once solved."""
        return self._listed if self._home < self.boxes else ()

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        """A player with the solver's plans; the board hides nothing, so "omniscient" is the expert at skill 1.

        recall  share of the turns on which it takes care where a random move has lost the level before: there it plays
                its plan whatever its skill. At skill 1 there is nothing to remember.
        """
        if kind not in ("expert", "omniscient"):
            raise UnknownName("player", kind, ("expert", "omniscient"))
        return _Planner(self, rng, 1.0 if kind == "omniscient" else skill, recall)

    def world_key(self) -> str:
        return f"{self.cols}:{self.level.cells}"

    def digest(self, episode: Episode) -> str:
        played = " | ".join(turn.said for turn in self._replay(episode)) or "none"
        home = episode.final.count("*")
        if self.task.text("view") == "compact":
            lines = [turn.said for turn in self._replay(episode)]
            return "\n".join([*lines, f"{home} of {self.boxes} boxes on goals"])
        return f"moves {played}\n{home} of {self.boxes} boxes on goals; the board at the end:\n{episode.final}"

    def reflect(self, episode: Episode) -> str:
        return _note(self, episode) if self.task.text("view") == "compact" else _reflect(self, episode)

    def _replay(self, episode: Episode) -> list[_Played]:
        """What the episode's replies did, without the moves that a win left unplayed."""
        board, place, home = self._start
        cells, played = bytearray(board, "ascii"), list[_Played]()
        for number, turn in enumerate(episode.turns, start=1):
            text = turn.reply.text
            if "<action>" not in text.lower():  # valid all the same: the tags were understood (style "bare")
                text = f"<action>{text}</action>"
            understood = read(text, self.cols, self.moves) if turn.valid else ""
            if isinstance(understood, str):
                continue
            done: list[str] = []
            for delta, name in zip(understood.deltas, understood.names, strict=True):
                if home < self.boxes:
                    place, home, _ = push(cells, place, (delta,), home, self.boxes)
                    done.append(name)
            if done:
                played.append(_Played(number, ", ".join(done), cells[::2].decode()))
        return played


class _Played(NamedTuple):
    """One turn as it was played."""

    number: int
    """1 for the first turn."""
    said: str
    key: str
    """The position it led to."""


def _level(task: Task) -> level_source.Level:
    if task.text("levels") != "generated":
        return level_source.pick(task.text("levels"), task.integer("level"), task.seed)[1]
    size = (task.integer("rows"), task.integer("cols"), task.integer("boxes"))
    return level_source.generate(task.seed, *size, task.integer("solution"))


def _check_generated(params: Mapping[str, ParamValue]) -> None:
    rows, cols, boxes, solution = (int(params[name]) for name in ("rows", "cols", "boxes", "solution"))
    for name, side in (("rows", rows), ("cols", cols)):
        if not _SIDES[0] <= side <= _SIDES[1]:
            raise ParameterError(f"sokoban: {name}={side}, outer walls included, must be {_SIDES[0]} to {_SIDES[1]}")
    most = min(_MOST_BOXES, (rows - 2) * (cols - 2) // 4)
    if not 1 <= boxes <= most:
        raise ParameterError(f"sokoban: boxes={boxes} on {rows}x{cols} cannot be; give 1 to {most}, or a bigger board")
    least = 3 * boxes + 2  # below, the generator finds no level on some boards
    if not least <= solution <= _LONGEST_SOLUTION:
        raise ParameterError(
            f"sokoban: solution={solution} moves for boxes={boxes} cannot be; give {least} to {_LONGEST_SOLUTION}"
        )
    if int(params["level"]) != -1:
        raise ParameterError(f"sokoban: level={params['level']} counts levels of a file; generated ones go by the seed")


class _Planner:
    """Follows the solver's plan, and plans anew wherever a random move led; in a lost position all moves are random."""

    def __init__(self, world: Sokoban, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.rng, self.skill, self.recall = world, rng, skill, recall
        self.plan: str | None = None
        """The moves still to play from `position`; None where there is no way to win."""
        self.position = ""
        self.follows = False
        """Whether the last reply was the plan's."""
        self.lost_from: set[str] = set()
        """Positions from which a random move lost the level, in any episode of the trial."""

    def act(self) -> str:
        here = self.world.key()
        if here != self.position:
            self.position, self.plan = here, solver.solve(self.world.cols, here).moves
        careful = here in self.lost_from and self.rng.random() < self.recall
        self.follows = bool(self.plan) and (careful or self.rng.random() < self.skill)
        if self.follows and self.plan:
            return say(self.plan[: self.world.moves])
        return self.rng.choice(self.world.legal())

    def see(self, step: Step) -> None:
        if self.follows and self.plan:
            self.position, self.plan = step.state_key, self.plan[self.world.moves :]
        elif self.plan and solver.solve(self.world.cols, step.state_key).dead:
            self.lost_from.add(self.position)


def _note(world: Sokoban, episode: Episode) -> str:
    """The turn that lost the level first, then the turns before it; ``up, up: not 3``, ``left: 1``, a line each.

    Moves begin a line as they begin a reply, so that to most tokenizers they are the same tokens.
    """
    played = world._replay(episode)
    wrong = next((n for n, turn in enumerate(played) if solver.solve(world.cols, turn.key).dead), len(played))
    facts = [f"{turn.said}: {turn.number}" for turn in played[:wrong]]
    if wrong < len(played):
        facts.insert(0, f"{played[wrong].said}: not {played[wrong].number}")
    elif not episode.won:
        facts.insert(0, "too slow")
    return "<reflection>{}</reflection>".format("\n".join(facts))


def _reflect(world: Sokoban, episode: Episode) -> str:
    """What happened, where the level was lost, and a plan that solves it from the start."""
    played, cols = world._replay(episode), world.cols
    final = played[-1].key if played else world.level.cells
    home = final.count("*")
    left = solver.solve(cols, final)
    invalid = [number for number, turn in enumerate(episode.turns, start=1) if not turn.valid]
    failed_at = played[-1].number if played else 0
    category = "out-of-turns" if episode.stop is StopReason.TURN_LIMIT else "other"
    why = f"{len(left.moves)} more moves would have solved it" if left.moves else "it was not solved in time"
    if episode.won:
        failed_at, category, why = 0, "none", "these moves bring every box onto a goal"
    elif left.dead:
        failed_at = next(turn.number for turn in played if solver.solve(cols, turn.key).dead)
        category, why = "wrong-move", "after it no moves can bring every box onto a goal"
    elif invalid:
        failed_at, category, why = invalid[0], "invalid-reply", "a reply that cannot be read costs a turn"
    answer = episode.turns[failed_at - 1].feedback if failed_at else ""
    said = next((turn.said for turn in played if turn.number == failed_at), "no move")
    solution = solver.solve(cols, world.level.cells).moves or ""
    chunks = [solution[start : start + world.moves] for start in range(0, len(solution), world.moves)]
    plan = " | ".join(", ".join(NAMES[_INDEX[move]] for move in chunk) for chunk in chunks)
    if episode.won:
        plan = " | ".join(turn.said for turn in played)
    return (
        "<reflection>\n"
        f"strategy: played {' | '.join(turn.said for turn in played) or 'nothing'}\n"
        f"outcome: {'won' if episode.won else 'not won'}, {home} of {world.boxes} boxes on goals\n"
        f"reward: {episode.reward:g}\n"
        f"failed_at: {f'turn {failed_at}, {said}' if failed_at else 'nothing'}\n"
        f"reasoning: {why}\n"
        f"env_answer: {answer or f'{home} of {world.boxes} boxes on goals'}\n"
        f"error_category: {category}\n"
        f"plan: play {plan or 'the boxes in another order'}\n"
        "</reflection>"
    )
