"""ALFWorld: household tasks in text, on a native engine that answers as TextWorld does.

Games are generated from the seed, or are the official ones (`mulligan.envs.alfworld.games`). The world is only partly
seen: what lies in a receptacle shows when one stands before it, and opens it where it has a door. So a first episode
is spent on searching, and a second one can profit from what the first one found.

Parameters (`--env.NAME`):

games     ``generated``, or official ones: ``train``, ``valid_train``, ``valid_seen``, ``valid_unseen`` or all
          (``official``) of the folder that `ALFWORLD_DATA` names, or the path of games. ``train`` is trained on,
          ``valid_train`` validates (also with ``games=train``), the other two are evaluated
          (`mulligan.envs.alfworld.choice`)
game      the number of an official one; -1 lets the seed of the task choose
kind      of task: pick, look, clean, heat, cool, pick2; ``train`` is the first four, ``ood`` the others, ``all`` all
plan      a game can be won in so many steps
places    receptacles in a generated room
rooms     floor plans of generated games: those of training (``seen``), those set apart (``unseen``), or ``all``
view      ``text``, ``compact`` or ``cells``, see `mulligan.envs.alfworld.views`
commands  whether the admissible commands are shown
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast, get_args

from mulligan.envs.alfworld import generate, memory
from mulligan.envs.alfworld.canonical import world_key
from mulligan.envs.alfworld.choice import pick, seed_set
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.generate import Rooms
from mulligan.envs.alfworld.goal import KINDS
from mulligan.envs.alfworld.memory import read
from mulligan.envs.alfworld.plan import progress
from mulligan.envs.alfworld.views import VIEWS, view_of
from mulligan.envs.alfworld.world import Kind, World
from mulligan.envs.base import Player
from mulligan.errors import ParameterError, UnknownName
from mulligan.seeding import derive
from mulligan.types import Episode, ParamValue, Step, Task

GENERATED = "generated"
SPARE = 2
"""Turns that a game's plan must leave over."""
_GROUPS: dict[str, tuple[Kind, ...]] = {
    "train": generate.TRAINING,
    "ood": generate.OUT_OF_DISTRIBUTION,
    "all": KINDS,
}
"""Names for several kinds of task; the seed draws one of them."""


class ALFWorld:
    """Carry out a household task in text: find things, clean, heat or cool them, and put them where they belong."""

    __slots__ = ("_done", "begun", "game", "show_commands", "task", "view", "world")

    defaults: ClassVar[dict[str, ParamValue]] = {
        "games": GENERATED, "game": -1, "kind": "train", "plan": 8, "places": 10, "rooms": "seen",
        "view": "text", "commands": False,
    }  # fmt: skip
    turns: ClassVar[int] = 10
    kind: ClassVar[str] = "solve"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.world = _world(task)
        self.view = view_of(task.text("view"), self.world)
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
        if params["view"] not in VIEWS:
            raise UnknownName("view of alfworld", str(params["view"]), VIEWS)
        if params["rooms"] not in get_args(Rooms):
            raise UnknownName("rooms of alfworld", str(params["rooms"]), get_args(Rooms))
        kinds = _GROUPS.get(name) or (cast(Kind, name),)
        if games != GENERATED:
            if params["rooms"] == "unseen":
                raise ParameterError(
                    "alfworld: rooms='unseen' is of generated games; the official ones have games='valid_unseen'"
                )
            number, world = pick(games, int(params["game"]), seed, kinds, longest)
            return {**params, "game": number, "kind": world.goal.kind, "places": len(world.places)}
        if int(params["game"]) != -1:
            raise ParameterError(
                f"alfworld: game={params['game']} counts official games; generated ones go by the seed"
            )
        if not generate.FEWEST <= places <= generate.MOST:
            raise ParameterError(f"alfworld: places={places} cannot be; give {generate.FEWEST} to {generate.MOST}")
        possible = [kind for kind in kinds if generate.SHORTEST[kind] <= longest]
        if not possible:
            least = min(generate.SHORTEST[kind] for kind in kinds)
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
        """Of an official game, the set of tasks that its split is for; None where worlds are split by `world_key`."""
        games = self.task.text("games")
        return None if games == GENERATED else seed_set(games, self.task.integer("game"))

    def rules(self) -> str:
        return self.view.rules()

    def reset(self, chance: int = 0) -> str:
        self.game.reset()
        self.begun += 1
        self._done = progress(self.game)
        return self._shown(self.view.intro(self.world))

    def step(self, reply: str) -> Step:
        game = self.game
        action = read(reply)
        if action is None:
            example = "<action>look</action>"
            return self._invalid(f"No command could be read from the answer; give one as in {example}.")
        if game.won():
            return self._invalid("The task is done already.")
        command = self.view.read(game, action)
        said = game.play(command)
        if said is None:
            return self._invalid("")
        answer = self.view.answer(game, command, said)
        before, self._done = self._done, progress(game)
        won = game.won()
        seen = answer if won else self._shown(answer)
        return Step(seen, float(won), won, won, True, game.key(), "", self._done - before)

    def legal(self) -> Sequence[str]:
        """The admissible commands; none once the task is done."""
        return [] if self.game.won() else [f"<action>{action}</action>" for action in self.view.actions(self.game)]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        from mulligan.envs.alfworld.player import Searcher

        if kind not in ("expert", "omniscient"):
            raise UnknownName("player", kind, ("expert", "omniscient"))
        return Searcher(self, kind, rng, skill, recall)

    def world_key(self) -> str:
        """Floor plan, goal and where the wanted things lie (`mulligan.envs.alfworld.canonical`)."""
        return world_key(self.world, self.view)

    def task_key(self) -> str:
        """An official game's name. Of generated games that are one world a list holds one; in cells, where worlds are
        few, one for each way to number the receptacles."""
        if self.task.text("games") != GENERATED:
            return self.world.name
        if self.task.text("view") != "cells":
            return self.world_key()
        facts = self.view.facts(self.world, list(enumerate(self.world.inside)))
        return f"{self.view.intro(self.world)}\n{' '.join(facts)}"

    def digest(self, episode: Episode) -> str:
        """What was seen where, and what was done; in a short view only what the task is about."""
        story = memory.replay(self.world, self.view, episode)
        if self.task.text("view") == "text":
            return memory.full_digest(self.world, story)
        return self._facts(story)

    def reflect(self, episode: Episode) -> str:
        """Where the wanted things were, where there was nothing of use and, but for the short views, what follows."""
        story = memory.replay(self.world, self.view, episode)
        if self.task.text("view") == "text":
            return memory.full_reflection(self.world, story, won=episode.won)
        return f"<reflection>{self._facts(story) or 'nothing'}</reflection>"

    def _facts(self, story: memory.Story) -> str:
        between = " " if self.task.text("view") == "cells" else "; "
        return between.join(self.view.facts(self.world, story.seen))

    def _shown(self, text: str) -> str:
        """An observation, with the admissible commands where the task asks for them."""
        return f"{text}\nCommands: {', '.join(self.view.actions(self.game))}" if self.show_commands else text

    def _invalid(self, why: str) -> Step:
        return Step(self._shown(self.view.nothing), valid=False, state_key=self.game.key(), feedback=why)


def _world(task: Task) -> World:
    games, kind = task.text("games"), cast(Kind, task.text("kind"))
    if games == GENERATED:
        return generate.generate(
            task.seed, kind, task.integer("places"), task.integer("plan"), cast(Rooms, task.text("rooms"))
        )
    return pick(games, task.integer("game"), task.seed, (kind,), task.integer("plan"))[1]
