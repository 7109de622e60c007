"""How many later deaths are on a mine that an earlier episode of the trial has hit, from the trials of evaluations.

python results/h200-smollm2/known_mines.py runs/h200-smollm2/minesweeper/*-seed0/evaluation
"""

from __future__ import annotations

import sys

from mulligan.report.run import load_trials
from mulligan.types import Episode, Trial


def mine_hit(episode: Episode) -> str | None:
    """The cell of the mine that ended an episode in the compact view: ``d6`` where it ended with ``d6=*``."""
    last = episode.final.split()[-1] if episode.final.strip() else ""
    return last.removesuffix("=*") if last.endswith("=*") else None


def later_deaths(trial: Trial) -> list[bool]:
    """Of each death after the first episode, whether its mine was known."""
    known: set[str] = set()
    deaths = []
    for episode in trial.episodes:
        mine = mine_hit(episode)
        if mine is not None:
            deaths += [mine in known] if episode.index else []
            known.add(mine)
    return deaths


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        deaths = [known for trial in load_trials(folder) for known in later_deaths(trial)]
        sys.stdout.write(f"{folder}: {sum(deaths)} of {len(deaths)} later deaths on a known mine\n")
