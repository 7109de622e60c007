"""ALFWorld: household tasks in text, on a native engine that answers as TextWorld does.

Games are generated from the seed, or are the official ones (`mulligan.envs.alfworld_games`). The world is only partly
seen: what lies in a receptacle shows when one stands before it, and opens it where it has a door. So a first episode
is spent on searching, and a second one can profit from what the first one found.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, cast

from mulligan.envs import alfworld_games, alfworld_generate
from mulligan.envs.alfworld_game import COMMANDS, NOTHING, Game
from mulligan.envs.alfworld_goal import KINDS
from mulligan.envs.alfworld_plan import plan, progress
from mulligan.envs.alfworld_world import Kind, World, listed
from mulligan.envs.base import Player, action_text
from mulligan.errors import ParameterError, UnknownName
from mulligan.seeding import derive
from mulligan.types import Episode, ParamValue, Step, Task

SPARE = 2
"""Turns that a game's plan must leave over."""
_LONGEST_COMMAND = 200
_GROUPS: dict[str, tuple[Kind, ...]] = {
    "train": alfworld_generate.TRAINING,
    "ood": alfworld_generate.OUT_OF_DISTRIBUTION,
    "all": KINDS,
}
"""Names for several kinds of task; the seed draws one of them."""


class ALFWorld:
    """Carry out a household task in text: find things, clean, heat or cool them, and put them where they belong."""

    __slots__ = ("_done", "begun", "game", "show_commands", "task", "world")

    defaults: ClassVar[dict[str, ParamValue]] = {
        "games": "generated", "game": -1, "kind": "train", "plan": 8, "places": 10, "commands": False,
    }  # fmt: skip
    turns: ClassVar[int] = 10
    kind: ClassVar[str] = "solve"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.world = _world(task)
        self.show_commands = bool(task["commands"])
        self.game = Game(self.world)
        self.begun = 0
        """Episodes begun so far: a player beside the world tells by it that a new one began."""
        self._done = progress(self.game)

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters and fix the kind of task; an official game also gives its number."""
        name, games, longest, places = (
            str(params["kind"]),
            str(params["games"]),
            int(params["plan"]),
            int(params["places"]),
        )
        if name not in _GROUPS and name not in KINDS:
            raise UnknownName("kind of alfworld task", name, [*_GROUPS, *KINDS])
        kinds = _GROUPS.get(name) or (cast(Kind, name),)
        if games != "generated":
            number, world = alfworld_games.pick(games, int(params["game"]), seed, kinds, longest)
            return {**params, "game": number, "kind": world.goal.kind, "places": len(world.places)}
        if int(params["game"]) != -1:
            raise ParameterError(
                f"alfworld: game={params['game']} counts official games; generated ones go by the seed"
            )
        if not alfworld_generate.FEWEST <= places <= alfworld_generate.MOST:
            raise ParameterError(
                f"alfworld: places={places} cannot be; give {alfworld_generate.FEWEST} to {alfworld_generate.MOST}"
            )
        possible = [kind for kind in kinds if alfworld_generate.SHORTEST[kind] <= longest]
        if not possible:
            least = min(alfworld_generate.SHORTEST[kind] for kind in kinds)
            raise ParameterError(f"alfworld: plan={longest} steps are too few for kind={name!r}; give {least} or more")
        return {**params, "kind": possible[derive(seed, "alfworld kind") % len(possible)]}

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A game must be winnable with turns to spare."""
        longest = int(params["plan"])
        if longest + SPARE > turns:
            raise ParameterError(
                f"alfworld: plan={longest} leaves fewer than {SPARE} of turns={turns} to spare; "
                f"give turns={longest + SPARE} or plan={turns - SPARE}"
            )

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"alfworld/{params['kind']}"

    def seed_set(self) -> str | None:
        """The set of tasks that the games are for: those that were set apart for evaluation have no part for training.

        None where worlds are split by their names.
        """
        return "eval" if self.task.text("games") in ("valid_seen", "valid_unseen") else None

    def rules(self) -> str:
        return (
            "You are in a room with receptacles (places such as shelves, drawers, a fridge), and things in or on them. "
            "You see what a receptacle holds when you go to it; one with a door has to be opened first. You can carry "
            "one thing at a time. Things are cleaned with a sinkbasin, heated with a microwave and cooled with a "
            "fridge: hold the thing and stand before it. To look at a thing under a lamp, hold the thing and use the "
            "lamp.\n"
            f"The commands are: {', '.join(COMMANDS)}. Names have a number: desk 1. A command that cannot be carried "
            f'out is answered with "{NOTHING}"\n'
            "You win as soon as the task is done. Answer with one command: <action>go to desk 1</action>"
        )

    def reset(self, chance: int = 0) -> str:
        self.game.reset()
        self.begun += 1
        self._done = progress(self.game)
        return self._shown(self.world.intro())

    def step(self, reply: str) -> Step:
        game = self.game
        command = read(reply)
        if command is None:
            example = "<action>look</action>"
            return self._invalid(f"No command could be read from the answer; give one as in {example}.")
        if game.won():
            return self._invalid("The task is done already.")
        answer = game.play(command)
        if answer is None:
            return self._invalid("")
        before, self._done = self._done, progress(game)
        won = game.won()
        seen = answer if won else self._shown(answer)
        return Step(seen, float(won), won, won, True, game.key(), "", self._done - before)

    def legal(self) -> Sequence[str]:
        """The admissible commands; none once the task is done."""
        return [] if self.game.won() else [f"<action>{command}</action>" for command in self.game.commands()]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.alfworld_player import Searcher

        if kind not in ("expert", "omniscient"):
            raise UnknownName("player", kind, ("expert", "omniscient"))
        return Searcher(self, kind, rng, skill, recall)

    def world_key(self) -> str:
        return self.world.name

    def digest(self, episode: Episode) -> str:
        """What was seen where, and what was done."""
        story = replay(self.world, episode)
        seen = "; ".join(f"{self.world.r_names[r]}: {_held(self.world, objects)}" for r, objects in story.seen)
        did = "; ".join(story.played)
        return f"seen {seen or 'nothing'}\ndid {did or 'nothing'}"

    def reflect(self, episode: Episode) -> str:
        """Where the wanted things were, where there was nothing of use, and what follows."""
        world, story = self.world, replay(self.world, episode)
        wanted = world.goal_objects | set(world.lamps)
        found = [
            f"{world.names[o]} was in {world.r_names[r]}" for r, objects in story.seen for o in objects if o in wanted
        ]
        vain = [world.r_names[r] for r, objects in story.seen if not wanted.intersection(objects)]
        known = {r for r, _ in story.seen}
        steps = plan(Game(world), known)
        others = [name for r, name in enumerate(world.r_names) if r not in known and world.places[r] >= 0]
        ahead = ", ".join(steps) if steps else f"search {listed(others[:4])} next"
        facts = "; ".join([*found, f"nothing of use in {listed(vain)}"] if vain else found) or "nothing was found"
        return (
            "<reflection>\n"
            f"outcome: {'won' if episode.won else 'not won'}\n"
            f"env_answer: {facts}\n"
            f"error_category: {'none' if episode.won else 'out-of-turns'}\n"
            f"plan: {ahead}\n"
            "</reflection>"
        )

    def _shown(self, text: str) -> str:
        """An observation, with the admissible commands where the task asks for them."""
        return f"{text}\nCommands: {', '.join(self.game.commands())}" if self.show_commands else text

    def _invalid(self, why: str) -> Step:
        return Step(self._shown(NOTHING), valid=False, state_key=self.game.key(), feedback=why)


class Story(NamedTuple):
    """What an episode came to."""

    seen: list[tuple[int, tuple[int, ...]]]
    """Receptacles in the order in which they were first seen, with what they hold at the start of every episode."""
    played: list[str]
    """The commands that did something."""


def read(reply: str) -> str | None:
    """The command a reply gives, in the games' own spelling; None if it gives none."""
    action = action_text(reply)
    if action is None or not action or len(action) > _LONGEST_COMMAND:
        return None
    return " ".join(action.lower().split()).removesuffix(".")


def replay(world: World, episode: Episode) -> Story:
    """Play an episode's replies again."""
    game, story = Game(world), Story([], [])
    for turn in episode.turns:
        text = turn.reply.text
        if "<action>" not in text.lower():  # valid all the same: the tags were understood (style "bare")
            text = f"<action>{text}</action>"
        command = read(text) if turn.valid else None
        before = set(game.seen)
        if command is not None and game.play(command) is not None:
            story.played.append(command)
            story.seen.extend((r, world.inside[r]) for r in sorted(game.seen - before))
    return story


def _held(world: World, objects: tuple[int, ...]) -> str:
    return ", ".join(world.names[o] for o in objects) or "nothing"


def _world(task: Task) -> World:
    games, kind = task.text("games"), cast(Kind, task.text("kind"))
    if games == "generated":
        return alfworld_generate.generate(task.seed, kind, task.integer("places"), task.integer("plan"))
    return alfworld_games.pick(games, task.integer("game"), task.seed, (kind,), task.integer("plan"))[1]
