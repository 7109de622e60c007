"""Read a trial of a run folder: what the agent saw, answered and noted."""

from __future__ import annotations

import json
import sys

from mulligan.cli.options import Parser
from mulligan.errors import UsageError
from mulligan.types import Episode, Trial


def add_options(parser: Parser) -> None:
    parser.add_argument("run", help="run folder")
    parser.add_argument("place", nargs="?", type=int, default=1, help="which of its tasks, from 1 (1)")
    parser.add_argument("--arm", default="main", help="main, or a control (main)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import load_trials, trial_to_dict

    options = parser.parse_args(words)
    trials = load_trials(options.run, options.arm)
    if not 1 <= options.place <= len(trials):
        raise UsageError(f"{options.run} has trials 1 to {len(trials)}, not {options.place}")
    trial = trials[options.place - 1]
    sys.stdout.write(json.dumps(trial_to_dict(trial), indent=2) + "\n" if options.json else transcript(trial))
    return 0


def transcript(trial: Trial) -> str:
    """A trial as text to read."""
    parts = [f"{trial.task.task_class}, seed {trial.task.seed}, memory {trial.memory}\n"]
    for episode in trial.episodes:
        parts.append(f"{'=' * 20} episode {episode.index + 1}\n")
        parts += [f"[{message['role']}]\n{message['content']}\n" for message in episode.opening]
        parts += _turns(episode)
        parts.append(f"--- {episode.stop.value.replace('_', ' ')}, reward {episode.reward:g} {episode.error}\n")
        if episode.reflection is not None:
            state = "" if episode.reflection.valid else " (not in the asked form)"
            parts.append(f"[reflection{state}]\n{episode.reflection.text}\n")
    return "\n".join(parts)


def _turns(episode: Episode) -> list[str]:
    """Replies, each followed by what the agent saw next."""
    after = [turn.observation for turn in episode.turns[1:]] + [episode.final]
    return [
        f"[agent]\n{turn.reply.text}\n\n[world{'' if turn.valid else ', invalid reply'}]\n"
        + (f"{turn.feedback}\n" if turn.feedback else "")
        + f"{seen}\n"
        for turn, seen in zip(episode.turns, after, strict=True)
    ]
