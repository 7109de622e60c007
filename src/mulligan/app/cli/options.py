"""Options that several commands share, and an argparse that speaks in one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mulligan.envs import registry
from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.rollout.groups import Mixture
from mulligan.settings import Setting, settings_of, with_values
from mulligan.text import visible
from mulligan.trial.settings import TrialSettings

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDPOINT_OPTIONS = ("base_url", "model", "api_key_env", "concurrency", "timeout", "retries", "extra_body")
_METAVARS = {int: "N", float: "X", str: "NAME", bool: "BOOL"}


class Parser(argparse.ArgumentParser):
    """Argparse whose errors are `UsageError`s, with the nearest option named."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.partition(' ')[2]}: {message}; see '{self.prog} --help'")

    def read(
        self, words: Sequence[str], settings: Mapping[str, Setting] | None = None
    ) -> tuple[argparse.Namespace, dict[str, str]]:
        """The options, and what is given as ``--env.NAME VALUE``: the environment's parameters by name.

        With `settings`, these too are taken as ``--SECTION.NAME VALUE``, and all are returned by dotted key.
        """
        prefix, settings = ("--env.", {}) if settings is None else ("--", settings)
        flags, other_words = split_flags(words, prefix)
        values: dict[str, str] = {}
        for flag, value in flags.items():
            key = flag.removeprefix(prefix).replace("-", "_")
            if value is None and (key not in settings or settings[key].kind is not bool):
                self.error(f"{flag} needs a value")
            values[key] = "true" if value is None else value
        options, rest = self.parse_known_args(other_words)
        for word in rest:
            name = word.partition("=")[0]
            if not name.startswith("-"):
                self.error(f"unexpected argument {word!r}")
            if name == "--env":
                self.error("the environment is the first argument; its parameters are --env.NAME VALUE")
            dotted = ["--" + key.replace("_", "-") for key in (*settings, *_parameters_of(options.env))]
            namesakes = [flag for flag in dotted if flag.rpartition(".")[2] == name.lstrip("-")]
            raise UnknownName("option", name, namesakes or [*self._option_string_actions, *dotted])
        return options, values

    def given(self, words: Sequence[str]) -> list[str]:
        """The options that stand on the command line, by the names of their values."""
        other_words = split_flags(words, "--env.")[1]
        actions = (self._option_string_actions.get(word.partition("=")[0]) for word in other_words)
        return list(dict.fromkeys(action.dest for action in actions if action is not None))


def _parameters_of(env: str | None) -> list[str]:
    """``env.NAME`` for each parameter of an environment or a mixture; of all built in, where it does not exist."""
    try:
        names = [name for name, _ in Mixture.parse(env or "", {}).weights]
    except MulliganError:
        names = list(registry.BUILTIN)
    return sorted({f"env.{key}" for name in names for key in (*registry.spec(name).defaults, "turns")})


def split_flags(words: Sequence[str], prefix: str) -> tuple[dict[str, str | None], list[str]]:
    """``--NAME VALUE`` and ``--NAME=VALUE`` for names with `prefix` and a dot, and all other words.

    The value is None where none is given.
    """
    flags: dict[str, str | None] = {}
    others: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith(prefix) or "." not in name:
            others.append(word)
        elif equals:
            flags[name] = value
        else:
            flags[name] = waiting.pop(0) if waiting and not waiting[0].startswith("--") else None
    return flags, others


def add_trial_options(parser: Parser) -> None:
    """An option for each setting of `TrialSettings`."""
    group = parser.add_argument_group("the trial")
    for name, setting in settings_of(TrialSettings).items():
        default = setting.shown(setting.default)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=setting.parse,
            default=setting.default,
            metavar=f"{{{','.join(setting.choices)}}}" if setting.choices else _METAVARS[setting.kind],
            help=setting.help.rstrip(".").replace("%", "%%") + (f" ({default})" if default != "default" else ""),
        )
    parser.epilog = "Defaults are in parentheses. The environment's parameters: --env.NAME VALUE, e.g. --env.mines 5"


def take_defaults_of_run(parser: Parser, words: Sequence[str]) -> dict[str, Any]:
    """Where the policy is a training run, its own settings become the options' defaults; returns its parameters."""
    from mulligan.players import as_trained, trained_with

    options, _ = parser.read(words)
    if options.env is not None:
        registry.spec(options.env)  # a run may have been trained on its class in a notebook, under its bare name
    config = trained_with(options.policy)
    if config is None or options.env is None:
        return {}
    trained_on = [name.rpartition(":")[2] for name, _ in Mixture.parse(config.task.env, {}).weights]
    if options.env.rpartition(":")[2] not in trained_on:
        sys.stderr.write(f"note: {options.policy} was trained on {visible(config.task.env)}, not on {options.env}\n")
    settings, params = as_trained(config, options.env)
    defaults = {name: setting.of(settings) for name, setting in settings_of(TrialSettings).items()}
    parser.set_defaults(**defaults, related=config.task.related)
    return dict(params)


def trial_settings(options: argparse.Namespace) -> TrialSettings:
    """The `TrialSettings` that the options ask for."""
    return with_values(TrialSettings(), {name: getattr(options, name) for name in settings_of(TrialSettings)})


def add_policy_options(parser: Parser, default: str | None) -> None:
    """Which policy, and how to reach an endpoint."""
    group = parser.add_argument_group("the policy")
    group.add_argument(
        "--policy",
        default=default,
        metavar="P",
        help="random, expert[:SKILL[:RECALL]], hasty[:SKILL[:RECALL]] (Sokoban), omniscient, "
        "player:NAME[:SKILL[:RECALL]] (another one of the environment), optimal[:GAMMA_TRAJ] (where the optimum can "
        "be computed), human, endpoint:MODEL, "
        "tinker:MODEL, file.py:NAME, a run folder, or a local model: nano, smollm2, hf:PATH "
        f"{f'({default})' if default else '(required)'}; SKILL and RECALL are shares from 0 to 1",
    )
    group.add_argument(
        "--base-url",
        metavar="URL",
        help="OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1 (OPENAI_BASE_URL); or a Tinker server's",
    )
    group.add_argument("--model", help="name of the endpoint's model (or endpoint:MODEL)")
    group.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="variable that holds the key (OPENAI_API_KEY)"
    )
    group.add_argument("--concurrency", type=int, default=16, metavar="N", help="trials and requests at a time (16)")
    group.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds for one answer (60)")
    group.add_argument("--retries", type=int, default=5, metavar="N", help="retries of a failed request (5)")
    group.add_argument(
        "--extra-body",
        metavar="JSON",
        help='fields of each request, null leaves one out: \'{"max_tokens": null, "max_completion_tokens": 512}\'',
    )


def endpoint_options(options: argparse.Namespace, params: Mapping[str, Any]) -> dict[str, Any]:
    """The options that `EndpointPolicy` takes; what only an endpoint could heed is refused where another plays.

    They hold for an opponent that is an endpoint as well.
    """
    if options.policy and options.policy.startswith("endpoint"):
        options.base_url = options.base_url or os.environ.get("OPENAI_BASE_URL")
    given = {name: getattr(options, name) for name in ENDPOINT_OPTIONS}
    if "endpoint:" in str(params.get("opponent")):
        from mulligan import guests

        guests.endpoint_options |= {name: value for name, value in given.items() if value and name != "model"}
        return given
    for name in ("base_url", "model", "extra_body"):
        heeded = ("endpoint", "tinker:") if name == "base_url" else ("endpoint",)
        if given[name] is not None and options.policy and not options.policy.startswith(heeded):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is for --policy endpoint:MODEL; the policy is {options.policy!r}")
    return given


def available_cores(cores: int | None) -> int:
    """`cores`, or as many as this process may use."""
    if cores is not None and cores < 1:
        raise ParameterError(f"cores must be >= 1 (got {cores})")
    return cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def new_run_path(kind: str, env: str, *more: str) -> Path:
    """A folder under runs/ that does not exist yet: time, kind, and what is played by whom."""
    name = re.sub(r"[^\w.]+", "-", "-".join([Path(env).stem if ".py:" in env else env, *more])).strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    paths = (Path("runs") / f"{stamp}-{kind}-{name}{'' if n == 1 else f'-{n}'}" for n in count(1))
    return next(path for path in paths if not path.exists())


def print_tables(tables: Sequence[RenderableType], notes: Sequence[str] = ()) -> None:
    """Print tables of rich, and lines of text under them."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 160)  # a file or a pipe has no width
    for table in tables:
        console.print(table)
    for note in notes:
        console.print(visible(note), markup=False, highlight=False, soft_wrap=True)
