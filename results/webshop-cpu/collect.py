"""From the run of a sweep of WebShop to what is kept: table.md, arms.json, the metrics of every arm; trials and curves.

    python results/webshop-cpu/collect.py RUNS [--into FOLDER] [--add]

With --add, arms of arms.json that RUNS has nothing new for stay: seeds that were made on another machine.
Beside p@k stands what p@k does not tell: the mean of the original's score (in the first episode, the best of three),
which is read off the trials that the evaluation kept, whatever the purchases paid in training; and how often a later
episode buys again what has already been bought and was not right. Where notes are written: how many name the purchase
and how many call it wrong, as it was. Trials to read and curves are kept of arms that are named as in results/h200-*;
the curves need matplotlib.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mulligan.envs import registry
from mulligan.envs.webshop.memory import Story, retell
from mulligan.eval.passk import mean_interval
from mulligan.report.run import load_trials
from mulligan.train.metrics import MetricsFile
from mulligan.types import Trial

Row = dict[str, Any]

KEPT = (
    "update", "p@1", "p@2", "p@3", "valid", "episodes", "turns", "loss/entropy", "loss/clip", "loss/grad_norm",
    "loss/sampler/mismatch", "time/rollout", "time/update", "validation/p@1", "validation/p@2", "validation/p@3",
)  # fmt: skip
"""What is kept of an update."""


def stories(trial: Trial) -> list[Story]:
    """What happened in each episode."""
    world: Any = registry.build(trial.task)
    return [retell(world, episode) for episode in trial.episodes]


def score(story: Story) -> float:
    """The original's: of the purchase, or nothing without one."""
    return story.match.reward if story.match is not None else 0.0


def scores(trials: Sequence[Trial]) -> Row:
    told = [stories(trial) for trial in trials]
    again = bought = 0
    for trial in told:
        before: set[str] = set()
        for story in trial:
            if story.bought is not None:
                bought += bool(before)
                again += story.bought.asin in before
                before.add(story.bought.asin)
    first, interval = mean_interval([score(trial[0]) for trial in told])
    best, best_interval = mean_interval([max(map(score, trial)) for trial in told])
    return {
        "first": first,
        "first_ci": interval,
        "best": best,
        "best_ci": best_interval,
        "bought_again": again / bought if bought else None,
    }


def notes(trials: Sequence[Trial]) -> dict[str, int]:
    """Of the notes after a wrong purchase: how many there are, name it, and call it wrong; and of the purchases after
    notes with either verdict, how many are of the same product."""
    found = dict.fromkeys(("written", "named", "true", "after true", "again, true", "after false", "again, false"), 0)
    for trial in trials:
        told = stories(trial)
        for episode, story, following in zip(trial.episodes, told, [*told[1:], None], strict=True):
            if episode.reflection is None or story.bought is None or episode.won:
                continue
            said = re.search(rf"\b{story.bought.asin}=(\S+?)(?=[;\s]|$)", episode.reflection.text, re.IGNORECASE)
            found["written"] += 1
            found["named"] += said is not None
            found["true"] += said is not None and said[1] == "*"
            if said is not None and following is not None and following.bought is not None:
                verdict = "true" if said[1] == "*" else "false"
                found[f"after {verdict}"] += 1
                found[f"again, {verdict}"] += following.bought.asin == story.bought.asin
    return found


def read_arms(runs: Path) -> list[Row]:
    """Every finished arm, with the scores of its trials and of its independent retries."""
    found = []
    for path in sorted(runs.glob("*-seed*/arm.json")):
        arm = json.loads(path.read_text(encoding="utf-8"))
        start = arm["settings"].get("model.name", "")
        if (runs / Path(start).name).is_dir():
            arm["settings"]["model.name"] = Path(start).name
        folders = {"score": path.parent / "evaluation"}
        folders |= {f"score, {name}": path.parent / f"evaluation-{name}" for name in arm.get("also", {})}
        more = {name: scores(load_trials(folder)) for name, folder in folders.items()}
        more["score, independent"] = scores(load_trials(path.parent / "evaluation", "independent"))
        written = notes(load_trials(folders["score"]))
        found.append({**arm, **more, **({"notes": written} if written["written"] else {})})
    return found


def read_untouched(runs: Path) -> list[Row]:
    """The model as it comes, where it was played (results/h200-smollm2/untouched.py): its returns are the scores."""
    found = []
    for style in ("zero-shot", "react", "reflexion"):
        path = runs / f"untouched-{style}.json"
        if path.is_file():
            row = json.loads(path.read_text(encoding="utf-8"))
            score = {"first": row["main"]["returns"][0], "best": row["main"]["best"][-1], "bought_again": None}
            found.append({**row, "seed": 0, "score": score})
    return found


def keep_metrics(runs: Path, into: Path) -> None:
    (into / "metrics").mkdir(exist_ok=True)
    for path in sorted(runs.glob("*-seed*/metrics.jsonl")):
        lines = MetricsFile(path).read()
        if lines:
            kept = [{key: _rounded(line[key]) for key in KEPT if key in line} for line in lines]
            text = "".join(json.dumps(line) + "\n" for line in kept)
            (into / "metrics" / f"{path.parent.name}.jsonl").write_text(text, encoding="utf-8")


def table(arms: Sequence[Row]) -> str:
    """One row an arm, seed and memory, in percent."""
    titles = ("arm", "seed", "p@1", "p@2", "p@3", "p@3, retries", "score 1", "best score", "bought again", "minutes")
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for arm in arms:
        alone = arm["controls"].get("independent")  # zero-shot and ReAct have no memory to do without
        retries = f"{100 * alone['p'][-1]:.1f}" if alone else ""
        lines.append(_row(arm["name"], arm, arm["main"], retries, arm["score"], f"{arm['seconds'] / 60:.1f}"))
        for name, further in arm.get("also", {}).items():
            lines.append(_row(f"{arm['name']}, {name}", arm, further["main"], "", arm[f"score, {name}"], ""))
    return "\n".join(lines) + "\n"


def _row(name: str, arm: Row, played: Row, retries: str, score: Row, minutes: str) -> str:
    half = 50 * (played["ci"][-1][1] - played["ci"][-1][0])
    shares = [f"{100 * share:.1f}" for share in played["p"]]
    shares[-1] += f" ± {half:.1f}"
    again = "" if score["bought_again"] is None else f"{100 * score['bought_again']:.0f} %"
    cells = [retries, f"{100 * score['first']:.1f}", f"{100 * score['best']:.1f}", again, minutes]
    return "| " + " | ".join([name, str(arm["seed"]), *shares, *cells]) + " |"


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--into", type=Path, default=Path(__file__).parent)
    parser.add_argument("--add", action="store_true", help="keep the arms that are there and not in RUNS")
    given = parser.parse_args()
    arms = read_arms(given.runs) + read_untouched(given.runs)
    if not arms:
        sys.exit(f"no arm of a sweep in {given.runs} (…-seed0/arm.json)")
    shared = runpy.run_path(str(Path(__file__).parents[1] / "h200-smollm2" / "collect.py"))
    arms = shared["together"](shared["kept_rows"](given.into / "arms.json", given.add), arms)
    given.into.mkdir(parents=True, exist_ok=True)
    (given.into / "arms.json").write_text(json.dumps(arms, indent=1) + "\n", encoding="utf-8")
    (given.into / "table.md").write_text(table(arms), encoding="utf-8")
    keep_metrics(given.runs, given.into)
    shared["keep_trials"](shared["read_arms"](given.runs), "webshop", given.into)
    if any(arm["name"] in shared["TRAINED"] for arm in arms):
        rows = [{"env": "webshop", "ceiling": 1.0, "p": arm["main"]["p"], "curve": [], **arm} for arm in arms]
        shared["draw"](rows, given.into / "curves.png")
