"""The demonstration's page: its two acts, what each found, and the ways to where it can be watched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mulligan.errors import MulliganError
from mulligan.view.folder import inside, run_names, sub_path
from mulligan.view.runs import card

_SIGNPOST = "signpost"
"""The second act: its name in `demo.json`, and its folder."""
_MYOPIC = "meta-RL, gamma_traj 0"
_AGENTS = ("RL", _MYOPIC, "meta-RL")


def acts(root: Path, name: str, demo: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The acts in their order, each as a section of the page."""
    sections = [_boards(demo, name)]
    if _SIGNPOST in demo:
        sections.append(_doors(demo[_SIGNPOST], sub_path(name, _SIGNPOST)))
    return [{**section, "agents": _agents(root, section.pop("run"))} for section in sections]


def about(demo: Mapping[str, Any]) -> list[str]:
    """How it was made."""
    doors = demo.get(_SIGNPOST, {})
    second = [f"The second act: {doors['about']}"] if "about" in doors else []
    return [*map(str, demo["about"]), *second, f"Made with: {demo['command']} ({demo['minutes']:g} minutes)"]


def _act(act: Mapping[str, Any], run: str, noun: str) -> dict[str, Any]:
    """An act in figures: its rows, its agents over training, and tasks (called `noun`) to watch two of them at."""
    parts = {"RL": "policy", "meta-RL": "policy"}
    rows = [
        {
            "name": row["method"],
            "values": row["p"],
            "ci": row.get("ci") or [],
            "part": parts.get(row["method"], "other"),
        }
        for row in act["rows"]
    ]
    watch = [
        {"text": str(each["text"]), "place": int(each["place"]), "runs": [sub_path(run, part) for part in each["runs"]]}
        for each in act.get("pairs", ())
    ]
    return {
        "title": f"{act['title']}: {act['tasks']} tasks never trained on, {act['episodes']} attempts at each",
        "names": [f"{k} attempt{'s' if k > 1 else ''}" for k in range(1, act["episodes"] + 1)],
        "versus": False,
        "ceiling": act.get("ceiling"),
        "shares": [],
        "rows": rows,
        "watch": watch,
        "charts": _over_training(act, noun) if "curves" in act else [],
        "run": run,
    }


def _agents(root: Path, run: str) -> list[dict[str, Any]]:
    """The training runs of an act's agents, and their evaluations, as far as the folder has them."""
    agents = []
    with suppress(MulliganError):
        for name in run_names(inside(root, run)):
            made = card(root, sub_path(run, name))
            if "/" not in name and made["arm"] in _AGENTS:
                agents.append(
                    {"name": made["arm"], "run": made["id"], "evaluation": sub_path(made["id"], "evaluation")}
                )
    return sorted(agents, key=lambda agent: _AGENTS.index(agent["name"]))


def _boards(demo: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The first act: what memory is worth; nothing is claimed that the intervals do not carry."""
    shares = {row["method"]: [100 * float(share) for share in row["p"]] for row in demo["rows"]}
    rl, meta, alone = shares["RL"], shares["meta-RL"], shares.get("meta-RL, independent retries")
    lead = [
        "A tiny language model plays MineSweeper: it opens the cells of a small board, and has lost when it opens a "
        f"mine. It plays each board up to {len(meta)} times and remembers what it opened before. RL trained it on "
        "single attempts, meta-RL on all of them together, from the same weights and for as many updates.",
        f"At the first attempt meta-RL solves {meta[0]:.1f} %, RL {rl[0]:.1f} %. Within {len(meta)} attempts it is "
        f"{meta[-1]:.1f} against {rl[-1]:.1f} %: {_points(demo['gap'])} on the same boards.",
    ]
    if alone:
        lead.append(f"Without memory of its earlier attempts, the same meta-RL agent solves {alone[-1]:.1f} %.")
    if (gap := demo.get("gap_to_myopic")) and gap["ci"][0] <= 0 <= gap["ci"][1]:
        lead.append(
            f"What it learned is to use its memory: trained with no credit for later attempts ({_MYOPIC}), it solves "
            f"{shares[_MYOPIC][-1]:.1f} %, which these boards do not tell apart from {meta[-1]:.1f} %."
        )
    return {
        **_act(demo, run, "board"),
        "pair": ("RL", "meta-RL"),
        "finding": _claimed("Later attempts are worth more to the agent that was trained on them", demo["gap"]),
        "lead": lead,
    }


def _doors(act: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The second act: when exploring is learned."""
    reads = {
        f"trained with no credit for later attempts ({name})" if name == _MYOPIC else name: 100 * float(share)
        for name, share in act["reads_first"].items()
    }
    first, *others = reversed(reads)
    lead = [
        "Behind one of eight doors is a prize of 1, behind the others 0.1. A sign names the door, but to read it takes "
        "a whole attempt and earns nothing: it pays only where later attempts count.",
        f"{first} reads the sign first in {reads[first]:.1f} % of the tasks; "
        + "; ".join(f"{name}, {reads[name]:.1f} %" for name in others)
        + f". Within {act['episodes']} attempts {first} is {_points(act['gap'])} above RL.",
        str(act["sentence"]),
    ]
    return {
        **_act(act, run, "world"),
        "pair": (_MYOPIC, "meta-RL"),
        "finding": _claimed("Finding out first is learned where later attempts count", act["gap"]),
        "lead": lead,
    }


def _claimed(finding: str, gap: Mapping[str, Any]) -> str:
    """The finding as a title, where the interval carries it; empty otherwise."""
    return finding if gap["ci"][0] > 0 else ""


def _points(gap: Mapping[str, Any]) -> str:
    low, high = gap["ci"]
    doubt = "; the interval includes 0" if low <= 0 <= high else ""
    return f"{gap['points']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}{doubt})"


def _over_training(act: Mapping[str, Any], noun: str) -> list[dict[str, Any]]:
    """Charts of the agents on validation tasks: the first attempt, and all of them."""
    last, tasks = int(act["episodes"]), f"{noun.capitalize()}s solved"
    made = {1: f"{tasks} at the first attempt, over training", last: f"{tasks} within {last} attempts, over training"}
    return [
        {
            "title": title,
            "kind": "share",
            "series": [
                {"label": name, "points": [[int(point["update"]), float(point["p"][k - 1])] for point in points]}
                for name, points in act["curves"].items()
            ],
        }
        for k, title in made.items()
    ]
