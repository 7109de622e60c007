"""Progress of long work on standard error: live bars on a terminal and in a notebook, else a line now and then."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mulligan.eval.run import Progress as OnTrial

Metrics = dict[str, Any]
OnUpdate = Callable[[Metrics], None]

_EVERY_SECONDS = 10.0


def in_notebook() -> bool:
    return "ipykernel" in sys.modules


def is_live() -> bool:
    """Whether bars can be drawn; in a notebook rich draws them with ipywidgets."""
    return sys.stderr.isatty() or (in_notebook() and importlib.util.find_spec("ipywidgets") is not None)


class Lines:
    """Writes a line to standard error, at most every ten seconds."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.last = quiet, time.monotonic()

    def write(self, line: str, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not self.quiet and (at_once or now - self.last >= _EVERY_SECONDS):
            self.last = now
            sys.stderr.write(f"{line}\n")


@contextlib.contextmanager
def trial_progress(*, quiet: bool = False) -> Iterator[OnTrial]:
    """Gives the callback that `evaluate` calls. `quiet` leaves out the lines where bars cannot be drawn."""
    if not is_live():
        lines = Lines(quiet=quiet)
        yield lambda arm, done, total: lines.write(f"{arm}: {done} of {total} trials")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars: dict[str, TaskID] = {}

        def show(arm: str, done: int, total: int) -> None:
            if arm not in bars:
                bars[arm] = progress.add_task(arm, total=total)
            progress.update(bars[arm], completed=done)

        yield show


@contextlib.contextmanager
def update_progress(env: str, *, quiet: bool = False) -> Iterator[OnUpdate]:
    """Gives the callback that shows each update of a run on `env`. Warnings are written in any case, each once."""
    status = Status(versus=is_versus(env))
    if not is_live():
        lines = Lines(quiet=quiet)
        lines.last = -_EVERY_SECONDS

        def say(metrics: Metrics) -> None:
            is_last = metrics.get("update") == metrics.get("updates", 0)
            lines.write(status.line(metrics), at_once=is_last)
            if warning := status.new_warning(metrics):
                sys.stderr.write(warning + "\n")

        yield say
        return
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
        """The first update seen, and when."""
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
    numbered = [key for key in metrics if key.startswith(prefix) and key.removeprefix(prefix).isdecimal()]
    return sorted(numbered, key=lambda key: int(key.removeprefix(prefix)))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def is_versus(env: str) -> bool:
    """Whether all that is played are games against somebody, where returns say more than p@k."""
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture

    return all(registry.spec(name).kind == "versus" for name, _ in Mixture.parse(env, {}).weights)
