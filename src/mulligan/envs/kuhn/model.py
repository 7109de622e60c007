"""Kuhn poker as a model: a hand is dealt by chance, and each opponent of the pool answers by its habit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from mulligan.envs.kuhn.env import KuhnPoker
from mulligan.envs.kuhn.habits import opponent_table
from mulligan.envs.kuhn.rules import FOLDED, REPLIES, STAKES, Hand, payoff, state_key
from mulligan.envs.model import Outcome
from mulligan.envs.opponents import at_episode, at_next_episode
from mulligan.types import Step


@dataclass(frozen=True)
class KuhnModel:
    """Kuhn poker as a model. A world is an opponent and the episode: see `at_next_episode`."""

    seat: int
    hands: int
    opponents: tuple[tuple[str, float], ...]
    """With their probabilities."""
    env: KuhnPoker = field(compare=False, repr=False)

    def worlds(self) -> list[tuple[float, tuple[str, int]]]:
        return [(chance, (name, 0)) for name, chance in self.opponents]

    def between(self, world: tuple[str, int]) -> list[tuple[float, tuple[str, int]]]:
        return [(1.0, at_next_episode(*world))]

    def begin(self, world: tuple[str, int]) -> None:
        """No card is dealt yet."""

    def begins(self, world: tuple[str, int]) -> list[Outcome]:
        return list(self._dealt(world, 1, 0.0))

    def opening(self) -> str:
        return state_key(self.env.card, self.env.betting, self.env.hidden)

    def actions(self, state: Hand) -> str:
        return "pb"

    def outcomes(self, world: tuple[str, int], state: Hand, action: str) -> list[Outcome]:
        return list(self._answers(world, state._replace(betting=state.betting + action)))

    def _dealt(self, world: tuple[str, int], number: int, chips: float) -> Iterator[Outcome]:
        """How a hand may begin."""
        for mine, theirs in permutations(range(3), 2):
            for outcome in self._answers(world, Hand(mine, theirs, "", number, chips)):
                yield outcome._replace(probability=outcome.probability / 6)

    def _answers(self, world: tuple[str, int], hand: Hand) -> Iterator[Outcome]:
        """What the opponent's move, if it has one, may make of a hand; after a match's hand the next one is dealt."""
        mine, theirs, betting, number, chips = hand
        key = state_key(mine, betting, theirs)
        if betting in STAKES or betting in FOLDED:
            paid = payoff(betting, self.seat, mine, theirs)
            if number == self.hands:
                yield Outcome(1.0, hand, key, paid, done=True, won=chips + paid > 0)
                return
            for outcome in self._dealt(world, number + 1, chips + paid):
                yield outcome._replace(told=f"{key} {outcome.told}", reward=paid)
        elif len(betting) % 2 == self.seat - 1:
            yield Outcome(1.0, hand, key)
        else:
            table = opponent_table(at_episode(*world))
            for move, chance in zip("pb", table[f"{theirs}{betting}"], strict=True):
                for outcome in self._answers(world, hand._replace(betting=betting + move)):
                    yield outcome._replace(probability=chance * outcome.probability)

    def reply(self, action: str) -> str:
        return REPLIES["pb".index(action)]

    def told(self, step: Step) -> str:
        ended, env = self.env.ended, self.env
        before = f"{state_key(ended.mine, ended.betting, ended.theirs)} " if ended and not step.done else ""
        return before + state_key(env.card, env.betting, env.hidden)
