"""What a scripted player writes between two episodes of Sokoban: where the level was lost, and what to play instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mulligan.envs.base import reflection_text
from mulligan.envs.sokoban import solver, views
from mulligan.envs.sokoban.env import PlayedTurn, Sokoban
from mulligan.envs.sokoban.moves import names_of
from mulligan.errors import StopReason
from mulligan.types import Episode

Advise = Callable[[str, str, int], str]
"""Position, moves that lost the level there, turn -> what to play instead; empty for nothing."""


def reflect(world: Sokoban, episode: Episode, advise: Advise | None = None) -> str:
    """What there is to learn from an episode; in the view of cells a player may `advise`.

    In cells: where the level was lost, what to play there instead (if there is advice), and what lost it, as
    ``boxes b2 d3``, ``you c2``, ``left, up``, ``up, up: lost``. It is in the words of the view, so that the agent
    recognises the position however it came there; and the moves follow the position as a reply follows an observation.
    """
    played = world.replay(episode)
    if world.view == "board":
        return _report(world, episode, played)
    wrong = next((index for index, turn in enumerate(played) if world.is_lost(turn.key, index + 1)), None)
    if wrong is None:
        return f"<reflection>{'won' if episode.won else 'too slow'}</reflection>"
    position, moves = played[wrong - 1].key if wrong else world.level.cells, played[wrong].moves
    solution = _advice(world, position)[: world.moves]
    instead = names_of(solution) if advise is None else advise(position, moves, wrong + 1)
    lines = "\n".join(filter(None, (views.cells_later(position, world.cols), instead, f"{moves}: lost")))
    return f"<reflection>{lines}</reflection>"


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
    plan = strategy if episode.won else " | ".join(names_of(chunk) for chunk in chunks)
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
