"""ALFWorld's rules and text: one game, played in the world of a problem.

`Game.play` answers a command as TextWorld's PDDL engine does, letter for letter, oddities included:

- a place is a location, and several receptacles may stand at one: from there, none of them can be gone to;
- an object may lie in two receptacles at once, and taking it from one leaves it in the other;
- "use" always turns on, and works through closed doors, as "slice", "heat", "cool" and "clean" do;
- only what is in the hand can be examined, since the domain's rule for the rest has a slip of the pen;
- what stands "next to it" are objects moved between two receptacles of one location;
- "look" in the middle of the room sees nothing, though the first look around sees all.
"""

from __future__ import annotations

from collections.abc import Iterable

from mulligan.envs.alfworld.world import APPLIANCES, CLEAN, COOL, HOT, SLICED, TOGGLED, World, listed

NOTHING = "Nothing happens."
SAYS = {CLEAN: "clean", HOT: "heat", COOL: "cool"}
_TREATMENTS = {"clean": (CLEAN, 0), "heat": (HOT, COOL), "cool": (COOL, HOT)}
"""Verb -> the state it brings, and the one that it ends."""
_HELP = (
    ("look", "look around your current location"),
    ("inventory", "check your current inventory"),
    ("go to (receptacle)", "move to a receptacle"),
    ("open (receptacle)", "open a receptacle"),
    ("close (receptacle)", "close a receptacle"),
    ("take (object) from (receptacle)", "take an object from a receptacle"),
    ("move (object) to (receptacle)", "place an object in or on a receptacle"),
    ("examine (something)", "examine a receptacle or an object"),
    ("use (object)", "use an object"),
    ("heat (object) with (receptacle)", "heat an object using a receptacle"),
    ("clean (object) with (receptacle)", "clean an object using a receptacle"),
    ("cool (object) with (receptacle)", "cool an object using a receptacle"),
    ("slice (object) with (object)", "slice an object using a sharp object"),
)
COMMANDS = tuple(command for command, _ in _HELP)
"""The commands there are, as a player would be told."""
# The games' own table is two columns off in the line of "move".
HELP = "Available commands:\n" + "".join(
    f"  {command + ':':<{32 if command.startswith('move') else 34}}{meaning}\n" for command, meaning in _HELP
)


def _looks(state: int) -> str:
    """What is to be seen of an object that was cleaned, heated or cooled."""
    heat = "hot" if state & HOT else "cool" if state & COOL else ""
    words = " and ".join(word for word in (heat, "clean" if state & CLEAN else "") if word)
    if state & SLICED:
        return f"{words} sliced".strip()
    return "cold" if words == "cool" else words


class Game:
    """One game as it stands. `play` changes it; everything else looks at it."""

    __slots__ = ("_commands", "at", "away", "held", "inside", "objects_at", "opened", "seen", "states", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.reset()

    def reset(self) -> None:
        world = self.world
        self.at, self.held = world.at, world.held
        self.inside, self.objects_at, self.states = list(world.inside), list(world.objects_at), bytearray(world.states)
        self.opened: set[int] = set(world.opened)
        self.away: frozenset[tuple[int, int]] = frozenset()
        """(object, receptacle) for what was taken out and not put back: TextWorld keeps such facts."""
        self.seen: set[int] = set()
        """Receptacles whose contents the player has been shown."""
        self._commands: list[str] = []
        """The admissible commands, once somebody asked for them."""

    def play(self, command: str) -> str | None:
        """What the game answers; None, and no change, where nothing happens."""
        command = command.strip()
        if command not in self.commands():
            return None
        self._commands = []
        world = self.world
        verb, _, rest = command.partition(" ")
        match verb:
            case "help":
                return HELP
            case "look":
                return self._look()
            case "inventory" if self.held < 0:
                return "You are not carrying anything."
            case "inventory":
                return f"You are carrying: {self.contents([self.held])}."
            case "examine" if rest in world.r_numbers:
                return self.describe(world.r_numbers[rest])
            case "examine":
                return self._examine(rest)
            case "go":
                receptacle = world.r_numbers[rest.removeprefix("to ")]
                self.at = world.locations[receptacle]
                return f"You arrive at {world.r_names[receptacle]}. {self.describe(receptacle)}"
            case "open":
                self.opened.add(world.r_numbers[rest])
                return f"You open the {rest}. {self.describe(world.r_numbers[rest])}"
            case "close":
                self.opened.discard(world.r_numbers[rest])
                return f"You close the {rest}."
            case "use":
                self.states[world.numbers[rest]] |= TOGGLED
                return f"You turn on the {rest}."
            case _:
                return self._handle(verb, *rest.split({"take": " from ", "move": " to "}.get(verb, " with ")))

    def won(self) -> bool:
        world = self.world
        goal, wanted, states = world.goal, world.goal_objects, self.states
        if goal.kind == "look":
            if self.held < 0 or world.object_types[self.held] != goal.object_type:
                return False
            lamps = [lamp for lamp in world.lamps if states[lamp] & TOGGLED]
            return any(lamp in self.inside[r] for r in world.receptacles_at[self.at] for lamp in lamps)
        state, count = goal.state, goal.count
        for target in world.goal_targets:
            if len(self.inside[target]) >= count:
                ready = [o for o in self.inside[target] if o in wanted and states[o] & state == state]
                if len(ready) >= count:
                    return True
        return False

    def commands(self) -> list[str]:
        """Every command that does something now, sorted: TextWorld's admissible commands."""
        if self._commands:
            return self._commands
        world, held, at = self.world, self.held, self.at
        commands = ["help", "inventory", "look"]
        if held >= 0:
            commands.append(f"examine {world.names[held]}")
        for r in world.receptacles_at[at]:
            commands += self.commands_at(r)
        if held in world.knives:
            sliced = [o for o in self.objects_at[at] if world.abilities[o] & SLICED]
            commands += [f"slice {world.names[o]} with {world.names[held]}" for o in sliced]
        commands += [command for command, location in world.to_go if location != at]
        self._commands = sorted(set(commands))
        return self._commands

    def commands_at(self, receptacle: int) -> list[str]:
        """What can be done with a receptacle, before which one stands, and with what is in it."""
        world, held, inside, name = self.world, self.held, self.inside[receptacle], self.world.r_names[receptacle]
        commands = [f"examine {name}"]
        if receptacle in world.openable:
            commands.append(f"close {name}" if receptacle in self.opened else f"open {name}")
        if held >= 0:
            if world.object_types[held] in world.can_hold[receptacle] and self.accessible(receptacle):
                commands.append(f"move {world.names[held]} to {name}")
            for bit, kinds in APPLIANCES.items():
                if world.abilities[held] & bit and world.r_types[receptacle] in kinds:
                    commands.append(f"{SAYS[bit]} {world.names[held]} with {name}")
        elif self.accessible(receptacle):
            commands += [f"take {world.names[o]} from {name}" for o in inside if o in world.pickupable]
        return commands + [f"use {world.names[o]}" for o in inside if world.abilities[o] & TOGGLED]

    def accessible(self, receptacle: int) -> bool:
        """Whether its contents can be reached, once one stands before it."""
        return receptacle in self.opened or receptacle not in self.world.openable

    def describe(self, receptacle: int) -> str:
        """What is to be seen of a receptacle from before it."""
        name = self.world.r_names[receptacle]
        if not self.accessible(receptacle):
            return f"The {name} is closed."
        self.seen.add(receptacle)
        contents = self.contents(self.inside[receptacle])
        if receptacle in self.world.openable:
            return f"The {name} is open. In it, you see {contents}."
        return f"On the {name}, you see {contents}."

    def contents(self, objects: Iterable[int]) -> str:
        names = self.world.names
        return listed([f"a {names[o]}" for o in objects])

    def key(self) -> str:
        """The situation as the player knows it: place, hand, what was changed, and which receptacles were seen.

        It does not depend on the way there; what was never seen is as it was at the start.
        """
        world = self.world
        moved = [f"{r}:{inside}" for r, inside in enumerate(self.inside) if inside != world.inside[r]]
        moved += [f"@{at}:{objects}" for at, objects in enumerate(self.objects_at) if objects != world.objects_at[at]]
        states = [f"{o}:{bits}" for o, bits in enumerate(self.states) if bits != world.states[o]]
        beside = sorted((o, r) for o, r in self.away if o in self.objects_at[world.locations[r]])
        parts = (self.at, self.held, sorted(self.opened), moved, states, beside, sorted(self.seen))
        return "|".join(map(str, parts))

    def _look(self) -> str:
        here, names = self.world.receptacles_at[self.at], self.world.r_names
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        beside = [o for o, r in sorted(self.away) if r in here and o in self.objects_at[self.at]]
        return f"You are facing the {listed([names[r] for r in here])}. Next to it, you see {self.contents(beside)}."

    def _examine(self, name: str) -> str:
        """What is to be seen of the object in the hand."""
        world, state = self.world, self.states[self.held]
        if self.held in world.inner:
            return f"This is a normal {name}. In it, you see {self.contents(world.inner[self.held])}."
        if state & (CLEAN | HOT | COOL):
            return f"This is a {_looks(state)} {name}."
        if world.abilities[self.held] & state & TOGGLED:
            return f"This {name} is on."
        if world.abilities[self.held] & state & SLICED:
            return f"This is a sliced {name}."
        return f"There's nothing special about {name}."

    def _handle(self, verb: str, name: str, other: str) -> str:
        """Take or move an object from or to a receptacle, or change it with an appliance or a knife."""
        number, inside, here = self.world.numbers[name], self.inside, self.objects_at[self.at]
        if verb == "slice":
            self.states[number] |= SLICED
            return f"You sliced the {name} with the {other}."
        if verb in _TREATMENTS:
            bit, undone = _TREATMENTS[verb]
            self.states[number] = self.states[number] & ~undone | bit
            return f"You {verb} the {name} using the {other}."
        receptacle = self.world.r_numbers[other]
        if verb == "take":
            inside[receptacle] = tuple(o for o in inside[receptacle] if o != number)
            self.objects_at[self.at] = tuple(o for o in here if o != number)
            self.held = number
            self.away |= {(number, receptacle)}
            return f"You pick up the {name} from the {other}."
        inside[receptacle] = tuple(sorted({*inside[receptacle], number}))
        self.objects_at[self.at] = tuple(sorted({*here, number}))
        self.held = -1
        self.away -= {(number, receptacle)}
        return f"You move the {name} to the {other}."
