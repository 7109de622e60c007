"""Evaluate a policy honestly: p@1 … p@k on frozen tasks, with intervals, controls, ceiling and room."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from mulligan.cli.options import (
    Parser,
    add_policy_options,
    add_trial_options,
    endpoint_options,
    take_defaults_of_run,
    trial_settings,
)
from mulligan.cli.progress import trial_progress
from mulligan.errors import UsageError


def add_options(parser: Parser) -> None:
    parser.add_argument("env", nargs="?", help="a name from 'mulligan envs', or path/to/file.py:ClassName")
    parser.add_argument("--tasks", type=int, default=512, metavar="N", help="how many frozen tasks (512)")
    parser.add_argument("--seed-set", default="eval", help="eval, validation or train (eval)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the policy's sampling (0)")
    parser.add_argument(
        "--controls",
        default="independent",
        metavar="LIST",
        help="independent, removed, foreign, other-trial; comma-separated, or 'all' or 'off' (independent)",
    )
    parser.add_argument("--no-room", action="store_true", help="leave out ceiling and experts")
    parser.add_argument("--run", metavar="DIR", help="run folder (runs/<time>-eval-…)")
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted evaluation; nothing is paid twice")
    parser.add_argument("--price-in", type=float, default=0.0, metavar="X", help="price of a million prompt tokens")
    parser.add_argument("--price-out", type=float, default=0.0, metavar="X", help="price of a million reply tokens")
    parser.add_argument("--max-cost", type=float, metavar="X", help="start no new trial beyond this cost")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_policy_options(parser, default="random")
    add_trial_options(parser)
    parser.epilog = "Parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5"


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.eval.run import Prices, create_folder, plan_from_config, run_plan
    from mulligan.players import player_from
    from mulligan.report.run import RunFolder

    trained_on = take_defaults_of_run(parser, words)
    options, given = parser.read(words)
    params = {**trained_on, **given}
    if options.resume:
        folder = RunFolder.open(options.resume)
        config = folder.config()
        if config.get("kind") != "eval":
            raise UsageError(f"{options.resume} is not the run folder of an evaluation")
        plan = plan_from_config(config)
        policy = player_from(config["policy_spec"], **{**config.get("endpoint", {}), **_given_endpoint(words, options)})
    else:
        plan = _plan(options, params)
        policy = player_from(options.policy, **endpoint_options(options))
        more = {"policy_spec": options.policy, "endpoint": endpoint_options(options) if options.base_url else None}
        folder = create_folder(plan, policy.name, options.run or _new_path(plan.env, policy.name), **more)
    prices = Prices(options.price_in, options.price_out)
    try:
        with trial_progress(quiet=options.json) as progress:
            result = run_plan(plan, policy, folder, options.concurrency, prices, options.max_cost, progress)
    except KeyboardInterrupt:
        played = sum(len(folder.trials(arm)) for arm in folder.arms())
        sys.stderr.write(
            f"interrupted: {played} trials are in {folder.path}; continue with: mulligan eval --resume {folder.path}\n"
        )
        return 130
    data = result.to_dict()
    folder.write_text("result.json", json.dumps(data, indent=2) + "\n")
    if options.json:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        _print(data)
    return 0


def _plan(options: argparse.Namespace, params: dict[str, Any]) -> Any:
    from mulligan.eval.run import CONTROLS, EvalPlan

    if options.env is None:
        raise UsageError("eval: which environment? 'mulligan envs' lists them")
    controls = {"all": CONTROLS, "off": ()}.get(options.controls, tuple(filter(None, options.controls.split(","))))
    return EvalPlan(
        env=options.env,
        params=params,
        tasks=options.tasks,
        seed_set=options.seed_set,
        seed=options.seed,
        settings=trial_settings(options),
        controls=tuple(controls),
        room=not options.no_room,
    )


def _given_endpoint(words: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """The endpoint options that stand on the command line: a resumed run may go on at another address."""
    given = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in words}
    return {name: value for name, value in endpoint_options(options).items() if name in given}


def _new_path(env: str, policy: str) -> Path:
    name = re.sub(r"[^\w.]+", "-", f"{Path(env).stem if ':' in env else env}-{policy}")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{stamp}-eval-{name}"
    number = 2
    while path.exists():
        path = path.with_name(f"{stamp}-eval-{name}-{number}")
        number += 1
    return path


def _print(data: dict[str, Any]) -> None:
    from rich.console import Console

    from mulligan.report.tables import eval_table, footnotes

    console = Console()
    console.print(eval_table(data))
    for line in footnotes(data):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"Trials: {data['run']}", markup=False, highlight=False, soft_wrap=True)
