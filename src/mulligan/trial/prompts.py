"""Every word the runner itself says to an agent, written once for all environments.

A style changes how the agent is asked to answer, and its memory mode if none is given:

plain      thinking allowed, not asked for; memory: reflection
note       as plain; a reflection is a short note, where the others ask for its parts one by one
zero-shot  the action alone; no memory
react      think first, then act (ReAct, arXiv 2210.03629); no memory
reflexion  as react, with reflections between episodes (Reflexion, arXiv 2303.11366)
bare       nothing but what the environment says, and replies without tags; for tiny models and short contexts
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mulligan.errors import StopReason, UnknownName
from mulligan.trial.reflection import BOUNDARIES, FIELDS
from mulligan.types import Episode, Memory, Message, Restart, Tool

_TAGS = re.compile(r"</?(?:action|reflection)>")


@dataclass(frozen=True, slots=True)
class Style:
    """How the agent is asked to answer."""

    name: str
    memory: Memory
    """Memory mode where none is asked for."""
    instruction: str
    """Said after the rules."""
    tool_instruction: str = ""
    """Said instead of it to a model that calls the environment's tools."""
    parts: bool = True
    """Whether reflections are asked for part by part: about 150 tokens at every request, where a note takes 45."""
    bare: bool = False
    """Leaves out all words of the runner: no rules, no outcome, no turns left."""

    def action(self, reply: str) -> str:
        """A reply as the environment reads it: bare replies get the tags."""
        return f"<action>{reply}</action>" if self.bare and "<action>" not in reply else reply

    def demonstrated(self, reply: str) -> str:
        """A scripted player's reply as an agent should write it."""
        return _TAGS.sub("", reply) if self.bare else reply


_MAY_THINK = (
    "You may think first, briefly. End your answer with exactly one <action>.",
    "You may think first, briefly. Then call exactly one tool.",
)
_STEPS = "First think step by step about what you see and what to do, in a few sentences."
_THINK = (f"{_STEPS} Then end with exactly one <action>.", f"{_STEPS} Then call exactly one tool.")
_ALONE = ("Answer with the <action> alone, without any other text.", "Call exactly one tool, without any other text.")
STYLES = {
    style.name: style
    for style in (
        Style("plain", "reflection", *_MAY_THINK),
        Style("note", "reflection", *_MAY_THINK, parts=False),
        Style("zero-shot", "none", *_ALONE),
        Style("react", "none", *_THINK),
        Style("reflexion", "reflection", *_THINK),
        Style("bare", "history", "", bare=True),
    )
}


def style(name: str) -> Style:
    if name not in STYLES:
        raise UnknownName("style", name, STYLES)
    return STYLES[name]


CHARACTERS = {
    "cautious": "You are cautious: you play what you know to be good.",
    "balanced": "You try something new now and then, and otherwise play what you know to be good.",
    "curious": "You are curious: you try what you have not tried yet, to find out what it is worth.",
}
"""A word for how somebody plays -> the line that says it."""


def system(
    rules: str,
    how: Style,
    turns: int,
    tools: Sequence[Tool] = (),
    *,
    calls_tools: bool = False,
    character: str = "",
) -> str:
    """The first message: the game, how to answer, and how to play; empty where nothing is said.

    Style `bare` says of all that the word for how to play alone. A model that `calls_tools` is told of them by its
    server or chat template, any other one here.
    """
    if how.bare:
        return character
    instruction = how.tool_instruction if calls_tools else how.instruction
    listed = "" if calls_tools or not tools else f"\n\n{_in_words(tools)}"
    playing = f"\n{CHARACTERS.get(character, character)}" if character else ""
    return f"{rules}{listed}\n\nAn episode has at most {turns} turn{'s' if turns > 1 else ''}. {instruction}{playing}"


def _in_words(tools: Sequence[Tool]) -> str:
    lines = [f"{tool.name}: {tool.description} ARGUMENTS: {json.dumps(dict(tool.parameters))}" for tool in tools]
    return "You act with one of these tools: <action>NAME ARGUMENTS</action>, ARGUMENTS being JSON.\n" + "\n".join(
        lines
    )


def opening(
    observation: str, index: int, episodes: int, memory_text: str, how: Style, *, tell: bool, related: bool = False
) -> str:
    """Begins an episode: the memory, then the first observation.

    Where it is not to `tell` of other episodes, each attempt is independent.
    """
    memory_section = remembered(memory_text, how, related=related) if memory_text else ""
    if how.bare:
        return memory_section + observation
    return f"{memory_section}Episode {index + 1} of {episodes} begins.\n{observation}" if tell else observation


def remembered(memory_text: str, how: Style, *, related: bool) -> str:
    """The memory with the words around it."""
    if how.bare:
        return f"{memory_text}\n"
    return f"What you remember of {'earlier tasks of this kind' if related else 'this task'}:\n{memory_text}\n\n"


def turn(observation: str, feedback: str, turns_left: int, how: Style) -> str:
    """Between two replies of an episode."""
    if how.bare:
        return observation
    answer = f"{feedback}\n{observation}" if feedback else observation
    return f"{answer}\n({turns_left} turn{'s' if turns_left != 1 else ''} left)"


def last_turns(
    messages: list[Message], turns_played: int, window: int | None, system: list[Message], how: Style
) -> list[Message]:
    """The messages a reply is asked for with: all, or with a window only the last turns of the episode.

    Window 2 after 3 turns, messages [system, opening, r1, o1, r2, o2, r3, o3]: the opening stands at 8-1-6 = 1,
    2 turns are left out, and the tail begins at 8-4+1 = 5: [system, opening + note + o2, r3, o3].
    """
    if window is None or turns_played < window:
        return messages
    opening_message, tail = messages[-1 - 2 * turns_played], messages[len(messages) - 2 * window + 1 :]
    left_out = turns_played - window + 1
    note = "" if how.bare else f"[{left_out} turn{'s' if left_out > 1 else ''} left out]\n"
    content = f"{opening_message['content']}\n{note}{tail[0]['content']}"
    return [*system, {"role": "user", "content": content}, *tail[1:]]


_ENDINGS = {
    StopReason.WON: "you won",
    StopReason.LOST: "you did not win",
    StopReason.DRAWN: "it was a draw",
    StopReason.TURN_LIMIT: "you did not win: the turns ran out",
    StopReason.CONTEXT_FULL: "you did not win: there was no room for another answer",
    **{stop: "it was cut short by a technical failure" for stop in StopReason if stop.is_infrastructure},
}


def ending(episode: Episode, feedback: str, how: Style) -> str:
    if how.bare:
        return episode.final
    answer = f"{feedback}\n{episode.final}" if feedback else episode.final
    return f"{answer}\nEpisode {episode.index + 1} is over: {_ENDINGS[episode.stop]}. Reward: {episode.reward:g}."


def headline(episode: Episode) -> str:
    """One line on an earlier episode, above what is remembered of it (not in the bare style)."""
    return f"Episode {episode.index + 1}: {_ENDINGS[episode.stop]}, reward {episode.reward:g}."


_FORM, _BOUNDARIES = ("\n".join(f"{name}: {what}" for name, what in part.items()) for part in (FIELDS, BOUNDARIES))
_NEXT = {
    "related": "Next you will play another task of the same kind.",
    "replay": "You will play the same task again, from the same start.",
    "fresh": "You will play again: the same task and, if there is one, the same opponent, but luck is drawn anew.",
}


def reflection_request(
    ended: str, restart: Restart | Literal["related"], how: Style, *, boundaries: bool = False
) -> str:
    """Asks for the reflection after an episode; `ended` says how it ended, `restart` what comes next.

    With `boundaries` it is also to say where its lesson applies: for a reflection that other trials are shown.
    """
    if how.bare:
        return f"{ended}\nreflect"
    seen = "you will see it, and may see nothing else of this episode."
    if not how.parts:
        note = "Write a short note for yourself between <reflection> and </reflection>:"
        return f"{ended}\n\n{_NEXT[restart]} {note} {seen}"
    parts = f"{_FORM}\n{_BOUNDARIES}" if boundaries else _FORM
    form = f"Write it between tags, one line for each part:\n<reflection>\n{parts}\n</reflection>"
    return f"{ended}\n\n{_NEXT[restart]} Write a short reflection for yourself: {seen} {form}"
