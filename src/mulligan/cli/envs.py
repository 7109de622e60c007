"""What there is to play: built in, and from installed packages; of one environment, its parameters."""

from __future__ import annotations

import importlib
import inspect
import json
import sys

from mulligan.cli.options import Parser
from mulligan.envs import registry


def add_options(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", help="tell more of this one")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(parser: Parser, words: list[str]) -> int:
    options = parser.parse_args(words)
    specs = [registry.spec(name) for name in ([options.name] if options.name else registry.names())]
    if options.json:
        found = [
            {"name": s.name, "summary": s.summary, "kind": s.kind, "turns": s.turns, "params": dict(s.defaults)}
            for s in specs
        ]
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    width = max(len(spec.name) for spec in specs)
    for spec in specs:
        params = " ".join(f"{key}={value}" for key, value in spec.defaults.items())
        sys.stdout.write(f"{spec.name:<{width}}  {spec.summary}\n{'':<{width}}  {spec.turns} turns; {params}\n")
    if options.name:
        sys.stdout.write(f"\n{_told(options.name)}\n")
        return 0
    others = ", ".join(f"{library}:NAME" for library in registry.ADAPTERS)
    sys.stdout.write(f"\nOf other libraries: {others}; your own: path/to/file.py:Class\n")
    return 0


def _told(name: str) -> str:
    """What the module of an environment says of itself, or else its class."""
    kind = type(registry.make(name))
    text = inspect.getdoc(importlib.import_module(kind.__module__)) or inspect.getdoc(kind) or ""
    return text.replace("``", "").replace("`", "")
