"""Gathers the sweeps of docs/exploration.md into table.json, and makes table.md and the pictures of it.

    python results/exploration/collect.py runs/exploration/*                        # the folders of sweeps
    python results/exploration/collect.py results/exploration/table.json runs/more  # what there is, and more
    python results/exploration/collect.py                                           # tables and pictures anew

The first word of a sweep's folder says which study it is (`STUDIES`): ``law-signpost``, ``phase``, ``nothing-bandit``.
A study that is not there is left out, and a line says so. Later rows replace earlier ones of the same arm and seed.

law.png      first attempts that find out, by γ_traj, and the computed γ*
phase.png    the same over γ_traj and the sure reward of toolbox
nothing.png  learning curves of the runs without a warm start
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tables
from tables import Row

import mulligan
from mulligan.app.sweep.arms import WARM_START
from mulligan.app.sweep.rows import arm_rows, as_table
from mulligan.envs.base import tagged
from mulligan.envs.expedition.env import Expedition
from mulligan.report.files import replace_file
from mulligan.report.run import RunFolder
from mulligan.training.metrics import MetricsFile
from mulligan.types import Trial

HERE = Path(__file__).parent
STUDIES = {
    **dict.fromkeys(("law", "signpost", "lookout", "toolbox"), "law"),
    "phase": "phase",
    **dict.fromkeys(("shares", "camp", "bandit"), "shares"),
    "forms": "forms",
    "nothing": "from nothing",
    **dict.fromkeys(("games", "minesweeper", "alfworld"), "papers' games"),
}
"""First word of a sweep's folder -> study."""
BIN = 5
"""Updates that a point of a learning curve is the mean of."""


def main(paths: list[Path]) -> None:
    rows = read(paths or [HERE / "table.json"])
    replace_file(HERE / "table.json", as_table(rows).encode())
    text = tables.text(rows)
    replace_file(HERE / "table.md", text.encode())
    sys.stdout.write(text)
    for study in dict.fromkeys(STUDIES.values()):
        if not tables.of_study(rows, study):
            sys.stderr.write(f"{study}: no finished arms; left out\n")
    import pictures  # matplotlib, which the tables do without

    for name, study in (("law", "law"), ("phase", "phase"), ("nothing", "from nothing")):
        if tables.of_study(rows, study):
            getattr(pictures, name)(rows, HERE / f"{name}.png")


def read(paths: Iterable[Path]) -> list[Row]:
    """The rows of tables and of the sweeps below folders, in a fixed order."""
    rows: dict[tuple[Any, ...], Row] = {}
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else sweep_rows(path):
            if identity(row) in rows:
                sys.stderr.write(
                    f"{row['study']}: {row['world']}, {row['arm']}, seed {row['seed']}: the later one counts\n"
                )
            rows[identity(row)] = row
    return [rows[key] for key in sorted(rows)]


def identity(row: Row) -> tuple[Any, ...]:
    """What tells rows apart; also their order in the table."""
    order = tables.WITH_OPTIMUM
    world = order.index(row["world"]) if row["world"] in order else len(order)
    gamma_traj, sure = (-1.0 if row[name] is None else row[name] for name in ("gamma_traj", "sure"))
    study = [*STUDIES.values()].index(row["study"])
    return (study, world, row["world"], sure, row["estimator"], row["form"], gamma_traj, row["arm"], row["seed"])


def sweep_rows(folder: Path) -> Iterator[Row]:
    for file in sorted(folder.rglob("arm.json")):
        sweep = file.parent.parent.name
        if (word := sweep.partition("-")[0]) not in STUDIES:
            sys.exit(f"{file.parent.parent}: the name must begin with one of {', '.join(STUDIES)} (got {word!r})")
        arm = json.loads(file.read_text(encoding="utf-8"))
        if not arm["name"].startswith(WARM_START):
            yield row_of(arm, file.parent, STUDIES[word])


def row_of(arm: dict[str, Any], folder: Path, study: str) -> Row:
    """A row of table.json; shares and means are over all tasks, 0 where a trial had ended before."""
    row, config = arm_rows(arm, folder, False)[0], RunFolder.open(folder).config()
    params = {**config["task"].get("params", {})}
    sure = float(params.get("sure", Expedition.defaults["sure"])) if params.get("world") == "toolbox" else None
    world = world_of(row["env"], params) + (f", sure {sure:g}" if study == "phase" else "")
    trials = mulligan.load_trials(folder / "evaluation", "main")
    rewards = np.zeros((len(trials), len(row["p"])))
    for line, trial in zip(rewards, trials, strict=True):
        line[: len(trial.episodes)] = [episode.reward for episode in trial.episodes]
    optima = arm["main"]["optimum"]
    finds_out = [finds_out_first(trial) for trial in trials] if row["env"] == "expedition" else []
    also = {name: {key: each.get(key) for key in ("p", "share_of_optimum")} for name, each in row["also"].items()}
    return {
        "study": study,
        "world": world,
        "arm": arm_name(row["name"]),
        "gamma_traj": row["gamma_traj"],
        "seed": row["seed"],
        "p": row["p"],
        "returns": [round(mean, 6) for mean in rewards.mean(axis=0).tolist()],
        "share_of_optimum": row.get("share_of_optimum"),
        "informative": sum(finds_out) / len(finds_out) if finds_out else None,
        "tasks": row["tasks"],
        "sure": sure,
        "form": config["algo"]["form"],
        "estimator": config["algo"]["estimator"],
        "updates": row["updates"],
        "minutes": row["minutes"],
        "seed_set": row["seed_set"],
        "tasks_digest": row["tasks_digest"],
        "optimum": optima[0]["value"] if optima else None,
        **({"also": also} if also else {}),
        **({"curve": curve_of(folder, len(row["p"]))} if study == "from nothing" and row["method"] != "RL" else {}),
        **({"worlds": row["worlds"]} if "worlds" in row else {}),
        "outcomes": row["outcomes"],
        "totals": [round(total, 6) for total in rewards.sum(axis=1).tolist()],
    }


def world_of(env: str, params: dict[str, Any]) -> str:
    if env == "expedition":
        return str(params.get("world", Expedition.defaults["world"]))
    if env == "bandit":
        return f"bandit, {params.get('arms', 4)} arms"
    name = Path(env.partition(":")[0]).stem  # examples/i_spy.py:ISpy -> i_spy
    usual = {"price": 0, "spare": -1}  # MineSweeper's, ALFWorld's
    costs = [f"{name} {params[name]:g}" for name, value in usual.items() if params.get(name, value) != value]
    return ", ".join([name, *costs])


def arm_name(name: str) -> str:
    """An arm's name in a sweep without what has a column of its own; only γ_traj 0 is a method of its own."""
    name = re.sub(r"^\d+ arms, |, sure [\d.]+", "", name)
    return re.sub(r", gamma_traj ([\d.]+)", lambda found: "" if float(found[1]) else ", gamma_traj 0", name)


def finds_out_first(trial: Trial) -> bool:
    """Whether the first attempt read the sign, climbed the tower, or tried an unknown tool."""
    env = Expedition(trial.task)
    for turn in trial.episodes[0].turns:
        if turn.valid:
            env.step(tagged(turn.reply.text))
    facts = {told.fact for told in env.facts}
    return not facts.isdisjoint({"prize", "miss"} if trial.task.text("world") == "toolbox" else {"shown"})


def curve_of(folder: Path, episodes: int) -> list[list[float]]:
    """Update, mean return of a trial, p@N: means over `BIN` updates."""
    points = []
    for line in MetricsFile(folder / "metrics.jsonl").read():
        if "reward/1" not in line:  # before the first update
            continue
        attempts = [(line.get(f"reward/{n}") or 0.0, line[f"played/{n}"]) for n in range(1, episodes + 1)]
        total = sum(reward * played for reward, played in attempts) / max(1, line["played/1"])
        points.append([line["update"], total, line[f"p@{episodes}"]])
    bins = [points[first : first + BIN] for first in range(0, len(points), BIN)]
    return [[round(value, 4) for value in np.mean(each, axis=0).tolist()] for each in bins]


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
