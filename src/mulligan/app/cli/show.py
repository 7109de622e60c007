"""Read a trial of a run folder: what the agent saw, answered and noted; or list its trials, filtered."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mulligan.app.cli.options import Parser, print_tables
from mulligan.errors import Fault, UsageError
from mulligan.text import visible
from mulligan.types import Completion, Episode, Trial

if TYPE_CHECKING:
    from mulligan.report.run import RunFolder

_FAULTS: Mapping[Fault | None, str] = {
    Fault.REFUSED: "refused to answer",
    Fault.UNKNOWN_TOOL: "unknown tool",
    Fault.BAD_ARGUMENTS: "bad arguments",
    Fault.SEVERAL_CALLS: "several calls",
}
"""How invalid replies are called; others just so."""


_COLOURS = {
    "=====": "bold",
    "[agent": "cyan",
    "[world]": "dim",
    "[world,": "red",
    "[reflection": "yellow",
    "--- won": "green",
}
"""How the lines begin that a terminal shows in colour."""


def add_options(parser: Parser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("number", nargs="?", type=int, help="which of its tasks, from 1 (the first that was played)")
    parser.add_argument(
        "--arm", help="main or a control; of a training run an update, as update-00010 (main; the last update kept)"
    )
    parser.add_argument("--list", action="store_true", help="list the trials instead; so do the following")
    parser.add_argument(
        "--result", metavar="R", help="only those that are won, lost, failed, or solved at attempt 1, 2 …"
    )
    parser.add_argument(
        "--has", metavar="WHAT", help="only those with invalid replies, faults, notes, or one fault: cut_off"
    )
    parser.add_argument("--class", dest="task_class", metavar="NAME", help="only those of a class of tasks")
    parser.add_argument("--opponent", metavar="NAME", help="only those against this opponent")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import RunFolder, to_json, trial_to_dict

    options = parser.parse_args(words)
    folder = evaluation_of(RunFolder.open(options.run), options.arm)
    arm = folder.arm(options.arm)
    wanted = {name: getattr(options, name) for name in ("result", "has", "task_class", "opponent")}
    if options.list or any(wanted.values()):
        if options.number is not None:
            raise UsageError("show: a number reads one trial; leave it out to list several")
        return _list(folder, arm, {name: value for name, value in wanted.items() if value}, as_json=options.json)
    trials = folder.trials(arm)
    index = min(trials, default=0) if options.number is None else options.number - 1
    if index not in trials:
        numbers = f"{min(trials) + 1} to {max(trials) + 1}" if trials else "none yet"
        raise UsageError(f"{options.run} has no trial of task {index + 1} in {arm!r}; it has {numbers}")
    if options.json:
        sys.stdout.write(to_json(trial_to_dict(trials[index])))
    else:
        _write(visible(transcript(trials[index])))
    return 0


def evaluation_of(folder: RunFolder, arm: str | None) -> RunFolder:
    """The evaluation of a training run, inside its folder or the newest beside it; unless an arm of the run itself is
    asked for."""
    from mulligan.view.evaluations import evaluations_beside, evaluations_inside

    if arm is not None or "main" in folder.arms() or folder.config().get("kind") != "train":
        return folder
    run = folder.path.absolute()
    for evaluation in (*evaluations_inside(run), *evaluations_beside(run)):
        found = type(folder).open(evaluation)
        if "main" in found.arms():
            name = os.path.relpath(evaluation, run.parent)
            sys.stderr.write(f"note: its evaluation, {visible(name)}; --arm reads what training kept\n")
            return found
    return folder


def _list(folder: RunFolder, arm: str, wanted: dict[str, str], *, as_json: bool) -> int:
    from rich.text import Text

    from mulligan.report.run import to_json
    from mulligan.report.tables import empty_table
    from mulligan.view.index import TrialIndex
    from mulligan.view.query import MOST, Wanted, page

    index = TrialIndex(folder.path)
    index.refresh(math.inf, arm)
    matching = page(index, Wanted.of({"arm": arm, "limit": str(MOST), **wanted}))
    if as_json:
        sys.stdout.write(to_json(matching["rows"]))
        return 0
    shown = f", the first {MOST}" if matching["total"] > MOST else ""
    table = empty_table(visible(f"{matching['total']:,} trials of {folder.name}, {arm}{shown}"))
    for name in ("task", "attempts", "reward", "turns", "invalid", "class", "seed"):
        table.add_column(name, justify="right" if name in ("task", "reward", "turns", "invalid", "seed") else "left")
    for row in matching["rows"]:
        marks = Text()
        for letter in row["outcomes"]:
            marks.append(*_MARKS.get(letter, ("✗ ", "red")))
        cells = (f"{row['place'] + 1}", f"{row['reward']:g}", f"{row['turns']}", f"{row['invalid'] or ''}")
        named = (Text(visible(row["class"])), str(row["seed"]))
        table.add_row(cells[0], marks, *cells[1:], *named)
    print_tables(
        [table], [f"Read one: mulligan show {folder.name} NUMBER" + (f" --arm {arm}" if arm != "main" else "")]
    )
    return 0


_MARKS = {"w": ("✓ ", "green"), "d": ("= ", "dim"), "f": ("! ", "yellow")}
"""Of an attempt that was won, drawn, or failed outside the agent."""


def _write(text: str) -> None:
    """Write a transcript, in colour where somebody reads it."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in text.splitlines():
        style = next((style for begin, style in _COLOURS.items() if line.startswith(begin)), "")
        console.print(Text(line, style="red" if line.startswith("--- ") and not style else style), soft_wrap=True)


def transcript(trial: Trial) -> str:
    """A trial as text to read."""
    parts = [f"{trial.task.task_class}, seed {trial.task.seed}, memory {trial.memory}\n"]
    for episode in trial.episodes:
        player = ", played by a stand-in" if episode.by_stand_in else ""
        parts.append(f"{'=' * 20} episode {episode.index + 1}{player}\n")
        parts += [f"[{message['role']}]\n{message['content']}\n" for message in episode.opening]
        parts += _turns(episode)
        parts.append(f"--- {episode.stop.value.replace('_', ' ')}, reward {episode.reward:g} {episode.error}\n")
        if episode.reflection is not None:
            state = "" if episode.reflection.valid else " (not in the asked form)"
            parts += beside_text(episode.reflection.completion) if episode.reflection.completion else []
            parts.append(f"[reflection{state}]\n{episode.reflection.text}\n")
    return "\n".join(parts)


def beside_text(reply: Completion) -> list[str]:
    """What a reply holds beside its text: what was thought before it, why there is none, which tools are called."""
    parts = [("agent thinks", reply.reasoning), ("agent refuses", reply.refusal)]
    parts += [("agent calls a tool", str(call)) for call in reply.tool_calls]
    return [f"[{title}]\n{text}\n" for title, text in parts if text]


def _turns(episode: Episode) -> list[str]:
    """Replies, each followed by what the agent saw next."""
    after = [turn.observation for turn in episode.turns[1:]] + [episode.final] * bool(episode.turns)
    parts = []
    for turn, seen in zip(episode.turns, after, strict=True):
        parts += (beside := beside_text(turn.reply))
        parts += [f"[agent]\n{turn.reply.text}\n"] if turn.reply.text or not beside else []
        fault = "" if turn.valid else f", {_FAULTS.get(turn.fault, 'invalid reply')}"
        feedback = f"{turn.feedback}\n" if turn.feedback else ""
        parts.append(f"[world{fault}]\n{feedback}{seen}\n")
    return parts
