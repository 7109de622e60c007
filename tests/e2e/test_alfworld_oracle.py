"""The native ALFWorld engine against TextWorld itself: the same text, admissible commands and win, command by command.

Needs the extra ``alfworld-oracle``. TextWorld takes seconds for a game, so some games are compared by default; for
``ALFWORLD_ORACLE_GAMES=all`` (or a number) more are, which for 340 games takes about an hour on one core.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.envs import alfworld_games
from mulligan.envs.alfworld_game import NOTHING, Game
from mulligan.envs.alfworld_generate import make
from mulligan.envs.alfworld_goal import KINDS
from mulligan.envs.alfworld_oracle import Answer, Oracle, game_file, installed
from mulligan.envs.alfworld_pddl import read_problem, write_problem
from mulligan.envs.alfworld_plan import plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="TextWorld is not installed"),
    pytest.mark.filterwarnings("ignore"),
]
ROOT = Path(__file__).parents[2]
OFFICIAL = Path(os.environ.get("ALFWORLD_DATA", ROOT.parent / "shared" / "data" / "alfworld"))
COMMANDS = 50
PAIRS = (("take", "from"), ("move", "to"), ("heat", "with"), ("clean", "with"), ("cool", "with"), ("slice", "with"))
NONSENSE = (
    "",
    "dance",
    "go",
    "go to",
    "take from",
    "open",
    "look around",
    "[look]",
    "#look#",
    "{r}",
    "é漢",
    "Look",
    "i",
)


def commands(game: Game, seed: int) -> Iterator[str]:
    """A way to win, then random commands: two thirds admissible, the rest near misses and nonsense."""
    yield from plan(game) or ()
    rng = random.Random(seed)
    names = [*game.world.names, *game.world.r_names]
    earlier: list[str] = []
    for _ in range(COMMANDS):
        now = game.commands()
        earlier.extend(now)
        draw = rng.random()
        if draw < 0.67:  # verbs with equal chances, so that there is more than walking about
            verb = rng.choice(sorted({command.split()[0] for command in now}))
            yield rng.choice([command for command in now if command.split()[0] == verb])
        elif draw < 0.75:
            yield rng.choice(earlier)
        elif draw < 0.83:
            verb, word = rng.choice(PAIRS)
            yield f"{verb} {rng.choice(names)} {word} {rng.choice(names)}"
        elif draw < 0.9:
            command = rng.choice(now)
            yield rng.choice([f" {command} ", command.upper(), command.replace(" ", "  "), command[:-1]])
        else:
            yield rng.choice(NONSENSE)


def compare(name: str, problem: str, task: str, seed: int) -> int:
    """Play a game in both; returns the number of answers that were compared."""
    world = alfworld_games.build(read_problem(problem, name), task, name, name)
    game = Game(world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = Oracle(problem, task)
        try:
            assert Answer(world.intro(), game.commands(), game.won()) == oracle.reset(), name
            count = 1
            for command in commands(game, seed):
                said = game.play(command) or NOTHING
                assert Answer(said, game.commands(), game.won()) == oracle.step(command), (name, command)
                count += 1
        finally:
            oracle.close()
    return count


def chosen() -> list[int]:
    """Which of the official games to compare."""
    if not installed() or not OFFICIAL.exists():
        return []
    wanted = os.environ.get("ALFWORLD_ORACLE_GAMES", "6")
    total = len(alfworld_games.find(str(OFFICIAL)))
    count = total if wanted == "all" else min(int(wanted), total)
    return [number * total // count for number in range(count)]


@pytest.mark.parametrize("number", chosen())
def test_official_games_play_the_same(number: int) -> None:
    name, problem, task = alfworld_games.source(alfworld_games.find(str(OFFICIAL))[number])
    assert compare(name, problem, task, number) > COMMANDS


@pytest.mark.parametrize("kind", KINDS)
def test_generated_games_play_the_same(kind) -> None:  # type: ignore[no-untyped-def]
    problem, world = make(11, kind, 12, 12)
    assert compare(world.name, write_problem(problem), world.task, 11) > COMMANDS


def test_a_file_of_theirs_is_read(tmp_path: Path) -> None:
    """A game written with the package's own domain and grammar loads, and its task is found in the grammar."""
    problem, world = make(5, "cool", 8, 12)
    file = tmp_path / "game.tw-pddl"
    file.write_text(json.dumps(game_file(write_problem(problem), world.task)))
    loaded = alfworld_games.load(alfworld_games.find(str(file))[0])
    assert loaded.intro() == world.intro()
