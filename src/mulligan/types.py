"""The nouns of Mulligan.

task        one concrete problem: environment + parameters + seed (+ opponent, seat). Rebuilds the same world each time
task class  what baselines are kept by, e.g. ``minesweeper/6x6/3`` or ``kuhn/vs-aggressive``
turn        one observation -> one reply of the agent
episode     turns from a fresh start of the task to its end
reflection  what the agent writes between two episodes; structured, and trained like any other reply
memory      what of earlier episodes the next one sees: none, history, reflection, both; within a token budget
trial       up to N episodes on one task, with the reflections between them: the unit of meta-RL
group       G trials of one task: what group-relative advantages compare
p@k         share of tasks solved within the first k episodes of a trial

Axis letters used in docstrings: G trials of a group, N episodes of a trial, T turns of an episode.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

from mulligan import notebook
from mulligan.errors import Fault, ParameterError, StopReason
from mulligan.settings import AT_LEAST_1, Range, check_fields

ParamValue = bool | int | float | str
Memory = Literal["none", "history", "reflection", "both"]
Stop = Literal["success", "never"]
Restart = Literal["replay", "fresh"]
Kind = Literal["solve", "versus"]
PLAYERS = ("expert", "omniscient")
"""Scripted players that an environment with a player() has if it does not name others (`players`)."""


def plain(value: Any) -> Any:
    """Convert NumPy scalars to Python numbers, so that they can be written as JSON; leave all else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def whole(name: str, value: Any) -> int:
    """`value` as a Python int; `ParameterError` if it is not a whole number."""
    with suppress(TypeError):
        return int(operator.index(value))
    number = plain(value)
    if not (isinstance(number, float) and number.is_integer()):
        raise ParameterError(f"{name} must be a whole number (got {value!r})")
    return int(number)


class Message(TypedDict):
    """One message of a conversation, as every chat interface spells it.

    >>> message: mulligan.Message = {"role": "user", "content": "Open a cell."}
    """

    role: Literal["system", "user", "assistant", "tool"]
    """"tool": what came of the calls in the message before."""
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    """Of an assistant that was offered tools: its calls."""


@dataclass(frozen=True, slots=True)
class Task:
    """One concrete problem, as data. `mulligan.make_task` builds it with all defaults filled in.

    >>> task = mulligan.make_task("kuhn", seed=1, params={"opponent": "aggressive", "seat": 2})
    >>> task.opponent, task.seat
    ('aggressive', 2)
    """

    env: str
    """Registered name, or ``path/to/file.py:ClassName``."""
    seed: int
    """Fixes the world: the same task is the same board, level, opponent and hidden state."""
    turns: int
    """Turns an episode may take; the trial runner ends it there."""
    task_class: str
    """What baselines are kept by."""
    params: tuple[tuple[str, ParamValue], ...] = ()
    """All parameters of the environment, sorted by name."""

    def __getitem__(self, name: str) -> ParamValue:
        return dict(self.params)[name]

    def integer(self, name: str) -> int:
        return int(self[name])

    def text(self, name: str) -> str:
        return str(self[name])

    @property
    def opponent(self) -> str | None:
        """Who the agent plays against, where the game has two sides."""
        return next((str(value) for key, value in self.params if key == "opponent"), None)

    @property
    def seat(self) -> int | None:
        """Which side the agent plays, 1 or 2, where the game has two sides."""
        return next((value for key, value in self.params if key == "seat" and isinstance(value, int)), None)


class Step(NamedTuple):
    """What the environment answers to one reply.

    >>> step = mulligan.make("bandit", params={"arms": 2}).step("a guess")
    >>> step.valid, step.done, step.reward
    (False, False, 0.0)
    """

    observation: str
    """What the agent sees next; at the end of the episode, what it saw last."""
    reward: float = 0.0
    done: bool = False
    won: bool = False
    valid: bool = True
    """False when the reply named no legal action; the world has then not changed."""
    state_key: str = ""
    """The full visible world (or the player's information state) after the step: equal keys, equal situations."""
    feedback: str = ""
    """What the environment says about the reply itself, e.g. why it was not valid."""
    shaping: float = 0.0
    """Progress this step made, as a share of the task. Training may add it, weighted; it never crosses an episode."""
    luck: float = 0.0
    """What of `reward` was luck: the reward less what the reply was to be expected to earn here against this opponent,
    over cards and dice; of an episode its mean is 0 whatever is played. Training learns from `reward - luck`, nothing
    else reads it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn.

    >>> mulligan.Sampling(temperature=0.0)
    Sampling(temperature=0.0, top_p=1.0, max_tokens=512)
    """

    temperature: Annotated[float, "Temperature of sampling.", Range(0, without=math.inf)] = 0.7
    top_p: Annotated[float, "Sample from the most likely tokens of this total probability.", Range(0, 1, without=0)] = (
        1.0
    )
    max_tokens: Annotated[int, "Token limit of a reply.", AT_LEAST_1] = 512

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Tool:
    """What an agent may call in an environment, as model servers and chat templates are told of it.

    >>> mulligan.Tool("open", "Open a cell.").schema()["function"]["name"]
    'open'
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON schema of the arguments: ``{"type": "object", "properties": {"row": {"type": "integer"}}, "required":
    ["row"]}``."""

    def schema(self) -> dict[str, Any]:
        """As chat interfaces take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """A JSON object, if the model keeps to the form."""

    def __str__(self) -> str:
        return f"{self.name} {self.arguments}"


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply of the policy, with what is known about its tokens.

    >>> mulligan.Completion("<action>1</action>").written
    '<action>1</action>'
    """

    text: str
    finish: Literal["stop", "length"] = "stop"
    ids: tuple[int, ...] | None = None
    """The very tokens that were sampled, when the policy knows them."""
    logprobs: tuple[float, ...] | None = None
    """Their log-probabilities under the sampling distribution."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_ids: tuple[int, ...] | None = None
    """The tokens that stood between the reply before and this one; with `ids`, all of the sequence is known."""
    offset: int = 0
    """Tokens of the sequence before `prompt_ids`; 0 where a new sequence begins."""
    mistaken: bool = False
    """Wrong on purpose: a demonstration shows it, and what comes of it, and it is not imitated."""
    reasoning: str = ""
    """What the model thought before it answered, where a server gives that apart from the text."""
    refusal: str = ""
    """Why the model, or the server's filter, would not answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """A model in this process wrote them in its text; a server gives them apart from it."""

    @property
    def written(self) -> str:
        """All that was answered, as text."""
        calls = () if self.ids is not None else map(str, self.tool_calls)
        return "\n".join(filter(None, (self.text, *calls)))


@dataclass(frozen=True, slots=True)
class Turn:
    """One observation, the reply to it, and what came of it.

    >>> task = mulligan.make_task("bandit", seed=3, params={"arms": 2})
    >>> turn = mulligan.run_trial_sync(task, lambda messages: "<action>1</action>", episodes=1).episodes[0].turns[0]
    >>> turn.observation, turn.reply.text, turn.valid
    ('No arm pulled yet.', '<action>1</action>', True)
    """

    observation: str
    reply: Completion
    reward: float
    valid: bool
    state_key: str
    """Key of the state the reply was given in; empty at turn 0, where the context is the same for all."""
    feedback: str = ""
    shaping: float = 0.0
    fault: Fault | None = None
    luck: float = 0.0


@dataclass(frozen=True, slots=True)
class Reflection:
    """What the agent wrote between two episodes.

    >>> mulligan.Reflection("Arm 1 pays nothing.", valid=True).text
    'Arm 1 pays nothing.'
    """

    text: str
    """As written, without the tags."""
    valid: bool
    """False when it did not keep the asked-for form; the text is kept all the same."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The parts that could be told apart: see `mulligan.trial.reflection.FIELDS`."""
    completion: Completion | None = None
    """The reply it was read from; None when somebody else supplied the text (a control)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Turns from a fresh start of the task to its end.

    >>> task = mulligan.make_task("bandit", seed=3, params={"arms": 2})
    >>> episode = mulligan.run_trial_sync(task, lambda messages: "no action", episodes=1).episodes[0]
    >>> episode.won, episode.reward, episode.turns[0].valid
    (False, 0.0, False)
    """

    index: int
    """0 for the first episode of the trial."""
    turns: tuple[Turn, ...]
    final: str
    """The last observation, after the last turn."""
    stop: StopReason
    opening: tuple[Message, ...] = ()
    """The messages that were new to the agent when this episode began."""
    continues: bool = False
    """True when the episode went on in the message sequence of the one before."""
    reflection: Reflection | None = None
    """Written after this episode, for the next one."""
    error: str = ""
    """What was raised, where `stop` is a failure of the infrastructure, or where there is no reflection."""
    unreflected: bool = False
    """True when the reflection was asked for and the request failed: the next episode knew less than it should have."""
    forfeit: float = 0.0
    """What an episode without a turn paid: in a game, a context that is full at once costs what losing does."""
    by_stand_in: bool = False
    """True when somebody else played it in the agent's place, to find what the agent would not have tried."""
    expected: float | None = None
    """The reward that was to be expected before luck was drawn, where an evaluation computed it (`eval.exact`)."""

    @property
    def won(self) -> bool:
        return self.stop is StopReason.WON

    @property
    def reward(self) -> float:
        """Sum of the task's rewards, undiscounted."""
        return float(sum((turn.reward for turn in self.turns), self.forfeit))

    @property
    def value(self) -> float:
        """What the episode counts in an evaluation: the expected reward where it is known, otherwise the reward."""
        return self.reward if self.expected is None else self.expected


@dataclass(frozen=True, slots=True, repr=False)
class Trial(notebook.Shown):
    """Up to N episodes on one task.

    >>> task = mulligan.make_task("bandit", seed=3, params={"arms": 2})
    >>> trial = mulligan.run_trial_sync(task, lambda messages: "no action", episodes=2)
    >>> trial.solved_at is None, len(trial.rows())
    (True, 2)
    """

    task: Task
    episodes: tuple[Episode, ...]
    memory: Memory
    seed: int = 0
    """Seed of the policy's sampling in this trial."""
    index: int = 0
    """Which of the task's trials this is: 0 … G-1 within a group."""
    related: tuple[Task, ...] = ()
    """Tasks of the second and later episodes, where they were others of the same class."""

    @property
    def solved_at(self) -> int | None:
        """Index of the first episode that was won; None when there is none."""
        return next((episode.index for episode in self.episodes if episode.won), None)

    @property
    def failed(self) -> bool:
        """True when some part of it failed for reasons outside the agent and the task."""
        return any(episode.stop.is_infrastructure or episode.unreflected for episode in self.episodes)

    def rows(self) -> list[dict[str, object]]:
        """A row for each episode."""
        return [
            {
                "episode": episode.index + 1,
                "stop": episode.stop.value,
                "won": episode.won,
                "reward": episode.reward,
                "turns": len(episode.turns),
                "invalid replies": sum(not turn.valid for turn in episode.turns),
                "reflection": episode.reflection.text if episode.reflection else "",
                "error": episode.error,
            }
            for episode in self.episodes
        ]

    def __repr__(self) -> str:
        stops = ", ".join(episode.stop.value for episode in self.episodes)
        return f"<Trial of {self.task.task_class}, seed {self.task.seed}, memory {self.memory}: {stops}>"


@dataclass(frozen=True, slots=True)
class Group:
    """G trials of one task: what group-relative advantages compare.

    >>> task = mulligan.make_task("bandit", seed=3)
    >>> trials = tuple(mulligan.run_trial_sync(task, lambda messages: "1", index=index) for index in range(2))
    >>> len(mulligan.Group(task, trials).trials)
    2
    """

    task: Task
    trials: tuple[Trial, ...]
