"""Single-core environment steps per second, and bytes of a live environment.

Random legal play on 50 tasks, three episodes each in turn, as trials play them: resets count, the choice of the move
counts, building the worlds is timed apart. The best of three passes is reported, since the machine may be busy.
"""

from __future__ import annotations

import gc
import time
import tracemalloc

from mulligan.bench import Report
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import MissingExtra
from mulligan.seeding import generator

TASKS = 50
STEPS = 30_000
CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("minesweeper", {}),
    ("minesweeper", {"view": "compact"}),
    ("sokoban", {}),
    ("tictactoe", {"opponent": "random"}),
    ("tictactoe", {"opponent": "mcts:100"}),
    ("kuhn", {"opponent": "intermediate"}),
    ("kuhn", {"opponent": "cfr"}),
    ("alfworld", {}),
    ("webshop", {}),
    ("bandit", {}),
)


def run() -> Report:
    rows: list[tuple[str | float, ...]] = []
    for name, params in CASES:
        label = " ".join([name, *(f"{key}={value}" for key, value in params.items())])
        try:
            rows.append((label, *_measure(name, params)))
        except MissingExtra as missing:
            rows.append((label, f"needs the extra {missing.extra!r}", "", ""))
    return Report("Environments, one core", ("environment", "steps/s", "build µs", "bytes"), tuple(rows))


def _measure(name: str, params: dict[str, object]) -> tuple[float, float, float]:
    tasks = [registry.make_task(name, seed, env_params=params) for seed in range(TASKS)]
    started = time.perf_counter()
    worlds = [registry.build(task) for task in tasks]
    build = (time.perf_counter() - started) / TASKS
    limit = STEPS if "mcts" not in str(params) else STEPS // 20
    best = max(_steps_per_second(worlds, limit) for _ in range(3))
    return best, build * 1e6, _bytes_each(name, params)


def _steps_per_second(worlds: list[Env], limit: int) -> float:
    choose = generator(0, "bench").random
    steps = episode = 0
    started = time.perf_counter()
    while steps < limit:
        for world in worlds:
            world.reset(episode)
            for _ in range(world.task.turns):
                legal = world.legal()  # type: ignore[attr-defined]
                steps += 1
                if world.step(legal[int(choose() * len(legal))]).done:
                    break
        episode += 1
    return steps / (time.perf_counter() - started)


def _bytes_each(name: str, params: dict[str, object]) -> float:
    """Python memory of one more live world in the middle of an episode; what all worlds share is not counted."""
    first = registry.make(name, 0, env_params=params)
    first.reset()
    tasks = [registry.make_task(name, seed, env_params=params) for seed in range(1, 101)]
    for task in tasks:  # caches fill before the count begins
        registry.build(task).reset()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        worlds = [registry.build(task) for task in tasks]
        for world in worlds:
            world.reset()
            world.step(world.legal()[0])  # type: ignore[attr-defined]
        return (tracemalloc.get_traced_memory()[0] - before) / len(worlds)
    finally:
        tracemalloc.stop()
