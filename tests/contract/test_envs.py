"""Every environment keeps the contract, and the contract notices those that do not."""

from __future__ import annotations

import importlib.metadata
import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import mulligan
from mulligan.envs import registry
from mulligan.envs.base import Env, action_text
from mulligan.envs.check import garbage
from mulligan.errors import ContractBroken, UnknownName, UsageError
from mulligan.policy.scripted import ExpertPolicy
from mulligan.types import Step, Task

ROOT = Path(__file__).parents[2]
EXAMPLE = f"{ROOT / 'examples' / 'my_env.py'}:GuessNumber"
CASES = [
    ("minesweeper", {}),
    ("minesweeper", {"view": "compact", "rows": 4, "cols": 5}),
    ("minesweeper", {"rows": 12, "cols": 9, "mines": 20, "turns": 30}),
    ("sokoban", {}),
    ("sokoban", {"boxes": 1, "moves": 1, "turns": 20}),
    ("sokoban", {"view": "cells", "lost": "ends"}),
    ("sokoban", {"lost": "hopeless"}),
    ("sokoban", {"sight": 1, "lost": "ends"}),
    ("sokoban", {"sight": 1, "view": "cells", "lost": "hopeless"}),
    ("sokoban", {"sight": 2, "rows": 8, "cols": 7, "turns": 10}),
    ("tictactoe", {"opponent": "random"}),
    ("tictactoe", {"opponent": "mcts:20"}),
    ("tictactoe", {"opponent": "minimax"}),
    ("tictactoe", {"opponent": "preferred,random>minimax"}),
    ("kuhn", {"opponent": "random"}),
    ("kuhn", {"opponent": "soft-aggressive"}),
    ("kuhn", {"opponent": "conservative,intermediate>aggressive"}),
    ("kuhn", {"opponent": "cfr"}),
    ("kuhn", {"opponent": "intermediate,cfr", "hands": 3}),
    ("leduc", {"opponent": "caller,maniac,rock,bluffer>random"}),
    ("leduc", {"view": "compact", "opponent": "seen:5,drawn"}),
    ("alfworld", {}),
    ("alfworld", {"kind": "all", "commands": True}),
    ("alfworld", {"kind": "all", "view": "compact", "rooms": "unseen"}),
    ("alfworld", {"kind": "all", "view": "cells"}),
    ("webshop", {"view": "compact", "pays": "success"}),
    ("webshop", {"catalogue": "tiny", "view": "compact", "products": 12, "world": -1}),
    ("webshop", {"products": 300}),
    ("bandit", {}),
    ("expedition", {"doors": "4-24"}),
    ("expedition", {"world": "lookout", "view": "compact"}),
    ("expedition", {"world": "toolbox"}),
    ("expedition", {"world": "camp", "drift": 0.3, "words": "unseen"}),
    ("expedition", {"world": "camp", "view": "compact"}),
    ("rps", {}),
    ("rps", {"view": "compact", "opponent": "unseen", "throws": 25}),
    ("dilemma", {}),
    ("dilemma", {"view": "compact", "opponent": "unseen"}),
    (EXAMPLE, {}),
]


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda value: str(value).rpartition("/")[2])
def test_keeps_the_contract(name, params):
    mulligan.check_env(name, params=params)


@pytest.mark.parametrize("name", registry.names())
def test_every_environment_says_what_it_is(name):
    spec = registry.spec(name)
    env = registry.make(name, 3)
    assert isinstance(env, Env)
    assert spec.summary.endswith(".")
    assert "<action>" in env.rules()
    assert env.task.task_class.split("/")[0] == name
    for kind in ("expert", "omniscient"):
        env.reset()
        player = env.player(kind, random.Random(0), 1.0, 0.0)
        assert env.step(player.act()).valid


def test_a_task_that_is_older_than_a_parameter_can_still_be_played():
    """What was recorded stays readable when an environment learns something new."""
    task = registry.make_task("sokoban", 3, boxes=1)
    old = replace(task, params=tuple((name, value) for name, value in task.params if name != "lost"))
    world = registry.build(old)
    assert world.task == task
    assert world.reset() == registry.build(task).reset()


def test_the_example_is_short():
    assert len((ROOT / "examples" / "my_env.py").read_text().splitlines()) <= 40


class Fine:
    """A world that keeps the contract."""

    turns: ClassVar[int] = 4

    def __init__(self, task: Task) -> None:
        self.task = task
        self.total = 0

    def rules(self) -> str:
        return "<action>1</action> or <action>2</action>"

    def reset(self, chance: int = 0) -> str:
        self.total = 0
        return "0"

    def legal(self) -> list[str]:
        return ["<action>1</action>", "<action>2</action>"]

    def step(self, reply: str) -> Step:
        action = action_text(reply)
        if action not in ("1", "2"):
            return Step(str(self.total), valid=False, state_key=str(self.total))
        self.total += int(action)
        return Step(
            str(self.total), float(self.total >= 5), self.total >= 5, self.total >= 5, state_key=str(self.total)
        )


class Forgetful(Fine):
    """Draws its start anew each time."""

    luck = itertools.count()

    def reset(self, chance: int = 0) -> str:
        super().reset()
        return str(next(self.luck))


class Leaking(Fine):
    """Keeps something of the last episode."""

    def reset(self, chance: int = 0) -> str:
        return "0"


class Punishing(Fine):
    """Moves on when the reply is invalid."""

    def step(self, reply: str) -> Step:
        step = super().step(reply)
        if not step.valid:
            self.total += 1
        return step


class Brittle(Fine):
    """Raises on what is not a number."""

    def step(self, reply: str) -> Step:
        int(action_text(reply) or 0)
        return super().step(reply)


class Infinite(Fine):
    """Pays without bound."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(reward=float("inf"))


class Untyped(Fine):
    """Answers with a tuple."""

    def step(self, reply: str):  # type: ignore[no-untyped-def]
        return tuple(super().step(reply))


class Unfinished(Fine):
    """Won, but goes on."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(done=False)


class Careless(Fine):
    """Does not keep its task."""

    def __init__(self, task: Task) -> None:
        self.total = 0


class Taskless(Fine):
    """Cannot be told its task."""

    def __init__(self) -> None:
        self.total = 0


class Chanceless(Fine):
    """Always begins in the same way, and says so too early."""

    def reset(self) -> str:  # type: ignore[override]
        return super().reset()


class Lawless(Fine):
    """Has lost its list of moves."""

    def legal(self) -> list[str]:
        raise KeyError("moves")


class Unpaid(Fine):
    """Has forgotten what it pays."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(reward=None)  # type: ignore[arg-type]


class Quoting(Fine):
    """Pays in words."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(reward="1")  # type: ignore[arg-type]


class Numbered(Fine):
    """Lists its moves as numbers."""

    def legal(self) -> list[int]:  # type: ignore[override]
        return [1, 2]


class Counted(Fine):
    """Says how many moves there are."""

    def legal(self) -> int:  # type: ignore[override]
        return 2


class Blank(Fine):
    """Shows nothing."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(observation=None)  # type: ignore[arg-type]


class Showing(Fine):
    """Shows a number."""

    def step(self, reply: str) -> Step:
        return super().step(reply)._replace(observation=self.total)  # type: ignore[arg-type]


class Misleading(Fine):
    """Lists what it does not take."""

    def legal(self) -> list[str]:
        return ["<action>3</action>"]


class Silent(Fine):
    """Lists nothing."""

    def legal(self) -> list[str]:
        return []


class Mute(Fine):
    """Lists less than nothing."""

    def legal(self) -> None:  # type: ignore[override]
        return None


class Alone(Fine):
    """Makes its player in a way of its own."""

    def player(self, kind: str) -> None:
        return None


class Crowded(Fine):
    """Names a player for the room that it does not have."""

    room_players: ClassVar[tuple[str, ...]] = ("hasty",)

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> None: ...


class Pointing(Fine):
    """Its player moves with numbers."""

    def player(self, *given: object) -> Pointing:
        return self

    def act(self) -> int:
        return 1


class Nameless(Pointing):
    """Says how many players it has, not what they are called."""

    players: ClassVar[int] = 2


class Standing(Fine):
    """Its player is somebody on the board; nothing is wrong with that."""

    players: ClassVar[int] = 2

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.player = (0, 0)


class Timeless(Fine):
    """Does not say how long it lasts."""

    turns: ClassVar[None] = None  # type: ignore[assignment]


class Halting(Fine):
    """Ends its trials in a way that there is not."""

    stop: ClassVar[str] = "sometimes"


class Misspelt(Fine):
    """Says how long it lasts, in other words."""

    max_turn: ClassVar[int] = 3


class Titled(Fine):
    """Has a title, which is this line."""

    titel: ClassVar[str] = "A world"


class Again(Fine):
    """Says how its trials go, and has values of its own."""

    stop: ClassVar[str] = "never"
    restart: ClassVar[str] = "fresh"
    words: ClassVar[tuple[str, ...]] = ("one", "two")


class Listed(Fine):
    """Has parameters without names."""

    defaults: ClassVar[list[int]] = [1, 2]


@pytest.fixture
def named(monkeypatch):
    """Classes of this file as registered environments."""

    def register(kind: type) -> str:
        monkeypatch.setitem(registry.BUILTIN, kind.__name__, f"{__name__}:{kind.__name__}")
        monkeypatch.setattr(registry, "_load", lambda name: kind)
        return kind.__name__

    return register


def test_a_world_that_keeps_it(named):
    mulligan.check_env(named(Fine))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Forgetful, "two different beginnings"),
        (Leaking, "another transcript"),
        (Punishing, "invalid"),
        (Brittle, "raised ValueError"),
        (Infinite, "reward .*inf"),
        (Unpaid, "reward .*None"),
        (Quoting, "reward .*'1'"),
        (Numbered, r"Numbered, seed 0: legal\(\) .*\[1, 2\]"),
        (Counted, r"legal\(\) .*2"),
        (Blank, "observation .*None"),
        (Showing, r"observation .*\d"),
        (Misleading, r"legal\(\) .*'<action>3</action>'"),
        (Silent, r"legal\(\) .*\[\]"),
        (Mute, r"legal\(\) .*None"),
        (Alone, r"player 'expert', .*player\(kind, rng, skill, recall\).*TypeError"),
        (Nameless, r"players .*2"),
        (Crowded, r"room_players .*'hasty'"),
        (Pointing, r"act\(\) of 'expert' .*1"),
        (Untyped, "tuple"),
        (Unfinished, "won without being done"),
        (Careless, r"say self\.task = task"),
        (Taskless, r"__init__\(task\) raised TypeError"),
        (Chanceless, r"reset\(0\) raised TypeError"),
        (Lawless, r"legal\(\) raised KeyError"),
    ],
)
def test_broken_worlds_are_noticed(named, kind, complaint):
    with pytest.raises(ContractBroken, match=complaint):
        mulligan.check_env(named(kind))


def test_a_world_may_call_something_of_its_own_a_player(named):
    mulligan.check_env(named(Standing))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Timeless, "'Timeless': turns .*None"),
        (Listed, r"'Listed': defaults .*\[1, 2\]"),
        (Halting, "'Halting': stop .*'sometimes'"),
        (Misspelt, "'max_turn'.*'turns'"),
        (Titled, "'titel'.*docstring"),
    ],
)
def test_classes_that_say_impossible_things_of_themselves_are_told_so(named, kind, complaint):
    with pytest.raises(UsageError, match=complaint):
        mulligan.make_task(named(kind))


def test_a_class_may_say_how_its_trials_go():
    task = mulligan.make_task(Again)
    spec = registry.spec("Again")
    assert (task.env, task.task_class, spec.stop, spec.restart) == ("Again", "Again", "never", "fresh")
    trial = mulligan.run_trial_sync(task, lambda messages: "<action>2</action>", episodes=3, memory="none")
    assert [episode.won for episode in trial.episodes] == [True, True, True]


def test_a_class_is_an_environment_and_the_newest_of_a_name_counts():
    def define(start: str) -> type:
        @mulligan.register
        class Mine(Fine):
            def reset(self, chance: int = 0) -> str:
                super().reset()
                return start

        return Mine

    define("old")
    newest = define("new")
    assert "Mine" in registry.names()
    assert registry.environment_named(newest) == "Mine"
    assert mulligan.make("Mine").reset() == "new"
    assert mulligan.make(newest, 3).task == mulligan.make_task("Mine", 3)
    mulligan.check_env(newest)
    task = mulligan.make_task("Mine", 5, params={"turns": 2})
    assert (mulligan.make(task).task, task.turns) == (task, 2)
    with pytest.raises(UsageError):
        mulligan.make(task, 4)


def test_a_built_in_class_goes_by_its_name():
    assert registry.environment_named(type(mulligan.make("bandit"))) == "bandit"
    with pytest.raises(UsageError, match="built-in"):
        mulligan.register(type("bandit", (Fine,), {}))
    with pytest.raises(UsageError, match="3"):
        registry.environment_named(3)  # type: ignore[arg-type]


class Watched(Fine):
    """Its player notes what it is told."""

    timeout_reward: ClassVar[float] = -0.5
    told: ClassVar[list[Step]] = []

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Watched:
        return self

    def act(self) -> str:
        return "<action>1</action>"

    def see(self, step: Step) -> None:
        self.told.append(step)


def test_a_scripted_player_is_told_of_an_end_by_the_turn_limit():
    trial = mulligan.run_trial_sync(mulligan.make_task(Watched, params={"turns": 2}), ExpertPolicy(), episodes=2)
    assert [(step.done, step.reward) for step in Watched.told] == [(False, 0.0), (True, -0.5)] * 2
    assert [episode.reward for episode in trial.episodes] == [-0.5, -0.5]


def test_garbage_is_varied():
    noise = list(itertools.islice(garbage(random.Random(0)), 1000))
    assert max(map(len, noise)) >= 1_000_000
    assert len(set(noise)) > 750


def test_environments_of_other_packages_are_found(monkeypatch):
    point = importlib.metadata.EntryPoint("their-game", f"{__name__}:Fine", "mulligan.envs")
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda group, name=None: [point] if name in (None, "their-game") and group == "mulligan.envs" else [],
    )
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: Fine)
    registry._load.cache_clear()
    assert "their-game" in registry.names()
    assert isinstance(mulligan.make("their-game"), Fine)
    registry._load.cache_clear()


def test_files_that_hold_no_environment(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        mulligan.make("nowhere.py:Game")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(UsageError, match="cannot be imported"):
        mulligan.make(f"{broken}:Game")
    with pytest.raises(UnknownName, match="GuessNumber"):
        mulligan.make(EXAMPLE.replace("GuessNumber", "GuesNumber"))
    other = tmp_path / "other.py"
    other.write_text("class Thing: pass\n")
    with pytest.raises(UsageError, match="not an environment"):
        mulligan.make(f"{other}:Thing")


def test_a_file_without_a_class_is_answered_with_its_environments(tmp_path):
    file = tmp_path / "games.py"
    game = "    def rules(self): ...\n    def reset(self, chance=0): ...\n    def step(self, reply): ...\n"
    file.write_text(
        "from mulligan.envs.base import Env\nfrom mulligan.envs.bandit import Bandit\n"
        f"class First:\n{game}\nclass Second(First): ...\nclass Helper: ...\ndef step(): ...\n"
    )
    with pytest.raises(UsageError) as caught:
        mulligan.make(str(file))
    assert f"{file}:First or {file}:Second" in str(caught.value)
    (tmp_path / "other.py").write_text("class Thing: ...\n")
    with pytest.raises(UsageError, match="has no environment"):
        mulligan.make(str(tmp_path / "other.py"))
    with pytest.raises(UsageError, match=r"no file 'nowhere\.py'"):
        mulligan.make("nowhere.py")
