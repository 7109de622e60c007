"""Runs in TensorBoard and in Weights & Biases: metrics, the warm start and evaluation tables; live, or of a run that is
over. The run folder stays the truth, and these are copies of it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mulligan.errors import MissingExtra, RunFolderError, UsageError
from mulligan.report.files import refuse_links
from mulligan.report.run import RunFolder
from mulligan.text import markdown_row

Row = list[str | float | None]


class Table(NamedTuple):
    """An evaluation: its policy, controls and scripted players, a row each."""

    columns: list[str]
    rows: list[Row]


class Mirror(Protocol):
    """Where figures are copied to."""

    def metrics(self, numbers: Mapping[str, float], update: int) -> None: ...

    def warm_start(self, numbers: Mapping[str, float], step: int | None) -> None:
        """The loss after a step of the warm start; without a step, the figures of all of it."""

    def table(self, name: str, table: Table, update: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run folder, for ``tensorboard --logdir RUN``."""

    def __init__(self, folder: Path) -> None:
        self._writer = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder / "tensorboard"))

    def metrics(self, numbers: Mapping[str, float], update: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, update)

    def warm_start(self, numbers: Mapping[str, float], step: int | None) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(f"warmstart/{name}", value, step or 0)

    def table(self, name: str, table: Table, update: int) -> None:
        for row in table.rows[:1]:
            for column, value in zip(table.columns, row, strict=True):
                if isinstance(value, int | float) and " " not in column:
                    self._writer.add_scalar(f"{name}/{column}", value, update)
        lines = [table.columns, ["---"] * len(table.columns), *([_cell(value) for value in row] for row in table.rows)]
        self._writer.add_text(name, "\n".join(map(markdown_row, lines)), update)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases. Project, entity, group and id are the user's, or those of W&B's own variables."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], names: Mapping[str, str | None]) -> None:
        self._wandb = _imported("wandb", "wandb")
        self._check_login()
        folder.mkdir(parents=True, exist_ok=True)
        name = folder.resolve().name
        options = {
            "project": names.get("project") or os.environ.get("WANDB_PROJECT") or "mulligan",
            "entity": names.get("entity"),
            "group": names.get("group"),
            "id": names.get("id") or os.environ.get("WANDB_RUN_ID") or name,
        }
        try:
            self._session = self._wandb.init(
                name=name, resume="allow", dir=str(folder), config=dict(settings), **options
            )
        except self._wandb.errors.Error as error:
            text = " ".join(str(error).split())
            raise UsageError(f"Weights & Biases: {text}; WANDB_MODE=offline works without it") from error
        self._session.define_metric("*", step_metric="update")
        self._session.define_metric("warmstart/*", step_metric="warmstart/step")

    def _check_login(self) -> None:
        mode = os.environ.get("WANDB_MODE", "online")
        with contextlib.redirect_stderr(io.StringIO()):  # where it warns of how it is asked
            has_login = mode not in ("online", "run") or bool(self._wandb.api.api_key)
        if not has_login:
            raise UsageError(
                "Weights & Biases has no login here: 'wandb login' or WANDB_API_KEY gives one; with WANDB_MODE=offline "
                "nothing is sent before 'wandb sync', and 'mulligan send RUN --wandb' sends a run later"
            )

    def metrics(self, numbers: Mapping[str, float], update: int) -> None:
        self._session.log({**numbers, "update": update})

    def warm_start(self, numbers: Mapping[str, float], step: int | None) -> None:
        named = {f"warmstart/{name}": value for name, value in numbers.items()}
        if step is None:
            self._session.summary.update(named)
        else:
            self._session.log({**named, "warmstart/step": step})

    def table(self, name: str, table: Table, update: int) -> None:
        first = zip(table.columns, table.rows[0], strict=True)
        figures = {f"{name}/{column}": value for column, value in first if isinstance(value, int | float)}
        shown = self._wandb.Table(columns=table.columns, data=table.rows)
        self._session.log({f"{name}/table": shown, **figures, "update": update})

    def close(self) -> None:
        self._session.finish()


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"--{extra}", extra) from error


@contextlib.contextmanager
def mirroring(
    folder: Path, settings: Mapping[str, Any], *, wandb: Mapping[str, str | None] | None, tensorboard: bool
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """While a run trains: gives the callback that copies its updates and the steps of its warm start.

    What stands in the folder at the end is copied then: the warm start's figures, and evaluations.
    """
    mirrors = _opened(folder, settings, wandb=wandb, tensorboard=tensorboard)

    def on_update(metrics: dict[str, Any]) -> None:
        for mirror in mirrors:
            if "update" in metrics:
                mirror.metrics(_numbers(metrics), int(metrics["update"]))
            elif "loss" in metrics:
                mirror.warm_start({"loss": float(metrics["loss"])}, int(metrics["warmstart"]))

    try:
        yield on_update
        for mirror in mirrors:
            copy_end(mirror, folder)
    finally:
        for mirror in mirrors:
            mirror.close()


def copy_end(mirror: Mirror, folder: Path) -> None:
    """Copy what stands in the folder beside the metrics: the warm start's figures, and every evaluation."""
    warm = _json(folder / "warmstart.json")
    if warm:
        mirror.warm_start(_numbers(warm), None)
    results = [folder / "result.json", *sorted(folder.glob("evaluation*/result.json"))]
    for path in filter(Path.is_file, results):
        name = "evaluation" if path.parent == folder else path.parent.name
        result = _json(path)
        config = RunFolder(path.parent).config() if (path.parent / "config.toml").is_file() else {}
        mirror.table(name, evaluation_table(result), int(config.get("updates", 0)))
    arm = _json(folder / "arm.json")  # of a sweep, which keeps the figures of its evaluations there
    also = arm.get("also") or {}
    for name, parts in {"evaluation": arm, **{f"evaluation {other}": each for other, each in also.items()}}.items():
        if parts.get("main"):
            mirror.table(name, evaluation_table(_as_result(arm, parts)), int(arm["updates"]))


def _as_result(arm: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    main = parts["main"]
    names = {"policy": arm["name"], "kind": arm["kind"], "controls": parts["controls"], "room": {}}
    return {"episodes": len(main["p"]), **main, **names}


def send(
    run: str | os.PathLike[str], *, wandb: Mapping[str, str | None] | None = None, tensorboard: bool = False
) -> None:
    """Copy a run that is over: to Weights & Biases (``wandb={"project": "mine"}``), TensorBoard, or both.

    W&B adds what is sent twice a second time; another ``"id"`` makes another run there.
    """
    folder = RunFolder.open(run)
    refuse_links(folder.path)
    with mirroring(folder.path, folder.config(), wandb=wandb, tensorboard=tensorboard) as on_update:
        for line in _lines(folder.path / "metrics.jsonl"):
            on_update(line)


def _opened(
    folder: Path, settings: Mapping[str, Any], *, wandb: Mapping[str, str | None] | None, tensorboard: bool
) -> list[Mirror]:
    mirrors: list[Mirror] = [WeightsAndBiases(folder, settings, wandb)] if wandb is not None else []
    return [*mirrors, *([TensorBoard(folder)] if tensorboard else [])]


def evaluation_table(result: Mapping[str, Any]) -> Table:
    """The rows of an evaluation: p@k, or the return of each episode of a game, with its interval."""
    is_game = result.get("kind") == "versus"
    values, intervals, label = ("returns", "returns_ci", "episode_") if is_game else ("p", "ci", "p@")
    rows: list[tuple[str, Mapping[str, Any]]] = [(str(result["policy"]), result)]
    rows += [*result["controls"].items(), *result["room"].items()]
    columns = ["row", "trials"]
    for k in range(1, int(result["episodes"]) + 1):
        columns += [f"{label}{k}", f"{label}{k} low", f"{label}{k} high"]
    table: list[Row] = []
    for name, summary in rows:
        row: Row = [name, summary["trials"]]
        for value, (low, high) in zip(summary[values], summary[intervals], strict=True):
            row += [value, low, high]
        table.append([*row, *([None] * (len(columns) - len(row)))])
    return Table(columns, table)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What can be plotted."""
    left_out = ("updates", "update")
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if name not in left_out}


def _cell(value: str | float | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value if value is not None else "")


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{path} is no JSON") from error
    return data if isinstance(data, dict) else {}


def _lines(path: Path) -> Sequence[dict[str, Any]]:
    """The lines of a metrics file; a torn last one is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
