"""How busy a GPU is: staleness, group size, workers and lock-step, in a discrete-event simulation.

    python results/scaling/simulate.py        # simulation.json and simulation.png beside it; a minute

Turns of each episode are drawn from `turns.json`: trials of MineSweeper's demonstrator, which `--measure` plays again.
The speeds are those of one H200 with a model of Qwen3-4B's shape (docs/performance.md). How long replies are is
assumed: log-normal with a mean of 250 tokens, a tenth of them above 500.

A GPU gives each of its n sequences a token in `STEP_BASE + n * STEP_EACH` seconds. It samples and trains in turns, as
one process does; a trial holds one of its slots from beginning to end. Occupancy is the time that the same work takes
on a GPU whose slots are always full, over the time that it took.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
STEP_BASE = 0.0032
"""8 GB of weights, read at six tenths of 4.14 TB/s."""
STEP_EACH = 0.000015
"""Keys and values of 400 tokens, 147 kB each, read at 4.14 TB/s."""
TRAINED = 17_000.0
"""Tokens a second: 390,000 tokens, read and sampled, in 22.8 s (all weights)."""
READ_BEFORE = 5.0
"""Tokens of a row for each that was sampled: 326,000 read and 64,500 sampled."""
MEAN_REPLY, SPREAD = 250.0, 0.9
UPDATES = 6

Trial = list[list[int]]
"""[episode][turn] tokens of each reply."""


@dataclass(frozen=True)
class Setting:
    tasks: int = 16
    group: int = 8
    slots: int = 128
    staleness: int = 0
    workers: int = 0
    """Processes that hold environments; 0: their steps take no time."""
    env_seconds: float = 0.0
    lock_step: bool = False


def draw(turns: list[list[int]], count: int, rng: random.Random) -> list[Trial]:
    mu = math.log(MEAN_REPLY) - SPREAD**2 / 2
    return [
        [[max(1, round(rng.lognormvariate(mu, SPREAD))) for _ in range(each)] for each in rng.choice(turns)]
        for _ in range(count)
    ]


def tokens_of(trials: list[Trial]) -> int:
    return sum(tokens for trial in trials for episode in trial for tokens in episode)


def training_seconds(trials: list[Trial]) -> float:
    return tokens_of(trials) * (1 + READ_BEFORE) / TRAINED


def least_seconds(trials: list[Trial], slots: int) -> float:
    """On a GPU whose slots are always full."""
    return tokens_of(trials) * (STEP_BASE + slots * STEP_EACH) / slots + training_seconds(trials)


@dataclass
class Sampler:
    """A GPU that decodes: every sequence gets a token at each step. `clock` counts the steps."""

    now: float = 0.0
    clock: float = 0.0
    ends: list[tuple[float, int]] = field(default_factory=list)
    """Heap of (clock at which a reply is complete, trial)."""

    def next_end(self) -> float:
        if not self.ends:
            return math.inf
        return self.now + (self.ends[0][0] - self.clock) * (STEP_BASE + len(self.ends) * STEP_EACH)

    def move_to(self, moment: float) -> None:
        if self.ends:
            self.clock += (moment - self.now) / (STEP_BASE + len(self.ends) * STEP_EACH)
        self.now = moment

    def begin(self, trial: int, tokens: int) -> None:
        heapq.heappush(self.ends, (self.clock + tokens, trial))


def run(setting: Setting, updates: list[list[Trial]]) -> float:
    """Seconds that all updates take."""
    if setting.lock_step:
        return sum(_in_lock_step(setting, trials) for trials in updates)
    sampler, in_env = Sampler(), list[tuple[float, int]]()
    free_at = [0.0] * setting.workers
    replies = [[tokens for episode in trial for tokens in episode] for trials in updates for trial in trials]
    update_of = [number for number, trials in enumerate(updates) for _ in trials]
    left = [len(trials) for trials in updates]
    begun = under_way = trained = 0
    while trained < len(updates):
        while begun < len(replies) and under_way < setting.slots and update_of[begun] <= trained + setting.staleness:
            sampler.begin(begun, replies[begun][0])
            begun, under_way = begun + 1, under_way + 1
        if not left[trained]:  # nothing is sampled meanwhile; environments go on
            seconds = training_seconds(updates[trained])
            sampler.now += seconds
            trained += 1
            continue
        moment = min(sampler.next_end(), in_env[0][0] if in_env else math.inf)
        moment = max(moment, sampler.now)
        is_reply = sampler.next_end() <= (in_env[0][0] if in_env else math.inf)
        sampler.move_to(moment)
        if is_reply:
            _, trial = heapq.heappop(sampler.ends)
            step_end = moment
            if setting.workers:
                step_end = max(moment, heapq.heappop(free_at)) + setting.env_seconds
                heapq.heappush(free_at, step_end)
            heapq.heappush(in_env, (step_end, trial))
            continue
        _, trial = heapq.heappop(in_env)
        replies[trial].pop(0)
        if replies[trial]:
            sampler.begin(trial, replies[trial][0])
        else:
            under_way -= 1
            left[update_of[trial]] -= 1
    return sampler.now


def _in_lock_step(setting: Setting, trials: list[Trial]) -> float:
    """All are asked at once, the slowest reply ends the turn, and the slowest episode the attempt."""
    seconds = 0.0
    for attempt in range(max(map(len, trials))):
        playing = [trial[attempt] for trial in trials if len(trial) > attempt]
        for turn in range(max(map(len, playing))):
            asked = [episode[turn] for episode in playing if len(episode) > turn]
            for start in range(0, len(asked), setting.slots):
                together, sampler = asked[start : start + setting.slots], Sampler()
                for number, tokens in enumerate(together):
                    sampler.begin(number, tokens)
                while sampler.ends:
                    sampler.move_to(sampler.next_end())
                    heapq.heappop(sampler.ends)
                seconds += sampler.now
            if setting.workers:
                seconds += math.ceil(len(asked) / setting.workers) * setting.env_seconds
    return seconds + training_seconds(trials)


def occupancy(setting: Setting, turns: list[list[int]], seed: int = 0) -> float:
    rng = random.Random(seed)
    updates = [draw(turns, setting.tasks * setting.group, rng) for _ in range(UPDATES)]
    return sum(least_seconds(trials, setting.slots) for trials in updates) / run(setting, updates)


def measure(count: int = 512) -> list[list[int]]:
    """Turns of each episode, of trials that MineSweeper's demonstrator plays."""
    import mulligan
    from mulligan.policy.scripted import ExpertPolicy

    player = ExpertPolicy(0.7, 0.2)
    trials = [
        mulligan.run_trial_sync(mulligan.make_task("minesweeper", seed), player, seed=seed) for seed in range(count)
    ]
    return [[len(episode.turns) for episode in trial.episodes] for trial in trials]


def tables(turns: list[list[int]]) -> dict[str, dict[str, dict[str, float]]]:
    """Panel -> curve -> value on the axis -> occupancy."""
    ways = {
        "lock-step": {"lock_step": True},
        "staleness 0": {},
        "staleness 1": {"staleness": 1},
        "staleness 2": {"staleness": 2},
    }
    panels: dict[str, dict[str, dict[str, float]]] = {"group": {}, "workers": {}, "slots": {}}
    for name, way in ways.items():
        groups = {str(group): occupancy(Setting(group=group, **way), turns) for group in (2, 4, 8, 16, 32)}
        slow = {"env_seconds": 1.0, **way}
        workers = {str(count): occupancy(Setting(workers=count, **slow), turns) for count in (2, 4, 8, 16, 32, 64, 128)}
        slots = {
            str(count): occupancy(Setting(group=16, slots=count, **way), turns) for count in (16, 32, 64, 128, 256)
        }
        panels["group"][name], panels["workers"][name], panels["slots"][name] = groups, workers, slots
    return panels


def picture(panels: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    titles = {
        "group": ("trials of a task (16 tasks, 128 slots)", "Group size"),
        "workers": ("workers (16 × 8 trials, 1 s a step)", "Slow environments"),
        "slots": ("slots (16 × 16 trials)", "Slots"),
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), sharey=True)
    for axis, (panel, (label, title)) in zip(axes, titles.items(), strict=True):
        for name, curve in panels[panel].items():
            axis.plot([int(x) for x in curve], [100 * y for y in curve.values()], marker="o", label=name)
        axis.set(xscale="log", xlabel=label, title=title, ylim=(0, 105))
        axis.set_xticks([int(x) for x in next(iter(panels[panel].values()))])
        axis.xaxis.set_major_formatter(mpl.ticker.ScalarFormatter())
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("occupancy of the GPU, %")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    if "--measure" in sys.argv:
        (HERE / "turns.json").write_text(json.dumps(measure()) + "\n")
    turns = json.loads((HERE / "turns.json").read_text())
    panels = tables(turns)
    (HERE / "simulation.json").write_text(json.dumps(panels, indent=1) + "\n")
    picture(panels, HERE / "simulation.png")
    for panel, curves in panels.items():
        for name, curve in curves.items():
            sys.stdout.write(
                f"{panel:8} {name:12} " + "  ".join(f"{x}: {100 * y:.0f} %" for x, y in curve.items()) + "\n"
            )


if __name__ == "__main__":
    main()
