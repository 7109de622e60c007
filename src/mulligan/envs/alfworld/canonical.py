"""What makes two games of ALFWorld the same world: floor plan, goal, and where the wanted things lie.

All else leaves a world what it is: the other things that lie about, the numbers of like receptacles, how many wanted
things lie in one place, where the lamp stands, how the task is worded, where the player begins. Four games in which a
mug is wanted on the desk:

    desk 1, drawer 1, drawer 2; mug in drawer 1; pen on the desk     one world
    desk 1, drawer 1, drawer 2; mug in drawer 2; book in drawer 1    the same one
    desk 1, drawer 1, drawer 2; mug in each drawer                   another one
    desk 1, drawer 1, shelf 1; mug in drawer 1                       another one
"""

from __future__ import annotations

from mulligan.envs.alfworld.views import View
from mulligan.envs.alfworld.world import World

_HOLDS = "+"
"""Marks a receptacle that holds a wanted thing."""


def world_key(world: World, view: View) -> str:
    """The canonical name of a world, as far as an agent can tell worlds apart in this view.

    Receptacles that share a location are named together; those that cannot be reached are left out.
    """
    signs = [
        f"{sign}{_HOLDS}" if world.goal_objects.intersection(inside) else sign
        for sign, inside in zip(view.signs(world), world.inside, strict=True)
    ]
    locations = sorted("&".join(sorted(signs[r] for r in here)) for here in world.r_places if here)
    return f"{view.goal(world)}: {' '.join(locations)}"
