"""ALFWorld told shortly: the same game as in TextWorld's words, and memory that says where things are."""

from __future__ import annotations

import random

import pytest

import mulligan
from mulligan.envs import registry
from mulligan.envs.alfworld.env import ALFWorld
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.views import Cells
from mulligan.envs.alfworld.world import KINDS, TOGGLED, Kind
from mulligan.errors import StopReason
from mulligan.models.nano import nano_tokenizer
from mulligan.policy.scripted import ExpertPolicy
from mulligan.training.resolve import resolve
from mulligan.types import Completion, Episode, Turn

SHORT = ("compact", "cells")
SMALL = {"view": "cells", "places": 8, "plan": 6, "turns": 8}


def env(seed: int, **params: object) -> ALFWorld:
    made = mulligan.make("alfworld", seed, params=params)
    assert isinstance(made, ALFWorld)
    return made


def act(command: str) -> str:
    return f"<action>{command}</action>"


def play(world: ALFWorld, *actions: str) -> tuple[list[str], Episode]:
    """What was shown, and the episode as the runner records it."""
    shown, turns, won = [world.reset()], [], False
    for action in actions:
        step = world.step(act(action))
        turns.append(Turn(shown[-1], Completion(act(action)), step.reward, step.valid, "", step.feedback))
        shown.append(step.observation)
        won = step.won
    return shown, Episode(0, tuple(turns), shown[-1], StopReason.WON if won else StopReason.TURN_LIMIT)


@pytest.mark.parametrize("view", SHORT)
@pytest.mark.parametrize("kind", ["train", "ood"])
def test_keeps_the_contract(view: str, kind: str) -> None:
    mulligan.check_env("alfworld", params={"view": view, "kind": kind})


@pytest.mark.parametrize("view", SHORT)
@pytest.mark.parametrize("kind", KINDS)
def test_the_game_is_the_same_in_every_view(view: str, kind: Kind) -> None:
    """Whatever is played in a short view leads where the engine's own commands lead in TextWorld's words."""
    for seed in range(5):
        short, plain, rng = env(seed, kind=kind, view=view), env(seed, kind=kind), random.Random(seed)
        short.reset()
        plain.reset()
        player = short.player("expert", rng, 0.6, 0.0)
        for _ in range(30):
            action = player.act()
            command = short.view.read(short.game, action.removeprefix("<action>").removesuffix("</action>"))
            got, wanted = short.step(action), plain.step(act(command))
            assert got._replace(observation="") == wanted._replace(observation="")
            assert got.valid
            if got.done:
                break


@pytest.mark.parametrize("kind", KINDS)
def test_every_plan_can_be_said_in_cells(kind: Kind) -> None:
    for seed in range(8):
        world = env(seed, kind=kind, view="cells")
        world.reset()
        steps = plan(world.game)
        assert steps is not None
        for step in steps:
            action = world.view.write(world.game, step)
            assert act(action) in world.legal()
            won = world.step(act(action)).won
        assert won


def test_compact_answers_in_a_few_words() -> None:
    shown, episode = play(env(2, kind="heat", view="compact"), "go to fridge 1", "open fridge 1", "go to countertop 1")
    assert shown == [
        "You see coffeemachine 1, countertop 2, countertop 1, diningtable 1, drawer 1, fridge 1, garbagecan 1, "
        "microwave 1, sinkbasin 1, stoveburner 1.\nTask: heat some apple and put it in fridge.",
        "fridge 1: closed",
        "fridge 1: empty",
        "countertop 1: butterknife 2, fork 1",
    ]
    world = env(2, kind="heat", view="compact")
    assert world.digest(episode) == "not in fridge 1, countertop 1"
    shown, _ = play(world, "go to countertop 1", "take fork 1 from countertop 1", "inventory", "dance")
    assert shown[2:] == ["ok", "You are carrying: a fork 1.", "Nothing happens."]


def test_cells_tell_one_word_a_fact() -> None:
    """A hand-made walk through one game: searched in vain, found, heated and put away."""
    world = env(3, kind="heat", **SMALL)
    steps = plan(world.game)
    assert steps is not None
    go, take, go_heat, heat, go_put, put = [step.split(" ")[0] for step in steps]
    assert (go, take, go_heat, heat, go_put, put) == ("go", "take", "go", "heat", "go", "move")
    view = world.view
    assert isinstance(view, Cells)
    source, target = (view.write(world.game, steps[number]) for number in (0, 4))
    shown, episode = play(world, source, "take", "h1", "do", target, "put")
    assert shown[0].startswith(f"do h1 put {target}")
    assert shown[0].split("\n")[1].split() == list(view.names)
    assert shown[1:] == [f"{source}=1", f"{source}=0", "closed", "ok", f"{target}=0", f"{target}=1"]
    assert episode.won
    assert world.digest(episode) == f"{source}=ok {target}=0"
    assert world.reflect(episode) == f"<reflection>{source}=ok {target}=0</reflection>"


def test_cells_name_the_lamp_and_both_things() -> None:
    for seed in range(6):
        look, two = env(seed, kind="look", view="cells"), env(seed, kind="pick2", view="cells")
        assert look.reset().startswith("do *\n")
        assert two.reset().startswith("put two ")
        lamp = next(
            r for r, held in enumerate(look.world.inside) if any(look.world.abilities[o] & TOGGLED for o in held)
        )
        assert isinstance(look.view, Cells)
        assert f"{look.view.names[lamp]}=*" in look.step(act(look.view.names[lamp])).observation.split()


@pytest.mark.parametrize("view", SHORT)
def test_memory_tells_where_things_are_and_nothing_that_was_not_seen(view: str) -> None:
    for seed in range(12):
        world = env(seed, view=view)
        player = world.player("expert", random.Random(seed), 1.0, 0.0)
        world.reset()
        turns = []
        for _ in range(world.task.turns):
            reply = player.act()
            step = world.step(reply)
            turns.append(Turn("", Completion(reply), step.reward, step.valid, step.state_key))
            if step.done:
                break
        seen = world.game.seen
        digest = world.digest(Episode(0, tuple(turns), "", StopReason.TURN_LIMIT))
        names = world.view.names if isinstance(world.view, Cells) else world.world.r_names
        mentioned = {
            r for r, name in enumerate(names) if f"{name} " in f"{digest} ".replace("=", " ").replace(",", " ")
        }
        assert mentioned <= seen
        holders = {r for r in seen if world.world.goal_objects.intersection(world.world.inside[r])}
        for r in holders:
            assert f"{names[r]}=ok" in digest or f"from {names[r]}" in digest


def test_recall_pays_in_a_small_house() -> None:
    def solved(policy: ExpertPolicy) -> list[float]:
        return mulligan.evaluate("alfworld", policy, tasks=30, episodes=2, memory="history", params=SMALL).main.p

    searching, recalling = solved(ExpertPolicy()), solved(ExpertPolicy(recall=1.0))
    assert searching[0] < 0.6
    assert recalling[1] > searching[1] + 0.2
    assert solved(ExpertPolicy(omniscient=True))[0] == 1.0


def test_games_that_look_alike_in_cells_are_one_world() -> None:
    keys = [env(seed, **SMALL).world_key() for seed in range(150)]
    games = {env(seed, **SMALL).world.name for seed in range(150)}
    assert len(games) == 150
    assert len(set(keys)) < 150
    # "do h1 put b1", cells e1 e2 d1 f1 h1 b1 g1 g2; a wanted thing lies in one e and in h1
    assert keys[0] == "one: bp d e e+ f g g hd+"


def test_the_preset_needs_one_token_a_command() -> None:
    config = resolve("cpu-alfworld")
    assert config.trial.sampling.max_tokens == 1
    tokenizer = nano_tokenizer()
    for seed in range(15):
        world = registry.build(mulligan.make_task("alfworld", seed, params=config.task.params))
        assert isinstance(world, ALFWorld)
        rng = random.Random(seed)
        world.reset()
        for _ in range(8):
            replies = world.legal()
            for reply in replies:
                action = reply.removeprefix("<action>").removesuffix("</action>")
                assert len(tokenizer(action)["input_ids"]) == 1, action
            if world.step(rng.choice(replies)).done:
                break
