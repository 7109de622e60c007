"""The native ALFWorld engine against TextWorld itself: the same text, admissible commands, win and end.

Needs the extra ``alfworld-oracle``, which `make test-slow` keeps in an environment of its own. Generated games are
always compared, and a sample of the official ones where ALFWORLD_DATA names them; `make test-oracle` compares all.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.games import DATA, find, load
from mulligan.envs.alfworld.generate import make
from mulligan.envs.alfworld.pddl import read_problem, write_problem
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import KINDS, Kind, World, readable_names
from oracle.textworld_games import (
    FROM_THE_START,
    Source,
    Tally,
    commands,
    compare_all,
    game_file,
    is_installed,
    play_natively,
    sources,
    tally,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_installed(), reason="TextWorld is not installed")]
OFFICIAL = 24
CORES = os.cpu_count() or 1


def generated(seed: int, kind: Kind, places: int = 12) -> tuple[Source, World]:
    problem, world = make(seed, kind, places, 12)
    return Source(world.name, write_problem(problem), world.task), world


def official() -> list[Source]:
    """Some of the official games, spread over all of them; none where there are none."""
    games = list(sources("official")) if os.environ.get(DATA) else []
    return [games[number * len(games) // OFFICIAL] for number in range(OFFICIAL)] if games else []


def check(tallies: list[Tally]) -> None:
    """Every game was won on the way, much was compared, and nothing differed."""
    assert [f"{each.name}: {each.first}" for each in tallies if any(each.different)] == []
    assert [each.name for each in tallies if not each.won] == []
    assert all(each.answers > each.random > FROM_THE_START for each in tallies)


def test_generated_games_play_the_same() -> None:
    games = [generated(seed, kind, places)[0] for kind in KINDS for seed, places in ((11, 12), (12, 20))]
    tallies = list(compare_all(games, CORES))
    assert len(tallies) == 12
    check(tallies)


@pytest.mark.skipif(not os.environ.get(DATA), reason="ALFWORLD_DATA names no official games")
def test_official_games_play_the_same() -> None:
    tallies = list(compare_all(official(), CORES))
    assert len(tallies) == OFFICIAL
    check(tallies)


def test_quickened_textworld_answers_as_it_does_otherwise() -> None:
    games = [generated(3, "heat")[0], generated(4, "look", 20)[0], *official()[::12]]
    check(list(compare_all(games, CORES, quick=False)))


def test_a_difference_would_be_found() -> None:
    """The comparison itself: other answers are counted, each in the column of what differs."""
    game, world = generated(6, "clean")
    script = commands(world, game)
    answers = play_natively(world, script)
    other = list(answers)
    other[0] = other[0]._replace(text="Hello.")
    other[1] = other[1]._replace(commands=())
    other[2] = other[2]._replace(won=not other[2].won, text="")
    other[3] = other[3]._replace(ended=not other[3].ended)
    counted = tally(game, script, answers, other)
    assert counted.different == (2, 1, 1, 1)
    assert counted.first.startswith("'(reset)'")
    assert counted.answers == len(script[0]) + len(script[1]) + 2


def test_a_tree_of_their_files_is_read_and_plays_the_same(tmp_path: Path) -> None:
    """Files with the package's own domain and grammar; the walkthrough calls things by their ids, as some files do."""
    game, world = generated(5, "cool", 8)
    facts = read_problem(game.problem, game.name).facts
    names = readable_names(sorted({argument for fact in facts for argument in fact[1:]}))
    steps = plan(Game(world))
    assert steps
    mangled = steps
    for each, name in sorted(names.items()):
        mangled = [re.sub(rf"\b{re.escape(name)}\b", each, step) for step in mangled]
    assert any("_bar_" in step for step in mangled)
    folder = tmp_path / "json_2.1.1" / "valid_seen" / "pick_cool_then_place_in_recep-Mug-None-Shelf-1" / "trial_T1"
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").write_text(json.dumps({**game_file(game), "walkthrough": mangled}))
    assert load(find(str(tmp_path))[0]).intro() == world.intro()
    tallies = list(compare_all(sources(str(tmp_path)), 1))
    assert [each.walkthrough for each in tallies] == [True]
    check(tallies)
