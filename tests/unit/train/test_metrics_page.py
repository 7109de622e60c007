"""docs/metrics.md names what training writes: nothing more, nothing less."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mulligan.training.config import AlgoConfig, TaskConfig
from mulligan.training.loop import train
from small_runs import metrics, small, trial

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
WHERE_SOMETHING_FAILS = {"failures/REASON", "validation/failed", "warning"}
LETTERS = {"REASON": "[a-z_]+", "CLASS": r"[\w/.-]+", "k": r"\d+", "n": r"\d+", "m": r"\d+"}


def listed() -> dict[str, re.Pattern[str]]:
    """Name on the page -> what it stands for."""
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    assert len(names) == len(set(names))
    return {name: re.compile(re.sub(r"REASON|CLASS|\b[knm]\b", lambda part: LETTERS[part[0]], name)) for name in names}


def written(folder: Path) -> set[str]:
    """Names that runs write, which together have every part that measures something."""
    reflecting = trial(episodes=3, memory="both", style="bare", max_tokens=3, reflection_tokens=3)
    validated = replace(small().run, validate_every=1, validation_tasks=2, diversity_tasks=1, updates=1)
    sections = [
        {"trial": reflecting, "run": validated, "algo": AlgoConfig(estimator="ppo", kl_weight=0.1)},
        {
            "algo": AlgoConfig(estimator="gigpo", entropy_weight=0.01),
            "run": replace(small().run, staleness=1),
            "task": TaskConfig(env="bandit:1,minesweeper:1", params={"rows": 3, "cols": 3, "mines": 2, "turns": 2}),
        },
    ]
    runs = [train(small(**each), folder / str(number)) for number, each in enumerate(sections)]
    times = {"time/rollout", "time/update", "time/engine_tokens_per_s"}  # `metrics` leaves them out
    return times | {name for run in runs for line in metrics(run) for name in line}


def test_the_page_lists_every_metric_and_no_other(tmp_path):
    names, patterns = written(tmp_path), listed()
    assert not [name for name in names if not any(pattern.fullmatch(name) for pattern in patterns.values())]
    never = {shown for shown, pattern in patterns.items() if not any(map(pattern.fullmatch, names))}
    assert never <= WHERE_SOMETHING_FAILS
