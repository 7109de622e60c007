"""ALFWorld: household tasks in text, on a native engine that answers as TextWorld does.

Games are generated from the seed, or are the official ones (`mulligan.envs.alfworld.games`). The world is only partly
seen: what lies in a receptacle shows when one stands before it, and opens it where it has a door. So a first episode
is spent on searching, and a second one can profit from what the first one found. With ``spare=1`` there is hardly a
turn for searching: a first episode can win by luck alone, or look around for the next one.

Parameters (`--env.NAME`):

games     ``generated``, or official ones: ``train``, ``valid_train``, ``valid_seen``, ``valid_unseen`` or all
          (``official``) of the folder that `ALFWORLD_DATA` names, or the path of games. ``train`` is trained on,
          ``valid_train`` validates (also with ``games=train``), the other two are evaluated
game      the number of an official one; -1 lets the seed of the task choose
kind      of task: pick, look, clean, heat, cool, pick2; ``train`` is the first four, ``ood`` the others, ``all`` all
plan      a game can be won in so many steps
spare     an episode has so many turns more than the plan of its game has steps; -1 gives every episode ``turns``
places    receptacles in a generated room
rooms     floor plans of generated games: those of training (``seen``), those set apart (``unseen``), or ``all``
view      ``text``, ``compact`` or ``cells``, see `mulligan.envs.alfworld.views`
commands  whether the admissible commands are shown
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast, get_args

from mulligan.envs import drawing
from mulligan.envs.alfworld import generate
from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.games import listing, pick
from mulligan.envs.alfworld.generate import Rooms
from mulligan.envs.alfworld.plan import plan, progress
from mulligan.envs.alfworld.views import VIEWS, Story, View, view_of
from mulligan.envs.alfworld.world import KINDS, Kind, World
from mulligan.envs.base import Player, action_text, check_choices, check_range, tagged
from mulligan.errors import ParameterError
from mulligan.seeding import derive
from mulligan.types import Episode, ParamValue, Step, Task

GENERATED = "generated"
SPARE = 2
"""Turns that a game's plan must leave over."""
_GROUPS: dict[str, tuple[Kind, ...]] = {"train": generate.TRAINING, "ood": generate.OUT_OF_DISTRIBUTION, "all": KINDS}
"""Names for several kinds of task; the seed draws one of them."""
_LONGEST_COMMAND = 200


def read(reply: str) -> str | None:
    """The command a reply gives, in the games' own spelling; None if it gives none."""
    action = action_text(reply)
    if not action or len(action) > _LONGEST_COMMAND:
        return None
    return " ".join(action.lower().split()).removesuffix(".")


def world_key(world: World, view: View) -> str:
    """The canonical name of a world, as far as an agent can tell worlds apart in this view.

    Floor plan, goal and where the wanted things lie make a world; "+" marks a receptacle that holds one, "&" joins
    those that share a location, and those that cannot be reached are left out. All else leaves a world what it is:
    other things, the numbers of like receptacles, how many wanted things lie together, where the lamp stands, the
    wording of the task, where the player begins. With a mug wanted on the desk, beside two drawers, it is the same
    world whichever drawer holds it, and another one where both do.
    """
    signs = [
        sign + "+" * bool(world.goal_objects.intersection(inside))
        for sign, inside in zip(view.signs(), world.inside, strict=True)
    ]
    locations = sorted("&".join(sorted(signs[r] for r in here)) for here in world.receptacles_at if here)
    return f"{view.goal()}: {' '.join(locations)}"


class ALFWorld:
    """Carry out a household task in text: find things, clean, heat or cool them, and put them where they belong."""

    __slots__ = ("_done", "game", "show_commands", "task", "view", "world")

    defaults: ClassVar[dict[str, ParamValue]] = {
        "games": GENERATED, "game": -1, "kind": "train", "plan": 8, "spare": -1, "places": 10,
        "rooms": "seen", "view": "text", "commands": False,
    }  # fmt: skip
    turns: ClassVar[int] = 10
    kind: ClassVar[str] = "solve"
    draw = staticmethod(drawing.household)

    def __init__(self, task: Task) -> None:
        self.task = task
        self.world = _world(dict(task.params), task.seed)
        self.view = view_of(task.text("view"), self.world)
        self.show_commands = bool(task["commands"])
        self.game = Game(self.world)
        self._done = progress(self.game)

    @staticmethod
    def settle(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
        """Check the parameters and fix the kind of task; an official game also gives its number, `spare` the turns."""
        settled, spare = _settled_kind(params, seed), int(params["spare"])
        check_range("alfworld", params, "spare", -1, 99)
        if spare < 0:
            return settled
        return {**settled, "turns": _world(settled, seed).plan_length + spare}

    @staticmethod
    def check_turns(params: Mapping[str, ParamValue], turns: int) -> None:
        """A game must be winnable with turns to spare."""
        least = int(params["plan"]) + SPARE
        if turns < least and int(params["spare"]) < 0:
            raise ParameterError(f"alfworld: turns must be >= {least} for plan={params['plan']} (got {turns})")

    @staticmethod
    def task_class(params: Mapping[str, ParamValue]) -> str:
        return f"alfworld/{params['kind']}"

    def seed_set(self) -> str | None:
        """Of an official game, the set of tasks that its split is for; None where worlds are split by `world_key`."""
        games = self.task.text("games")
        return None if games == GENERATED else listing(games).sets[self.task.integer("game")]

    def rules(self) -> str:
        return self.view.rules()

    def reset(self, chance: int = 0) -> str:
        self.game.reset()
        self._done = progress(self.game)
        return self._shown(self.view.intro())

    def step(self, reply: str) -> Step:
        game = self.game
        action = read(reply)
        if action is None:
            example = "<action>look</action>"
            return self._invalid(f"No command could be read from the answer; give one as in {example}.")
        if game.won():
            return self._invalid("The task is done already.")
        command = self.view.read(game, action)
        engine_answer = game.play(command)
        if engine_answer is None:
            return self._invalid("")
        observation = self.view.answer(game, command, engine_answer)
        before, self._done = self._done, progress(game)
        won = game.won()
        if not won:
            observation = self._shown(observation)
        return Step(observation, float(won), won, won, True, game.key(), "", self._done - before)

    def legal(self) -> Sequence[str]:
        """The admissible commands; none once the task is done."""
        return [] if self.game.won() else [f"<action>{action}</action>" for action in self.view.actions(self.game)]

    def player(self, kind: str, rng: random.Random, skill: float, recall: float) -> Player:
        return Searcher(self, kind, rng, skill, recall)

    def world_key(self) -> str:
        return world_key(self.world, self.view)

    def task_key(self) -> str:
        """An official game's name. Of generated games that are one world a list holds one; in cells, where worlds are
        few, one for each way to number the receptacles."""
        if self.task.text("games") != GENERATED:
            return self.world.name
        if self.task.text("view") != "cells":
            return self.world_key()
        facts = self.view.facts(list(enumerate(self.world.inside)))
        return f"{self.view.intro()}\n{' '.join(facts)}"

    def digest(self, episode: Episode) -> str:
        return self.view.digest(self._replay(episode))

    def reflect(self, episode: Episode) -> str:
        return self.view.reflection(self._replay(episode), won=episode.won)

    def _replay(self, episode: Episode) -> Story:
        """What an episode showed, found by playing its replies again."""
        game, story = Game(self.world), Story([], [])
        for turn in episode.turns:
            action = read(tagged(turn.reply.text)) if turn.valid else None
            before = set(game.seen)
            if action is not None and game.play(command := self.view.read(game, action)) is not None:
                story.commands.append(command)
                story.contents.extend((r, self.world.inside[r]) for r in sorted(game.seen - before))
        return story

    def _shown(self, text: str) -> str:
        """An observation, with the admissible commands where the task asks for them."""
        return f"{text}\nCommands: {', '.join(self.view.actions(self.game))}" if self.show_commands else text

    def _invalid(self, why: str) -> Step:
        return Step(self._shown(self.view.nothing), valid=False, state_key=self.game.key(), feedback=why)


def _settled_kind(params: dict[str, ParamValue], seed: int) -> dict[str, ParamValue]:
    check_choices("alfworld", params, {"kind": (*_GROUPS, *KINDS), "view": VIEWS, "rooms": get_args(Rooms)})
    name, games, game, longest = str(params["kind"]), str(params["games"]), int(params["game"]), int(params["plan"])
    kinds = _GROUPS.get(name) or (cast(Kind, name),)
    if games != GENERATED:
        if params["rooms"] == "unseen":
            raise ParameterError("alfworld: rooms=unseen needs games=generated; official ones are valid_unseen")
        number, world = pick(games, game, seed, kinds, longest)
        return {**params, "game": number, "kind": world.goal.kind, "places": len(world.locations)}
    if game != -1:
        raise ParameterError(f"alfworld: game must be -1 for generated games, which go by the seed (got {game})")
    check_range("alfworld", params, "places", generate.FEWEST, generate.MOST)
    possible = [kind for kind in kinds if generate.SHORTEST[kind] <= longest]
    if not possible:
        least = min(generate.SHORTEST[kind] for kind in kinds)
        raise ParameterError(f"alfworld: plan must be >= {least} for kind={name} (got {longest})")
    return {**params, "kind": possible[derive(seed, "alfworld kind") % len(possible)]}


def _world(params: Mapping[str, ParamValue], seed: int) -> World:
    """The world of settled parameters."""
    games, kind, longest = str(params["games"]), cast(Kind, params["kind"]), int(params["plan"])
    if games == GENERATED:
        return generate.generate(seed, kind, int(params["places"]), longest, cast(Rooms, params["rooms"]))
    return pick(games, int(params["game"]), seed, (kind,), longest)[1]


class Searcher:
    """Plays one world for a whole trial.

    It plans with the receptacles it has seen in this episode; with recall, also with those of earlier episodes. While
    that is not enough it looks into the others, in the order in which the game lists them, from one drawn anew for each
    episode. The omniscient player has seen everything.
    """

    def __init__(self, env: ALFWorld, kind: str, rng: random.Random, skill: float, recall: float) -> None:
        self.env, self.rng, self.skill, self.recall = env, rng, skill, recall
        self.omniscient = kind == "omniscient"
        self.remembered: set[int] = set()
        """Receptacles seen in any episode of the trial: at the start of each they hold the same."""
        self.first = -1
        """The receptacle at which the search of this episode begins; -1 until it is drawn."""

    def act(self) -> str:
        env, rng = self.env, self.rng
        if self.first < 0:
            self.first = int(rng.random() * len(env.world.locations))
        if rng.random() < self.skill:
            command = self._choose()
            if command is not None:
                return f"<action>{env.view.write(env.game, command)}</action>"
        return rng.choice(env.legal())

    def see(self, step: Step) -> None:
        self.remembered |= self.env.game.seen
        self.first = -1 if step.done else self.first

    def _choose(self) -> str | None:
        game = self.env.game
        if self.omniscient:
            steps = plan(game)
            return steps[0] if steps else None
        seen = game.seen | self.remembered if self.rng.random() < self.recall else game.seen
        steps = plan(game, seen)
        return steps[0] if steps else _explore(game, seen, self.first)


def _explore(game: Game, seen: set[int], first: int) -> str | None:
    """The next command that shows what an unseen receptacle holds; None when all have been seen."""
    world = game.world
    for receptacle in world.receptacles_at[game.at]:
        if receptacle not in seen:
            return f"{'examine' if game.accessible(receptacle) else 'open'} {world.r_names[receptacle]}"
    count = len(world.locations)
    for receptacle in (number % count for number in range(first, first + count)):
        if receptacle not in seen and world.locations[receptacle] >= 0:
            return f"go to {world.r_names[receptacle]}"
    return None
