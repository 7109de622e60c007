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
from mulligan.envs.sokoban.moves import after, read
from mulligan.errors import StopReason
from mulligan.report.run import load_trials
from mulligan.types import Trial


def count(trial: Trial) -> Counter[str]:
    """Of one trial: notes, and true ones; episodes back where it was lost, with the same moves or others, and wins.

    A note is true that names the place and the moves that lost the level. What it says to play instead is sound if the
    level can still be won after it; it is heeded where an episode that comes back to the place plays just that, and
    spent in a note on a place that has a note already if these are moves that have lost the level there.
    """
    world, found, lost = build(trial.task), Counter[str](), dict[tuple[str, str], str]()
    assert isinstance(world, Sokoban)
    for episode in trial.episodes:
        played = replay(world, episode)
        places = [world.level.cells, *(turn.key for turn in played)]
        back = next((n for n, place in enumerate(places[:-1]) if any(where == place for where, _ in lost)), None)
        if back is not None:
            here, said = places[back], played[back].said
            same = (here, said) in lost
            found["back"] += 1
            found["same" if same else "other"] += 1
            found["won"] += episode.won and not same
            found["heeded"] += said in {instead for (where, _), instead in lost.items() if where == here}
        note = episode.reflection.text.strip().splitlines() if episode.reflection is not None else []
        instead = note[2] if len(note) == 4 else ""
        if episode.stop is StopReason.LOST:
            again = any(where == places[-2] for where, _ in lost)
            lost[places[-2], played[-1].said] = instead
            if instead:
                found["again"] += again
                found["spent"] += again and (places[-2], instead) in lost
        if episode.reflection is not None:
            asked = re.sub("</?reflection>", "", world.reflect(episode)).splitlines()
            found["notes"] += 1
            found["true"] += (note[:2], note[-1:]) == (asked[:2], asked[-1:])
            if instead and episode.stop is StopReason.LOST:
                found["instead"] += 1
                found["sound"] += _sound(world, places[-2], instead, len(played))
    return found


def _sound(world: Sokoban, place: str, instead: str, turn: int) -> bool:
    """Whether the level is still to be won when `instead` has been played at `place`, in that turn."""
    understood = read(f"<action>{instead}</action>", world.cols, world.moves)
    if isinstance(understood, str):
        return False
    return not world.is_lost(after(place, understood.deltas, world.boxes), turn)


def main(runs: list[Path]) -> None:
    for run in runs:
        found = sum((count(trial) for trial in load_trials(run / "evaluation")), Counter[str]())
        sys.stdout.write(
            f"{run.name}: {found['true']} of {found['notes']} notes true; {found['back']} episodes came back to a "
            f"place where the level was lost: {found['same']} with the same moves there, {found['other']} with others, "
            f"of which {found['won']} won; {found['heeded']} did what a note says, and of {found['instead']} such "
            f"notes {found['sound']} were sound; of {found['again']} notes on a place that had one, "
            f"{found['spent']} say what has lost there\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    main(parser.parse_args().runs)
