"""A repeated game as an environment: parameters, parser and play of one match; a subclass says which game it is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import ClassVar, Self

from mulligan.envs.base import Player, action_text, check_choices, check_range, check_turns_of
from mulligan.envs.opponents import (
    ask,
    ask_move,
    at_episode,
    chances_of,
    check_models,
    guest_mover,
    is_guest,
    parse_pool,
    settle_opponent,
    split_switch,
)
from mulligan.envs.repeated.habits import Guest, Habit, Habitual, Opponent
from mulligan.envs.repeated.model import HabitModel, Payoffs
from mulligan.errors import UnknownName
from mulligan.seeding import derive, generator
from mulligan.types import Episode, ParamValue, Step, Task

LONGEST = 1_000
"""Rounds of a match."""
_SHOWN = 20
"""Rounds, the last ones, that an observation lists."""
_LONGEST_KEY = 40
"""Rounds that a state key spells out; a longer match has a hash in their place."""


class RepeatedGame:
    """A match of several rounds against one opponent; the subclasses say which game it is."""

    kind: ClassVar[str] = "versus"
    name: ClassVar[str]
    unit: ClassVar[str]
    """What a round is called; the parameter of their number is its plural."""
    moves: ClassVar[tuple[str, ...]]
    letters: ClassVar[str]
    """A letter for each move in the compact view, of those that begin a cell (a to h)."""
    payoffs: ClassVar[Payoffs]
    habits: ClassVar[Mapping[str, Habit]]
    groups: ClassVar[Mapping[str, Sequence[str]]]
    """Names for several opponents."""
    lookahead: ClassVar[int]
    """Rounds that the scripted player looks ahead."""

    @property
    def opponent_words(self) -> dict[str, str]:
        return {name: habit.words for name, habit in self.habits.items()}

    def __init__(self, task: Task) -> None:
        self.task, self.rounds = task, task.integer(f"{self.unit}s")
        self.compact = task["view"] == "compact"
        self.reset()

    @property
    def replies(self) -> list[str]:
        return [f"<action>{word}</action>" for word in (self.letters if self.compact else self.moves)]

    @classmethod
    def settle(cls, params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters, and draw the opponent; a match has a turn for each round."""
        check_choices(cls.name, params, {"view": ("plain", "compact")})
        check_range(cls.name, params, f"{cls.unit}s", 1, LONGEST)
        settled = settle_opponent(cls.name, params, seed, cls.check_opponent, cls.members)
        return {**settled, "turns": params[f"{cls.unit}s"]}

    @classmethod
    def check_turns(cls, params: Mapping[str, ParamValue], turns: int) -> None:
        check_turns_of(cls.name, params, f"{cls.unit}s", int(params[f"{cls.unit}s"]), turns)

    @classmethod
    def members(cls, part: str) -> Sequence[str]:
        return cls.groups.get(part, (part,))

    @classmethod
    def pool(cls, spec: str) -> list[tuple[str, float]]:
        """Every opponent that a spec names, with its weight."""
        return parse_pool(cls.name, spec, cls.check_opponent, cls.members)

    @classmethod
    def check_opponent(cls, name: str) -> None:
        if name not in cls.habits:
            raise UnknownName(f"opponent of {cls.name}", name, [*cls.habits, *cls.groups])

    @classmethod
    def task_class(cls, params: Mapping[str, ParamValue]) -> str:
        return f"{cls.name}/vs-{params['opponent']}"

    def rules(self) -> str:
        lines = [self.explained(), f"Answer with {' or '.join(self.replies)}"]
        if self.compact:
            named = [f"{letter} or {number} is {move}" for number, (letter, move) in enumerate(self._named(), 1)]
            lines += [
                f"Your moves are letters, those of the opponent numbers: {', '.join(named)}.",
                f"{self._cell(0, 1)} is a {self.unit} in which you played {self.moves[0]} and the opponent "
                f"{self.moves[1]}; {self._cell(0, 1)}=1 says that its next move was {self.moves[0]}.",
            ]
        return "\n".join(lines)

    def explained(self) -> str:
        """The game in words."""
        raise NotImplementedError

    def standing(self) -> str:
        """The score in words."""
        raise NotImplementedError

    def reset(self, chance: int = 0) -> str:
        self.played: list[tuple[int, int]] = []
        """The rounds so far: the agent's move, and the opponent's."""
        self.opponent_name = at_episode(self.task.text("opponent"), chance)
        self.opponent = self.make_opponent(self.opponent_name, chance)
        self._coming: int | None = None
        return self.observe()

    def make_opponent(self, name: str, chance: int) -> Opponent:
        if is_guest(name):
            return Guest(guest_mover(self, name, chance))
        return Habitual(self.habits[name], generator(self.task.seed, "chance", chance))

    def step(self, reply: str) -> Step:
        mine, why = self.named(reply)
        if mine is None:
            return Step(self.observe(), valid=False, state_key=self._key(), feedback=why)
        theirs = self.coming()
        reward = self.payoffs.reward(mine, theirs, self.rounds)
        luck = reward - self._expected_reward(mine)
        self._coming = None
        self.played.append((mine, theirs))
        ask(self.opponent_name, self.opponent.see, theirs, mine)
        return Step(self.observe(), reward, self.over, self.won, state_key=self._key(), luck=luck)

    def _expected_reward(self, mine: int) -> float:
        """What a move earns in the round to come, on average over the dice of the opponent's habit; what it does earn
        where the opponent has none."""
        rewards = [self.payoffs.reward(mine, theirs, self.rounds) for theirs in range(len(self.moves))]
        if not isinstance(self.opponent, Habitual):
            return rewards[self.coming()]
        return sum(chance * reward for chance, reward in zip(self.opponent.chances(), rewards, strict=True))

    def named(self, reply: str) -> tuple[int | None, str]:
        """The move that a reply names, or None and why."""
        word = (action_text(reply) or "").lower()
        if self.over:
            return None, "The match is over."
        moves = [number for number, names in enumerate(self._named()) if word in names]
        return (moves[0], "") if moves else (None, f"Answer with {' or '.join(self.replies)}")

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        """The match as the opponent sees it."""
        other = copy(self)
        other.played = [(theirs, mine) for mine, theirs in self.played]
        other.compact = params.get("view") == "compact"
        return other

    def position(self) -> Step:
        """What the player is told now, with what the rounds so far have paid."""
        paid = sum(self.payoffs.reward(mine, theirs, self.rounds) for mine, theirs in self.played)
        return Step(self.observe(), paid, self.over, self.won, state_key=self._key())

    def coming(self) -> int:
        """The opponent's next move, which only the omniscient player may look at."""
        if self._coming is None:
            self._coming = ask_move(self.name, self.opponent_name, self.opponent.move, range(len(self.moves)))
        return self._coming

    @property
    def over(self) -> bool:
        return len(self.played) == self.rounds

    @property
    def score(self) -> int:
        return sum(self.payoffs.points[mine][theirs] for mine, theirs in self.played)

    @property
    def won(self) -> bool:
        return self.over and self.score > self.payoffs.par * self.rounds

    @property
    def drawn(self) -> bool:
        return self.over and self.score == self.payoffs.par * self.rounds

    def legal(self) -> Sequence[str]:
        return [] if self.over else self.replies

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.repeated.player import Reader

        return Reader(self, kind, rng, skill, recall)

    def model(self) -> HabitModel:
        """The game as probabilities (`mulligan.envs.model`), for an agent that expects the pool."""
        pool = self.pool(self.task.text("pool"))
        habits = self.habits
        check_models(self.name, [n for n in self.habits_of(pool) if n not in habits or not habits[n].has_model])
        return HabitModel(self.habits, self.payoffs, self.rounds, tuple(pool), tuple(self.replies))

    def expected(self) -> dict[str, float]:
        """The opponents that the task was drawn from, with their probabilities."""
        return chances_of(self.name, self.task.text("pool"), self.check_opponent, self.members)

    @staticmethod
    def habits_of(pool: Sequence[tuple[str, float]]) -> dict[str, float]:
        """Who may play, with the weights; of those that change, both."""
        weights: dict[str, float] = {}
        for name, weight in pool:
            for each in filter(None, split_switch(name)[:2]):
                weights[each] = weights.get(each, 0.0) + weight
        return weights

    def digest(self, episode: Episode) -> str:
        """What the opponent did, most of all after which moves; of the match that has just been played."""
        if self.compact:
            return f"{' '.join(self._facts()[-_SHOWN:])} {self.outcome()}".strip()
        return f"{self._listed()}\n{self.standing()} {self.reactions()}".strip()

    def reactions(self) -> str:
        """How often the opponent played what, after each of the agent's moves and after each of its own."""
        lines = []
        for side, whose in ((0, "your"), (1, "its own")):
            for move, name in enumerate(self.moves):
                counts = Counter(self.moves[then[1]] for before, then in pairwise(self.played) if before[side] == move)
                if counts:
                    listed = ", ".join(f"{each} {count}" for each, count in sorted(counts.items()))
                    lines.append(f"After {whose} {name} it played {listed}.")
        return " ".join(lines)

    def outcome(self) -> str:
        return "not finished" if not self.over else "won" if self.won else "drawn" if self.drawn else "lost"

    def _named(self) -> list[tuple[str, str]]:
        """[move] its letter and its name."""
        return list(zip(self.letters, self.moves, strict=True))

    def _cell(self, mine: int, theirs: int) -> str:
        return f"{self.letters[mine]}{theirs + 1}"

    def _facts(self) -> list[str]:
        """The first round, and what the opponent played after each: ``b2 b2=1``."""
        cells = [self._cell(*each) for each in self.played]
        after = [f"{cell}={theirs + 1}" for cell, (_, theirs) in zip(cells, self.played[1:], strict=False)]
        return cells[:1] + after

    def observe(self) -> str:
        if self.compact:
            latest = [self._cell(*each) for each in self.played[-1:]]
            return " ".join([*self._facts()[1:][-1:], *latest]) or " ".join(self.letters)
        number = len(self.played) + 1
        now = "The match is over." if self.over else f"{self.unit.capitalize()} {number} of {self.rounds}."
        return f"{self._listed()}\n{self.standing()} {now}"

    def _listed(self) -> str:
        listed = ", ".join(f"{self.moves[mine]}/{self.moves[theirs]}" for mine, theirs in self.played[-_SHOWN:])
        which = f"The last {_SHOWN}" if len(self.played) > _SHOWN else "So far"
        return f"{which} (you/opponent): {listed or 'nothing'}"

    def _key(self) -> str:
        cells = [self._cell(*each) for each in self.played]
        if len(cells) > _LONGEST_KEY:
            cells = [f"{derive(*cells):x}", cells[-1]]
        return " ".join(cells)
