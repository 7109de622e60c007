"""What the note changed: how likely each move was at a turn, with what the agent remembered of earlier attempts,
without it, and with what it remembered in another trial of the same class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.report.run import trial_from_dict
from mulligan.trial import prompts
from mulligan.types import Message, Trial
from mulligan.view.index import TrialIndex
from mulligan.view.models import Models
from mulligan.view.query import Wanted, page
from mulligan.view.trials import as_page
from mulligan.view.worlds import moves_at, refuse_others

_BEGINS = re.compile(r"Episode \d+ of \d+ begins\.\n\Z")
_TAGS = re.compile(r"</?action>")
_DONORS = 40
"""Trials that are looked at for a memory that is not this one's."""
KINDS = ("own", "none", "foreign")


class Opening(NamedTuple):
    """The first message of an attempt, in the part that is memory and the rest."""

    memory: str
    rest: str


def noted(models: Models, index: TrialIndex, name: str, arm: str, place: int, at: tuple[int, int]) -> dict[str, Any]:
    """The chances of the moves at an episode and turn, both counted from 0."""
    episode, turn = at
    trial = trial_from_dict(index.read(arm, place))
    opening = opening_of(trial, episode)
    if not 0 <= turn < len(trial.episodes[episode].turns):
        raise UsageError(f"attempt {episode + 1} has {len(trial.episodes[episode].turns)} turns (got {turn + 1})")
    refuse_others(trial.task)
    player = models.player(name, arm)
    is_bare = trial.episodes[episode].opening[0]["role"] != "system"
    style = prompts.style("bare" if is_bare else "plain")  # all others say the same between two turns
    spec = registry.spec(trial.task.env)
    chance = episode if (player.settings.restart or spec.restart) == "fresh" else 0
    played = [style.action(each.reply.text) for each in trial.episodes[episode].turns]
    replies = [style.demonstrated(reply) for reply in moves_at(trial, episode, turn, chance, played)]
    if not replies:
        raise UsageError(f"{trial.task.env} does not list its legal moves, so that there is nothing to weigh")
    memories = {"own": opening.memory, "none": ""}
    if foreign := _foreign(index, arm, place, trial, episode):
        memories["foreign"] = foreign
    asked = [_messages(trial, at, memory + opening.rest, style, player.settings.window) for memory in memories.values()]
    with models.busy:
        policy = models.load(player)
        chances = policy.reply_chances(asked, [replies] * len(asked), player.settings.sampling)
    shown = as_page(replace(trial, episodes=trial.episodes[episode : episode + 1]))
    moment = shown["episodes"][0]["turns"][turn]
    return {
        "place": place,
        "arm": arm,
        "class": trial.task.task_class,
        "seed": trial.task.seed,
        "episode": episode + 1,
        "turn": turn + 1,
        "turns": [len(each.turns) for each in trial.episodes],
        "player": player.words,
        "temperature": player.settings.sampling.temperature,
        "drawing": moment["drawing"],
        "seen": moment["seen"],
        "played": _TAGS.sub("", trial.episodes[episode].turns[turn].reply.text).strip(),
        "memories": {kind: text.strip()[:20_000] for kind, text in memories.items()},
        "moves": [_TAGS.sub("", reply) for reply in replies],
        "chances": dict(zip(memories, chances, strict=True)),
        "moved": {kind: moved(chances[0], each) for kind, each in zip(memories, chances, strict=True)},
    }


def moved(one: Sequence[float], other: Sequence[float]) -> float:
    """The share of probability that lies elsewhere (total variation): half of all differences.

    What both leave for replies that are no legal move counts as one more: (.7, .2 | .1) and (.4, .2 | .4) differ by .3.
    """
    differences = [abs(first - second) for first, second in zip(one, other, strict=True)]
    return (sum(differences) + abs(sum(one) - sum(other))) / 2


def opening_of(trial: Trial, episode: int) -> Opening:
    """What an attempt was shown first; raises where it was shown no memory that can be taken away."""
    if not 0 <= episode < len(trial.episodes):
        raise UsageError(f"this trial has {len(trial.episodes)} attempts (got {episode + 1})")
    each = trial.episodes[episode]
    if any(turn.reply.tool_calls for turn in each.turns):
        raise UsageError("this agent calls tools, whose chances are not computed")
    if each.continues:
        raise UsageError(
            "this attempt goes on in the text of the one before: there is no note that could be taken away"
        )
    if not each.turns or not each.opening or not each.opening[-1]["content"].endswith(each.turns[0].observation):
        raise UsageError("this attempt has no first message to change")
    content = each.opening[-1]["content"]
    memory = content.removesuffix(each.turns[0].observation)
    begins = _BEGINS.search(memory)
    memory = memory[: begins.start()] if begins else memory
    if not episode or not memory.strip():
        raise UsageError("this attempt remembered nothing: it is the first one, or its memory was empty")
    return Opening(memory, content[len(memory) :])


def _messages(
    trial: Trial, at: tuple[int, int], opening: str, style: prompts.Style, window: int | None
) -> list[Message]:
    """All that the agent was sent up to a turn, with another first message."""
    episode, turn = at
    turns, system = trial.episodes[episode].turns, list(trial.episodes[episode].opening[:-1])
    messages: list[Message] = [*system, {"role": "user", "content": opening}]
    for number in range(turn):
        left = trial.task.turns - number - 1
        after = prompts.turn(turns[number + 1].observation, turns[number].feedback, left, style)
        messages.append({"role": "assistant", "content": turns[number].reply.text})
        messages.append({"role": "user", "content": after})
    return prompts.last_turns(messages, turn, window, system, style)


def _foreign(index: TrialIndex, arm: str, place: int, trial: Trial, episode: int) -> str:
    """The memory of the same attempt in the next trial of the class that has another one; empty: none has."""
    ours = opening_of(trial, episode).memory
    wanted = Wanted(arm, task_class=trial.task.task_class, limit=500)
    rows: Sequence[Mapping[str, Any]] = page(index, wanted)["rows"]
    others = [row["place"] for row in rows if row["place"] != place and len(row["outcomes"]) > episode]
    others.sort(key=lambda other: (other < place, other))
    for other in others[:_DONORS]:
        try:
            memory = opening_of(trial_from_dict(index.read(arm, other)), episode).memory
        except UsageError:
            continue
        if memory != ours:
            return memory
    return ""
