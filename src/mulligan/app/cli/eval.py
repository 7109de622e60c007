"""Evaluate a policy honestly: p@1 … p@k on frozen tasks, with intervals, controls, ceiling and room."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mulligan.app.cli.options import (
    ENDPOINT_OPTIONS,
    Parser,
    add_policy_options,
    add_trial_options,
    endpoint_options,
    new_run_path,
    print_tables,
    take_defaults_of_run,
    trial_settings,
)
from mulligan.app.progress import trial_progress
from mulligan.errors import UsageError

if TYPE_CHECKING:
    from mulligan.eval.plan import EvalPlan, Prices
    from mulligan.policy.base import Policy
    from mulligan.report.run import RunFolder

_WITH_RESUME = ("resume", "json", "price_in", "price_out", "max_cost", *(o for o in ENDPOINT_OPTIONS if o != "model"))
"""Options allowed with --resume: they change how the trials are played on, not which."""


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
    parser.add_argument(
        "--related",
        action=argparse.BooleanOptionalAction,
        help="later episodes are other tasks of the class (as a run was trained; else no)",
    )
    parser.add_argument("--run", metavar="DIR", help="run folder (runs/<time>-eval-…)")
    parser.add_argument("--resume", metavar="RUN", help="continue an interrupted evaluation; nothing is paid twice")
    parser.add_argument("--price-in", type=float, metavar="X", help="price of a million prompt tokens")
    parser.add_argument("--price-out", type=float, metavar="X", help="price of a million reply tokens")
    parser.add_argument("--max-cost", type=float, metavar="X", help="start no new trial beyond this cost")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_policy_options(parser, default=None)
    add_trial_options(parser)
    parser.epilog = "Parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5"


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.eval.evidence import without_evidence
    from mulligan.eval.run import run_plan
    from mulligan.report.run import RunFolder, to_json
    from mulligan.report.tables import eval_table, footnotes

    options, _ = parser.read(words)
    job = _resumed(parser, words) if options.resume else _new(parser, words)
    concurrency = 1 if job.policy.name == "human" else job.concurrency  # a person plays one game at a time
    try:
        with trial_progress(quiet=options.json) as progress:
            result = run_plan(job.plan, job.policy, job.folder, concurrency, job.prices, job.max_cost, progress)
    except KeyboardInterrupt:
        folder = RunFolder(job.path)
        played = sum(len(folder.trials(arm)) for arm in folder.arms())
        sys.stderr.write(
            f"interrupted: {played} trials are in {job.path}; continue with: mulligan eval --resume {job.path}\n"
            if (job.path / "config.toml").exists()
            else "interrupted before the evaluation began\n"
        )
        return 130
    data = {**result.to_dict(), "max_cost": job.max_cost}
    RunFolder(job.path).write_text("result.json", to_json(data))
    if options.json:
        sys.stdout.write(to_json(without_evidence(data)))
    else:
        print_tables([eval_table(data)], [*footnotes(data), f"Trials: {data['run']}"])
    if result.says_nothing:
        sys.stderr.write("mulligan: every trial failed for reasons outside the agent; the figures say nothing of it\n")
        return 1
    return 0


class _Job(NamedTuple):
    """An evaluation that can begin."""

    plan: EvalPlan
    policy: Policy
    folder: RunFolder | Callable[[], RunFolder]
    path: Path
    prices: Prices
    max_cost: float | None
    concurrency: int


def _new(parser: Parser, words: list[str]) -> _Job:
    from mulligan.eval.plan import EvalPlan, Prices, create_folder, named_controls
    from mulligan.players import Plays, player_from

    trained_params = take_defaults_of_run(parser, words)
    options, given_params = parser.read(words)
    if options.env is None:
        raise UsageError("eval: an environment is missing; 'mulligan envs' lists them")
    plan = EvalPlan(
        env=options.env,
        params={**trained_params, **given_params},
        tasks=options.tasks,
        seed_set=options.seed_set,
        seed=options.seed,
        settings=trial_settings(options),
        controls=named_controls(options.controls),
        room=not options.no_room,
        related=bool(options.related),
    )
    prices = Prices(options.price_in or 0.0, options.price_out or 0.0)
    if options.policy is None:
        raise UsageError("eval: --policy is missing, e.g. expert, endpoint:MODEL, file.py:FUNCTION or a run folder")
    endpoint = endpoint_options(options)
    policy = player_from(options.policy, plays=Plays(plan.env, plan.params, plan.settings, plan.seed_set), **endpoint)
    path = Path(options.run or new_run_path("eval", plan.env, policy.name))
    config = {
        "policy_spec": options.policy,
        "price_in": prices.prompt,
        "price_out": prices.completion,
        "max_cost": options.max_cost,
        "concurrency": options.concurrency,
        "endpoint": endpoint if options.base_url else None,
    }
    create = partial(create_folder, plan, policy.name, path, **config)
    return _Job(plan, policy, create, path, prices, options.max_cost, options.concurrency)


def _resumed(parser: Parser, words: list[str]) -> _Job:
    """The evaluation of a run folder; options that would make it another one are refused."""
    from mulligan.eval.plan import Prices, plan_from_config
    from mulligan.players import Plays, player_from
    from mulligan.report.run import RunFolder

    options, params = parser.read(words)
    given = parser.given(words)
    surplus = [f"--{name.replace('_', '-')}" for name in given if name not in _WITH_RESUME]
    surplus += [f"--env.{name}" for name in params] + ([repr(options.env)] if options.env is not None else [])
    if surplus:
        raise UsageError(f"eval: --resume goes on with the run's own settings; leave out {', '.join(surplus)}")
    folder = RunFolder.open(options.resume)
    config = folder.config()
    if config.get("kind") != "eval":
        raise UsageError(f"{options.resume} is not the run folder of an evaluation")
    plan = plan_from_config(config)
    if "policy_spec" not in config:
        raise UsageError(
            f"{options.resume} was made by mulligan.evaluate; continue it from Python: "
            f"mulligan.evaluate(…, run={options.resume!r}, resume=True)"
        )
    chosen = endpoint_options(options)
    endpoint = {**config.get("endpoint", {}), **{name: chosen[name] for name in given if name in chosen}}
    money = {name: config.get(name) for name in ("price_in", "price_out", "max_cost")}
    money.update({name: getattr(options, name) for name in money if name in given})
    prices = Prices(money["price_in"] or 0.0, money["price_out"] or 0.0)
    # The trials under way may exceed `max_cost`: not more of them than were asked for at first.
    concurrency = options.concurrency if "concurrency" in given else config["concurrency"]
    plays = Plays(plan.env, plan.params, plan.settings, plan.seed_set)
    policy = player_from(config["policy_spec"], plays=plays, **endpoint)
    return _Job(plan, policy, folder, folder.path, prices, money["max_cost"], concurrency)
