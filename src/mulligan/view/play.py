"""A person plays the task of a stored trial, beside the agent: a few games at a time, in memory alone."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import UsageError
from mulligan.types import Step, Trial
from mulligan.view.trials import Drawer, cut, drawer
from mulligan.view.worlds import first_observation, legal_replies, refuse_others, step, world_of

MOST_GAMES = 16
"""Beyond these, the one that was played least lately is given up."""
ATTEMPTS = 3
"""At the least: as many as the agent had, if it had more."""
LONGEST_MOVE = 2_000
_MOST_LISTED = 100
_TAGS = ("<action>", "</action>")


@dataclass
class Game:
    """One person at one task."""

    trial: Trial
    attempts: int
    is_fresh: bool
    """Whether luck is drawn anew for each attempt."""
    world: Env
    draw: Drawer
    timeout_reward: float
    attempt: int = 0
    seen: list[str] = field(default_factory=list)
    """Observations of this attempt."""
    last: Step | None = None
    taken: int = 0
    reward: float = 0.0
    outcome: str = ""
    """Of this attempt, once it is over."""
    past: list[str] = field(default_factory=list)
    """Outcomes of the attempts that are over."""
    busy: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, trial: Trial) -> Game:
        task = trial.task
        refuse_others(task)
        spec, world = registry.spec(task.env), world_of(task)
        game = cls(
            trial, max(ATTEMPTS, len(trial.episodes)), spec.restart == "fresh", world, drawer(task), spec.timeout_reward
        )
        game.begin()
        return game

    def begin(self) -> None:
        """Begin the present attempt."""
        if 0 < self.attempt <= len(self.trial.related):
            self.world = world_of(self.trial.related[self.attempt - 1])
        self.seen = [first_observation(self.world, self.attempt if self.is_fresh else 0)]
        self.last, self.taken, self.reward, self.outcome = None, 0, 0.0, ""

    def move(self, text: str) -> None:
        if self.outcome:
            raise UsageError("this attempt is over")
        reply = text if _TAGS[0] in text else f"{_TAGS[0]}{text}{_TAGS[1]}"
        self.last = step(self.world, reply)
        if not self.last.valid:  # as at the terminal: what a person mistypes costs no turn
            return
        self.taken += 1
        self.reward += self.last.reward
        self.seen.append(self.last.observation)
        if self.last.done or self.taken >= self.trial.task.turns:
            self.reward += 0.0 if self.last.done else self.timeout_reward
            self.outcome = self._outcome(self.last)
            self.past.append(self.outcome)

    def _outcome(self, last: Step) -> str:
        if not last.done:
            return "out of turns"
        is_versus = registry.spec(self.trial.task.env).kind == "versus"
        is_drawn = is_versus and getattr(self.world, "drawn", self.reward == 0)
        return "won" if last.won else "drawn" if is_drawn else "lost"

    def go_on(self) -> None:
        if not self.outcome or self.attempt + 1 >= self.attempts:
            raise UsageError("there is no next attempt now")
        self.attempt += 1
        self.begin()

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        legal = [] if self.outcome else legal_replies(self.world)
        return {
            "attempt": self.attempt + 1,
            "attempts": self.attempts,
            "turn": self.taken + 1,
            "turns": self.trial.task.turns,
            "rules": cut(str(self.world.rules())),
            "seen": cut(self.seen[-1]),
            "drawing": self.draw(self.seen),
            "moves": [reply.replace(_TAGS[0], "").replace(_TAGS[1], "") for reply in legal][:_MOST_LISTED],
            "feedback": cut(self.last.feedback) if self.last is not None else "",
            "valid": self.last is None or self.last.valid,
            "reward": self.reward,
            "outcome": self.outcome,
            "past": self.past,
        }


class Games:
    """The games that people play at the moment, by an id that nobody can guess."""

    def __init__(self) -> None:
        self._games: OrderedDict[str, Game] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, trial: Trial) -> dict[str, Any]:
        game, name = Game.of(trial), secrets.token_hex(16)
        with self._lock:
            self._games[name] = game
            while len(self._games) > MOST_GAMES:
                self._games.popitem(last=False)
        return {"game": name, **game.state()}

    def move(self, name: str, text: str) -> dict[str, Any]:
        if not text.strip() or len(text) > LONGEST_MOVE:
            raise UsageError(f"a move must have 1 to {LONGEST_MOVE} characters (got {len(text)})")
        game = self._game(name)
        with game.busy:
            game.move(text.strip())
            return {"game": name, **game.state()}

    def go_on(self, name: str) -> dict[str, Any]:
        game = self._game(name)
        with game.busy:
            game.go_on()
            return {"game": name, **game.state()}

    def _game(self, name: str) -> Game:
        with self._lock:
            if name not in self._games:
                raise UsageError("this game is over: others were begun since; begin it again")
            self._games.move_to_end(name)
            return self._games[name]
