"""What there is to play: built in, and from installed packages; of one environment, its parameters; of another library
(gymnasium, textarena, openspiel), everything that can be played."""

from __future__ import annotations

import importlib
import inspect
import json
import sys

from mulligan.app.cli.options import Parser
from mulligan.envs import registry


def add_options(parser: Parser) -> None:
    libraries = ", ".join(registry.ADAPTERS)
    parser.add_argument("name", nargs="?", help=f"tell more of this one, or of a library: {libraries}")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    if options.name in registry.ADAPTERS:
        _list_library(options.name, as_json=options.json)
        return 0
    specs = [registry.spec(name) for name in ([options.name] if options.name else registry.names())]
    if options.json:
        rows = [
            {"name": s.name, "summary": s.summary, "kind": s.kind, "turns": s.turns, "params": dict(s.defaults)}
            for s in specs
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    width = max(len(spec.name) for spec in specs)
    for spec in specs:
        params = " ".join(f"{key}={value}" for key, value in spec.defaults.items())
        sys.stdout.write(f"{spec.name:<{width}}  {spec.summary}\n{'':<{width}}  {spec.turns} turns; {params}\n")
    if options.name:
        sys.stdout.write(f"\n{_documentation(specs[0].build)}\n")
    else:
        others = ", ".join(f"{library}:NAME" for library in registry.ADAPTERS)
        sys.stdout.write(f"\nOf other libraries: {others} (mulligan envs {registry.ADAPTERS[0]} lists them)\n")
        sys.stdout.write("Your own: path/to/file.py:Class\n")
    return 0


def _list_library(library: str, *, as_json: bool) -> None:
    """Everything of another library that can be played, a line each."""
    games = list(importlib.import_module(f"mulligan.envs.adapters.{library}").catalogue())
    if as_json:
        rows = [{**game._asdict(), "name": f"{library}:{game.name}"} for game in games]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    width = max((len(game.name) for game in games), default=0) + len(library) + 1
    for game in games:
        players = "1 player " if game.players == 1 else f"{game.players} players"
        sys.stdout.write(f"{f'{library}:{game.name}':<{width}}  {players}  {game.summary}".rstrip() + "\n")


def _documentation(env_class: type) -> str:
    """The docstring of an environment's module, or else of its class."""
    text = inspect.getdoc(sys.modules[env_class.__module__]) or inspect.getdoc(env_class) or ""
    return text.replace("``", "").replace("`", "")
