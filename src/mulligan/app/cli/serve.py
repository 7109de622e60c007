"""Serve the journal as a proxy in front of a model's server (--upstream), or a model of this machine (--model)"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mulligan.app.cli.options import Parser
from mulligan.errors import JournalError, ParameterError, UsageError, extra_named
from mulligan.text import visible

if TYPE_CHECKING:
    from mulligan.journal.journal import Journal
    from mulligan.policy.base import Policy
    from mulligan.serve.settings import ProxySettings

_OF_PROXY = ("namespace", "task_class", "context_role", "context_tokens", "outcome_timeout", "upstream_timeout")


def add_options(parser: Parser) -> None:
    what = parser.add_argument_group("what is served")
    what.add_argument("--upstream", metavar="URL", help="the server that stands behind /v1: https://api.openai.com/v1")
    what.add_argument("--model", metavar="M", help="a model of this machine: a run folder, smollm2, nano or hf:PATH")
    where = parser.add_argument_group("where")
    where.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen at (127.0.0.1)")
    where.add_argument("--port", type=int, default=8790, metavar="N", help="port, 0 for any that is free (8790)")
    where.add_argument(
        "--token-env", metavar="NAME", help="variable with the token that requests bring; needed beyond this machine"
    )
    journal = parser.add_argument_group("the journal")
    journal.add_argument("--journal", default="journal.db", metavar="DB", help="SQLite file or address (journal.db)")
    journal.add_argument("--namespace", metavar="NAME", help="of requests without Mulligan-Namespace (default)")
    journal.add_argument("--task-class", metavar="NAME", help="of requests without Mulligan-Class (default)")
    journal.add_argument("--hold-out", type=float, metavar="X", help="share of episodes without notes (0.1)")
    journal.add_argument("--reward-range", type=float, nargs=2, metavar=("LOW", "HIGH"), help="of outcomes (0 1)")
    journal.add_argument("--allow", action="append", metavar="KIND", help="let urls, code or roles into notes")
    journal.add_argument("--similarity", metavar="NAME", help="wordllama: find notes on tasks in other words (none)")
    journal.add_argument(
        "--context-role",
        choices=("user", "system"),
        help="where notes go: before the first user message, since they are data, or into the system message (user)",
    )
    journal.add_argument("--context-tokens", type=int, metavar="N", help="most tokens of notes (1500)")
    journal.add_argument("--outcome-timeout", type=float, metavar="S", help="seconds to wait for an outcome (3600)")
    journal.add_argument("--reflect", metavar="MODEL", help="model of the upstream that writes reflections")
    journal.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="its key's variable (OPENAI_API_KEY)"
    )
    parser.add_argument("--upstream-timeout", type=float, metavar="S", help="seconds without a byte of it (600)")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    if (options.upstream is None) == (options.model is None):
        raise UsageError("serve takes one of --upstream URL and --model NAME")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    with extra_named("mulligan serve", "serve"):
        import uvicorn  # noqa: F401

        from mulligan.serve.settings import ProxySettings, token_from
    given = {name: getattr(options, name) for name in _OF_PROXY if getattr(options, name) is not None}
    places = {"host": options.host, "port": options.port, "token": token_from(options.token_env)}
    assert set(given) <= {each.name for each in fields(ProxySettings)}
    if options.model is not None:
        if options.reflect or given:
            raise UsageError("--model serves a model alone; start a second one with --upstream for the journal")
        settings = ProxySettings("http://127.0.0.1/v1", **places)
        return _serve(lambda: _model_app(options.model, settings), settings, f"the model {options.model}")
    settings = ProxySettings(options.upstream, **places, **given)
    about = f"{settings.upstream}, journal {options.journal}"
    return _serve(lambda: _proxy_app(options, settings), settings, about)


def _serve(make: Callable[[], Any], settings: ProxySettings, about: str) -> int:
    from mulligan.serve.listen import address_of, bound, server_of

    app = make()
    listener = bound(settings.host, settings.port)
    sys.stderr.write(f"serving {visible(about)}\nbase URL: {address_of(listener)}/v1\n")
    sys.stderr.flush()
    server_of(app).run(sockets=[listener])
    return 0


def _proxy_app(options: argparse.Namespace, settings: ProxySettings) -> Any:
    with extra_named("mulligan serve", "serve"):
        from mulligan.serve.app import ProxyApp

    opened = _opener(options, settings.namespace)
    try:
        opened()
    except JournalError as error:
        if "newer Mulligan" in str(error):
            raise
        sys.stderr.write(f"the journal does not answer yet; requests are passed on without it: {error}\n")
    return ProxyApp(settings, opened, _writer(options))


def _opener(options: argparse.Namespace, namespace: str) -> Callable[[], Journal]:
    from mulligan.journal.journal import Journal

    values: dict[str, Any] = {"allow": options.allow or (), "similarity": options.similarity}
    if options.hold_out is not None:
        values["hold_out"] = options.hold_out
    if options.reward_range is not None:
        values["reward_range"] = tuple(options.reward_range)
    journals: list[Journal] = []

    def opened() -> Journal:
        if not journals:
            journals.append(Journal(options.journal, namespace, **values))
        return journals[0]

    return opened


def _writer(options: argparse.Namespace) -> Policy | None:
    if options.reflect is None:
        return None
    from mulligan.policy.endpoint import EndpointPolicy

    return EndpointPolicy(options.reflect, options.upstream, api_key_env=options.api_key_env)


def _model_app(name: str, settings: ProxySettings) -> Any:
    from mulligan.players import MODELS, player_from, run_of
    from mulligan.serve.local import ModelServer

    if run_of(name) is None and name.partition(":")[0] not in MODELS:
        raise ParameterError(f"model must be a run folder, {', '.join(MODELS)}:PATH (got {name!r})")
    return ModelServer(player_from(name, slots=8), settings).app
