"""The report of a demo as one static HTML page: numbers, charts, two trials to read, and two first attempts on a map.

A pure function of the demo's plain data: no scripts, nothing loaded from elsewhere, well-formed XML. The trials are
those of MineSweeper's compact view, where observations say in one line what changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mulligan.errors import StopReason
from mulligan.report import charts
from mulligan.report.charts import MAIN, Data, Stroke, escape
from mulligan.report.run import trial_from_dict
from mulligan.types import Episode


def page(data: Data) -> str:
    """The report as HTML. The data are what ``mulligan demo`` writes to ``demo.json``."""
    how = charts.strokes([*(row["method"] for row in data["rows"]), *data["curves"]])
    title, css = escape(data["title"]), Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    facts = f"{data['tasks']} held-out tasks · {data['episodes']} attempts at each"
    facts += f" · {data['minutes']:g} minutes · seed {data['seed']}"
    parts = [
        f'<header><h1>{title}</h1><p class="muted">{facts}</p></header>',
        f'<p class="lead">{" ".join(_summary(data))}</p>',
        _table(data["rows"], data["episodes"], how),
        charts.attempts(data, how),
        charts.curves(data, how),
        _side_by_side(data, how),
        _signpost(data["signpost"]) if "signpost" in data else "",
        "<section><h2>Notes</h2>" + "".join(f"<p>{escape(paragraph)}</p>" for paragraph in data["about"]),
        f"<p>Made with</p><pre>{escape(data['command'])}</pre></section>",
        _READING,
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<style>\n{css}</style></head>\n<body><main>\n" + "\n".join(filter(None, parts)) + "\n</main></body></html>\n"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _summary(data: Data) -> list[str]:
    """RL and meta-RL in words; nothing is claimed that the intervals do not carry."""
    shares = {row["method"]: row["p"] for row in data["rows"]}
    last, (rl, meta) = data["episodes"], MAIN
    gains = {name: 100 * (shares[name][-1] - shares[name][0]) for name in MAIN}
    points, (low, high) = data["gap"]["points"], data["gap"]["ci"]
    doubt = "; the interval includes 0, so that this run does not tell them apart" if low <= 0 <= high else ""
    sentences = [
        f"Within {last} attempts at a task, the agent trained with <b>{meta}</b> solves "
        f"<b>{_percent(shares[meta][-1])}</b> of the tasks, the one trained with <b>{rl}</b>, "
        f"<b>{_percent(shares[rl][-1])}</b>.",
        f"The difference is <b>{points:+.1f} points</b> (95\u00a0% interval {low:+.1f} to {high:+.1f}, on the same "
        f"tasks){doubt}.",
        f"At the first attempt it is {_percent(shares[meta][0])} against {_percent(shares[rl][0])}: from p@1 to "
        f"p@{last} {meta} gains {gains[meta]:.1f} points and {rl} {gains[rl]:.1f}.",
    ]
    without_memory = shares.get(f"{meta}, independent retries")
    if without_memory is not None:
        reached = _percent(without_memory[-1])
        sentences.append(f"Without memory of the attempts before, the same {meta} agent reaches {reached}.")
    return [*sentences, f"The ceiling, a player who sees what is hidden, is {_percent(data['ceiling'])}."]


def _table(rows: Sequence[Data], episodes: int, how: Mapping[str, Stroke]) -> str:
    titles = [*(f"p@{k}" for k in range(1, episodes + 1)), "updates", "valid"]
    head = "".join(f'<th scope="col">{title}</th>' for title in ("method", *titles))
    body = ""
    for row in rows:
        cells = [f"{100 * share:.1f}" for share in row["p"]]
        if "ci" in row:  # an optimum is computed, not played
            halves = [f" <small>±{50 * (high - low):.1f}</small>" for low, high in row["ci"]]
            cells = [share + half for share, half in zip(cells, halves, strict=True)]
        cells += [f"{row['updates']:,}", f"{100 * row['valid']:.0f}\u00a0%"] if "valid" in row else ["–", "–"]
        kind = "main" if how[row["method"]].main else "other"
        body += f'<tr class="{kind}"><th scope="row">{escape(row["method"])}</th>'
        body += "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return (
        '<section><h2>Share of tasks solved within k attempts</h2><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="muted">In percent, ± half of the 95\u00a0% interval. '
        "Valid: share of replies that named a legal move.</p></section>"
    )


def _side_by_side(data: Data, how: Mapping[str, Stroke]) -> str:
    """The trials of `data`, a column each; empty where there are none."""
    trials = [(entry, trial_from_dict(entry["trial"])) for entry in data["trials"]]
    columns = []
    for entry, trial in trials:
        rows = 1 + max(len(each.episodes) for _, each in trials)
        solved = "not solved" if trial.solved_at is None else f"solved at attempt {trial.solved_at + 1}"
        columns.append(
            f'<article class="trial" style="grid-row:span {rows}"><header>{charts.legend([entry["method"]], how)}'
            f'<p class="muted">{escape(entry["task"])} · {solved}</p></header>'
            f"{''.join(map(_episode, trial.episodes))}</article>"
        )
    head = f"<section><h2>The same task, played by both</h2><p>{escape(data['rule'])}</p>"
    return f'{head}<div class="trials">{"".join(columns)}</div></section>' if trials else ""


def _signpost(act: Data) -> str:
    """The second act: its table, and the first attempts of two agents at one task, each on the map."""
    how = charts.strokes(row["method"] for row in act["rows"])
    reads, (myopic, meta) = act["reads_first"], list(act["reads_first"])[1:]
    points, (low, high) = act["gap_to_myopic"]["points"], act["gap_to_myopic"]["ci"]
    lead = (
        "Behind one of the doors is the prize, 1, behind the others 0.1. Reading the sign names the door, but uses up "
        f"the attempt and earns nothing. With credit across attempts (<b>{meta}</b>, γ_traj 0.6) the agent reads the "
        f"sign first in <b>{_percent(reads[meta])}</b> of the tasks; without it (γ_traj 0), in "
        f"<b>{_percent(reads[myopic])}</b>. Within {act['episodes']} attempts that is a difference of "
        f"<b>{points:+.1f} points</b> (95\u00a0% interval {low:+.1f} to {high:+.1f})."
    )
    columns = "".join(_first_attempt(entry, how) for entry in act["first_attempts"])
    figures = (
        f"<section><h2>The first attempt at one task, by two agents</h2><p>{escape(act['rule'])}</p>"
        f'<div class="trials">{columns}</div></section>'
    )
    return (
        f'<header class="act"><h1>{escape(act["title"])}</h1><p class="muted">{act["tasks"]} held-out tasks · '
        f'{act["episodes"]} attempts at each · {act["updates"]} updates</p></header><p class="lead">{lead}</p>'
        f'<p class="lead"><b>{escape(act["sentence"])}</b></p>'
        f"{_table(act['rows'], act['episodes'], how)}<p>{escape(act['about'])}</p>{figures if columns else ''}"
    )


def _first_attempt(entry: Data, how: Mapping[str, Stroke]) -> str:
    """The map after the first attempt, with a caption that says what the attempts did and earned."""
    kinds = {"x": "bad", "!": "good", "*": "good"}
    marked = re.sub(r"\[([x!*])\] \S+", lambda mark: f'<b class="{kinds[mark[1]]}">{mark[0]}</b>', escape(entry["map"]))
    first, *later = (
        f"{escape(move)} and earns {earned:g}" for move, earned in zip(entry["moves"], entry["earned"], strict=True)
    )
    return (
        f'<figure class="episode">{charts.legend([entry["method"]], how)}<pre class="map">{marked}</pre><figcaption>'
        f"<p><b>The agent {first}.</b> Then it {', then '.join(later)}: {sum(entry['earned']):g} in all.</p>"
        '<p class="muted">[x] was opened, without the prize · [!] has the prize, says the sign</p>'
        "</figcaption></figure>"
    )


def _episode(episode: Episode) -> str:
    moves = "".join(_moves(episode))
    kind = "good" if episode.won else "bad" if episode.stop is StopReason.LOST else "even"
    outcome = "out of turns" if episode.stop is StopReason.TURN_LIMIT else episode.stop.value.replace("_", " ")
    board = episode.turns[-1].state_key if episode.turns else ""
    figure = '<figure><pre class="board">{}</pre><figcaption class="muted">before the last move</figcaption></figure>'
    return (
        f'<section class="episode"><h4>Attempt {episode.index + 1} <span class="{kind}">{outcome}</span></h4>'
        f'{_memory(episode)}<div class="played">{figure.format(escape(board)) if board else ""}'
        f'<ol class="moves">{moves}</ol></div></section>'
    )


def _memory(episode: Episode) -> str:
    """What the agent was told of earlier attempts: the opening without the first observation."""
    if not episode.index:
        return ""
    first = episode.turns[0].observation if episode.turns else episode.final
    memory = episode.opening[-1]["content"].removesuffix(first).strip()
    return f'<p class="muted">It remembers:</p><pre class="memory">{escape(memory)}</pre>'


def _moves(episode: Episode) -> Iterator[str]:
    """Each move with what the environment said of it and showed; mines stand out."""
    observations = [*(turn.observation for turn in episode.turns[1:]), episode.final]
    for turn, observation in zip(episode.turns, observations, strict=True):
        refusal = "" if turn.valid else f' <span class="bad">not valid: {escape(turn.feedback)}</span>'
        marked = re.sub(r"(?<!\S)(\S+=\*)(?!\S)", r'<b class="bad">\1</b>', escape(observation))
        move = f'<b class="move">{escape(turn.reply.written.strip() or "(nothing)")}</b>'
        yield f'<li>{move}{refusal} <span class="seen">{marked}</span></li>'


_READING = (
    "<section><h2>How to read p@k</h2><p>p@k is the share of tasks that an agent solves within its first k attempts at "
    "the same task. It can only rise with k: trying again helps an agent that plays at random, too. Independent "
    "retries show how much: there the agent knows nothing of its earlier attempts. What lies above them is what it "
    "carried from one attempt to the next. p@1 is the plain success rate.</p>"
    "</section>"
)
