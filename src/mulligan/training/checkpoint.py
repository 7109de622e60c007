"""Checkpoints: folders that are written under another name and then renamed, so that each is complete.

``checkpoints/update-00080/`` holds ``weights.safetensors`` (the trained weights, and the critic), ``optimiser.pt``,
``state.json`` (the next update, the running statistics, the settings it was made with) and ``checksums.json`` (of the
other files). Where a server has the weights, ``server.json`` stands in place of the first two: what it calls those that
it saved. All other randomness is derived from (seed, update). ``checkpoints/warmstart-00100/`` holds the same of a warm
start that is not finished.

A process may be killed between any two lines here. ``.update-00080.tmp`` is being written and never read. A folder that
is being deleted lacks a file and is never read either; the next save deletes the rest of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mulligan.algo.normalise import History
from mulligan.errors import RunFolderError, UsageError, lost_device
from mulligan.models.load import Loaded, Precision, load, use_checkpointing
from mulligan.report.files import sync
from mulligan.report.run import RunFolder
from mulligan.training import optimiser_parts
from mulligan.training.config import Config
from mulligan.training.metrics import MetricsFile
from mulligan.training.optimisers import Schedule
from mulligan.training.remote import RemoteLearner
from mulligan.training.resolve import changed_since, from_run, from_tree, to_tree
from mulligan.training.step import Learner, out_of_memory

_CRITIC = "critic."
_UPDATE, _WARM = "update", "warmstart"
_CHECKSUMS = "checksums.json"
_FILES = ("weights.safetensors", "state.json")
_OPTIMISER = "optimiser.pt"
_ON_SERVER = "server.json"
_MODELS = ("nano", "smollm2", "hf")
_OURS = re.compile(rf"({_UPDATE}|{_WARM})-\d+|\.({_UPDATE}|{_WARM})-\d+\.tmp")


@dataclass(frozen=True, slots=True)
class Warmed:
    """How far a warm start is."""

    steps: int = 0
    loss: float = math.nan
    """Of the last step."""
    seconds: float = 0.0


def save(run: Path, update: int, learner: Learner | RemoteLearner, history: History, keep: int) -> Path:
    """Write the checkpoint after `update` updates and delete all but the newest `keep`."""
    state = {"update": update, "history": history.state_dict()}
    optimiser = None if isinstance(learner, RemoteLearner) else learner.optimiser
    target = _write(run, f"{_UPDATE}-{update:05d}", learner, optimiser, state)
    learner.processes.each(lambda: _tidy(run, kept(run)[-keep:]), first_alone=True)
    return target


def save_warm_start(run: Path, warmed: Warmed, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]) -> None:
    """Write how far the warm start is, and delete what was written of it before."""
    target = _write(run, f"{_WARM}-{warmed.steps:05d}", learner, optimisers, asdict(warmed))
    learner.processes.each(lambda: _tidy(run, [target]), first_alone=True)


def _write(run: Path, name: str, learner: Learner | RemoteLearner, optimiser: Any, state: Mapping[str, Any]) -> Path:
    """All processes together: each writes its part of a divided optimiser, and the first one all else."""
    target = run / "checkpoints" / name
    temporary = target.with_name(f".{name}.tmp")
    weights: dict[str, torch.Tensor] = {}
    state = {**state, "settings": to_tree(learner.config), "planned": learner.schedule.updates}
    if isinstance(learner, Learner):
        weights |= _weights_of(learner)
        state |= {"budget": learner.budget.state_dict(), "bad_in_a_row": learner.bad_in_a_row}

    def begin() -> None:
        shutil.rmtree(temporary, ignore_errors=True)
        with _writing(temporary, weights):
            temporary.mkdir(parents=True)

    def divided() -> None:
        with _writing(temporary, weights):
            if isinstance(learner, Learner) and learner.shards is not None:
                optimiser_parts.save(temporary, learner.shards, optimiser)

    def finish() -> None:
        with _writing(temporary, weights):
            if isinstance(learner, RemoteLearner):
                (temporary / _ON_SERVER).write_text(json.dumps(learner.saved(name)), encoding="utf-8")
            else:
                save_file(weights, temporary / "weights.safetensors")
                if learner.shards is None:
                    states = [each.state_dict() for each in optimiser] if isinstance(optimiser, Sequence) else None
                    torch.save(optimiser.state_dict() if states is None else states, temporary / _OPTIMISER)
            (temporary / "state.json").write_text(json.dumps(state), encoding="utf-8")
            _write_checksums(temporary)
            for path in (*temporary.iterdir(), temporary):
                sync(path)
            shutil.rmtree(target, ignore_errors=True)  # one that is half deleted
            os.replace(temporary, target)
            sync(target.parent)

    for work, first_alone in ((begin, True), (divided, False), (finish, True)):
        learner.processes.each(work, first_alone=first_alone)
    return target


def _weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    """What a checkpoint holds of them; nothing but in the first of several processes, which writes it."""
    with learner.whole_weights() as whole:
        weights = {name: each.detach().contiguous() for name, each in whole.items()}
        if learner.shards is not None:
            weights = {name: each.clone() for name, each in weights.items()} if learner.processes.is_first else {}
    if learner.critic is not None:
        weights |= {_CRITIC + name: value.detach() for name, value in learner.critic.state_dict().items()}
    return weights


def restore(checkpoint: Path, learner: Learner | RemoteLearner, history: History) -> int:
    """Put a checkpoint of a run back into a learner and its history; returns how many updates it had.

    Folders that a killed `save` left half written or half deleted are deleted.
    """
    run = checkpoint.parent.parent
    with _reading(checkpoint):
        if isinstance(learner, RemoteLearner):
            state = _state(checkpoint)
            learner.load(saved_on_server(checkpoint)["state"])
        else:
            state = _put_back(checkpoint, learner, [learner.optimiser])
        history.load_state_dict(state["history"])
        learner.schedule = Schedule(_planned(state) or learner.config.run.updates)
        update = int(state["update"])
    learner.processes.each(lambda: _tidy(run, kept(run)[-learner.config.run.keep :]), first_alone=True)
    return update


def restore_warm_start(run: Path, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]) -> Warmed:
    """Put the saved state of a warm start back, if there is one; returns how far it is."""
    for checkpoint in kept(run, _WARM)[-1:]:
        with _reading(checkpoint):
            state = _put_back(checkpoint, learner, optimisers)
            learner.processes.meet()  # the next one replaces it
            return Warmed(state["steps"], state["loss"], state["seconds"])
    return Warmed()


def _put_back(checkpoint: Path, learner: Learner, optimisers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """Put a checkpoint into the learner and these optimisers; returns the rest of its state."""
    _fill_masters(learner, load_weights(checkpoint, learner.model, learner.critic))
    state = _state(checkpoint)
    learner.budget.load_state_dict(state["budget"])
    learner.bad_in_a_row = state["bad_in_a_row"]
    if "update" in state:
        learner.divide()
    if optimiser_parts.of(checkpoint) or learner.shards is not None:
        optimiser_parts.load(checkpoint, learner, _verified)
        return state
    # On the CPU: moments then move to where their parameter is, and the step counts stay where AdamW keeps them.
    saved = torch.load(_verified(checkpoint / "optimiser.pt"), map_location="cpu", weights_only=True)
    for optimiser, optimiser_state in zip(optimisers, saved if isinstance(saved, list) else [saved], strict=True):
        optimiser.load_state_dict(optimiser_state)
        for weight, moments in optimiser.state.items():
            if any(moment.shape not in ((), weight.shape) for moment in moments.values()):
                raise ValueError("optimiser.pt is of another model")
    return state


def saved_on_server(checkpoint: Path) -> dict[str, str]:
    """What a server calls the weights of a checkpoint: "state" with the optimiser, "sampler" without."""
    with _reading(checkpoint):
        names = json.loads(_verified(checkpoint / _ON_SERVER).read_text(encoding="utf-8"))
        return {name: str(names[name]) for name in ("state", "sampler")}


def check_settings(config: Config, run: Path) -> None:
    """Raise where the newest checkpoint of `run` was made with settings that a resumed run may not change."""
    checkpoints = kept(run) or kept(run, _WARM)
    if not checkpoints:
        return
    with _reading(checkpoints[-1]):
        state = _state(checkpoints[-1])
        changed, planned = changed_since(from_tree(state["settings"]), config), _planned(state)
    if changed:
        raise UsageError(
            f"{run} was begun with other settings ({'; '.join(changed)}); put them back into {run / 'config.toml'}, "
            f"or begin another run from its weights, with --model.name {run}"
        )
    if planned and config.run.updates > planned and not config.optim.lr_end:
        raise UsageError(
            f"{run}: run.updates must be <= {planned} (got {config.run.updates}), since the learning rate is 0 from "
            f"then on (optim.lr_end = 0); to train on, begin another run from its weights, with --model.name {run}"
        )


def _planned(state: Mapping[str, Any]) -> int:
    """Updates that the schedule of a run was made for; 0 before the first update, when it can still be changed."""
    return int(state["planned"]) if state.get("update") else 0


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(_verified(checkpoint / "state.json").read_text(encoding="utf-8"))
    return state


def load_weights(checkpoint: Path, model: Any, critic: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
    """Put the weights of a checkpoint into a model; returns them as they were saved."""
    with _reading(checkpoint):
        saved: dict[str, torch.Tensor] = load_file(_verified(checkpoint / "weights.safetensors"))
        weights = {name: value for name, value in saved.items() if not name.startswith(_CRITIC)}
        _check_names(weights, model)
        if critic is not None:
            critic.load_state_dict({k.removeprefix(_CRITIC): v for k, v in saved.items() if k.startswith(_CRITIC)})
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)
    return weights


def _check_names(weights: Mapping[str, torch.Tensor], model: Any) -> None:
    """Raise unless these are all trained weights of a model, in their shapes."""
    trained = {name: each.shape for name, each in model.named_parameters() if each.requires_grad}
    shapes = {name: each.shape for name, each in weights.items()}
    if differing := sorted(name for name in {*trained, *shapes} if trained.get(name) != shapes.get(name)):
        raise ValueError(f"it is of another model: {differing[0]} is missing or has another shape")


@torch.no_grad()
def _fill_masters(learner: Learner, weights: Mapping[str, torch.Tensor]) -> None:
    """Put weights as they were saved into the float32 copies of those in half precision."""
    for name, master in learner.masters.items():
        master.copy_(weights[name])


@contextmanager
def _reading(folder: Path, advice: str = "") -> Iterator[None]:
    """Inside, what cannot be read is a `RunFolderError` that names the folder, and what to do (`advice`; of a
    checkpoint: which other one can be used)."""
    try:
        yield
    except (
        OSError,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        UnpicklingError,
        SafetensorError,
    ) as error:
        if _is_of_device(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, UnpicklingError):  # torch would advise to run what is in it
            reason = "it holds other things than weights"
        raise RunFolderError(f"{folder} cannot be read ({reason}); {advice or _instead_of(folder)}") from error


def _instead_of(checkpoint: Path) -> str:
    """Which other checkpoint of a run can be used, and how."""
    run = checkpoint.parent.parent
    others = [path for path in kept(run) if path != checkpoint]
    usable = next(filter(_is_usable, reversed(others)), None)
    if usable is None:
        return "there is no other that can be read; without checkpoints, training would begin anew"
    newer = [path.name for path in kept(run) if _number(path) > _number(usable)]
    removing = f", and training goes on from it if you remove {' and '.join(newer)}" if newer else ""
    return f"{usable.name} can: the policy {run}@{_number(usable)} uses it{removing}"


def _is_usable(checkpoint: Path) -> bool:
    try:
        with _reading(checkpoint, "it is left out"):
            return all(_verified(checkpoint / file) for file in _files_of(checkpoint))
    except RunFolderError:
        return False


def _is_of_device(error: Exception) -> bool:
    """Whether the device failed or memory ran out, rather than that a file is at fault."""
    return lost_device(error, "") is not None or out_of_memory(error)


@contextmanager
def _writing(folder: Path, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Inside, what cannot be written is a `RunFolderError` that names the folder and its size."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if _is_of_device(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        size = 3 * sum(weight.nbytes for weight in weights.values())  # with the optimiser's two moments
        raise RunFolderError(
            f"{folder} cannot be written (about {size / 2**20:,.1f} MB): {reason}; make room, and continue with "
            "--resume (in Python resume=True): earlier checkpoints are whole"
        ) from error


def _write_checksums(folder: Path) -> None:
    """Write the checksum of each file of a folder."""
    files = sorted(path for path in folder.iterdir() if path.name != _CHECKSUMS)
    text = json.dumps({path.name: _checksum(path) for path in files})
    (folder / _CHECKSUMS).write_text(text, encoding="utf-8")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verified(path: Path) -> Path:
    """`path`, if it is as it was written; older versions wrote no checksums."""
    file = path.parent / _CHECKSUMS
    if file.exists() and json.loads(file.read_bytes()).get(path.name) != _checksum(path):
        raise ValueError(f"{path.name} has another checksum than when it was written")
    return path


def save_reference(run: Path, learner: Learner) -> None:
    """Keep the weights that training starts from: KL is measured to them, also after a resume."""
    if learner.processes.is_first:
        _save_reference(run, learner)
    learner.processes.meet()


def _save_reference(run: Path, learner: Learner) -> None:
    target = run / "reference"
    weights = learner.reference_weights()
    shutil.rmtree(target, ignore_errors=True)
    with _writing(target, weights):
        target.mkdir()
        save_file(weights, target / "weights.safetensors")
        _write_checksums(target)
        for path in (*target.iterdir(), target, run):
            sync(path)


def load_reference(run: Path, learner: Learner) -> None:
    with _reading(run / "reference", f"put back a copy of it, or begin another run with --model.name {run}"):
        weights = load_file(_verified(run / "reference" / "weights.safetensors"))
        _check_names(weights, learner.model)
    learner.reference = {name: value.to(learner.device) for name, value in weights.items()}


def drop_after(run: Path, update: int) -> None:
    """Delete the checkpoints after more than `update` updates."""
    _tidy(run, [path for path in kept(run) if _number(path) <= update])


def settings_of(checkpoint: Path) -> Config:
    """The settings that a checkpoint was made with."""
    with _reading(checkpoint):
        return from_tree(_state(checkpoint)["settings"])


def by_update(run: Path) -> dict[int, Path]:
    """Number of updates -> the complete checkpoint after them."""
    return {_number(path): path for path in kept(run)}


def newest(run: Path) -> Path | None:
    return next(reversed(kept(run)), None)


def find(run: Path, name: str = "") -> Path:
    """A checkpoint of a run: the newest, "40" for that after 40 updates, "best" for that of the best validation."""
    by_update = {_number(path): path for path in kept(run)}
    if not by_update:
        raise RunFolderError(f"{run} has no checkpoint yet")
    name = name or str(max(by_update))
    if name != "best" and not name.isdecimal():
        raise UsageError(f"checkpoint must be a number of updates or 'best' (got {run}@{name})")
    update = _best_update(run) if name == "best" else int(name)
    if update not in by_update:
        config = from_run(RunFolder.open(run)).run
        raise RunFolderError(
            f"{run} has no checkpoint after update {update}; kept: {', '.join(map(str, by_update))}. Training "
            f"saves one every run.checkpoint_every={config.checkpoint_every} updates and keeps the newest "
            f"run.keep={config.keep}"
        )
    return by_update[update]


def _best_update(run: Path) -> int:
    """The update after which validation found the highest p@N; the first of equal ones."""
    lines = MetricsFile(run / "metrics.jsonl").read()
    p = {line["update"]: [line[name] for name in line if name.startswith("validation/p@")] for line in lines}
    shares = {update: p_k[-1] for update, p_k in p.items() if p_k}
    if not shares:
        raise RunFolderError(f"{run} has no best checkpoint: it was trained without validation (run.validate_every)")
    return int(max(shares, key=lambda update: shares[update]))


def load_model(run: str | Path, device: str = "cpu", dtype: Precision = "auto", checkpoint: str = "") -> Loaded:
    """The model of a run folder with the weights of a checkpoint (see `find`), in this precision ("auto": that of
    training)."""
    folder = RunFolder.open(run)
    checkpoint_path = find(folder.path, checkpoint)
    config = from_run(folder)
    if config.backend.kind == "tinker":
        raise UsageError(f"the weights of {run} are on a server; mulligan export {run} DIR fetches them, as hf:DIR")
    if dtype != "auto":  # before the weights are loaded, which are saved in full precision
        config = replace(config, model=replace(config.model, dtype=dtype))
    loaded = load_base(config, device, folder.path)
    load_weights(checkpoint_path, loaded.model)
    return loaded


def take_masters(config: Config, run: Path, learner: Learner) -> None:
    """Where a run starts from the half-precision weights of another run: take that run's float32 copies of them."""
    start = find_start(config.model.name, run)
    if start is not None and learner.masters:
        _fill_masters(learner, load_weights(find(start), learner.model))


def load_base(config: Config, device: str, run: Path) -> Loaded:
    """The model of `run` as it was before training; where `model.name` is a run folder, as that run left it."""
    model = config.model
    start = find_start(model.name, run)
    if start is not None:
        if model.lora_rank:
            raise UsageError(f"model.name={model.name}: a run folder takes no adapter; export it, and use hf:DIR")
        loaded = load_model(start, device, model.dtype)
        use_checkpointing(loaded.model, model.gradient_checkpointing)
        return loaded
    return load(
        model.name,
        seed=config.run.seed,
        dtype=model.dtype,
        device=device,
        lora=model.lora_rank,
        gradient_checkpointing=model.gradient_checkpointing,
    )


def as_kept(config: Config, run: Path) -> Config:
    """`config` as the folder `run` keeps it: a run folder beside it, from which it starts or which plays, is named
    ``../NAME``, so that folders which are moved together still fit. A run that plays is named with its checkpoint:
    it stays as it is, however long it is trained further."""
    config = _with_frozen_player(config, run)
    name = config.model.name
    is_kept_already = name.startswith("../") and _is_run(run.parent / name.removeprefix("../"))
    if _is_model(name) or is_kept_already or not _is_run(Path(name)):
        return config
    return replace(config, model=replace(config.model, name=_seen_from(run, name)))


def _with_frozen_player(config: Config, run: Path) -> Config:
    """`config` with a run that plays as `run` sees it, and the number of updates it has had."""
    folder, number = _player_folder(config.run.player, run)
    if folder is None:
        return config
    update = number or str(_number(find(folder)))
    return replace(config, run=replace(config.run, player=f"{_seen_from(run, folder)}@{update}"))


def _seen_from(run: Path, folder: str | Path) -> str:
    """``../NAME`` where the folder is beside `run`, as seen through a link, too; else its whole path."""
    absolute = Path(os.path.abspath(folder))
    return f"../{absolute.name}" if absolute.parent.resolve() == Path(run).resolve().parent else str(absolute)


def player_of(name: str, run: Path) -> str:
    """The player that the run folder `run` calls `name`, as it is called from anywhere."""
    folder, number = _player_folder(name, run)
    return name if folder is None else f"{os.path.abspath(folder)}{'@' if number else ''}{number}"


def _player_folder(name: str, run: Path) -> tuple[Path | None, str]:
    """The run folder that plays for `run`, and its checkpoint; None where `name` is no run folder."""
    folder, _, number = name.rpartition("@")
    for called, checkpoint in ((name, ""), (folder, number)):
        for path in (Path(os.path.abspath(Path(run) / called)), Path(called)):  # the folder may not be there yet
            if called and _is_run(path) and path.resolve() != Path(run).resolve():
                return path, checkpoint
    return None, ""


def find_start(name: str, run: Path) -> Path | None:
    """The run folder that `run` starts from; None where `name` is that of a model."""
    if _is_model(name):
        return None
    for folder in (run / name, Path(name)):
        if _is_run(folder) and folder.resolve() != run.resolve():
            return folder
    if len(Path(name).parts) > 1 and not Path(name).is_dir():
        raise RunFolderError(f"{run} starts from {name}, which is missing; put that run folder back")
    return None


def _is_model(name: str) -> bool:
    """Whether it names a model, even where a folder is called so too."""
    return name.partition(":")[0] in _MODELS


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file()


def kept(run: Path, kind: str = _UPDATE) -> list[Path]:
    """Every complete checkpoint of a kind, the oldest first."""
    folders = (path for path in (run / "checkpoints").glob(f"{kind}-*") if _OURS.fullmatch(path.name))
    return sorted((path for path in folders if _is_complete(path)), key=_number)


def _is_complete(checkpoint: Path) -> bool:
    return all((checkpoint / file).is_file() for file in _files_of(checkpoint))


def _files_of(checkpoint: Path) -> list[str]:
    """What a complete checkpoint holds; where several processes wrote it, each one's part of the optimiser."""
    if (checkpoint / _ON_SERVER).exists():
        return [_ON_SERVER, "state.json"]
    return [*_FILES, *(optimiser_parts.of(checkpoint) or [_OPTIMISER])]


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def _tidy(run: Path, keep: Sequence[Path]) -> None:
    """Delete all checkpoints but these, complete or not."""
    for path in (run / "checkpoints").iterdir():
        if _OURS.fullmatch(path.name) and path not in keep:
            shutil.rmtree(path)
