"""Rows of a results table, one for each arm and seed, from what runs left: sweeps, evaluations, and earlier tables.

A row keeps the outcome of every attempt (`outcomes`, as in `eval.passk.Summary`), those of its controls
(`control_outcomes`) and of its further evaluations (`also`), so that any difference can be computed from the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mulligan.app.sweep.arms import RESULT, WARM_START
from mulligan.envs import registry
from mulligan.errors import MulliganError, UnknownName, UsageError
from mulligan.eval.plan import EvalPlan
from mulligan.eval.run import run_plan
from mulligan.players import as_trained
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.files import read_json
from mulligan.report.run import RunFolder
from mulligan.report.tables import game_name, pays_in_part, resume_command, room_name
from mulligan.text import visible
from mulligan.training.config import Config
from mulligan.training.metrics import MetricsFile
from mulligan.training.resolve import from_run, resolve

Row = dict[str, Any]
TABLE, EVALUATION = "table.json", "result.json"
RETRIES, WRITER = "independent", "writer"
_NAMED = ("env", "name", "seed", "p")
_PART = ("p", "ci", "valid", "outcomes", "tasks_digest")
_CEILINGS = ("static", "optimal", "clairvoyant", "strata", "weights")
_OF_A_SEED = ("run.seed", "model.name", "run.player")
"""Settings that differ from seed to seed, and say nothing about an arm."""


def read_rows(
    paths: Iterable[str | Path], *, main: Sequence[str] | None = None, classes: bool = False, ceiling: bool = False
) -> list[Row]:
    """The rows of all inputs; of rows with the same environment, name, settings and seed, the last one given.

    The seeds of an arm follow each other. `main` names the rows that matter most; without it, earlier tables say so.
    With `classes`, each class of tasks is a further evaluation. With `ceiling`, arms get what a player who sees
    everything reaches.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    for row in (row for path in paths for row in _read(Path(path), classes)):
        key = (row["env"], row["name"], row["seed"], str(row.get("game")), str(row.get("played")))
        if key in rows and row["method"] != "scripted":
            name = visible(f"{row['name']}, seed {row['seed']}")
            sys.stderr.write(f"mulligan: {name}: given twice; the later one counts\n")
        rows[key] = {**row, "main": rows.get(key, row).get("main", True)}
    order = list(dict.fromkeys(key[:2] for key in rows))
    table = [rows[key] for key in sorted(rows, key=lambda key: (order.index(key[:2]), key[2]))]
    if main is not None:
        names = [row["name"] for row in told_apart(table)]
        if unknown := [name for name in main if name not in names]:
            raise UnknownName("row", unknown[0], set(names))
        table = [{**row, "main": name in main} for row, name in zip(table, names, strict=True)]
    return _with_ceilings(table) if ceiling else table


def told_apart(rows: Sequence[Row]) -> list[Row]:
    """Rows with what tells evaluations apart in their names: parameters in the environment's, settings in the row's."""
    games = _differences(rows, ("env",), "game")
    rows = [{**row, "env": game_name(row["env"], game)} for row, game in zip(rows, games, strict=True)]
    settings = _differences(rows, ("env", "name"), "played")
    words = [[f"{name} {value}" for name, value in each.items()] for each in settings]
    return [{**row, "name": ", ".join([row["name"], *each])} for row, each in zip(rows, words, strict=True)]


def _differences(rows: Sequence[Row], same: Sequence[str], column: str) -> list[Row]:
    """For each row what of `column` is otherwise in another row that agrees in `same`."""

    def differs(row: Row, name: str) -> bool:
        alike = (other for other in rows if column in other and all(other[each] == row[each] for each in same))
        return any(other[column].get(name) != row[column][name] for other in alike)

    return [{name: row[column][name] for name in row.get(column, ()) if differs(row, name)} for row in rows]


def as_table(rows: Sequence[Row]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows) + "\n]\n"


def _read(path: Path, classes: bool) -> list[Row]:
    if path.is_file() and path.name not in (RESULT, EVALUATION):
        return _table(path)
    folder = path.parent if path.is_file() else path
    files = [folder / name for name in (RESULT, EVALUATION) if (folder / name).is_file()][:1]
    files = files or sorted((*folder.glob(f"*/{RESULT}"), *folder.glob(f"*/{EVALUATION}")))
    if not files and (folder / TABLE).is_file():  # beside runs, a table may be older than they are
        return _table(folder / TABLE)
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    if not files and (folder / "config.toml").is_file() and RunFolder.open(folder).config().get("kind") == "train":
        raise UsageError(f"{path} is a training run; evaluate it first: mulligan eval ENV --policy {path}")
    if not files:
        raise UsageError(
            f"{path} holds no results: give a sweep's folder (*/{RESULT}), an evaluation's ({EVALUATION}) or a {TABLE}"
        )
    return [row for file in files for row in _rows_of(file, classes)]


def _table(path: Path) -> list[Row]:
    rows = read_json(path.read_bytes(), path)
    if not rows or not isinstance(rows, list) or any(name not in row for row in rows for name in _NAMED):
        raise UsageError(f"{path} is no table of results: a list of rows with {', '.join(_NAMED)}")
    return rows


def _rows_of(file: Path, classes: bool) -> list[Row]:
    make = evaluation_rows if file.name == EVALUATION else arm_rows
    try:
        return make(read_json(file.read_bytes(), file), file.parent, classes)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{file} is not what this version writes: {error!r}") from error


def arm_rows(arm: Mapping[str, Any], folder: Path, classes: bool) -> list[Row]:
    config, name = _config(arm, folder), arm["name"]
    is_warm_start = name.startswith(WARM_START)
    method = WARM_START if is_warm_start else "RL" if config.trial.episodes == 1 else "meta-RL"
    method = WRITER if config.run.player else method
    changes = {key: value for key, value in arm["settings"].items() if key not in _OF_A_SEED}
    further = arm.get("also", {})
    also = _classes(arm) if classes else {}
    also |= {name: _evaluation(each["main"], each["controls"]) | _changed(arm, name) for name, each in further.items()}
    for name_of_further, each in further.items() if classes else ():
        also |= {f"{name_of_further}, {name_of_class}": part for name_of_class, part in _classes(each).items()}
    row = {
        "env": arm["evaluation"].get("env", config.task.env),
        "name": name,
        "method": method,
        "estimator": None if is_warm_start else config.algo.estimator,
        "memory": arm["memory"],
        "gamma_traj": config.algo.gamma_traj if method == "meta-RL" else None,
        "seed": arm["seed"],
        **_evaluation(arm["main"], arm["controls"]),
        "kind": arm.get("kind", "solve"),
        "ceiling": None,
        "updates": arm["updates"],
        "minutes": round(arm["seconds"] / 60, 2),
        **_trained(folder),
        "seed_set": arm["seed_set"],
        "settings": {"preset": arm["preset"], **changes},
        "diversity": [point["diversity"] for point in arm["curve"] if "diversity" in point],
        "curve": [{"update": point["update"], "p": point["p"]} for point in arm["curve"]],
        "also": also,
    }
    return [row]


def evaluation_rows(result: Mapping[str, Any], folder: Path, classes: bool) -> list[Row]:
    """What ``mulligan eval`` left: a row for its policy, named by style and memory too, and one for each scripted
    player of the room; none for a policy that was never reached."""
    config = RunFolder.open(folder).config()
    if command := resume_command({**result, "run": folder}):
        sys.stderr.write(f"mulligan: {visible(str(folder))}: some trials were not played; {command}\n")
    trial, endpoint = config["trial"], config.get("endpoint", {})
    played = {name: config[name] for name in ("tasks", "seed_set", "related")} | trial | trial["sampling"]
    played |= {name: endpoint[name] for name in ("base_url", "extra_body") if name in endpoint}
    game = result["params"]
    with suppress(MulliganError):  # where the file of an environment is gone, its defaults are not known
        spec = registry.spec(result["env"])
        game = {"turns": spec.turns, **spec.defaults, **game}
    how = [result["style"]] if result["style"] != "plain" else []
    how += [result["memory"]] if result["memory"] != "none" else []
    shared = {name: result[name] for name in ("env", "params", "kind", "ceiling")}
    shared["game"] = {name: str(value).lower() for name, value in game.items()}
    shared |= {"estimator": None, "gamma_traj": None, "updates": 0} | {k: config[k] for k in ("seed", "seed_set")}
    agent = {"name": ", ".join([result["policy"], *how]), "method": result["policy"], "memory": result["memory"]}
    agent |= {"minutes": round(result["seconds"] / 60, 2), "also": _classes(result) if classes else {}}
    agent["played"] = {name: value for name, value in played.items() if name not in ("memory", "style", "sampling")}
    was_reached = result["trials"] > result["failed"]
    rows = [{**shared, **agent, **_evaluation(result, result["controls"])}] if was_reached else []
    for name, summary in result["room"].items():
        player = {"name": room_name(name), "method": "scripted", "memory": None, "minutes": 0.0}
        rows.append({**shared, **player, **_evaluation(summary, {})})
    return rows


def _classes(result: Mapping[str, Any]) -> dict[str, Row]:
    """Class of tasks -> its part of an evaluation; empty where all tasks are of one class."""
    classes = result.get("by_class", {})
    return {name: _evaluation(each, {}) for name, each in classes.items()} if len(classes) > 1 else {}


def _evaluation(main: Mapping[str, Any], controls: Mapping[str, Mapping[str, Any]]) -> Row:
    part: Row = {name: main[name] for name in _PART if name in main}
    if main.get("worlds") and main["worlds"] != [*range(len(main["worlds"]))]:
        part["worlds"] = main["worlds"]
    if any(each != main["trials"] for each in main.get("effective", ())):
        part["effective"] = main["effective"]
    if main.get("best") and pays_in_part(main):  # then the mean reward says more than success
        part["score"] = main["best"][-1]
    if main.get("optimum"):  # that of γ_traj = 1, the same for all arms, comes first
        part["share_of_optimum"] = main["optimum"][0]["share_of_optimum"]
    if "static" in (main.get("ceilings") or ()):
        part["ceilings"] = {name: main["ceilings"][name] for name in _CEILINGS}
    controls = {name: control for name, control in controls.items() if control["trials"] > control.get("failed", 0)}
    return {
        **part,
        "tasks": main["trials"],
        "retry": controls[RETRIES]["p"][-1] if RETRIES in controls else None,
        "controls": {name: control["p"] for name, control in controls.items()},
        "control_outcomes": {name: each["outcomes"] for name, each in controls.items() if each.get("outcomes")},
    }


def _changed(arm: Mapping[str, Any], further: str) -> Row:
    """The game that a further evaluation was played on, and its kind, where it is another one; who wrote the notes
    where nothing else was changed."""
    changed = arm["evaluation"].get("also", {}).get(further, {})
    changes = {key: value for key, value in changed.items() if key != "controls"}
    if "env" in changes:
        return {"env": changes["env"], "kind": arm["also"][further]["kind"]}
    return changes if [*changes] == ["writer"] else {}


def _trained(folder: Path) -> Row:
    """What training played and wrote, where its metrics are at hand."""
    lines = MetricsFile(folder / "metrics.jsonl").read()
    totals = {"episodes": "episodes", "tokens": "tokens/sampled"}
    return {name: sum(line.get(key, 0) for line in lines) for name, key in totals.items()} if lines else {}


def _config(arm: Mapping[str, Any], folder: Path) -> Config:
    """The configuration of an arm: as its run kept it, or else from its preset and settings."""
    try:
        return from_run(RunFolder.open(folder))
    except MulliganError:  # only arm.json was kept, or an earlier version made the run
        return resolve(arm["preset"], None, {k: v for k, v in arm["settings"].items() if k != "model.name"})


def _with_ceilings(rows: Sequence[Row]) -> list[Row]:
    """Rows of arms with what a player who sees everything reaches; played once for each list of tasks."""
    tops: dict[str, float] = {}
    for row in rows:
        digest = row.get("tasks_digest", "")
        if row.get("ceiling") is None and digest and digest not in tops and "preset" in row.get("settings", {}):
            changes = {name: value for name, value in row["settings"].items() if name != "preset"}
            settings, params = as_trained(resolve(row["settings"]["preset"], None, changes), row["env"])
            plan = EvalPlan(
                env=row["env"],
                params=params,
                tasks=row["tasks"],
                seed_set=row["seed_set"],
                settings=replace(settings, episodes=1),
                controls=(),
                room=False,
            )
            tops[digest] = run_plan(plan, ExpertPolicy(omniscient=True)).main.p[0]
    return [{**row, "ceiling": tops.get(row.get("tasks_digest", ""), row.get("ceiling"))} for row in rows]
