"""How an ALFWorld game is told and played: in TextWorld's own words, in fewer, or in cells.

text     what TextWorld says, letter for letter
compact  the same commands, answered in a few words: ``countertop 1: apple 1, fork 2``, ``fridge 1: closed``, ``ok``
cells    for tiny models: a receptacle is a cell such as ``c2``, a fact is one word, and so is a command

The game is the same in all three. In cells only what the task is about is told: ``c2=1`` holds one such thing, ``c2=0``
none, ``c2=*`` the lamp. What goes without saying is left out of a command: ``c2`` goes there, ``take`` takes the thing
that is asked for, ``put`` puts down what one holds, ``do`` does with it what the task demands (clean, heat, cool, or
switch on the lamp).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mulligan.envs.alfworld.game import COMMANDS, NOTHING, SAYS, Game
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import World, listed
from mulligan.envs.base import reflection_text

VIEWS = ("text", "compact", "cells")
DONE = "ok"
"""Says in short that a command did something."""
_FAMILIES = {
    "a": "armchair bed ottoman sofa",
    "b": "bathtubbasin sinkbasin sink",
    "c": "cabinet cart laundryhamper safe",
    "d": "drawer",
    "e": "coffeetable countertop desk diningtable dresser shelf sidetable tvstand",
    "f": "fridge",
    "h": "microwave",
}
"""Letter of a cell -> the receptacles it stands for."""
_OTHERS = "g"
"""The letter of all others."""
_HELP = f"Commands: {', '.join(COMMANDS)}."
_TELLING = ("look", "inventory", "examine")
"""Commands that only tell something, which was mostly told before."""
_LETTERS = {f"{kind}type": letter for letter, kinds in _FAMILIES.items() for kind in kinds.split()}


class Story(NamedTuple):
    """What an episode came to."""

    contents: list[tuple[int, tuple[int, ...]]]
    """Receptacles in the order in which they were first seen, with what they hold at the start of every episode."""
    commands: list[str]
    """The commands that did something."""


class Words:
    """In words: TextWorld's own, or few."""

    nothing = NOTHING
    """The observation where nothing happens."""

    def __init__(self, world: World, *, short: bool) -> None:
        self.world, self.short = world, short

    def rules(self) -> str:
        """What a player is told before the first game."""
        if self.short:
            return (
                "You are in a room with receptacles, and things in or on them. You see what a receptacle holds when "
                "you go to it; a closed one has to be opened. You can carry one thing at a time. Things are cleaned "
                "with a sinkbasin, heated with a microwave and cooled with a fridge: hold the thing and go there. To "
                "look at a thing under a lamp, hold the thing and use the lamp.\n"
                "The commands are: go to desk 1, open drawer 1, take mug 1 from desk 1, move mug 1 to desk 1, clean "
                "(or heat, cool) mug 1 with fridge 1, use desklamp 1, examine, close, look, inventory. Of earlier "
                'episodes, "take mug 1 from desk 1" tells where a thing is at the beginning, "not in" where nothing of '
                "use is.\n"
                "You win as soon as the task is done. Answer with one command: <action>go to desk 1</action>"
            )
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

    def intro(self) -> str:
        """The first observation."""
        world = self.world
        if not self.short:
            return world.intro()
        reachable = [name for r, name in enumerate(world.r_names) if world.locations[r] >= 0]
        return f"You see {', '.join(reachable)}.\nTask: {world.task}"

    def answer(self, game: Game, command: str, engine_answer: str) -> str:
        """The observation after a command did something, and the engine answered it with `engine_answer`."""
        receptacle = _shown(game, command)
        if not self.short or (receptacle is None and command.partition(" ")[0] in _TELLING):
            return engine_answer
        if receptacle is None:
            return _HELP if command == "help" else DONE
        names = ", ".join(self.world.names[o] for o in game.inside[receptacle]) or "empty"
        return f"{self.world.r_names[receptacle]}: {names if game.accessible(receptacle) else 'closed'}"

    def read(self, game: Game, action: str) -> str:
        """The engine's command that an action stands for; an action that stands for none is returned as it is."""
        return action

    def write(self, game: Game, command: str) -> str:
        """The action that stands for a command of the engine; the reverse of `read`."""
        return command

    def actions(self, game: Game) -> list[str]:
        """Every action that does something now; in a short view not those that only tell again what was told."""
        commands = game.commands()
        return [each for each in commands if each.split(" ")[0] not in (*_TELLING, "help")] if self.short else commands

    def facts(self, seen: list[tuple[int, tuple[int, ...]]]) -> list[str]:
        """What is worth remembering of the receptacles that were seen, with what they hold at first.

        Where the wanted things lie, in the words of the commands that fetch them; then where nothing of use is.
        """
        world, goal, lamps = self.world, self.world.goal_objects, self.world.lamps
        facts = [f"take {world.names[o]} from {world.r_names[r]}" for r, inside in seen for o in inside if o in goal]
        facts += [f"use {world.names[o]} at {world.r_names[r]}" for r, inside in seen for o in inside if o in lamps]
        useless = [world.r_names[r] for r, inside in seen if not goal.union(lamps).intersection(inside)]
        return [*facts, f"not in {', '.join(useless)}"] if useless else facts

    def digest(self, story: Story) -> str:
        """What was seen where, and what was done; in few words only what the task is about."""
        if self.short:
            return "; ".join(self.facts(story.contents))
        names = self.world.names
        seen = "; ".join(
            f"{self.world.r_names[r]}: {', '.join(names[o] for o in inside) or 'nothing'}"
            for r, inside in story.contents
        )
        return f"seen {seen or 'nothing'}\ndid {'; '.join(story.commands) or 'nothing'}"

    def reflection(self, story: Story, *, won: bool) -> str:
        """Where the wanted things were, where there was nothing of use and, but for few words, what follows."""
        if self.short:
            return f"<reflection>{self.digest(story) or 'nothing'}</reflection>"
        world, wanted = self.world, self.world.goal_objects | set(self.world.lamps)
        facts = [
            f"{world.names[o]} was in {world.r_names[r]}" for r, inside in story.contents for o in inside if o in wanted
        ]
        useless = [world.r_names[r] for r, inside in story.contents if not wanted.intersection(inside)]
        if useless:
            facts.append(f"nothing of use in {listed(useless)}")
        seen = {r for r, _ in story.contents}
        unseen = [name for r, name in enumerate(world.r_names) if r not in seen and world.locations[r] >= 0]
        steps = plan(Game(world), seen)
        return reflection_text(
            outcome="won" if won else "not won",
            env_answer="; ".join(facts) or "nothing was found",
            error_category="none" if won else "out-of-turns",
            plan=", ".join(steps) if steps else f"search {listed(unseen[:4])} next",
        )

    def signs(self) -> list[str]:
        """For each receptacle what an agent can tell of it from afar, without its number, which is arbitrary."""
        return [kind.removesuffix("type") for kind in self.world.r_types]

    def goal(self) -> str:
        """What an agent can tell of the goal, beyond the signs of receptacles."""
        goal = self.world.goal
        return f"{goal.kind} {goal.object_type.removesuffix('type')} {goal.target_type.removesuffix('type')}"


class Cells:
    """In cells; the letter says of what family a receptacle is, the number which one."""

    nothing = "nothing"

    def __init__(self, world: World) -> None:
        self.world = world
        letters = [_LETTERS.get(kind, _OTHERS) for kind in world.r_types]
        self.names = tuple(f"{letter}{letters[: number + 1].count(letter)}" for number, letter in enumerate(letters))
        self.numbers = {name: number for number, name in enumerate(self.names)}

    def rules(self) -> str:
        return (
            "You are in a room with receptacles, each named by a letter and a number: a seats, b basins, c cabinets, d "
            "drawers, e tables and shelves, f fridges, g others, h microwaves. The first line says where the wanted "
            "thing has to be treated (do) and brought (put), the second what receptacles there are.\n"
            "Commands: c2 goes to c2; open opens what you stand before; take takes the wanted thing; do cleans, heats "
            "or cools it, or uses the lamp; put puts it down. c2=1 means that c2 holds one wanted thing, c2=0 none, "
            "c2=* the lamp. Of earlier episodes, c2=ok means that a wanted thing is in c2 at the beginning.\n"
            "Answer with one command: <action>c2</action>"
        )

    def intro(self) -> str:
        world, goal = self.world, self.world.goal
        words = ["do", *self._named(world.appliances(goal.state))] if goal.state else []
        words += ["do", "*"] if goal.kind == "look" else ["put", *(["two"] if goal.count == 2 else [])]
        words += self._named(r for r in world.goal_targets if world.locations[r] >= 0)
        cells = self._named(r for r, location in enumerate(world.locations) if location >= 0)
        return f"{' '.join(words)}\n{' '.join(cells)}"

    def answer(self, game: Game, command: str, engine_answer: str) -> str:
        receptacle = _shown(game, command)
        if command.startswith(("take ", "move ")):
            preposition = " from " if command.startswith("take ") else " to "
            receptacle = self.world.r_numbers.get(command.rpartition(preposition)[2])
        elif command == "look":
            receptacle = next(iter(self.world.receptacles_at[game.at]), None)
        if receptacle is None:
            return DONE
        if not game.accessible(receptacle):
            return "closed"
        inside, name = game.inside[receptacle], self.names[receptacle]
        count = sum(o in self.world.goal_objects for o in inside)
        lamp = f"{name}=*" if any(o in self.world.lamps for o in inside) else ""
        return f"{name}={count} {lamp}".strip() if count or not lamp else lamp

    def read(self, game: Game, action: str) -> str:
        world = self.world
        if action in self.numbers:
            receptacle = self.numbers[action]
            return f"{'examine' if world.locations[receptacle] == game.at else 'go to'} {world.r_names[receptacle]}"
        return next((command for command in self._choices(game) if self.write(game, command) == action), action)

    def write(self, game: Game, command: str) -> str:
        verb, _, rest = command.partition(" ")
        if verb in ("go", "examine") and (receptacle := _shown(game, command)) is not None:
            return self.names[receptacle]
        return {"move": "put", "use": "do", **dict.fromkeys(SAYS.values(), "do")}.get(verb, verb) if rest else command

    def actions(self, game: Game) -> list[str]:
        going = self._named(r for r, at in enumerate(self.world.locations) if at >= 0 and at != game.at)
        return sorted({*going, *(self.write(game, command) for command in self._choices(game))})

    def facts(self, seen: list[tuple[int, tuple[int, ...]]]) -> list[str]:
        """One word a fact, where the wanted things are first."""
        goal, lamps = self.world.goal_objects, set(self.world.lamps)
        facts = [f"{self.names[r]}=ok" for r, inside in seen if goal.intersection(inside)]
        facts += [f"{self.names[r]}=*" for r, inside in seen if lamps.intersection(inside)]
        return facts + [f"{self.names[r]}=0" for r, inside in seen if not goal.union(lamps).intersection(inside)]

    def digest(self, story: Story) -> str:
        return " ".join(self.facts(story.contents))

    def reflection(self, story: Story, *, won: bool) -> str:
        return f"<reflection>{self.digest(story) or 'nothing'}</reflection>"

    def signs(self) -> list[str]:
        """The letter, and whether the task names the receptacle to do or to put something there."""
        world = self.world
        treats = world.appliances(world.goal.state) if world.goal.state else []
        return [
            _LETTERS.get(kind, _OTHERS) + "d" * (r in treats) + "p" * (r in world.goal_targets)
            for r, kind in enumerate(world.r_types)
        ]

    def goal(self) -> str:
        goal = self.world.goal
        return "lamp" if goal.kind == "look" else "two" if goal.count == 2 else "one"

    def _choices(self, game: Game) -> list[str]:
        """The commands that can be carried out here and that a short action stands for, targets first."""
        world = self.world
        verbs = ["open", "move", *(verb for bit, verb in SAYS.items() if bit == world.goal.state)]
        starts = [f"{verb} " for verb in verbs] + [f"take {world.names[o]} " for o in world.goal_objects]
        lamps = [f"use {world.names[o]}" for o in world.lamps]
        here = sorted(world.receptacles_at[game.at], key=lambda r: r not in world.goal_targets)
        commands = [command for r in here for command in game.commands_at(r)]
        return [command for command in commands if command.startswith(tuple(starts)) or command in lamps]

    def _named(self, receptacles: Iterable[int]) -> list[str]:
        return [self.names[r] for r in receptacles]


View = Words | Cells
"""The methods of both are explained in `Words`."""


def view_of(name: str, world: World) -> View:
    return Cells(world) if name == "cells" else Words(world, short=name == "compact")


def _shown(game: Game, command: str) -> int | None:
    """The receptacle whose contents the answer to a command shows, if any."""
    for start in ("go to ", "open ", "examine "):
        if command.startswith(start):
            return game.world.r_numbers.get(command.removeprefix(start))
    return None
