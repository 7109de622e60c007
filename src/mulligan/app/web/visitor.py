"""The person at the browser, as a policy: what they click is the reply.

Or they look on: then another policy plays, and moves when they say so.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from mulligan.app.web.page import Belief, Past, Scene, SceneKind, page
from mulligan.app.web.server import Table
from mulligan.app.web.stage import draw
from mulligan.envs.opponents import WORDS, nameless_class, who_it_was
from mulligan.envs.registry import EnvSpec
from mulligan.policy.base import Conversation, Policy, Spectator, World
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

_CHARACTERS = 4
"""Of a token, about: a person's reflection may be as long as an agent's."""
_HEADING = re.compile(r"\AWhat you remember of [^\n]*:\n")
_BEGINS = re.compile(r"Episode \d+ of \d+ begins\.\n")


class Visitor:
    """Policy and conversation in one: there is one person, whatever of their trial must not be remembered."""

    def __init__(self, table: Table, about: EnvSpec, settings: TrialSettings, policy: Policy | None = None) -> None:
        """policy: who plays while the person only looks on; None: the person plays."""
        self.table, self.about, self.policy = table, about, policy
        self.name = policy.name if policy else "human"
        self.scene = Scene(about.name, settings.episodes, about.turns)
        self.agent: Conversation | None = None
        self.onlooker: Any = None
        """In a game of two: a scripted player that makes no move, and believes something of the opponent."""
        self.world: World | None = None
        self.reward = 0.0
        self.is_over = self.is_reflecting = False

    def start(self, task: Task, seed: int) -> Conversation:
        self.scene.turns = task.turns
        self.scene.title = f"{self.about.name} · {nameless_class(task)}, seed {task.seed}"
        if self.policy is not None:
            self.agent = self.policy.start(task, seed)
            self.scene.player = self.policy.name
            for name in ("count_tokens", "context"):
                if hasattr(self.agent, name):
                    setattr(self, name, getattr(self.agent, name))
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        scene = self.scene
        if self.is_reflecting:
            return await self._reflect(messages, sampling)
        if self.is_over:
            await self._ask("pause", ())
            self._begin_again()
        if not scene.taken:
            scene.memory = _HEADING.sub("", _split(messages[-1]["content"])[0])
        answer = (await self._ask("play", messages)).strip()
        if self.agent is not None:
            completion = await self.agent.reply(messages, sampling)
            scene.sent = completion.text
            return completion
        scene.sent = answer
        return Completion(scene.sent if "<action>" in scene.sent else f"<action>{scene.sent}</action>")

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()

    def watch(self, world: World) -> None:
        if isinstance(self.agent, Spectator):
            self.agent.watch(world)
        if world is not self.world and self.about.kind == "versus" and hasattr(world, "player"):
            onlooker = world.player("expert", random.Random(0), 1.0, 1.0)
            self.onlooker = onlooker if hasattr(onlooker, "beliefs") else None
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        scene = self.scene
        if isinstance(self.agent, Spectator):
            self.agent.see(step, timeout_reward)
        if self.onlooker is not None:
            self.onlooker.see(step._replace(done=step.done or timeout_reward is not None))
        scene.taken += 1
        scene.last = step
        self.reward += step.reward
        if step.done or scene.taken == scene.turns:
            self.is_over = True
            self.reward += 0.0 if step.done else self.about.timeout_reward
            drawn = self.about.kind == "versus" and getattr(self.world, "drawn", self.reward == 0)
            ended = "won" if step.won else "turn limit" if not step.done else "drawn" if drawn else "lost"
            scene.past.append(Past(ended, scene.taken, self.reward, step.won))

    def ended(self, episode: Episode) -> None:
        self.is_reflecting = True
        if isinstance(self.agent, Spectator):
            self.agent.ended(episode)

    def finish(self, trial: Trial) -> None:
        scene = self.scene
        scene.kind, scene.observation = "over", trial.episodes[-1].final
        self._believe()
        if trial.task.opponent:
            scene.opponent = who_it_was(self.world, trial.task.opponent)
        scene.past = [
            Past(
                episode.stop.value.replace("_", " ") + (f" ({episode.error})" if episode.error else ""),
                len(episode.turns),
                episode.reward,
                episode.won,
                episode.reflection.text if episode.reflection is not None else "",
            )
            for episode in trial.episodes
        ]
        self.table.finish(lambda name: page(scene, name))

    async def _ask(self, kind: SceneKind, messages: Sequence[Message]) -> str:
        assert self.world is not None, "the runner shows the world before it asks"
        scene = self.scene
        scene.kind, scene.messages = kind, messages
        scene.observation = scene.last.observation if scene.last is not None else _split(messages[-1]["content"])[1]
        scene.stage = draw(self.world, scene.observation, watched=self.agent is not None) if kind == "play" else ""
        self._believe()
        return await self.table.ask(lambda name: page(scene, name))

    def _believe(self) -> None:
        """What somebody who knows the pool believes of the opponent, after what has been seen."""
        beliefs: dict[str, float] = self.onlooker.beliefs() if self.onlooker is not None else {}
        words = {**WORDS, **getattr(self.world, "opponent_words", {})}
        self.scene.beliefs = [
            Belief(name, words.get(name, ""), share)
            for name, share in sorted(beliefs.items(), key=lambda item: -item[1])
            if len(beliefs) > 1
        ]

    async def _reflect(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.agent is not None:
            completion = await self.agent.reply(messages, sampling)
            self.scene.past[-1] = self.scene.past[-1]._replace(note=completion.text)
            await self._ask("pause", ())
            self._begin_again()
            return completion
        longest = self.scene.longest = _CHARACTERS * sampling.max_tokens
        typed = (await self._ask("reflection", messages)).replace("\r\n", "\n").strip()
        note = typed[:longest] or "plan: none"
        self._begin_again()
        text = note if "<reflection>" in note else f"<reflection>\n{note}\n</reflection>"
        return Completion(text, "length" if len(typed) > longest else "stop")

    def _begin_again(self) -> None:
        self.is_over = self.is_reflecting = False
        self.scene.taken, self.scene.last, self.scene.sent, self.reward = 0, None, "", 0.0


def _split(opening: str) -> tuple[str, str]:
    """The two parts of an episode's first message: what it is given of earlier episodes, and the observation."""
    begins = list(_BEGINS.finditer(opening))
    return (opening[: begins[-1].start()].rstrip(), opening[begins[-1].end() :]) if begins else ("", opening)
