"""What a player of ALFWorld knows after an episode: from what was shown, never from what is hidden."""

from __future__ import annotations

from typing import NamedTuple

from mulligan.envs.alfworld.game import Game
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.alfworld.views import View
from mulligan.envs.alfworld.world import World, listed
from mulligan.envs.base import action_text
from mulligan.types import Episode

_LONGEST_COMMAND = 200


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


def replay(world: World, view: View, episode: Episode) -> Story:
    """Play an episode's replies again."""
    game, story = Game(world), Story([], [])
    for turn in episode.turns:
        text = turn.reply.text
        if "<action>" not in text.lower():  # valid all the same: the tags were understood (style "bare")
            text = f"<action>{text}</action>"
        action = read(text) if turn.valid else None
        before = set(game.seen)
        if action is not None and game.play(command := view.read(game, action)) is not None:
            story.played.append(command)
            story.seen.extend((r, world.inside[r]) for r in sorted(game.seen - before))
    return story


def full_digest(world: World, story: Story) -> str:
    """What was seen where, and what was done."""
    seen = "; ".join(f"{world.r_names[r]}: {_held(world, objects)}" for r, objects in story.seen)
    did = "; ".join(story.played)
    return f"seen {seen or 'nothing'}\ndid {did or 'nothing'}"


def full_reflection(world: World, story: Story, *, won: bool) -> str:
    """Where the wanted things were, where there was nothing of use, and what follows."""
    wanted = world.goal_objects | set(world.lamps)
    found = [f"{world.names[o]} was in {world.r_names[r]}" for r, objects in story.seen for o in objects if o in wanted]
    vain = [world.r_names[r] for r, objects in story.seen if not wanted.intersection(objects)]
    known = {r for r, _ in story.seen}
    steps = plan(Game(world), known)
    others = [name for r, name in enumerate(world.r_names) if r not in known and world.places[r] >= 0]
    ahead = ", ".join(steps) if steps else f"search {listed(others[:4])} next"
    facts = "; ".join([*found, f"nothing of use in {listed(vain)}"] if vain else found) or "nothing was found"
    return (
        "<reflection>\n"
        f"outcome: {'won' if won else 'not won'}\n"
        f"env_answer: {facts}\n"
        f"error_category: {'none' if won else 'out-of-turns'}\n"
        f"plan: {ahead}\n"
        "</reflection>"
    )


def _held(world: World, objects: tuple[int, ...]) -> str:
    return ", ".join(world.names[o] for o in objects) or "nothing"
