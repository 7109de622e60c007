"""Sokoban's hasty player: one box at a time, the same mistakes again."""

from __future__ import annotations

import random
import re

import pytest

from mulligan import evaluate
from mulligan.envs.registry import build, make_task
from mulligan.envs.sokoban.env import Sokoban
from mulligan.envs.sokoban.player import one_box
from mulligan.errors import UnknownName
from mulligan.players import player_from
from mulligan.policy.scripted import ExpertPolicy
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Trial
from sokoban_worlds import reflection

LEVELS = 60


@pytest.mark.parametrize(
    ("row", "moves"),
    [
        ("#P_X_O_#", "rrr"),  # a step to the box, two pushes
        ("#P_*_O_#", ""),  # every box is home
        ("#X_P_XO#", "rr"),  # the left box is stuck at the wall: the right one, a step and a push
        ("#O__XP_XO#", "rr"),  # three pushes to the left, or a step and a push to the right
        ("#PXX_O_O#", "rrr"),  # in each other's way, so as if the other were not there
    ],
)
def test_the_way_of_one_box(row: str, moves: str):
    wall = "#" * len(row)
    assert one_box(len(row), wall + row + wall) == moves


def worlds() -> list[Sokoban]:
    made = [build(make_task("sokoban", seed, lost="ends")) for seed in range(LEVELS)]
    return [world for world in made if isinstance(world, Sokoban)]


def first_replies(world: Sokoban, kind: str) -> list[str]:
    """What the player at skill 0 does first in three episodes of a trial."""
    player, said = world.player(kind, random.Random(1), 0.0, 0.0), list[str]()
    for _ in range(3):
        world.reset()
        said.append(player.act())
        player.see(world.step(said[-1]))
    return said


def test_its_mistakes_are_made_again_and_random_ones_are_not():
    again = {kind: sum(len(set(first_replies(world, kind))) == 1 for world in worlds()) for kind in ("hasty", "expert")}
    # three hasty replies: 0.9³ = 0.73 of the levels, 44 of 60; three random ones of 84: hardly any
    assert again["hasty"] > 30
    assert again["expert"] < 3


def test_it_is_mediocre():
    def first_attempts(policy: str) -> float:
        options = {"tasks": LEVELS, "episodes": 1, "controls": (), "room": False}
        return evaluate("sokoban", policy, params={"lost": "ends"}, **options).main.p[0]  # type: ignore[arg-type]

    thoughtless, hasty, thoughtful = (first_attempts(policy) for policy in ("expert:0", "hasty:0", "hasty:1"))
    assert thoughtless < 0.2 < 0.4 < hasty < 0.9
    assert thoughtful == 1.0


def test_it_profits_from_what_it_remembers_and_most_where_every_loss_is_seen():
    def within_three(policy: str, lost: str) -> float:
        options = {"tasks": 100, "controls": (), "room": False, "memory": "history"}
        return evaluate("sokoban", policy, params={"lost": lost}, **options).main.p[-1]  # type: ignore[arg-type]

    careless, careful, warned = (
        within_three(*each) for each in (("hasty:0.1:0", "ends"), ("hasty:0.1:1", "ends"), ("hasty:0.1:1", "hopeless"))
    )
    assert careless + 0.06 < careful < warned


def test_a_world_without_one_says_whom_it_has():
    with pytest.raises(UnknownName, match=r"'hasty'.*expert, mixed, omniscient"):
        evaluate("minesweeper", player_from("hasty:0.5"), tasks=1, room=False)


def lost_notes(trial: Trial) -> list[tuple[str, str, str]]:
    """Of the episodes that were lost: the place, what to play instead, what lost it, as the notes have them."""
    texts = [episode.reflection.text for episode in trial.episodes if episode.reflection is not None]
    found = [re.fullmatch(r"(boxes .*\nyou .*)\n(.*)\n(.*): lost", text) for text in texts]
    return [(match[1], match[2], match[3]) for match in found if match is not None]


def test_doubtful_advice_loses_at_times_and_is_then_not_given_again():
    """What the solver would play is never wrong: notes that only say that teach to copy advice that has lost."""
    tried = 0
    for seed in range(80):
        task = make_task("sokoban", seed, view="cells", lost="hopeless", advice="doubtful")
        trial = run_trial_sync(task, ExpertPolicy(0.0, 1.0, kind="hasty"), episodes=3, memory="reflection")
        known: dict[str, list[tuple[str, str]]] = {}
        for place, instead, lost in lost_notes(trial):
            before = known.setdefault(place, [])
            if before:
                assert lost == before[-1][0], "it remembers always, and does what the last note says"
                tried += 1
            before.append((instead, lost))
            assert instead not in [moves for _, moves in before]
    assert tried > 5


def test_the_solvers_advice_is_left_as_it_is():
    for seed in range(20):
        task = make_task("sokoban", seed, view="cells", lost="hopeless")
        trial = run_trial_sync(task, ExpertPolicy(0.0, 0.2, kind="hasty"), episodes=2, memory="reflection")
        world = build(task)
        assert isinstance(world, Sokoban)
        for episode in trial.episodes:
            assert episode.reflection is None or episode.reflection.text in reflection(world, episode)
