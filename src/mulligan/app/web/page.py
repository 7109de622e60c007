"""A scene of the trial as one HTML page: the world on the left, what an agent is given at the same moment on the right.

No scripts, nothing loaded from elsewhere, and well-formed XML as well, so that programs can read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from mulligan.app.web.stage import FOCUS, board_class
from mulligan.text import escape
from mulligan.types import Message, Step

_CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_LONGEST_SENT = 400
SceneKind = Literal["play", "pause", "reflection", "over"]
"""A turn; the end of an episode, without and with a reflection; the end of the trial."""


class Past(NamedTuple):
    """An episode that is over."""

    ended: str
    turns: int
    reward: float
    won: bool
    note: str = ""
    """Its reflection."""


class Belief(NamedTuple):
    """An opponent that there may be."""

    name: str
    words: str
    """What it does: "it …"; empty where nothing is known."""
    share: float
    """How likely it is, 0 to 1."""


@dataclass
class Scene:
    """What is to be seen at this moment of the trial, and what is asked."""

    title: str
    episodes: int
    turns: int
    """Turns that an episode may have."""
    kind: SceneKind = "play"
    taken: int = 0
    """Turns of this episode so far."""
    observation: str = ""
    stage: str = ""
    """The world as HTML, in a turn."""
    messages: Sequence[Message] = ()
    """What an agent would be given at this moment."""
    sent: str = ""
    """The answer before this moment."""
    last: Step | None = None
    """What that answer led to."""
    memory: str = ""
    """What this episode was given of earlier ones."""
    past: list[Past] = field(default_factory=list)
    longest: int = 0
    """Characters that a reflection may have."""
    player: str = ""
    """Who plays, if it is not the person."""
    beliefs: list[Belief] = field(default_factory=list)
    """Who the opponent may be, the likeliest first."""
    opponent: str = ""
    """Who it was, once the trial is over."""

    @property
    def episode(self) -> int:
        """Counted from 1."""
        return len(self.past) + (self.kind == "play")


def page(scene: Scene, name: str) -> str:
    """The page of `scene`; `name` is what its answers say they belong to."""
    hidden = f'<input type="hidden" name="page" value="{escape(name)}"/>'
    forms = "".join(f'<form id="{form}" method="post" action="/">{hidden}</form>' for form in ("act", "ask"))
    feedback = scene.last.feedback if scene.last is not None and scene.kind == "play" else ""
    notice = f'<p class="notice" role="status">{escape(feedback)}</p>' if feedback else ""
    left = {"play": _play, "pause": _episode_end, "reflection": _episode_end, "over": _trial_end}[scene.kind](scene)
    right = (_agent(scene) if scene.kind != "over" else "") + _beliefs(scene)
    right = f"<aside>{right}</aside>" if right else ""
    shape = "two" if right else "one"
    return _document(
        f"{scene.title}: episode {scene.episode} of {scene.episodes}",
        f'{forms}{_top(scene)}<div class="{shape}"><main>{notice}{left}</main>{right}</div>',
    )


WAIT = '<p>One moment, please.</p><meta http-equiv="refresh" content="1;url=/"/>'
"""While the world takes its time; the page asks again by itself."""
GOOD_BYE = "<h1>Good bye.</h1><p>The program has ended; this tab can be closed.</p>"


def card(html: str) -> str:
    return _document("mulligan", f'<div class="one"><main><div class="card">{html}</div></main></div>')


def _document(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/><link rel="icon" href="data:,"/>'
        f"<style>{_CSS}</style></head>\n<body>{body}</body></html>\n"
    )


def _top(scene: Scene) -> str:
    """Where the trial stands: its episodes, and the turns that are left."""
    chips = ""
    for number in range(1, scene.episodes + 1):
        kind, label = "now" if scene.kind == "play" and number == scene.episode else "later", str(number)
        if number <= len(scene.past):
            past = scene.past[number - 1]
            kind, label = "won" if past.won else "lost", f"{number}: {past.reward:.3g}"
        chips += f'<span class="chip {kind}">{label}</span>'
    left = ""
    if scene.kind == "play":
        count = scene.turns - scene.taken
        meter = f'<meter min="0" max="{scene.turns}" low="3" value="{count}">{count}</meter>'
        left = f'<span class="left" id="left">{count} turn{"s" if count != 1 else ""} left</span>{meter}'
    return (
        f'<header><b class="brand">mulligan</b><span class="what">{escape(scene.title)}</span>'
        f'<span class="trial"><span class="word">Episode {scene.episode} of {scene.episodes}</span>'
        f'<span class="chips">{chips}</span>{left}</span></header>'
    )


def _play(scene: Scene) -> str:
    memory, rules = "", ""
    if scene.memory:
        text = f"<summary>What you remember</summary><pre>{escape(scene.memory)}</pre>"
        memory = f'<details class="memory" open="open">{text}</details>'
    if scene.messages[0]["role"] == "system":
        rules = f"<details><summary>The rules</summary><pre>{escape(scene.messages[0]['content'])}</pre></details>"
    return f"{memory}{scene.stage}{rules}"


def _episode_end(scene: Scene) -> str:
    past = scene.past[-1]
    head = (
        f'<div class="card end"><h1>Episode {scene.episode}: {escape(past.ended)}</h1>'
        f'<p class="score">Reward <b id="reward">{past.reward:.3g}</b> after {past.turns} '
        f"turn{'s' if past.turns != 1 else ''}</p><pre>{escape(scene.observation)}</pre></div>"
    )
    if scene.kind == "pause":
        note = f"<pre>{escape(past.note)}</pre>" if past.note else ""
        return f'{head}{note}<p><button form="act" name="say" value="" class="go"{FOCUS}>Next episode</button></p>'
    return (
        f'{head}<div class="card"><label for="note"><b>Your reflection.</b> The next episode sees it, and may see '
        "nothing else of this one.</label>"
        f'<textarea form="ask" id="note" name="say" rows="7" maxlength="{scene.longest}" '
        f'placeholder="What you tried, how it ended, what you will do differently"{FOCUS}></textarea>'
        '<button form="ask" class="go">Remember this, next episode</button></div>'
    )


def _trial_end(scene: Scene) -> str:
    outcome = "You won." if scene.past[-1].won and not scene.player else "The trial is over."
    opponent = f'<p id="opponent">The opponent was {escape(scene.opponent)}.</p>' if scene.opponent else ""
    rows = "".join(
        f'<tr class="{"won" if past.won else "lost"}"><th scope="row">{number}</th><td>{escape(past.ended)}</td>'
        f'<td>{past.turns}</td><td>{past.reward:.3g}</td><td class="note">{escape(past.note)}</td></tr>'
        for number, past in enumerate(scene.past, 1)
    )
    return (
        f'<div class="card end"><h1>{outcome}</h1>{opponent}<pre>{escape(scene.observation)}</pre>'
        "<table><thead><tr><th>episode</th><th>ended</th><th>turns</th><th>reward</th><th>reflection</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        '<p><button form="act" name="leave" value="yes" class="go">Finish</button></p></div>'
    )


def _agent(scene: Scene) -> str:
    """What an agent has before it now: its last answer, the newest message, and all before."""
    sent = ""
    if scene.sent:
        word = "sent" if scene.last is None or scene.last.valid else "refused"
        rest = f"… ({len(scene.sent):,} characters)" if len(scene.sent) > _LONGEST_SENT else ""
        text = escape(scene.sent[:_LONGEST_SENT] + rest)
        sent = f'<p class="{word}"><small>{word}</small> <code id="sent">{text}</code></p>'
    newest = scene.messages[-1]["content"] if scene.messages else scene.observation
    messages = "".join(
        f"<h4>{escape(message['role'])}</h4><pre>{escape(message['content'])}</pre>" for message in scene.messages
    )
    summary = f"<summary>All it is given now: {len(scene.messages)} messages</summary>"
    all_before = f"<details>{summary}{messages}</details>" if messages else ""
    seen = f'<pre id="agent" class="{board_class(newest).strip()}">{escape(newest)}</pre>'
    who = f"What {scene.player} sees" if scene.player else "What an agent sees"
    return f"<h2>{escape(who)}</h2>{sent}{seen}{all_before}"


def _beliefs(scene: Scene) -> str:
    """Who the opponent may be, to somebody who knows the pool and has seen what the player saw."""
    rows = "".join(
        f'<tr title="{escape(each.words and f"it {each.words}")}"><th scope="row">{escape(each.name)}</th>'
        f'<td><meter min="0" max="1" value="{each.share:.4f}">{each.share:.0%}</meter></td>'
        f"<td>{each.share:.0%}</td></tr>"
        for each in scene.beliefs
    )
    return f'<h2>Who the opponent may be</h2><table id="beliefs">{rows}</table>' if rows else ""
