"""From the runs of a sweep on ALFWorld to what is kept: arms.json, table.md, trials to read, curves.

    python results/alfworld-cpu/collect.py runs/alfworld-cpu --into results/alfworld-cpu [--add]

With --add, arms of arms.json that the runs have nothing new for stay: seeds that were made on another machine.
Evaluations made beside the sweep are read from BESIDE/NAME/FOLDER, where FOLDER is called as the arm's: what
`mulligan eval alfworld --policy RUNS/FOLDER … --run BESIDE/NAME/FOLDER` left.

Beside p@k it counts what agents do with their memory: of the second and third episodes that begin when an earlier one
has seen where a wanted thing lies, the share in which the first step goes to such a place, and the share that is won.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.envs import registry
from mulligan.envs.alfworld.env import ALFWorld
from mulligan.envs.alfworld.memory import replay
from mulligan.eval.passk import summarise, wilson
from mulligan.eval.run import evaluate
from mulligan.players import as_trained
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.report.run import load_trials
from mulligan.train.metrics import MetricsFile
from mulligan.train.resolve import resolve
from mulligan.types import Trial

KEPT = (
    "update", "p@1", "p@2", "p@3", "valid", "loss/entropy", "loss/clip", "loss/grad_norm", "time/rollout",
    "time/update", "validation/p@1", "validation/p@2", "validation/p@3",
)  # fmt: skip
"""What is kept of every tenth update."""
PLAYERS = {
    "random": RandomPolicy(),
    "demonstrator": None,
    "expert": ExpertPolicy(),
    "expert, perfect memory": ExpertPolicy(recall=1.0),
    "omniscient": ExpertPolicy(omniscient=True),
}
"""Scripted players on the same tasks; the demonstrator is that of the preset."""
OFFICIAL, TWO = "valid_seen", "alfworld/pick2"
Row = dict[str, Any]


def by_kind(trials: Sequence[Trial]) -> dict[str, Row]:
    """Kind of task -> p@1, p@2, … and the number of tasks."""
    kinds: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        kinds[trial.task.task_class].append(trial)
    return {kind: {"p": summarise(own, 3).p, "tasks": len(own)} for kind, own in sorted(kinds.items())}


def use_of_memory(trials: Sequence[Trial]) -> Row:
    """Later episodes that begin with the place of a wanted thing known: those that go there at once, those won."""
    known = at_once = won = 0
    for trial in trials:
        env = registry.build(trial.task)
        assert isinstance(env, ALFWorld)
        world = env.world
        places: set[int] = set()
        for episode in trial.episodes:
            story = replay(world, env.view, episode)
            if places:
                known += 1
                first = story.played[:1] if episode.turns and episode.turns[0].valid else []
                at_once += first in [[f"go to {world.r_names[place]}"] for place in places]
                won += episode.won
            places |= {place for place, held in story.seen if world.goal_objects.intersection(held)}
    return {"known": known, "at once": at_once / known, "won": won / known} if known else {"known": 0}


def taken_back(trials: Sequence[Trial]) -> Row:
    """Of the episodes of Pick2, the share in which a thing is taken again from where it was put."""
    back = []
    for trial in trials:
        for episode in trial.episodes if trial.task.task_class == TWO else ():
            put: set[tuple[str, str]] = set()
            again = False
            for turn in episode.turns:
                if moved := re.search("move (.+) to (.+?)</action>", turn.reply.text):
                    put.add((moved[1], moved[2]))
                if taken := re.search("take (.+) from (.+?)</action>", turn.reply.text):
                    again |= (taken[1], taken[2]) in put
            back.append(again)
    return {"episodes": len(back), "taken back": sum(back) / max(1, len(back))}


def further(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Evaluation -> its figures, and those of its controls but for independent retries."""
    rows: dict[str, Row] = {}
    for name, each in found.items():
        main = each.get("main", each)
        rows[name] = {"p": main["p"], "ci": main["ci"]}
        kinds = {kind: {"p": own["p"], "tasks": own["trials"]} for kind, own in each.get("by_class", {}).items()}
        if len(kinds) > 1:
            rows[name]["by_kind"] = kinds
        for control, own in each["controls"].items():
            if control != "independent":
                rows[f"{name}, {control}"] = {"p": own["p"], "ci": own["ci"]}
    return rows


def read_arm(folder: Path, beside: Path | None) -> Row:
    """What an arm found, in all its evaluations."""
    arm = json.loads((folder / "arm.json").read_text(encoding="utf-8"))
    start = arm["settings"].get("model.name")
    settings = {**arm["settings"], **({"model.name": Path(start).name} if start else {})}
    trials = load_trials(folder / "evaluation")
    lines = [line for line in MetricsFile(folder / "metrics.jsonl").read() if line["update"] % 10 == 0]
    results = sorted(beside.glob(f"*/{folder.name}/result.json")) if beside else []
    apart = {path.parent.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in results}
    also = further({**arm.get("also", {}), **apart})
    if OFFICIAL in apart and beside:
        also[OFFICIAL]["two"] = taken_back(load_trials(beside / OFFICIAL / folder.name))
    return {
        "name": arm["name"],
        "seed": arm["seed"],
        "settings": settings,
        "preset": arm["preset"],
        "evaluation": arm["evaluation"],
        "p": arm["main"]["p"],
        "ci": arm["main"]["ci"],
        "tasks": arm["main"]["trials"],
        "valid": arm["main"]["valid"],
        "independent": arm["controls"]["independent"]["p"],
        "by_kind": by_kind(trials),
        "memory": use_of_memory(trials),
        "also": also,
        "minutes": arm["seconds"] / 60,
        "metrics": [{key: float(f"{line[key]:.4g}") for key in KEPT if key in line} for line in lines],
    }


def scripted(arm: Row) -> list[Row]:
    """Scripted players on an arm's tasks."""
    settings = {key: value for key, value in arm["settings"].items() if key != "model.name"}
    config = resolve(arm["preset"], None, {**settings, "trial.episodes": "3"})
    how, params = as_trained(config, "alfworld")
    found = []
    for name, given in PLAYERS.items():
        player = given or ExpertPolicy(config.warmstart.skill, config.warmstart.recall)
        options: Mapping[str, Any] = {"tasks": arm["evaluation"]["tasks"], "seed_set": arm["evaluation"]["seed_set"]}
        result = evaluate("alfworld", player, params=params, settings=how, controls=(), room=False, **options)
        found.append({"name": name, "p": result.main.p, "by_kind": by_kind(result.trials)})
    return found


def shares(rows: Sequence[Sequence[float]]) -> str:
    """Mean over seeds of p@1, p@2, …, in percent."""
    return " / ".join(f"{100 * sum(each) / len(each):.1f}" for each in zip(*rows, strict=True))


def official_table(groups: Mapping[str, Sequence[Row]]) -> list[str]:
    """The official games by kind of task, where they were played; the last column is p@3 over all."""
    played = {name: [arm["also"][OFFICIAL] for arm in own if OFFICIAL in arm["also"]] for name, own in groups.items()}
    played = {name: rows for name, rows in played.items() if rows}
    if not played:
        return []
    counts = {kind: own["tasks"] for kind, own in next(iter(played.values()))[0]["by_kind"].items()}
    names = [f"{kind.partition('/')[2]} ({count})" for kind, count in counts.items()]
    lines = ["", f"The official games of {OFFICIAL}, p@1 / p@2 / p@3 by kind of task (games).", ""]
    lines += [f"| | {' | '.join(names)} | all |", "|" + "---|" * (len(names) + 2)]
    for name, rows in played.items():
        cells = [shares([row["by_kind"][kind]["p"] for row in rows]) for kind in counts]
        lines.append(f"| {name} | {' | '.join(cells)} | {shares([row['p'] for row in rows])} |")
    back = {name: shares([[row["two"]["taken back"]] for row in rows]) for name, rows in played.items()}
    said = ", ".join(f"{name} {share}" for name, share in back.items())
    return [
        *lines,
        "",
        f"Episodes of pick2 there in which a thing is taken back from where it was put, in percent: {said}.",
    ]


def table(arms: Sequence[Row], players: Sequence[Row]) -> str:
    """What people read: a row an arm, over seeds."""
    kinds = list(arms[0]["by_kind"])
    names = [kind.partition("/")[2] for kind in kinds]
    lines = ["| | seeds | p@1 / p@2 / p@3 | p@3 by seed | independent retries | valid | minutes |", "|" + "---|" * 7]
    groups = {name: [arm for arm in arms if arm["name"] == name] for name in dict.fromkeys(arm["name"] for arm in arms)}
    for name, own in groups.items():
        trials = sum(arm["tasks"] for arm in own)
        low, high = wilson(round(sum(arm["p"][2] * arm["tasks"] for arm in own)), trials)
        seeds = " / ".join(f"{100 * arm['p'][2]:.1f}" for arm in own)
        mean = {key: sum(arm[key] for arm in own) / len(own) for key in ("valid", "minutes")}
        retries = shares([arm["independent"] for arm in own])
        cells = [name, len(own), f"{shares([arm['p'] for arm in own])} ± {50 * (high - low):.1f}", seeds, retries]
        lines.append("| " + " | ".join(map(str, [*cells, f"{mean['valid']:.1%}", f"{mean['minutes']:.1f}"])) + " |")
    for player in players:
        lines.append(f"| {player['name']} (scripted) | | {shares([player['p']])} | | | | |")
    lines += ["", f"By kind of task, p@1 / p@2 / p@3: {', '.join(names)}.", "", "| | " + " | ".join(names) + " |"]
    lines.append("|" + "---|" * (len(names) + 1))
    for name, own in groups.items():
        cells = [shares([arm["by_kind"][kind]["p"] for arm in own]) for kind in kinds]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    asked = list(dict.fromkeys(each for arm in arms for each in arm["also"]))
    if asked:
        lines += ["", "Further evaluations.", "", "| | | seeds | p@1 / p@2 / p@3 … |", "|---|---|---|---|"]
    for name, own in groups.items():
        for each in asked:
            with_it = [arm["also"][each] for arm in own if each in arm["also"]]
            if with_it:
                lines.append(f"| {name} | {each} | {len(with_it)} | {shares([row['p'] for row in with_it])} |")
    lines += official_table(groups)
    lines += ["", "Later episodes that begin with the place of a wanted thing known.", ""]
    lines += ["| | episodes | go there at once | won |", "|---|---|---|---|"]
    for name, own in groups.items():
        told = [arm["memory"] for arm in own if arm["memory"]["known"]]
        count = sum(each["known"] for each in told)
        mean = {key: sum(each[key] * each["known"] for each in told) / max(1, count) for key in ("at once", "won")}
        lines.append(f"| {name} | {count} | {100 * mean['at once']:.0f} % | {100 * mean['won']:.0f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("--add", action="store_true", help="keep the arms that are there and not in RUNS")
    parser.add_argument("--beside", type=Path, help="evaluations made apart from the sweep")
    given = parser.parse_args()
    found = [read_arm(path.parent, given.beside) for path in sorted(given.runs.glob("*-seed*/arm.json"))]
    if not found:
        sys.exit(f"no arm of a sweep in {given.runs} (…-seed0/arm.json)")
    shared = runpy.run_path(str(Path(__file__).parents[1] / "h200-smollm2" / "collect.py"))
    before = shared["kept_rows"](given.into / "arms.json", given.add) or {"arms": []}
    found = shared["together"](before["arms"], found)
    players = before.get("scripted") or scripted(found[0])
    text = table(found, players)
    given.into.joinpath("arms.json").write_text(json.dumps({"arms": found, "scripted": players}, indent=1) + "\n")
    given.into.joinpath("table.md").write_text(text)
    if any(arm["name"] in shared["TRAINED"] for arm in found):
        extra = {"env": "alfworld", "ceiling": players[-1]["p"][0]}
        rows = [{**extra, **arm, "curve": shared["curve_of"](arm["metrics"])} for arm in found]
        shared["draw"](rows, given.into / "curves.png")
    shared["keep_trials"](shared["read_arms"](given.runs), "alfworld", given.into)
    sys.stdout.write(text)
