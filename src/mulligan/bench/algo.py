"""How long an update's credit takes: 100,000 turns from trials to returns to advantages, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from mulligan.algo.advantage import estimator
from mulligan.algo.batch import PLAY, StepBatch
from mulligan.algo.build import TrialRecord, batch_from_groups
from mulligan.algo.credit import FORMS, flat_returns
from mulligan.algo.normalise import History
from mulligan.bench import Report
from mulligan.errors import StopReason
from mulligan.types import Completion, Episode, Group, Reflection, Task, Trial, Turn

GROUP, EPISODES, TURNS = 8, 3, 7
GAMMA_STEP, GAMMA_TRAJ = 0.95, 0.6


def records_of(turns: int) -> list[TrialRecord]:
    """Trials of three episodes and seven turns, in groups of eight, with states that often recur."""
    rng = np.random.default_rng(0)
    count = turns // (EPISODES * TURNS) + 1
    wins, states = rng.random((count, EPISODES)) < 0.3, rng.integers(0, 20, (count, EPISODES, TURNS))
    return [
        TrialRecord(
            [[0.0] * (TURNS - 1) + [float(won)] for won in wins[number]],
            task=number // GROUP,
            shaping=[[0.1] * TURNS] * EPISODES,
            state_keys=[[f"board {key}" for key in episode] for episode in states[number].tolist()],
            reflected=[True, True, False],
            task_class="minesweeper/6x6/3",
        )
        for number in range(count)
    ]


def group_of(records: list[TrialRecord], seed: int) -> Group:
    """The same trials as the trial runner would hand them over."""
    task = Task("minesweeper", seed, TURNS, "minesweeper/6x6/3", (("cols", 6), ("mines", 3), ("rows", 6)))
    reply, note = Completion("open a1", completion_tokens=20), Reflection("beware a1", True, completion=Completion("…"))

    def episode(n: int, record: TrialRecord) -> Episode:
        assert record.state_keys is not None
        played = zip(record.rewards[n], record.state_keys[n], strict=True)
        turns = tuple(Turn("board", reply, reward, True, key, shaping=0.1) for reward, key in played)
        return Episode(n, turns, "board", StopReason.LOST, reflection=note)

    return Group(task, tuple(Trial(task, tuple(episode(n, r) for n in range(EPISODES)), "both") for r in records))


def fastest(call: Callable[[], object], repeats: int = 5) -> float:
    """Milliseconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1000 * min(times)


def run() -> Report:
    records = records_of(100_000)
    groups = [group_of(records[i : i + GROUP], seed=i) for i in range(0, len(records), GROUP)]
    from_groups = partial(
        batch_from_groups, groups, gamma_step=GAMMA_STEP, gamma_traj=GAMMA_TRAJ, shaping_weight=0.3, invalid_penalty=0.1
    )
    batch = from_groups()
    rows = [(f"returns, {form}", fastest(partial(_returns, batch, len(records), form))) for form in FORMS]
    built = fastest(from_groups)
    rows.append(("build with returns, from groups", built))
    history = History()
    history.observe(batch)
    for name in ("gigpo", "grpo", "rloo", "reinforce_pp"):
        rows.append((name, fastest(partial(estimator(name), batch, history=history))))
    rows.append(("groups of trials to GiGPO's advantages", built + dict(rows)["gigpo"]))
    play = batch.phase == PLAY
    title = f"Credit and advantages: {int(play.sum()):,} turns, {int((~play).sum()):,} reflections"
    return Report(title, ("part", "ms"), tuple(rows))


def _returns(batch: StepBatch, trials: int, form: str) -> object:
    counts, episodes = np.full(trials * EPISODES, TURNS), np.full(trials, EPISODES)
    rewards = batch.reward[batch.phase == PLAY]
    return flat_returns(rewards, counts, episodes, gamma_step=GAMMA_STEP, gamma_traj=GAMMA_TRAJ, form=form)
