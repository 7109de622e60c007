"""Environments of Gymnasium whose observations are text, or can be written as text: ``gymnasium:FrozenLake-v1``.

Text observations are shown as they are; otherwise what the environment draws in its mode "ansi". For all others write
the words yourself, in a file of your own that every command then takes as ``my_cart.py:Cart``:

    class Cart(Wrapped):
        ident = "CartPole-v1"
        action_names = ("left", "right")
        def show(self, observation, info):
            return f"The pole leans by {observation[2]:.2f}."

`turns` and `won` can be its own too: docs/adapters.md.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mulligan.envs.adapters import library
from mulligan.envs.base import action_text
from mulligan.errors import ParameterError, UsageError
from mulligan.types import ParamValue, Step, Task

_TURNS = 100
"""Where the environment itself has no limit."""
_LONGEST_RULES = 1_500
_SEEDS_EACH = 1_000_000_000
"""Seeds of training, of validation and of evaluation (`mulligan.rollout.tasksets`)."""
_COLOURED = re.compile(r"\x1b\[[\d;]*m([^\x1b]*)\x1b\[0m")
"""What a terminal would show in colour, as a player's place."""


def adapt(ident: str) -> type:
    """The environment that Gymnasium registers as `ident`."""
    gym = library("gymnasium", f"gymnasium:{ident}")
    try:
        found = gym.spec(ident)
    except gym.error.Error as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f"gymnasium has no environment {ident!r}: {said}") from None
    turns = found.max_episode_steps or _TURNS
    return type("Adapted", (Wrapped,), {"__doc__": f"{ident} of Gymnasium.", "ident": ident, "turns": turns})


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
        self.draws = self._can_draw()
        self.env = self._make()
        self.names = self._names()
        self.over = False
        self.seen = self.reset()

    # What a subclass may change -------------------------------------------------------------------------------------

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
        about = inspect.getdoc(type(self.env.unwrapped)) or ""
        about = about.partition("## Observation Space")[0].strip()[:_LONGEST_RULES]
        how = f"one of: {', '.join(self.names)}" if self.names else "the text of your action"
        example = self.names[0] if self.names else "..."
        return f"{self.ident}\n{about}\n\nAnswer with {how}, as in <action>{example}</action>"

    # ----------------------------------------------------------------------------------------------------------------

    def reset(self, chance: int = 0) -> str:
        observation, info = self.env.reset(seed=narrow_seed(self.task.seed))
        self.over = False
        self.seen = self.show(observation, info)
        return self.seen

    def step(self, reply: str) -> Step:
        said = action_text(reply)
        action = None if said is None else self._read(said)
        if action is None or self.over:
            why = "The episode is over." if self.over else f"Not an action; answer with {self._allowed()}."
            return Step(self.seen, valid=False, state_key=self.seen, feedback=why)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seen = self.show(observation, info)
        self.over = bool(terminated or truncated)
        solved = self.over and self.won(float(reward), bool(terminated), info)
        return Step(self.seen, float(reward), self.over, solved, state_key=self.seen)

    @property
    def legal(self) -> Callable[[], Sequence[str]]:
        """Only where actions have names: what is said in words of one's own cannot be listed."""
        if not self.names:
            raise AttributeError(f"gymnasium:{self.ident} takes any text")
        return self._moves

    def _moves(self) -> Sequence[str]:
        return [] if self.over else [f"<action>{name}</action>" for name in self.names]

    def _can_draw(self) -> bool:
        """Whether the environment draws itself in characters."""
        found = self.gym.spec(self.ident)
        entry = found.entry_point
        try:
            made = self.gym.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
        except Exception as error:  # a simulator that is not installed
            said = str(error).partition("\n")[0]
            raise UsageError(f"gymnasium cannot make {self.ident}: {said}") from error
        return "ansi" in getattr(made, "metadata", {}).get("render_modes", ())

    def _make(self) -> Any:
        mode = {"render_mode": "ansi"} if self.draws else {}
        try:
            return self.gym.make(self.ident, disable_env_checker=True, **{**mode, **self.options})
        except Exception as error:
            said = str(error).partition("\n")[0]
            raise UsageError(
                f"gymnasium cannot make {self.ident} with {self.options or 'no options'}: {said}"
            ) from error

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

    def _read(self, said: str) -> Any:
        if self.names:
            named = {name.lower(): number for number, name in enumerate(self.names)}
            number = named.get(said.lower())
            return None if number is None else int(self.env.action_space.start) + number
        return said if self.env.action_space.contains(said) else None

    def _allowed(self) -> str:
        return f"one of {', '.join(self.names)}" if self.names else "a text that the environment takes"


def narrow_seed(seed: int) -> int:
    """A seed of 31 bits, since some environments take no more: 29 within its set, and two for which set it is of.

    0 stays 0, and 3,000,000,000, the first of evaluation, is 3 * 2**29: no other set has that seed.
    """
    seed_set, number = divmod(seed, _SEEDS_EACH)
    return seed_set % 4 * 2**29 + number % 2**29


def _options(ident: str, text: str) -> dict[str, Any]:
    """``is_slippery=False, map_name='8x8'`` as a dictionary; JSON is understood too."""
    if not text.strip():
        return {}
    try:
        if text.lstrip().startswith("{"):
            found = json.loads(text)
        else:
            call = ast.parse(f"options({text})", mode="eval").body
            assert isinstance(call, ast.Call)
            found = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            if call.args:
                raise ValueError
    except (ValueError, SyntaxError):
        raise ParameterError(
            f"gymnasium:{ident}: options={text!r} cannot be read; give NAME=VALUE, NAME=VALUE"
        ) from None
    return dict(found)
