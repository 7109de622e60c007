"""Draws the lineage of a population: who was copied to whom, and how each agent scored.

python results/population/picture.py RUN results/population/lineage.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

EVENTS = {"copied": "tab:blue", "replaced": "tab:red"}


def main(run: Path, out: Path) -> None:
    lines = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    last = max(line["update"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))
    agents = 1 + max(line["agent"] for line in lines)
    figure, (tree, scores) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(2, 3))
    for agent in range(agents):
        tree.plot([0, last], [agent, agent], color="lightgrey", zorder=0)
        scored = [line for line in lines if line["event"] == "scored" and line["agent"] == agent]
        values, errors = ([line[name] for line in scored] for name in ("value", "error"))
        scores.errorbar(
            [line["update"] for line in scored], values, errors, marker="o", capsize=2, label=f"agent {agent}"
        )
    for line in lines:
        if line["event"] in EVENTS:
            ends = {"xy": (line["update"], line["agent"]), "xytext": (line["update"], line["from"])}
            tree.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": EVENTS[line["event"]]})
        if "settings" in line and "optim.lr" in line["settings"]:
            text = f"lr {line['settings']['optim.lr']:.1e}"
            tree.text(line["update"], line["agent"] + 0.08, text, fontsize=7, color="dimgrey")
    tree.set(ylabel="agent", yticks=range(agents), ylim=(-0.5, agents - 0.3))
    scores.set(xlabel="update", ylabel="score on held-out tasks")
    scores.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
