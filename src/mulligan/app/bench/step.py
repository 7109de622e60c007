"""A whole update of meta-RL against one of RL, at equal numbers of episodes: trials, then training.

All episodes are played (no trial stops early). RL plays 24 single episodes of each task, meta-RL 8 trials of 3
episodes. "Slots full" has as many trials under way as the engine has slots; the papers' size is 16 tasks. Lock-step is
in `lock_step.py`. |Δlogp| is the mean difference between the sampler's and the trainer's log-probabilities of
the same tokens, before the first step. On a GPU the model is SmolLM2, on a CPU nano, which is asked for its reflections
in one word; SmolLM2 is asked for eight parts (reflection) or for a note.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mulligan.app.bench import Cell, Report, lock_step
from mulligan.app.bench.engine import subject
from mulligan.app.bench.measure import free_gpu, gpu_seconds, peak_gigabytes
from mulligan.errors import UnknownName, UsageError

Settings = Mapping[str, str]
RL = {"trial.episodes": "1", "run.group": "24"}
META = {"trial.episodes": "3", "run.group": "8", "trial.memory": "history"}
_FULL_LENGTH = {"trial.stop": "never", "run.updates": "1", "run.validate_every": "0", "run.save_trials_every": "0",
                "warmstart.steps": "0"}  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """What is measured on a kind of machine."""

    preset: str | None
    common: Settings
    full: int
    """Tasks of an update that fills the slots with meta-RL's trials."""
    papers: int
    """Tasks of an update of the papers' size; 0 leaves it out."""


GPU = Setup(
    None,
    {
        "task.env": "minesweeper",
        "model.name": "smollm2",
        "model.device": "cuda",
        "engine.slots": "512",
        "engine.context": "2048",
        "trial.max_tokens": "24",
        "trial.reflection_tokens": "64",
        "optim.epochs": "1",
        "optim.lr": "1e-6",
    },
    64,
    16,
)
CPU = Setup("cpu", {"warmstart.steps": "0", "engine.slots": "64", "trial.reflection_tokens": "12"}, 8, 0)


def run(shape: str = "", preset: str = "", **sizes: Any) -> Report:
    """shape: "" for the comparison; or a model of that size drawn at random, for one update of the papers' size.

    preset: with a shape, one update of that preset at full length; `sizes` as of `at_full_length`.
    """
    import torch

    if preset:
        return at_full_length(shape, preset, **sizes)
    if shape:
        return _large(shape)
    gpu = torch.cuda.is_available()
    setup = GPU if gpu else CPU
    reflecting = {**META, "trial.memory": "reflection"}
    arms = {"RL": RL, "meta-RL, history": META, "meta-RL, reflection": reflecting}
    if gpu:
        arms["meta-RL, note"] = {**reflecting, "trial.style": "note"}
    with _Updates.of(setup) as updates:
        rows = updates.compare("slots full", setup.full, arms)
        for staleness in ("0", "1") if setup.papers else ():
            late = {"run.staleness": staleness}
            label = f"{setup.papers} tasks, staleness {staleness}"
            rows += updates.compare(label, setup.papers, {"RL": {**RL, **late}, "meta-RL, history": {**META, **late}})
        rows += updates.in_lock_step(setup.papers or setup.full)
    return Report(f"Updates, {setup.common.get('model.name', 'nano')}; tokens in thousands", rows)


def at_full_length(
    shape: str,
    preset: str,
    *,
    env: str = "",
    tasks: int = 0,
    group: int = 0,
    episodes: int = 0,
    changes: Settings | None = None,
) -> Report:
    """One real update of a preset: trials whose replies reach their limits, then training on them.

    Weights drawn at random hardly ever stop by themselves. Fewer tasks, trials or episodes than the preset has (0: as
    many) take less time and leave every sequence as long as it is; the title says so. Compiling is not timed: the
    trainer does it when it is made.
    changes: other settings, for tests.
    """
    from mulligan.app.bench.update import Way
    from mulligan.training.resolve import resolve

    counts = {"run.tasks": tasks, "run.group": group, "trial.episodes": episodes}
    flags = {**({"task.env": env} if env else {}), **_FULL_LENGTH, **(changes or {})}
    config = resolve(preset, None, {**flags, **{name: str(count) for name, count in counts.items() if count}})
    loaded = _drawn_at_random(shape, Way("", "off", config.model.gradient_checkpointing, config.model.lora_rank))
    with _trainer(config, loaded) as trainer:
        if config.algo.kl_weight:
            trainer.learner.reference = trainer.learner.reference_weights()
        metrics: dict[str, Any] = {}
        spent = gpu_seconds(lambda: metrics.update(trainer._update(0)))
        context, slots = trainer.engine.context, trainer.engine.slots
    row: dict[str, Cell] = {
        "preset": preset,
        "trials": config.run.tasks * config.run.group,
        "context": context,
        "slots": slots,
        "replies": metrics["replies"],
        "cut": f"{100 * metrics['replies/cut']:.0f} %",
        "sampled": metrics["tokens/sampled"],
        "longest row": metrics["tokens/longest_row"],
        "rollout s": metrics["time/rollout"],
        "training s": spent - metrics["time/rollout"],
        "in all": spent,
        "peak of memory (GB)": peak_gigabytes(),
    }
    published, measured = _sizes(resolve(preset, None, {"task.env": config.task.env})), _sizes(config)
    less = [f"{n} {name} instead of {published[name]}" for name, n in measured.items() if n != published[name]]
    note = f"; less than the preset: {', '.join(less)}" if less else ""
    return Report(f"One update of {preset} on {config.task.env}, {shape} drawn at random{note}", [row])


def _sizes(config: Any) -> dict[str, int]:
    return {"tasks": config.run.tasks, "trials a task": config.run.group, "episodes": config.trial.episodes}


def _large(shape: str) -> Report:
    """Meta-RL's update of the papers' size with a large model: all weights, and LoRA."""
    import torch

    from mulligan.app.bench.update import Way

    if not torch.cuda.is_available():
        raise UsageError("--shape without --preset needs a GPU")
    setup = replace(GPU, common={**GPU.common, "engine.slots": "128", "optim.tokens": "16384"})
    rows: list[dict[str, Cell]] = []
    for way in (Way("all weights", checkpointing=True), Way("LoRA", lora=16)):
        with _Updates.of(setup, _drawn_at_random(shape, way)) as updates:
            (row,) = updates.compare(way.name, GPU.papers, {shape: META})
        rows.append({**row, "peak of memory (GB)": peak_gigabytes()})
        del updates
    return Report(f"One update of meta-RL, {shape} drawn at random; tokens in thousands", rows)


def _drawn_at_random(shape: str, way: Any) -> Any:
    """A model of a shape with random weights, and the tokenizer of the model that is usually measured."""
    import torch

    from mulligan.app.bench.update import SHAPES, random_model
    from mulligan.models.load import Loaded

    if shape not in SHAPES:
        raise UnknownName("shape", shape, SHAPES)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    texts, _ = subject(device.type)
    tokenizer, renderer = texts.tokenizer, texts.renderer
    del texts
    free_gpu()
    return Loaded(random_model(SHAPES[shape], way, device), tokenizer, renderer, shape)


@contextmanager
def _trainer(config: Any, loaded: Any = None) -> Iterator[Any]:
    """A trainer whose run folder lasts as long as it does."""
    from mulligan.report.run import RunFolder
    from mulligan.training.loop import Trainer
    from mulligan.training.resolve import to_tree

    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder.create(Path(folder) / "run", {"kind": "train", **to_tree(config)})
        trainer = Trainer(config, run_folder, lambda _: None, loaded=loaded)
        try:
            yield trainer
        finally:
            trainer.loop.close()


class _Updates:
    """Updates of one trainer that is told different settings."""

    def __init__(self, setup: Setup, trainer: Any, repeats: bool) -> None:
        self.setup, self.trainer, self.repeats = setup, trainer, repeats

    @classmethod
    @contextmanager
    def of(cls, setup: Setup, loaded: Any = None) -> Iterator[_Updates]:
        """With a model that is `loaded`, each update is measured once."""
        with _trainer(_config(setup, META, 1), loaded) as trainer:
            trainer.concurrency = 4096
            if hasattr(trainer.engine, "device"):
                trainer.engine.device.warm_up()
            gc.collect()
            gc.freeze()
            try:
                yield cls(setup, trainer, repeats=loaded is None)
            finally:
                gc.unfreeze()

    def compare(self, label: str, tasks: int, arms: Mapping[str, Settings]) -> list[dict[str, Cell]]:
        rows: list[dict[str, Cell]] = []
        first = None
        for name, settings in arms.items():
            config = _config(self.setup, settings, tasks)
            means = self._measure(config)
            total = means["rollout"] + means["training"]
            per_token = total / means["sampled"]
            first = first or (total, per_token)
            rows.append(
                {
                    "update": f"{name}: {label}",
                    "episodes": _episodes(config),
                    "sampled": means["sampled"] / 1000,
                    "read": means["read"] / 1000,
                    "rollout s": means["rollout"],
                    "training s": means["training"],
                    "in all": total,
                    "to RL": f"{total / first[0]:.2f}",
                    "to RL, a token": f"{per_token / first[1]:.2f}",
                    "|Δlogp|": f"{means['mismatch']:.4f}",
                }
            )
            sys.stderr.write(f"{rows[-1]}\n")
        return rows

    def _measure(self, config: Any) -> dict[str, float]:
        """The mean of two updates after one that is not counted; of small ones, which vary, of four after two."""
        trainer = self.trainer
        trainer.config = trainer.learner.config = config
        trainer.settings = config.trial
        trainer.playing.clear()
        uncounted, counted = (1, 2) if config.run.tasks >= self.setup.full else (2, 4)
        uncounted, counted = (uncounted, counted) if self.repeats else (1, 1)
        measured = [self._update(number) for number in range(uncounted + counted)][uncounted:]
        for playing in trainer.playing.values():
            playing.task.cancel()
        return {name: sum(numbers[name] for numbers in measured) / counted for name in measured[0]}

    def _update(self, number: int) -> dict[str, float]:
        tokens_before = self.trainer.engine.tokens
        metrics: dict[str, Any] = {}
        spent = gpu_seconds(lambda: metrics.update(self.trainer._update(number)))
        return {
            "sampled": metrics["tokens/sampled"],
            "read": self.trainer.engine.tokens - tokens_before - metrics["tokens/sampled"],
            "rollout": metrics["time/rollout"],
            "training": spent - metrics["time/rollout"],
            "mismatch": metrics["loss/sampler/mismatch"],
        }

    def in_lock_step(self, tasks: int) -> list[dict[str, Cell]]:
        """Rollouts alone, of the same tasks and limits, by the model as transformers loads it."""
        from mulligan.models.load import load

        model = self.trainer.config.model
        loaded = load(model.name, device=str(self.trainer.device), dtype=model.dtype)
        rows: list[dict[str, Cell]] = []
        first = 0.0
        for name, settings in (("RL", RL), ("meta-RL, history", META)):
            config = _config(self.setup, settings, tasks)
            tokens: list[int] = []
            spent = gpu_seconds(partial(lock_step.play, loaded, config, tokens))
            first = first or spent
            rows.append(
                {
                    "update": f"{name}: {tasks} tasks, lock-step",
                    "episodes": _episodes(config),
                    "sampled": sum(tokens) / 1000,
                    "rollout s": spent,
                    "to RL": f"{spent / first:.2f}",
                }
            )
        return rows


def _config(setup: Setup, settings: Settings, tasks: int) -> Any:
    from mulligan.training.resolve import resolve

    always = {"run.tasks": str(tasks), "run.save_trials_every": "0", "run.updates": "99"}
    return resolve(setup.preset, None, {**setup.common, **always, "trial.stop": "never", **settings})


def _episodes(config: Any) -> int:
    return int(config.run.tasks * config.run.group * config.trial.episodes)
