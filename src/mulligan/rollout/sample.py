"""The lengths of what environments say, measured on a few trials of a player that makes random legal moves.

The sample does not depend on the run's seed, nor on which worlds are for training: runs that differ in nothing else
have the same context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

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
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

TASKS = 8
"""Trials of each environment."""


def sampled_lengths(mixture: Mixture, settings: TrialSettings, renderer: Renderer) -> dict[str, Lengths]:
    """Environment -> lengths of what it says, in tokens of `renderer`."""
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
        except Exception:  # a world that cannot be built is passed over here, and said where it is drawn
            continue
        digest = getattr(env, "digest", None)
        trial = run_trial_sync(env, player, settings=settings)
        digests = [renderer.count(digest(episode)) for episode in _played(trial)] if digest is not None else []
        lengths = Lengths(
            lengths.turns,
            max(lengths.opening, _prompt(_first_replies(trial)[:1])),
            max([lengths.observation, *(_prompt([reply]) for reply in _later_replies(trial))]),
            max(lengths.request, _prompt(_notes(trial))),
            max([lengths.digest or 0, *digests]) if digest is not None else None,
        )
    return lengths


def _prompt(replies: Sequence[Completion]) -> int:
    """New tokens before the first of `replies`; 0 where there is none."""
    return len(replies[0].prompt_ids or ()) if replies else 0


def _played(trial: Trial) -> list[Episode]:
    return [episode for episode in trial.episodes if episode.turns]


def _first_replies(trial: Trial) -> list[Completion]:
    """The reply to each episode's opening; before the first episode there is no memory."""
    return [episode.turns[0].reply for episode in _played(trial)]


def _later_replies(trial: Trial) -> Iterator[Completion]:
    return (turn.reply for episode in trial.episodes for turn in episode.turns[1:])


def _notes(trial: Trial) -> list[Completion]:
    notes = (episode.reflection.completion for episode in trial.episodes if episode.reflection is not None)
    return [note for note in notes if note is not None]


class _RandomMoves:
    """Random legal moves where the environment names them, else a reply that no environment understands."""

    name = "random moves"

    def start(self, task: Task, seed: int) -> _RandomConversation:
        return _RandomConversation(generator(seed, "lengths"))


class _RandomConversation:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.world: World | None = None
        self.is_over = False

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step) -> None:
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
