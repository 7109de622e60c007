"""A trial as one episode of a journal: shown what earlier trials taught, and kept with the reflection after its end."""

from __future__ import annotations

import asyncio
from statistics import fmean
from typing import Any

from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import UsageError
from mulligan.journal.journal import Journal
from mulligan.journal.notes import fields_of
from mulligan.policy.base import Policy, ReplyFunction, as_policy
from mulligan.trial.memory import transcript
from mulligan.trial.runner import run_trial, with_overrides
from mulligan.trial.settings import TrialSettings
from mulligan.types import Reflection, Task, Trial

_OPTIONS = ("seed", "index", "reflections", "memories", "related", "stand_in")


async def run_trial_with(
    journal: Journal,
    task: Task | Env,
    policy: Policy | ReplyFunction,
    *,
    settings: TrialSettings | None = None,
    **options: Any,
) -> Trial:
    """`run_trial`, with what the journal knows before each episode's first observation.

    The hold-out decides by trial, so that a trial counts once: with its best reward, or its mean one in games against
    somebody, clipped to the journal's `reward_range`. Who reflects after the last episode is the journal's `reflect`,
    or the policy itself.
    """
    overrides = {name: value for name, value in options.items() if name not in _OPTIONS}
    settings = with_overrides(settings or TrialSettings(), overrides)
    if settings.memory_mode == "none":
        raise UsageError("memory 'none' lets nothing cross from one trial to the next; give another one with a journal")
    player = as_policy(policy)
    first_task = task if isinstance(task, Task) else task.task
    agent = journal.agent or player.name[-200:]
    episode = await asyncio.to_thread(journal.episode, _words(first_task), first_task.task_class, agent=agent)
    with episode:
        trial = await run_trial(
            task,
            player,
            settings=settings,
            notes=await asyncio.to_thread(episode.context, settings.memory_tokens),
            reflect_last=journal.reflect is None,
            **{name: value for name, value in options.items() if name in _OPTIONS},
        )
        if not trial.failed:
            last = trial.episodes[-1]
            await asyncio.to_thread(
                episode.finish,
                reward=_reward(trial, journal.reward_range, versus=_is_versus(task)),
                outcome=last.stop.value,
                transcript=[transcript(each) for each in trial.episodes],
                reflection=None if last.reflection is None else _parts(last.reflection),
            )
    return trial


def _words(task: Task) -> str:
    """A task by name, so that notes on the same one come first."""
    return " ".join([task.env, f"seed={task.seed}", *(f"{name}={value}" for name, value in task.params)])


def _parts(reflection: Reflection) -> dict[str, str]:
    """The parts of a reflection, without the tags of actions that it quotes: tags are taken for code."""
    return {name: text.replace("<action>", "").replace("</action>", "") for name, text in fields_of(reflection).items()}


def _is_versus(task: Task | Env) -> bool:
    spec = registry.spec(task.env) if isinstance(task, Task) else registry.spec_of(type(task), task.task.env)
    return spec.kind == "versus"


def _reward(trial: Trial, reward_range: tuple[float, float], *, versus: bool) -> float:
    rewards = [episode.reward for episode in trial.episodes]
    return min(max(fmean(rewards) if versus else max(rewards), reward_range[0]), reward_range[1])
