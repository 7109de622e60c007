"""Progress of long work: a bar with the time left on a terminal, plain lines otherwise, on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.sweep.arms import Work
    from mulligan.sweep.schedule import OnProgress
    from mulligan.train.config import Config

Metrics = dict[str, Any]
OnUpdate = Callable[[Metrics], None]

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

    from mulligan.sweep.arms import RESULT

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


@contextlib.contextmanager
def update_progress(config: Config, *, quiet: bool) -> Iterator[OnUpdate]:
    """Shows each update: one live line on a terminal, else a line every ten seconds and one for the last update."""
    status = Status(versus=is_versus(config.task.env))
    if sys.stderr.isatty():
        with _live(status) as show:
            yield show
        return
    shown = -_EVERY_SECONDS

    def say(metrics: Metrics) -> None:
        nonlocal shown
        line = status.line(metrics)
        is_last = metrics.get("update") == metrics.get("updates", 0)
        if not quiet and (is_last or time.monotonic() - shown >= _EVERY_SECONDS):
            shown = time.monotonic()
            sys.stderr.write(line + "\n")
        if warning := status.new_warning(metrics):
            sys.stderr.write(warning + "\n")

    yield say


@contextlib.contextmanager
def _live(status: Status) -> Iterator[OnUpdate]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(stderr=True)
    one_line = Column(no_wrap=True, overflow="ellipsis")
    columns = (BarColumn(bar_width=10), TextColumn("{task.description}", markup=False, table_column=one_line))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("getting ready", total=None)

        def show(metrics: Metrics) -> None:
            done, total = status.position(metrics)
            progress.update(bar, description=status.line(metrics), completed=done, total=total)
            if warning := status.new_warning(metrics):
                console.print(warning, markup=False, highlight=False, soft_wrap=True)

        yield show


class Status:
    """What a person wants to know of a run, in one line."""

    def __init__(self, *, versus: bool = False) -> None:
        self.versus = versus
        self._first: tuple[int, float] | None = None
        self._warnings: set[str] = set()

    def position(self, metrics: Metrics) -> tuple[int, int]:
        """How many steps are done, and of how many: of the warm start, or of the run."""
        if "warmstart" in metrics:
            return int(metrics["warmstart"]), int(metrics["steps"])
        return int(metrics["update"]), int(metrics["updates"])

    def line(self, metrics: Metrics) -> str:
        done, total = self.position(metrics)
        if "demonstrations" in metrics:
            return f"warm start: {metrics['demonstrations']} demonstrations are played"
        if "warmstart" in metrics:
            return f"warm start {done}/{total}  loss {metrics['loss']:.3f}"
        left = self._left(done, total)
        parts = [f"update {done}/{total}{'' if left is None else f', {_clock(left)} left'}", *self.success(metrics)]
        if (entropy := metrics.get("loss/entropy")) is not None:
            parts.append(f"entropy {entropy:.2f}")
        if (rate := metrics.get("time/engine_tokens_per_s")) is not None:
            parts.append(f"{rate:,.0f} tokens/s" if rate < 10_000 else f"{rate / 1000:,.0f}k tokens/s")
        return "  ".join(parts)

    def new_warning(self, metrics: Metrics) -> str | None:
        """The warning of an update, the first time it comes."""
        text = metrics.get("warning")
        if not text or text in self._warnings:
            return None
        self._warnings.add(text)
        return f"warning: {text}"

    def success(self, metrics: Metrics) -> list[str]:
        """p@k of an update, or the returns episode by episode."""
        if self.versus:
            means = [metrics[key] for key in _numbered(metrics, "reward/") if metrics[key] is not None]
            return [f"reward {' '.join(f'{mean:+.2f}' for mean in means)}"] if means else []
        return [f"p@{k} {100 * share:.1f}" for k, share in shares(metrics)]

    def _left(self, done: int, total: int) -> float | None:
        """Seconds until the last update, at the pace since the first one seen."""
        now = time.monotonic()
        if self._first is None:
            self._first = (done, now)
        first, since = self._first
        return (now - since) / (done - first) * (total - done) if total > done > first else None


def shares(metrics: Metrics, prefix: str = "p@") -> list[tuple[int, float]]:
    """(k, p@k) of an update, or of what else is called p@k, such as ``validation/p@``."""
    return [(int(key.removeprefix(prefix)), metrics[key]) for key in _numbered(metrics, prefix)]


def _numbered(metrics: Metrics, prefix: str) -> list[str]:
    found = [key for key in metrics if key.startswith(prefix) and key.removeprefix(prefix).isdecimal()]
    return sorted(found, key=lambda key: int(key.removeprefix(prefix)))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def is_versus(env: str) -> bool:
    """Whether all that is played are games against somebody, where returns say more than p@k."""
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture

    return all(registry.spec(name).kind == "versus" for name, _ in Mixture.parse(env, {}).weights)
