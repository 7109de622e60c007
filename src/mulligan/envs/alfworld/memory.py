"""What a player of ALFWorld knows after an episode: from what was shown, never from what is hidden."""

from __future__ import annotations

from typing import NamedTuple

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.world import World, listed


class Story(NamedTuple):
    """What an episode came to."""

    contents: list[tuple[int, tuple[int, ...]]]
    """Receptacles in the order in which they were first seen, with what they hold at the start of every episode."""
    commands: list[str]
    """The commands that did something."""


def digest(world: World, story: Story) -> str:
    """What was seen where, and what was done."""
    seen = "; ".join(
        f"{world.r_names[r]}: {', '.join(world.names[o] for o in objects) or 'nothing'}"
        for r, objects in story.contents
    )
    return f"seen {seen or 'nothing'}\ndid {'; '.join(story.commands) or 'nothing'}"


def reflection(world: World, story: Story, *, won: bool) -> str:
    """Where the wanted things were, where there was nothing of use, and what follows."""
    wanted = world.goal_objects | set(world.lamps)
    facts = [
        f"{world.names[o]} was in {world.r_names[r]}" for r, inside in story.contents for o in inside if o in wanted
    ]
    useless = [world.r_names[r] for r, inside in story.contents if not wanted.intersection(inside)]
    if useless:
        facts.append(f"nothing of use in {listed(useless)}")
    seen = {r for r, _ in story.contents}
    unseen = [name for r, name in enumerate(world.r_names) if r not in seen and world.locations[r] >= 0]
    steps = plan(Game(world), seen)
    return (
        "<reflection>\n"
        f"outcome: {'won' if won else 'not won'}\n"
        f"env_answer: {'; '.join(facts) or 'nothing was found'}\n"
        f"error_category: {'none' if won else 'out-of-turns'}\n"
        f"plan: {', '.join(steps) if steps else f'search {listed(unseen[:4])} next'}\n"
        "</reflection>"
    )
