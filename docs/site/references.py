"""Pages that are made from the code, so that they cannot go stale: the command line, settings, environments."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator

from mulligan.app.cli.main import COMMANDS, parser_of
from mulligan.envs import registry
from mulligan.training.config import settings

_MARKS = re.compile(r"([\\*_|<>\[\]`])")


def pages() -> dict[str, str]:
    """Name -> Markdown of every page."""
    return {"command-line": command_line(), "settings": settings_page(), "environments": environments()}


def command_line() -> str:
    parts = [
        "# The command line",
        "Every command prints one line that says what is wrong where it is used wrongly, and ends with code 2; "
        "130 means interrupted, 75 that a time limit was reached. `--debug` shows tracebacks; "
        "`--trust` runs the Python files and asks the servers that a run folder names.",
        _table(
            ("command", ""), ([f"[`mulligan {name}`](#mulligan-{name})", _plain(COMMANDS[name])] for name in COMMANDS)
        ),
        *(part for name in COMMANDS for part in _command(name)),
    ]
    return "\n\n".join(parts) + "\n"


def _command(name: str) -> Iterator[str]:
    parser = parser_of(name)
    yield f"## `mulligan {name}`"
    yield _plain(inspect.cleandoc(parser.description or ""))
    usage = parser.format_usage().removeprefix("usage: ")
    yield f"```text\n{usage}```"
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if each.help != argparse.SUPPRESS]
        if actions:
            if group not in (parser._positionals, parser._optionals):
                yield f"**{_plain((group.title or '').capitalize())}**"
            yield _table(("argument", "meaning"), ([_written(each), _plain(each.help or "")] for each in actions))


def _written(action: argparse.Action) -> str:
    """An argument as it is typed."""
    choices = ",".join(map(str, action.choices)) if action.choices else ""
    value = action.metavar or (f"{{{choices}}}" if choices else action.dest.upper())
    shown = " ".join(value) if isinstance(value, tuple) else str(value)
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return "<br>".join(f"`{flag}{'' if action.nargs == 0 else f' {shown}'}`" for flag in action.option_strings)


def settings_page() -> str:
    """Every setting of a training run, by section."""
    parts = [
        "# Settings of a training run",
        "On the command line `--SECTION.NAME VALUE`; in a file `NAME = VALUE` under `[SECTION]`. "
        "`mulligan train --settings` prints them, `--dry-run` shows what a run would use. "
        "A preset (`mulligan train --help` lists them) changes some of the defaults.",
    ]
    sections: dict[str, list[list[str]]] = {}
    for key, setting in settings().items():
        section, _, name = key.partition(".")
        choices = f" ({', '.join(f'`{each}`' for each in setting.choices)})" if setting.choices else ""
        row = [f"`{name}`", f"`{setting.shown(setting.default) or '(none)'}`", _plain(setting.help) + choices]
        sections.setdefault(section, []).append(row)
    for section, rows in sections.items():
        parts += [f"## `[{section}]`", _table(("name", "default", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def environments() -> str:
    """Everything that is built in, with its parameters."""
    parts = [
        "# Environments",
        "What is built in, as `mulligan envs NAME` tells it. Parameters are given with `--env.NAME VALUE`, in Python "
        'with `params={"NAME": VALUE}`. Other libraries\' environments: [adapters](adapters.md). Your own: '
        "[an environment of your own](own-env.md).",
    ]
    for name in registry.names():
        spec = registry.spec(name)
        params = [[f"`{key}`", f"`{value}`"] for key, value in spec.defaults.items()]
        text = inspect.getdoc(inspect.getmodule(spec.build)) or inspect.getdoc(spec.build) or ""
        parts += [f"## `{name}`", _plain(spec.summary) + f". {spec.turns} turns unless `turns` says otherwise."]
        parts += [_table(("parameter", "default"), params)] if params else []
        parts += [f"```text\n{text.replace('``', '').replace('`', '')}\n```"]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Text in which nothing is markup, but for code between two backticks."""
    pieces = re.split(r"(``.+?``|`.+?`)", text.replace("%%", "%"))
    return "".join(
        f"`{piece.strip('`')}`" if number % 2 else _MARKS.sub(r"\\\1", piece) for number, piece in enumerate(pieces)
    )


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(" ".join(cell.split()) for cell in line) + " |" for line in lines)
