"""Rows of results side by side: p@k over seeds and worlds, differences to a reference, cost, settings, curves.

Rows are compared where they were played on the same tasks in the same way: a section has the evaluations of one list of
tasks with as many episodes, those of the rows themselves first, then further ones by their names (other kinds of task,
more turns), of which memories are no part. In each section the reference is by default the best RL: the highest p@N
among its rows, with whatever memory it was evaluated, and without any (independent retries).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mulligan.app.sweep.rows import RETRIES, Row, told_apart
from mulligan.errors import UnknownName, UsageError
from mulligan.eval.ceilings import room_shares
from mulligan.eval.intervals import Values, difference, over_seeds, returns_in, solved_within
from mulligan.eval.passk import wilson
from mulligan.report.tables import CONTROL_NAMES

MEMORIES = ("history", "reflection", "both", "none")
"""Names of further evaluations that change the memory alone."""
_COST = ("updates", "minutes", "episodes", "tokens", "valid", "score")


@dataclass(frozen=True)
class Entry:
    """One evaluation of an arm, over its seeds."""

    label: str
    row: Row
    """The arm's first row: what is the same for all seeds."""
    further: str
    """The name of the further evaluation; empty for the row's own."""
    parts: Mapping[int, Row]
    """Seed -> its figures and outcomes."""
    control: str = ""
    """The name of the control; empty for what the agent does with its memory."""
    repeated: Entry | None = None
    """The arm's evaluation that this one only played again, for the sake of its controls."""

    @property
    def topic(self) -> str:
        """The further evaluation's name without memories: what it may have changed beside the memory and its writer."""
        if self.repeated is not None:
            return self.repeated.topic
        if all("writer" in part for part in self.parts.values()):  # who writes the notes is as what they are
            return ""
        return ", ".join(word for word in self.further.split(", ") if word not in MEMORIES)

    @property
    def versus(self) -> bool:
        kinds = {part.get("kind", self.row.get("kind")) for part in self.parts.values()}
        return kinds == {"versus"} and self.has_outcomes

    @property
    def episodes(self) -> int:
        return max(len(part["p"]) for part in self.parts.values())

    @property
    def section(self) -> tuple[str, str, str, int]:
        """Environment, list of tasks, topic and episodes: what must be equal for entries to be compared.

        A list of tasks names their worlds alone, so that an evaluation with more turns has the same one.
        """
        digests = {part.get("tasks_digest", ""): part for part in self.parts.values()}
        if len(digests) > 1:
            first, other, *_ = digests.values()
            raise UsageError(
                f"the rows were played on different tasks: the seeds of {self.label!r}{_differing(first, other)}"
            )
        return (self.row["env"], *digests, self.topic, self.episodes)

    @property
    def has_outcomes(self) -> bool:
        return all(part.get("outcomes") for part in self.parts.values())

    def values(self) -> Values:
        """What is compared: solved within all episodes, or the last return. [seed, task]"""
        last = self.episodes - 1
        parts = [part["outcomes"] for _, part in sorted(self.parts.items())]
        return np.array([returns_in(each, last) if self.versus else solved_within(each, last + 1) for each in parts])

    def summaries(self) -> list[Row]:
        """As `eval.intervals.over_seeds` takes them: what tables leave out is filled in."""
        summaries = []
        for _, part in sorted(self.parts.items()):
            count = part["tasks"]
            left_out = {"tasks_digest": "", "worlds": [*range(count)], "effective": [count] * self.episodes}
            summaries.append({**left_out, **part, "trials": count})
        return summaries

    def figures(self) -> list[float]:
        """p@1 … p@N, or the mean returns of games: means over seeds."""
        by_seed = [
            [np.nanmean(returns_in(part["outcomes"], n)) for n in range(self.episodes)] if self.versus else part["p"]
            for part in self.parts.values()
        ]
        return [float(mean) for mean in np.mean(by_seed, axis=0)]


def compare(rows: Sequence[Row], against: str | None = None, *, show_all: bool = False) -> dict[str, Any]:
    """Everything that a comparison shows, as plain data.

    Rows of one environment on different tasks are refused; with `show_all` (the table of a sweep) each list of tasks
    has a section, also where only one row was played on it.
    """
    evaluations = list(entries(told_apart(rows)))
    mains = [entry for entry in evaluations if not entry.further and not entry.control]
    for entry in mains:
        first = next(each for each in mains if each.row["env"] == entry.row["env"])
        if not show_all and (first.section, _task_set(first)) != (entry.section, _task_set(entry)):
            raise UsageError(
                f"the rows were played on different tasks: {first.label!r} ({_task_set(first)}) and {entry.label!r} "
                f"({_task_set(entry)}){_differing(first.row, entry.row)}; compare them one set at a time"
            )
    sections: dict[tuple[str, str, str, int], list[Entry]] = {entry.section: [] for entry in mains}
    for entry in evaluations:
        sections.setdefault(entry.section, []).append(entry)
    if against is not None and not any(_named(against, each) for each in sections.values()):
        raise UnknownName("row", against, [entry.label for entry in evaluations])
    return {
        "sections": [_section(each, against) for each in sections.values() if show_all or not _is_lonely_further(each)],
        "settings": differing_settings(mains),
        "curves": _curves(mains),
    }


def entries(rows: Sequence[Row]) -> Iterable[Entry]:
    """Every evaluation of every arm, each followed by its controls."""
    for env, name in dict.fromkeys((row["env"], row["name"]) for row in rows):
        arm_rows = [row for row in rows if (row["env"], row["name"]) == (env, name)]
        played = [Entry(name, arm_rows[0], "", {row["seed"]: row for row in arm_rows})]
        yield from _with_controls(played[0])
        for further in dict.fromkeys(each for row in arm_rows for each in row.get("also", ())):
            parts = {row["seed"]: {"tasks": row["tasks"], **row["also"][further]}
                     for row in arm_rows if further in row.get("also", ())}  # fmt: skip
            entry = Entry(f"{name}, {further}", arm_rows[0], further, parts)
            entry = replace(entry, repeated=next((each for each in played if _repeats(entry, each)), None))
            played.append(entry)
            yield from _with_controls(entry)


def _repeats(entry: Entry, earlier: Entry) -> bool:
    """Whether `entry` has the very outcomes of an earlier evaluation of its arm; another memory may have by chance."""
    return bool(entry.topic) and all(
        seed in earlier.parts
        and part.get("outcomes")
        and all(part.get(name) == earlier.parts[seed].get(name) for name in ("outcomes", "tasks_digest"))
        for seed, part in entry.parts.items()
    )


def _with_controls(entry: Entry) -> Iterable[Entry]:
    yield entry
    for control in dict.fromkeys(name for part in entry.parts.values() for name in part.get("controls", ())):
        parts = {seed: row for seed, part in entry.parts.items() if (row := _control(part, control))}
        label = f"{entry.label}, {CONTROL_NAMES.get(control, control)}"
        yield replace(entry, label=label, parts=parts, control=control)


def _control(part: Row, control: str) -> Row | None:
    """A control's figures and outcomes.

    Outcomes of fewer tasks than the agent played (the money ran out) cannot be paired, and are left out.
    """
    shares = part.get("controls", {}).get(control)
    outcomes = part.get("control_outcomes", {}).get(control)
    is_complete = outcomes is not None and len(outcomes) == part["tasks"]
    return shares and {**part, "p": shares, "outcomes": outcomes if is_complete else None}


def _shown(section: Sequence[Entry]) -> list[Entry]:
    """The entries that have rows: independent retries are a column, and what was only played again is left out."""
    return [entry for entry in section if entry.control != RETRIES and (entry.control or not entry.repeated)]


def _is_lonely_further(section: Sequence[Entry]) -> bool:
    """Whether the only row is a further evaluation that no other has."""
    first, *others = _shown(section)
    return bool(first.further) and not others


def _section(section: Sequence[Entry], against: str | None) -> dict[str, Any]:
    reference = _reference(section, against)
    shown = _shown(section)
    first = shown[0]
    part = next(iter(first.parts.values()))
    retries = {entry.label: entry for entry in section if entry.control == RETRIES}
    is_other_game = bool(first.further) and "env" in part
    return {
        "env": first.row["env"],
        "title": first.topic if is_other_game else ", ".join(filter(None, [first.row["env"], first.topic])),
        "kind": "versus" if first.versus else "solve",
        "episodes": first.episodes,
        "tasks": part["tasks"],
        "worlds": len(set(part.get("worlds", range(part["tasks"])))),
        "ceiling": None if first.further or first.versus else first.row.get("ceiling"),
        "against": reference.label if reference else None,
        "rows": [_row(entry, retries.get(f"{entry.label}, {CONTROL_NAMES[RETRIES]}"), reference) for entry in shown],
    }


def _reference(section: Sequence[Entry], against: str | None) -> Entry | None:
    """What the others are compared with: the entry of this name, or the best RL."""
    candidates = _named(against, section) if against else [e for e in section if e.row["method"] == "RL"]
    return max(candidates, key=lambda entry: entry.figures()[-1], default=None)


def _named(against: str, section: Sequence[Entry]) -> list[Entry]:
    """The entry with this label, or all that an arm of this name has on these tasks."""
    exact = [entry for entry in section if entry.label == against]
    return exact or [entry for entry in section if entry.row["name"] == against]


def _row(entry: Entry, retry: Entry | None, reference: Entry | None) -> dict[str, Any]:
    figures = entry.figures()
    tasks = next(iter(entry.parts.values()))["tasks"]
    intervals = over_seeds(entry.summaries(), versus=entry.versus)
    if intervals is None:
        intervals = [wilson(p * tasks, tasks) for p in figures]
    seeds = sorted(entry.parts)
    share, share_interval = _room_share(entry)
    by_seed = [float(each) for each in np.nanmean(entry.values(), axis=1)] if entry.has_outcomes else None
    return {
        "name": entry.label,
        "method": entry.row["method"],
        "main": bool(entry.row.get("main", True)),
        "is_further": bool(entry.further or entry.control),
        "seeds": seeds,
        "p": figures,
        "ci": [list(bounds) for bounds in intervals],
        "by_seed": by_seed or [entry.parts[seed]["p"][-1] for seed in seeds],
        "has_outcomes": entry.has_outcomes,
        "share": share,
        "share_ci": share_interval,
        "of_optimum": _shares_of_optimum(entry),
        "retry": retry.figures()[-1] if retry else None,
        "difference": _difference(entry, reference) if reference and reference is not entry else None,
        **({} if entry.further or entry.control else {name: _mean(entry, name) for name in _COST}),
    }


def _room_share(entry: Entry) -> tuple[float | None, list[float] | None]:
    """The share of the adaptive room in the last episode, over seeds and worlds; None where no ceilings are known."""
    parts = entry.summaries() if entry.versus else []
    ceilings = [part["ceilings"] for part in parts if "ceilings" in part]
    if not ceilings or any(each != ceilings[0] for each in ceilings) or len(ceilings) < len(parts):
        return None, None
    shares = room_shares(ceilings[0], [part["outcomes"] for part in parts], parts[0]["worlds"])
    return shares["share"][-1], shares["share_ci"][-1]


def _shares_of_optimum(entry: Entry) -> list[float] | None:
    """The share of the Bayes-optimal return that each seed reached; None where it is not known."""
    parts = [part for _, part in sorted(entry.parts.items())]
    is_known = not entry.control and all(part.get("share_of_optimum") is not None for part in parts)
    return [float(part["share_of_optimum"]) for part in parts] if is_known else None


def _difference(entry: Entry, reference: Entry) -> dict[str, Any]:
    """entry − reference at the last episode: paired by task, and by seed where both have the same seeds."""
    same_seeds = set(entry.parts) == set(reference.parts)
    if not (entry.has_outcomes and reference.has_outcomes):
        return {"mean": entry.figures()[-1] - reference.figures()[-1], "ci": None, "same_seeds": same_seeds}
    summaries = [*entry.summaries(), *reference.summaries()]
    effect = max(each["trials"] / each["effective"][-1] for each in summaries)
    worlds = summaries[0]["worlds"]
    mean, interval = difference(entry.values(), reference.values(), worlds, same_seeds=same_seeds, effect=effect)
    return {"mean": mean, "ci": list(interval), "same_seeds": same_seeds}


def _mean(entry: Entry, name: str) -> float | None:
    values = [part[name] for part in entry.parts.values() if part.get(name) is not None]
    return sum(values) / len(values) if values else None


def _task_set(entry: Entry) -> str:
    part = next(iter(entry.parts.values()))
    named = f"list {part['tasks_digest'][:6]}" if part.get("tasks_digest") else "of which nothing more is known"
    return f"{part['tasks']} {part.get('seed_set', 'eval')} tasks of {entry.episodes} episodes, {named}"


def _differing(first: Row, other: Row) -> str:
    """The parameters of the environment in which two rows differ, in words."""
    one, two = (
        row.get("params") or {name[4:]: value for name, value in row.get("settings", {}).items() if name[:4] == "env."}
        for row in (first, other)
    )
    names = [name for name in {**one, **two} if str(one.get(name)) != str(two.get(name))]
    return "".join(f"; {name} is {one.get(name, 'unset')} and {two.get(name, 'unset')}" for name in names)


def differing_settings(mains: Sequence[Entry]) -> dict[str, dict[str, list[str]]]:
    """Setting -> its values -> the rows that have them; where a row does not set it, the preset's own: ""."""
    configured = [entry for entry in mains if entry.row.get("settings")]
    table: dict[str, dict[str, list[str]]] = {name: {} for entry in configured for name in entry.row["settings"]}
    for name, values in table.items():
        for entry in configured:
            values.setdefault(str(entry.row["settings"].get(name, "")), []).append(entry.label)
    return {name: values for name, values in table.items() if len(values) > 1}


def _curves(mains: Sequence[Entry]) -> list[dict[str, Any]]:
    """Success on validation tasks within as many attempts as all arms of an environment were validated with."""
    curves = []
    for env in dict.fromkeys(entry.row["env"] for entry in mains):
        arms = [(entry, seeds) for entry in mains if entry.row["env"] == env and (seeds := _validations(entry))]
        attempts = min(
            (len(point["p"]) for _, seeds in arms for points in seeds.values() for point in points), default=0
        )
        for entry, seeds in arms:
            lines = {
                seed: [[point["update"], point["p"][attempts - 1]] for point in points]
                for seed, points in seeds.items()
            }
            named = {"env": env, "name": entry.label, "main": bool(entry.row.get("main", True))}
            curves.append({**named, "attempts": attempts, "seeds": lines})
    return curves


def _validations(entry: Entry) -> dict[str, list[dict[str, Any]]]:
    return {str(seed): row["curve"] for seed, row in entry.parts.items() if row.get("curve")}
