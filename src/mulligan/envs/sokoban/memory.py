"""What later episodes get to see of an earlier one, as a digest and as a reflection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mulligan.envs.sokoban import solver, views
from mulligan.envs.sokoban.moves import names_of, push, read
from mulligan.errors import StopReason
from mulligan.types import Episode

if TYPE_CHECKING:
    from mulligan.envs.sokoban.env import Sokoban


Advise = Callable[[str, str, int], str]
"""What to play instead at a place, where these moves lost the level, in that turn; empty for nothing to be said."""


class Played(NamedTuple):
    """One turn as it was played."""

    number: int
    """1 for the first turn."""
    said: str
    key: str
    """The position it led to."""


def replay(world: Sokoban, episode: Episode) -> list[Played]:
    """What the episode's replies did, without the moves that a win left unplayed."""
    board, place, home = world.start
    cells, played = bytearray(board, "ascii"), list[Played]()
    for number, turn in enumerate(episode.turns, start=1):
        text = turn.reply.text
        if "<action>" not in text.lower():  # valid all the same: the tags were understood (style "bare")
            text = f"<action>{text}</action>"
        understood = read(text, world.cols, world.moves) if turn.valid else ""
        if isinstance(understood, str):
            continue
        done: list[str] = []
        for delta, name in zip(understood.deltas, understood.names, strict=True):
            if home < world.boxes:
                place, home, _ = push(cells, place, (delta,), home, world.boxes)
                done.append(name)
        if done:
            played.append(Played(number, ", ".join(done), cells[::2].decode()))
    return played


def digest(world: Sokoban, episode: Episode) -> str:
    """The moves and how it ended, as the view tells things."""
    played = replay(world, episode)
    home = (played[-1].key if played else world.level.cells).count("*")
    ended = f"{home} of {world.boxes} boxes on goals"
    if world.view == "cells":
        places = [world.level.cells, *(turn.key for turn in played)]
        lines = [f"{views.player_at(key, world.cols)}: {turn.said}" for key, turn in zip(places, played, strict=False)]
        return "\n".join([*lines, "lost" if episode.stop is StopReason.LOST else ended])
    if world.view == "compact":
        return "\n".join([*(turn.said for turn in played), ended])
    said = " | ".join(turn.said for turn in played) or "none"
    return f"moves {said}\n{ended}; the board at the end:\n{episode.final}"


def reflect(world: Sokoban, episode: Episode, advise: Advise | None = None) -> str:
    """What there is to learn from an episode; short where the view is. In cells somebody else may `advise`."""
    if world.view == "board":
        return _report(world, episode)
    played = replay(world, episode)
    wrong = next((n for n, turn in enumerate(played) if world.is_lost(turn.key, n + 1)), len(played))
    if world.view == "cells":
        lines = _place_lost(world, episode, played, wrong, advise)
    else:
        lines = _turn_by_turn(episode, played, wrong)
    return "<reflection>{}</reflection>".format("\n".join(lines))


def _place_lost(
    world: Sokoban, episode: Episode, played: Sequence[Played], wrong: int, advise: Advise | None
) -> list[str]:
    """Where the level was lost, what to play there instead (where there is to be advice), and what lost it.

    ``boxes b2 d3``, ``you c2``, ``left, up``, ``up, up: lost``.

    In the words of the view, so that the agent finds it again by what it sees, however it came there; and a place is
    followed by moves as an observation is by a reply.
    """
    if wrong == len(played):
        return ["won" if episode.won else "too slow"]
    place, said = played[wrong - 1].key if wrong else world.level.cells, played[wrong].said
    instead = names_of(_advice(world, place)[: world.moves]) if advise is None else advise(place, said, wrong + 1)
    return [views.cells_later(place, world.cols), *([instead] if instead else []), f"{said}: lost"]


def _advice(world: Sokoban, place: str) -> str:
    """The solver's moves from there; empty where there are none, or none are to be told."""
    return (solver.solve(world.cols, place).moves or "") if world.advised else ""


def _turn_by_turn(episode: Episode, played: Sequence[Played], wrong: int) -> list[str]:
    """The turn that lost the level first, then the turns before it: ``up, up: not 3``, ``left: 1``.

    Moves begin a line as they begin a reply, so that to most tokenizers they are the same tokens.
    """
    facts = [f"{turn.said}: {turn.number}" for turn in played[:wrong]]
    if wrong < len(played):
        return [f"{played[wrong].said}: not {played[wrong].number}", *facts]
    return facts if episode.won else ["too slow", *facts]


def _report(world: Sokoban, episode: Episode) -> str:
    """What happened, where the level was lost, and a plan that solves it from the start."""
    played, cols = replay(world, episode), world.cols
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
    elif played and world.is_lost(final, len(played)):
        category, why = "out-of-turns", "after it the turns that are left are too few"
    elif invalid:
        failed_at, category, why = invalid[0], "invalid-reply", "a reply that cannot be read costs a turn"
    answer = episode.turns[failed_at - 1].feedback if failed_at else ""
    said = next((turn.said for turn in played if turn.number == failed_at), "no move")
    solution = _advice(world, world.level.cells)
    chunks = [solution[start : start + world.moves] for start in range(0, len(solution), world.moves)]
    plan = " | ".join(names_of(chunk) for chunk in chunks)
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
