"""Reads the command and hands over to its module."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import sys
from collections.abc import Sequence

from mulligan.cli.options import Parser

COMMANDS = {
    "envs": "what there is to play, with one line each",
    "play": "play a game yourself, or watch a policy play it",
    "eval": "p@1 … p@k of a policy on frozen tasks, with controls and ceiling",
    "train": "meta-RL or RL, from a preset, a file and the command line",
    "export": "the model of a training run as Hugging Face files",
    "sweep": "compare training runs: arms side by side, over seeds, by one protocol",
    "compare": "results side by side: p@k over seeds, paired differences, cost, curves",
    "demo": "RL and meta-RL from one warm start, in minutes on two cores",
    "show": "read a trial of a run folder",
    "check": "test an environment against the contract",
    "bench": "benchmarks",
}


_CLOSED = 141
"""Exit code where the reader of the output has gone, as of programs that SIGPIPE ends: the work was not finished."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command ``mulligan``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    # OpenMP looks once, when torch is loaded. On cores shared with others, threads that spin while they wait are up to
    # seven times slower than threads that sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        code = _written(words)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        code = 130
    except Exception as error:
        from mulligan.errors import MulliganError

        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
            raise SystemExit(_CLOSED) from None
        if debug or not isinstance(error, MulliganError | OSError):
            raise
        sys.stderr.write(f"mulligan: {_said(error)}\n")
        code = 2
    raise SystemExit(code)


def _written(words: list[str]) -> int:
    """How the command ends, once all that it said is written: Python would only write the rest after `main`."""
    try:
        code = _dispatch(words)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich notices before us, and would end with 1
            return _CLOSED
        _flush()  # --help
        raise
    _flush()
    return code


def _flush() -> None:
    if sys.stdout is not None:  # it was closed by whoever started us
        sys.stdout.flush()


def _nobody_reads() -> bool:
    """Whether the reader of this process' output has gone (``| head``); other pipes break too."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # not a file
            poll.register(stream, 0)  # closed ends are reported whatever is asked for
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _said(error: Exception) -> str:
    """What a person is told: our own errors as they are, those of the system with the file they are about."""
    if not isinstance(error, OSError) or not error.strerror:
        return " ".join(str(error).splitlines()) or type(error).__name__
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


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
    module = importlib.import_module(f"mulligan.cli.{words[0]}")
    parser = Parser(prog=f"mulligan {words[0]}", description=module.__doc__)
    module.add_options(parser)
    return int(module.run(parser, words[1:]) or 0)


def _help() -> str:
    lines = [f"  mulligan {name:<7} {summary}" for name, summary in COMMANDS.items()]
    return (
        "Mulligan: language agents that get better from one attempt to the next.\n\n"
        + "\n".join(lines)
        + "\n\n'mulligan COMMAND --help' lists the options of a command; --debug shows tracebacks.\n"
    )
