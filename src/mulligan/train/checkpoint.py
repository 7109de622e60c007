"""Checkpoints: a folder written beside and renamed, so that it is there whole or not at all.

``checkpoints/update-00080/`` holds ``weights.safetensors`` (what is trained, and the critic), ``optimiser.pt`` and
``state.json`` (the next update, the running statistics, the settings it was made with). All other randomness is derived
from (seed, update). ``checkpoints/warmstart/`` holds the same of a warm start that is not finished.

A process may be killed between any two lines here. ``.update-00080.tmp`` is being written and never read.
``.update-00080.old`` is on its way out: it makes room, or is being deleted, and is read only while it is whole and no
successor is in its place.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from mulligan.algo.normalise import History
from mulligan.errors import RunFolderError, UsageError
from mulligan.models.load import Loaded, LoraSettings, Precision, as_asked, load
from mulligan.report.run import RunFolder
from mulligan.train.compare import changed_since
from mulligan.train.config import Config, settings
from mulligan.train.resolve import PARAMS, from_run, from_tree, to_tree
from mulligan.train.schedule import Schedule
from mulligan.train.start import find_start
from mulligan.train.step import Learner

_CRITIC = "critic."
_WARM = "warmstart"
_FILES = ("weights.safetensors", "optimiser.pt", "state.json")
_READ = re.compile(r"update-(\d+)|\.update-(\d+)\.old")
_OURS = re.compile(r"update-\d+|\.update-\d+\.(old|tmp)")


@dataclass(frozen=True, slots=True)
class Warmed:
    """How far a warm start is."""

    steps: int = 0
    loss: float = math.nan
    """Of the last step."""
    seconds: float = 0.0


def save(folder: Path, update: int, learner: Learner, history: History, keep: int) -> Path:
    """Write the checkpoint after `update` updates and drop all but the newest `keep`."""
    target = folder / "checkpoints" / f"update-{update:05d}"
    state = {"update": update, "history": history.state_dict()}
    _write(target, learner, learner.optimiser.state_dict(), state)
    _tidy(folder, keep)
    return target


def save_warm_start(
    folder: Path, warmed: Warmed, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]
) -> None:
    """Write how far the warm start is, in the place of what was written of it before."""
    target = folder / "checkpoints" / _WARM
    _write(target, learner, [optimiser.state_dict() for optimiser in optimisers], asdict(warmed))
    shutil.rmtree(_aside(target), ignore_errors=True)


def _write(target: Path, learner: Learner, optimiser: Any, state: Mapping[str, Any]) -> None:
    """A checkpoint, in one stroke."""
    from safetensors.torch import save_file

    beside = _beside(target)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    save_file(_weights(learner), beside / "weights.safetensors")
    torch.save(optimiser, beside / "optimiser.pt")
    whole = {
        **state,
        "budget": learner.budget.state_dict(),
        "bad_in_a_row": learner.bad_in_a_row,
        "settings": to_tree(learner.config),
        "planned": learner.schedule.updates,
    }
    (beside / "state.json").write_text(json.dumps(whole), encoding="utf-8")
    for path in (*beside.iterdir(), beside):
        _sync(path)
    if target.exists():
        _put_aside(target)
    os.replace(beside, target)
    _sync(target.parent)


def restore(checkpoint: Path, learner: Learner, history: History) -> int:
    """Put a checkpoint of a run that goes on back into a learner and its history; returns how many updates it had.

    What a killed `save` left beside it, half written or half deleted, goes away.
    """
    state = _put_back(checkpoint, learner, [learner.optimiser])
    history.load_state_dict(state["history"])
    learner.schedule = Schedule(_planned(state) or learner.config.run.updates)
    _tidy(checkpoint.parent.parent, learner.config.run.keep)
    return int(state["update"])


def restore_warm_start(folder: Path, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]) -> Warmed:
    """Put what was kept of a warm start back, where something was; returns how far it is."""
    kept = _warming(folder)
    if kept is None:
        return Warmed()
    state = _put_back(kept, learner, optimisers)
    return Warmed(state["steps"], state["loss"], state["seconds"])


def _put_back(checkpoint: Path, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """A checkpoint into the learner and these optimisers; returns the rest of its state."""
    _fill_masters(learner, load_weights(checkpoint, learner.model, learner.critic))
    state = _state(checkpoint)
    try:
        # On the CPU: moments then move to where their parameter is, and the step counts stay where AdamW keeps them.
        found = torch.load(checkpoint / "optimiser.pt", map_location="cpu", weights_only=True)
    except (OSError, EOFError, ValueError, RuntimeError, UnpicklingError) as error:
        raise _damaged(checkpoint, error) from error
    for optimiser, own in zip(optimisers, found if isinstance(found, list) else [found], strict=True):
        optimiser.load_state_dict(own)
    if "budget" in state:  # of earlier versions: it is found again
        learner.budget.load_state_dict(state["budget"])
    learner.bad_in_a_row = state["bad_in_a_row"]
    return state


def check_settings(config: Config, run: Path) -> None:
    """Whether a run that goes on with `config` is the one that made its newest checkpoint.

    Those of earlier versions do not say what they were made with.
    """
    checkpoint = newest(run) or _warming(run)
    state = _state(checkpoint) if checkpoint else {}
    then = state.get("settings")
    changed = changed_since(from_tree(_known(then)), config) if then else []
    if changed:
        raise UsageError(
            f"{run} was begun with other settings ({'; '.join(changed)}); put them back into {run / 'config.toml'}, "
            f"or begin another run from its weights, with --model.name {run}"
        )
    planned = _planned(state)
    if planned and config.run.updates > planned and not config.optim.lr_end:
        raise UsageError(
            f"{run}: run.updates must be <= {planned} (got {config.run.updates}), since the learning rate is 0 from "
            f"then on (optim.lr_end = 0); to train on, begin another run from its weights, with --model.name {run}"
        )


def _planned(state: Mapping[str, Any]) -> int:
    """Updates that the schedule of a run was made for; 0 where none has been played, so that it can still be made."""
    if not state.get("update"):
        return 0
    then = state.get("settings", {}).get("run", {})  # of earlier versions
    return int(state.get("planned", then.get("updates", 0)))


def _known(tree: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without settings that there are no more."""
    names = {*settings(), PARAMS}
    return {
        section: {name: value for name, value in part.items() if f"{section}.{name}" in names}
        for section, part in tree.items()
    }


def _state(checkpoint: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(checkpoint, error) from error
    return state


def load_weights(checkpoint: Path, model: Any, critic: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint into a model; returns them as they were saved."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(checkpoint / "weights.safetensors")
    except (OSError, SafetensorError) as error:
        raise _damaged(checkpoint, error) from error
    own = {name: value for name, value in found.items() if not name.startswith(_CRITIC)}
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in own.items():
            parameters[name].copy_(value)
    if critic is not None:
        critic.load_state_dict({k.removeprefix(_CRITIC): v for k, v in found.items() if k.startswith(_CRITIC)})
    return own


@torch.no_grad()
def _fill_masters(learner: Learner, weights: Mapping[str, torch.Tensor]) -> None:
    """Weights as they were saved, into the float32 copies of those in half precision."""
    for name, master in learner.masters.items():
        master.copy_(weights[name])


def _damaged(checkpoint: Path, error: Exception) -> RunFolderError:
    said = str(error).partition("\n")[0] or type(error).__name__
    return RunFolderError(f"{checkpoint} cannot be read ({said}); without that folder, training goes on from before it")


def save_reference(folder: Path, model: Any) -> None:
    """Keep the weights that training starts from: KL is measured to them, also after a resume."""
    from safetensors.torch import save_file

    target = folder / "reference"
    target.mkdir(exist_ok=True)
    named = {name: p.detach().contiguous() for name, p in model.named_parameters() if p.requires_grad}
    save_file(named, target / "weights.tmp")
    _sync(target / "weights.tmp")
    os.replace(target / "weights.tmp", target / "weights.safetensors")


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run."""
    found = _all(folder)
    return found[-1] if found else None


def load_model(run: str | Path, device: str = "cpu", dtype: Precision = "auto") -> Loaded:
    """The model of a run folder with its newest weights, in this precision ("auto": in which it was trained)."""
    folder = RunFolder.open(run)
    checkpoint = newest(folder.path)
    if checkpoint is None:
        raise RunFolderError(f"{folder.path} has no checkpoint yet")
    config = from_run(folder)
    if dtype != "auto":  # before the weights come, which are kept in full
        config = replace(config, model=replace(config.model, dtype=dtype))
    loaded = load_base(config, device, folder.path)
    load_weights(checkpoint, loaded.model)
    return loaded


def take_masters(config: Config, run: Path, learner: Learner) -> None:
    """Where a run starts from another one's weights in half precision: the float32 copies as that run left them."""
    start = find_start(config.model.name, run)
    if start is None or not learner.masters:
        return
    before = newest(Path(start))
    assert before is not None, "its weights were loaded"
    _fill_masters(learner, load_weights(before, learner.model))


def load_base(config: Config, device: str, run: Path) -> Loaded:
    """The model of `run` as it was before training; where `model.name` is a run folder, as that run left it."""
    model = config.model
    start = find_start(model.name, run)
    if start is not None:
        if model.lora_rank:
            raise UsageError(
                f"model.name={model.name}: no adapter can be put on a run folder; export it, and use hf:DIR"
            )
        return as_asked(load_model(start, device, model.dtype), gradient_checkpointing=model.gradient_checkpointing)
    lora = LoraSettings(rank=model.lora_rank, alpha=2 * model.lora_rank) if model.lora_rank else None
    return load(
        model.name,
        seed=config.run.seed,
        dtype=model.dtype,
        device=device,
        lora=lora,
        gradient_checkpointing=model.gradient_checkpointing,
    )


def _weights(learner: Learner) -> dict[str, torch.Tensor]:
    named: dict[str, torch.Tensor] = {name: weight.detach().contiguous() for name, weight in learner.weights().items()}
    if learner.critic is not None:
        named |= {_CRITIC + name: value.detach() for name, value in learner.critic.state_dict().items()}
    return named


def _warming(folder: Path) -> Path | None:
    """What was kept of a warm start that is not finished."""
    place = folder / "checkpoints" / _WARM
    return next((path for path in (place, _aside(place)) if _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    return all((path / file).is_file() for file in _FILES)


def _all(folder: Path) -> list[Path]:
    """Every whole checkpoint of an update, the oldest first."""
    found: dict[int, Path] = {}
    for path in sorted((folder / "checkpoints").glob("*update-*")):  # those put aside first: the others supersede them
        name = _READ.fullmatch(path.name)
        if name and _is_whole(path):
            found[int(name[1] or name[2])] = path
    return [found[update] for update in sorted(found)]


def _put_aside(path: Path) -> Path:
    """Take a folder out of the way in one stroke, so that it is never seen half deleted."""
    aside = _aside(path)
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(path, aside)
    return aside


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _tidy(folder: Path, keep: int) -> None:
    """Drop all but the newest `keep` whole checkpoints, whatever is not whole, and the warm start, which is over."""
    whole = _all(folder)
    warm = folder / "checkpoints" / _WARM
    for path in filter(Path.is_dir, (warm, _aside(warm), _beside(warm))):
        shutil.rmtree(path)
    for path in sorted((folder / "checkpoints").glob("*update-*")):
        if path not in whole[-keep:] and _OURS.fullmatch(path.name):
            in_place = path in whole and not path.name.startswith(".")
            shutil.rmtree(_put_aside(path) if in_place else path)


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, reach the disk; Windows syncs neither what is only read nor folders."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
