"""ALFWorld as an environment: parameters, generated games, observations, memory, and the player's use of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import mulligan
import mulligan.rollout.tasksets
from mulligan.envs import registry
from mulligan.envs.alfworld.env import ALFWorld, read
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.generate import SHORTEST, generate
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import Kind
from mulligan.errors import ParameterError, StopReason, UnknownName, UsageError
from mulligan.models.nano import nano_tokenizer
from mulligan.models.renderer import Renderer
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.rollout.groups import Mixture
from mulligan.rollout.lengths import sampled_lengths
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Episode, Turn
from scripted_play import ScriptedPolicy

ROOT = Path(__file__).parents[3]
FROZEN = """\
-= Welcome to TextWorld, ALFRED! =-

You are in the middle of a room. Looking quickly around you, you see a coffeemachine 1, a countertop 2, \
a countertop 1, a diningtable 1, a drawer 1, a fridge 1, a garbagecan 1, a microwave 1, a sinkbasin 1, \
and a stoveburner 1.

Your task is to: heat some apple and put it in fridge."""
DIGEST = "seen countertop 1: butterknife 2, fork 1\ndid go to fridge 1; go to countertop 1; look"
OFFICIAL = Path(os.environ.get("ALFWORLD_DATA", ROOT / "no official games"))


def env(seed: int = 0, **params: object) -> ALFWorld:
    made = mulligan.make("alfworld", seed, params=params)
    assert isinstance(made, ALFWorld)
    return made


def act(command: str) -> str:
    return f"<action>{command}</action>"


def play(world: ALFWorld, *commands: str) -> Episode:
    """An episode of these commands, as the runner records it."""
    observation, turns, won = world.reset(), [], False
    for command in commands:
        step = world.step(act(command))
        turns.append(Turn(observation, Completion(act(command)), step.reward, step.valid, "", step.feedback))
        observation, won = step.observation, step.won
    return Episode(0, tuple(turns), observation, StopReason.WON if won else StopReason.TURN_LIMIT)


@pytest.mark.parametrize(
    "params", [{}, {"kind": "ood"}, {"commands": True, "turns": 30, "plan": 28, "places": 20}, {"spare": 1}]
)
def test_keeps_the_contract(params: dict[str, object]) -> None:
    mulligan.check_env("alfworld", params=params)


def test_the_seed_draws_the_kind_of_task() -> None:
    def kinds(**params: object) -> set[str]:
        return {mulligan.make_task("alfworld", seed, params=params).task_class for seed in range(60)}

    assert kinds() == {"alfworld/pick", "alfworld/look", "alfworld/clean", "alfworld/heat"}
    assert kinds(kind="ood") == {"alfworld/cool", "alfworld/pick2"}
    assert len(kinds(kind="all")) == 6
    assert kinds(kind="heat") == {"alfworld/heat"}
    assert kinds(kind="ood", plan=7) == {"alfworld/cool"}  # two objects take eight steps at least


@pytest.mark.parametrize("kind", list(SHORTEST))
def test_generated_games_are_winnable_with_turns_to_spare(kind: Kind) -> None:
    for seed in range(15):
        task = mulligan.make_task("alfworld", seed, params={"kind": kind})
        game = Game(generate(task.seed, kind, 10, 8))
        assert not game.won()
        steps = plan(game)
        assert steps is not None
        assert SHORTEST[kind] <= len(steps) <= task.turns - 2
        assert len(game.world.locations) == 10
        for step in steps:
            assert not game.won()
            assert game.play(step) is not None
        assert game.won()


def test_turns_that_follow_the_plan() -> None:
    """An episode has the turns of its game's plan, and `spare` more: whoever knows where all lies needs none."""
    for seed in range(20):
        task, usual = (mulligan.make_task("alfworld", seed, params=params) for params in ({"spare": 1}, {}))
        world = mulligan.make(task)
        assert isinstance(world, ALFWorld)
        assert world.world_key() == mulligan.make(usual).world_key()  # type: ignore[attr-defined]
        assert task.turns == len(plan(world.game) or []) + 1
        assert usual.turns == 10
        knowing = mulligan.make_task("alfworld", seed, params={"spare": 0})
        assert mulligan.run_trial_sync(knowing, ExpertPolicy(1.0, kind="omniscient"), episodes=1).solved_at == 0


def test_the_longest_game_decides_how_long_a_trial_may_get() -> None:
    params = {"spare": 1}
    turns = [mulligan.make_task("alfworld", seed, params=params).turns for seed in range(8)]
    assert turns[0] < max(turns)
    lengths = sampled_lengths(Mixture.parse("alfworld", params), TrialSettings(), Renderer(nano_tokenizer()))
    assert lengths["alfworld"].turns == max(turns)


def test_games_differ_and_repeat() -> None:
    tasks = [mulligan.make_task("alfworld", seed, params={"kind": "all"}) for seed in range(60)]
    names = [registry.build(task).world.name for task in tasks]  # type: ignore[attr-defined]
    assert len(set(names)) == 60
    generate.cache_clear()
    assert [registry.build(task).world.name for task in tasks] == names  # type: ignore[attr-defined]


@pytest.mark.parametrize("places", [8, 10])
def test_unseen_rooms_have_floor_plans_of_their_own(places: int) -> None:
    def plans(rooms: str) -> set[tuple[str, ...]]:
        tasks = [
            mulligan.make_task("alfworld", seed, params={"kind": "all", "rooms": rooms, "places": places, "plan": 8})
            for seed in range(60)
        ]
        worlds = [registry.build(task).world for task in tasks]  # type: ignore[attr-defined]
        for task, world in zip(tasks, worlds, strict=True):
            steps = plan(Game(world))
            assert steps is not None
            assert len(steps) <= task.turns - 2
        return {tuple(sorted(world.r_types)) for world in worlds}

    seen, unseen, every = plans("seen"), plans("unseen"), plans("all")
    assert not seen & unseen
    assert len(seen) > len(unseen) > 10  # a fifth of all floor plans
    assert every & seen
    assert every & unseen
    assert plans("seen") == seen


def test_rooms_of_every_size_can_be_had() -> None:
    """A room that has everything is one floor plan alone: it is a seen one, and there is no unseen one."""
    for places in (*range(6, 24), 30, 40):
        for kind in SHORTEST:
            assert len(generate(0, kind, places, 12, "seen").locations) == places
    assert generate(0, "heat", 19, 12, "unseen") is not None
    with pytest.raises(ParameterError, match="places=20"):
        generate(0, "heat", 20, 12, "unseen")


def test_a_frozen_game() -> None:
    """A change here changes every frozen task set."""
    assert env(2, kind="heat").reset() == FROZEN


@pytest.mark.parametrize(
    ("params", "error", "names"),
    [
        ({"kind": "fry"}, UnknownName, "kind .*fry"),
        ({"places": 3}, ParameterError, "places .*6 to 40.*3"),
        ({"plan": 5, "kind": "heat"}, ParameterError, "plan .*6.*heat.*5"),
        ({"plan": 9}, ParameterError, "turns .*11.*plan=9.*10"),
        ({"game": 3}, ParameterError, "game .*3"),
        ({"spare": -2}, ParameterError, "spare .*-1 to 99.*-2"),
        ({"games": "nowhere"}, UsageError, "nowhere"),
        ({"view": "board"}, UnknownName, "view .*board"),
        ({"rooms": "new"}, UnknownName, "rooms .*new"),
        ({"games": "valid_seen", "rooms": "unseen"}, ParameterError, "rooms=unseen .*valid_unseen"),
    ],
)
def test_impossible_parameters(params: dict[str, object], error: type[Exception], names: str) -> None:
    with pytest.raises(error, match=names):
        mulligan.make_task("alfworld", 0, params=params)


def test_replies_are_read_kindly() -> None:
    assert read("I go there. <action> Go  to\nDesk 1. </action>") == "go to desk 1"
    assert read("go to desk 1") is None
    assert read(act("x" * 300)) is None
    assert read(act("")) is None


def test_a_turn_of_play() -> None:
    world = env(2, kind="heat")
    world.reset()
    steps = plan(world.game)
    assert steps is not None
    before = world.step(act("dance"))
    assert (before.observation, before.valid, before.feedback) == ("Nothing happens.", False, "")
    unread = world.step("dance")
    assert not unread.valid
    assert unread.feedback
    given = [world.step(act(step)) for step in steps]
    assert [step.valid for step in given] == [True] * len(steps)
    assert [step.reward for step in given] == [0.0] * (len(steps) - 1) + [1.0]
    assert given[-1].done
    assert given[-1].won
    assert sum(step.shaping for step in given) == pytest.approx(1.0)  # taking, heating and placing: a third each
    assert sorted({round(step.shaping, 3) for step in given}) == [0.0, 0.333]
    assert world.legal() == []
    assert not world.step(act("look")).valid


def test_admissible_commands_are_shown_where_asked_for() -> None:
    plain, shown = env(2, kind="heat"), env(2, kind="heat", commands=True)
    first = shown.reset()
    assert first == plain.reset() + "\nCommands: " + ", ".join(shown.game.commands())
    for command in ("go to fridge 1", "dance"):
        text, more = plain.step(act(command)).observation, shown.step(act(command)).observation
        assert more == f"{text}\nCommands: {', '.join(shown.game.commands())}"


def test_the_digest_tells_what_was_seen_and_done() -> None:
    world = env(2, kind="heat")
    closed, counter = "fridge 1", "countertop 1"
    episode = play(world, f"go to {closed}", "dance", f"go to {counter}", "look", f"open {closed}")
    assert world.digest(episode) == DIGEST
    assert world.digest(play(world)) == "seen nothing\ndid nothing"


def test_the_reflection_is_true() -> None:
    for seed in range(12):
        world = env(seed)
        player = world.player("expert", random.Random(seed), 1.0, 0.0)
        commands: list[str] = []
        world.reset()
        for _ in range(world.task.turns):
            commands.append(player.act().removeprefix("<action>").removesuffix("</action>"))
            step = world.step(act(commands[-1]))
            player.see(step)
            if step.done:
                break
        text = world.reflect(play(world, *commands))
        assert text.startswith("<reflection>\n")
        fields = dict(line.split(": ", 1) for line in text.splitlines()[1:-1])
        game = Game(world.world)
        for fact in fields["env_answer"].split("; "):
            thing, was_in, receptacle = fact.partition(" was in ")
            if was_in:
                number = game.world.r_numbers[receptacle]
                assert game.world.numbers[thing] in game.inside[number]
        if not fields["plan"].startswith("search "):  # then it is a plan that wins
            for command in fields["plan"].split(", "):
                assert game.play(command)
            assert game.won()


def test_the_player_gains_by_recall() -> None:
    def solved(policy: object) -> list[float]:
        return mulligan.evaluate("alfworld", policy, tasks=24, episodes=2, memory="history").main.p  # type: ignore[arg-type]

    searching, recalling = solved(ExpertPolicy()), solved(ExpertPolicy(recall=1.0))
    assert searching[0] == recalling[0]  # the first time there is nothing to remember
    assert 0.1 < searching[0] < 0.7
    assert recalling[1] > searching[1] + 0.15
    assert solved(ExpertPolicy(omniscient=True)) == [1.0, 1.0]
    assert solved(RandomPolicy())[0] < 0.1


def test_the_searcher_does_not_know_what_it_has_not_seen() -> None:
    """In two worlds that differ only in what is out of sight, it does the same until it sees the difference."""
    world = env(2, kind="heat")
    world.reset()
    player = world.player("expert", random.Random(0), 1.0, 0.0)
    first = player.act()
    start = world.world.inside
    world.world.inside = tuple(reversed(start))
    try:
        world.reset()
        assert world.player("expert", random.Random(0), 1.0, 0.0).act() == first
    finally:
        world.world.inside = start


def test_unskilled_play_is_random_but_legal() -> None:
    world = env(1)
    world.reset()
    player = world.player("expert", random.Random(0), 0.0, 0.0)
    assert len({player.act() for _ in range(50)}) > 5
    assert all(player.act() in world.legal() for _ in range(50))


def test_a_trial_through_the_runner() -> None:
    task = mulligan.make_task("alfworld", 2, params={"kind": "heat"})
    steps = plan(Game(generate(2, "heat", 10, 8)))
    assert steps is not None
    trial = mulligan.run_trial_sync(task, ScriptedPolicy([*map(act, steps)]), episodes=2, memory="history")
    assert trial.solved_at == 0
    assert len(trial.episodes[0].turns) == len(steps)


@pytest.mark.skipif(not OFFICIAL.exists(), reason="no official ALFWorld games here")
def test_official_games_as_an_evaluation_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(OFFICIAL))
    task = mulligan.make_task("alfworld", 0, params={"games": "valid_seen", "kind": "all", "plan": 28, "turns": 30})
    world = registry.build(task)
    assert isinstance(world, ALFWorld)
    assert "/trial_" in world.task_key()
    assert world.seed_set() == "eval"
    assert env().seed_set() is None
    games = mulligan.rollout.tasksets.task_set("alfworld", 100, games="valid_seen", kind="all", plan=28, turns=30)
    assert len({each.integer("game") for each in games}) == 100  # of all the official set, not of a share
    again = mulligan.make_task(
        "alfworld",
        0,
        params={"games": "valid_seen", "game": task.integer("game"), "plan": 28, "turns": 30, "kind": "all"},
    )
    assert again == task
    result = mulligan.evaluate(
        "alfworld", ExpertPolicy(omniscient=True), tasks=10, episodes=1, params={"games": "valid_seen", "kind": "all"}
    )
    assert result.main.p == [1.0]


def test_impossible_room_is_a_clear_error() -> None:
    with pytest.raises(ParameterError, match="kind=pick2"):
        generate(0, "pick2", 10, 7)


def test_the_benchmark_measures_generated_games(monkeypatch: pytest.MonkeyPatch) -> None:
    from mulligan.app.bench import alfworld as bench

    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setattr(bench, "GAMES", 2)
    monkeypatch.setattr(bench, "STEPS", 20)
    (row,) = bench.run().rows
    assert row.pop("games") == "generated"
    assert all(isinstance(value, float) and value > 0 for value in row.values())
