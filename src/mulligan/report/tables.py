"""Tables on a terminal, from the plain data of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mulligan.text import visible

if TYPE_CHECKING:
    from rich.table import Table

Result = Mapping[str, Any]
INDENT = "  "
"""Before the name of a control, which belongs to the row above."""
_SIDE_BY_SIDE = 3
"""Episodes whose figures fit beside their intervals in eighty columns; those of more stand above them."""
_CONTROLS = {
    "independent": ("independent retries", "no memory"),
    "removed": ("reflection removed", "memory without the text of reflections"),
    "foreign": ("foreign reflection", "the reflections of other tasks"),
    "other-trial": ("reflection of another trial", "the reflections of another trial of the task"),
    "told": ("opponent told", "who the opponent is, in words"),
}
_FOREIGN_GAME = ("memory of another opponent", "what was remembered in trials against other opponents")
"""In games, the control "foreign"."""
_MOST_NAMES, _LONGEST_NAME = 8, 40
"""Tools that a line names, and characters of a name."""
CONTROL_NAMES = {control: name for control, (name, _) in _CONTROLS.items()}
_SEPARATION = {
    "shared": "\ntraining and evaluation share worlds: tasks begin alike",
    "seeds": "\nworlds are told apart by their seeds alone",
}
"""What the heading says of worlds that are not split, by `mulligan.rollout.tasksets.Separation`."""


def game_name(env: str, params: Mapping[str, Any]) -> str:
    """The environment with the parameters that were given: ``minesweeper (mines=4)``."""
    return f"{env} ({', '.join(f'{name}={value}' for name, value in params.items())})" if params else env


def room_name(player: str) -> str:
    """The name of a scripted player's row. A policy may have the player's name too, and is not called scripted."""
    return "ceiling (omniscient)" if player == "ceiling" else f"scripted {player}"


def optimum_name(optimum: Result) -> str:
    return "optimum (exact)" if optimum["gamma_traj"] == 1 else f"optimum at γ_traj {optimum['gamma_traj']:g}"


def eval_table(result: Result) -> Table:
    """One evaluation: the policy, its controls, then the scripted players that show the room."""
    controls = [
        (_control(name, result)[0], summary) for name, summary in result["controls"].items() if summary["trials"]
    ]
    rows = [(str(result["policy"]), result), *((INDENT + name, summary) for name, summary in controls)]
    rows = [(f"{name}*" if summary["failed"] else name, summary) for name, summary in rows]
    if any(result.get("exact", ())):
        rows[0] = (f"{rows[0][0]} (exact)", result)
    rows[1:1] = _share_rows(result)
    rows += [(room_name(name), summary) for name, summary in result["room"].items()]
    rows += [(optimum_name(optimum), optimum) for optimum in result.get("optimum", ())]
    rows += _ceiling_rows(result)
    game = game_name(result["env"], result["params"])
    title = f"{game}: {result['tasks']} tasks, {result['episodes']} episodes, memory {result['memory']}"
    title += ", related tasks" if result.get("related") else ""
    # Splits other than the usual one, which a task class names at its end: ``webshop/original/original-split``.
    last_parts = sorted({task_class.rpartition("/")[2] for task_class in result["by_class"]})
    title += "".join(f", {part}" for part in last_parts if part.endswith("-split"))
    title += _SEPARATION.get(result["separation"], "")
    return summary_table(title, rows, result["episodes"], versus=result["kind"] == "versus")


_CEILINGS = {
    "static": "best without memory (exact)",
    "clairvoyant": "opponent known (exact)",
    "equilibrium": "equilibrium (exact)",
}
"""Rows of a game's ceilings; the optimum has one of its own."""


def _control(name: str, result: Result) -> tuple[str, str]:
    """The name of a control, and what it plays with."""
    return _FOREIGN_GAME if name == "foreign" and result["kind"] == "versus" else _CONTROLS[name]


def _share_rows(result: Result) -> list[tuple[str, Result]]:
    ceilings = result.get("ceilings") or {}
    return (
        [(f"{INDENT}share of the room", ceilings)]
        if any(share is not None for share in ceilings.get("share", ()))
        else []
    )


def _ceiling_rows(result: Result) -> list[tuple[str, Result]]:
    ceilings = result.get("ceilings") or {}
    return [(label, {"returns": ceilings[name]}) for name, label in _CEILINGS.items() if ceilings.get(name)]


def opponents_table(result: Result) -> Table | None:
    """Returns, games won and games not lost by opponent and seat; None where there is but one opponent and seat."""
    rows = result.get("by_opponent", ())
    if len(rows) < 2:
        return None
    from rich.text import Text

    stacked, has_seats = result["episodes"] > _SIDE_BY_SIDE, any(row["seat"] for row in rows)
    has_draws = any(share for row in rows for share in row["drawn"])
    digits = 3 if any(result.get("exact", ())) and not stacked else 2
    table = empty_table(f"by opponent: mean return, games won{' / not lost' if has_draws else ''}")
    table.add_column("opponent", overflow="fold", min_width=12)
    episodes = [f"{'ep.' if stacked else 'episode'} {k}" for k in range(1, result["episodes"] + 1)]
    for column in (*["seat"] * has_seats, "tasks", *episodes):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row["seat"])] * has_seats + [str(row["trials"])]
        columns = zip(*(row[name] for name in ("returns", "returns_ci", "won", "not_lost")), strict=True)
        for mean, ci, won, not_lost in columns:
            if mean is None:
                cells.append("–")
                continue
            half = ("\n" if stacked else " ") + f"[dim]±{(ci[1] - ci[0]) / 2:.{digits}f}[/]" if ci else ""
            shares = f"{100 * won:.0f} / {100 * not_lost:.0f} %" if has_draws else f"{100 * won:.0f} %"
            cells.append(f"{mean:+.{digits}f}{half}\n[dim]{shares}[/]")
        table.add_row(Text(visible(row["opponent"])), *cells)
    return table


def empty_table(title: str) -> Table:
    """A table without columns yet, as all of them look on a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    heading = Text(visible(title), style="table.title")
    return Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))


def summary_table(title: str, rows: Sequence[tuple[str, Result]], episodes: int, *, versus: bool) -> Table:
    """A row a method: p@k with half-widths for solve-type tasks, return and share won per episode for games."""
    from rich.padding import Padding
    from rich.text import Text

    stacked = episodes > _SIDE_BY_SIDE
    title += "; returns, half of their intervals, games won" if stacked and versus else ""
    table = empty_table(title)
    table.collapse_padding = stacked
    table.add_column("method", overflow="fold", min_width=12)
    for k in range(1, episodes + 1):
        head = f"ep. {k}" if stacked else f"episode {k}"
        table.add_column(head if versus else f"p@{k}", justify="right", no_wrap=True)
    scored = not versus and any(pays_in_part(summary) for _, summary in rows)
    if scored:
        table.add_column(f"score@1/{episodes}", justify="right", no_wrap=True)
    table.add_column("valid", justify="right", no_wrap=True)
    for label, summary in rows:
        cells = _cells(summary, versus=versus, scored=scored)
        cells = [cell.replace(" [dim]±", "\n[dim]±").replace("won ", "") for cell in cells] if stacked else cells
        name = Text(visible(label.strip()))  # a label as it is: in markup, ``snake.py:Snake:`` has a snake in it
        table.add_row(Padding(name, (0, 0, 0, len(INDENT))) if label.startswith(INDENT) else name, *cells)
    return table


def pays_in_part(summary: Result) -> bool:
    """Whether other things than a success were paid, so that the mean reward tells something beside p@k."""
    best = summary.get("best") or summary["p"]  # the rows of a demo have none
    return any(abs(reward - share) > 1e-9 for reward, share in zip(best, summary["p"], strict=True))


def _cells(summary: Result, *, versus: bool, scored: bool) -> list[str]:
    """p@k and half-widths; of games the mean returns, and below them the shares of games won.

    The optimum was computed and not played: it has no intervals, no scores and no replies.
    """
    if "share" in summary:
        pairs = zip(summary["share"], summary["share_ci"], strict=True)
        shares = [
            None if share is None else f"{100 * share:.0f} % [dim]±{50 * (ci[1] - ci[0]):.0f}[/]" for share, ci in pairs
        ]
        return [*(share or "–" for share in shares), ""]
    cells = []
    intervals = summary.get("returns_ci" if versus else "ci", [None] * len(summary["returns" if versus else "p"]))
    if versus:
        shares_won = summary.get("won") or [None] * len(intervals)
        is_exact = "valid" not in summary or any(summary.get("exact", ()))
        digits = 3 if is_exact and len(intervals) <= _SIDE_BY_SIDE else 2
        for mean, ci, won in zip(summary["returns"], intervals, shares_won, strict=True):
            half = f" [dim]±{(ci[1] - ci[0]) / 2:.{digits}f}[/]" if ci else ""
            below = "" if won is None else f"\n[dim]won {100 * won:.0f} %[/]"
            cells.append("–" if mean is None else f"{mean:+.{digits}f}{half}{below}")
    else:
        for share, ci in zip(summary["p"], intervals, strict=True):
            cells.append(f"{100 * share:.1f}" + (f" [dim]±{50 * (ci[1] - ci[0]):.1f}[/]" if ci else ""))
        if scored:
            best = summary.get("best") or summary["p"]
            cells.append(f"{100 * best[0]:.0f} / {100 * best[-1]:.0f}" if "valid" in summary else "–")
    return [*cells, f"{100 * summary['valid']:.0f} %" if "valid" in summary else "–"]


def footnotes(result: Result, flag: str = "") -> list[str]:
    """What the table alone would hide: what the rows are, stop reasons, faults, failures, tokens, the memory's gain.

    `flag` goes into the command that continues the run (`trusted.flag`).
    """
    lines = [*_explained(result), "Stopped: " + _counted(result["stop_reasons"])]
    if result["faults"]:
        lines.append("Faulty replies: " + _counted(result["faults"]))
    if result.get("beside_text"):
        lines.append("Replies with more than text: " + _counted(result["beside_text"]))
    if result.get("tool_calls"):
        lines.append("Tool calls: " + _most_counted(result["tool_calls"]))
    cut = result["cut_replies"]
    if cut["share"]:
        lines.append(f"Warning: {cut['warning']}" if cut["warning"] else f"Cut replies: {100 * cut['share']:.1f} %")
    lines += _failures(result)
    if count := result["reflections"]:
        form = "not empty" if result["style"] == "bare" else "between <reflection> tags"
        share = f"{100 * result['reflections_valid']:.0f} % in the asked form"
        lines.append(f"Reflections: {count}, {share} ({form}; others are shown to the next episode too)")
    lines += _reflections_shown(result)
    lines += [f"Against {name}: {_gain(gain, result)} (same tasks)" for name, gain in result["gains"].items()]
    lines += [line for optimum in result.get("optimum", ()) for line in _optimum_lines(optimum)]
    lines += _exact_lines(result)
    lines += _ceiling_lines(result)
    if len(result["by_class"]) > 1 and not result.get("by_opponent"):
        for name, summary in result["by_class"].items():
            shares = " / ".join(f"{100 * share:.1f}" for share in summary["p"])
            lines.append(f"{name}: {shares} over {summary['trials']} tasks")
    if result["requests"]:
        requests = dict(result["requests"])
        faults = requests.pop("faults", None)
        counts = _counted(requests).removeprefix("requests ")
        lines.append(f"Requests: {counts}" + (f" (faults: {_counted(faults)})" if faults else ""))
    return [*lines, *_spent_by_arm(result), *_spent(result, flag)]


def _spent_by_arm(result: Result) -> list[str]:
    """What each arm took, where requests may have cost something."""
    arms = result.get("spent", {})
    if len(arms) < 2 or not (result["requests"] or result["cost"]):
        return []
    lines = []
    for arm, spent in arms.items():
        cost = f", cost {spent['cost']:.4f}" if result["cost"] else ""
        tokens = f"{spent['prompt_tokens']:,} + {spent['completion_tokens']:,} tokens"
        lines.append(f"{arm}: {spent['requests']:,} requests, {tokens}{cost}")
    return lines


def _optimum_lines(optimum: Result) -> list[str]:
    """The optimum's returns, and the share of them that the policy reached."""
    weighed = "" if optimum["gamma_traj"] == 1 else f", weighed by γ_traj {optimum['gamma_traj']:g}"
    returns = " / ".join(f"{value:.3f}" for value in optimum["returns"])
    lines = [f"{optimum_name(optimum)}: the most that can be expected of any agent, returns {returns} by episode"]
    if optimum["share_of_optimum"] is not None:
        shares = ["–" if share is None else f"{100 * share:.1f}" for share in optimum["share_by_attempt"]]
        half = f" ±{100 * optimum['share_half_width']:.1f}" if optimum["share_half_width"] is not None else ""
        share = f"{100 * optimum['share_of_optimum']:.1f}{half} % in all{weighed}"
        lines.append(f"Share of the optimum reached: {share}; by episode {' / '.join(shares)}")
    return lines


def _exact_lines(result: Result) -> list[str]:
    """What exact returns are, and how many hands have them."""
    scores = result.get("exact_scores")
    if not scores or not scores["of"]:
        return []
    other = f"{100 * scores['other_replies']:.1f} % of hands have a reply in other words"
    if not scores["hands"]:
        return [f"Returns are sampled: {other} than the legal ones alone"]
    count = f"{scores['hands']:,} of {scores['of']:,} hands with the controls'"
    return [
        f"(exact): returns are expectations over cards and moves, from the chances of legal replies ({count}); "
        f"{other}, which count as asked again; games won are as played",
        *_exploitability_lines(result),
    ]


def _exploitability_lines(result: Result) -> list[str]:
    given = result.get("exploitability")
    if not given:
        return []
    before, after = (
        f"{max(0.0, each['mean']):.3f}"
        + (f" ±{(each['ci'][1] - each['ci'][0]) / 2:.3f}" if math.isfinite(each["ci"][0]) else "")
        for each in (given["before"], given["after"])
    )
    return [
        f"Exploitability: {before} chips a hand in the first episode, {after} in the last ({given['trials']} trials): "
        "what a best response wins beyond the equilibrium"
    ]


def _ceiling_lines(result: Result) -> list[str]:
    """What the share of the room is, or why there is none."""
    ceilings = result.get("ceilings") or {}
    if "left_out" in ceilings:
        return [f"No exact ceilings: {ceilings['left_out']}"]
    if not ceilings:
        return []
    if None in ceilings["value"]:
        return [
            "No share of the room: each opponent must be met in at least two tasks in each seat; ask for more tasks"
        ]
    lines = ["share of the room: (return - best without memory) / (optimum - best without memory), opponents and seats"]
    lines[0] += " weighed as they are drawn"
    for name, control in ceilings["controls"].items():
        shares = ["–" if share is None else f"{100 * share:.0f}" for share in control["share"]]
        lines.append(f"share of the room, {_control(name, result)[0]}: {' / '.join(shares)} % by episode")
    return lines


def _explained(result: Result) -> list[str]:
    """What the figures and the rows are, and why the ceiling is below 100 %."""
    versus = result["kind"] == "versus"
    figures = "Figures: mean return of each episode" if versus else "p@k: tasks solved within the first k episodes, %"
    side = ", on the inner side near 0 and 100" if _is_lopsided(result) else ""
    lines = [f"{figures}; ±: half of the 95 % interval{side}"]
    if result["policy"] == "random":
        lines.append("random: random legal moves")
    shown = [_control(name, result) for name, summary in result["controls"].items() if summary["trials"]]
    lines += [f"{name}: the same policy with {memory}" for name, memory in shown]
    reasons = result.get("left_out_because", {})
    lines += [f"No control {name}: {reason}" for name, reason in reasons.items()]
    by_memory = [name for name in result["controls_left_out"] if name not in reasons]
    if by_memory and result["episodes"] > 1:
        reason = "every episode is an independent retry" if result["memory"] == "none" else "it holds no reflections"
        lines.append(f"Memory is {result['memory']}, {reason}: no control {', '.join(by_memory)}")
    if result["room"]:
        lines += ["scripted, ceiling: the environment's own players, for comparison; the ceiling sees what is hidden"]
    if not versus and result["ceiling"] is not None and result["ceiling"] < 1:
        stops = {name: count for name, count in result["room"]["ceiling"]["stop_reasons"].items() if name != "won"}
        reasons = ", ".join(name.replace("_", " ") for name in stops)
        lines.append(f"ceiling {100 * result['ceiling']:.1f}: not even that player solves the other tasks ({reasons})")
    return lines


def _spent(result: Result, flag: str) -> list[str]:
    """Tokens, cost and time, and how to continue what is not complete."""
    (prompt, completion), limit, rate = result["tokens"], result.get("max_cost"), result["turns_per_second"]
    tokens = f"{prompt:,} + {completion:,} tokens, " if prompt else ""
    cost = f"cost {result['cost']:.4f}, " if result["cost"] else ""
    with_controls = " with controls" if any(summary["trials"] for summary in result["controls"].values()) else ""
    pace = "" if rate is None else f", {rate:,.0f} turns/s"
    lines = [f"{tokens}{cost}{result['seconds']:.1f} s{with_controls}{pace}"]
    if limit is not None and result["cost"] > limit:
        lines.append(f"Trials under way went beyond max_cost {limit:g}: a lower --concurrency keeps closer to it")
    if not result["complete"]:
        counts = "".join(f", {summary['trials']} of {name}" for name, summary in result["controls"].items())
        lines.append(f"Incomplete: {result['trials']} of {result['tasks']} tasks played{counts}")
    return lines + ([command] if (command := resume_command(result, flag)) else [])


def resume_command(result: Result, flag: str = "") -> str:
    """How to play what was not played, or failed outside the agent; empty where all was, or no folder has it."""
    has_failed = any(summary["failed"] for summary in (result, *result["controls"].values()))
    if result["run"] is None or (result["complete"] and not has_failed):
        return ""
    limit = result.get("max_cost")
    more = " --max-cost MORE" if limit is not None and result["cost"] >= limit and not result["complete"] else ""
    return f"continue with: mulligan eval --resume {result['run']}{flag}{more}"


def _is_lopsided(result: Result) -> bool:
    """Whether p ± half of its interval would lie outside of 0 to 100 %."""
    if result["kind"] == "versus":
        return False
    return any(
        min(share, 1 - share) < (high - low) / 2
        for summary in (result, *result["controls"].values())
        for share, (low, high) in zip(summary["p"], summary["ci"], strict=True)
    )


def _failures(result: Result) -> list[str]:
    """Arm by arm: failures in a control would make the memory look better than it is."""
    lines = []
    counted = "left out" if result["kind"] == "versus" else "counted as not solved, in differences left out"
    for name, summary in (("", result), *result["controls"].items()):
        if summary["failed"]:
            trials = f"{summary['failed']} trials" + (f" of {name}" if name else "")
            first = f"; the first: {summary['failure']}" if summary["failure"] else ""
            lines.append(f"*: failed for reasons outside the agent: {trials}, what failed of them {counted}{first}")
    return lines


def _reflections_shown(result: Result) -> list[str]:
    """Where too few reflections of others could be shown: those episodes were played as if they were removed."""
    lines = []
    for name, summary in result["controls"].items():
        later, shown = sum(summary["played"][1:]), summary["reflections"]
        is_note = name == "other-trial" or (name == "foreign" and result["memory"] in ("reflection", "both"))
        if is_note and shown < later:
            lines.append(f"Control {name}: a reflection could be shown before {shown} of {later} later episodes")
    return lines


def _gain(gain: Mapping[str, Any], result: Result) -> str:
    versus = result["kind"] == "versus"
    mean, *bounds = difference_cells([gain["gain"], *gain["ci"]], versus=versus)
    interval = f"[{', '.join(bounds)}]" if math.isfinite(gain["ci"][0]) else "(one task has no interval)"
    measured = "return in the last episode played" if versus else f"points at p@{result['episodes']}"
    return f"{mean} {measured} {interval}"


def difference_cells(values: Sequence[float], *, versus: bool) -> list[str]:
    """Differences with their signs: in percentage points, or in a game's returns."""
    return [f"{value:+.2f}" if versus else f"{100 * value:+.1f}" for value in values]


def _most_counted(counts: Mapping[str, int]) -> str:
    """As a model names them, the most frequent first, and few enough to read: it may call what does not exist."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [f"{name[:_LONGEST_NAME]} {counts[name]:,}" for name in names[:_MOST_NAMES]]
    return ", ".join(shown) + (f", {len(names) - _MOST_NAMES} others" if len(names) > _MOST_NAMES else "")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or "nothing"
