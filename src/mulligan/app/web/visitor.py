"""The person at the browser, as a policy: what they click is the reply."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mulligan.app.web.page import Past, Scene, SceneKind, page
from mulligan.app.web.server import Table
from mulligan.app.web.stage import draw
from mulligan.envs.registry import EnvSpec
from mulligan.policy.base import Conversation, World
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

_CHARACTERS = 4
"""Of a token, about: a person's reflection may be as long as an agent's."""
_HEADING = re.compile(r"\AWhat you remember of [^\n]*:\n")
_BEGINS = re.compile(r"Episode \d+ of \d+ begins\.\n")


class Visitor:
    """Policy and conversation in one: there is one person, whatever of their trial must not be remembered."""

    name = "human"

    def __init__(self, table: Table, about: EnvSpec, settings: TrialSettings) -> None:
        self.table, self.about = table, about
        self.scene = Scene(about.name, settings.episodes, about.turns)
        self.world: World | None = None
        self.reward = 0.0
        self.is_over = self.is_reflecting = False

    def start(self, task: Task, seed: int) -> Conversation:
        self.scene.turns, self.scene.title = task.turns, f"{self.about.name} · {task.task_class}, seed {task.seed}"
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        scene = self.scene
        if self.is_reflecting:
            return await self._reflect(messages, _CHARACTERS * sampling.max_tokens)
        if self.is_over:
            await self._ask("pause", ())
            self._begin_again()
        if not scene.taken:
            scene.memory = _HEADING.sub("", _split(messages[-1]["content"])[0])
        scene.sent = (await self._ask("play", messages)).strip()
        return Completion(scene.sent if "<action>" in scene.sent else f"<action>{scene.sent}</action>")

    def close(self) -> None:
        pass

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        scene = self.scene
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

    def finish(self, trial: Trial) -> None:
        scene = self.scene
        scene.kind, scene.observation = "over", trial.episodes[-1].final
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
        scene.stage = draw(self.world, scene.observation) if kind == "play" else ""
        return await self.table.ask(lambda name: page(scene, name))

    async def _reflect(self, messages: Sequence[Message], longest: int) -> Completion:
        self.scene.longest = longest
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
