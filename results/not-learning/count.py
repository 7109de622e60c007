"""Gathers arms.json from the sweep's folder: metrics on the way, and how true the reflections are.

python results/not-learning/count.py runs/not-learning > results/not-learning/arms.json
"""

import json
import sys
from pathlib import Path

from mulligan.envs.minesweeper.env import moves
from mulligan.report.run import load_trials
from mulligan.training.metrics import MetricsFile

SHOWN = ("update", "p@1", "p@3", "valid", "loss/entropy", "loss/grad_norm", "loss/clip", "loss/lr")


def reflections(folder: Path) -> dict[str, float | int | None]:
    """Notes written after a mine: those that name it first, and those that say all moves and nothing else."""
    lost = [episode for trial in load_trials(folder / "evaluation") for episode in trial.episodes]
    lost = [e for e in lost if e.reflection and e.reflection.completion and e.final.endswith("=*")]
    named = sum(e.reflection.text.split()[:1] == [e.final.split()[-1]] for e in lost)
    whole = sum(set(e.reflection.text.split()) == set(moves(e)) for e in lost)
    shares = (named / len(lost), whole / len(lost)) if lost else (None, None)
    return {"written": len(lost), "name the mine": shares[0], "all true and complete": shares[1]}


found = []
for folder in sorted(path.parent for path in Path(sys.argv[1]).glob("*/arm.json")):
    arm = json.loads((folder / "arm.json").read_text())
    start = arm["settings"].get("model.name")
    settings = {**arm["settings"], **({"model.name": Path(start).name} if start else {})}
    lines = [line for line in MetricsFile(folder / "metrics.jsonl").read() if line["update"] in (1, 10, 20, 30, 40)]
    metrics = [{key: round(line[key], 4) for key in SHOWN if key in line} for line in lines]
    figures = {key: arm["main"][key] for key in ("p", "ci", "valid")}
    about = {"name": arm["name"], "settings": settings, **figures, "metrics": metrics}
    found.append({**about, "reflections": reflections(folder)})
sys.stdout.write(json.dumps(found, indent=1) + "\n")
