"""Games in which two choose at the same time, again and again: what `rps` and `dilemma` share.

An opponent with a habit is a small automaton: each state has the chances of its next move, and both moves lead to the
next state. So whoever knows the habits can compute with them: the scripted player, and the exact optimum.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from mulligan.envs.base import (
    Player,
    action_text,
    check_choices,
    check_range,
    check_turns_of,
    draw,
    pick,
    reflection_text,
)
from mulligan.envs.model import Outcome
from mulligan.envs.opponents import (
    HIDDEN_SWITCHES,
    ask,
    ask_move,
    at_episode,
    chances_of,
    check_models,
    guest_mover,
    is_guest,
    is_hidden,
    parse_pool,
    settle_opponent,
    split_switch,
)
from mulligan.errors import StopReason, UnknownName
from mulligan.seeding import derive, generator
from mulligan.types import Episode, ParamValue, Step, Task

LONGEST = 1_000
"""Rounds of a match."""
_SHOWN = 20
"""Rounds, the last ones, that an observation lists."""
_LONGEST_KEY = 40
"""Rounds that a state key spells out; a longer match has a hash in their place."""
_SURPRISE = 0.01
"""Added to each chance when the scripted player learns: an opponent may have none of the habits that it expects."""
_LIKELY = 0.5
_TIE = 1e-9


class Habit(NamedTuple):
    """A way of playing."""

    words: str
    """What the opponent does: "it …"."""
    start: Hashable
    """The state in which a match begins."""
    chances: Callable[[Any], Sequence[float]]
    """State -> the chance of each move."""
    after: Callable[[Any, int, int], Hashable]
    """State, the opponent's move, the agent's move -> the next state."""
    few_states: bool = True
    """Whether it has so few that all can be gone through, and exact values computed."""


class Opponent(Protocol):
    """Who plays the other side of one match."""

    def move(self) -> int:
        """The number of its next move."""

    def see(self, own: int, agents: int) -> None:
        """What both have played."""


class Habitual:
    """Plays a habit."""

    def __init__(self, habit: Habit, rng: random.Random) -> None:
        self.habit, self.rng, self.state = habit, rng, habit.start

    def chances(self) -> Sequence[float]:
        """Of its next move."""
        return self.habit.chances(self.state)

    def move(self) -> int:
        return draw(self.rng, self.chances())

    def see(self, own: int, agents: int) -> None:
        self.state = self.habit.after(self.state, own, agents)


class Guest:
    """A policy, which sees what was played by itself."""

    def __init__(self, move: Callable[[], int]) -> None:
        self.move = move

    def see(self, own: int, agents: int) -> None:
        pass


class Payoffs(NamedTuple):
    """What a match pays."""

    points: Sequence[Sequence[int]]
    """[the agent's move][the opponent's move]"""
    most: int
    """Points of a round that pay 1; a match pays the mean of its rounds."""
    par: int
    """Points a round with which a match is drawn; with more it is won."""

    def reward(self, mine: int, theirs: int, rounds: int) -> float:
        return self.points[mine][theirs] / self.most / rounds


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
        return Reader(self, kind, rng, skill, recall)

    def model(self) -> HabitModel:
        """The game as probabilities (`mulligan.envs.model`), for an agent that expects the pool."""
        pool = self.pool(self.task.text("pool"))
        habits = self.habits
        check_models(self.name, [n for n in self.habits_of(pool) if n not in habits or not habits[n].few_states])
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


class State(NamedTuple):
    """Where a match stands."""

    mind: Hashable
    """The habit's state."""
    played: int
    """Rounds so far."""
    margin: int
    """Points above those of a drawn match: it is won if there are any in the end."""


@dataclass(frozen=True)
class HabitModel:
    """The game as a model: a world is who plays, as far as it still lies ahead (``copies>beats@2``)."""

    habits: Mapping[str, Habit]
    payoffs: Payoffs
    rounds: int
    pool: tuple[tuple[str, float], ...]
    replies: tuple[str, ...]

    def worlds(self) -> list[tuple[float, str]]:
        """Of each name once, with its weight; a switch at a hidden episode may be at each of them."""
        total = sum(weight for _, weight in self.pool)
        weights: dict[str, float] = {}
        for name, weight in self.pool:
            names = [f"{name}@{episode}" for episode in HIDDEN_SWITCHES] if is_hidden(name) else [name]
            for each in names:
                weights[each] = weights.get(each, 0.0) + weight / total / len(names)
        return [(weight, name) for name, weight in weights.items() if weight > 0.0]

    def between(self, world: str) -> list[tuple[float, str]]:
        first_and_then, at, episode = world.partition("@")
        if not at:
            return [(1.0, world)]
        return [(1.0, first_and_then.partition(">")[2] if episode == "2" else f"{first_and_then}@{int(episode) - 1}")]

    def begin(self, world: str) -> State:
        return State(self.habits[at_episode(world, 0)].start, 0, -self.payoffs.par * self.rounds)

    def actions(self, state: State) -> range:
        return range(len(self.replies))

    def outcomes(self, world: str, state: State, action: int) -> list[Outcome]:
        habit = self.habits[at_episode(world, 0)]
        outcomes, played = [], state.played + 1
        least, most = (bound(map(bound, self.payoffs.points)) * (self.rounds - played) for bound in (min, max))
        for theirs, chance in enumerate(habit.chances(state.mind)):
            points = state.margin + self.payoffs.points[action][theirs]
            margin = max(-most, min(1 - least, points))  # by more than that, nothing can be changed any more
            after = State(habit.after(state.mind, theirs, action), played, margin)
            reward, done = self.payoffs.reward(action, theirs, self.rounds), played == self.rounds
            outcomes.append(Outcome(chance, after, theirs, reward, done, done and margin > 0))
        return outcomes

    def reply(self, action: int) -> str:
        return self.replies[action]

    def told(self, step: Step) -> int:
        """The opponent's move: the last digit of the state key."""
        return int(step.state_key[-1]) - 1


class Guess(NamedTuple):
    """A habit that the opponent may have, the state that it is in then, and how likely that is (not normalised)."""

    habit: Habit
    state: Hashable
    weight: float


def updated(guesses: Sequence[Guess], mine: int, theirs: int, surprise: float = 0.0) -> list[Guess]:
    """The guesses after a round: each weighs as much as it expected the opponent's move (Bayes' rule)."""
    return [
        Guess(habit, habit.after(state, theirs, mine), weight * chance)
        for habit, state, weight in guesses
        if (chance := habit.chances(state)[theirs] + surprise) > 0.0
    ]


def worths(payoffs: Payoffs, guesses: Sequence[Guess], rounds: int) -> list[float]:
    """[move] Points of the next rounds if they begin with it and go on with the best ones, times the total weight."""
    moves = range(len(payoffs.points))
    weights = [0.0 for _ in moves]
    """[their move]"""
    for habit, state, weight in guesses:
        for theirs, chance in enumerate(habit.chances(state)):
            weights[theirs] += weight * chance
    totals = [sum(payoffs.points[move][theirs] * weights[theirs] for theirs in moves) for move in moves]
    if rounds > 1:
        for move, theirs in product(moves, moves):
            if weights[theirs] > 0.0:
                totals[move] += max(worths(payoffs, updated(guesses, move, theirs), rounds - 1))
    return totals


class Reader:
    """Plays the best answer to what it believes of the opponent, from the pool and from what the opponent has done.

    Within a match it remembers everything; of earlier matches, as `recall` says. The omniscient player knows the habit;
    where there is none (a bot), it sees the coming move.
    """

    def __init__(self, world: RepeatedGame, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.world, self.kind, self.rng, self.skill, self.recall = world, kind, rng, skill, recall
        expected = world.habits_of(world.pool(world.task.text("pool")))
        self.weights = {name: weight for name, weight in expected.items() if name in world.habits}
        self.weights = self.weights or dict.fromkeys([*world.groups["seen"], *world.groups["unseen"]], 1.0)
        self.remembered = self.of_match = self._begun(self.weights.values())

    def act(self) -> str:
        world = self.world
        if self.rng.random() >= self.skill:
            return pick(self.rng, world.legal())
        guesses = self.remembered if self.rng.random() < self.recall else self.of_match
        if self.kind == "omniscient":
            guesses = self._certain()
        rounds = min(world.lookahead, world.rounds - len(world.played))
        values = worths(world.payoffs, guesses, rounds)
        best = [reply for reply, value in zip(world.replies, values, strict=True) if value >= max(values) - _TIE]
        return pick(self.rng, best)

    def see(self, step: Step) -> None:
        if step.valid:
            mine, theirs = self.world.played[-1]
            self.remembered, self.of_match = (
                _normal(updated(guesses, mine, theirs, _SURPRISE)) for guesses in (self.remembered, self.of_match)
            )
        if step.done:
            self.remembered = self._begun([guess.weight for guess in self.remembered])
            self.of_match = self._begun(self.weights.values())

    def beliefs(self) -> dict[str, float]:
        """How likely each opponent of the pool is, after all that was seen."""
        return {name: guess.weight for name, guess in zip(self.weights, _normal(self.remembered), strict=True)}

    def reflect(self, episode: Episode) -> str:
        """What the match that has just been played tells, and no more than the player saw."""
        world = self.world
        if world.compact:
            return f"<reflection>{world.digest(episode)}</reflection>"
        outcome = world.outcome()
        category = {"won": "none", "not finished": "other"}.get(outcome, "wrong-move")
        likeliest = max(self.remembered, key=lambda guess: guess.weight)
        plan = "find out what it plays after each of my moves"
        if likeliest.weight >= _LIKELY:
            plan = f"it {likeliest.habit.words}, it seems; play the best answer to that"
        counts = Counter(world.moves[mine] for mine, _ in world.played)
        return reflection_text(
            strategy=", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no move",
            outcome=outcome,
            reward=f"{episode.reward:g}",
            env_answer=f"{world.standing()} {world.reactions()}".strip(),
            error_category="out-of-turns" if episode.stop is StopReason.TURN_LIMIT else category,
            plan=plan,
        )

    def _begun(self, weights: Iterable[float]) -> list[Guess]:
        """At the beginning of a match."""
        habits = [self.world.habits[name] for name in self.weights]
        return [Guess(habit, habit.start, weight) for habit, weight in zip(habits, weights, strict=True)]

    def _certain(self) -> list[Guess]:
        world, opponent = self.world, self.world.opponent
        if isinstance(opponent, Habitual):
            return [Guess(opponent.habit, opponent.state, 1.0)]
        chances = [float(move == world.coming()) for move in range(len(world.moves))]
        return [Guess(Habit("", None, lambda _: chances, lambda *_: None), None, 1.0)]


def _normal(guesses: Sequence[Guess]) -> list[Guess]:
    total = sum(guess.weight for guess in guesses)
    return [guess._replace(weight=guess.weight / total) for guess in guesses]
