"""One hand of a game of OpenSpiel as a player sees it, against opponents of whom it does not know which one it is.

The tree has the player's information states and the endings that it can tell apart. An ending has, for each opponent,
the chance of cards and moves that lead to it (the player's own moves aside), and what it pays times that chance. With
these, the best play against any belief about the opponent is a walk from the leaves to the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mulligan.envs.adapters.openspiel import load_game
from mulligan.envs.adapters.spiel_opponents import Habit, habits_of, shown_card, solved

Numbers = NDArray[np.float64]
_TIE = 1e-9
"""Values that differ by less are equal."""


@dataclass
class Children:
    """What the player may see next."""

    states: list[int] = field(default_factory=list)
    """Numbers of information states."""
    endings: list[int] = field(default_factory=list)


@dataclass
class InformationState:
    key: str
    """OpenSpiel's information state string."""
    reach: Numbers
    """[opponent] chance of cards and moves that lead to it, the player's own moves aside."""
    example: Any
    """A state of the game that looks like this to the player."""
    actions: dict[int, Children] = field(default_factory=dict)


class HandTree:
    """A hand of `game`, in which `seat` (1 or 2) plays against one of several opponents."""

    def __init__(self, game: Any, seat: int, habits: Sequence[Habit]) -> None:
        self.player, self.habits = seat - 1, habits
        self.states: list[InformationState] = []
        """Those that follow on others stand behind them."""
        self.endings: list[str] = []
        self._reach: list[Numbers] = []
        self._paid: list[Numbers] = []
        self.root = self._children([(game.new_initial_state(), np.ones(len(habits)))])
        self.reach, self.paid = np.array(self._reach), np.array(self._paid)
        """[ending, opponent] chance of it, and what it pays times the chance."""
        self.ending_numbers = {key: number for number, key in enumerate(self.endings)}
        self.state_numbers = {state.key: number for number, state in enumerate(self.states)}

    def _children(self, nodes: Sequence[tuple[Any, Numbers]]) -> Children:
        """The information states and endings that follow from states of the game, each with its [opponent] chances."""
        decisions: dict[str, list[tuple[Any, Numbers]]] = {}
        endings: dict[str, list[tuple[Any, Numbers]]] = {}
        waiting = list(nodes)
        while waiting:
            state, chances = waiting.pop()
            if state.is_terminal():
                endings.setdefault(ending_key(state, self.player), []).append((state, chances))
            elif state.current_player() == self.player:
                decisions.setdefault(state.information_state_string(), []).append((state, chances))
            elif state.is_chance_node():
                waiting += [(state.child(action), chances * chance) for action, chance in state.chance_outcomes()]
            else:
                answers = [habit(state) for habit in self.habits]
                for action in state.legal_actions():
                    likely = chances * [answer.get(action, 0.0) for answer in answers]
                    if likely.any():
                        waiting.append((state.child(action), likely))
        children = Children()
        for key, found in endings.items():
            children.endings.append(len(self.endings))
            self.endings.append(key)
            self._reach.append(sum((chances for _, chances in found), np.zeros(len(self.habits))))
            paid = (chances * state.player_return(self.player) for state, chances in found)
            self._paid.append(sum(paid, np.zeros(len(self.habits))))
        for key, found in decisions.items():
            reach = sum((chances for _, chances in found), np.zeros(len(self.habits)))
            information_state = InformationState(key, reach, found[0][0])
            children.states.append(len(self.states))
            self.states.append(information_state)
            for action in found[0][0].legal_actions():
                after = [(state.child(action), chances) for state, chances in found]
                information_state.actions[action] = self._children(after)
        return children

    def solve(self, worth: Numbers, weights: Numbers) -> tuple[Numbers, list[dict[int, Numbers]]]:
        """The best play where `worth` [ending, belief, figure] is got at an ending, in all beliefs at once.

        Best is the highest sum of the figures times `weights`; of ties, the highest first figure. Returns the figures
        [belief, figure] of the hand, and for each information state and action the figures of that action.
        """
        values = np.zeros((len(self.states), *worth.shape[1:]))
        by_action: list[dict[int, Numbers]] = [{} for _ in self.states]
        for number in reversed(range(len(self.states))):
            for action, children in self.states[number].actions.items():
                by_action[number][action] = _sum(children, values, worth)
            values[number] = _best([*by_action[number].values()], weights)
        return _sum(self.root, values, worth), by_action

    def best_response(self, belief: Numbers) -> tuple[float, dict[str, int]]:
        """What the best play of one hand earns in a belief [opponent], and its action in each information state."""
        figures, by_action = self.solve((self.paid @ belief)[:, None, None], np.ones(1))
        actions = {
            state.key: max(values, key=lambda action, values=values: round(values[action].item(), 9))  # type: ignore[misc]
            for state, values in zip(self.states, by_action, strict=True)
        }
        return figures.item(), actions

    def value(self, policy: Mapping[str, Mapping[int, float]]) -> Numbers:
        """[opponent] what a policy (information state -> chances of actions) earns in a hand."""
        total: Numbers = self.paid[self.root.endings].sum(axis=0)
        for state, chance in zip(self.states, self.own_chances(policy), strict=True):
            for action, children in state.actions.items():
                total = total + chance * policy[state.key].get(action, 0.0) * self.paid[children.endings].sum(axis=0)
        return total

    def own_chances(self, policy: Mapping[str, Mapping[int, float]]) -> Numbers:
        """[information state] chance that a policy makes the moves that lead to it."""
        chances = np.ones(len(self.states))
        for number, state in enumerate(self.states):  # earlier ones lead to later ones
            for action, children in state.actions.items():
                chances[children.states] = chances[number] * policy[state.key].get(action, 0.0)
        return chances


def own_moves(example: Any, player: int) -> list[tuple[Any, int]]:
    """The states in which a player has moved before a state of the game, and the moves."""
    state, moves = example.get_game().new_initial_state(), []
    for action in example.history():
        if not state.is_chance_node() and state.current_player() == player:
            moves.append((state.clone(), action))
        state.apply_action(action)
    return moves


def ending_key(state: Any, player: int) -> str:
    """What a player sees of a game that has ended: at a showdown the other's card too."""
    shown = shown_card(state, 1 - player)
    return str(state.information_state_string(player)) + ("" if shown is None else f"/{shown}")


@lru_cache(maxsize=16)
def hand_tree(game: str, seat: int, opponents: tuple[str, ...]) -> HandTree:
    """The tree of OpenSpiel's game `game` against opponents by name."""
    env, habits = f"openspiel:{game}", habits_of(game)
    return HandTree(load_game(env, game), seat, [habits.get(name) or solved(env, game) for name in opponents])


@lru_cache(maxsize=512)
def losses_of(game: str, seat: int, opponent: str) -> tuple[float, dict[str, dict[int, float]]]:
    """What the best play of a hand earns against an opponent by name, and what each action of an information state
    earns less than the best one there, if the best are played from then on.

    Of any play, the best less the losses of its moves has the mean of what it is paid, and nothing of the cards' luck.
    """
    tree = hand_tree(game, seat, (opponent,))
    best, by_action = tree.solve(tree.paid[:, :1, None], np.ones(1))
    losses: dict[str, dict[int, float]] = {}
    for state, values in zip(tree.states, by_action, strict=True):
        most = max(value.item() for value in values.values())
        losses[state.key] = {action: (most - value.item()) / state.reach.item() for action, value in values.items()}
    return best.item(), losses


def _sum(children: Children, values: Numbers, worth: Numbers) -> Numbers:
    total: Numbers = values[children.states].sum(axis=0) + worth[children.endings].sum(axis=0)
    return total


def _best(figures: Sequence[Numbers], weights: Numbers) -> Numbers:
    """[belief, figure] of the best of several actions, in each belief."""
    stacked = np.stack(figures)  # [action, belief, figure]
    value = stacked @ weights
    now = np.where(value >= value.max(axis=0) - _TIE, stacked[:, :, 0], -np.inf)
    best: Numbers = np.take_along_axis(stacked, now.argmax(axis=0)[None, :, None], axis=0)[0]
    return best
