"""The lengths of an environment's texts, measured on a few trials of a player that makes random legal moves.

The sample depends neither on the run's seed nor on which worlds are for training, so that runs which differ in nothing
else have the same context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mulligan.envs import registry
from mulligan.errors import MulliganError
from mulligan.models.renderer import Renderer
from mulligan.policy.base import World
from mulligan.policy.local import Demonstrated
from mulligan.rollout.groups import Mixture
from mulligan.rollout.tasksets import FIRST_SEED
from mulligan.seeding import generator
from mulligan.trial import prompts
from mulligan.trial.lengths import Lengths
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task

TASKS = 8
"""Trials of each environment."""


def sampled_lengths(mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> dict[str, Lengths]:
    """Environment -> lengths of its texts, in tokens of `renderer`."""
    return {name: _lengths(name, mixture, settings, renderer) for name, _ in mixture.weights}


def _lengths(name: str, mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> Lengths:
    params = mixture.own_params(name)
    lengths = Lengths(turns=registry.task_of(name, 0, params).turns)
    style = prompts.style(settings.style)
    player = Demonstrated(_RandomMoves(), renderer, style.demonstrated)
    # Two episodes, so that a reflection is asked for after the first.
    settings = replace(settings, episodes=2, memory="reflection", stop="never", window=None)
    for number in range(TASKS):
        try:
            env = registry.build(registry.task_of(name, FIRST_SEED["train"] + number, params))
        except MulliganError:
            raise
        except Exception:  # a world that cannot be built is skipped here, and its error raised where it is drawn
            continue
        digest = getattr(env, "digest", None)
        trial = run_trial_sync(env, player, settings=settings)
        episodes = [episode for episode in trial.episodes if episode.turns]
        first = [episode.turns[0].reply for episode in episodes[:1]]  # before it there is no memory
        later = [turn.reply for episode in trial.episodes for turn in episode.turns[1:]]
        notes = [episode.reflection.completion for episode in trial.episodes if episode.reflection is not None]
        lengths = Lengths(
            lengths.turns,
            max(lengths.opening, *_prompts(first)),
            max(lengths.observation, *_prompts(later)),
            max(lengths.request, *_prompts([note for note in notes if note is not None][:1])),
            None if digest is None else max(lengths.digest or 0, 0, *(renderer.count(digest(e)) for e in episodes)),
        )
    return lengths


def _prompts(replies: Sequence[Completion]) -> list[int]:
    """New tokens before each of `replies`, and 0."""
    return [0, *(len(reply.prompt_ids or ()) for reply in replies)]


class _RandomMoves:
    """Random legal moves where the environment names them, else a reply that no environment understands."""

    name = "random moves"

    def __init__(self, seed: int = 0) -> None:
        self.rng = generator(seed, "lengths")
        self.world: World | None = None
        self.is_over = False

    def start(self, task: Task, seed: int) -> _RandomMoves:
        return _RandomMoves(seed)

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        pass

    def ended(self, episode: Episode) -> None:
        self.is_over = True

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.is_over:
            self.is_over = False
            return Completion("<reflection>\nplan: play on\n</reflection>")
        moves = list(self.world.legal()) if hasattr(self.world, "legal") else []  # type: ignore[union-attr]
        return Completion(self.rng.choice(moves) if moves else "?")

    def close(self) -> None:
        pass
