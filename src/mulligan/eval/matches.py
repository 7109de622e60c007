"""Exact returns of matches against an unknown habit: for games of `envs.repeated`, where `eval.optimum` is too slow.

All that earlier moves leave is a belief about the habit and the state that a habit is in. Both are numbers here, for
all beliefs of a round at once: first every belief that some play leads to, round by round, then their values, from the
last round back. Two beliefs are one where the game is the same with other names: in rock-paper-scissors, where rock
becomes paper, paper scissors and scissors rock, if the pool has for each habit the one so renamed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mulligan.cache import kept
from mulligan.envs import registry
from mulligan.envs.repeated.env import RepeatedGame
from mulligan.envs.repeated.habits import Habit
from mulligan.envs.repeated.model import HabitModel
from mulligan.errors import UsageError
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task

MOST_NUMBERS = 80_000_000
"""Beliefs of a round, times habits: three matches of 6 throws against `unseen` have half as many."""
_DIGITS = 9
"""Decimals by which beliefs are told apart."""
_CHUNK = 100_000
"""Positions that are computed at once."""
MOST_HABITS = 100
"""As many worlds as `optimum.MOST_ASIDE` has: with more there are too many beliefs after a few rounds."""
_MOST_MINDS = 10_000
Numbers = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]


class Values(NamedTuple):
    """Expected returns."""

    static: float
    """Of a match, the best of somebody who remembers no earlier one."""
    optimal: list[float]
    """By match, the best over all of them."""
    clairvoyant: float
    """Of a match, the best of somebody who knows the habit."""


def values_of_matches(task: Task, settings: TrialSettings) -> Values | None:
    """The values of a task's matches; None where its episodes are none against one habit that stays the same."""
    env = registry.build(task)
    is_usual = settings.restart in (None, "fresh") and settings.stop in (None, "never")
    if not (isinstance(env, RepeatedGame) and is_usual and task.turns >= env.rounds):
        return None
    if any(">" in name for name in env.expected()):
        return None
    return values_of(env.model(), settings.episodes)


def values_of(model: HabitModel, matches: int) -> Values:
    """The values of so many matches against a habit of the model's pool, none of which may change.

    Raises a `UsageError` if there are too many beliefs. Kept in the cache folder: large pools take minutes.
    """
    names, weights = zip(*[(name, weight) for weight, name in model.worlds()], strict=True)
    if len(names) > MOST_HABITS:
        raise UsageError(f"too many habits: {len(names)}, where exact values are computed for {MOST_HABITS} at most")
    pool = Pool.of(model, [model.habits[name] for name in names], np.array(weights))
    alone = [Pool.of(model, [model.habits[name]], np.ones(1)) for name in names]

    def make(folder: Path) -> None:
        optimal = best_by_match(pool, model.rounds, matches)  # first: where there are too many beliefs, it says so
        static = best_by_match(pool, model.rounds, 1)[0]
        clairvoyant = [best_by_match(each, model.rounds, 1)[0] for each in alone]
        values = {"static": static, "optimal": optimal, "clairvoyant": float(np.dot(clairvoyant, pool.weights))}
        (folder / "values.json").write_text(json.dumps(values), encoding="utf-8")

    folder = kept(f"matches-{pool.digest(model.rounds, matches)}", make)
    return Values(**json.loads((folder / "values.json").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Pool:
    """Habits as arrays. A mind is the state that each of them is in, after the moves of a match so far."""

    weights: Numbers  # [habit]
    chances: Numbers  # [mind, habit, their move]
    after: Integers  # [mind, their move, mine] -> mind; 0 is the first one
    points: Numbers  # [mine, theirs], as a round pays
    renamed_habits: Integers  # [renaming, habit] -> the habit that it becomes; the first renaming changes nothing
    renamed_minds: Integers  # [renaming, mind] -> mind

    @classmethod
    def of(cls, model: HabitModel, habits: Sequence[Habit], weights: Numbers) -> Pool:
        points = np.array(model.payoffs.points) / model.payoffs.most / model.rounds
        chances, after = _minds(habits, len(points))
        habit_names, mind_names = _renamings(chances, after, points, weights)
        return cls(weights / weights.sum(), chances, after, points, habit_names, mind_names)

    def digest(self, rounds: int, matches: int) -> str:
        """Of all that the values follow from."""
        arrays = (self.weights, self.chances, self.after, self.points, np.array([rounds, matches, _DIGITS]))
        return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()[:16]


def _minds(habits: Sequence[Habit], moves: int) -> tuple[Numbers, Integers]:
    """[mind, habit, their move] the chances, and [mind, their move, mine] the mind that follows."""
    minds = [tuple(habit.start for habit in habits)]
    numbers, after = {minds[0]: 0}, []
    for mind in minds:  # grows on the way
        row = []
        for theirs in range(moves):
            for mine in range(moves):
                then = tuple(habit.after(each, theirs, mine) for habit, each in zip(habits, mind, strict=True))
                if then not in numbers:
                    numbers[then] = len(minds)
                    minds.append(then)
                row.append(numbers[then])
        after.append(row)
        if len(minds) > _MOST_MINDS:
            raise UsageError(f"the habits remember too much: more than {_MOST_MINDS} states together")
    chances = [[habit.chances(each) for habit, each in zip(habits, mind, strict=True)] for mind in minds]
    return np.array(chances, dtype=float), np.array(after).reshape(len(minds), moves, moves)


def _renamings(chances: Numbers, after: Integers, points: Numbers, weights: Numbers) -> tuple[Integers, Integers]:
    """The rotations of the moves under which game and pool are the same, as [renaming, habit] and [renaming, mind]."""
    moves = len(points)
    habits: list[Integers] = [np.arange(len(weights))]
    minds: list[Integers] = [np.arange(len(after))]
    for turn in range(1, moves):
        renamed = (np.arange(moves) + turn) % moves
        if not np.allclose(points[np.ix_(renamed, renamed)], points):
            continue
        if (mind_names := _mapped_minds(after, renamed)) is None:
            continue
        as_renamed = chances[mind_names][:, :, renamed]  # [mind, habit, move]: the habit in the renamed game
        differences = np.abs(as_renamed[:, None] - chances[:, :, None]).max(axis=(0, 3))  # [habit, what it becomes]
        is_same = (differences < 1e-9) & (np.abs(weights[:, None] - weights) < 1e-9)
        becomes = is_same.argmax(axis=1)
        if is_same.any(axis=1).all() and len(set(becomes.tolist())) == len(becomes):
            habits.append(becomes)
            minds.append(mind_names)
    return np.array(habits), np.array(minds)


def _mapped_minds(after: Integers, renamed: Integers) -> Integers | None:
    """[mind] the mind that the renamed moves lead to; None where two ways disagree."""
    mapped = {0: 0}
    reached = [0]
    for mind in reached:
        for theirs, new_theirs in enumerate(renamed):
            for mine, new_mine in enumerate(renamed):
                then, new = int(after[mind, theirs, mine]), int(after[mapped[mind], new_theirs, new_mine])
                if mapped.setdefault(then, new) != new:
                    return None
                if then not in reached:
                    reached.append(then)
    return np.array([mapped[mind] for mind in range(len(after))])


class _Round(NamedTuple):
    """The positions of a round, each a belief and a mind, and what follows."""

    chances: Numbers  # [position, their move]
    then: Integers  # [position, their move, mine] -> position of the next round; empty in the last one


def best_by_match(pool: Pool, rounds: int, matches: int) -> list[float]:
    """Returns of each match, in the play with the highest sum."""
    played: list[_Round] = []
    beliefs: Numbers = pool.weights[None]
    minds: Integers = np.zeros(1, dtype=np.int64)
    total = rounds * matches
    for number in range(1, total + 1):
        round_, beliefs, minds = _played(pool, beliefs, minds, ends=number % rounds == 0, is_last=number == total)
        played.append(round_)
    values = np.zeros((0, 0))  # [position, match]: those that are not over
    for number in reversed(range(total)):
        if (number + 1) % rounds == 0:  # another match begins after this round, or none
            values = np.concatenate([np.zeros((len(values), 1)), values], axis=1)
        values = np.concatenate(_valued(pool, played.pop(), values))
    returns: list[float] = values[0].tolist()
    return returns


def _valued(pool: Pool, played: _Round, after: Numbers) -> list[Numbers]:
    """[position, match] of a round, a chunk at a time, from the values of the next one."""
    parts = []
    for start in range(0, len(played.chances), _CHUNK):
        chances = played.chances[start : start + _CHUNK]
        gains = np.zeros((len(chances), len(pool.points), after.shape[1]))  # [position, mine, match]
        gains[:, :, 0] = chances @ pool.points.T
        if len(played.then):
            gains += np.einsum("po,poam->pam", chances, after[played.then[start : start + _CHUNK]])
        # Of equally good moves, that with the higher return of this match.
        sums = gains.sum(axis=2) + 1e-9 * gains[:, :, 0]
        parts.append(gains[np.arange(len(gains)), sums.argmax(axis=1)])
    return parts


def _played(
    pool: Pool, beliefs: Numbers, minds: Integers, *, ends: bool, is_last: bool
) -> tuple[_Round, Numbers, Integers]:
    """A round in all positions: what may come of it, and the positions of the next one."""
    moves = len(pool.points)
    chances = np.empty((len(minds), moves))
    keys = np.zeros((len(minds), moves, 1 if ends else moves), dtype=np.int64)
    names = np.zeros(keys.shape, dtype=np.int8)
    for start in range(0, len(minds), _CHUNK):
        part = slice(start, start + _CHUNK)
        chances[part], after = _learned(pool, beliefs[part], minds[part])
        if not is_last:
            keys[part], names[part] = _keys(pool, after, _next_minds(pool, minds[part], ends))
    if is_last:
        return _Round(chances, np.zeros((0, moves, 1), dtype=np.int64)), beliefs[:0], minds[:0]
    possible = np.broadcast_to((chances > 0.0)[:, :, None], keys.shape)
    _, first, numbers = np.unique(keys[possible], return_index=True, return_inverse=True)
    if len(first) * len(pool.weights) > MOST_NUMBERS:
        raise UsageError(f"too many beliefs: more than {MOST_NUMBERS // len(pool.weights):,} after a round")
    then = np.zeros(keys.shape, dtype=np.int32)
    then[possible] = numbers
    chosen = np.flatnonzero(possible)[first]
    next_beliefs, next_minds = np.empty((len(first), len(pool.weights))), np.empty(len(first), dtype=np.int64)
    for start in range(0, len(first), _CHUNK):
        part = slice(start, start + _CHUNK)
        position, theirs, mine = np.unravel_index(chosen[part], keys.shape)
        name = names.ravel()[chosen[part]]
        after = _learned(pool, beliefs[position], minds[position])[1][np.arange(len(position)), theirs]
        np.put_along_axis(next_beliefs[part], pool.renamed_habits[name], after, axis=1)
        mind = _next_minds(pool, minds[position], ends)[np.arange(len(position)), theirs, mine]
        next_minds[part] = pool.renamed_minds[name, mind]
    return _Round(chances, then), next_beliefs, next_minds


def _learned(pool: Pool, beliefs: Numbers, minds: Integers) -> tuple[Numbers, Numbers]:
    """[position, their move] its chance, and [position, their move, habit] the belief that it leads to."""
    weights = beliefs[:, None, :] * pool.chances[minds].transpose(0, 2, 1)
    chances = weights.sum(axis=2)
    return chances, weights / np.where(chances > 0.0, chances, 1.0)[:, :, None]


def _next_minds(pool: Pool, minds: Integers, ends: bool) -> Integers:
    """[position, their move, mine]; the first mind after the last round of a match."""
    after = pool.after[minds]
    return np.zeros_like(after[:, :, :1]) if ends else after


def _keys(pool: Pool, beliefs: Numbers, minds: Integers) -> tuple[Integers, NDArray[np.int8]]:
    """[position, their move, mine] a number that equal beliefs and minds share, and the renaming that it stands for.

    beliefs: [position, their move, habit]; minds: [position, their move, mine]
    """
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**62, beliefs.shape[2] + 1)
    rounded = np.round(beliefs * 10**_DIGITS).astype(np.int64)
    keys = np.empty((len(pool.renamed_habits), *minds.shape), dtype=np.int64)
    for key, habits, mind_names in zip(keys, pool.renamed_habits, pool.renamed_minds, strict=True):
        key[:] = (rounded @ factors[habits])[:, :, None] + (mind_names[minds] + 1) * factors[-1]  # modulo 2**64
    return keys.min(axis=0), keys.argmin(axis=0).astype(np.int8)
