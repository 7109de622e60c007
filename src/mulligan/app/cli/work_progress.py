"""Progress of a sweep on standard error: a bar for each run under way and one for all, or plain lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mulligan.app.progress import Lines, is_live

if TYPE_CHECKING:
    from mulligan.app.sweep.arms import Work
    from mulligan.app.sweep.schedule import OnProgress


@contextlib.contextmanager
def work_progress(work: Sequence[Work], *, quiet: bool = False) -> Iterator[OnProgress]:
    """Gives the callback that `run_work` calls."""
    several_seeds = len({each.seed for each in work}) > 1
    names = {each.folder: f"{each.name} (seed {each.seed})" if several_seeds else each.name for each in work}
    if not is_live():
        lines = Lines(quiet=quiet)

        def say(one: Work, stage: str, count: int, total: int) -> None:
            is_done = stage == "done"
            lines.write(f"{names[one.folder]}: {'done' if is_done else f'{stage} {count} of {total}'}", at_once=is_done)

        yield say
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from mulligan.app.sweep.arms import RESULT

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[stage]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        done = sum((each.folder / RESULT).is_file() for each in work)
        all_runs = progress.add_task("all", total=len(work), completed=done, stage=f"{done} of {len(work)} runs")
        bars: dict[object, TaskID] = {}

        def show(one: Work, stage: str, count: int, total: int) -> None:
            nonlocal done
            if stage == "done":
                done += 1
                progress.update(all_runs, completed=done, stage=f"{done} of {len(work)} runs")
                if one.folder in bars:
                    progress.remove_task(bars.pop(one.folder))
                return
            if one.folder not in bars:
                bars[one.folder] = progress.add_task(names[one.folder], total=total, stage="")
            progress.update(bars[one.folder], completed=count, total=total, stage=f"{stage} {count} of {total}")

        yield show
