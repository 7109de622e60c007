"""What a run's own page shows: its figures as tables and bars, its settings, and comparisons between runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import MulliganError, RunFolderError
from mulligan.report.tables import CONTROL_NAMES, footnotes, room_name
from mulligan.view.demonstration import about, acts
from mulligan.view.evaluations import evaluations_beside, evaluations_inside, trained_run
from mulligan.view.folder import inside, json_of, stamp, toml_of, without_links
from mulligan.view.index import TrialIndex
from mulligan.view.runs import card, evaluated_run, within

_MOST_SHARED = 20_000
_LONGEST_SETTING = 500
_Compared = tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]


def detail(root: Path, name: str, index: TrialIndex) -> dict[str, Any]:
    """A run: its card, figures, notes, settings, the arms of its trials, and the runs inside its folder."""
    path = inside(root, name)
    config = toml_of(path / "config.toml")
    result = json_of(path / "result.json")
    made = card(root, name)
    notes: list[str] = []
    sections: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    if isinstance(result, Mapping):
        sections, notes = [_evaluated(result)], _footnotes(result)
    elif made["kind"] == "demo":
        demo = json_of(path / "demo.json")
        sections, notes = acts(root, name, demo), about(demo)
    elif arm := _arm_of(root, name):
        sections, _, _ = _compared_or_why_not(root, [arm])
    elif made["kind"] == "sweep":
        sections, tables, notes = _compared_or_why_not(root, [name])
    children = within(root, name)
    return {
        "card": made,
        "sections": sections,
        "tables": tables,
        "notes": notes,
        "settings": list(_flat(config)),
        "trials": index.state(),
        "inside": [card(root, each) for each in children[:200]],
        **_related(root, path, made["kind"], str(config.get("policy", ""))),
    }


def _related(root: Path, path: Path, kind: str, policy: str) -> dict[str, list[dict[str, Any]]]:
    """The evaluations of a training run, inside and beside it; and the training run that an evaluation measured."""
    if kind == "train":
        evaluations = [*evaluations_inside(path), *(evaluations_beside(path) if path != root else ())]
        return {"evaluations": [card(root, each.relative_to(root).as_posix()) for each in evaluations], "measured": []}
    trained = trained_run(path, policy) if kind == "eval" else None
    if trained is None or not (resolved := trained.resolve()).is_relative_to(root.resolve()):
        return {"evaluations": [], "measured": []}
    made = card(root, resolved.relative_to(root.resolve()).as_posix())
    return {"evaluations": [], "measured": [made] if made["kind"] in ("train", "population") else []}


def _arm_of(root: Path, name: str) -> str:
    """The run of a sweep that this is, or evaluates; empty: none."""
    runs = (name, evaluated_run(name))
    return next((run for run in runs if run and stamp(inside(root, run) / "arm.json")[1]), "")


def _evaluated(result: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation's rows: the policy, its controls, the scripted players, what is the most that can be expected."""
    versus = result.get("kind") == "versus"
    summaries = [(str(result["policy"]), result, "main")]
    summaries += [(CONTROL_NAMES.get(name, name), each, "control") for name, each in result["controls"].items()]
    summaries += [(room_name(name), each, "scripted") for name, each in result["room"].items()]
    rows = [_row(name, each, part, versus=versus) for name, each, part in summaries if each.get("trials")]
    for optimum in result.get("optimum") or ():
        values = optimum["returns"] if versus else optimum["p"]
        rows.append({"name": f"optimum, γ {optimum['gamma_traj']:g}", "values": values, "ci": [], "part": "optimum"})
    tasks, episodes = result["tasks"], result["episodes"]
    return {
        "title": f"{result['env']}: {tasks} tasks never trained on, {episodes} attempts at each",
        "names": [f"episode {k}" if versus else f"p@{k}" for k in range(1, episodes + 1)],
        "versus": versus,
        "ceiling": None if versus else result.get("ceiling"),
        "shares": [each["share_of_optimum"] for each in result.get("optimum") or ()][:1],
        "rows": rows,
    }


def _row(name: str, summary: Mapping[str, Any], part: str, *, versus: bool) -> dict[str, Any]:
    values, intervals = ("returns", "returns_ci") if versus else ("p", "ci")
    return {"name": name, "values": summary[values], "ci": summary.get(intervals) or [], "part": part}


def _footnotes(result: Mapping[str, Any]) -> list[str]:
    try:
        return footnotes(result)
    except (LookupError, TypeError, ValueError):  # of an earlier version
        return []


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterable[list[str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield [f"{prefix}{key}", str(value)[:_LONGEST_SETTING]]


def compared(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """Runs side by side: what ``mulligan compare`` says of them, and why not where it cannot."""
    cards = [card(root, name) for name in names]
    sections, tables, notes = _compared_or_why_not(root, names)
    return {"runs": cards, "sections": sections, "tables": tables, "notes": notes}


def _compared_or_why_not(root: Path, names: Sequence[str]) -> _Compared:
    try:
        return _compared(root, names)
    except MulliganError as error:
        return [], [], [f"No table: {error}"]


def _compared(root: Path, names: Sequence[str]) -> _Compared:
    """The sections, the tables and the notes of a comparison."""
    from mulligan.app.sweep.compare import compare
    from mulligan.app.sweep.rows import read_rows
    from mulligan.report.comparison import grids, notes

    paths = [without_links(inside(root, name)) for name in names]
    try:
        rows = read_rows(paths)
        data = compare(rows, show_all=True)
        if not any(section["against"] for section in data["sections"]) and (name := _first_policy(data, rows)):
            data = compare(rows, name, show_all=True)
        tables = [{"title": grid.title, "columns": grid.columns, "rows": grid.rows} for grid in grids(data)]
        scripted = {row["name"] for row in rows if row["method"] == "scripted"}
        sections = [_section(section, scripted) for section in data["sections"]]
        return sections, tables, notes(data)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunFolderError(f"a result is not what this version writes ({error!r})") from error


def _first_policy(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The row that others are compared with where there is no RL: the first policy of several."""
    scripted = {row["name"] for row in rows if row["method"] == "scripted"}
    names = [row["name"] for row in data["sections"][0]["rows"] if row["name"] not in scripted]
    return str(names[0]) if len(names) > 1 else ""


def _section(section: Mapping[str, Any], scripted: Collection[str]) -> dict[str, Any]:
    versus, count = section["kind"] == "versus", section["episodes"]
    return {
        "title": f"{section['title']}: {section['tasks']} tasks, {count} attempts at each",
        "names": [f"episode {k}" if versus else f"p@{k}" for k in range(1, count + 1)],
        "versus": versus,
        "ceiling": section["ceiling"],
        "shares": [],
        "rows": [
            {
                "name": row["name"],
                "values": row["p"],
                "ci": row["ci"],
                "part": "scripted" if row["name"] in scripted else "policy",
            }
            for row in section["rows"]
        ],
        "against": section["against"],
        "differences": [
            {"name": row["name"], "mean": gap["mean"], "ci": gap["ci"]}
            for row in section["rows"]
            if (gap := row["difference"]) and gap["ci"]
        ],
    }


def shared_tasks(first: TrialIndex, arm: str, second: TrialIndex, other_arm: str) -> list[dict[str, Any]]:
    """The tasks that two arms have played, with what came of them in each."""
    query = (
        "SELECT task, place, outcomes, class, seed FROM trials WHERE file = (SELECT id FROM files WHERE arm = ?) "
        "ORDER BY place LIMIT ?"
    )
    with first.connected() as store:
        ours = store.execute(query, (arm, _MOST_SHARED)).fetchall()
    with second.connected() as store:
        theirs = {row[0]: row for row in store.execute(query, (other_arm, _MOST_SHARED))}
    return [
        {"places": [row[1], other[1]], "outcomes": [row[2], other[2]], "class": row[3], "seed": row[4]}
        for row in ours
        if (other := theirs.get(row[0]))
    ]
