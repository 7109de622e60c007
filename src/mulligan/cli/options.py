"""Options that several commands share, and an argparse that speaks in one line."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, get_args

from mulligan.errors import MissingExtra, ParameterError, UnknownName, UsageError
from mulligan.types import Memory, Restart, Sampling, Stop

ENDPOINT_OPTIONS = ("base_url", "model", "api_key_env", "concurrency", "timeout", "retries", "extra_body")


class Parser(argparse.ArgumentParser):
    """Argparse whose errors are `UsageError`s, with the nearest option named."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog.partition(' ')[2]}: {message}; see '{self.prog} --help'")

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str]]:
        """The options, and the environment's parameters given as ``--env.NAME VALUE``."""
        params, own = self._params(words)
        known, rest = self.parse_known_args(own)
        for word in rest:
            if not word.startswith("-"):
                self.error(f"do not know what to do with {word!r}")
            raise UnknownName("option", word.partition("=")[0], [*self._option_string_actions, "--env.NAME"])
        return known, params

    def peek(self, words: Sequence[str]) -> argparse.Namespace:
        """The options alone, before mistakes are looked for."""
        return self.parse_known_args(self._params(words)[1])[0]

    def given(self, words: Sequence[str]) -> list[str]:
        """The options that stand on the command line, by the names of their values."""
        named = (self._option_string_actions.get(word.partition("=")[0]) for word in self._params(words)[1])
        return list(dict.fromkeys(action.dest for action in named if action is not None))

    def _params(self, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The environment's parameters apart from all other words; they may stand anywhere."""
        params: dict[str, str] = {}
        own: list[str] = []
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            name, equals, value = word.partition("=")
            if not name.startswith("--env."):
                own.append(word)
                continue
            if not equals:
                if not waiting or waiting[0].startswith("--"):
                    self.error(f"{name} needs a value")
                value = waiting.pop(0)
            params[name.removeprefix("--env.").replace("-", "_")] = value
        return params, own


def add_trial_options(parser: Parser) -> None:
    """What `TrialSettings` can be told."""
    group = parser.add_argument_group("the trial")
    group.add_argument("--episodes", type=int, default=3, metavar="N", help="episodes a trial has at most (3)")
    group.add_argument("--memory", choices=get_args(Memory), help="what later episodes see (as the style says)")
    group.add_argument("--style", default="plain", help="plain, note, zero-shot, react, reflexion or bare (plain)")
    group.add_argument("--stop", choices=get_args(Stop), help="end the trial at the first success, or never")
    group.add_argument("--restart", choices=get_args(Restart), help="repeat the episode exactly, or redraw chance")
    group.add_argument("--window", type=int, metavar="K", help="show only the last K turns of an episode")
    group.add_argument("--memory-tokens", type=int, default=4096, metavar="N", help="budget of the memory (4096)")
    group.add_argument("--max-reflections", type=int, default=5, metavar="N", help="reflections shown (5)")
    group.add_argument("--reflection-tokens", type=int, default=512, metavar="N", help="limit of a reflection (512)")
    group.add_argument("--temperature", type=float, default=0.7, help="of the policy's sampling (0.7)")
    group.add_argument("--top-p", type=float, default=1.0, help="of the policy's sampling (1)")
    group.add_argument("--max-tokens", type=int, default=512, metavar="N", help="limit of a reply (512)")
    group.add_argument("--env-timeout", type=float, metavar="S", help="seconds the environment may take for a step")


def take_defaults_of_run(parser: Parser, words: Sequence[str]) -> dict[str, Any]:
    """Where the policy is a training run, its own settings become the options' defaults; returns its parameters."""
    from mulligan.players import as_trained, trained_with

    known = parser.peek(words)
    config = trained_with(known.policy)
    if config is None or known.env is None:
        return {}
    settings, params = as_trained(config, known.env)
    own = {field.name: getattr(settings, field.name) for field in fields(settings)}
    own = {name: value for name, value in own.items() if name not in ("episodes", "sampling")}
    parser.set_defaults(**own, max_tokens=settings.sampling.max_tokens, related=config.trial.tasks == "related")
    return dict(params)


def trial_settings(options: argparse.Namespace) -> Any:
    """The `TrialSettings` that the options ask for."""
    from mulligan.trial.settings import TrialSettings

    return TrialSettings(
        episodes=options.episodes,
        memory=options.memory,
        style=options.style,
        stop=options.stop,
        restart=options.restart,
        memory_tokens=options.memory_tokens,
        max_reflections=options.max_reflections,
        window=options.window,
        sampling=Sampling(options.temperature, options.top_p, options.max_tokens),
        reflection_tokens=options.reflection_tokens,
        env_timeout=options.env_timeout,
    )


def add_policy_options(parser: Parser, default: str | None) -> None:
    """Which policy, and how to reach an endpoint."""
    group = parser.add_argument_group("the policy")
    group.add_argument(
        "--policy",
        default=default,
        metavar="P",
        help="random, expert[:SKILL[:RECALL]], hasty[:SKILL[:RECALL]] (Sokoban), omniscient, "
        "player:NAME[:SKILL[:RECALL]] (another one of the environment), human, endpoint:MODEL, "
        "file.py:NAME, a run folder, or a local model: nano, smollm2, hf:PATH "
        f"{f'({default})' if default else '(required)'}; SKILL and RECALL are shares from 0 to 1",
    )
    group.add_argument("--base-url", metavar="URL", help="OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")
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


def check_endpoint(options: argparse.Namespace) -> None:
    """Refuse what only an endpoint could heed where another policy plays."""
    given = [name for name in ("base_url", "model", "extra_body") if getattr(options, name) is not None]
    if given and options.policy.partition(":")[0] != "endpoint":
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{flag} is for --policy endpoint:MODEL; the policy is {options.policy!r}")


def endpoint_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that `EndpointPolicy` takes."""
    if options.concurrency < 1:
        raise ParameterError(f"concurrency={options.concurrency} cannot be; give at least 1")
    return {name: getattr(options, name) for name in ENDPOINT_OPTIONS}


def available_cores(asked: int | None) -> int:
    """As many cores as were asked for, or as this process may use."""
    if asked is not None and asked < 1:
        raise ParameterError(f"cores={asked} cannot be; give at least 1")
    return asked or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def check_installed(what: str) -> None:
    """Say which extra is missing where `what` needs torch and it is not there."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtra(what, "train") from error


def check_holds_runs(folder: Path) -> None:
    """The runs of a sweep lie in a folder that is no run itself, or neither could be told from the other."""
    if (folder / "config.toml").exists():
        raise UsageError(f"{folder} is a run itself; choose another folder for several")


def new_run_path(kind: str, env: str, *more: str) -> Path:
    """A folder under runs/ that does not exist yet: time, kind, and what is played by whom."""
    name = re.sub(r"[^\w.]+", "-", "-".join([Path(env).stem if ".py:" in env else env, *more])).strip("-")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{stamp}-{kind}-{name}"
    number = 2
    while path.exists():
        path = path.with_name(f"{stamp}-{kind}-{name}-{number}")
        number += 1
    return path
