"""Test an environment against the contract every environment keeps, and look at how its worlds are kept apart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mulligan.app.cli.options import Parser
from mulligan.settings import settings_of
from mulligan.trial.settings import TrialSettings

if TYPE_CHECKING:
    from mulligan.rollout.tasksets import Survey

_ABOUT_KEYS = """\
world_key() names the hidden world of a task. Each key belongs to one of training, validation and evaluation.
It must be canonical: worlds that differ only in a symmetry (rotated, mirrored, renumbered), in a distractor
or in where the player starts have one key. Otherwise evaluation asks for worlds that were trained on.
docs/own-env.md has an example."""


def add_options(parser: Parser) -> None:
    parser.add_argument("env", help="a name from 'mulligan envs', or path/to/file.py:ClassName")
    limit = settings_of(TrialSettings)["env_timeout"]
    parser.add_argument("--env-timeout", type=limit.parse, metavar="X", help=limit.help.rstrip("."))


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.envs.check import check_env
    from mulligan.rollout.tasksets import survey

    options, params = parser.read(words)
    check_env(options.env, options.env_timeout, **params)
    sys.stdout.write(f"{options.env} keeps the contract\n")
    sys.stdout.write(f"{_about_worlds(survey(options.env, params, options.env_timeout))}\n")
    return 0


def _about_worlds(sample: Survey) -> str:
    """How training and evaluation are kept apart; a warning where they are not, or where worlds are few."""
    if sample.separation == "game":
        return "Worlds: a game against somebody is the same in training and evaluation; keep an opponent for evaluation"
    counts = f"{sample.worlds} in {sample.tasks} tasks"
    if sample.separation == "shared":
        summary = f"Warning: training and evaluation share worlds: tasks begin alike ({counts}), without a world_key()."
    elif sample.separation == "seeds":
        summary = "Warning: worlds are separated by their seeds alone: two seeds may draw the same one. No world_key()."
    elif sample.few:
        summary = (
            f"Warning: world_key() has few values ({counts}): a handful for training, another for evaluation.\n"
            "Make more worlds; or leave world_key() out, and tables say that worlds are shared."
        )
    else:
        summary = f"Worlds: {counts} by world_key(); training, validation and evaluation share none."
    return f"{summary}\n{_ABOUT_KEYS}"
