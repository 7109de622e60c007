"""Errors by name, and why an episode ended.

A message is one line that names the value and the way out; the command line prints it as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class StopReason(StrEnum):
    """Why an episode ended. Every episode has exactly one; all of them are counted and shown."""

    WON = "won"
    LOST = "lost"
    DRAWN = "drawn"
    """A game against somebody that ended without a winner."""
    TURN_LIMIT = "turn_limit"
    CONTEXT_FULL = "context_full"
    """The policy had no room left for another reply."""
    REQUEST_FAILED = "request_failed"
    """The model could not be reached, or did not answer, after all retries."""
    ENV_RAISED = "env_raised"
    ENV_HUNG = "env_hung"
    OPPONENT_FAILED = "opponent_failed"
    """The opponent raised, or played what is no move: it forfeits the episode, and nobody is rewarded for that."""

    @property
    def is_infrastructure(self) -> bool:
        """True if neither the agent nor the task is to blame; training leaves such trials out."""
        return self is StopReason.REQUEST_FAILED or self.is_of_world

    @property
    def is_of_world(self) -> bool:
        """True if the world failed, with which the trial cannot go on."""
        return self in (StopReason.ENV_RAISED, StopReason.ENV_HUNG, StopReason.OPPONENT_FAILED)


class Fault(StrEnum):
    """What was wrong with a reply that did not count as a move."""

    EMPTY = "empty"
    CUT_OFF = "cut_off"
    """The reply reached the token limit before it named an action."""
    INVALID = "invalid"
    REFUSED = "refused"
    """The model, or the server's filter, would not answer."""
    UNKNOWN_TOOL = "unknown_tool"
    """It called a tool that it was not offered."""
    BAD_ARGUMENTS = "bad_arguments"
    """It called a tool with arguments that are not JSON or do not fit the tool's schema."""
    SEVERAL_CALLS = "several_calls"
    """It called more than one tool at a time."""


class MulliganError(Exception):
    """Everything this package raises on purpose."""


class UsageError(MulliganError):
    """The caller asked for something that does not exist or cannot be."""


class UnknownName(UsageError):
    """A name that nothing has; the message offers the nearest one that exists."""

    def __init__(self, kind: str, name: str, names: Iterable[str], hint: str = "") -> None:
        known_names = sorted(names)
        near = difflib.get_close_matches(name, known_names, n=1, cutoff=0.5)
        listed = map(repr, known_names) if any("," in each for each in known_names) else known_names
        way_out = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(listed) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}{hint}; {way_out}")


class ParameterError(UsageError):
    """A parameter whose value is impossible."""


class MemoryFull(UsageError):
    """The free memory is too small now; it may suffice when other processes have ended."""


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        install = f"pip install -c constraints.txt -e '.[{extra}]'"
        super().__init__(f"{what} needs the extra {extra!r}; in the repository: {install}")


@contextmanager
def extra_named(activity: str, extra: str = "train") -> Iterator[None]:
    """Where an import inside fails, names the extra that `activity` needs; not if the module is Mulligan's."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "mulligan":
            raise
        raise MissingExtra(activity, extra) from error


class ContractBroken(MulliganError):
    """An environment does not keep the contract that `check_env` tests."""


class OpponentFailed(MulliganError):
    """The opponent in a game raised, or played what is no move."""


class PolicyError(MulliganError):
    """The policy could not give a reply."""


class RequestFailed(PolicyError):
    """A request to the model failed for good, after all retries."""


class ContextFull(PolicyError):
    """The conversation has outgrown the model's context."""


class DeviceLost(MulliganError):
    """The device that the model runs on failed; nothing of it can be used again in this process."""


def lost_device(error: Exception, doing: str) -> DeviceLost | None:
    """The error to raise if `error` is a failure of the device itself; None for any other error."""
    line = str(error).strip().partition("\n")[0]
    signs = ("CUDA error", "CUDA driver error", "Triton Error [CUDA]")
    if type(error).__name__ != "AcceleratorError" and not any(sign in line for sign in signs):
        return None
    return DeviceLost(f"the device failed while {doing}: {line}; continue with --resume (in Python resume=True)")


def lacks_memory(message: str) -> bool:
    """Whether an error message says that memory ran out: torch, CUDA, cuBLAS and cuDNN each word it differently."""
    return any(sign in message for sign in ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED"))


class RunFolderError(MulliganError):
    """A run folder that cannot be read or must not be written."""


class JournalError(MulliganError):
    """A journal's database that cannot be opened, read or written now."""


class OtherVersion(JournalError):
    """A journal whose tables are those of an earlier or a later Mulligan."""


class DamagedFile(UserWarning):
    """A file of a run folder of which a part was left out."""


class FaultyWorld(UserWarning):
    """A world that cannot be built was left out of a list of tasks."""
