"""The person at the browser, as a policy: what they click is the reply."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mulligan.app.web.stage import draw
from mulligan.app.web.table import Past, Scene, SceneKind, Table
from mulligan.envs.registry import EnvSpec
from mulligan.policy.base import Conversation, World
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

_CHARACTERS = 4
"""Of a token, about: a person's reflection may be as long as an agent's."""
_HEADING = re.compile(r"\AWhat you remember of [^\n]*:\n")
_BEGINS = re.compile(r"\s*Episode \d+ of \d+ begins\.\n")


class Visitor:
    """Policy and conversation in one: there is one person, whatever of their trial must not be remembered."""

    name = "human"

    def __init__(self, table: Table, about: EnvSpec, settings: TrialSettings) -> None:
        self.table, self.about, self.episodes = table, about, settings.episodes
        self.world: World | None = None
        self.turns = about.turns
        self.title = about.name
        self.past: list[Past] = []
        self.last: Step | None = None
        self.sent = self.memory = ""
        self.taken, self.reward = 0, 0.0
        self.is_over = self.is_reflecting = False

    def start(self, task: Task, seed: int) -> Conversation:
        self.turns, self.title = task.turns, f"{self.about.name} · {task.task_class}, seed {task.seed}"
        return self

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        if self.is_reflecting:
            return await self._reflect(messages, _CHARACTERS * sampling.max_tokens)
        if self.is_over:
            await self.table.ask(self._scene("pause", ()))
            self._begin_again()
        if not self.taken:
            self.memory = _HEADING.sub("", _split(messages[-1]["content"])[0])
        self.sent = (await self.table.ask(self._scene("play", messages))).strip()
        return Completion(self.sent if "<action>" in self.sent else f"<action>{self.sent}</action>")

    def close(self) -> None:
        pass

    def watch(self, world: World) -> None:
        self.world = world

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        self.taken += 1
        self.last = step
        self.reward += step.reward
        if step.done or self.taken == self.turns:
            self.is_over = True
            self.reward += 0.0 if step.done else self.about.timeout_reward
            drawn = self.about.kind == "versus" and self.reward == 0
            ended = "won" if step.won else "turn limit" if not step.done else "drawn" if drawn else "lost"
            self.past.append(Past(len(self.past) + 1, ended, self.taken, self.reward, step.won))

    def ended(self, episode: Episode) -> None:
        self.is_reflecting = True

    async def _reflect(self, messages: Sequence[Message], longest: int) -> Completion:
        typed = (await self.table.ask(self._scene("reflection", messages, longest))).replace("\r\n", "\n").strip()
        note = typed[:longest] or "plan: none"
        self._begin_again()
        text = note if "<reflection>" in note else f"<reflection>\n{note}\n</reflection>"
        return Completion(text, "length" if len(typed) > longest else "stop")

    def _begin_again(self) -> None:
        self.is_over = self.is_reflecting = False
        self.taken, self.reward, self.last, self.sent = 0, 0.0, None, ""

    def _scene(self, kind: SceneKind, messages: Sequence[Message], longest: int = 0) -> Scene:
        assert self.world is not None, "the runner shows the world before it asks"
        playing = kind == "play"
        observation = self.last.observation if self.last is not None else _split(messages[-1]["content"])[1]
        return Scene(
            kind,
            self.title,
            episode=len(self.past) + int(playing),
            episodes=self.episodes,
            turns=self.turns,
            left=self.turns - self.taken,
            observation=observation,
            stage=draw(self.world, observation) if playing else None,
            messages=tuple(messages),
            sent=self.sent,
            was_move=self.last is None or self.last.valid,
            feedback=self.last.feedback if self.last is not None else "",
            memory=self.memory,
            past=tuple(self.past),
            longest=longest,
        )


def last_scene(trial: Trial, title: str, episodes: int) -> Scene:
    """How the trial ended."""
    past = tuple(
        Past(
            episode.index + 1,
            episode.stop.value.replace("_", " ") + (f" ({episode.error})" if episode.error else ""),
            len(episode.turns),
            episode.reward,
            episode.won,
            episode.reflection.text if episode.reflection is not None else "",
        )
        for episode in trial.episodes
    )
    final = trial.episodes[-1].final
    return Scene("over", title, len(past), episodes, trial.task.turns, 0, final, past=past)


def _split(opening: str) -> tuple[str, str]:
    """The two parts of an episode's first message: what it is given of earlier episodes, and the observation."""
    begins = list(_BEGINS.finditer(opening))
    return (opening[: begins[-1].start()], opening[begins[-1].end() :]) if begins else ("", opening)
