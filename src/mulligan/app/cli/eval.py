"""Evaluate a policy honestly: p@1 … p@k on frozen tasks, with intervals, controls, ceiling and room."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from mulligan.app.stopping import kept_trials
from mulligan.calls import described
from mulligan.errors import PolicyError, RunFolderError, UsageError
from mulligan.text import visible
from mulligan.trusted import flag, trusts_everything

if TYPE_CHECKING:
    from mulligan.eval.plan import EvalPlan, Prices
    from mulligan.policy.base import Policy

_WITH_RESUME = (
    "resume",
    "json",
    "yes",
    "journal",
    "price_in",
    "price_out",
    "max_cost",
    *(o for o in ENDPOINT_OPTIONS if o != "model"),
)
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
        help="independent, removed, foreign, other-trial, told; comma-separated, or 'all' or 'off' (independent)",
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
    parser.add_argument("--yes", action="store_true", help="do not ask before an evaluation that may cost much")
    parser.add_argument(
        "--journal", metavar="DB", help="journal that trials read and write: a file, or a database's URL"
    )
    parser.add_argument("--writer", metavar="NAME", help="who writes the reflections in the policy's place")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_policy_options(parser, default=None)
    add_trial_options(parser)


def run(parser: Parser, words: list[str]) -> int:
    import mulligan
    from mulligan.eval.passk import without_evidence
    from mulligan.eval.plan import Prices, create_folder
    from mulligan.eval.run import run_plan
    from mulligan.players import Plays, advised_by, player_from, writer_from
    from mulligan.report.run import RunFolder, to_json
    from mulligan.report.tables import eval_table, footnotes, opponents_table

    resume = parser.read(words)[0].resume
    plan = _plan_of_run(parser, words) if resume else _new_plan(parser, words)
    options, _ = parser.read(words)
    if options.policy is None:
        raise UsageError("eval: --policy is missing, e.g. expert, endpoint:MODEL, file.py:FUNCTION or a run folder")
    prices = Prices(options.price_in or 0.0, options.price_out or 0.0)
    endpoint = endpoint_options(options, plan.params)
    plays = Plays(plan.env, plan.params, plan.settings)
    policy = player_from(options.policy, plays=plays, **endpoint)
    if options.writer is not None:
        policy = advised_by(policy, writer_from(options.writer, plays=plays, **endpoint), plan.settings)
    path = Path(resume or options.run or new_run_path("eval", plan.env, policy.name))
    config = {
        "policy_spec": options.policy,
        "writer_spec": options.writer,
        "price_in": prices.prompt,
        "price_out": prices.completion,
        "max_cost": options.max_cost,
        "concurrency": options.concurrency,
        "endpoint": endpoint if options.base_url else None,
        "journal": True if options.journal else None,
    }
    journal = mulligan.Journal(options.journal) if options.journal else None
    folder = RunFolder.open(path) if resume else partial(create_folder, plan, policy.name, path, **config)
    trust = flag(plan.env, options.policy, options.writer, plan.params)
    command = f"mulligan eval --resume {path}{trust}"
    concurrency = 1 if policy.name == "human" else options.concurrency  # a person plays one game at a time
    # What an environment prints must not get into the JSON.
    with redirect_stdout(sys.stderr if options.json else sys.stdout):
        if not _is_allowed(plan, policy, prices, options):
            sys.stderr.write("nothing was sent\n")
            return 1
    try:
        with (
            trial_progress(quiet=options.json) as progress,
            redirect_stdout(sys.stderr if options.json else sys.stdout),
        ):
            result = run_plan(plan, policy, folder, concurrency, prices, options.max_cost, progress, journal)
    except KeyboardInterrupt:
        if not (path / "config.toml").exists():
            raise
        paid = ", and all replies that were paid for" if getattr(policy, "pays", False) else ""
        sys.stderr.write(f"interrupted: {kept_trials(path)}{paid}; continue with: {command}\n")
        return 130
    except PolicyError as error:
        raise PolicyError(f"{error}; continue with: {command}") from error
    data = {**result.to_dict(), "max_cost": options.max_cost}
    RunFolder(path).write_text("result.json", to_json(data))
    if options.json:
        sys.stdout.write(to_json(without_evidence(data)))
    else:
        tables = [table for table in (eval_table(data), opponents_table(data)) if table is not None]
        print_tables(tables, [*footnotes(data, trust), f"Trials: {data['run']}"])
    if result.says_nothing:
        sys.stderr.write("mulligan: every trial failed for reasons outside the agent; the figures say nothing of it\n")
        return 1
    return 0


def _is_allowed(plan: EvalPlan, policy: Policy, prices: Prices, options: argparse.Namespace) -> bool:
    """Say what an evaluation will take that may cost money; where that is much, ask whether to begin it."""
    from mulligan.eval.estimate import estimate
    from mulligan.eval.plan import Prices

    is_free = getattr(policy, "is_nearby", True) and prices == Prices()
    if not getattr(policy, "pays", False) or (is_free and not hasattr(policy, "url")):
        return True
    try:
        amount = estimate(plan, _trials_left(plan, options.resume))
    except Exception as error:  # the evaluation itself will tell more of it
        sys.stderr.write(visible(f"estimate: none, {described(error)}\n"))
        return True
    text = amount.in_words(prices)
    must_ask = amount.is_much(prices) and not (is_free or options.yes or options.max_cost is not None)
    at_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if must_ask and not at_terminal:
        raise UsageError(f"eval: this may cost money: {text}; allow it with --yes, or limit it with --max-cost X")
    if amount.most.requests:
        sys.stderr.write(f"estimate: {text}\n")
    if not must_ask:
        return True
    sys.stderr.write("Begin? (--yes does not ask) [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _trials_left(plan: EvalPlan, resume: str | None) -> dict[str, int]:
    """Arm -> trials that are not in the run folder yet."""
    from mulligan.report.run import RunFolder

    with warnings.catch_warnings():  # of damaged files, which the evaluation itself will tell
        warnings.simplefilter("ignore")
        trials = {arm: RunFolder.open(resume).trials(arm) if resume else {} for arm in plan.arms()}
    return {arm: plan.tasks - sum(not trial.failed for trial in each.values()) for arm, each in trials.items()}


def _new_plan(parser: Parser, words: list[str]) -> EvalPlan:
    from mulligan.eval.plan import EvalPlan, named_controls

    trained_params = take_defaults_of_run(parser, words)
    options, given_params = parser.read(words)
    if options.env is None:
        raise UsageError("eval: an environment is missing; 'mulligan envs' lists them")
    return EvalPlan(
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


def _plan_of_run(parser: Parser, words: list[str]) -> EvalPlan:
    """The plan of a run folder, whose options become the defaults; those that would make it another one are refused."""
    from mulligan.eval.plan import plan_from_config
    from mulligan.report.run import RunFolder

    options, params = parser.read(words)
    surplus = [f"--{name.replace('_', '-')}" for name in parser.given(words) if name not in _WITH_RESUME]
    surplus += [f"--env.{name}" for name in params] + ([repr(options.env)] if options.env is not None else [])
    if surplus:
        raise UsageError(f"eval: --resume goes on with the run's own settings; leave out {', '.join(surplus)}")
    config = RunFolder.open(options.resume).config()
    if config.get("kind") != "eval":
        raise UsageError(f"{options.resume} is not the run folder of an evaluation")
    plan = plan_from_config(config)
    if "policy_spec" not in config:
        raise UsageError(
            f"{options.resume} was made by mulligan.evaluate; continue it from Python: "
            f"mulligan.evaluate(…, run={options.resume!r}, resume=True)"
        )
    # The trials under way may exceed `max_cost`: not more of them than were asked for at first.
    before = {name: config.get(name) for name in ("price_in", "price_out", "max_cost", "concurrency")}
    endpoint = _confirmed(config.get("endpoint", {}), parser, words, options.resume)
    if str(config["policy_spec"]).startswith("endpoint") and not {"base_url"} & {*endpoint, *parser.given(words)}:
        # Not the one of OPENAI_BASE_URL: a folder does not decide that requests are paid for.
        raise UsageError(f"{options.resume} names no server; add --base-url URL")
    # As text, so that the parser checks them as it does those of the command line.
    defaults = {name: str(value) for name, value in {**endpoint, **before}.items() if value is not None}
    writer = config.get("writer_spec")
    parser.set_defaults(**defaults, policy=str(config["policy_spec"]), writer=writer if writer is None else str(writer))
    return plan


def _confirmed(endpoint: object, parser: Parser, words: list[str], run: str) -> dict[str, Any]:
    """The endpoint's options of a run; raises unless its address and the variable of its key are named or trusted.

    A run folder may come from somebody else, who would choose where a secret of this machine is sent to.
    """
    if not isinstance(endpoint, dict) or not set(endpoint) <= set(ENDPOINT_OPTIONS):
        raise RunFolderError(f"{run}/config.toml is not that of an evaluation: endpoint = {endpoint}")
    given = parser.given(words)
    asked = [name for name in ("base_url", "api_key_env") if name in endpoint and name not in given]
    if any(endpoint[name] != parser.get_default(name) for name in asked) and not trusts_everything():
        flags = " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(endpoint[name]))}" for name in asked)
        raise UsageError(f"{run} names a server or a key, and you do not; if you mean them, add {flags} (or --trust)")
    return endpoint
