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


def _looks(made: int) -> str:
    """What is to be seen of an object that was cleaned, heated, cooled or sliced; empty for none of these."""
    heat = "hot" if made & HOT else "cool" if made & COOL else ""
    words = " and ".join(word for word in (heat, "clean" if made & CLEAN else "") if word)
    if made & SLICED:
        return f"{words} sliced".strip()
    return "cold" if words == "cool" else words


_LOOKS = tuple(_looks(made & ~TOGGLED) for made in range(32))


class Game:
    """One game as it stands. `play` changes it; everything else looks at it."""

    __slots__ = ("at", "away", "held", "inside", "lies", "made", "opened", "seen", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.reset()

    def reset(self) -> None:
        world = self.world
        self.at, self.held = world.at, world.held
        self.inside, self.lies, self.made = list(world.inside), list(world.lies), bytearray(world.made)
        self.opened: set[int] = set(world.opened)
        self.away: frozenset[tuple[int, int]] = frozenset()
        """(object, receptacle) for what was taken out and not put back: TextWorld keeps such facts."""
        self.seen: set[int] = set()
        """Receptacles whose contents the player has been shown."""

    def copy(self) -> Game:
        other = Game.__new__(Game)
        other.world, other.at, other.held, other.away = self.world, self.at, self.held, self.away
        other.inside, other.lies, other.made = list(self.inside), list(self.lies), bytearray(self.made)
        other.opened, other.seen = set(self.opened), set(self.seen)
        return other

    def play(self, command: str) -> str | None:
        """What the game answers; None, and no change, where nothing happens."""
        verb, _, rest = command.strip().partition(" ")
        answer = _VERBS.get(verb)
        return answer(self, rest) if answer is not None else None

    def won(self) -> bool:
        world = self.world
        goal, wanted, made = world.goal, world.goal_objects, self.made
        if goal.kind == "look":
            if self.held < 0 or world.object_types[self.held] != goal.object_type:
                return False
            lamps = [lamp for lamp in world.lamps if made[lamp] & TOGGLED]
            return any(lamp in self.inside[r] for r in world.r_places[self.at] for lamp in lamps)
        state, count = goal.state, goal.count
        for target in world.goal_targets:
            if len(self.inside[target]) >= count:
                ready = [o for o in self.inside[target] if o in wanted and made[o] & state == state]
                if len(ready) >= count:
                    return True
        return False

    def commands(self) -> list[str]:
        """Every command that does something now, sorted: TextWorld's admissible commands."""
        world, here, held, at = self.world, self.world.r_places[self.at], self.held, self.at
        names, r_names, able = world.names, world.r_names, world.able
        found = [f"examine {names[held]}"] if held >= 0 else []
        for r in here:
            name = r_names[r]
            found.append(f"examine {name}")
            if r in world.openable:
                found.append(f"close {name}" if r in self.opened else f"open {name}")
            if held >= 0:
                if self.may_put(held, r):
                    found.append(f"move {names[held]} to {name}")
                for bit, kinds in APPLIANCES.items():
                    if able[held] & bit and world.r_types[r] in kinds:
                        found.append(f"{SAYS[bit]} {names[held]} with {name}")
            elif self.accessible(r):
                found.extend(f"take {names[o]} from {name}" for o in self.inside[r] if o in world.pickupable)
            found.extend(f"use {names[o]}" for o in self.inside[r] if able[o] & TOGGLED)
        if held in world.knives:
            found.extend(f"slice {names[o]} with {names[held]}" for o in self.lies[at] if able[o] & SLICED)
        found.extend(["help", "inventory", "look"])
        found.extend([command for command, place in world.to_go if place != at])
        return sorted(set(found))

    def accessible(self, receptacle: int) -> bool:
        """Whether its contents can be reached, once one stands before it."""
        return receptacle in self.opened or receptacle not in self.world.openable

    def may_put(self, number: int, receptacle: int) -> bool:
        """Whether the object fits there, and the door is open."""
        world = self.world
        return world.object_types[number] in world.can_hold[receptacle] and self.accessible(receptacle)

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
        moved += [f"@{at}:{lies}" for at, lies in enumerate(self.lies) if lies != world.lies[at]]
        made = [f"{o}:{bits}" for o, bits in enumerate(self.made) if bits != world.made[o]]
        beside = sorted((o, r) for o, r in self.away if o in self.lies[world.places[r]])
        parts = (self.at, self.held, sorted(self.opened), moved, made, beside, sorted(self.seen))
        return "|".join(map(str, parts))

    def _here(self, name: str) -> int | None:
        """The receptacle of that name, if one stands before it."""
        receptacle = self.world.r_numbers.get(name)
        return receptacle if receptacle is not None and self.world.places[receptacle] == self.at else None

    def _look(self, rest: str) -> str | None:
        if rest:
            return None
        here, names = self.world.r_places[self.at], self.world.r_names
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        beside = [o for o, r in sorted(self.away) if r in here and o in self.lies[self.at]]
        return f"You are facing the {listed([names[r] for r in here])}. Next to it, you see {self.contents(beside)}."

    def _inventory(self, rest: str) -> str | None:
        if rest:
            return None
        return (
            f"You are carrying: {self.contents([self.held])}." if self.held >= 0 else "You are not carrying anything."
        )

    def _help(self, rest: str) -> str | None:
        return None if rest else HELP

    def _go(self, rest: str) -> str | None:
        world = self.world
        receptacle = world.r_numbers.get(rest[3:]) if rest.startswith("to ") else None
        if receptacle is None or world.places[receptacle] in (-1, self.at):
            return None
        self.at = world.places[receptacle]
        return f"You arrive at {world.r_names[receptacle]}. {self.describe(receptacle)}"

    def _open(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or receptacle in self.opened or receptacle not in self.world.openable:
            return None
        self.opened.add(receptacle)
        return f"You open the {rest}. {self.describe(receptacle)}"

    def _close(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is None or receptacle not in self.opened or receptacle not in self.world.openable:
            return None
        self.opened.discard(receptacle)
        return f"You close the {rest}."

    def _examine(self, rest: str) -> str | None:
        receptacle = self._here(rest)
        if receptacle is not None:
            return self.describe(receptacle)
        number = self.world.numbers.get(rest)
        if number is None or number != self.held:
            return None
        inner = self.world.inner.get(number)
        if inner is not None:
            return f"This is a normal {rest}. In it, you see {self.contents(inner)}."
        made = self.made[number]
        if looks := _LOOKS[made] if made & ~TOGGLED & ~SLICED else "":
            return f"This is a {looks} {rest}."
        if self.world.able[number] & made & TOGGLED:
            return f"This {rest} is on."
        if self.world.able[number] & made & SLICED:
            return f"This is a sliced {rest}."
        return f"There's nothing special about {rest}."

    def _take(self, rest: str) -> str | None:
        world = self.world
        name, _, source = rest.partition(" from ")
        number, receptacle = world.numbers.get(name), self._here(source)
        if self.held >= 0 or number is None or receptacle is None or number not in world.pickupable:
            return None
        if number not in self.inside[receptacle] or not self.accessible(receptacle):
            return None
        self.inside[receptacle] = tuple(o for o in self.inside[receptacle] if o != number)
        self.lies[self.at] = tuple(o for o in self.lies[self.at] if o != number)
        self.held = number
        self.away |= {(number, receptacle)}
        return f"You pick up the {name} from the {source}."

    def _move(self, rest: str) -> str | None:
        world = self.world
        name, _, target = rest.partition(" to ")
        number, receptacle = world.numbers.get(name), self._here(target)
        if number is None or number != self.held or receptacle is None or not self.may_put(number, receptacle):
            return None
        self.inside[receptacle] = tuple(sorted({*self.inside[receptacle], number}))
        self.lies[self.at] = tuple(sorted({*self.lies[self.at], number}))
        self.held = -1
        self.away -= {(number, receptacle)}
        return f"You move the {name} to the {target}."

    def _clean(self, rest: str) -> str | None:
        return self._treat(CLEAN, 0, rest)

    def _heat(self, rest: str) -> str | None:
        return self._treat(HOT, COOL, rest)

    def _cool(self, rest: str) -> str | None:
        return self._treat(COOL, HOT, rest)

    def _treat(self, bit: int, undoes: int, rest: str) -> str | None:
        world = self.world
        name, _, appliance = rest.partition(" with ")
        number, receptacle = world.numbers.get(name), self._here(appliance)
        if number is None or number != self.held or receptacle is None or not world.able[number] & bit:
            return None
        if world.r_types[receptacle] not in APPLIANCES[bit]:
            return None
        self.made[number] = self.made[number] & ~undoes | bit
        return f"You {SAYS[bit]} the {name} using the {appliance}."

    def _use(self, rest: str) -> str | None:
        number = self.world.numbers.get(rest)
        if number is None or not self.world.able[number] & TOGGLED:
            return None
        if not any(number in self.inside[r] for r in self.world.r_places[self.at]):
            return None
        self.made[number] |= TOGGLED
        return f"You turn on the {rest}."

    def _slice(self, rest: str) -> str | None:
        world = self.world
        name, _, knife = rest.partition(" with ")
        number, tool = world.numbers.get(name), world.numbers.get(knife)
        if number is None or tool is None or tool != self.held or tool not in world.knives:
            return None
        if number not in self.lies[self.at] or not world.able[number] & SLICED:
            return None
        self.made[number] |= SLICED
        return f"You sliced the {name} with the {knife}."


_VERBS = {
    "look": Game._look,
    "inventory": Game._inventory,
    "help": Game._help,
    "go": Game._go,
    "open": Game._open,
    "close": Game._close,
    "examine": Game._examine,
    "take": Game._take,
    "move": Game._move,
    "use": Game._use,
    "slice": Game._slice,
    "clean": Game._clean,
    "heat": Game._heat,
    "cool": Game._cool,
}
