"""Copy runs to TensorBoard or to Weights & Biases: metrics, the warm start, and evaluation tables.

A training that is under way copies itself with mulligan train --tensorboard or --wandb; this is for runs that are over.
W&B adds what is sent twice a second time: give another --id."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from mulligan.app.cli.options import Parser
from mulligan.errors import UsageError
from mulligan.text import visible

_NAMES = ("project", "entity", "group", "id")


def add_options(parser: Parser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of training runs or evaluations")
    parser.add_argument("--tensorboard", action="store_true", help="write event files into the run folder")
    parser.add_argument("--wandb", action="store_true", help="send to Weights & Biases; WANDB_MODE=offline only writes")
    add_wandb_names(parser)


def add_wandb_names(parser: Parser) -> None:
    """Where a run goes in Weights & Biases."""
    parser.add_argument("--wandb-project", metavar="NAME", help="its project (WANDB_PROJECT, or mulligan)")
    parser.add_argument("--wandb-entity", metavar="NAME", help="a team or a person (WANDB_ENTITY, or yours)")
    parser.add_argument("--wandb-group", metavar="NAME", help="a group of runs (WANDB_RUN_GROUP)")
    parser.add_argument("--wandb-id", metavar="ID", help="the run's id there (WANDB_RUN_ID, or the folder's name)")


def wandb_names(options: argparse.Namespace) -> dict[str, str | None] | None:
    """Where it goes, None where it does not."""
    names = {name: getattr(options, f"wandb_{name}") for name in _NAMES}
    if not options.wandb and any(names.values()):
        raise UsageError("--wandb-project, -entity, -group and -id are for --wandb, which is missing")
    return names if options.wandb else None


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.mirrors import send

    options = parser.parse_args(words)
    names = wandb_names(options)
    if names is None and not options.tensorboard:
        raise UsageError("send: where to? Give --tensorboard, --wandb or both")
    if len(options.runs) > 1 and names:
        if names["id"] or os.environ.get("WANDB_RUN_ID"):
            raise UsageError("send: --wandb-id and WANDB_RUN_ID are the id of one run; send several without them")
        if len({Path(run).resolve().name for run in options.runs}) < len(options.runs):
            raise UsageError("send: folders of one name would become one run there; send each with a --wandb-id")
    for folder in options.runs:
        send(folder, wandb=names, tensorboard=options.tensorboard)
        targets = ["tensorboard"] * options.tensorboard + ["Weights & Biases"] * options.wandb
        sys.stdout.write(visible(f"{folder}: copied to {' and '.join(targets)}\n"))
    return 0
