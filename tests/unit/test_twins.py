"""No world of evaluation is trained on: not mirrored, not rotated, not with other distractors, not from another start.

Worlds are drawn as the presets draw them, and compared without `world_key`: by what an agent would call the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import pytest

from mulligan.envs import registry
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import tasks_of
from mulligan.training.config import shown_params
from mulligan.training.resolve import resolve
from mulligan.types import Task


def images(cells: str, cols: int) -> Iterator[bytes]:
    """A board in its eight orientations."""
    board = np.array(list(cells.encode()), dtype=np.uint8).reshape(-1, cols)
    for flipped in (board, board.T):
        for quarter in range(4):
            turned = np.rot90(flipped, quarter)
            yield bytes([turned.shape[1]]) + turned.tobytes()


def minesweeper(env: Any) -> set[Hashable]:
    cells = "".join("*" if cell in env.mines else "." for cell in range(len(env.counts)))
    return set(images(cells, env.board.cols))


def sokoban(env: Any) -> set[Hashable]:
    return set(images(env.level.cells.replace("P", "_").replace("+", "O"), env.cols))


def webshop(env: Any) -> set[Hashable]:
    """All products that a shopper looks at: of the kind, with the attribute that is asked for first in the title."""
    kind, attribute = env.goal.kind, env.goal.attributes[0]
    alike = [each for each in env.shop.products if each.kind == kind and attribute in each.title.lower()]
    assert env.goal.asin in {product.asin for product in alike}
    return {(product.title, product.features, product.price) for product in alike}


def alfworld(env: Any) -> set[Hashable]:
    """Room, goal and where the wanted things lie, receptacles by their type."""
    world = env.world
    room = [kind for kind, place in zip(world.r_types, world.locations, strict=True) if place >= 0]
    holders = [
        kind
        for kind, inside in zip(world.r_types, world.inside, strict=True)
        if any(world.object_types[each] == world.goal.object_type for each in inside)
    ]
    return {(tuple(sorted(room)), world.goal, tuple(sorted(holders)))}


def expedition(env: Any) -> set[Hashable]:
    """The names that are listed, in whatever order, and the one with the prize."""
    names = env.view.names.places
    return {(frozenset(names), names[env.first_prize])}


WORLDS: list[tuple[str, Callable[[Any], set[Hashable]]]] = [
    ("cpu", minesweeper),
    ("gpu-smollm2-minesweeper", minesweeper),
    ("gpu-smollm2-sokoban", sokoban),
    ("gpu-smollm2-sokoban-dark", sokoban),
    ("cpu-sokoban-dark", sokoban),
    ("gpu-smollm2-webshop", webshop),
    ("cpu-alfworld", alfworld),
    ("gpu-smollm2-alfworld", alfworld),
    ("nano-expedition-signpost", expedition),
    ("nano-expedition-camp", expedition),
]


@pytest.mark.parametrize(
    ("evaluated_tasks", "trained_tasks"), [(128, 240), pytest.param(512, 5_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("preset", "names_of"), WORLDS, ids=[preset for preset, _ in WORLDS])
def test_no_evaluation_world_is_trained_on(
    preset: str, names_of: Callable[[Any], set[Hashable]], evaluated_tasks: int, trained_tasks: int
) -> None:
    config = resolve(preset, None, {})
    evaluated = tasks_of(config.task.env, evaluated_tasks, "eval", config.task.params)
    kept_apart = set().union(*(names_of(registry.build(task)) for task in evaluated))
    for seed, params in enumerate((config.task.params, shown_params(config))):  # of updates, and of the warm start
        mixture = Mixture.parse(config.task.env, params)
        trained = [draw.task for draw in draw_tasks(mixture, trained_tasks // 2, seed=seed, update=0)]
        twins = [task.seed for task in trained if names_of(registry.build(task)) & kept_apart]
        assert twins == []


def test_a_list_holds_each_task_once() -> None:
    tasks: list[Task] = tasks_of("minesweeper", 512, "eval", {"view": "compact", "turns": 10})
    assert len({registry.build(task).mines for task in tasks}) == 512  # type: ignore[attr-defined]
