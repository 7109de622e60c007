"""The runs of a folder: what each is, when it began, whether it is still going on, and its headline figure."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from mulligan.view.folder import inside, is_folder, json_of, open_regular, run_names, stamp, sub_path, toml_of
from mulligan.view.tags import tags_of

_TAIL = 2**18
"""Bytes from the end of a metrics file: the last validation stands there."""
_CARDS: dict[tuple[Any, ...], dict[str, Any]] = {}
"""Cards by the stamps of the files that they were made from."""
_FILES = (
    "config.toml",
    "metrics.jsonl",
    "result.json",
    "order.json",
    "arm.json",
    "table.json",
    "demo.json",
    "population.json",
)
_MOST_CARDS = 20_000
_ACT = ("RL", "meta-RL")


def run_cards(root: Path) -> list[dict[str, Any]]:
    """A card for each run under `root`, the newest first."""
    tags = tags_of(root)
    cards = [{**card(root, name), "tags": tags.get(name, [])} for name in run_names(root)]
    return sorted(cards, key=lambda each: (-each["began"], each["name"]))


def as_tree(cards: Sequence[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cards in their order with their depth, each run after the one in whose folder it lies."""
    below: dict[str | None, list[dict[str, Any]]] = {}
    names = {each["id"] for each in cards}
    for each in cards:
        below.setdefault(_around(each["id"], names), []).append(each)

    def lines(name: str | None, depth: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for each in below.get(name, ()):
            yield depth, each
            yield from lines(each["id"], depth + 1)

    return lines(None, 0)


def _around(name: str, names: Collection[str]) -> str | None:
    """The nearest of the runs around the folder of this one."""
    if name == ".":
        return None
    above = (parent.as_posix() for parent in PurePosixPath(name).parents)
    return next((parent for parent in above if parent in names), None)


def card(root: Path, name: str) -> dict[str, Any]:
    """What the list of runs shows of one; a folder that cannot be read says so in its headline."""
    path = inside(root, name)
    stamps = tuple(stamp(path / file) for file in _FILES)
    trained = path.parent if evaluated_run(name) else None
    key = (str(path), *stamps, trained and stamp(trained / "arm.json"))
    if key not in _CARDS:
        if len(_CARDS) > _MOST_CARDS:
            _CARDS.clear()
        try:
            _CARDS[key] = _card(path, trained)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            _CARDS[key] = {**_BLANK, "kind": "unreadable", "headline": f"cannot be read: {error}"}
        except Exception as error:
            if not type(error).__module__.startswith("mulligan"):
                raise
            _CARDS[key] = {**_BLANK, "kind": "unreadable", "headline": str(error)}
    began = min((each[2] for each in stamps if each[1]), default=0) / 1e9
    changed = max((each[2] for each in stamps), default=0) / 1e9
    shown = path.name if name == "." else name
    made = {**_CARDS[key], "id": name, "name": shown, "began": began, "changed": changed}
    made["title"] = _title(root, name, made)
    if is_at_work(path):
        made["status"] = "running"
    return made


def _title(root: Path, name: str, made: Mapping[str, Any]) -> str:
    """What people call the run: a sweep's arm by its name, an evaluation of it by that name, others by the folder."""
    if made["kind"] == "demo":
        return "The demonstration"
    if made["arm"]:
        return str(made["arm"])[:200] + ("" if made["seed"] is None else f", seed {made['seed']}")
    if above := evaluated_run(name):
        return f"{card(root, above)['title']}: evaluation"
    return str(made["name"]).rpartition("/")[2]


def evaluated_run(name: str) -> str:
    """The training run of a sweep whose evaluation this run is; empty: it is none."""
    above, _, last = name.rpartition("/")
    return above if last == "evaluation" else ""


_BLANK: Mapping[str, Any] = {
    "kind": "run", "env": "", "what": "", "status": "", "headline": "", "figures": [], "names": [], "done": None,
    "finding": "", "arm": "", "seed": None,
}  # fmt: skip


def _card(path: Path, trained: Path | None) -> dict[str, Any]:
    """`trained`: the run of a sweep that this one evaluates, whose folder has the figures."""
    config = toml_of(path / "config.toml")
    kind = config.get("kind")
    if kind == "train":
        order = json_of(path / "order.json")
        arm = str(order.get("name", "")) if isinstance(order, Mapping) else ""
        return {**_BLANK, **_training_card(path, config), "arm": arm}
    if kind == "population":
        return {**_BLANK, **_population_card(path, config)}
    result = json_of(path / "result.json") or (_figures_of_arm(trained) if trained else None)
    if kind == "eval" or isinstance(result, Mapping):
        return {**_BLANK, **_evaluation_card(config, result or {})}
    demo = json_of(path / "demo.json")
    return {**_BLANK, **(_demo_card(demo) if isinstance(demo, Mapping) else _sweep_card(path))}


def _demo_card(demo: Mapping[str, Any]) -> dict[str, Any]:
    """The demonstration: its two acts, with meta-RL's figures in the first."""
    (rl, meta) = (
        [float(share) for row in demo["rows"] if row["method"] == name for share in row["p"]] for name in _ACT
    )
    low, high = demo["gap"]["ci"]
    return {
        "kind": "demo",
        "finding": f"Trained across attempts (meta-RL), an agent solves {100 * meta[-1]:.1f} % of new boards within "
        f"{len(meta)} attempts; trained on single ones (RL), {100 * rl[-1]:.1f} %"
        + ("; this run does not tell them apart" if low <= 0 <= high else ""),
        "env": "minesweeper, expedition",
        "what": "RL beside meta-RL, from one warm start",
        "status": "complete",
        "headline": f"p@{len(meta)} RL {100 * rl[-1]:.1f}, meta-RL {100 * meta[-1]:.1f} %",
        "figures": meta,
        "names": [f"p@{k}" for k in range(1, len(meta) + 1)],
    }


def _training_card(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    last, validated = _last_lines(path / "metrics.jsonl")
    episodes = config["trial"]["episodes"]
    done, updates = int(last.get("update", 0)), int(config["run"]["updates"])
    figures, source = _figures(validated, "validation/p@"), "validation"
    if arm := _figures_of_arm(path):
        figures, source = [float(share) for share in arm["p"]], "evaluation"
    if not figures:
        figures, source = _figures(last, "p@"), "training"
    status = "complete" if last and done >= updates else f"stopped at update {done} of {updates}" if last else "begun"
    method = "RL" if episodes == 1 else "meta-RL"
    model = _from(str(config["model"]["name"]))
    return {
        "kind": "train",
        "env": str(config["task"]["env"]),
        "what": f"{method} · {model} · {config['algo']['estimator']}" if updates else f"warm start · {model}",
        "method": method,
        "seed": config["run"]["seed"],
        "status": status,
        "done": [done, updates],
        "headline": headline(figures, versus=False) + (" in training" if figures and source == "training" else ""),
        "figures": figures,
        "names": [f"p@{k}" for k in range(1, len(figures) + 1)],
    }


def _figures_of_arm(path: Path) -> dict[str, Any] | None:
    """The evaluation of a sweep's arm, which its folder keeps; as of an evaluation that is over."""
    arm = json_of(path / "arm.json")
    if not (isinstance(arm, Mapping) and isinstance(arm.get("main"), Mapping) and arm["main"].get("p")):
        return None
    return {"kind": arm.get("kind"), "complete": True, "tasks": arm["main"].get("trials"), **arm["main"]}


def _population_card(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """As of a training run; its figures are the means over its agents."""
    made, agents = _training_card(path, config), config["population"]["agents"]
    best = (json_of(path / "population.json") or {}).get("best")
    best_agent = (
        "" if best is None else f"best: agent {best}" + (f"; mean {made['headline']}" if made["headline"] else "")
    )
    what = f"{agents} agents · {_from(str(config['model']['name']))} · {config['algo']['estimator']}"
    return {**made, "kind": "population", "what": what, "headline": best_agent or made["headline"]}


def _evaluation_card(config: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    versus = result.get("kind") == "versus"
    figures = [float(each) for each in result.get("returns" if versus else "p", ()) if each is not None]
    played, asked = int(result.get("trials", 0)), int(result.get("tasks") or config.get("tasks") or 0)
    is_complete = bool(result.get("complete"))
    policy = _from(str(result.get("policy", config.get("policy", ""))), "of ")
    memory = str(result.get("memory", config.get("trial", {}).get("memory", "")))
    return {
        "kind": "eval",
        "env": str(result.get("env", config.get("env", ""))),
        "what": f"{policy} · memory {memory}" if memory else policy,
        "method": policy,
        "seed": config.get("seed"),
        "status": "complete" if is_complete else f"stopped at {played} of {asked} tasks" if result else "trials only",
        "done": [played, asked],
        "headline": headline(figures, versus=versus),
        "figures": figures,
        "versus": versus,
        "names": [f"episode {k}" if versus else f"p@{k}" for k in range(1, len(figures) + 1)],
    }


def _sweep_card(path: Path) -> dict[str, Any]:
    table = json_of(path / "table.json")
    if isinstance(arm := json_of(path / "arm.json"), Mapping):
        table = [arm | arm.get("main", {})]
    rows = [row for row in table if isinstance(row, Mapping)] if isinstance(table, list) else []
    best = max(rows, key=_last_share, default=None)
    figures = [float(each) for each in best["p"]] if best is not None and best.get("p") else []
    names = list(dict.fromkeys(str(row.get("name", "")) for row in rows))
    envs = sorted({str(row["env"]) for row in rows if "env" in row})
    return {
        "kind": "sweep",
        "env": ", ".join(envs),
        "what": f"{len(names)} rows: {', '.join(names[:6])}{' …' if len(names) > 6 else ''}",
        "status": "complete" if rows else "",
        "headline": f"best: {best['name']}, {headline(figures, versus=False)}" if best and figures else "",
        "figures": figures,
        "names": [f"p@{k}" for k in range(1, len(figures) + 1)],
    }


def _from(name: str, word: str = "from ") -> str:
    """A model or a policy; of one that is a folder, the folder's own name."""
    return word + name.rstrip("/").rpartition("/")[2] if "/" in name and ":" not in name else name


def _last_share(row: Mapping[str, Any]) -> float:
    shares = row.get("p") or [0.0]
    return float(shares[-1])


def headline(figures: Sequence[float], *, versus: bool) -> str:
    """``p@1 38.1 → p@3 60.4 %``; of games the return of the first and the last episode."""
    if not figures:
        return ""
    first, last, count = figures[0], figures[-1], len(figures)
    if versus:
        return f"return {first:+.2f}" + (f" → {last:+.2f} in episode {count}" if count > 1 else "")
    return f"p@1 {100 * first:.1f}" + (f" → p@{count} {100 * last:.1f} %" if count > 1 else " %")


def _figures(line: Mapping[str, Any], prefix: str) -> list[float]:
    figures: list[float] = []
    while isinstance(value := line.get(f"{prefix}{len(figures) + 1}"), int | float):
        figures.append(float(value))
    return figures


def _last_lines(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last line of a metrics file, and the last one with a validation; empty where there is none."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            tail = file.read()
    except FileNotFoundError:
        return {}, {}
    last: dict[str, Any] = {}
    for line in reversed(tail[: tail.rfind(b"\n") + 1].splitlines()):
        with suppress(ValueError, RecursionError):
            data = json.loads(line)
            if isinstance(data, dict):
                last = last or data
                if "validation/p@1" in data:
                    return last, data
    return last, {}


def is_at_work(path: Path) -> bool:
    """Whether a process holds the run's lock: it is being trained, or evaluated."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return False
    try:
        with open_regular(path / ".held") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


def version(root: Path, names: Sequence[str]) -> str:
    """Changes when something of these runs does."""
    parts: list[Any] = []
    for name in names:
        path = inside(root, name)
        parts += [stamp(path / file) for file in _FILES] + [is_at_work(path)]
        if is_folder(path / "trials"):
            newest = [stamp(Path(entry.path)) for entry in os.scandir(path / "trials")]
            parts.append((len(newest), sum(each[1] for each in newest)))
    return f"{hash(tuple(parts)) & (2**63 - 1):x}"


def within(root: Path, name: str) -> list[str]:
    """The runs inside the folder of a run or sweep."""
    return [sub_path(name, each) for each in run_names(inside(root, name)) if each != "."]
