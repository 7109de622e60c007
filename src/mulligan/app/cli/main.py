"""Reads the command and hands over to its module."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from mulligan.app.cli.options import Parser
from mulligan.errors import DamagedFile, FaultyWorld
from mulligan.text import visible
from mulligan.trusted import trust_words

COMMANDS = {
    "envs": "what there is to play, with one line each",
    "play": "play a game yourself, or watch a policy play it",
    "eval": "p@1 … p@k of a policy on frozen tasks, with controls and ceiling",
    "train": "meta-RL or RL, from a preset, a file and the command line",
    "export": "the model of a training run as Hugging Face files",
    "sweep": "compare training runs: arms side by side, over seeds, by one protocol",
    "compare": "results side by side: p@k over seeds, paired differences, cost, curves",
    "demo": "RL and meta-RL from one warm start, in minutes on two cores",
    "view": "runs in the browser: figures, curves, trials turn by turn; live",
    "runs": "the runs of a folder, with their headline figures",
    "report": "runs as one HTML file that holds everything",
    "send": "runs to TensorBoard or Weights & Biases",
    "show": "list the trials of a run, or read one",
    "check": "test an environment against the contract",
    "serve": "the journal as a proxy before a model's server, or a local model as a server",
    "journal": "a journal's worth and its notes: report, correct, quarantine, forget, export",
    "bench": "benchmarks",
}
_CLOSED = 141
"""Exit code where the reader of the output has gone (``| head``), as of programs that SIGPIPE ends."""


_USUAL_WARNING = warnings.formatwarning


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command ``mulligan``. Exit codes: 2 a mistake, 130 interrupted, 141 output pipe closed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    trust_words(words)
    words = [word for word in words if word not in ("--debug", "--trust")]
    # OpenMP reads this once, when torch is loaded. On cores shared with others, threads that spin while they wait are
    # up to seven times slower than threads that sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = _warning
    try:
        try:
            code = _dispatch(words)
        finally:
            if sys.stdout is not None:  # None if whoever started us has closed it
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = 130
    except (BrokenPipeError, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise  # but rich ends with 1 where the pipe is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what is still buffered
        code = _CLOSED
    except Exception as error:
        from mulligan.errors import MulliganError

        if debug or not isinstance(error, MulliganError | OSError):
            raise
        sys.stderr.write(f"mulligan: {_message(error)}\n")
        code = 2
    raise SystemExit(code)


def _message(error: Exception) -> str:
    """One line: our own errors as they are, those of the system with the file they are about."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return visible(" ".join(text.splitlines()))


def _warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> str:
    """A warning of ours as one line; others as Python has them, with the line of code that they come from."""
    if issubclass(category, DamagedFile | FaultyWorld):
        return f"mulligan: {visible(str(message))}\n"
    return _USUAL_WARNING(message, category, *where, **more)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help())
        return 0
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"mulligan {version('mulligan')}\n")
        return 0
    if words[0] not in COMMANDS:
        from mulligan.errors import UnknownName

        raise UnknownName("command", words[0], COMMANDS)
    module = importlib.import_module(f"mulligan.app.cli.{words[0]}")
    return int(module.run(parser_of(words[0]), words[1:]) or 0)


def parser_of(command: str) -> Parser:
    """The parser of a command, with its options."""
    module = importlib.import_module(f"mulligan.app.cli.{command}")
    parser = Parser(prog=f"mulligan {command}", description=module.__doc__)
    module.add_options(parser)
    return parser


def _help() -> str:
    lines = [f"  mulligan {name:<7} {summary}" for name, summary in COMMANDS.items()]
    return (
        "Mulligan: language agents that get better from one attempt to the next.\n\n"
        + "\n".join(lines)
        + "\n\n'mulligan COMMAND --help' lists the options of a command; --debug shows tracebacks,\n"
        "--trust runs the Python files and asks the servers that a run folder names.\n"
    )
