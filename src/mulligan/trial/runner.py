"""The one trial loop, for every environment and every policy.

An episode is one append-only list of messages: rules, memory and observation, reply, observation, reply, …, and at the
end the reflection request and the reflection. With `history` or `both`, an environment without a digest and room in the
budget, the next episode goes on in the same list; otherwise it starts a new one whose first message carries the memory.
"""

from __future__ import annotations

import inspect
import json
import math
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, cast

from mulligan.calls import Hung, call, call_within, described, text_of
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.envs.opponents import asks_policy, awaited
from mulligan.envs.tools import BadCall, action_of, tools_of
from mulligan.errors import (
    ContextFull,
    ContractBroken,
    DeviceLost,
    Fault,
    MulliganError,
    OpponentFailed,
    RunFolderError,
    StopReason,
    UnknownName,
    UsageError,
)
from mulligan.policy.base import (
    Conversation,
    Policy,
    ReplyFunction,
    Spectator,
    ToolUser,
    World,
    as_policy,
    assistant_message,
    estimate_tokens,
)
from mulligan.policy.threads import call_in_thread, run_async
from mulligan.policy.writer import Advised
from mulligan.seeding import derive
from mulligan.trial import memory as remembering
from mulligan.trial import prompts
from mulligan.trial.reflection import parse_reflection
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Message, Reflection, Sampling, Step, Task, Tool, Trial, Turn, whole

_FATAL = (UsageError, DeviceLost, RunFolderError)
"""Errors in place of a reply that say nothing about the model: they end everything."""
ReflectionSource = Callable[[int], Reflection | None]
"""Episode index -> the reflection to show after it, instead of asking the agent (a control)."""
MemorySource = Callable[[int], str | None]
"""Episode index -> what to show before its first observation, instead of what the agent remembers (a control)."""
Build = Callable[[Task], Env]
"""What makes the world of a task."""
LONGEST_TRIAL = 5_000_000
"""Characters that a world may give in a trial. It is stored as one line, with up to 12 bytes a character, and lines of
more than 64 MB are not read back."""
LARGEST_NUMBER = 1e9
"""Of rewards and shaping; the squares of far larger ones are infinite."""
Argument = TypeVar("Argument")
Result = TypeVar("Result")


async def run_trial(
    task: Task | Env,
    policy: Policy | ReplyFunction,
    *,
    settings: TrialSettings | None = None,
    seed: int = 0,
    index: int = 0,
    reflections: ReflectionSource | None = None,
    memories: MemorySource | None = None,
    related: Sequence[Task] = (),
    stand_in: Policy | None = None,
    notes: str = "",
    reflect_last: bool = False,
    build: Build = registry.build,
    **overrides: Any,
) -> Trial:
    """Play one trial: up to N episodes of `task`, with reflections and memory between them.

    `task` may be a live environment instead. `related` are the tasks of the second and later episodes, where they are
    others of the same class. Of each episode the toss of a coin decides whether `stand_in` plays it in place of
    `policy`, which reflects on it and remembers it as its own. `notes` of earlier trials stand before all else that an
    episode is shown; with `reflect_last` a reflection is asked for after the last episode too. `build` makes
    the world of a task; one that is elsewhere takes long to answer and keeps `env_timeout` itself. `overrides` are
    fields of `TrialSettings`: ``await run_trial(task, policy, episodes=3, memory="history")``. Failures of the
    environment or of the model end an episode with a named reason and are kept in `Episode.error`; they are not raised,
    but `mulligan.run_trial` warns.
    """
    settings = with_overrides(settings or TrialSettings(), overrides)
    player = as_policy(policy)
    if isinstance(task, str):
        raise UsageError(f"{task!r} is a name; a trial needs a task: mulligan.make_task({task!r})")
    first_task = task if isinstance(task, Task) else task.task
    seed, index = whole("seed", seed), whole("index", index)
    trial_seed = derive(seed, first_task.seed, index, "policy")
    awaited.set([])
    try:
        limit = settings.env_timeout if build is registry.build else None
        is_slow = build is not registry.build or asks_policy(first_task)
        env = await _within(limit, build, task, is_slow) if isinstance(task, Task) else task
        play = _TrialPlay(
            env, player, trial_seed, settings, reflections, related, stand_in, memories, notes, reflect_last, build
        )
    except Exception as error:  # the world could not even be built
        if _is_mistake(error):
            raise
        stop, description = _env_failure(error)
        failed = Episode(0, (), "", stop, error=description)
        return Trial(first_task, (failed,), settings.memory_mode, seed=seed, index=index)
    try:
        episodes = await play.episodes()
    finally:
        play.close()
    return Trial(first_task, episodes, settings.memory_mode, seed=seed, index=index, related=tuple(related))


def run_trial_sync(task: Task | Env, policy: Policy | ReplyFunction, **options: Any) -> Trial:
    """`run_trial` for code that is not async; works inside a running event loop too (a notebook)."""
    return run_async(lambda: run_trial(task, policy, **options))


def with_overrides(settings: TrialSettings, overrides: dict[str, Any]) -> TrialSettings:
    """`settings` with some fields changed; an unknown field is a `UsageError` that names the nearest."""
    for name, value in overrides.items():
        if name not in TrialSettings.__slots__:
            hint = f" (evaluate and make_task take an environment's parameters as params={ {name: value} })"
            raise UnknownName("trial setting", name, TrialSettings.__slots__, hint)
    return replace(settings, **overrides)


@dataclass
class _TrialPlay:
    """The state of one trial while it is played."""

    env: Env
    policy: Policy
    seed: int
    settings: TrialSettings
    reflections: ReflectionSource | None
    related: Sequence[Task]
    stand_in: Policy | None
    memories: MemorySource | None
    notes: str
    reflect_last: bool
    build: Build

    def __post_init__(self) -> None:
        settings = self.settings
        self.is_elsewhere = self.build is not registry.build
        self.env_timeout = None if self.is_elsewhere else settings.env_timeout
        spec = registry.spec_of(getattr(self.env, "env_class", type(self.env)), self.env.task.env)
        self.memory = settings.memory_mode
        self.stop, self.restart = settings.stop or spec.stop, settings.restart or spec.restart
        self.timeout_reward, self.versus = spec.timeout_reward, spec.kind == "versus"
        self.conversation: Conversation | None = None
        self.spectator: Spectator | None = None
        writer = self.policy.writer if isinstance(self.policy, Advised) else None
        self.writing = writer.start(self.env.task, derive(self.seed, "writer")) if writer is not None else None
        """The conversation of somebody else who writes the policy's reflections."""
        self.writing_spectator = self.writing if isinstance(self.writing, Spectator) else None
        if self.writing_spectator is not None:
            self.writing_spectator.watch(cast(World, self.env))
        self.count: Callable[[str], int] = estimate_tokens
        self.style = prompts.style(settings.style)
        self.calls_tools = False
        """Whether the conversation's replies call the environment's tools; otherwise they are told of in words."""
        self.rules, self.tools = self._rules_and_tools()
        self.system = self._system()
        self.messages: list[Message] = []
        self.past: list[remembering.Recollection] = []
        self.unsaid_ending = ""
        """How the last episode ended, still to be said if the next one goes on in the same list."""
        self.tokens = self.tokens_before = self.longest_episode = 0
        """Tokens of the list with its last reply; of what stood in it before the episode (memory, earlier episodes);
        and of the longest episode so far, rules included."""
        self.heard = 0
        """Characters that the world has given, as often as they are stored."""

    async def episodes(self) -> tuple[Episode, ...]:
        episodes: list[Episode] = []
        for index in range(self.settings.episodes):
            blame = StopReason.ENV_RAISED
            try:
                if index and index <= len(self.related):
                    await self._move_to(self.related[index - 1])
                blame = StopReason.REQUEST_FAILED
                stand_in = self.stand_in if derive(self.seed, index, "stand-in") % 2 else None
                if self.conversation is None or self.memory == "none" or stand_in:
                    self._begin(index, stand_in or self.policy)
            except Exception as error:
                if _is_mistake(error):
                    raise
                stop, description = _env_failure(error)
                stop = stop if blame is StopReason.ENV_RAISED else blame
                episodes.append(Episode(index, (), "", stop, error=description))
                break
            episode, feedback = await self._episode(index)
            last = index + 1 == self.settings.episodes or (self.stop == "success" and episode.won)
            last = last or episode.stop.is_of_world
            if stand_in:
                episode = replace(episode, by_stand_in=True)
                if not last:
                    self._begin(index + 1, self.policy)  # who reflects on it
            if last:
                episodes.append(await self._reflect_last(episode, feedback) if self.reflect_last else episode)
                break
            episode = await self._reflect(episode, feedback, related=index < len(self.related))
            self.longest_episode = max(self.longest_episode, self.tokens - self.tokens_before)
            try:
                shows_history = remembering.shows_history(self.memory)
                history = await self._history(episode) if shows_history else ""
                self.past.append(remembering.Recollection(episode, history))
            except Exception as error:
                episodes.append(replace(episode, stop=StopReason.ENV_RAISED, error=f"digest: {described(error)}"))
                break
            episodes.append(episode)
        return tuple(episodes)

    def close(self) -> None:
        for conversation in filter(None, (self.conversation, self.writing)):
            conversation.close()
        self.conversation = self.writing = None

    def _begin(self, index: int, policy: Policy) -> None:
        """Start a conversation: one for the trial, or one an episode if there is no memory and nothing may cross."""
        if self.conversation is not None:
            self.conversation.close()
        self.conversation = policy.start(self.env.task, derive(self.seed, index))
        self.count = getattr(self.conversation, "count_tokens", estimate_tokens)
        self._offer()
        self.spectator = None
        if isinstance(self.conversation, Spectator):
            self.spectator = self.conversation
            self.spectator.watch(cast(World, self.env))

    def _rules_and_tools(self) -> tuple[str, tuple[Tool, ...]]:
        limit = self.env_timeout
        return text_of("rules()", call_within(limit, self.env.rules)), call_within(limit, tools_of, self.env)

    async def _asked(self, function: Callable[[Argument], Result], argument: Argument) -> Result:
        """What the environment answers."""
        is_slow = self.is_elsewhere or asks_policy(self.env.task)
        return await _within(self.env_timeout, function, argument, is_slow)

    def _offer(self) -> None:
        """Tell the conversation of the environment's tools, and write the system message accordingly."""
        if self.tools:
            self.calls_tools = isinstance(self.conversation, ToolUser) and self.conversation.offer(self.tools)
            self.system = self._system()

    def _system(self) -> list[Message]:
        turns = self.env.task.turns
        text = prompts.system(
            self.rules,
            self.style,
            turns,
            self.tools,
            calls_tools=self.calls_tools,
            character=self.settings.character,
        )
        return [{"role": "system", "content": text}] if text else []

    async def _move_to(self, task: Task) -> None:
        """Go on with another task of the class; if its rules read differently, in a new list."""
        self.env = await self._asked(self.build, task)
        before = self.system
        self.rules, self.tools = self._rules_and_tools()
        self._offer()
        self.system = self._system()
        if self.system != before:
            self.messages = []
        for spectator in self._spectators():
            spectator.watch(cast(World, self.env))

    def _spectators(self) -> list[Spectator]:
        """Who sits beside the world: a scripted or human player, and a scripted writer."""
        return [each for each in (self.spectator, self.writing_spectator) if each is not None]

    async def _history(self, episode: Episode) -> str:
        """What memory keeps of an episode: the environment's digest of it, or the transcript."""
        digest = self.digest or remembering.transcript
        return text_of("digest()", await self._asked(digest, episode))

    @property
    def digest(self) -> Callable[[Episode], str] | None:
        return getattr(self.env, "digest", None)

    async def _reply(self, messages: list[Message], sampling: Sampling) -> Completion:
        assert self.conversation is not None, "a conversation is begun before each episode"
        reply = await self.conversation.reply(messages, sampling)
        self.tokens = reply.prompt_tokens + reply.completion_tokens
        return reply

    async def _written(self, messages: list[Message], sampling: Sampling) -> Completion:
        """A reply in words, the writer's if there is one: no tool may be called in it."""
        if self.writing is not None:  # who counts tokens otherwise than the player does
            reply = await self.writing.reply(messages, sampling)
            self.tokens += self.count(messages[-1]["content"]) + self.count(reply.text)
            return reply
        if not (self.calls_tools and isinstance(self.conversation, ToolUser)):
            return await self._reply(messages, sampling)
        self.conversation.offer(())
        try:
            return await self._reply(messages, sampling)
        finally:
            self.conversation.offer(self.tools)

    async def _episode(self, index: int) -> tuple[Episode, str]:
        """One episode, and what the environment said of its last reply."""
        task = self.env.task
        try:
            repeat = index if self.restart == "fresh" else 0
            opening_text = await self._asked(self.env.reset, repeat)
            observation = text_of("reset()", opening_text)
            self._hear(*(message["content"] for message in self.system), observation, observation)
        except Exception as error:
            stop, description = _env_failure(error)
            return Episode(index, (), "", stop, error=description), ""
        opening, continues = self._open(index, observation)
        turns: list[Turn] = []
        stop, description, step, state_key, forfeit = StopReason.TURN_LIMIT, "", Step(observation), "", 0.0
        while len(turns) < task.turns:
            try:
                shown = prompts.last_turns(self.messages, len(turns), self.settings.window, self.system, self.style)
                reply = await self._reply(shown, self.settings.sampling)
            except ContextFull as error:
                stop, description = StopReason.CONTEXT_FULL, str(error)
                if turns:  # as at the turn limit: not moving must not be better than losing
                    turns[-1] = replace(turns[-1], reward=turns[-1].reward + self.timeout_reward)
                else:
                    forfeit = self.timeout_reward
                break
            except _FATAL:
                raise
            except Exception as error:  # a failure of the model is data too
                stop, description = StopReason.REQUEST_FAILED, described(error)
                break
            previous = step
            try:
                step, fault = await self._play(reply, previous, state_key)
                if not step.valid and self.spectator is not None and getattr(self.spectator, "retypes", False):
                    self.spectator.see(step)  # a person mistyped: they are told, and lose no turn
                    step = previous
                    continue
                self.messages.append(assistant_message(reply, calls_tools=self.calls_tools))
                out_of_turns = len(turns) + 1 == task.turns and not step.done
                penalty = self.timeout_reward if out_of_turns else None
                turns.append(_turn(previous.observation, reply, step, state_key, penalty or 0.0, fault))
                for spectator in self._spectators():
                    spectator.see(step, penalty)
            except Exception as error:
                stop, description = _env_failure(error)
                break
            state_key = step.state_key
            if step.done:
                drawn = self.versus and getattr(self.env, "drawn", sum(turn.reward for turn in turns) == 0)
                stop = StopReason.WON if step.won else StopReason.DRAWN if drawn else StopReason.LOST
                break
            if not out_of_turns:
                content = prompts.turn(step.observation, step.feedback, task.turns - len(turns), self.style)
                role: Literal["user", "tool"] = "tool" if "tool_calls" in self.messages[-1] else "user"
                self.messages.append({"role": role, "content": content})
        episode = Episode(
            index, tuple(turns), step.observation, stop, opening, continues, error=description, forfeit=forfeit
        )
        return episode, step.feedback

    def _open(self, index: int, observation: str) -> tuple[tuple[Message, ...], bool]:
        """Begin the episode's messages: the new ones, and whether they go on in the list of the one before."""
        goes_on = index > 0 and self._goes_on()
        memory_text = "" if goes_on else self._recalled(index)
        episodes, tell_episodes = self.settings.announced or self.settings.episodes, self.memory != "none"
        text = prompts.opening(
            observation, index, episodes, memory_text, self.style, tell=tell_episodes, related=bool(self.related)
        )
        if self.memories is not None and index > 0 and (before := self.memories(index)) is not None:
            text = before + observation
        if self.notes and not goes_on:
            text = f"{self.notes}\n\n{text}"
        if goes_on:
            ending = f"{self.unsaid_ending}\n\n" if self.unsaid_ending else ""
            message: Message = {"role": "user", "content": ending + text}
            self.messages.append(message)
            self.tokens_before = self.tokens
            return (message,), True
        self.tokens_before = self._shown_tokens(memory_text) if memory_text else 0
        self.messages = [*self.system, {"role": "user", "content": text}]
        return tuple(self.messages), False

    def _recalled(self, index: int) -> str:
        """The memory that an episode is shown in a new list; nothing where the words around it alone have no room."""
        frame_tokens = self._shown_tokens("" if self.style.bare else remembering.left_out(index))
        budget = min(self.settings.memory_tokens, self._room() - frame_tokens)
        headline = None if self.style.bare else prompts.headline
        return remembering.recall(self.past, self.memory, budget, headline, self.count) if budget > 0 else ""

    def _shown_tokens(self, memory_text: str) -> int:
        return self.count(prompts.remembered(memory_text, self.style, related=bool(self.related)))

    async def _play(self, reply: Completion, previous: Step, state_key: str) -> tuple[Step, Fault | None]:
        """What comes of a reply, and what is wrong with it; a call that is none does not reach the environment."""
        if not (self.calls_tools and reply.tool_calls):
            step = await self._step(self.style.action(reply.text))
            return step, None if step.valid else _fault(reply)
        try:
            action = action_of(reply.tool_calls, self.tools)
        except BadCall as bad:
            fault = Fault.CUT_OFF if reply.finish == "length" else bad.fault
            return Step(previous.observation, valid=False, state_key=state_key, feedback=str(bad)), fault
        step = await self._step(action)
        return step, None if step.valid else Fault.INVALID

    async def _step(self, reply: str) -> Step:
        """What the environment answers, in plain types: what cannot be stored ends the episode, not the run."""
        step = await self._asked(self.env.step, reply)
        if not isinstance(step, Step):
            raise TypeError(f"step() returned {type(step).__name__}, not Step")
        step = Step(
            observation=text_of("the observation of step()", step.observation),
            reward=_number("reward", step.reward),
            done=_truth("done", step.done),
            won=_truth("won", step.won),
            valid=_truth("valid", step.valid),
            state_key=text_of("the state_key of step()", step.state_key),
            feedback=text_of("the feedback of step()", step.feedback),
            shaping=_number("shaping", step.shaping),
            luck=_number("luck", step.luck),
        )
        self._hear(step.observation, step.state_key, step.feedback)
        return step

    def _hear(self, *texts: str) -> None:
        """Count what the world gives; raises where the trial could not be read back."""
        self.heard += sum(map(len, texts))
        if self.heard > LONGEST_TRIAL:
            raise ValueError(f"{self.heard:,} characters were given in this trial; at most {LONGEST_TRIAL:,} are kept")

    def _goes_on(self) -> bool:
        """Whether history can simply stay in the context: nothing digests it, and it fits the budget."""
        if getattr(self.conversation, "separate_episodes", False):
            return False  # whoever plays wants a list of its own for each
        if self.reflections is not None:
            return False  # a control: what is shown is not what stands in the list
        if not remembering.shows_history(self.memory) or self.digest is not None or self.settings.window is not None:
            return False
        if not self.messages or self.messages[-1]["role"] != "assistant":
            return False  # the last request got no reply
        if self.messages[: len(self.system)] != self.system:
            return False  # it was begun with another system message
        history = sum(self.count(_text(message)) for message in self.messages[len(self.system) :])
        fits_context = self.tokens + self.count(self.unsaid_ending) <= self._room()
        return history <= self.settings.memory_tokens and fits_context

    def _room(self) -> int:
        """Tokens of the model's context that the longest episode so far would leave to what comes before the next."""
        context: int | None = getattr(self.conversation, "context", None)
        return sys.maxsize if context is None else context - self.longest_episode

    async def _reflect(self, episode: Episode, feedback: str, *, related: bool) -> Episode:
        """The episode with the reflection that follows it, where memory will show one."""
        self.unsaid_ending = prompts.ending(episode, feedback, self.style)
        if not remembering.shows_reflection(self.memory):
            return episode
        if self.reflections is not None:
            return replace(episode, reflection=self.reflections(episode.index))
        if episode.stop in (StopReason.REQUEST_FAILED, StopReason.CONTEXT_FULL):
            return episode  # a policy that just gave no reply is not asked again
        content = prompts.reflection_request(self.unsaid_ending, "related" if related else self.restart, self.style)
        return await self._ask_for_reflection(episode, content)

    async def _reflect_last(self, episode: Episode, feedback: str) -> Episode:
        """The last episode with a reflection for other trials; no failure of this trial if there is none."""
        if episode.stop.is_infrastructure or episode.stop is StopReason.CONTEXT_FULL:
            return episode
        ended = prompts.ending(episode, feedback, self.style)
        content = prompts.reflection_request(ended, "related", self.style, boundaries=True)
        return replace(await self._ask_for_reflection(episode, content), unreflected=False)

    async def _ask_for_reflection(self, episode: Episode, content: str) -> Episode:
        request: Message = {"role": "user", "content": content}
        shown = prompts.last_turns(
            self.messages[:-1], len(episode.turns) - 1, self.settings.window, self.system, self.style
        )
        sampling = replace(self.settings.sampling, max_tokens=self.settings.reflection_tokens)
        try:
            author = self.spectator if self.writing is None else self.writing
            if isinstance(author, Spectator):
                author.ended(episode)
            completion = await self._written([*shown, self.messages[-1], request], sampling)
        except _FATAL:
            raise
        except Exception as error:
            outage = not isinstance(error, ContextFull)  # a full context is the agent's own affair
            return replace(episode, error=f"no reflection: {described(error)}", unreflected=outage)
        self.messages += [request, assistant_message(completion)]
        self.unsaid_ending = ""
        return replace(episode, reflection=parse_reflection(completion, bare=self.style.bare))


async def _within(
    seconds: float | None, function: Callable[[Argument], Result], argument: Argument, is_slow: bool = False
) -> Result:
    """Call the environment, in a thread if its answers have a time limit, or take long; a coroutine is awaited here."""
    if inspect.iscoroutinefunction(function):
        return cast(Result, await function(argument))
    if seconds is None and not is_slow:
        return call(function, argument)
    return await call_in_thread(function, argument, seconds)


def _is_mistake(error: Exception) -> bool:
    """Whether an error is about what the caller asked for, rather than about one world."""
    return isinstance(error, MulliganError) and not isinstance(error, ContractBroken | OpponentFailed)


def _env_failure(error: Exception) -> tuple[StopReason, str]:
    if isinstance(error, Hung):
        if opponents := awaited.get():
            return StopReason.OPPONENT_FAILED, f"{opponents[-1]} gave {error}"
        return StopReason.ENV_HUNG, str(error)
    if isinstance(error, OpponentFailed):
        return StopReason.OPPONENT_FAILED, str(error)
    return StopReason.ENV_RAISED, described(error)


def _number(name: str, value: Any) -> float:
    number = math.nan if isinstance(value, str | bytes) else float(value)
    if not abs(number) <= LARGEST_NUMBER:
        limits = f"from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}"
        raise ValueError(f"step() gave the {name} {reprlib.repr(value)}; it must be a number {limits}")
    return number


def _truth(name: str, value: Any) -> bool:
    if value not in (False, True):  # "False" is not false, and NaN is no success
        raise ValueError(f"step() gave {name}={reprlib.repr(value)}; it must be True or False")
    return bool(value)


def _fault(reply: Completion) -> Fault:
    """What was wrong with a reply that the environment did not take."""
    if reply.finish == "length":
        return Fault.CUT_OFF
    if reply.text and not reply.text.isspace():
        return Fault.INVALID
    return Fault.REFUSED if reply.refusal else Fault.UNKNOWN_TOOL if reply.tool_calls else Fault.EMPTY


def _text(message: Message) -> str:
    """What of a message takes room."""
    return message["content"] + (json.dumps(message["tool_calls"]) if "tool_calls" in message else "")


def _turn(
    observation: str, reply: Completion, step: Step, state_key: str, timeout_reward: float, fault: Fault | None
) -> Turn:
    reward = step.reward + timeout_reward
    return Turn(observation, reply, reward, step.valid, state_key, step.feedback, step.shaping, fault, step.luck)
