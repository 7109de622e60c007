"""A whole update of meta-RL against one of RL, at equal numbers of episodes: trials, then training.

All episodes are played (no trial stops early). RL plays 24 single episodes of each task, meta-RL 8 trials of 3
episodes. "Slots full" has as many trials under way as the engine has slots; the papers' size is 16 tasks. Lock-step is
what training loops commonly do: everybody is asked at once, `transformers.generate` reads the whole context again, and
the slowest reply ends the turn. |Δlogp| is the mean difference between the sampler's and the trainer's
log-probabilities of the same tokens, before the first step. On a GPU the model is SmolLM2, on a CPU nano, which is
asked for its reflections in one word; SmolLM2 is asked for eight parts (reflection) or for a note.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mulligan.bench import Report
from mulligan.bench.engine import subject
from mulligan.types import Completion, Message, Sampling, Task

RL = {"trial.episodes": "1", "run.group": "24"}
META = {"trial.episodes": "3", "run.group": "8"}


@dataclass(frozen=True)
class Setup:
    """What is measured on a kind of machine."""

    preset: str | None
    common: Mapping[str, str]
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


def run(
    shape: str = "", preset: str = "", env: str = "", *, tasks: int = 0, group: int = 0, episodes: int = 0
) -> Report:
    """shape: "" for the comparison; or a model of that size drawn at random, for one update of the papers' size.

    preset: with a shape, one update of that preset at full length (`mulligan.bench.preset`) instead; of so many tasks,
    trials a task and episodes, or as the preset says.
    """
    import torch

    if preset:
        from mulligan.bench import preset as at_full_length

        return at_full_length.run(shape, preset, env=env, tasks=tasks, group=group, episodes=episodes)
    if shape:
        return _large(shape)
    gpu = torch.cuda.is_available()
    setup = GPU if gpu else CPU
    rows: list[tuple[str | float, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(setup, Path(folder))
        rows += bench.compare(
            "slots full",
            setup.full,
            {
                "RL": RL,
                "meta-RL, history": {**META, "trial.memory": "history"},
                "meta-RL, reflection": {**META, "trial.memory": "reflection"},
                **({"meta-RL, note": {**META, "trial.memory": "reflection", "trial.style": "note"}} if gpu else {}),
            },
        )
        for staleness in ("0", "1") if setup.papers else ():
            late = {"run.staleness": staleness}
            rows += bench.compare(
                f"{setup.papers} tasks, staleness {staleness}",
                setup.papers,
                {"RL": {**RL, **late}, "meta-RL, history": {**META, **late, "trial.memory": "history"}},
            )
        rows += bench.lock_step(setup.papers or setup.full)
        bench.close()
    columns = (
        "update",
        "episodes",
        "sampled",
        "read",
        "rollout s",
        "training s",
        "in all",
        "to RL",
        "to RL, a token",
        "|Δlogp|",
    )
    return Report(f"Updates, {setup.common.get('model.name', 'nano')}; tokens in thousands", columns, tuple(rows))


def _large(shape: str) -> Report:
    """Meta-RL's update of the papers' size with a large model: all weights, and LoRA."""
    import torch

    from mulligan.bench.update import SHAPES, Way, random_model
    from mulligan.errors import UnknownName, UsageError
    from mulligan.models.load import Loaded

    if shape not in SHAPES:
        raise UnknownName("shape", shape, SHAPES)
    if not torch.cuda.is_available():
        raise UsageError("there is no GPU for a model of that size")
    device = torch.device("cuda")
    texts, _ = subject(str(device))
    setup = replace(GPU, common={**GPU.common, "engine.slots": "128", "optim.tokens": "16384"})
    rows: list[tuple[str | float, ...]] = []
    for name, way in (("all weights", Way("all", "on", checkpointing=True)), ("LoRA", Way("LoRA", "on", lora=16))):
        model = random_model(SHAPES[shape], way, device)
        loaded = Loaded(model, texts.tokenizer, texts.renderer, shape)
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            bench = _Bench(setup, Path(folder), loaded)
            (row,) = bench.compare(name, GPU.papers, {shape: {**META, "trial.memory": "history"}})
            bench.close()
        rows.append((*row[:7], torch.cuda.max_memory_allocated() / 1e9))
        sys.stderr.write(f"{name}: {rows[-1]}\n")
        del bench, loaded, model
        gc.collect()
        torch.cuda.empty_cache()
    columns = ("update", "episodes", "sampled", "read", "rollout s", "training s", "in all", "peak of memory (GB)")
    return Report(f"One update of meta-RL, {shape} drawn at random; tokens in thousands", columns, tuple(rows))


class _Bench:
    """One trainer, told different things."""

    def __init__(self, setup: Setup, folder: Path, loaded: Any = None) -> None:
        from mulligan.report.run import RunFolder
        from mulligan.train.loop import Trainer
        from mulligan.train.resolve import to_tree

        self.setup, self.once = setup, loaded is not None
        config = self._config(META, 1)
        run = RunFolder.create(folder / "run", {"kind": "train", **to_tree(config)})
        self.trainer = Trainer(config, run, lambda metrics: None, loaded=loaded)
        self.trainer.concurrency = 4096
        if hasattr(self.trainer.engine, "warm_up"):
            self.trainer.engine.warm_up()
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        self.trainer.loop.close()
        gc.unfreeze()

    def _config(self, settings: Mapping[str, str], tasks: int) -> Any:
        from mulligan.train.resolve import resolve

        always = {"run.tasks": str(tasks), "run.save_trials_every": "0", "run.updates": "99"}
        flags = {**self.setup.common, **always, "trial.stop": "never", **settings}
        return resolve(self.setup.preset, None, flags)

    def compare(self, label: str, tasks: int, arms: Mapping[str, Mapping[str, str]]) -> list[tuple[str | float, ...]]:
        rows: list[tuple[str | float, ...]] = []
        first = 0.0, 0.0
        for name, settings in arms.items():
            found = self._measure(self._config(settings, tasks))
            whole = found["rollout"] + found["training"]
            per_token = whole / found["sampled"]
            sys.stderr.write(f"{name}, {label}: {whole:.1f} s {found}\n")
            first = first if rows else (whole, per_token)
            rows.append(
                (
                    f"{name}: {label}",
                    found["episodes"],
                    found["sampled"] / 1000,
                    found["read"] / 1000,
                    found["rollout"],
                    found["training"],
                    whole,
                    f"{whole / first[0]:.2f}",
                    f"{per_token / first[1]:.2f}",
                    f"{found['apart']:.4f}",
                )
            )
        return rows

    def _measure(self, config: Any) -> dict[str, float]:
        """The mean of two updates after one that is not counted; of small ones, which vary, of four after two."""
        trainer = self.trainer
        trainer.config = trainer.learner.config = config
        trainer.settings = config.trial
        trainer.playing.clear()
        spans = []
        before, counted = (1, 2) if config.run.tasks >= self.setup.full else (2, 4)
        before, counted = (1, 1) if self.once else (before, counted)
        for update in range(before + counted):
            taken, steps = trainer.engine.tokens, trainer.engine.steps
            waited = getattr(trainer.engine, "waited", 0.0)
            began = time.perf_counter()
            found = trainer._update(update)
            self._settle()
            whole = time.perf_counter() - began
            taken = trainer.engine.tokens - taken
            spans.append(
                {
                    "sampled": found["tokens/sampled"],
                    "read": taken - found["tokens/sampled"],
                    "rollout": found["time/rollout"],
                    "training": whole - found["time/rollout"],
                    "apart": found["loss/sampler/mismatch"],
                    "steps": trainer.engine.steps - steps,
                    "waited": getattr(trainer.engine, "waited", 0.0) - waited,
                }
            )
        for playing in trainer.playing.values():
            playing.task.cancel()
        mean = {name: sum(span[name] for span in spans[before:]) / counted for name in spans[0]}
        return {**mean, "episodes": config.run.tasks * config.run.group * config.trial.episodes}

    def _settle(self) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def lock_step(self, tasks: int) -> list[tuple[str | float, ...]]:
        """Rollouts alone, of the same tasks and limits, by the model as transformers loads it."""
        from mulligan.models.load import load

        model = self._config(META, tasks).model
        loaded = load(model.name, device=str(self.trainer.device), dtype=model.dtype)
        rows: list[tuple[str | float, ...]] = []
        first = 0.0
        for name, settings in (("RL", RL), ("meta-RL, history", {**META, "trial.memory": "history"})):
            config = self._config(settings, tasks)
            began = time.perf_counter()
            sampled = _lock_step(loaded, config)
            self._settle()
            spent = time.perf_counter() - began
            first = first or spent
            episodes = config.run.tasks * config.run.group * config.trial.episodes
            label = f"{name}: {tasks} tasks, lock-step"
            rows.append((label, episodes, sampled / 1000, "", spent, "", "", f"{spent / first:.2f}", "", ""))
        return rows


class _Asking:
    """A conversation that hands its prompt to the lock-step loop and waits for the round's answer."""

    def __init__(self, room: _LockStep) -> None:
        self.room = room

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.room.asked.append((list(messages), answer))
        return await answer

    def close(self) -> None:
        pass


class _LockStep:
    """Collects the prompts of all live trials, then answers them in one padded batch of `generate`."""

    name = "lock-step"

    def __init__(self, loaded: Any, reply: int) -> None:
        self.loaded, self.limit = loaded, reply
        self.asked: list[tuple[list[Message], asyncio.Future[Completion]]] = []
        self.tokens = 0

    def start(self, task: Task, seed: int) -> _Asking:
        return _Asking(self)

    def answer_round(self) -> None:
        import torch

        round_, self.asked = self.asked, []
        renderer, model = self.loaded.renderer, self.loaded.model
        prompts = [renderer.opening(messages) for messages, _ in round_]
        longest = max(map(len, prompts))
        stop = sorted(renderer.stop_ids)
        ids = torch.tensor([[stop[0]] * (longest - len(prompt)) + prompt for prompt in prompts], device=model.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        with torch.no_grad():
            found = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                max_new_tokens=self.limit,
                eos_token_id=stop,
                pad_token_id=stop[0],
            )
        for (_, answer), reply in zip(round_, found[:, longest:].tolist(), strict=True):
            end = next((place + 1 for place, token in enumerate(reply) if token in stop), len(reply))
            self.tokens += end
            answer.set_result(Completion(renderer.decode_reply(reply[:end]), completion_tokens=end))


def _lock_step(loaded: Any, config: Any) -> int:
    """Play an update's trials in lock-step; returns the tokens sampled."""
    from mulligan.rollout.groups import Mixture, draw_tasks
    from mulligan.trial.runner import run_trial

    room = _LockStep(loaded, config.trial.sampling.max_tokens)
    mixture = Mixture.parse(config.task.env, config.task.params)
    draws = draw_tasks(mixture, config.run.tasks, seed=0, update=0)
    settings = config.trial
    loaded.model.eval()
    loaded.model.set_attn_implementation("sdpa")

    async def all_of_them() -> None:
        trials = [
            asyncio.ensure_future(run_trial(draw.task, room, settings=settings, index=index))
            for draw in draws
            for index in range(config.run.group)
        ]
        while not all(trial.done() for trial in trials):
            await asyncio.sleep(0)
            if room.asked and sum(not trial.done() for trial in trials) == len(room.asked):
                room.answer_round()

    asyncio.run(all_of_them())
    return room.tokens
