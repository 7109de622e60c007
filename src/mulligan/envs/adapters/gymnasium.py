"""Environments of Gymnasium whose observations are text, or can be written as text: ``gymnasium:FrozenLake-v1``.

Text observations are shown as they are; otherwise what the environment draws in its mode "ansi". For all others write
the words yourself, in a file of your own that every command then takes as ``my_cart.py:Cart``:

    class Cart(Wrapped):
        ident = "CartPole-v1"
        action_names = ("left", "right")
        def show(self, observation, info):
            return f"The pole leans by {observation[2]:.2f}."

`turns` and `won` can be its own too: docs/adapters.md. The other way round, `as_gymnasium` makes any task of Mulligan
an environment of Gymnasium.
"""

from __future__ import annotations

import ast
import inspect
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, cast

from mulligan.envs import registry
from mulligan.envs.adapters import Listed
from mulligan.envs.base import LONGEST_REPLY, action_text, library
from mulligan.errors import ParameterError, UsageError
from mulligan.types import ParamValue, Step, Task

_TURNS = 100
"""Where the environment itself has no limit."""
_LONGEST_RULES = 1_500
_SEEDS_EACH = 1_000_000_000
"""Seeds of training, of validation and of evaluation (`mulligan.rollout.tasksets`)."""
_COLOURED = re.compile(r"\x1b\[[\d;]*m([^\x1b]*)\x1b\[0m")
"""What a terminal would show in colour, as the cell that a player is in."""


def adapt(ident: str) -> type:
    """The environment that Gymnasium registers as `ident`."""
    gym = library("gymnasium", f"gymnasium:{ident}")
    try:
        turns = gym.spec(ident).max_episode_steps or _TURNS
    except gym.error.Error as error:
        raise UsageError(f"gymnasium has no environment {ident!r}: {_first_line(error)}") from None
    return type("Adapted", (Wrapped,), {"__doc__": f"{ident} of Gymnasium.", "ident": ident, "turns": turns})


def catalogue() -> Iterator[Listed]:
    """Every environment that draws itself in characters; which observations are text is known only when it is made."""
    gym = library("gymnasium", "gymnasium")
    for ident, spec in sorted(gym.registry.items()):
        with suppress(UsageError):  # a simulator that is not installed
            if _draws(creator := _creator(gym, spec)):
                yield Listed(ident, 1, (inspect.getdoc(creator) or "").strip().partition("\n")[0])


def _creator(gym: Any, spec: Any) -> Any:
    """The class of an environment, or the function that makes it."""
    entry = spec.entry_point
    try:
        return gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception as error:  # a simulator that is not installed
        raise UsageError(f"gymnasium cannot make {spec.id}: {_first_line(error)}") from error


def _draws(creator: Any) -> bool:
    """Whether an environment draws itself in characters."""
    return "ansi" in getattr(creator, "metadata", {}).get("render_modes", ())


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class Wrapped:
    """An environment of Gymnasium, as text. The seed fixes everything: every episode of a trial is the same again."""

    ident: ClassVar[str]
    """What Gymnasium calls it."""
    turns: ClassVar[int] = _TURNS
    defaults: ClassVar[dict[str, ParamValue]] = {"options": ""}
    """`options` go to ``gymnasium.make``: ``is_slippery=False, map_name='8x8'``."""
    action_names: ClassVar[Sequence[str]] = ()
    """Names of discrete actions; without them their numbers are the names."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.gym = library("gymnasium", f"gymnasium:{self.ident}")
        self.options = _options(self.ident, task.text("options"))
        self.draws = _draws(_creator(self.gym, self.gym.spec(self.ident)))
        self.env = self._make()
        self.names = self._names()
        self.reset()

    # What a subclass may change: show, won, rules.

    def show(self, observation: Any, info: Mapping[str, Any]) -> str:
        """The observation in words."""
        if isinstance(observation, str):
            return observation
        if self.draws:
            return _COLOURED.sub(r"[\1]", str(self.env.render())).strip("\n")
        raise UsageError(
            f"gymnasium:{self.ident} shows {type(observation).__name__} and no text: write show() for it, as "
            "mulligan.envs.adapters.gymnasium says"
        )

    def won(self, reward: float, terminated: bool, info: Mapping[str, Any]) -> bool:
        """Whether a step that ended the episode solved the task."""
        return terminated and reward > 0

    def rules(self) -> str:
        text = inspect.getdoc(type(self.env.unwrapped)) or ""
        text = text.partition("## Observation Space")[0].strip()[:_LONGEST_RULES]
        how = f"one of: {', '.join(self.names)}" if self.names else "the text of your action"
        example = self.names[0] if self.names else "..."
        return f"{self.ident}\n{text}\n\nAnswer with {how}, as in <action>{example}</action>"

    def reset(self, chance: int = 0) -> str:
        observation, info = self.env.reset(seed=narrow_seed(self.task.seed))
        self.over = False
        self.seen = self.show(observation, info)
        return self.seen

    def step(self, reply: str) -> Step:
        text = action_text(reply)
        action = None if text is None else self._read(text)
        if action is None or self.over:
            allowed = f"one of {', '.join(self.names)}" if self.names else "a text that the environment takes"
            why = "The episode is over." if self.over else f"Not an action; answer with {allowed}."
            return Step(self.seen, valid=False, state_key=self.seen, feedback=why)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seen = self.show(observation, info)
        self.over = bool(terminated or truncated)
        won = self.over and self.won(float(reward), bool(terminated), info)
        return Step(self.seen, float(reward), self.over, won, state_key=self.seen)

    @property
    def legal(self) -> Callable[[], Sequence[str]]:
        """Only where actions have names: free text cannot be listed."""
        if not self.names:
            raise AttributeError(f"gymnasium:{self.ident} takes any text")
        return lambda: [] if self.over else [f"<action>{name}</action>" for name in self.names]

    def _make(self) -> Any:
        options = {**({"render_mode": "ansi"} if self.draws else {}), **self.options}
        try:
            return self.gym.make(self.ident, disable_env_checker=True, **options)
        except Exception as error:
            given = self.options or "no options"
            raise UsageError(f"gymnasium cannot make {self.ident} with {given}: {_first_line(error)}") from error

    def _names(self) -> tuple[str, ...]:
        space = self.env.action_space
        if isinstance(space, self.gym.spaces.Discrete):
            names = self.action_names or [str(int(space.start) + number) for number in range(int(space.n))]
            if len(names) != space.n:
                raise UsageError(f"gymnasium:{self.ident} has {space.n} actions, and action_names has {len(names)}")
            return tuple(names)
        if isinstance(space, self.gym.spaces.Text):
            return ()
        raise UsageError(f"gymnasium:{self.ident} takes actions of {space}: only discrete ones and text can be played")

    def _read(self, text: str) -> Any:
        if not self.names:
            return text if self.env.action_space.contains(text) else None
        first = int(self.env.action_space.start)
        return {name.lower(): number for number, name in enumerate(self.names, first)}.get(text.lower())


def narrow_seed(seed: int) -> int:
    """A seed of 31 bits, since some environments take no more: 29 within its set, and two for which set it is of."""
    seed_set, number = divmod(seed, _SEEDS_EACH)
    return seed_set % 4 * 2**29 + number % 2**29


def _options(ident: str, text: str) -> dict[str, Any]:
    """``is_slippery=False, map_name='8x8'`` as a dictionary."""
    try:
        call = cast(ast.Call, ast.parse(f"options({text})", mode="eval").body)
        if call.args:
            raise ValueError
        return {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
    except (ValueError, SyntaxError):
        raise ParameterError(f"gymnasium:{ident}: options must be NAME=VALUE, NAME=VALUE (got {text!r})") from None


def as_gymnasium(task: Task) -> Any:
    """A `gymnasium.Env` that plays `task`: replies in, observations out, both text.

    The rules are in ``info["rules"]`` of every reset. A reply that is not valid costs a turn, as in a trial.
    ``reset(options={"chance": 1})`` redraws chance where there is any; its seed is not used: the task has its own.

    >>> env = mulligan.as_gymnasium(mulligan.make_task("bandit", params={"arms": 2}))
    >>> env.reset()[0]
    'No arm pulled yet.'
    """
    gymnasium = library("gymnasium", "as_gymnasium")

    class AnyText(gymnasium.spaces.Text):  # type: ignore[misc,name-defined]
        """Whatever the characters."""

        def contains(self, x: Any) -> bool:
            return isinstance(x, str) and len(x) <= LONGEST_REPLY

    class TaskEnv(gymnasium.Env):  # type: ignore[misc,name-defined]
        """One task of Mulligan."""

        observation_space = action_space = AnyText(min_length=0, max_length=LONGEST_REPLY, charset=string.printable)

        def __init__(self) -> None:
            self.task, self.world, self.turns_left = task, registry.build(task), 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            super().reset(seed=seed)
            self.turns_left = task.turns
            return self.world.reset(int((options or {}).get("chance", 0))), {"rules": self.world.rules()}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            if self.turns_left <= 0:
                raise gymnasium.error.ResetNeeded("the episode is over; call reset()")
            step = self.world.step(action)
            self.turns_left = 0 if step.done else self.turns_left - 1
            truncated = not step.done and self.turns_left == 0
            reward = step.reward + (registry.spec(task.env).timeout_reward if truncated else 0.0)
            info = {name: getattr(step, name) for name in ("won", "valid", "feedback", "state_key")}
            return step.observation, reward, step.done, truncated, info

    return TaskEnv()
