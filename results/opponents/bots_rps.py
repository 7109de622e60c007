"""Policies against each of OpenSpiel's 43 bots, in points of a match of 1,000 throws, as arXiv 2303.03196 has them.

    python results/opponents/bots_rps.py [POLICY] [--matches N] [--window W] [--name NAME]

POLICY is one as `mulligan eval` takes it (default: expert). A run is shown the last W throws (default: as many as it
was trained with), and its replies are sampled as in training. NAME is what it is called in the table. bots.json keeps a
row for each policy and bot: `policy`, `bot`, `points` of each match; bots.md is made of it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mulligan
from mulligan.envs.repeated.env import LONGEST
from mulligan.envs.rps.bots import bot_names
from mulligan.players import Plays, as_trained, player_from, trained_with
from mulligan.policy.threads import run_async
from mulligan.report.files import replace_file
from mulligan.rollout.collect import Job, collect
from mulligan.text import markdown_row
from mulligan.trial.settings import TrialSettings
from mulligan.types import Trial

HERE = Path(__file__).parent
PUBLISHED = {
    "greenberg (published)": (288.15, 3.65),
    "PopRL, the best learner (published)": (258.00, 10.98),
    "Chinchilla 70B, no training (published)": (201.00, 45.80),
}
"""Population return and within-population exploitability, from a summary of the paper's tables 1, 3, 4 and 7."""
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policy", nargs="?", default="expert")
    parser.add_argument("--matches", type=int, default=1)
    parser.add_argument("--window", type=int)
    parser.add_argument("--name")
    arguments = parser.parse_args()
    path, name = HERE / "bots.json", arguments.name or arguments.policy
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    points = played(arguments.policy, arguments.matches, arguments.window)
    rows = [row for row in rows if row["policy"] != name]
    rows += [{"policy": name, "bot": bot, "points": of_bot} for bot, of_bot in points.items()]
    replace_file(path, as_lines(rows).encode())
    replace_file(HERE / "bots.md", text(rows).encode())


def played(name: str, matches: int, window: int | None) -> dict[str, list[float]]:
    """Bot -> the points of each match; all matches are played at the same time."""
    settings, params = TrialSettings(), dict[str, Any]()
    if config := trained_with(name):
        params = as_trained(config, "rps")[1]
        settings = replace(config.trial, window=window or params.get("throws", mulligan.make_task("rps")["throws"]))
    settings = replace(settings, episodes=1, memory="none")
    params = {**params, "throws": LONGEST, "pool": ""}
    policy = player_from(name, plays=Plays("rps", params, settings))
    jobs = [
        Job(mulligan.make_task("rps", seed=number, params={**params, "opponent": f"bot:{bot}"}), number)
        for bot in bot_names()
        for number in range(matches)
    ]
    trials: dict[int, Trial] = {}
    run_async(partial(collect, jobs, policy, settings, concurrency=len(jobs), on_trial=trials.__setitem__))
    points: dict[str, list[float]] = {bot: [] for bot in bot_names()}
    for index, job in enumerate(jobs):
        [episode] = trials[index].episodes
        if episode.stop.is_infrastructure or len(episode.turns) < LONGEST:
            raise SystemExit(f"{job.task.opponent}: the match ended after {len(episode.turns)} throws: {episode.stop}")
        points[str(job.task.opponent).removeprefix("bot:")].append(round(LONGEST * episode.reward, 1))
    return points


def text(rows: list[Row]) -> str:
    """Population return and within-population exploitability of each policy, and the points against each bot."""
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    means = {(row["policy"], row["bot"]): sum(row["points"]) / len(row["points"]) for row in rows}
    bots = bot_names()
    lines = [markdown_row(("policy", "population return", "within-population exploitability", "bots that it beats"))]
    lines.append("|---|---|---|---|")
    lines += [markdown_row((name, f"{all_:.2f}", f"{worst:.2f}", "")) for name, (all_, worst) in PUBLISHED.items()]
    for policy in policies:
        points = [means[policy, bot] for bot in bots]
        figures = (f"{sum(points) / len(points):.1f}", f"{-min(points):.1f}", sum(each > 0 for each in points))
        lines.append(markdown_row((policy, *map(str, figures))))
    lines += ["", markdown_row(("bot", *policies)), "|---" * (1 + len(policies)) + "|"]
    ordered = sorted(bots, key=lambda bot: means[policies[-1], bot])
    lines += [markdown_row((bot, *(f"{means[policy, bot]:.0f}" for policy in policies))) for bot in ordered]
    return "\n".join(lines) + "\n"


def as_lines(rows: list[Row]) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


if __name__ == "__main__":
    main()
