"""The one trial loop, for every environment and every policy.

An episode is one append-only list of messages: rules, memory and observation, reply, observation, reply, …, and at the
end the reflection request and the reflection. With `history` or `both`, an environment without a digest and room in the
budget, the next episode goes on in the same list; otherwise it starts a new one whose first message carries the memory.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import (
    ContextFull,
    DeviceLost,
    Fault,
    MulliganError,
    RunFolderError,
    StopReason,
    UnknownName,
    UsageError,
)
from mulligan.policy.base import Conversation, Policy, ReplyFunction, Spectator, World, as_policy
from mulligan.seeding import derive
from mulligan.trial import memory as remembering
from mulligan.trial import prompts
from mulligan.trial.guard import Hung, call_with_timeout
from mulligan.trial.reflection import parse_reflection
from mulligan.trial.settings import MAX_REFLECTIONS, TrialSettings
from mulligan.types import Completion, Episode, Message, Reflection, Sampling, Step, Task, Trial, Turn, whole

_NOT_THE_MODELS = (UsageError, DeviceLost, RunFolderError)
"""What may be raised in place of a reply and says nothing about the model: it ends everything."""
ReflectionSource = Callable[[int], Reflection | None]
"""Episode index -> the reflection to show after it, instead of asking the agent (a control)."""


async def run_trial(
    task: Task | Env,
    policy: Policy | ReplyFunction,
    *,
    settings: TrialSettings | None = None,
    seed: int = 0,
    index: int = 0,
    reflections: ReflectionSource | None = None,
    related: Sequence[Task] = (),
    **overrides: Any,
) -> Trial:
    """Play one trial: up to N episodes of `task`, with reflections and memory between them.

    `task` may be a live environment instead. `related` are the tasks of the second and later episodes, where they are
    others of the same class. `overrides` are fields of `TrialSettings`:
    ``await run_trial(task, policy, episodes=3, memory="history")``. Failures of the environment or of the model end an
    episode with a named reason and are kept in `Episode.error`; they are not raised, but `mulligan.run_trial` warns.
    """
    settings = with_overrides(settings or TrialSettings(), overrides)
    player = as_policy(policy)
    if isinstance(task, str):
        raise UsageError(f"{task!r} is a name; a trial needs a task: mulligan.make_task({task!r})")
    of = task if isinstance(task, Task) else task.task
    seed, index = whole("seed", seed), whole("index", index)
    trial_seed = derive(seed, of.seed, index, "policy")
    try:
        env = registry.build(task) if isinstance(task, Task) else task
        play = _TrialPlay(env, player, trial_seed, settings, reflections, related)
    except MulliganError:
        raise
    except Exception as failure:  # the world could not even be built
        broken = Episode(0, (), "", StopReason.ENV_RAISED, error=_said(failure))
        return Trial(of, (broken,), settings.memory_mode, seed=seed, index=index)
    try:
        episodes = await play.episodes()
    finally:
        play.close()
    return Trial(of, episodes, settings.memory_mode, seed=seed, index=index, related=tuple(related))


def run_trial_sync(task: Task | Env, policy: Policy | ReplyFunction, **options: Any) -> Trial:
    """`run_trial` for code that is not async; works inside a running event loop too (a notebook)."""
    trial: Trial = run_async(lambda: run_trial(task, policy, **options))
    return trial


def run_async(start: Callable[[], Any]) -> Any:
    """The result of a coroutine, from synchronous code, whether or not an event loop is running in this thread."""
    if not loop_is_running():
        return asyncio.run(start())
    stops: list[Callable[[], object]] = []

    async def work() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
        return await start()

    with ThreadPoolExecutor(max_workers=1) as thread:
        result = thread.submit(lambda: asyncio.run(work()))
        try:
            return result.result()
        except KeyboardInterrupt:  # a notebook's reaches this thread alone: the other would go on, and pay, to the end
            for stop in stops:
                with suppress(RuntimeError):  # it has just ended
                    stop()
            raise


def loop_is_running() -> bool:
    """Whether this thread is inside an event loop, as a notebook's is."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def with_overrides(settings: TrialSettings, overrides: dict[str, Any]) -> TrialSettings:
    """`settings` with some fields changed; an unknown field is a `UsageError` that names the nearest."""
    unknown = [name for name in overrides if name not in TrialSettings.__slots__]
    if unknown:
        kind = "trial setting (an environment's parameters go into params=)"
        raise UnknownName(kind, unknown[0], TrialSettings.__slots__)
    return replace(settings, **overrides) if overrides else settings


class _TrialPlay:
    """The state of one trial while it is played."""

    def __init__(
        self,
        env: Env,
        policy: Policy,
        seed: int,
        settings: TrialSettings,
        reflections: ReflectionSource | None,
        related: Sequence[Task],
    ) -> None:
        about = registry.spec_of(type(env), env.task.env)
        self.env, self.policy, self.seed, self.settings = env, policy, seed, settings
        self.reflections, self.related = reflections, related
        self.memory = settings.memory_mode
        self.stop = settings.stop or about.stop
        self.restart = settings.restart or about.restart
        self.timeout_reward = about.timeout_reward
        self.versus = about.kind == "versus"
        self.conversation: Conversation | None = None
        self.spectator: Spectator | None = None
        self.count = remembering.estimate_tokens
        self.digest: Callable[[Episode], str] | None = getattr(env, "digest", None)
        self.style = prompts.style(settings.style)
        self.head = self._rules()
        self.messages: list[Message] = []
        self.past: list[remembering.Recollection] = []
        self.carry = ""
        """How the last episode ended, still to be said where the next one goes on in the same list."""
        self.taken = self.before = self.longest = 0
        """Tokens: of the list with its last reply, of what stood in it before the episode (memory or earlier episodes),
        and the most that an episode has had so far, rules included."""

    async def episodes(self) -> tuple[Episode, ...]:
        episodes: list[Episode] = []
        for index in range(self.settings.episodes):
            if index and index <= len(self.related):
                try:
                    self._move_to(self.related[index - 1])
                except MulliganError:
                    raise
                except Exception as failure:
                    episodes.append(Episode(index, (), "", StopReason.ENV_RAISED, error=_said(failure)))
                    break
            if self.conversation is None or self.memory == "none":
                try:
                    self._begin(index)
                except MulliganError:
                    raise
                except Exception as failure:  # as where it gives no reply
                    episodes.append(Episode(index, (), "", StopReason.REQUEST_FAILED, error=_said(failure)))
                    break
            episode, feedback = await self._episode(index)
            last = index + 1 == self.settings.episodes or (self.stop == "success" and episode.won)
            broken = episode.stop in (StopReason.ENV_RAISED, StopReason.ENV_HUNG)
            if last or broken:
                episodes.append(episode)
                break
            episode = await self._reflect(episode, feedback, related=index < len(self.related))
            self.longest = max(self.longest, self.taken - self.before)
            try:
                self._remember(episode)
            except Exception as failure:
                episodes.append(replace(episode, stop=StopReason.ENV_RAISED, error=f"digest: {_said(failure)}"))
                break
            episodes.append(episode)
        return tuple(episodes)

    def close(self) -> None:
        if self.conversation is not None:
            self.conversation.close()
            self.conversation = None

    def _begin(self, index: int) -> None:
        """Start the conversation: one for the trial or, without memory, one an episode: nothing may cross."""
        self.close()
        self.conversation = self.policy.start(self.env.task, derive(self.seed, index))
        self.count = getattr(self.conversation, "count_tokens", remembering.estimate_tokens)
        if isinstance(self.conversation, Spectator):
            self.spectator = self.conversation
            self.spectator.watch(cast(World, self.env))

    def _rules(self) -> list[Message]:
        rules = prompts.system(self.env.rules(), self.style, self.env.task.turns)
        return [{"role": "system", "content": rules}] if rules else []

    def _move_to(self, task: Task) -> None:
        """Go on with another task of the class; where its rules read differently, in a new list."""
        self.env = registry.build(task)
        self.digest = getattr(self.env, "digest", None)
        head = self._rules()
        if head != self.head:
            self.head, self.messages = head, []
        if self.spectator is not None:
            self.spectator.watch(cast(World, self.env))

    async def _reply(self, messages: list[Message], sampling: Sampling) -> Completion:
        assert self.conversation is not None, "a conversation is begun before each episode"
        reply = await self.conversation.reply(messages, sampling)
        self.taken = reply.prompt_tokens + reply.completion_tokens
        return reply

    async def _episode(self, index: int) -> tuple[Episode, str]:
        """One episode, and what the environment said of its last reply."""
        task = self.env.task
        chance = index if self.restart == "fresh" else 0
        try:
            if self.settings.env_timeout is None:
                observation = self.env.reset(chance)
            else:
                observation = await call_with_timeout(self.settings.env_timeout, self.env.reset, chance)
        except Hung:
            return Episode(index, (), "", StopReason.ENV_HUNG, error="reset did not answer"), ""
        except Exception as failure:
            return Episode(index, (), "", StopReason.ENV_RAISED, error=_said(failure)), ""
        opening, continues = self._open(index, observation)
        turns: list[Turn] = []
        stop, error, step, state_key, forfeit = StopReason.TURN_LIMIT, "", Step(observation), "", 0.0
        while len(turns) < task.turns:
            try:
                reply = await self._reply(self._shown(self.messages, len(turns)), self.settings.sampling)
            except ContextFull as full:
                stop, error = StopReason.CONTEXT_FULL, str(full)
                if turns:  # as at the turn limit: not moving must not be better than losing
                    turns[-1] = replace(turns[-1], reward=turns[-1].reward + self.timeout_reward)
                else:
                    forfeit = self.timeout_reward
                break
            except _NOT_THE_MODELS:
                raise
            except Exception as failure:  # a failure of the model is data too
                stop, error = StopReason.REQUEST_FAILED, _said(failure)
                break
            self.messages.append({"role": "assistant", "content": reply.text})
            seen = step.observation
            try:
                step = await self._step(self.style.action(reply.text))
                out_of_turns = len(turns) + 1 == task.turns and not step.done
                turns.append(_turn(seen, reply, step, state_key, self.timeout_reward if out_of_turns else 0.0))
                if self.spectator is not None:  # the environment's own player, or a person
                    self.spectator.see(step, self.timeout_reward if out_of_turns else None)
            except Hung:
                stop, error = StopReason.ENV_HUNG, f"no answer within {self.settings.env_timeout} s"
                break
            except Exception as failure:
                stop, error = StopReason.ENV_RAISED, _said(failure)
                break
            state_key = step.state_key
            if step.done:
                stop = self._ended(step, turns)
                break
            if not out_of_turns:
                said = prompts.turn(step.observation, step.feedback, task.turns - len(turns), self.style)
                self.messages.append({"role": "user", "content": said})
        episode = Episode(index, tuple(turns), step.observation, stop, opening, continues, error=error, forfeit=forfeit)
        return episode, step.feedback

    def _ended(self, step: Step, turns: list[Turn]) -> StopReason:
        if step.won:
            return StopReason.WON
        drawn = self.versus and sum(turn.reward for turn in turns) == 0
        return StopReason.DRAWN if drawn else StopReason.LOST

    def _open(self, index: int, observation: str) -> tuple[tuple[Message, ...], bool]:
        """Begin the episode's messages: the new ones, and whether they go on in the list of the one before."""
        if index and self._goes_on():
            carried = f"{self.carry}\n\n" if self.carry else ""
            said = carried + self._opening(observation, index, "")
            message: Message = {"role": "user", "content": said}
            self.messages.append(message)
            self.before = self.taken
            return (message,), True
        remembered = self._recalled(index)
        self.before = self._taken_by(remembered) if remembered else 0
        said = self._opening(observation, index, remembered)
        self.messages = [*self.head, {"role": "user", "content": said}]
        return tuple(self.messages), False

    def _recalled(self, index: int) -> str:
        """The memory that an episode is shown in a new list; nothing where the words around it alone have no room."""
        around = self._taken_by("" if self.style.bare else remembering.left_out(index))
        room = min(self.settings.memory_tokens, self._left() - around)
        if room <= 0:
            return ""
        return remembering.recall(
            self.past,
            self.memory,
            budget=room,
            max_reflections=MAX_REFLECTIONS,
            headline=None if self.style.bare else prompts.headline,
            count=self.count,
        )

    def _taken_by(self, remembered: str) -> int:
        """Tokens of a memory as it is shown."""
        return self.count(prompts.remembered(remembered, self.style, related=bool(self.related)))

    def _opening(self, observation: str, index: int, remembered: str) -> str:
        return prompts.opening(
            observation,
            index,
            self.settings.announced or self.settings.episodes,
            remembered,
            self.style,
            tell_episodes=self.memory != "none",
            related=bool(self.related),
        )

    async def _step(self, reply: str) -> Step:
        if self.settings.env_timeout is None:
            step = self.env.step(reply)
        else:
            step = await call_with_timeout(self.settings.env_timeout, self.env.step, reply)
        if not isinstance(step, Step):
            raise TypeError(f"step() returned {type(step).__name__}, not Step")
        if not math.isfinite(step.reward):
            raise ValueError(f"step() gave the reward {step.reward}")
        return step

    def _goes_on(self) -> bool:
        """Whether history can simply stay in the context: nothing digests it, and it fits the budget."""
        if self.reflections is not None:
            return False  # a control: what is shown is not what stands in the list
        if not remembering.shows_history(self.memory) or self.digest is not None or self.settings.window is not None:
            return False
        if not self.messages or self.messages[-1]["role"] != "assistant":
            return False  # the last request got no reply: that list cannot go on
        history = sum(self.count(message["content"]) for message in self.messages[len(self.head) :])
        return history <= self.settings.memory_tokens and self.taken + self.count(self.carry) <= self._left()

    def _left(self) -> int:
        """Tokens of the model's context that the longest episode so far would leave to what comes before the next."""
        context: int | None = getattr(self.conversation, "context", None)
        return sys.maxsize if context is None else context - self.longest

    def _shown(self, messages: list[Message], turns_played: int) -> list[Message]:
        """The messages a reply is asked for with; with a window, only the episode's last turns."""
        window = self.settings.window
        if window is None or turns_played < window:
            return messages
        head = len(messages) - 1 - 2 * turns_played  # the episode's opening message
        left_out = turns_played - window + 1
        note = f"[{left_out} turn{'s' if left_out > 1 else ''} left out]"
        tail = messages[len(messages) - 2 * window + 1 :]
        said = f"{messages[head]['content']}\n{note}\n{tail[0]['content']}"
        return [*self.head, {"role": "user", "content": said}, *tail[1:]]

    async def _reflect(self, episode: Episode, feedback: str, *, related: bool) -> Episode:
        """The episode with the reflection that follows it, where memory will show one."""
        self.carry = prompts.ending(episode, feedback, self.style)
        if not remembering.shows_reflection(self.memory):
            return episode
        if self.reflections is not None:
            return replace(episode, reflection=self.reflections(episode.index))
        if episode.stop in (StopReason.REQUEST_FAILED, StopReason.CONTEXT_FULL):
            return episode  # a policy that just gave no reply is not asked again
        said = prompts.reflection_request(self.carry, "related" if related else self.restart, self.style)
        request: Message = {"role": "user", "content": said}
        seen = self._shown(self.messages[:-1], len(episode.turns) - 1)
        asked = [*seen, self.messages[-1], request]
        sampling = replace(self.settings.sampling, max_tokens=self.settings.reflection_tokens)
        try:
            if self.spectator is not None:
                self.spectator.ended(episode)
            completion = await self._reply(asked, sampling)
        except _NOT_THE_MODELS:
            raise
        except Exception as failure:
            outage = not isinstance(failure, ContextFull)  # a full context is the agent's own affair
            return replace(episode, error=f"no reflection: {_said(failure)}", unreflected=outage)
        self.messages += [request, {"role": "assistant", "content": completion.text}]
        self.carry = ""
        return replace(episode, reflection=parse_reflection(completion, bare=self.style.bare))

    def _remember(self, episode: Episode) -> None:
        history = ""
        if remembering.shows_history(self.memory):
            history = self.digest(episode) if self.digest is not None else remembering.transcript(episode)
        self.past.append(remembering.Recollection(episode, history))


def _turn(seen: str, reply: Completion, step: Step, state_key: str, timeout_reward: float) -> Turn:
    """What a step came to, in Python's own numbers: those of numpy, which worlds count in, are no JSON."""
    fault = None
    if not step.valid:
        empty = not reply.text or reply.text.isspace()
        fault = Fault.CUT_OFF if reply.finish == "length" else Fault.EMPTY if empty else Fault.INVALID
    reward = float(step.reward) + timeout_reward
    return Turn(seen, reply, reward, bool(step.valid), state_key, step.feedback, float(step.shaping), fault)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
