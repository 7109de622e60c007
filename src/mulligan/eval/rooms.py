"""What a hand of poker is worth against an unknown opponent: without memory, after earlier hands, and with it known.

    python -m mulligan.eval.rooms        prints the table for Kuhn and Leduc poker

As exact as `mulligan.eval.optimum`, by a shorter way: where hands are dealt anew and the opponent stays the same, all
that an earlier hand leaves is a belief about the opponent. Five hands of Leduc poker take seconds.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mulligan.envs import leduc, registry
from mulligan.envs.adapters.openspiel import load_game
from mulligan.envs.adapters.spiel_hand import HandTree, Numbers, hand_tree
from mulligan.envs.adapters.spiel_opponents import habits_of
from mulligan.envs.base import library
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task

GAMES = {"kuhn": ("kuhn_poker", 2), "leduc": (leduc.GAME, 4)}
"""Environment -> OpenSpiel's game, and the most decisions of a player in a hand."""
_DIGITS = 12
"""Decimals by which beliefs are told apart."""
_CHUNK = 1_000
"""Beliefs that are solved at once."""
_ITERATIONS = 200
Policy = Mapping[str, Mapping[int, float]]
"""Information state -> chances of actions; for one seat or for both."""


@dataclass(frozen=True)
class Room:
    """Chips a hand."""

    equilibrium: float
    static: float
    """The best without memory."""
    by_hand: list[float]
    """Of the play that is best over all hands together: the Bayes-adaptive optimum."""
    clairvoyant: float
    """The best of somebody who knows the opponent."""

    def share(self, values: Sequence[float]) -> list[float | None]:
        """The share of the adaptive room that these values of hands come to; None where there is no room."""
        rooms = [best - self.static for best in self.by_hand]
        return [
            (value - self.static) / room if room > 1e-9 else None for value, room in zip(values, rooms, strict=False)
        ]


def room_of(game: str, opponents: Mapping[str, float], seat: int, hands: int = 3) -> Room:
    """The room of OpenSpiel's game `game` against one of these opponents, each with its probability."""
    tree = hand_tree(game, seat, tuple(opponents))
    prior = np.array([*opponents.values()]) / sum(opponents.values())
    best_values = [tree.best_response(belief)[0] for belief in np.eye(len(prior))]
    return Room(
        equilibrium=float(tree.value(equilibrium(game)) @ prior),
        static=tree.best_response(prior)[0],
        by_hand=values_by_hand(tree, prior, hands),
        clairvoyant=float(np.dot(best_values, prior)),
    )


def are_hands(task: Task, settings: TrialSettings) -> bool:
    """Whether each episode of a task is one hand, dealt anew, with turns enough; and OpenSpiel is there."""
    _, decisions = GAMES.get(task.env, ("", 0))
    is_hand = task.env in GAMES and dict(task.params).get("hands", 1) == 1 and task.turns >= decisions
    is_usual = settings.restart in (None, "fresh") and settings.stop in (None, "never")
    return is_hand and is_usual and importlib.util.find_spec("pyspiel") is not None


def opponents_of_hands(task: Task, settings: TrialSettings) -> dict[str, float] | None:
    """Who may play the task, each with its probability, where `room_of` counts its hands: `are_hands`, and opponents
    with a habit that stays the same. None otherwise."""
    if not are_hands(task, settings):
        return None
    opponents: dict[str, float] = cast(Any, registry.build(task)).expected()
    return opponents if opponents.keys() <= habits_of(GAMES[task.env][0]).keys() else None


def best_by_hand(task: Task, settings: TrialSettings, gamma_traj: float = 1.0) -> list[float] | None:
    """`values_by_hand` of a task's episodes; None where they are no such hands."""
    if (opponents := opponents_of_hands(task, settings)) is None:
        return None
    tree = hand_tree(GAMES[task.env][0], task.integer("seat"), tuple(opponents))
    return values_by_hand(tree, np.array([*opponents.values()]), settings.episodes, gamma_traj)


def values_by_hand(tree: HandTree, prior: Numbers, hands: int, gamma_traj: float = 1.0) -> list[float]:
    """Chips of each hand, in the play with the highest Σ γ_traj^n · chips of hand n."""
    likelihoods, kind = np.unique(_beliefs(tree.reach), axis=0, return_inverse=True)
    beliefs, after = [prior[None]], list[NDArray[np.intp]]()
    for _ in range(
        hands - 1
    ):  # every belief that some play leads to; after[n]: [belief, kind of ending] -> the next one
        products = beliefs[-1][:, None] * likelihoods
        each, numbers = np.unique(_beliefs(products.reshape(-1, len(prior))), axis=0, return_inverse=True)
        beliefs.append(each)
        after.append(np.reshape(numbers, products.shape[:2]))
    values = np.zeros((0, 0))
    for number in reversed(range(hands)):
        chunks = []
        for start in range(0, len(beliefs[number]), _CHUNK):
            some = beliefs[number][start : start + _CHUNK]
            worth = np.empty((len(tree.endings), len(some), hands - number))
            worth[:, :, 0] = tree.paid @ some.T
            if number + 1 < hands:
                then = after[number][start : start + _CHUNK, kind.ravel()].T
                worth[:, :, 1:] = (tree.reach @ some.T)[:, :, None] * values[then]
            chunks.append(tree.solve(worth, np.float64(gamma_traj) ** np.arange(hands - number))[0])
        values = np.concatenate(chunks)
    returns: list[float] = values[0].tolist()
    return returns


def _beliefs(weights: Numbers) -> Numbers:
    """Each row with the sum 1; rows of zeros, which nothing leads to, stay."""
    totals = weights.sum(axis=1, keepdims=True)
    return np.round(weights / np.where(totals > 0, totals, 1.0), _DIGITS)


@lru_cache(maxsize=8)
def equilibrium(game: str) -> Policy:
    """The average policy of CFR+, of both seats; Leduc's is exploitable by 0.005 chips a hand, Kuhn's by 0.0003."""
    solver = library("pyspiel", f"openspiel:{game}", extra="games").CFRPlusSolver(_loaded(game))
    for _ in range(_ITERATIONS):
        solver.evaluate_and_update_policy()
    return {state: dict(chances) for state, chances in solver.tabular_average_policy().policy_table().items()}


def exploitability(game: str, policy: Policy, seat: int | None = None) -> float:
    """Chips a hand that a policy gives away to its best response: 0 in equilibrium.

    Of a policy for both seats the mean over them. Of a policy for `seat` alone, what its best response wins more than
    the best response to `equilibrium`.
    """
    if seat is None:
        return (best_response_value(game, policy, 1) + best_response_value(game, policy, 2)) / 2
    return best_response_value(game, policy, 3 - seat) - _value_of_game(game, 3 - seat)


@lru_cache(maxsize=8)
def _value_of_game(game: str, seat: int) -> float:
    return best_response_value(game, equilibrium(game), seat)


def best_response_value(game: str, policy: Policy, seat: int) -> float:
    """Chips a hand that the best response in `seat` wins from somebody who plays `policy` in the other one."""
    tree = HandTree(_loaded(game), seat, [lambda state: policy[state.information_state_string()]])
    return tree.best_response(np.ones(1))[0]


def value_against(game: str, policy: Policy, seat: int, opponent: str) -> float:
    """Chips a hand that a policy is expected to win in `seat` from an opponent of that name."""
    return float(hand_tree(game, seat, (opponent,)).value(policy)[0])


def _loaded(game: str) -> Any:
    return load_game(f"openspiel:{game}", game)


POOLS = {
    "kuhn, MAGE's habits": ("kuhn_poker", "conservative,intermediate,aggressive"),
    "kuhn, soft habits": ("kuhn_poker", "random,soft-conservative,soft-intermediate,soft-aggressive"),
    "leduc": (leduc.GAME, "caller,maniac,rock,bluffer,random"),
}


def table(hands: int = 5) -> str:
    """The rooms of `POOLS` as a table in Markdown."""
    columns = ["game", "seat", "equilibrium", "static", *(f"hand {number}" for number in range(1, hands + 1))]
    rows = [[*columns, "clairvoyant"], ["---"] * (len(columns) + 1)]
    for name, (game, opponents) in POOLS.items():
        for seat in (1, 2):
            room = room_of(game, dict.fromkeys(opponents.split(","), 1.0), seat, hands)
            values = (room.equilibrium, room.static, *room.by_hand, room.clairvoyant)
            rows.append([name, str(seat), *(f"{value:.3f}" for value in values)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.stdout.write(table())
