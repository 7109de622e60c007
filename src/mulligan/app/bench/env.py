"""Single-core environment steps per second, and bytes of a live environment.

Random legal play on 50 tasks, as trials play them: resets count, the choice of the move counts, building the worlds is
timed separately. The best of three passes is reported, since the machine may be busy.
"""

from __future__ import annotations

from mulligan.app.bench import Cell, Report, bytes_each, seconds, steps_per_second
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import MissingExtra

TASKS = 50
STEPS = 30_000
CASES = (
    "minesweeper", "minesweeper view=compact", "sokoban", "tictactoe opponent=random", "tictactoe opponent=mcts:100",
    "kuhn opponent=soft-intermediate", "kuhn opponent=cfr", "alfworld", "webshop", "bandit",
)  # fmt: skip


def run() -> Report:
    rows: list[dict[str, Cell]] = []
    for case in CASES:
        try:
            rows.append({"environment": case, **_measure(*case.split())})
        except MissingExtra as missing:
            rows.append({"environment": case, "steps/s": f"needs the extra {missing.extra!r}"})
    return Report("Environments, one core", rows)


def _measure(name: str, *params: str) -> dict[str, Cell]:
    given = dict(param.split("=") for param in params)
    tasks = [registry.task_of(name, seed, given) for seed in range(TASKS)]
    worlds: list[Env] = []
    build = seconds(lambda: worlds.extend(registry.build(task) for task in tasks)) / TASKS
    limit = STEPS if "mcts" not in str(params) else STEPS // 20
    speed = max(steps_per_second(worlds, limit) for _ in range(3))

    def begun() -> list[Env]:
        more = [registry.build(task) for task in tasks]
        for world in more:
            world.reset()
            world.step(world.legal()[0])  # type: ignore[attr-defined]
        return more

    return {"steps/s": speed, "build µs": build * 1e6, "bytes": bytes_each(begun)}
