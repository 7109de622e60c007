"""A scene of the trial as one HTML page: the world on the left, what an agent is given at the same moment on the right.

No scripts, nothing loaded from elsewhere, and well-formed XML as well, so that programs can read it.
"""

from __future__ import annotations

from mulligan.app.web.stage import FOCUS, board_class
from mulligan.app.web.style import CSS
from mulligan.app.web.table import Scene
from mulligan.report.charts import escape

_LONGEST_SENT = 400
_MOST_ACTIONS = 60


def page(scene: Scene, name: str) -> str:
    """The page of `scene`; `name` is what its answers say they belong to."""
    hidden = f'<input type="hidden" name="page" value="{escape(name)}"/>'
    forms = "".join(f'<form id="{form}" method="post" action="/">{hidden}</form>' for form in ("act", "ask"))
    has_notice = scene.feedback and scene.kind == "play"
    notice = f'<p class="notice" role="status">{escape(scene.feedback)}</p>' if has_notice else ""
    left = {"play": _play, "pause": _episode_end, "reflection": _episode_end, "over": _trial_end}[scene.kind](scene)
    right = _agent(scene) if scene.kind != "over" else ""
    shape = "two" if right else "one"
    return _document(
        f"{scene.title}: episode {scene.episode} of {scene.episodes}",
        f'{forms}{_top(scene)}<div class="{shape}"><main>{notice}{left}</main>{right}</div>',
    )


WAIT = '<p>One moment, please.</p><meta http-equiv="refresh" content="1;url=/"/>'
"""While the world takes its time; the page asks again by itself."""
GOOD_BYE = "<h1>Good bye.</h1><p>The program has ended; this tab can be closed.</p>"


def card(html: str) -> str:
    """A page that is no scene."""
    return _document("mulligan", f'<div class="one"><main><div class="card">{html}</div></main></div>')


def _document(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/><link rel="icon" href="data:,"/>'
        f"<style>{CSS}</style></head>\n<body>{body}</body></html>\n"
    )


def _top(scene: Scene) -> str:
    """Where the trial stands: its episodes, and the turns that are left."""
    over = {past.number: past for past in scene.past}
    chips = ""
    for number in range(1, scene.episodes + 1):
        kind, label = "now" if scene.kind == "play" and number == scene.episode else "later", str(number)
        if past := over.get(number):
            kind, label = "won" if past.won else "lost", f"{number}: {past.reward:.3g}"
        chips += f'<span class="chip {kind}">{label}</span>'
    left = ""
    if scene.kind == "play":
        turns = f"{scene.left} turn{'s' if scene.left != 1 else ''} left"
        meter = f'<meter min="0" max="{scene.turns}" low="3" value="{scene.left}">{scene.left}</meter>'
        left = f'<span class="left" id="left">{turns}</span>{meter}'
    return (
        f'<header><b class="brand">mulligan</b><span class="what">{escape(scene.title)}</span>'
        f'<span class="trial"><span class="word">Episode {scene.episode} of {scene.episodes}</span>'
        f'<span class="chips">{chips}</span>{left}</span></header>'
    )


def _play(scene: Scene) -> str:
    assert scene.stage is not None, "a turn shows the world"
    memory, rules = "", ""
    if scene.memory:
        text = f"<summary>What you remember</summary><pre>{escape(scene.memory)}</pre>"
        memory = f'<details class="memory" open="open">{text}</details>'
    if scene.messages[0]["role"] == "system":
        rules = f"<details><summary>The rules</summary><pre>{escape(scene.messages[0]['content'])}</pre></details>"
    return f"{memory}{scene.stage.html}{rules}"


def _episode_end(scene: Scene) -> str:
    past = scene.past[-1]
    head = (
        f'<div class="card end"><h1>Episode {past.number}: {escape(past.ended)}</h1>'
        f'<p class="score">Reward <b id="reward">{past.reward:.3g}</b> after {past.turns} '
        f"turn{'s' if past.turns != 1 else ''}</p><pre>{escape(scene.observation)}</pre></div>"
    )
    if scene.kind == "pause":
        return f'{head}<p><button form="act" name="say" value="" class="go"{FOCUS}>Next episode</button></p>'
    return (
        f'{head}<div class="card"><label for="note"><b>Your reflection.</b> The next episode sees it, and may see '
        "nothing else of this one.</label>"
        f'<textarea form="ask" id="note" name="say" rows="7" maxlength="{scene.longest}" '
        f'placeholder="What you tried, how it ended, what you will do differently"{FOCUS}></textarea>'
        '<button form="ask" class="go">Remember this, next episode</button></div>'
    )


def _trial_end(scene: Scene) -> str:
    outcome = "You won." if scene.past[-1].won else "The trial is over."
    rows = "".join(
        f'<tr class="{"won" if past.won else "lost"}"><th scope="row">{past.number}</th><td>{escape(past.ended)}</td>'
        f'<td>{past.turns}</td><td>{past.reward:.3g}</td><td class="note">{escape(past.note)}</td></tr>'
        for past in scene.past
    )
    return (
        f'<div class="card end"><h1>{outcome}</h1><pre>{escape(scene.observation)}</pre>'
        "<table><thead><tr><th>episode</th><th>ended</th><th>turns</th><th>reward</th><th>reflection</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        '<p><button form="act" name="leave" value="yes" class="go">Finish</button></p></div>'
    )


def _agent(scene: Scene) -> str:
    """What an agent has before it now: its last answer, the newest message, what it can answer, and all before."""
    sent = ""
    if scene.sent:
        word = "sent" if scene.was_move else "refused"
        rest = f"… ({len(scene.sent):,} characters)" if len(scene.sent) > _LONGEST_SENT else ""
        text = escape(scene.sent[:_LONGEST_SENT] + rest)
        sent = f'<p class="{word}"><small>{word}</small> <code id="sent">{text}</code></p>'
    newest = scene.messages[-1]["content"] if scene.messages else scene.observation
    actions = scene.stage.actions if scene.stage is not None else ()
    offered = "".join(f"<li><code>{escape(action)}</code></li>" for action in actions[:_MOST_ACTIONS])
    if len(actions) > _MOST_ACTIONS:
        offered += f"<li>and {len(actions) - _MOST_ACTIONS} more</li>"
    can = f'<h3>It can answer</h3><ul class="actions">{offered}</ul>' if offered else ""
    messages = "".join(
        f"<h4>{escape(message['role'])}</h4><pre>{escape(message['content'])}</pre>" for message in scene.messages
    )
    summary = f"<summary>All it is given now: {len(scene.messages)} messages</summary>"
    all_before = f"<details>{summary}{messages}</details>" if messages else ""
    seen = f'<pre id="agent" class="{board_class(newest).strip()}">{escape(newest)}</pre>'
    return f"<aside><h2>What an agent sees</h2>{sent}{seen}{can}{all_before}</aside>"
