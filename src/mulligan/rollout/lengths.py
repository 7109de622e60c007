"""The longest sequence of a trial, from token limits and the lengths of a played sample.

An episode is one sequence. At its longest it holds::

    opening + memory + turns x (observation + reply) + reflection request + reflection

With a window it holds only the last turns. Memory holds the digests and reflections of earlier episodes, or their
transcripts where the environment has no digest; never more than `memory_tokens`. A trial that goes on in one sequence
keeps to the same budget, so that the formula holds for it too.

Lengths are measured on a few trials of a player that makes random legal moves. The sample depends neither on the run's
seed nor on which worlds are for training, so that runs which differ in nothing else have the same context.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from mulligan.calls import call, call_within, text_of
from mulligan.envs import registry
from mulligan.errors import MulliganError
from mulligan.models.renderer import Renderer
from mulligan.policy.local import Demonstrated
from mulligan.policy.scripted import RandomPolicy
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import FIRST_SEED
from mulligan.trial import prompts
from mulligan.trial.memory import shows_history, shows_reflection
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import MAX_REFLECTIONS, TrialSettings
from mulligan.types import Completion, Episode

TASKS = 8
"""Trials of each environment."""
MARGIN = 1.25
"""Measured lengths are multiplied by this: other worlds may have longer texts than those of the sample."""
WORDS = 32
"""Tokens of the words around what is remembered of one episode."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of what an environment says, chat template included: the longest of a sample."""

    turns: int
    """Turns that an episode may take."""
    opening: int = 0
    """Rules and first observation."""
    observation: int = 0
    """Between two replies."""
    request: int = 0
    """The request for a reflection, with how the episode ended."""
    digest: int | None = None
    """Of one episode; None where history is its transcript."""

    def with_margin(self) -> Lengths:
        digest = None if self.digest is None else math.ceil(MARGIN * self.digest)
        opening, observation, request = (math.ceil(MARGIN * n) for n in (self.opening, self.observation, self.request))
        return Lengths(self.turns, opening, observation, request, digest)


@dataclass(frozen=True, slots=True)
class Need:
    """The parts of the longest sequence, in tokens."""

    opening: int
    memory: int
    turns: int
    """Turns in the sequence."""
    observation: int
    reply: int
    request: int
    reflection: int

    @property
    def replies(self) -> int:
        """Without memory, which is shortened to the room that is left."""
        return self.opening + self.turns * (self.observation + self.reply) + self.request + self.reflection

    @property
    def total(self) -> int:
        return self.replies + self.memory

    def __str__(self) -> str:
        parts = [f"rules and first observation {self.opening:,}"]
        parts += [f"memory {self.memory:,}"] if self.memory else []
        parts.append(f"{self.turns} turns x (observation {self.observation:,} + reply {self.reply:,})")
        if self.reflection:
            parts.append(f"reflection {self.request:,} + {self.reflection:,}")
        return f"{' + '.join(parts)} = {self.total:,} tokens"


def needed(settings: TrialSettings, lengths: Lengths) -> Need:
    """The longest sequence of a trial that is played with `settings`, where replies use up their limits."""
    lengths = lengths.with_margin()
    turns = lengths.turns if settings.window is None else min(lengths.turns, settings.window)
    reflects = settings.episodes > 1 and shows_reflection(settings.memory_mode)
    return Need(
        opening=lengths.opening,
        memory=_memory(settings, lengths),
        turns=turns,
        observation=lengths.observation,
        reply=settings.sampling.max_tokens,
        request=lengths.request if reflects else 0,
        reflection=settings.reflection_tokens if reflects else 0,
    )


def _memory(settings: TrialSettings, lengths: Lengths) -> int:
    earlier, mode = settings.episodes - 1, settings.memory_mode
    history = reflections = 0
    if shows_history(mode):
        transcript = lengths.opening + lengths.turns * (lengths.observation + settings.sampling.max_tokens)
        history = earlier * (transcript if lengths.digest is None else lengths.digest)
    if shows_reflection(mode):
        reflections = min(earlier, MAX_REFLECTIONS) * settings.reflection_tokens
    if not history + reflections:
        return 0
    return min(settings.memory_tokens, history + reflections + earlier * WORDS) + WORDS


def sampled_lengths(mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> dict[str, Lengths]:
    """Environment -> lengths of its texts, in tokens of `renderer`."""
    return {name: _lengths(name, mixture, settings, renderer) for name, _ in mixture.weights}


def _lengths(name: str, mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> Lengths:
    params = mixture.own_params(name)
    style = prompts.style(settings.style)
    player = Demonstrated(RandomPolicy("lengths", otherwise="?"), renderer, style.demonstrated)
    # Two episodes, so that a reflection is asked for after the first.
    settings = replace(settings, episodes=2, memory="reflection", stop="never", window=None)
    replies: dict[str, list[Completion | None]] = {"opening": [], "observation": [], "request": []}
    digests, turns = list[int](), [registry.task_of(name, 0, params).turns]
    for number in range(TASKS):
        try:
            task = registry.task_of(name, FIRST_SEED["train"] + number, params)
            env = call_within(settings.env_timeout, registry.build, task)
        except MulliganError:
            raise
        except Exception:  # a world that cannot be built is skipped here, and its error raised where it is drawn
            continue
        turns.append(task.turns)
        trial = run_trial_sync(env, player, settings=settings)
        episodes = [episode for episode in trial.episodes if episode.turns]
        replies["opening"] += [episode.turns[0].reply for episode in episodes[:1]]  # before it there is no memory
        replies["observation"] += [turn.reply for episode in episodes for turn in episode.turns[1:]]
        notes = [episode.reflection.completion for episode in trial.episodes if episode.reflection is not None]
        replies["request"] += notes[:1]
        if (digest := getattr(env, "digest", None)) is not None:
            digests += [0, *(renderer.count(_digest(digest, episode)) for episode in episodes)]
    longest = {
        part: max((len(reply.prompt_ids or ()) for reply in each if reply is not None), default=0)
        for part, each in replies.items()
    }
    return Lengths(max(turns), **longest, digest=max(digests, default=None))


def _digest(digest: Callable[[Episode], str], episode: Episode) -> str:
    """What the environment keeps of an episode; nothing where the runner would end the trial for it."""
    try:
        return text_of("digest()", call(digest, episode))
    except Exception:
        return ""
