"""Pictures of games, from what an agent has seen of them: cells in rows, which a page draws and nobody has to trust.

An environment draws through one optional static method, `draw(task, seen)`: `seen` are the observations of an episode
so far, the last one newest; None where they show nothing to draw. It reads text alone, so that a trial can be drawn
long after it was played, without its world.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mulligan.types import Task

KINDS = (
    "hidden", "open", "mine", "wall", "floor", "goal", "box", "stored", "you", "x", "o", "card", "back", "win", "loss",
    "draw", "place", "prize", "miss", "shown", "here", "label",
)  # fmt: skip
"""What a page knows how to colour."""
MOST_CELLS = 2_500
Draw = Callable[[Task, Sequence[str]], "Drawing | None"]


class Cell(NamedTuple):
    """One cell of a picture."""

    kind: str
    """One of `KINDS`."""
    text: str = ""
    name: str = ""
    """What an agent calls it in its actions, so that the page can mark the cell that it chose."""


@dataclass(frozen=True)
class Drawing:
    """Rows of cells, of equal length where they are a board."""

    rows: tuple[tuple[Cell, ...], ...]
    words: str
    """The picture in words, for people who hear the page."""
    is_board: bool = True
    """Cells are squares that touch; otherwise they are cards or places with a text."""


def board_of(rows: Iterable[Iterable[Cell]], words: str) -> Drawing | None:
    drawn = tuple(tuple(row) for row in rows)
    count = sum(map(len, drawn))
    return Drawing(drawn, words) if 0 < count <= MOST_CELLS and len({*map(len, drawn)}) == 1 else None


def pieces_of(rows: Iterable[Iterable[Cell]], words: str) -> Drawing | None:
    drawn = tuple(tuple(row) for row in rows if row)
    return Drawing(drawn, words, is_board=False) if 0 < sum(map(len, drawn)) <= MOST_CELLS else None


_NEWS = re.compile(r"\b([a-z])(\d{1,2})=([0-8*])")


def minesweeper(task: Task, seen: Sequence[str]) -> Drawing | None:
    """Both views: a board as it is; of the compact one, what was told so far."""
    rows, cols, compact = task.integer("rows"), task.integer("cols"), task["view"] == "compact"
    if rows * cols > MOST_CELLS:
        return None
    shown: dict[tuple[int, int], str] = {}
    if compact:
        for letter, number, text in _NEWS.findall("\n".join(seen)):
            shown[int(number) - 1, ord(letter) - ord("a")] = text
    else:
        lines = [line.split()[1:] for line in seen[-1].splitlines()[1 : rows + 1]]
        if len(lines) != rows or any(len(line) != cols for line in lines):
            return None
        shown = {(y, x): text for y, line in enumerate(lines) for x, text in enumerate(line) if text != "?"}

    def cell(y: int, x: int) -> Cell:
        name = f"{chr(ord('a') + x)}{y + 1}" if compact else f"({y + 1}, {x + 1})"
        text = shown.get((y, x))
        kind = "hidden" if text is None else "mine" if text == "*" else "open"
        return Cell(kind, "" if text in (None, "0") else "✹" if text == "*" else str(text)[:2], name)

    words = f"{rows} by {cols} cells, {len(shown)} open" + (", a mine hit" if "*" in shown.values() else "")
    return board_of(((cell(y, x) for x in range(cols)) for y in range(rows)), words)


_SOKOBAN: Mapping[str, Cell] = {
    "#": Cell("wall"), "_": Cell("floor"), "O": Cell("goal", "○"), "X": Cell("box"), "*": Cell("stored", "✓"),
    "P": Cell("you", "☻"), "+": Cell("you", "☻"), "?": Cell("hidden"),
}  # fmt: skip
_LISTED = re.compile(r"^(walls|goals|boxes|you) (.*)$", re.MULTILINE)
_CELL = re.compile(r"([a-z])(\d{1,2})(\*?)")
_YOU = re.compile(r"^you ([a-z])(\d{1,2})$", re.MULTILINE)


def sokoban(task: Task, seen: Sequence[str]) -> Drawing | None:
    if task["view"] == "cells":
        return _sokoban_cells(task, seen)
    rows, lines = task.integer("rows"), [line.split() for line in seen[-1].splitlines()]
    boards = [line for line in lines if line and all(glyph in _SOKOBAN for glyph in line)][-rows:]
    return _sokoban_board([_SOKOBAN[glyph] for glyph in line] for line in boards)


def _sokoban_board(rows: Iterable[Iterable[Cell]]) -> Drawing | None:
    drawn = [list(row) for row in rows]
    left, hidden = (sum(cell.kind == kind for row in drawn for cell in row) for kind in ("box", "hidden"))
    return board_of(drawn, f"{left} boxes not on a goal{f', {hidden} cells not seen' if hidden else ''}")


def _sokoban_cells(task: Task, seen: Sequence[str]) -> Drawing | None:
    """Walls and goals are told once, in the dark at every turn; the outer walls are not.

    In the dark, cells count as seen that are named, or in sight of where a turn ended.
    """
    rows, cols, sight = task.integer("rows"), task.integer("cols"), int(dict(task.params).get("sight", 0))
    visited = {(int(number), ord(letter) - 96) for letter, number in _YOU.findall("\n".join(seen))}
    cells_by_kind: dict[str, dict[tuple[int, int], str]] = {"walls": {}, "goals": {}}
    for kind, text in _LISTED.findall("\n".join(seen)):
        cells_by_kind[kind] = {(int(number), ord(letter) - 96): star for letter, number, star in _CELL.findall(text)}
    boxes = cells_by_kind.get("boxes", {})

    def cell(place: tuple[int, int]) -> Cell:
        in_sight = not sight or any(max(abs(place[0] - y), abs(place[1] - x)) <= sight for y, x in visited)
        if not in_sight and not any(place in places for places in cells_by_kind.values()):
            return _SOKOBAN["?"]
        if place in cells_by_kind["walls"] or place[0] in (0, rows - 1) or place[1] in (0, cols - 1):
            return _SOKOBAN["#"]
        if place in boxes:
            return _SOKOBAN["*" if boxes[place] or place in cells_by_kind["goals"] else "X"]
        return _SOKOBAN[
            "P" if place in cells_by_kind.get("you", {}) else "O" if place in cells_by_kind["goals"] else "_"
        ]

    return _sokoban_board([cell((y, x)) for x in range(cols)] for y in range(rows))


def tictactoe(task: Task, seen: Sequence[str]) -> Drawing | None:
    lines = [line.split() for line in seen[-1].splitlines()[:3]]
    if [len(line) for line in lines] != [3, 3, 3]:
        return None
    kinds = {"X": "x", "O": "o"}
    rows = [
        [Cell(kinds.get(mark, "floor"), mark if mark in kinds else "", f"({y}, {x})") for x, mark in enumerate(line, 1)]
        for y, line in enumerate(lines, 1)
    ]
    return board_of(rows, "; ".join(" ".join(line) for line in lines))


_CARD = re.compile(r"(Your card|Open card|opponent holds)[: ] ?([JQK]|none)")


def poker(task: Task, seen: Sequence[str]) -> Drawing | None:
    """Kuhn and Leduc: one's card, the open one, and the opponent's once it is shown."""
    cards = dict(_CARD.findall(seen[-1]))
    if "Your card" not in cards:
        return None
    row = [Cell("label", "you"), Cell("card", cards["Your card"][:1])]
    if (open_card := cards.get("Open card")) is not None:
        row += [Cell("label", "open"), Cell("back", "") if open_card == "none" else Cell("card", open_card)]
    theirs = cards.get("opponent holds")
    row += [Cell("label", "opponent"), Cell("card", theirs) if theirs else Cell("back", "")]
    return pieces_of([row], f"you hold {cards['Your card']}, the opponent {theirs or 'a hidden card'}")


_THROW = re.compile(r"\b(rock|paper|scissors)/(rock|paper|scissors)\b")
_SIGNS = {"rock": "R", "paper": "P", "scissors": "S"}
_BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}


def throws(task: Task, seen: Sequence[str]) -> Drawing | None:
    """Rock-paper-scissors: both hands, throw by throw; green where the agent won it."""
    played = _THROW.findall(seen[-1])
    if not played:
        return None
    kinds = ["draw" if mine == theirs else "win" if _BEATS[mine] == theirs else "loss" for mine, theirs in played]
    rows = [
        [Cell("label", who), *(Cell(kind, _SIGNS[each[side]]) for kind, each in zip(kinds, played, strict=True))]
        for side, who in enumerate(("you", "opponent"))
    ]
    won, lost = kinds.count("win"), kinds.count("loss")
    return board_of(rows, f"{len(played)} throws: won {won}, lost {lost}, drawn {len(played) - won - lost}")


_NAMED = re.compile(r"^(?:Doors|Rooms|Tools): (.*)\.$", re.MULTILINE)
_TRAILS = re.compile(r"^Trails: (.*)\.$", re.MULTILINE)
_AT = re.compile(r"You are at the (\w+)\.")
_TOLD = (
    (
        "shown",
        re.compile(r"(?:prize is behind|you see the treasure (?:in|at)|seems to be (?:in|at)) the (\w+)"),
    ),
    ("prize", re.compile(r"You found the treasure (?:in|at) the (\w+)")),
    ("miss", re.compile(r"The treasure is not (?:in|at) the (\w+)")),
    ("shown", re.compile(r"\b([a-h]\d)=ok\b")),
    ("prize", re.compile(r"\b([a-h]\d)=\*")),
    ("miss", re.compile(r"\b([a-h]\d)=0\b")),
)
_PAID = re.compile(r"(?:Behind the|The) (\w+)(?: door:| earned) (-?[\d.]+\d|\d)")
_PLACE = re.compile(r"\b[a-h]\d\b(?!=)")
_ACROSS = 4
_PLACES = {"signpost": "doors", "lookout": "rooms", "toolbox": "tools"}
"""What the places of a world are called, where they lie on no trail."""


def expedition(task: Task, seen: Sequence[str]) -> Drawing | None:
    """The map: what was searched, found and shown in this episode, and where one is."""
    text, first = "\n".join(seen), seen[0]
    trails = [trail.split(", then ") for line in _TRAILS.findall(first) for trail in line.split("; ")]
    names = [name.removesuffix(" (known)") for line in _NAMED.findall(first) for name in re.split(r"[;,] ", line)]
    if task["view"] == "compact":
        names = _PLACE.findall(first)
    rows = trails or [names[start : start + _ACROSS] for start in range(0, len(names), _ACROSS)]
    kind_of_place = {name: kind for kind, pattern in _TOLD for name in pattern.findall(text)}
    best = float(task["prize"])
    kind_of_place |= {name: "prize" if float(paid) >= best else "miss" for name, paid in _PAID.findall(text)}
    position = (_AT.findall(text) or [""])[-1]
    signs = {"prize": "★ ", "miss": "✗ ", "shown": "! "}
    verb = {"signpost": "open ", "toolbox": "use "}.get(str(task["world"]), "search ")

    def cell(name: str) -> Cell:
        kind = kind_of_place.get(name, "here" if name == position else "place")
        action = name if task["view"] == "compact" else verb + name
        return Cell(kind, signs.get(kind, "") + name[:24], action)

    drawn = [[cell(name) for name in row] for row in rows]
    if trails:
        drawn = [[Cell("here" if position == "camp" else "place", "camp")], *drawn]
    elif drawn and (noun := _PLACES.get(str(task["world"]))):
        drawn = [[Cell("label", noun)], *drawn]
    if drawn and task["world"] == "signpost":
        kind = "shown" if "shown" in kind_of_place.values() else "place"
        drawn.append([Cell("label", "or"), Cell(kind, "the sign", "s" if task["view"] == "compact" else "read sign")])
    return pieces_of(
        drawn, "; ".join(f"{name}: {kind}" for name, kind in kind_of_place.items()) or "nothing is known yet"
    )


_RESULT = re.compile(r"^(\S+) (.+ \$\S.*)$")
_OPTIONS = re.compile(r"^(.+?)(?: \(chosen: (.+)\))?: (.+)$")
_BUTTON = re.compile(r"\[([^\[\]]+)\]")


def shop(task: Task, seen: Sequence[str]) -> Drawing | None:
    """WebShop: the open page, with what can be clicked as buttons; of the compact view, its words are shown."""
    title, *lines = seen[-1].splitlines() or [""]
    if task["view"] == "compact" or not title.startswith(("Results for", "Item ", *_TOLD_PAGES)):
        return None
    rows, buttons = [[Cell("label", title)]], lines.pop() if lines and _BUTTON.match(lines[-1]) else ""
    for number, line in enumerate(lines):
        if title.startswith("Results for") and (result := _RESULT.match(line)):
            rows.append([_button(result[1]), Cell("label", result[2])])
        elif title.startswith("Item ") and number > 1 and (options := _OPTIONS.match(line)):
            chosen = options[2] or ""
            rows.append([Cell("label", options[1]), *(_button(each, chosen) for each in options[3].split("; "))])
        else:
            rows.append([Cell("label", line)])
    return pieces_of([*rows, [_button(name) for name in _BUTTON.findall(buttons)]], title)


_TOLD_PAGES = ("Description ", "Features ", "Reviews ")


def _button(text: str, chosen: str = "") -> Cell:
    return Cell("here" if text == chosen else "place", text, f"click[{text}]")


_ROOM = re.compile(r"Looking quickly around you, you see ([^.]*)\.")
_GOAL = re.compile(r"^Your task is to: (.+)$", re.MULTILINE)
_THING = re.compile(r"\ban? ([a-z]+ \d+)")
_ARRIVED = re.compile(r"^You arrive at ([a-z]+ \d+)\.")
_INSIDE = re.compile(r"(?:On the ([a-z]+ \d+)|The ([a-z]+ \d+) is open\. In it), you see ([^.]*)\.")
_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.|You close the ([a-z]+ \d+)\.")
_TAKEN = re.compile(r"^You pick up the ([a-z]+ \d+) from the ([a-z]+ \d+)\.")
_MOVED = re.compile(r"^You move the ([a-z]+ \d+) to the ([a-z]+ \d+)\.")


def household(task: Task, seen: Sequence[str]) -> Drawing | None:
    """ALFWorld: the task, the room with what was seen in it, and what one carries; of other views, their words."""
    room, goal = _ROOM.search(seen[0]), _GOAL.search(seen[0])
    if task["view"] != "text" or room is None or goal is None:
        return None
    inside: dict[str, list[str] | None] = {}
    """Receptacle -> what it holds; None: it is closed."""
    position, held = "", ""
    for text in seen:
        if arrived := _ARRIVED.match(text):
            position = arrived[1]
        for on, opened, things in _INSIDE.findall(text):
            inside[on or opened] = _THING.findall(things)
        for names in _CLOSED.findall(text):
            inside["".join(names)] = None
        if taken := _TAKEN.match(text):
            held = taken[1]
            inside[taken[2]] = [thing for thing in inside.get(taken[2]) or () if thing != held]
        if moved := _MOVED.match(text):
            held = ""
            inside[moved[2]] = [*(inside.get(moved[2]) or ()), moved[1]]
    rows = [
        [Cell("label", f"Task: {goal[1]}")],
        [Cell("label", "room"), *(_going(name, position) for name in _THING.findall(room[1]))],
    ]
    rows += [_receptacle(name, things) for name, things in inside.items()]
    rows.append(
        [
            Cell("label", "carries"),
            Cell("shown", held, f"move {held} to {position}") if held else Cell("label", "nothing"),
        ]
    )
    return pieces_of(rows, f"at {position or 'the middle of the room'}, carrying {held or 'nothing'}")


def _going(name: str, position: str) -> Cell:
    return Cell("here" if name == position else "place", name, f"go to {name}")


def _receptacle(name: str, things: Sequence[str] | None) -> list[Cell]:
    """A line for a receptacle that was seen."""
    if things is None:
        return [Cell("label", name), Cell("place", "closed", f"open {name}")]
    cells = [Cell("place", thing, f"take {thing} from {name}") for thing in things]
    return [Cell("label", name), *(cells or [Cell("label", "nothing")])]
