"""Tables on a terminal, from the plain data of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Result = Mapping[str, Any]
NOTHING = "nothing"
INDENT = "  "
"""Before the name of a control, which belongs to the row above."""
_SIDE_BY_SIDE = 3
"""Episodes whose figures fit beside their intervals in eighty columns; those of more stand above them."""
ROOM_NAMES = {"ceiling": "ceiling (omniscient)"}
CONTROL_NAMES = {
    "independent": "independent retries",
    "removed": "reflection removed",
    "foreign": "foreign reflection",
    "other-trial": "reflection of another trial",
}


_WORLDS = {
    "shared": "\ntraining and evaluation share worlds: tasks begin alike",
    "seeds": "\nworlds are told apart by their seeds alone",
}
"""What the heading says of worlds that are not kept apart, by `mulligan.rollout.worlds.Separation`."""


def eval_table(result: Result) -> Table:
    """One evaluation: the policy, its controls, then the scripted players that show the room."""
    rows = [(str(result["policy"]), result)]
    rows += [
        (INDENT + CONTROL_NAMES.get(name, name), summary)
        for name, summary in result["controls"].items()
        if summary["trials"]
    ]
    rows += [(ROOM_NAMES.get(name, name), summary) for name, summary in result["room"].items()]
    title = f"{result['env']}: {result['tasks']} tasks, {result['episodes']} episodes, memory {result['memory']}"
    title += ", related tasks" if result.get("related") else ""
    title += "".join(f", {split}" for split in _named_splits(result))
    title += _WORLDS.get(result.get("separation", ""), "")
    return summary_table(title, rows, result["episodes"], versus=result["kind"] == "versus", ceiling=result["ceiling"])


def _named_splits(result: Result) -> list[str]:
    """Splits other than the usual one, which a task class names at its end: ``webshop/original/original-split``."""
    last_parts = {task_class.rpartition("/")[2] for task_class in result["by_class"]}
    return sorted(part for part in last_parts if part.endswith("-split"))


def summary_table(
    title: str, rows: Sequence[tuple[str, Result]], episodes: int, *, versus: bool, ceiling: float | None
) -> Table:
    """A row a method: p@k with half-widths for solve-type tasks, return and share won per episode for games."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    stacked = episodes > _SIDE_BY_SIDE
    title += "; returns, half of their intervals, games won" if stacked and versus else ""
    table = Table(
        title=Text(title, style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=stacked,
    )
    table.add_column("method", overflow="fold", min_width=12)
    for k in range(1, episodes + 1):
        head = f"ep. {k}" if stacked else f"episode {k}"
        table.add_column(head if versus else f"p@{k}", justify="right", no_wrap=True)
    scored = not versus and any(pays_in_part(summary) for _, summary in rows)
    if scored:
        table.add_column(f"score@1/{episodes}", justify="right", no_wrap=True)
    if scored or stacked:  # the ceiling has a row of its own, and eighty columns must do
        ceiling = None
    if not versus and ceiling is not None:
        table.add_column("ceiling", justify="right", no_wrap=True)
    table.add_column("valid", justify="right", no_wrap=True)
    for label, summary in rows:
        cells = _cells(summary, versus=versus, ceiling=ceiling, scored=scored)
        cells = [cell.replace(" [dim]±", "\n[dim]±").replace("won ", "") for cell in cells] if stacked else cells
        name = Text(label.strip())  # a label as it is: in markup, ``snake.py:Snake:`` has a snake in it
        table.add_row(Padding(name, (0, 0, 0, len(INDENT))) if label.startswith(INDENT) else name, *cells)
    return table


def pays_in_part(summary: Result) -> bool:
    """Whether other things than a success were paid, so that the mean reward tells something beside p@k."""
    best = summary.get("best") or summary["p"]  # runs of earlier versions have none
    return any(abs(reward - share) > 1e-9 for reward, share in zip(best, summary["p"], strict=True))


def _cells(summary: Result, *, versus: bool, ceiling: float | None, scored: bool) -> list[str]:
    if versus:
        played = zip(summary["returns"], summary["returns_ci"], summary["won"], strict=True)
        cells = ["–" if mean is None else _game_cell(mean, ci, won) for mean, ci, won in played]
    else:
        cells = [_percent(p, ci) for p, ci in zip(summary["p"], summary["ci"], strict=True)]
        if scored:
            best = summary.get("best") or summary["p"]
            cells.append(f"{100 * best[0]:.0f} / {100 * best[-1]:.0f}")
        if ceiling is not None:
            cells.append(f"{100 * ceiling:.1f}")
    return [*cells, f"{100 * summary['valid']:.0f} %"]


def _percent(share: float, ci: Sequence[float]) -> str:
    return f"{100 * share:.1f} [dim]±{50 * (ci[1] - ci[0]):.1f}[/]"


def _game_cell(mean: float, ci: Sequence[float] | None, won: float) -> str:
    """Mean return and its half-width, and below it the share of games won."""
    half = f" [dim]±{(ci[1] - ci[0]) / 2:.2f}[/]" if ci else ""
    return f"{mean:+.2f}{half}\n[dim]won {100 * won:.0f} %[/]"


def footnotes(result: Result) -> list[str]:
    """What the table alone would hide: stop reasons, faults, failures, tokens, what the memory gained."""
    lines = ["Stopped: " + _counted(result["stop_reasons"])]
    if _is_lopsided(result):
        lines.append("±: half of the 95 % interval; near 0 and 100 it lies on the inner side only")
    if result["faults"]:
        lines.append("Faulty replies: " + _counted(result["faults"]))
    lines += _cut(result)
    lines += _failures(result)
    if result["reflections"]:
        lines.append(
            f"Reflections: {result['reflections']}, {100 * result['reflections_valid']:.0f} % in the asked form"
        )
    lines += _shown(result)
    for name, found in result["gains"].items():
        lines.append(f"Against {name}: {_gain(found, result)} (same tasks)")
    if len(result["by_class"]) > 1:
        for name, summary in result["by_class"].items():
            shares = " / ".join(f"{100 * share:.1f}" for share in summary["p"])
            lines.append(f"{name}: {shares} over {summary['trials']} tasks")
    if result["requests"]:
        requests = dict(result["requests"])
        faults = _counted(requests.pop("faults", {}))
        lines.append(f"Requests: {_counted(requests)}" + (f" (faults: {faults})" if faults != NOTHING else ""))
    used = f"{result['prompt_tokens']:,} + {result['completion_tokens']:,} tokens, " if result["prompt_tokens"] else ""
    with_controls = " with controls" if any(summary["trials"] for summary in result["controls"].values()) else ""
    cost = f"cost {result['cost']:.4f}{with_controls}, " if result["cost"] else ""
    rate = result["turns_per_second"]
    lines.append(f"{used}{cost}{result['seconds']:.1f} s" + ("" if rate is None else f", {rate:,.0f} turns/s"))
    if not result["complete"]:
        limit = result.get("max_cost")
        more = " --max-cost MORE" if limit is not None and result["cost"] >= limit else ""
        way_on = f"; continue with --resume {result['run']}{more}" if result["run"] else ""
        counts = [f"{summary['trials']} of {name}" for name, summary in result["controls"].items()]
        of_all = "".join(f", {count}" for count in counts)
        lines.append(f"Incomplete: {result['trials']} of {result['tasks']} tasks played{of_all}{way_on}")
    return lines


def _is_lopsided(result: Result) -> bool:
    """Whether p ± half of its interval would lie outside of 0 to 100 %."""
    if result["kind"] == "versus":
        return False
    return any(
        min(share, 1 - share) < (high - low) / 2
        for summary in (result, *result["controls"].values())
        for share, (low, high) in zip(summary["p"], summary["ci"], strict=True)
    )


def _cut(result: Result) -> list[str]:
    """Replies that a limit ended; results of earlier versions did not count them."""
    cut = result.get("cut_replies")
    if not cut or not cut["share"]:
        return []
    return [f"Warning: {cut['warning']}" if cut["warning"] else f"Cut replies: {100 * cut['share']:.1f} %"]


def _failures(result: Result) -> list[str]:
    """Arm by arm: failures in a control would make the memory look better than it is."""
    lines = []
    for name, summary in (("", result), *result["controls"].items()):
        if summary["failed"]:
            of_control = f" of {name}" if name else ""
            what = f"{summary['failed']} trials{of_control}, {what_failed(summary, versus=result['kind'] == 'versus')}"
            lines.append(f"Failed for reasons outside the agent: {what}")
    return lines


def what_failed(summary: Result, *, versus: bool) -> str:
    """How the failed part of trials is counted, and what it said."""
    first = f"; the first: {summary['failure']}" if summary.get("failure") else ""
    return f"what failed of them {'left out' if versus else 'counted as not solved'}{first}"


def _shown(result: Result) -> list[str]:
    """Where a control had too few reflections of others to show: what it lacked, it played as if they were removed."""
    lines = []
    for name in ("foreign", "other-trial"):
        summary = result["controls"].get(name)
        later = sum(summary["played"][1:]) if summary else 0
        if summary and summary["reflections"] < later:
            lines.append(
                f"Control {name}: a reflection could be shown before {summary['reflections']} of {later} later episodes"
            )
    return lines


def _gain(found: Mapping[str, Any], result: Result) -> str:
    versus, last = result["kind"] == "versus", result["episodes"]
    scale, digits = (1, 2) if versus else (100, 1)
    low, high = (f"{scale * bound:+.{digits}f}" for bound in found["ci"])
    interval = f"[{low}, {high}]" if math.isfinite(found["ci"][0]) else "(one task has no interval)"
    measured = "return in the last episode played" if versus else f"points at p@{last}"
    return f"{scale * found['gain']:+.{digits}f} {measured} {interval}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or NOTHING
