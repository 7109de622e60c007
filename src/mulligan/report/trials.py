"""Trials to read beside each other, attempt by attempt: a part of the report's page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mulligan.errors import StopReason
from mulligan.report import charts
from mulligan.report.charts import Data, Stroke, escape
from mulligan.report.run import trial_from_dict
from mulligan.types import Episode, Trial

_LONGEST = 400
"""Characters of a text that are shown."""
_MOST_MOVES = 40
_ACTION = re.compile(r"<action>([^<>]*)</action>", re.IGNORECASE)
_HEADING = re.compile(r"\AWhat you remember of [^\n]*:\n")
_BEGINS = re.compile(r"Episode \d+ of \d+ begins\.\s*\Z")
_OUTCOMES = {
    StopReason.TURN_LIMIT: "out of turns",
    StopReason.CONTEXT_FULL: "out of room for another reply",
    StopReason.REQUEST_FAILED: "cut short: the model did not answer",
    StopReason.ENV_RAISED: "cut short: the environment failed",
    StopReason.ENV_HUNG: "cut short: the environment did not answer",
}


def side_by_side(data: Data, how: Mapping[str, Stroke]) -> str:
    """The trials of `data`, a column each; empty where there are none."""
    trials = [(entry, trial_from_dict(entry["trial"])) for entry in data["trials"]]
    if not trials:
        return ""
    rows = 1 + max(len(trial.episodes) for _, trial in trials)
    columns = "".join(_trial(entry, trial, how, rows) for entry, trial in trials)
    return (
        f"<section><h2>The same task, played by both</h2><p>{escape(data['rule'])}</p>"
        f'<div class="trials">{columns}</div></section>'
    )


def _trial(entry: Data, trial: Trial, how: Mapping[str, Stroke], rows: int) -> str:
    solved = "not solved" if trial.solved_at is None else f"solved at attempt {trial.solved_at + 1}"
    return (
        f'<article class="trial" style="grid-row:span {rows}"><header>{charts.legend([entry["method"]], how)}'
        f'<p class="muted">{escape(entry["task"])} · {solved}</p></header>'
        f"{''.join(map(_episode, trial.episodes))}</article>"
    )


def _episode(episode: Episode) -> str:
    moves = "".join(_moves(episode))
    error = f'<p class="bad">{_clipped(episode.error)}</p>' if episode.error else ""
    kind = "good" if episode.won else "bad" if episode.stop is StopReason.LOST else "even"
    outcome = _OUTCOMES.get(episode.stop, episode.stop.value)
    return (
        f'<section class="episode"><h4>Attempt {episode.index + 1} <span class="{kind}">{escape(outcome)}</span></h4>'
        f'{_memory(episode)}<div class="played">{_board(episode)}'
        + (f'<ol class="moves">{moves}</ol>' if moves else '<p class="muted">No move was made.</p>')
        + f"</div>{error}{_reflection(episode)}</section>"
    )


def _memory(episode: Episode) -> str:
    """What the agent was told of earlier attempts, without the first observation and the runner's headings."""
    if not episode.index:
        return ""
    if episode.continues:
        return '<p class="muted">The attempts before are still in its context, word for word.</p>'
    prompt = next((message["content"] for message in reversed(episode.opening) if message["role"] == "user"), "")
    first = episode.turns[0].observation if episode.turns else episode.final
    memory = _HEADING.sub("", _BEGINS.sub("", prompt.removesuffix(first).rstrip())).strip()
    if not memory:
        return '<p class="muted">It remembers nothing of the attempts before.</p>'
    return f'<p class="muted">It remembers:</p><pre class="memory">{_clipped(memory, 3 * _LONGEST)}</pre>'


def _board(episode: Episode) -> str:
    """The whole state before the last move, where observations say in one line what changed."""
    if not episode.turns or "\n" in episode.turns[-1].observation or "\n" not in episode.turns[-1].state_key:
        return ""
    return (
        f'<figure><pre class="board">{_clipped(episode.turns[-1].state_key)}</pre>'
        '<figcaption class="muted">before the last move</figcaption></figure>'
    )


def _moves(episode: Episode) -> Iterator[str]:
    observations = [turn.observation for turn in episode.turns[1:]] + [episode.final]
    for turn, observation in zip(episode.turns[:_MOST_MOVES], observations, strict=False):
        reply = turn.reply.text.strip()
        tagged: list[str] = _ACTION.findall(reply)
        action = tagged[-1].strip() if tagged else reply
        move = f'<b class="move">{_clipped(action or reply or "(nothing)")}</b>'
        if turn.feedback or not turn.valid:
            feedback = "" if turn.valid else f"not valid{': ' if turn.feedback else ''}"
            move += f' <span class="{"muted" if turn.valid else "bad"}">{feedback}{_clipped(turn.feedback)}</span>'
        if "\n" in observation.strip():
            move += f"<pre>{_clipped(observation)}</pre>"
        else:
            marked = re.sub(r"(?<!\S)(\S+=\*)(?!\S)", r'<b class="bad">\1</b>', _clipped(observation))
            move += f' <span class="seen">{marked}</span>'
        if action and reply not in (action, f"<action>{action}</action>"):
            move += f"<details><summary>the whole reply</summary><pre>{_clipped(reply)}</pre></details>"
        yield f"<li>{move}</li>"
    if len(episode.turns) > _MOST_MOVES:
        yield f'<li class="muted">… and {len(episode.turns) - _MOST_MOVES} more moves</li>'


def _reflection(episode: Episode) -> str:
    if episode.reflection is None:
        return ""
    form = "" if episode.reflection.valid else " (not in the asked form)"
    return f'<p class="muted">It notes{form}:</p><pre class="memory">{_clipped(episode.reflection.text)}</pre>'


def _clipped(text: str, longest: int = _LONGEST) -> str:
    """Escaped text, cut where it is too long to read here."""
    return escape(text if len(text) <= longest else f"{text[:longest]} … [{len(text) - longest:,} more characters]")
