"""Trials to read beside each other, attempt by attempt: a part of the report's page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mulligan.errors import StopReason
from mulligan.report import charts
from mulligan.report.charts import Board, Cell, Data, Stroke, escape
from mulligan.report.run import trial_from_dict
from mulligan.types import Episode, Task, Trial, Turn

_LONGEST = 400
_MOST_MOVES = 40
_ACTION = re.compile(r"<action>([^<>]*)</action>", re.IGNORECASE)
_FACT = re.compile(r"([a-z])(\d{1,2})=(\S)")
_NAMED = re.compile(r"([a-zA-Z])(\d{1,2})")
_PAIR = re.compile(r"\(?\s*(\d{1,2})\s*[,;\s]\s*(\d{1,2})\s*\)?")
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
    """Trials beside each other, attempt by attempt."""
    shown = [(entry, trial_from_dict(entry["trial"])) for entry in data.get("trials") or ()]
    if not shown:
        return ""
    rows = 1 + max(len(trial.episodes) for _, trial in shown)
    columns = [_trial(entry, trial, how, rows) for entry, trial in shown]
    same = len(shown) == 2 and shown[0][1].task == shown[1][1].task
    heading = "The same task, played by both" if same else "Trials to read"
    rule = f"<p>{escape(data['rule'])}</p>" if data.get("rule") else ""
    drawn = "".join(columns)
    key = [said for mark, said in _KEYS.items() if f'class="{mark}"' in drawn]
    explained = f'<p class="muted">{" ".join(key)}</p>' if key else ""
    return f'<section><h2>{heading}</h2>{rule}{explained}<div class="trials">{drawn}</div></section>'


_KEYS = {
    "board": "A board shows the end of an attempt; the number in a corner says which move chose that cell.",
    "ring": "A dashed ring marks a mine that an earlier attempt had opened.",
}


def _trial(entry: Data, trial: Trial, how: Mapping[str, Stroke], rows: int) -> str:
    name = str(entry.get("method", ""))
    solved = "not solved" if trial.solved_at is None else f"solved at attempt {trial.solved_at + 1}"
    sample = charts.legend([name], how) if name in how else f"<p><b>{escape(name)}</b></p>"
    about = escape(" · ".join(filter(None, [str(entry.get("task", "")), solved])))
    mines: dict[Cell, int] = {}
    episodes = []
    for episode in trial.episodes:
        task = trial.related[episode.index - 1] if episode.index and trial.related else trial.task
        episodes.append(_episode(task, episode, {} if trial.related else mines))
    return (
        f'<article class="trial" style="grid-row:span {rows}"><header>{sample}<p class="muted">{about}</p></header>'
        f"{''.join(episodes)}</article>"
    )


def _episode(task: Task, episode: Episode, mines: dict[Cell, int]) -> str:
    """One attempt; `mines` are those that earlier attempts opened, and learns this one's."""
    board, current = _final_board(task, episode)
    hit = list(_cells_of(board, "*")) if board and charts.has_mines(board) else []
    outcome = _OUTCOMES.get(episode.stop, episode.stop.value)
    if hit and not episode.won:
        again = next((mines[cell] for cell in hit if cell in mines), None)
        outcome += ": opened a mine" if again is None else f": opened the mine of attempt {again} again"
    drawn = "" if board is None else _drawn(board, episode, mines, current=current)
    for cell in hit:
        mines.setdefault(cell, episode.index + 1)
    moves = "".join(_moves(episode, mines=bool(board and charts.has_mines(board))))
    error = f'<p class="bad">{_clipped(episode.error)}</p>' if episode.error else ""
    kind = "good" if episode.won else "bad" if episode.stop is StopReason.LOST else "even"
    return (
        f'<section class="episode"><h4>Attempt {episode.index + 1} <span class="{kind}">{escape(outcome)}</span></h4>'
        f'{_memory(episode)}<div class="played">{drawn}'
        + (f'<ol class="moves">{moves}</ol>' if moves else '<p class="muted">No move was made.</p>')
        + f"</div>{error}{_reflection(episode)}</section>"
    )


def _memory(episode: Episode) -> str:
    """What the agent was told of earlier attempts, without the first observation and the runner's headings."""
    if not episode.index:
        return ""
    if episode.continues:
        return '<p class="muted">The attempts before are still in its context, word for word.</p>'
    said = next((message["content"] for message in reversed(episode.opening) if message["role"] == "user"), "")
    first = episode.turns[0].observation if episode.turns else episode.final
    said = _HEADING.sub("", _BEGINS.sub("", said.removesuffix(first).rstrip())).strip()
    if not said:
        return '<p class="muted">It remembers nothing of the attempts before.</p>'
    return f'<p class="muted">It remembers:</p><pre class="memory">{_clipped(said, 3 * _LONGEST)}</pre>'


def _moves(episode: Episode, *, mines: bool) -> Iterator[str]:
    after = [turn.observation for turn in episode.turns[1:]] + [episode.final]
    for turn, seen in zip(episode.turns[:_MOST_MOVES], after, strict=False):
        text = turn.reply.text.strip()
        action = _action(turn)
        thought = text if action not in (text, "") and f"<action>{action}</action>" != text else ""
        said = f'<b class="move">{_clipped(action or text or "(nothing)")}</b>'
        if not turn.valid:
            said += f' <span class="bad">not valid{f": {_clipped(turn.feedback)}" if turn.feedback else ""}</span>'
        elif turn.feedback:
            said += f' <span class="muted">{_clipped(turn.feedback)}</span>'
        shown = _clipped(seen)
        if "\n" in seen.strip():
            said += f"<pre>{shown}</pre>"
        else:
            marked = re.sub(r"(?<!\S)(\S+=\*)(?!\S)", r'<b class="bad">\1</b>', shown) if mines else shown
            said += f' <span class="seen">{marked}</span>'
        if thought:
            said += f"<details><summary>the whole reply</summary><pre>{_clipped(thought)}</pre></details>"
        yield f"<li>{said}</li>"
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


def _action(turn: Turn) -> str:
    """What a reply says to do: what stands in its last tags, or all of it."""
    found: list[str] = _ACTION.findall(turn.reply.text)
    return (found[-1] if found else turn.reply.text).strip()


def _cell_named(action: str, board: Board) -> Cell | None:
    """The cell an action names, as ``b3`` or ``(3, 2)``; None if it names none on the board."""
    if named := _NAMED.fullmatch(action):
        row, col = int(named[2]) - 1, ord(named[1].lower()) - ord("a")
    elif pair := _PAIR.fullmatch(action):
        row, col = int(pair[1]) - 1, int(pair[2]) - 1
    else:
        return None
    return (row, col) if 0 <= row < len(board) and 0 <= col < len(board[0]) else None


def _cells_of(board: Board, sign: str) -> Iterator[Cell]:
    return ((row, col) for row, signs in enumerate(board) for col, found in enumerate(signs) if found == sign)


def _final_board(task: Task, episode: Episode) -> tuple[Board | None, bool]:
    """The board at the end of an episode if it shows one, and whether it has the last move in it.

    A turn's state key is the board its reply was given to. What the last move opened is read from the last
    observation, where that names cells (``b3=2``).
    """
    whole = charts.read_board(episode.final)
    if whole is not None or not episode.turns:
        return whole, True
    last = episode.turns[-1]
    before = charts.read_board(last.state_key)
    facts = list(_opened([turn.observation for turn in episode.turns] + [episode.final]))
    sizes = [int(value) for key in ("rows", "cols") for name, value in task.params if name == key]
    if before is None and facts and len(sizes) == 2:
        before = (("?",) * sizes[1],) * sizes[0]
    if before is None:
        return None, True
    cells = [list(row) for row in before]
    for row, col, sign in facts:
        if 0 <= row < len(cells) and col < len(cells[0]):
            cells[row][col] = sign
    return tuple(map(tuple, cells)), not last.valid or any(_opened([episode.final]))


def _opened(observations: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """(row, column, sign) of each cell that observations made of nothing else name."""
    for text in observations:
        found = [_FACT.fullmatch(word) for word in text.split()]
        if found and all(found):
            yield from ((int(fact[2]) - 1, ord(fact[1]) - ord("a"), fact[3]) for fact in found if fact)


def _drawn(board: Board, episode: Episode, rings: Iterable[Cell], *, current: bool) -> str:
    order: dict[Cell, int] = {}
    actions = [_action(turn) for turn in episode.turns]
    for place, action in enumerate(actions, 1):
        cell = _cell_named(action, board)
        if cell is not None:
            order.setdefault(cell, place)
    letters = any(_NAMED.fullmatch(action) for action in actions)
    title = f"The board {'after' if current else 'before'} the last move of attempt {episode.index + 1}"
    note = "" if current else '<figcaption class="muted">before the last move</figcaption>'
    drawn = charts.draw_board(board, order, rings, letters=letters, title=title)
    return f'<figure class="end">{drawn}{note}</figure>'
