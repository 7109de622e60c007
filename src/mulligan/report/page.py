"""The report of a demo as one static HTML page: numbers, charts, and two trials to read beside each other.

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
from mulligan.report.run import RunFolder, trial_from_dict
from mulligan.types import Episode


def write_page(path: Path, data: Data) -> None:
    """Write the report to `path`, whole or not at all."""
    RunFolder(path.parent).write_text(path.name, page(data))


def page(data: Data) -> str:
    """The report as HTML. The data are what ``mulligan demo`` writes to ``demo.json``."""
    how = charts.strokes([*(row["method"] for row in data["rows"]), *data["curves"]])
    title = escape(data["title"])
    facts = f"{data['tasks']} held-out tasks · {data['episodes']} attempts at each"
    facts += f" · {data['minutes']:g} minutes · seed {data['seed']}"
    parts = [
        f'<header><h1>{title}</h1><p class="muted">{facts}</p></header>',
        f'<p class="lead">{" ".join(_summary(data))}</p>',
        _table(data["rows"], data["episodes"], how),
        charts.attempts(data, how),
        charts.curves(data, how),
        _side_by_side(data, how),
        "<section><h2>Notes</h2>" + "".join(f"<p>{escape(paragraph)}</p>" for paragraph in data["about"]),
        f"<p>Made with</p><pre>{escape(data['command'])}</pre></section>",
        _READING,
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<style>{_CSS}</style></head>\n<body><main>\n" + "\n".join(filter(None, parts)) + "\n</main></body></html>\n"
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
    body = "".join(_table_row(row, main=how[row["method"]].main) for row in rows)
    return (
        '<section><h2>Share of tasks solved within k attempts</h2><div class="scroll"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="muted">In percent, ± half of the 95\u00a0% interval. '
        "Valid: share of replies that named a legal move.</p></section>"
    )


def _table_row(row: Data, *, main: bool) -> str:
    cells = [
        f"<td>{100 * share:.1f} <small>±{50 * (high - low):.1f}</small></td>"
        for share, (low, high) in zip(row["p"], row["ci"], strict=True)
    ]
    cells += [f"<td>{row['updates']:,}</td>", f"<td>{100 * row['valid']:.0f}\u00a0%</td>"]
    name = f'<th scope="row">{escape(row["method"])}</th>'
    return f'<tr class="{"main" if main else "other"}">{name}{"".join(cells)}</tr>'


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
        move = f'<b class="move">{escape(turn.reply.text.strip() or "(nothing)")}</b>'
        yield f'<li>{move}{refusal} <span class="seen">{marked}</span></li>'


_READING = (
    "<section><h2>How to read p@k</h2><p>p@k is the share of tasks that an agent solves within its first k attempts at "
    "the same task. A trial ends at the first success, so that p@k can only rise with k: trying again helps an agent "
    "that plays at random, too. Independent retries show how much: there the agent knows nothing of its earlier "
    "attempts. What lies above them is what it carried from one attempt to the next. p@1 is the plain success rate.</p>"
    "</section>"
)

_CSS = """
:root{color-scheme:light dark;--back:#fff;--ink:#1d2126;--soft:#5c6570;--rule:#d9dde2;--panel:#f5f6f8;--good:#00704f;
--bad:#b3341a;--c0:#6b7580;--c1:#0072b2;--c2:#d55e00;--c3:#009e73;
--c4:#cc79a7;--c5:#e69f00;--c6:#56b4e9}
@media (prefers-color-scheme:dark){:root{--back:#14171b;--ink:#e6e9ed;--soft:#9aa4af;--rule:#343b44;--panel:#1c2127;
--good:#4cc79b;--bad:#ff8a66;--c0:#9aa4af;--c1:#4aa8e0;--c2:#ff7f2a;
--c3:#2fc49a;--c4:#e19bc4;--c5:#f0b429;--c6:#8ad0f5}}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0 .2rem}h2{font-size:1.25rem;margin:2.6rem 0 .6rem}
h3,h4{font-size:1rem;margin:.2rem 0}p{margin:.4rem 0;max-width:75ch}.lead{font-size:1.1rem;margin-top:1rem}
.muted,small{color:var(--soft)}.muted{font-size:.9rem}.good{color:var(--good)}.bad{color:var(--bad)}
.even{color:var(--soft)}small{font-size:.82em}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .9rem .35rem 0;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child{text-align:left;white-space:normal}th{font-weight:normal}thead th{color:var(--soft);font-size:.9rem}
th,td{vertical-align:top}tr.main th,tr.main td{font-weight:bold}tr.main small{font-weight:normal}
figure{margin:0}
.wide{display:grid;grid-template-columns:minmax(0,620px) minmax(200px,1fr);gap:1.5rem;align-items:center}
.wide .legend{flex-direction:column}.pair,.trials{display:grid;grid-template-columns:1fr 1fr;gap:1rem 2rem}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.5rem 0;list-style:none;font-size:.92rem}
.legend svg{width:30px;height:12px;margin-right:.5rem}
svg{display:inline-block;vertical-align:middle;max-width:100%}.chart{width:100%;font-size:12.5px}
svg text{fill:var(--soft);font-family:system-ui,sans-serif}.chart .name{fill:var(--ink)}
.grid,.axis,.ceiling{stroke:var(--rule);fill:none}.axis{stroke:var(--soft)}
.ceiling{stroke:var(--soft);stroke-dasharray:1 4;stroke-width:1.5;stroke-linecap:round}
.line,.whisker{fill:none;stroke:var(--c)}.line.main{stroke-width:2.8}.line.thin{stroke-width:1.3}
.whisker.main{stroke-width:1.5}.whisker.thin{stroke-width:1;opacity:.55}.dot{fill:var(--c)}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}
.c6{--c:var(--c6)}
.trial{display:grid;grid-template-rows:subgrid;align-content:start;min-width:0}.trial .legend{font-weight:bold;margin:0}
.episode{background:var(--panel);border-radius:8px;padding:.7rem .9rem;min-width:0}
.played{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem;align-items:flex-start}.played .moves{flex:1 1 190px;min-width:0}
.moves{margin:.4rem 0;padding-left:1.6rem;font-size:.92rem}.moves li::marker{color:var(--soft)}
.seen{color:var(--soft);overflow-wrap:anywhere;font-family:ui-monospace,monospace;font-size:.86em}
.move,pre{font-family:ui-monospace,monospace}
pre{background:var(--panel);padding:.5rem .7rem;border-radius:6px;margin:.3rem 0;font-size:.86rem;white-space:pre-wrap;
overflow-wrap:anywhere}.episode pre{background:var(--back)}
.board{line-height:1.15}
@media (max-width:760px){.wide,.pair,.trials{grid-template-columns:minmax(0,1fr)}.wide .legend{flex-direction:row}
.trial{grid-row:auto!important;grid-template-rows:none;gap:.8rem}
table{font-size:.92rem}th,td{padding-right:.5rem}td small{display:block}.lead{font-size:1rem}}
"""
