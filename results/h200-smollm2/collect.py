"""From the runs of the sweeps to what is kept here: table.json and table.md, curves, metrics, trials to read.

    python results/h200-smollm2/collect.py runs/h200-smollm2 [--games minesweeper sokoban] [--into FOLDER] [--add]

RUNS has a folder for each game, as `mulligan sweep` and `untouched.py` left it. With --add, rows of table.json that
RUNS has nothing new for stay: seeds that were made on another machine. Of arms that were not finished there is no row;
their metrics so far go to unfinished/. The curves need matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.eval.passk import wilson
from mulligan.eval.run import evaluate
from mulligan.players import as_trained
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import load_trials
from mulligan.sweep.arms import WARM_START
from mulligan.train.config import Config
from mulligan.train.resolve import resolve
from mulligan.types import Trial

HERE = Path(__file__).parent
COLOURS = {
    "meta-RL, reflection": "#d55e00",
    "meta-RL, history": "#009e73",
    "RL, GiGPO": "#0072b2",
    "as many episodes, meta-RL, reflection": "#cc79a7",
    WARM_START: "#777777",
}
"""Of the main arms; RL and meta-RL as in the demonstration."""
TRAINED = [name for name in COLOURS if name != WARM_START]
UNTOUCHED = ("zero-shot", "react", "reflexion")
KEPT = (
    "update", "p@1", "p@2", "p@3", "valid", "episodes", "loss/entropy", "loss/kl_old", "loss/clip", "loss/grad_norm",
    "loss/sampler/mismatch", "tokens/rows", "tokens/sampled", "time/rollout", "time/update", "validation/p@1",
    "validation/p@2", "validation/p@3", "validation/diversity", "optim/tokens", "warning",
)  # fmt: skip
"""What is kept of an update."""
TO_READ, OTHERS = 10, 5
Row = dict[str, Any]


def read_arms(folder: Path) -> list[Row]:
    """What every finished arm of a sweep found, with its folder."""
    paths = sorted(folder.glob("*-seed*/arm.json"))
    return [{**json.loads(path.read_text(encoding="utf-8")), "folder": path.parent} for path in paths]


def unfinished(folder: Path) -> list[Row]:
    """Arms that have trained and were not evaluated."""
    paths = sorted(folder.glob("*-seed*/metrics.jsonl"))
    return [{"folder": path.parent} for path in paths if not (path.parent / "arm.json").is_file()]


def together(before: Sequence[Row], now: Sequence[Row]) -> list[Row]:
    """Rows kept earlier and new ones, which stand for older ones of their game, name and seed; seeds of an arm follow
    each other, and the model as it comes stands last."""
    rows = {(row.get("env"), row["name"], row["seed"]): row for row in (*before, *now)}
    order = sorted(dict.fromkeys(key[:2] for key in rows), key=lambda key: key[1] in UNTOUCHED)
    return [rows[key] for key in sorted(rows, key=lambda key: (order.index(key[:2]), key[2]))]


def kept_rows(path: Path, add: bool) -> Any:
    """What a file of rows holds already; nothing where there is none, or where it is made anew."""
    return json.loads(path.read_text(encoding="utf-8")) if add and path.is_file() else []


def curve_of(lines: Sequence[Mapping[str, Any]]) -> list[Row]:
    """p@1, p@2, p@3 on validation tasks over the updates, from metrics."""
    named = [f"validation/p@{k}" for k in (1, 2, 3)]
    return [
        {"update": line["update"], "p": [line[name] for name in named]}
        for line in lines
        if all(name in line for name in named)
    ]


def config_of(arm: Mapping[str, Any]) -> Config:
    settings = {key: value for key, value in arm["settings"].items() if key != "model.name"}
    return resolve(arm["preset"], None, settings)


def ceiling(arm: Mapping[str, Any]) -> float:
    """What a player who sees everything reaches on the same tasks."""
    config = config_of(arm)
    settings, params = as_trained(config, config.task.env)
    wanted = arm["evaluation"]
    options: dict[str, Any] = {"tasks": wanted["tasks"], "seed_set": wanted["seed_set"], "params": params}
    player = ExpertPolicy(omniscient=True)
    return evaluate(config.task.env, player, settings=settings, controls=(), room=False, **options).main.p[0]


def table_row(arm: Mapping[str, Any], top: float) -> Row:
    """An arm as a row of the table."""
    config, name = config_of(arm), arm["name"]
    method = WARM_START if name.startswith(WARM_START) else "RL" if config.trial.episodes == 1 else "meta-RL"
    return {
        "env": config.task.env,
        "name": name,
        "method": method,
        "estimator": None if method == WARM_START else config.algo.estimator,
        "memory": arm["memory"],
        "gamma_traj": config.algo.gamma_traj if method == "meta-RL" else None,
        "seed": arm["seed"],
        "p": arm["main"]["p"],
        "ci": arm["main"]["ci"],
        "retry": arm["controls"]["independent"]["p"][-1],
        "ceiling": top,
        "tasks": arm["main"]["trials"],
        "updates": arm["updates"],
        "minutes": arm["seconds"] / 60,
        "main": name in COLOURS,
        "seed_set": arm["seed_set"],
        "valid": arm["main"]["valid"],
        "again_on_a_known_mine": known_mines(arm["folder"]) if config.task.env == "minesweeper" else None,
        "diversity": diversity(arm["folder"]),
        "metrics": f"{config.task.env}-{arm['folder'].name}.jsonl",
        "also": {
            further: {"p": found["main"]["p"], "controls": {k: v["p"] for k, v in found["controls"].items()}}
            for further, found in arm.get("also", {}).items()
        },
    }


def untouched_row(found: Mapping[str, Any], top: float) -> Row:
    """The model as it comes, as a row of the table."""
    controls = found["controls"].get("independent", found["main"])
    return {
        "env": found["game"],
        "name": found["name"],
        "method": found["name"],
        "estimator": None,
        "memory": found["memory"],
        "gamma_traj": None,
        "seed": 0,
        "p": found["main"]["p"],
        "ci": found["main"]["ci"],
        "retry": controls["p"][-1],
        "ceiling": top,
        "tasks": found["main"]["trials"],
        "updates": 0,
        "minutes": 0.0,
        "main": True,
        "seed_set": "eval",
        "valid": found["main"]["valid"],
        "again_on_a_known_mine": None,
        "diversity": [],
        "metrics": None,
        "also": {},
    }


def known_mines(folder: Path) -> float | None:
    """Of all deaths in second and third episodes, the share on a mine that an earlier episode had hit."""
    path = folder / "evaluation"
    if not path.is_dir():
        return None
    later = again = 0
    for trial in load_trials(path):
        hit: set[str] = set()
        for episode in trial.episodes:
            mines = {word for word in episode.final.split() if word.endswith("=*")}
            later += bool(episode.index and mines)
            again += bool(mines & hit)
            hit |= mines
    return again / later if later else None


def diversity(folder: Path) -> list[float]:
    """Entropy of the action sequences on validation tasks, as training went on."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [line["validation/diversity"] for line in map(json.loads, lines) if "validation/diversity" in line]


def told(trial: Trial) -> str:
    """A trial to read, in Markdown."""
    lines = [f"## {trial.task.task_class}, seed {trial.task.seed}"]
    for episode in trial.episodes:
        lines += ["", f"**Episode {episode.index + 1}**: {episode.stop.value}", "```"]
        for turn in episode.turns:
            lines += [turn.observation, f"> {turn.reply.text}" + ("" if turn.valid else "   (not valid)")]
        lines += [episode.final, "```"]
        if episode.reflection is not None:
            lines.append(f"It notes: `{episode.reflection.text}`")
    return "\n".join(lines) + "\n"


def keep_trials(arms: Sequence[Row], game: str, into: Path) -> None:
    """The first ten trials of each main arm's first seed, as they came, and the next that took several attempts."""
    firsts = {name: min(arm["seed"] for arm in arms if arm["name"] == name) for name in {arm["name"] for arm in arms}}
    for arm in arms:
        if arm["name"] in TRAINED and arm["seed"] == firsts[arm["name"]] and (arm["folder"] / "evaluation").is_dir():
            trials = load_trials(arm["folder"] / "evaluation")
            others = [trial for trial in trials[TO_READ:] if len(trial.episodes) > 1][:OTHERS]
            text = f"# {arm['name']}: the first {TO_READ} tasks of the evaluation, as they came\n\n"
            text += "\n".join(map(told, trials[:TO_READ]))
            text += f"\n# The next {len(others)} that took more than one attempt\n\n" + "\n".join(map(told, others))
            short = arm["folder"].name.partition("-")[2]
            (into / "trials").mkdir(exist_ok=True)
            (into / "trials" / f"{game}-{short}.md").write_text(text, encoding="utf-8")


def keep_metrics(arms: Sequence[Row], game: str, into: Path) -> None:
    """Of every update what one looks at, rounded."""
    into.mkdir(exist_ok=True)
    for arm in arms:
        path = arm["folder"] / "metrics.jsonl"
        if path.is_file():
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            kept = [{key: _rounded(line[key]) for key in KEPT if key in line} for line in lines]
            text = "".join(json.dumps(line) + "\n" for line in kept)
            (into / f"{game}-{arm['folder'].name}.jsonl").write_text(text, encoding="utf-8")


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def draw(rows: Sequence[Row], path: Path) -> None:
    """p@1 ... p@3 at the end, and p@3 on validation tasks over the updates (`curve`); every seed is a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    games = by_game(rows)
    figure, axes = pyplot.subplots(2, len(games), figsize=(5.5 * len(games), 7.5), squeeze=False)
    for column, (game, own) in enumerate(games.items()):
        top, below = axes[0][column], axes[1][column]
        seen: set[str] = set()
        for row in own:
            if row["name"] in COLOURS:
                label = None if row["name"] in seen else row["name"]
                seen.add(row["name"])
                share = [100 * p for p in row["p"]]
                top.plot([1, 2, 3], share, "o-", color=COLOURS[row["name"]], label=label, alpha=0.8)
        top.axhline(100 * own[0]["ceiling"], color="#bbbbbb", linestyle=":", label="ceiling")
        for row in own:
            if row["name"] in TRAINED and row["curve"]:
                points = [(point["update"], 100 * point["p"][-1]) for point in row["curve"]]
                below.plot(*zip(*points, strict=True), color=COLOURS[row["name"]], alpha=0.8)
        top.set(title=game, xlabel="attempt k", ylabel="p@k (%)", xticks=[1, 2, 3], ylim=(0, 102))
        below.set(xlabel="update", ylabel="p@3 (%) on validation tasks", ylim=(0, 102))
        top.legend(fontsize=8, loc="lower right")
        for axis in (top, below):
            axis.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def percent(shares: Sequence[float]) -> str:
    """The mean of shares, in percent."""
    return f"{100 * sum(shares) / len(shares):.1f}"


def with_interval(own: Sequence[Row], k: int) -> str:
    """p@(k + 1) over all seeds, with half its interval."""
    won = round(sum(row["p"][k] * row["tasks"] for row in own))
    low, high = wilson(won, sum(row["tasks"] for row in own))
    return f"{percent([row['p'][k] for row in own])} ± {50 * (high - low):.1f}"


def table(rows: Sequence[Row]) -> str:
    """The rows of one game in Markdown: the mean over seeds, with Wilson's interval over the trials of all seeds."""
    lines = ["| | seeds | p@1 | p@2 | p@3 | p@3 by seed | retries | known mine |", "|---|---|---|---|---|---|---|---|"]
    for name, own in by_name(rows).items():
        p = [with_interval(own, k) for k in range(3)]
        mines = [row["again_on_a_known_mine"] for row in own if row["again_on_a_known_mine"] is not None]
        known = f"{100 * sum(mines) / len(mines):.0f} %" if mines else ""
        seeds = " / ".join(f"{100 * row['p'][2]:.1f}" for row in own)
        cells = [name, str(len(own)), *p, seeds]
        lines.append("| " + " | ".join([*cells, percent([row["retry"] for row in own]), known]) + " |")
    return "\n".join(lines) + "\n"


def further_table(rows: Sequence[Row]) -> str:
    """Other evaluations of the same agents: p@1, p@2 ... as means over the seeds that have them."""
    lines = ["| | | seeds | p@1, p@2, … |", "|---|---|---|---|"]
    for name, own in by_name(rows).items():
        for further in dict.fromkeys(each for row in own for each in row["also"]):
            found = [row["also"][further] for row in own if further in row["also"]]
            parts = {"": [each["p"] for each in found]}
            parts |= {f", {kind}": [each["controls"][kind] for each in found] for kind in found[0]["controls"]}
            for kind, p in parts.items():
                shares = " / ".join(percent(each) for each in zip(*p, strict=True))
                lines.append(f"| {name} | {further}{kind} | {len(found)} | {shares} |")
    return "\n".join(lines) + "\n"


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    names = dict.fromkeys(row["name"] for row in rows)
    return {name: [row for row in rows if row["name"] == name] for name in names}


def by_game(rows: Sequence[Row]) -> dict[str, list[Row]]:
    games = dict.fromkeys(row["env"] for row in rows)
    return {game: [row for row in rows if row["env"] == game] for game in games}


def curve_kept(row: Row, into: Path) -> list[Row]:
    """A row's curve, from the metrics that are kept of it."""
    path = into / "metrics" / str(row["metrics"])
    return curve_of([json.loads(line) for line in path.read_text().splitlines()]) if path.is_file() else []


def main(runs: Path, games: Sequence[str], into: Path, add: bool) -> None:
    rows: list[Row] = []
    arms = {game: read_arms(runs / game) for game in games}
    if not any(arms.values()):
        sys.exit(f"no arm of a sweep in {' or '.join(str(runs / game) for game in games)} (…-seed0/arm.json)")
    into.mkdir(parents=True, exist_ok=True)
    for game, own in arms.items():
        tops: dict[str, float] = {}
        for arm in own:
            worlds = json.dumps([config_of(arm).task.params, arm["evaluation"]["seed_set"]], sort_keys=True)
            if worlds not in tops:
                tops[worlds] = ceiling(arm)
            rows.append(table_row(arm, tops[worlds]))
        for path in sorted((runs / game).glob("untouched-*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            rows.append(untouched_row(found, next(iter(tops.values()), math.nan)))
        keep_trials(own, game, into)
        keep_metrics(own, game, into / "metrics")
        keep_metrics(unfinished(runs / game), game, into / "unfinished")
        for arm in own:  # which may have been unfinished before
            (into / "unfinished" / f"{game}-{arm['folder'].name}.jsonl").unlink(missing_ok=True)
    rows = together(kept_rows(into / "table.json", add), rows)
    into.joinpath("table.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    tables = [f"# {game}\n\n{table(own)}\n{further_table(own)}" for game, own in by_game(rows).items()]
    into.joinpath("table.md").write_text("\n".join(tables), encoding="utf-8")
    draw([{**row, "curve": curve_kept(row, into)} for row in rows], into / "curves.png")
    for row in rows:
        shares = " ".join(f"{100 * p:5.1f}" for p in row["p"])
        sys.stdout.write(
            f"{row['env']:12} {row['name']:48} seed {row['seed']}  {shares}  retry {100 * row['retry']:5.1f}\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--games", nargs="+", default=["minesweeper", "sokoban"])
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("--add", action="store_true", help="keep the rows that are there and not in RUNS")
    given = parser.parse_args()
    main(given.runs, given.games, given.into, given.add)
