"""The local models that runs of a folder were played by: loaded when a page asks, two of them kept.

Weights are read from safetensors files of runs inside the folder. A run outside it, or a model that a run names by a
path of its own, is loaded only with ``--trust``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from mulligan.errors import MulliganError, RunFolderError, UsageError
from mulligan.policy.local import LocalPolicy
from mulligan.policy.writer import Advised
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import trusts_everything
from mulligan.types import Sampling
from mulligan.view.evaluations import trained_run
from mulligan.view.folder import inside, is_folder, toml_of, without_links

_KEPT = 2
_DEEPEST = 5
"""Runs of which each starts from the one before."""


class Player(NamedTuple):
    """Who played an arm of a run."""

    run: Path
    checkpoint: str
    """As a policy's name has it after "@"; empty: the newest."""
    settings: TrialSettings
    words: str
    """Which weights these are."""


class Models:
    """Loads the models of a folder's runs, one at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy = threading.Lock()
        """Held while a model computes: pages wait for each other."""
        self._loaded: OrderedDict[tuple[str, str], LocalPolicy] = OrderedDict()

    def player(self, name: str, arm: str) -> Player:
        """Who played this arm; raises where that is no model of this folder."""
        path = inside(self.root, name)
        config = toml_of(path / "config.toml")
        if config.get("kind") == "train":
            return self._trained(path, arm)
        policy = str(config.get("policy", ""))
        checkpoint = policy.partition("@")[2]
        trained = self._find(path, policy)
        if trained is None:
            raise UsageError(
                f"{name} was played by {policy or 'nobody'}, which is no training run in {self.root.name}: only of a "
                "model in this folder the chances of each move can be computed"
            )
        words = f"{trained.name}{f'@{checkpoint}' if checkpoint else ''}"
        return Player(trained, checkpoint, _settings(config), words)

    def knows(self, name: str) -> bool:
        """Whether the run was played by a model of this folder, as far as its files tell."""
        path = inside(self.root, name)
        config = toml_of(path / "config.toml")
        if config.get("kind") == "train":
            return is_folder(path / "checkpoints")
        with suppress(MulliganError, OSError, ValueError):
            return self._find(path, str(config.get("policy", ""))) is not None
        return False

    def _trained(self, path: Path, arm: str) -> Player:
        from mulligan.players import as_trained
        from mulligan.report.run import RunFolder
        from mulligan.training.checkpoint import kept
        from mulligan.training.resolve import from_run

        config = from_run(RunFolder.open(path))
        settings = config.trial
        if arm.startswith("validation-"):
            settings = as_trained(config, config.task.env)[0]
        numbers = [int(each.name.rpartition("-")[2]) for each in kept(path)]
        if not numbers:
            raise RunFolderError(f"{path.name} has no checkpoint yet, so that there are no weights to ask")
        kind, _, number = arm.rpartition("-")
        wanted = (
            int(number) - (kind == "update") if number.isdecimal() else max(numbers)
        )  # who plays is not updated yet
        update = wanted if wanted in numbers else max(numbers)
        late = "" if update == wanted else f"; those after update {wanted}, which played, are not kept"
        return Player(path, str(update), settings, f"the weights after update {update}{late}")

    def _find(self, evaluation: Path, policy: str) -> Path | None:
        """The training run that an evaluation names: where it says, or beside it, or around it; in the folder."""
        run = trained_run(evaluation, policy)
        return None if run is None else self._allowed(run)

    def _allowed(self, run: Path) -> Path:
        """The run, if it lies in the folder and is not reached through a link."""
        resolved, root = run.resolve(), self.root.resolve()
        if resolved.is_relative_to(root):
            return without_links(inside(self.root, resolved.relative_to(root).as_posix()))
        if not trusts_everything():
            raise UsageError(f"the run {run} lies outside {self.root.name}; add --trust to mulligan view to load it")
        return resolved

    def load(self, player: Player) -> LocalPolicy:
        """The policy with these weights."""
        from mulligan.players import player_from

        self._check_start(player.run, _DEEPEST)
        key = (str(player.run), player.checkpoint)
        if key not in self._loaded:
            name = f"{player.run}@{player.checkpoint}" if player.checkpoint else str(player.run)
            policy = player_from(name, slots=1)
            policy = policy.player if isinstance(policy, Advised) else policy
            if not isinstance(policy, LocalPolicy):
                raise UsageError(f"{player.run.name} trained a writer for {policy.name}, which is no local model")
            self._loaded[key] = policy
        self._loaded.move_to_end(key)
        while len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return self._loaded[key]

    def _check_start(self, run: Path, depth: int) -> None:
        """Raise where loading the run would open something else than runs of this folder."""
        from mulligan.training.checkpoint import find_start

        if trusts_everything():
            return
        config = toml_of(without_links(run) / "config.toml")
        name = str(config.get("model", {}).get("name", ""))
        start = find_start(name, run) if depth else None
        is_remote = config.get("backend", {}).get("kind", "local") != "local"
        is_ours = start is not None or name.partition(":")[0] in ("nano", "smollm2")
        if is_remote or not is_ours or config.get("run", {}).get("player"):
            named = str(config["backend"].get("url", "")) if is_remote else name
            raise UsageError(f"{run.name} names other models ({named}); add --trust to mulligan view to load them")
        if start is not None:
            self._check_start(self._allowed(start), depth - 1)


def _settings(config: Mapping[str, Any]) -> TrialSettings:
    """How an evaluation was played."""
    try:
        trial = dict(config["trial"])
        return TrialSettings(**{**trial, "sampling": Sampling(**trial["sampling"])})
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"config.toml is not that of an evaluation: {error!r}") from error
