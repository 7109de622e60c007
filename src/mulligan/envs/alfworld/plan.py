"""Plans for ALFWorld games: the shortest direct way from any position to the goal, and how far along a game is.

A direct way fetches the objects one after the other, treats each (clean, heat, cool) and brings it where it belongs;
what the hand holds in vain is put down first. Every solvable game has one: the domain has no locks and no full shelves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import permutations
from typing import NamedTuple

from mulligan.envs.alfworld.game import SAYS, Game
from mulligan.envs.alfworld.world import TOGGLED

_DROPS = 6
"""Receptacles tried for an object that is in the way, the nearest first."""


def plan(game: Game, seen: Collection[int] | None = None) -> list[str] | None:
    """The shortest direct way to win, or None where there is none.

    seen  receptacles whose contents may be relied on; without it, all of them. What they held at the start and hold
          now is the same unless the player moved it, so receptacles seen in an earlier game may be among them.
    """
    if game.won():
        return []
    planner = _Planner(game, seen)
    walks = planner.looks() if game.world.goal.kind == "look" else planner.placements()
    best = min(walks, key=lambda walk: len(walk.commands), default=None)
    return None if best is None else list(best.commands)


def progress(game: Game) -> float:
    """Share of the task that is done, 0 to 1: taking, treating and placing count alike for every object asked for."""
    if game.won():
        return 1.0
    world, goal = game.world, game.world.goal
    if goal.kind == "look":
        in_hand = game.held >= 0 and game.held in world.goal_objects
        lit = any(game.states[lamp] & TOGGLED for lamp in world.lamps)
        return (in_hand + lit) / 3
    steps = 3 if goal.state else 2

    def done(number: int, target: int) -> int:
        treated = bool(goal.state) and game.states[number] & goal.state == goal.state
        if number in game.inside[target] and (treated or not goal.state):
            return steps
        return treated + (number == game.held)

    scores = [sorted(done(number, target) for number in world.goal_objects) for target in world.goal_targets]
    return max((sum(each[-goal.count :]) for each in scores), default=0) / (steps * goal.count)


class _Walk(NamedTuple):
    """A way as far as it is planned: where it leads, which doors it opened, its commands."""

    at: int
    opened: frozenset[int]
    commands: tuple[str, ...]


class _Planner:
    """All direct ways from one position."""

    def __init__(self, game: Game, seen: Collection[int] | None) -> None:
        self.game, self.world, self.seen = game, game.world, seen
        self.reachable = [r for r, location in enumerate(self.world.locations) if location >= 0]
        self.reliable = [r for r in self.reachable if seen is None or r in seen]
        self.start = _Walk(game.at, frozenset(game.opened), ())

    def looks(self) -> Iterator[_Walk]:
        """Fetch the object, then switch on the lamp beside it."""
        game, world = self.game, self.world
        lamps = [(lamp, r) for r in self.reliable for lamp in world.lamps if lamp in game.inside[r]]
        wanted = [game.held] if game.held in world.goal_objects else sorted(world.goal_objects)
        for lamp, beside in lamps:
            for number in wanted:
                for walk in self._fetched(self._hands_free(number), number):
                    use = [] if game.states[lamp] & TOGGLED else [f"use {world.names[lamp]}"]
                    yield self._do(walk, beside, *use, opens=False)

    def placements(self) -> Iterator[_Walk]:
        """Fetch, treat and place as many objects as are still missing, into each receptacle that would do."""
        game, world, goal = self.game, self.world, self.world.goal
        for target in world.goal_targets:
            inside = game.inside[target] if self.seen is None or target in self.seen else ()
            ready = {o for o in inside if o in world.goal_objects and game.states[o] & goal.state == goal.state}
            others = sorted(world.goal_objects - ready)
            for chosen in permutations(others, goal.count - len(ready)):
                if game.held in others and chosen[0] != game.held:
                    continue
                walks = self._hands_free(chosen[0])
                for number in chosen:
                    walks = self._placed(walks, number, target)
                yield from walks

    def _placed(self, walks: list[_Walk], number: int, target: int) -> list[_Walk]:
        """One object brought to its target."""
        game, world, state = self.game, self.world, self.world.goal.state
        name = world.names[number]

        def treated(walks: list[_Walk]) -> list[_Walk]:
            if not state or game.states[number] & state == state:
                return walks
            return [
                self._do(walk, r, f"{SAYS[state]} {name} with {world.r_names[r]}", opens=False)
                for walk in walks
                for r in world.appliances(state)
            ]

        done: list[_Walk] = []
        if world.locations[target] >= 0 and world.goal.object_type in world.can_hold[target]:
            done = [
                self._do(walk, target, f"move {name} to {world.r_names[target]}")
                for walk in treated(self._fetched(walks, number))
            ]
        if state and number in game.inside[target] and (self.seen is None or target in self.seen):
            done += treated(self._fetched(walks, number, but=target))  # it lies in two places, and one is enough
        return done

    def _fetched(self, walks: list[_Walk], number: int, but: int = -1) -> list[_Walk]:
        """The object in the hand, from any place `but` one."""
        game, world = self.game, self.world
        if number == game.held:
            return walks
        if number not in world.pickupable:
            return []
        sources = [r for r in self.reliable if r != but and number in game.inside[r]]
        return [
            self._do(walk, r, f"take {world.names[number]} from {world.r_names[r]}") for walk in walks for r in sources
        ]

    def _hands_free(self, number: int) -> list[_Walk]:
        """Ways on which the hand is free for the object, or holds it."""
        game, world, held = self.game, self.world, self.game.held
        if held < 0 or held == number:
            return [self.start]
        fitting = [r for r in self.reachable if world.object_types[held] in world.can_hold[r]]
        drops = sorted(fitting, key=lambda r: (world.locations[r] != game.at, not game.accessible(r)))[:_DROPS]
        drops += [r for r in fitting if number in game.inside[r] and r in self.reliable]
        return [self._do(self.start, r, f"move {world.names[held]} to {world.r_names[r]}") for r in drops]

    def _do(self, walk: _Walk, receptacle: int, *command: str, opens: bool = True) -> _Walk:
        """Go to a receptacle, open it where the command needs that, and give the command."""
        world, opened, commands = self.world, walk.opened, list(walk.commands)
        if world.locations[receptacle] != walk.at:
            commands.append(f"go to {world.r_names[receptacle]}")
        if opens and receptacle in world.openable and receptacle not in opened:
            commands.append(f"open {world.r_names[receptacle]}")
            opened |= {receptacle}
        return _Walk(world.locations[receptacle], opened, (*commands, *command))
