"""What Sokoban's notes are worth: are they true, and is the place of a loss found again and played otherwise?

    python results/sokoban-cpu/notes.py RUN/01-meta-rl-seed0 …

Reads the trials that `mulligan sweep` evaluated, of levels told in cells that end where they are lost.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from mulligan.envs.registry import build
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.memory import replay
from mulligan.errors import StopReason
from mulligan.report.run import load_trials
from mulligan.types import Trial


def count(trial: Trial) -> Counter[str]:
    """Of one trial: notes, and true ones; episodes back where it was lost, with the same moves or others, and wins."""
    world, found, lost = build(trial.task), Counter[str](), set[tuple[str, str]]()
    assert isinstance(world, Sokoban)
    for episode in trial.episodes:
        played = replay(world, episode)
        places = [world.level.cells, *(turn.key for turn in played)]
        back = next((n for n, place in enumerate(places[:-1]) if any(where == place for where, _ in lost)), None)
        if back is not None:
            same = (places[back], played[back].said) in lost
            found["back"] += 1
            found["same" if same else "other"] += 1
            found["won"] += episode.won and not same
        if episode.stop is StopReason.LOST:
            lost.add((places[-2], played[-1].said))
        if episode.reflection is not None:
            found["notes"] += 1
            found["true"] += episode.reflection.text.strip() == re.sub("</?reflection>", "", world.reflect(episode))
    return found


def main(runs: list[Path]) -> None:
    for run in runs:
        found = sum((count(trial) for trial in load_trials(run / "evaluation")), Counter[str]())
        sys.stdout.write(
            f"{run.name}: {found['true']} of {found['notes']} notes true; {found['back']} episodes came back to a "
            f"place where the level was lost: {found['same']} with the same moves there, {found['other']} with others, "
            f"of which {found['won']} won\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    main(parser.parse_args().runs)
