"""The games of `memories.py`: one episode of each by the same player, who decides by what its memory shows.

In a bandit and in MineSweeper every move is the player's choice. In ALFWorld it chooses where to look next, and in
WebShop which product to buy; all else is done by the environment's script. The lesson says what was good and what was
bad: the places that were searched in vain, and the one after which the task could be done; the product that was bought.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from memory_forms import Lesson, Memory

import mulligan
from mulligan.envs import registry
from mulligan.envs.alfworld.env import _explore
from mulligan.envs.alfworld.plan import plan
from mulligan.envs.webshop.env import WebShop
from mulligan.envs.webshop.player import FirstListed, _may_fit

GAMES: dict[str, dict[str, Any]] = {
    "bandit": {"arms": 6},
    "minesweeper": {"rows": 3, "cols": 3, "mines": 2, "view": "compact"},
    "alfworld": {"places": 14, "plan": 8, "turns": 10, "view": "compact"},
    "webshop": {"products": 1000, "per_page": 5, "view": "compact", "pays": "success"},
}
Choose = Callable[[Sequence[str]], str]
"""The player's choice among options."""


def play(memory: Memory, env: str, seed: int, place: str, choose: Callable[[str, Sequence[str]], str]) -> float:
    """One episode with its lesson; 1.0 if it was won. `choose` is given the memory's text and the options."""
    task = mulligan.make_task(env, seed=seed, params=GAMES[env])
    world: Any = registry.spec(env).build(task)
    world.reset()
    text, _ = memory.read(f"{env} {place}", env, ())
    ways = {"alfworld": _search, "webshop": _shop, "minesweeper": _moved, "bandit": partial(_moved, each_counts=True)}
    won, done = ways[env](world, task.turns, partial(choose, text))
    advice = [re.sub(r"(\S+) was good", r"use \1", re.sub(r"(\S+) was bad", r"not \1", each)) for each in done]
    memory.write(f"{env} {place}", env, Lesson("; ".join(advice), "; ".join(done), place, float(won)))
    return float(won)


def _moved(world: Any, turns: int, pick: Choose, each_counts: bool = False) -> tuple[bool, list[str]]:
    """Every move is chosen: whether the game was won, and how each of them was; only the last can be bad, unless
    `each_counts`."""
    done: list[str] = []
    for _ in range(turns):
        name = pick(_moves(world))
        step = world.step(f"<action>{name}</action>")
        is_bad = (step.done or each_counts) and not step.won
        done.append(f"{name} was {'bad' if is_bad else 'good'}")
        if step.done:
            break
    return step.won, done


def _moves(world: Any) -> list[str]:
    return [re.sub(r"</?action>", "", reply) for reply in world.legal()]


def _search(world: Any, turns: int, pick: Choose) -> tuple[bool, list[str]]:
    """A household task: where to look is chosen until what was seen is enough; then the shortest way is gone."""
    game, done = world.game, []
    names = {name.replace(" ", "_"): number for number, name in enumerate(game.world.r_names)}
    for _ in range(turns):
        before, steps = set(game.seen), plan(game, game.seen)
        unseen = [name for name, number in names.items() if number not in before and game.world.locations[number] >= 0]
        if steps:
            command: str | None = steps[0]
        else:
            here = any(number not in before for number in game.world.receptacles_at[game.at])  # it stands before one
            command = _explore(game, before, -1 if here else names[pick(unseen)]) if unseen else None
        step = world.step(f"<action>{world.view.write(game, command or 'look')}</action>")
        new = [name for name, number in names.items() if number in game.seen and number not in before]
        word = "good" if not steps and plan(game, game.seen) else "bad"
        done += [f"{name} was {word}" for name in new if not steps]
        if step.done:
            break
    return step.won, done


def _shop(world: WebShop, turns: int, pick: Choose) -> tuple[bool, list[str]]:
    """A purchase: of the listed products that may fit one is chosen, opened and bought with the options asked for."""
    shopper = _Chooser(world, pick)
    for _ in range(turns):
        step = world.step(shopper.act())
        shopper.see(step)
        if step.done:
            break
    bought = world.session.item.asin if step.done and world.session.item is not None else ""
    return step.won, [f"{bought} was {'good' if step.won else 'bad'}"] * bool(bought)


class _Chooser(FirstListed):
    """Buys the product that is chosen, and not the first one."""

    def __init__(self, world: WebShop, pick: Choose) -> None:
        super().__init__(world, random.Random(0), 1.0, 1.0)
        self.pick = pick

    def _choice(self) -> str:
        listed = [product for product in self.session.listed() if product.asin not in self.passed]
        options = [product.asin for product in listed if _may_fit(self.world, product)]
        return self.pick(options) if options else super()._choice()
