"""Read a trial of a run folder: what the agent saw, answered and noted."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mulligan.app.cli.options import Parser
from mulligan.errors import Fault, UsageError
from mulligan.text import visible
from mulligan.types import Completion, Episode, Trial

_FAULTS: Mapping[Fault | None, str] = {
    Fault.REFUSED: "refused to answer",
    Fault.UNKNOWN_TOOL: "unknown tool",
    Fault.BAD_ARGUMENTS: "bad arguments",
    Fault.SEVERAL_CALLS: "several calls",
}
"""How invalid replies are called; others just so."""


def add_options(parser: Parser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("number", nargs="?", type=int, help="which of its tasks, from 1 (the first that was played)")
    parser.add_argument(
        "--arm", help="main or a control; of a training run an update, as update-00010 (main; the last update kept)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import RunFolder, to_json, trial_to_dict

    options = parser.parse_args(words)
    folder = RunFolder.open(options.run)
    arm = folder.arm(options.arm)
    trials = folder.trials(arm)
    index = min(trials, default=0) if options.number is None else options.number - 1
    if index not in trials:
        numbers = f"{min(trials) + 1} to {max(trials) + 1}" if trials else "none yet"
        raise UsageError(f"{options.run} has no trial of task {index + 1} in {arm!r}; it has {numbers}")
    sys.stdout.write(to_json(trial_to_dict(trials[index])) if options.json else visible(transcript(trials[index])))
    return 0


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
