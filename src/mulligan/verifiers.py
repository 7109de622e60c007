"""Trials as an environment of verifiers, for prime-rl, `vf-eval` and whatever else plays those.

    vf-eval mulligan-verifiers --env.taskset.env minesweeper -m MODEL --client.base-url URL

The episodes of a trial are runs of agents that are named by attempt, each with a trace of its own. A trace's reward is
the return across episodes from its first turn on, so that a trainer which compares traces of one agent's name compares
first attempts with first attempts. The trial itself is played by the one trial loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig

from mulligan.algo.credit import FORMS
from mulligan.algo.library import cross_episode_returns
from mulligan.envs import registry
from mulligan.errors import ContextFull, RequestFailed, UnknownName, UsageError
from mulligan.policy.base import Policy
from mulligan.rollout.tasksets import tasks_of
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Memory, Message, Sampling, Task

MOST_ATTEMPTS = 8
_FACTS = "mulligan"
"""Where a trace keeps what came of its attempt."""


def _seat() -> vf.AgentConfig:
    """An agent that only talks, in a process of this machine."""
    return vf.AgentConfig(harness={"id": "null"}, runtime=SubprocessConfig())


class MulliganData(vf.TaskData):
    """A task of Mulligan."""

    env: str
    seed: int
    params: dict[str, str | int | float | bool]


class MulliganTask(vf.Task[MulliganData]):
    """A task whose agents are judged by the trial they play in."""


class MulliganTasksetConfig(vf.TasksetConfig):
    env: str = "minesweeper"
    """A name from `mulligan envs`, or path/to/file.py:Class."""
    params: dict[str, str | int | float | bool] = {}  # noqa: RUF012 - pydantic copies it
    """Parameters of the environment."""
    tasks: int = 512
    seed_set: Literal["train", "validation", "eval"] = "train"
    """No world of one set is in another."""


class MulliganTaskset(vf.Taskset[MulliganTask, MulliganTasksetConfig]):
    """Frozen tasks, each world once."""

    def load(self) -> Iterator[MulliganTask]:
        config = self.config
        for task in tasks_of(config.env, config.tasks, config.seed_set, config.params, or_fewer=True):
            params = {**dict(task.params), "turns": task.turns}
            data = MulliganData(name=f"{task.task_class}/{task.seed}", env=task.env, seed=task.seed, params=params)
            yield MulliganTask(data, config.task)


class MulliganEnvConfig(vf.EnvConfig):
    episodes: int = 3
    memory: Memory = "reflection"
    """What of earlier attempts the next one is shown: none, history, reflection, both."""
    memory_tokens: int = TrialSettings().memory_tokens
    reflection_tokens: int = TrialSettings().reflection_tokens
    gamma_step: float = 0.95
    gamma_traj: float = 0.6
    form: str = "paper"
    """Of returns across episodes: paper, chained, difference or final."""
    attempt1: vf.AgentConfig = _seat()
    attempt2: vf.AgentConfig = _seat()
    attempt3: vf.AgentConfig = _seat()
    attempt4: vf.AgentConfig = _seat()
    attempt5: vf.AgentConfig = _seat()
    attempt6: vf.AgentConfig = _seat()
    attempt7: vf.AgentConfig = _seat()
    attempt8: vf.AgentConfig = _seat()


class MulliganEnv(vf.Env[MulliganEnvConfig]):
    """One trial is one episode of verifiers, whose traces are the trial's attempts."""

    def __init__(self, config: MulliganEnvConfig) -> None:
        super().__init__(config)
        if not 1 <= config.episodes <= MOST_ATTEMPTS:
            raise UsageError(f"episodes must be 1 to {MOST_ATTEMPTS} (got {config.episodes})")
        if config.form not in FORMS:
            raise UnknownName("form of returns", config.form, FORMS)

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Play a trial; what came of each attempt is kept in its trace."""
        config, data = self.config, task.data
        memory = {name: getattr(config, name) for name in ("episodes", "memory", "memory_tokens", "reflection_tokens")}
        async with Attempts(task, agents) as attempts:
            ours = registry.task_of(data.env, data.seed, data.params)
            trial = await run_trial(ours, attempts, settings=TrialSettings(**memory))
        if trial.failed:  # of no attempt's making: whoever runs the episode plays it again
            raise RequestFailed(trial.episodes[-1].error)
        for trace, episode in zip(attempts.traces, trial.episodes, strict=False):
            rewards = [turn.reward for turn in episode.turns] or [episode.forfeit]
            trace.info[_FACTS] = {"rewards": rewards, "won": episode.won, "stop": episode.stop.value}

    async def finalize(self, task: vf.Task, episode: vf.Episode) -> None:
        """Give each attempt the return across episodes from its first turn on."""
        config = self.config
        traces = sorted(episode.traces, key=lambda trace: str(trace.agent.name))
        facts = [trace.info[_FACTS] for trace in traces]
        returns = cross_episode_returns(
            [each["rewards"] for each in facts],
            gamma_step=config.gamma_step,
            gamma_traj=config.gamma_traj,
            form=config.form,
        )
        for trace, each, values in zip(traces, facts, returns, strict=True):
            trace.record_reward("return", values[0])
            trace.record_metric("won", float(each["won"]))
            trace.record_metric("episode_reward", sum(each["rewards"]))


class Attempts:
    """The agents of verifiers as a policy: each list of messages that begins is the next attempt's."""

    name = "verifiers"
    separate_episodes = True

    def __init__(self, task: vf.Task, agents: vf.Agents) -> None:
        self.task, self.agents = task, agents
        self.stack = AsyncExitStack()
        self.traces: list[Any] = []
        """[attempt]"""
        self.interaction: Any = None
        self.messages_sent = 0
        """Messages of the list that the attempt under way has seen or written."""

    async def __aenter__(self) -> Attempts:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stack.aclose()

    def start(self, task: Task, seed: int) -> Attempts:
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.interaction is None or len(messages) <= self.messages_sent:
            await self._begin([message for message in messages if message["role"] == "system"])
        segment = await self.interaction.turn(messages[-1]["content"])
        self.messages_sent = len(messages) + 1
        if segment.terminated:
            raise ContextFull("verifiers ended the run: a limit of its agent was reached")
        return Completion(segment.last_reply)

    async def _begin(self, system: Sequence[Message]) -> None:
        """The next attempt, by the agent of its name, who is told the rules and nothing else."""
        await self.stack.aclose()
        agent = getattr(self.agents, f"attempt{len(self.traces) + 1}")
        rules = "\n\n".join(message["content"] for message in system)
        briefed_task = self.task.with_data(prompt=None, system_prompt=rules or None)
        self.interaction = await self.stack.enter_async_context(agent.interaction(briefed_task))
        self.traces.append(self.interaction.trace)

    def close(self) -> None:
        """The trial is over; the interaction is closed where it was begun."""


_: type[Policy] = Attempts
