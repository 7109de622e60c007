"""Curves of a training run, from its metrics: a list of numbers for each name, one for each update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mulligan.view.folder import inside, json_lines, toml_of
from mulligan.view.runs import card, is_at_work

_SHOWN = {
    "Solved on validation tasks": ("share", tuple(f"validation/p@{k}" for k in range(1, 9))),
    "Solved in training": ("share", tuple(f"p@{k}" for k in range(1, 9))),
    "Return of each episode": ("number", tuple(f"reward/{k}" for k in range(1, 9))),
    "Return, as a share of the best that any agent can expect": ("share", ("validation/share_of_optimum",)),
    "Entropy of the replies": ("number", ("loss/entropy",)),
    "KL to the policy before": ("number", ("loss/kl_old", "loss/kl_ref", "loss/kl")),
    "Time by stage, seconds": ("number", ("time/rollout", "time/update")),
    "Valid replies": ("share", ("valid", "reflections/valid")),
    "Diversity of first episodes": ("number", ("validation/diversity",)),
    "Replies that a limit cut": ("share", ("replies/cut",)),
    "Loss and gradient": ("number", ("loss/loss", "loss/grad_norm")),
    "Tokens sampled a second": ("number", ("time/engine_tokens_per_s",)),
}
"""Charts: what their axis has, and their metrics."""
_TITLES = {
    "validation/p@": "p@", "reward/": "episode ", "loss/": "", "time/": "", "validation/": "", "replies/": "",
}  # fmt: skip
_MOST_POINTS = 2_000


def curves(root: Path, name: str) -> dict[str, Any]:
    """All charts of a run; of more updates than `_MOST_POINTS`, points at even distances."""
    path = inside(root, name)
    lines = json_lines(path / "metrics.jsonl")
    charts = []
    for title, (kind, metrics) in _SHOWN.items():
        series = [_series(lines, metric) for metric in metrics if any(metric in line for line in lines)]
        if series:
            charts.append({"title": title, "kind": kind, "series": series})
    config = toml_of(path / "config.toml")
    warnings = [{"update": _whole(line), "text": str(line["warning"])} for line in lines if line.get("warning")]
    made = card(root, name)
    return {
        "id": name,
        "title": made["title"],
        "arm": made["arm"],
        **_identity(config),
        "charts": charts,
        "warnings": warnings[:50],
        "isRunning": is_at_work(path),
    }


def _series(lines: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    points = [[_whole(line), line[metric]] for line in lines if isinstance(line.get(metric), int | float)]
    step = -(-len(points) // _MOST_POINTS)
    prefix = next((prefix for prefix in _TITLES if metric.startswith(prefix)), "")
    label = _TITLES.get(prefix, "") + metric.removeprefix(prefix) if prefix else metric
    return {"metric": metric, "label": label.replace("_", " "), "points": points[:: step or 1]}


def _whole(line: Mapping[str, Any]) -> int:
    update = line.get("update", 0)
    return int(update) if isinstance(update, int | float) else 0


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What tells runs apart but for their seeds: runs with equal `group`s are seeds of one thing."""
    run = {key: value for key, value in config.get("run", {}).items() if key not in ("seed", "threads")}
    rest = {key: value for key, value in config.items() if key != "run"}
    model = {**rest.get("model", {})}
    model.pop("name", None) if "/" in str(model.get("name", "")) else None  # a warm start's folder names its seed
    group = repr(sorted({**rest, "run": run, "model": model}.items(), key=lambda item: item[0]))
    episodes = config.get("trial", {}).get("episodes")
    return {"seed": config.get("run", {}).get("seed"), "group": group, "method": "RL" if episodes == 1 else "meta-RL"}
