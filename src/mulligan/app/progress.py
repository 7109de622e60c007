"""Progress of long work on standard error: live bars on a terminal and in a notebook, else a line now and then."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mulligan.text import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

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
    """Writes a line at most every ten seconds; none where `quiet`, but for notes."""

    def __init__(self, quiet: bool, last: float) -> None:
        self.quiet, self.last = quiet, last

    def show(self, name: str, text: str, done: int, total: int, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not self.quiet and (at_once or now - self.last >= _EVERY_SECONDS):
            self.last = now
            self.note(f"{name}: {text}" if name else text)

    def note(self, text: str) -> None:
        sys.stderr.write(f"{visible(text)}\n")


class Bars:
    """Draws a bar for each name that is shown, until it is full."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.bars = progress, dict[str, "TaskID"]()

    def show(self, name: str, text: str, done: int, total: int, *, at_once: bool = False) -> None:
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(visible(name), total=total, text=text)
        self.progress.update(self.bars[name], completed=done, total=total, text=visible(text))
        if done == total:
            self.progress.remove_task(self.bars.pop(name))

    def note(self, text: str) -> None:
        self.progress.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def shown(*, quiet: bool, first_at_once: bool = False) -> Iterator[Lines | Bars]:
    """Gives what shows progress here. `quiet` leaves out the lines where bars cannot be drawn."""
    if not is_live():
        yield Lines(quiet, -_EVERY_SECONDS if first_at_once else time.monotonic())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    name = TextColumn("{task.description}", markup=False)
    text = TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    with Progress(name, BarColumn(bar_width=10), text, console=Console(stderr=True), transient=True) as progress:
        yield Bars(progress)


@contextlib.contextmanager
def trial_progress(*, quiet: bool = False) -> Iterator[OnTrial]:
    """Gives the callback that `evaluate` calls."""
    with shown(quiet=quiet) as display:
        yield lambda arm, done, total: display.show(arm, f"{done} of {total} trials", done, total)


@contextlib.contextmanager
def update_progress(env: str, *, quiet: bool = False) -> Iterator[OnUpdate]:
    """Gives the callback that shows each update of a run on `env`. Warnings are written in any case, each once."""
    status, warnings = Status(versus=is_versus(env)), set[str]()
    with shown(quiet=quiet, first_at_once=True) as display:

        def show(metrics: Metrics) -> None:
            done, total = status.position(metrics)
            display.show("", status.line(metrics), done, total, at_once="update" in metrics and done == total)
            warning = metrics.get("warning")
            if warning and warning not in warnings:
                warnings.add(warning)
                display.note(f"warning: {warning}")

        yield show


class Status:
    """What a person wants to know of a run, in one line."""

    def __init__(self, *, versus: bool = False) -> None:
        self.versus = versus
        self._first: tuple[int, float] | None = None
        """The first update seen, and when."""

    def position(self, metrics: Metrics) -> tuple[int, int]:
        """How many steps are done, and of how many: of the warm start, or of the run."""
        if "warmstart" in metrics:
            return int(metrics["warmstart"]), int(metrics["steps"])
        return int(metrics["update"]), int(metrics["updates"])

    def line(self, metrics: Metrics) -> str:
        done, total = self.position(metrics)
        if "demonstrations" in metrics:
            played = f"{metrics['demonstrated']} of " if metrics.get("demonstrated") else ""
            return f"warm start: {played}{metrics['demonstrations']} demonstrations are played"
        if "warmstart" in metrics:
            return f"warm start {done}/{total}  loss {metrics['loss']:.3f}"
        parts = [f"update {done}/{total}{self._left(done, total)}", *self.success(metrics)]
        if (entropy := metrics.get("loss/entropy")) is not None:
            parts.append(f"entropy {entropy:.2f}")
        if (rate := metrics.get("time/engine_tokens_per_s")) is not None:
            parts.append(f"{rate:,.0f} tokens/s")
        return "  ".join(parts)

    def success(self, metrics: Metrics) -> list[str]:
        """p@k of an update, or the returns episode by episode."""
        if self.versus:
            means = [mean for _, mean in shares(metrics, "reward/") if mean is not None]
            return [f"reward {' '.join(f'{mean:+.2f}' for mean in means)}"] if means else []
        return [f"p@{k} {100 * share:.1f}" for k, share in shares(metrics)]

    def _left(self, done: int, total: int) -> str:
        """The time until the last update, at the pace since the first one seen."""
        now = time.monotonic()
        first, since = self._first = self._first or (done, now)
        if not total > done > first:
            return ""
        return f", {timedelta(seconds=round((now - since) / (done - first) * (total - done)))} left"


def shares(metrics: Metrics, prefix: str = "p@") -> list[tuple[int, float]]:
    """(k, p@k) of an update, or of what else is numbered, such as ``validation/p@``."""
    names = [key.removeprefix(prefix) for key in metrics if key.startswith(prefix)]
    return [(k, metrics[f"{prefix}{k}"]) for k in sorted(int(name) for name in names if name.isdecimal())]


def is_versus(env: str) -> bool:
    """Whether all that is played are games against somebody, where returns say more than p@k."""
    from mulligan.envs import registry
    from mulligan.rollout.groups import Mixture

    return all(registry.spec(name).kind == "versus" for name, _ in Mixture.parse(env, {}).weights)
