"""The optimal player: plays what `mulligan.eval.optimum` computes, in the real environment."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, cast

from mulligan.envs.model import Belief, Model
from mulligan.errors import ContractBroken
from mulligan.eval.beliefs import Act, Plan
from mulligan.eval.optimum import optimum_of
from mulligan.policy.base import Conversation, World
from mulligan.policy.scripted import Beside
from mulligan.seeding import generator
from mulligan.trial.settings import TrialSettings
from mulligan.types import Step, Task


class OptimalPolicy:
    """Plays for the highest Σ γ_traj^n · return of attempt n, in trials with these settings. γ_traj = 0 is myopic.

    Without memory each attempt is played as the only one.
    """

    def __init__(self, settings: TrialSettings, gamma_traj: float = 1.0) -> None:
        self.settings = replace(settings, episodes=1) if settings.memory_mode == "none" else settings
        self.gamma_traj = gamma_traj
        self.name = "optimal" if gamma_traj == 1.0 else f"optimal:{gamma_traj:g}"

    def start(self, task: Task, seed: int) -> Conversation:
        plan = optimum_of(task, self.settings, self.gamma_traj).plan
        return _OptimalConversation(task, generator(seed, "optimal"), plan)


class _OptimalConversation(Beside):
    def __init__(self, task: Task, rng: random.Random, plan: Plan) -> None:
        super().__init__(task, rng, kind="optimal")
        self.plan = plan

    def watch(self, world: World) -> None:
        self.world, self.player = world, OptimalPlayer(cast(Any, world).model(), self.plan)


class OptimalPlayer:
    """Keeps the belief that follows from what the world tells, and plays the plan's action in it."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.belief: Belief | None = plan.graph.rules.start(plan.graph.worlds)
        self.episode = self.turn = 0
        self.chosen: Act | None = None

    def act(self) -> str:
        if self.turn == 0 and self.plan.graph.rules.deals:
            self._choose()
            self._go_on((cast(Any, self.model).opening(), False, False), "the beginning of an attempt")
        return self.model.reply(self._choose().action)

    def see(self, step: Step) -> None:
        assert self.chosen is not None, "something was done before something is seen"
        answer = f"{step.observation!r} after {self.model.reply(self.chosen.action)}"
        self._go_on((self.model.told(step), step.done, step.won) if step.valid else None, f"the answer {answer}")

    def _choose(self) -> Act:
        assert self.belief is not None, "the trial is over"
        self.chosen = self.plan.action(self.belief, self.episode, self.turn)
        return self.chosen

    def _go_on(self, seen: tuple[Hashable, bool, bool] | None, event: str) -> None:
        """To the belief that follows from what was seen after the chosen action."""
        assert self.chosen is not None, "something was chosen"
        branch = None if seen is None else self.chosen.branches.get(seen)
        if branch is None:
            raise ContractBroken(f"the model of the game does not expect {event}")
        self.belief = branch.belief
        self.episode, self.turn = (self.episode + 1, 0) if branch.ended else (self.episode, self.turn + 1)
