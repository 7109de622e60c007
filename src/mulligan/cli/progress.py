"""Progress of long work: a bar with the time left on a terminal, plain lines otherwise, on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mulligan.sweep.arms import Work
    from mulligan.sweep.schedule import OnProgress

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


@contextlib.contextmanager
def work_progress(work: Sequence[Work], *, quiet: bool = False) -> Iterator[OnProgress]:
    """Gives the callback that `run_work` calls: a bar for each arm under way and one for all, or plain lines."""
    names = {each.folder: f"{each.name} (seed {each.seed})" if _has_seeds(work) else each.name for each in work}
    if not sys.stderr.isatty():
        yield _work_lines(names, quiet=quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from mulligan.sweep.worker import RESULT

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[stage]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        done = sum((each.folder / RESULT).is_file() for each in work)
        whole = progress.add_task("all", total=len(work), completed=done, stage=f"{done} of {len(work)} runs")
        bars: dict[object, TaskID] = {}

        def show(one: Work, stage: str, count: int, total: int) -> None:
            nonlocal done
            if stage == "done":
                done += 1
                progress.update(whole, completed=done, stage=f"{done} of {len(work)} runs")
                if one.folder in bars:
                    progress.remove_task(bars.pop(one.folder))
                return
            if one.folder not in bars:
                bars[one.folder] = progress.add_task(names[one.folder], total=total, stage="")
            progress.update(bars[one.folder], completed=count, total=total, stage=f"{stage} {count} of {total}")

        yield show


def _has_seeds(work: Sequence[Work]) -> bool:
    return len({each.seed for each in work}) > 1


def _work_lines(names: Mapping[Path, str], *, quiet: bool) -> OnProgress:
    last = {"at": time.monotonic()}

    def say(one: Work, stage: str, count: int, total: int) -> None:
        if quiet or (stage != "done" and time.monotonic() - last["at"] < _EVERY_SECONDS):
            return
        last["at"] = time.monotonic()
        sys.stderr.write(
            f"{names[one.folder]}: done\n" if stage == "done" else f"{names[one.folder]}: {stage} {count} of {total}\n"
        )

    return say
