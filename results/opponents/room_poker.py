"""What Kuhn and Leduc poker leave to be won by somebody who expects the opponents of training, exact.

    python results/opponents/room_poker.py [kuhn|leduc] [POOL]

POOL is the training pool as `--env.opponent` takes it (default: that of the preset). The player holds a belief over
that pool and plays each hand as well as it can by this belief. It does not look ahead, so that training can come to a
little more. Beside it stand the ceilings of somebody who knows the group that is played against. A minute for
Leduc poker.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import cache

import numpy as np
from rich.console import Console

import mulligan
from mulligan.envs import registry
from mulligan.envs.adapters.spiel_hand import HandTree, Numbers, hand_tree
from mulligan.eval.rooms import GAMES, room_of

SHOW = Console(highlight=False, soft_wrap=True).print
HANDS = 3
GROUPS = ("seen", "validation", "unseen")
POOLS = {"kuhn": "seen:30,drawn", "leduc": "seen:15,drawn"}
_UNLIKELY = 1e-9


def main(env: str = "kuhn", pool: str = "") -> None:
    prior = opponents_of(env, pool or POOLS[env])
    SHOW(f"{env}, a player that expects {pool or POOLS[env]} ({len(prior)} opponents)\n")
    SHOW("| against | best without memory | best by hand, group known | this player | its share of the room |")
    SHOW("|---|---|---|---|---|")
    for group in GROUPS:
        met = opponents_of(env, group)
        rooms = [room_of(GAMES[env][0], met, seat, HANDS) for seat in (1, 2)]
        static = np.mean([room.static for room in rooms])
        optimal = np.mean([room.by_hand for room in rooms], axis=0)
        values = np.mean([values_with(GAMES[env][0], seat, prior, met) for seat in (1, 2)], axis=0)
        room = optimal - static
        shares = [f"{100 * (v - static) / r:.0f} %" if r > 1e-6 else "–" for v, r in zip(values, room, strict=True)]
        SHOW(f"| `{group}` | {static:.3f} | {figures(optimal)} | {figures(values)} | {' / '.join(shares)} |")


def figures(values: Numbers) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def opponents_of(env: str, pool: str) -> dict[str, float]:
    task = mulligan.make_task(env, params={"opponent": pool})
    opponents: dict[str, float] = registry.build(task).expected()  # type: ignore[attr-defined]
    return opponents


def values_with(game: str, seat: int, prior: dict[str, float], met: dict[str, float]) -> list[float]:
    """Chips of each hand, of a player with `prior` against opponents of which each is met as often as `met` says."""
    tree = hand_tree(game, seat, tuple(prior) + tuple(met))
    expected, real = slice(0, len(prior)), slice(len(prior), None)
    start = np.array([*prior.values()])

    @cache
    def chances(belief: tuple[float, ...]) -> Numbers:
        """[ending] chance that the player's own moves lead there."""
        weights = np.concatenate([belief, np.zeros(len(met))])
        return own_chances(tree, weights)

    players = {tuple(start.round(9)): np.array([*met.values()])}
    """Belief -> [opponent] chance to hold it against this opponent."""
    values = []
    for _ in range(HANDS):
        after: dict[tuple[float, ...], Numbers] = defaultdict(lambda: np.zeros(len(met)))
        value = 0.0
        for belief, likely in players.items():
            own = chances(belief)
            value += float((tree.paid[:, real] * own[:, None]).sum(axis=0) @ likely)
            for ending in np.flatnonzero(own):
                mass = tree.reach[ending, real] * likely * own[ending]
                if mass.sum() > _UNLIKELY:
                    weights = np.array(belief) * tree.reach[ending, expected]
                    weights = weights / weights.sum() if weights.any() else start  # no opponent of the pool plays so
                    after[tuple(weights.round(4))] += mass
        players = after
        values.append(value)
    return values


def own_chances(tree: HandTree, weights: Numbers) -> Numbers:
    actions = tree.best_response(weights)[1]
    chances = tree.own_chances({key: {action: 1.0} for key, action in actions.items()})
    reached = np.zeros(len(tree.endings))
    reached[tree.root.endings] = 1.0
    for state, chance in zip(tree.states, chances, strict=True):
        reached[state.actions[actions[state.key]].endings] = chance
    return reached


if __name__ == "__main__":
    main(*sys.argv[1:])
