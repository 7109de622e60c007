"""Progress of long work: a bar with the time left on a terminal, plain lines otherwise, on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_EVERY_SECONDS = 10.0


@contextlib.contextmanager
def trial_progress(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Gives the callback that `evaluate` calls with (arm, done, total)."""
    if quiet and not sys.stderr.isatty():
        yield lambda arm, done, total: None
        return
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars: dict[str, int] = {}

        def show(arm: str, done: int, total: int) -> None:
            if arm not in bars:
                bars[arm] = progress.add_task(arm, total=total)
            progress.update(bars[arm], completed=done)  # type: ignore[arg-type]

        yield show


def _plain_lines() -> Callable[[str, int, int], None]:
    last = {"at": time.monotonic()}

    def say(arm: str, done: int, total: int) -> None:
        if time.monotonic() - last["at"] >= _EVERY_SECONDS:
            last["at"] = time.monotonic()
            sys.stderr.write(f"{arm}: {done} of {total} trials\n")

    return say
