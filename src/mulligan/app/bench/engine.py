"""The engine against `transformers.generate`, and against what the memory's bandwidth allows; then whole rollouts.

A decoding step must read all weights once and the keys and values of every sequence: bytes over bandwidth (that of a
large copy, measured in the same run) is the limit. A rollout plays MineSweeper with replies of one length, environments
and tokenisation included; below it the engine alone is fed the same numbers of tokens. On a GPU the model is SmolLM2,
on a CPU nano.
"""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch

from mulligan.app.bench import Cell, Report, free_gpu, gpu_seconds, seconds
from mulligan.engine.choose import make_engine, token_bytes
from mulligan.engine.plain import LEFT, LENGTH, SCALE, STATE, STOPS
from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.models.load import load
from mulligan.policy.local import LocalPolicy
from mulligan.rollout.collect import Job, collect
from mulligan.training.rows import rows_of
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling, Trial

EPISODES, REPLIES = 3, (64, 15)
"""Of rollouts; tokens of a reply."""


@dataclass(frozen=True)
class Sizes:
    """What is measured on a kind of machine."""

    generate: tuple[int, ...]
    """Sequences that `transformers.generate` decodes."""
    decode: tuple[int, ...]
    """Sequences that the engine decodes; the last is as many as it has slots, and rollouts have trials."""
    prompt: int
    """Tokens of a prompt."""
    new: int
    """Tokens decoded after it."""


GPU = Sizes((512, 1024), (64, 256, 512, 1024), 400, 32)
CPU = Sizes((8, 32), (8, 32), 100, 16)


def run() -> Report:
    gpu = torch.cuda.is_available()
    sizes = GPU if gpu else CPU
    loaded, name = subject("cuda" if gpu else "cpu")
    bandwidth = _bandwidth(loaded.model.device)
    rows: list[dict[str, Cell]] = []
    generated: dict[int, float] = {}
    for count in sizes.generate:
        step = _generate_step(loaded.model, count, sizes)
        generated[count] = count / step
        rows.append({"what": "transformers.generate, eager", **_rates(count, step)})
    engine, warm_up = _engine(loaded, sizes)
    for count in sizes.decode:
        decoding = _decoding(engine, loaded, count, sizes, bandwidth)
        if count in generated:
            decoding["times generate"] = f"{float(decoding['sampled tok/s']) / generated[count]:.1f}"
        rows.append({"what": "engine, decoding", **decoding})
    if hasattr(engine, "device"):
        read, step = _reading_step(engine.device, sizes.prompt)
        rows.append({"what": "engine, reading prompts (tokens read)", **_rates(read, step)})
    adapted, _ = subject(loaded.model.device.type, lora=16)
    engine, _ = _engine(adapted, sizes)
    decoding = _decoding(engine, adapted, sizes.decode[-1], sizes, bandwidth)
    rows.append({"what": "engine, decoding, LoRA of rank 16", **decoding})
    del engine, adapted
    free_gpu()
    for reply in REPLIES:
        rows += _rollout(loaded, sizes, reply)
    lengths = f"prompts of {sizes.prompt} tokens, {sizes.new} new ones"
    return Report(f"{name}, {lengths}; {bandwidth / 1e12:.2f} TB/s; warm-up {warm_up:.1f} s", rows)


def subject(device: str, lora: int = 0) -> tuple[Any, str]:
    """The model that is measured, and what to call it; `lora` is the rank of an adapter to put on it."""
    if device == "cpu":
        return load("nano:context=4096", lora=lora), "nano"
    try:
        return load("smollm2", device=device, dtype="bfloat16", lora=lora), "SmolLM2-135M, bfloat16"
    except UsageError:
        small = load("nano:context=4096", device=device, dtype="bfloat16", lora=lora)
        return small, "nano, bfloat16 (smollm2 is not installed)"


def _rates(count: int, step: float) -> dict[str, Cell]:
    return {"sequences": count, "sampled tok/s": count / step, "ms a step": 1000 * step}


def _bandwidth(device: Any) -> float:
    """Bytes a second of a large copy, read and write."""
    size = 2**30 if device.type == "cuda" else 2**27
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * size / min(gpu_seconds(lambda: target.copy_(source)) for _ in range(5))


def _generate_step(model: Any, count: int, sizes: Sizes) -> float:
    """Seconds a step of `generate`, reading the prompts not counted."""
    model.set_attn_implementation("sdpa")
    ids = torch.randint(3, model.config.vocab_size, (count, sizes.prompt), device=model.device)
    options = {"attention_mask": torch.ones_like(ids), "do_sample": True, "temperature": 0.7, "top_k": 0}

    def sample(new: int) -> Callable[[], object]:
        return lambda: model.generate(ids, max_new_tokens=new, min_new_tokens=new, pad_token_id=0, **options)

    with torch.no_grad():
        sample(2)()
        one, all_new = (min(gpu_seconds(sample(new)) for _ in range(2)) for new in (1, 1 + sizes.new))
    return (all_new - one) / sizes.new


def _engine(loaded: Any, sizes: Sizes, context: int = 0) -> tuple[Any, float]:
    """An engine that shares no prompts, so that each counts; and the seconds until it was ready."""
    started = time.perf_counter()
    context = context or sizes.prompt + 2 * sizes.new
    engine = make_engine(loaded.model, slots=sizes.decode[-1], context=context, share=False)
    if hasattr(engine, "device"):
        engine.device.warm_up()
    return engine, time.perf_counter() - started


def _decoding(engine: Any, loaded: Any, count: int, sizes: Sizes, bandwidth: float) -> dict[str, Cell]:
    """Rates of decoding, and the share of what the bandwidth allows.

    On a GPU the steps alone; on a CPU `count` streams whose prompts are read, for `new` tokens each.
    """
    alone = hasattr(engine, "device")
    spent = _steps_alone(engine.device, count, sizes) if alone else _streams(engine, count, sizes)
    step = spent / sizes.new
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    past = token_bytes(loaded.model.config, loaded.model.dtype)
    limit = (weights + count * (sizes.prompt + sizes.new / 2) * past) / bandwidth
    return {**_rates(count, step), "share of the limit": f"{100 * limit / step:.0f} %"}


def _steps_alone(device: Any, count: int, sizes: Sizes) -> float:
    """Seconds of `new` decoding steps of `count` slots that hold a prompt each."""
    states = np.zeros((count, 1 + STATE), dtype=np.int32)
    states[:, 0] = slots = np.arange(count)
    fields = states[:, 1:]
    fields[:, LEFT], fields[:, STOPS:], fields[:, LENGTH] = 10**6, -1, sizes.prompt
    fields[:, SCALE] = np.float32(1 / 0.7).view(np.int32)
    spans = []

    def steps() -> None:
        for _ in range(sizes.new):
            flight = device.decode(slots)
        flight.wait()

    for _ in range(4):
        device.admit(states)
        device.decode(slots).wait()
        device.admit(states)
        spans.append(gpu_seconds(steps))
    return sorted(spans)[1]


def _streams(engine: Any, count: int, sizes: Sizes) -> float:
    """Seconds of `new` tokens for each of `count` streams that hold a prompt each."""
    rng = random.Random(0)
    prompt = [rng.randrange(3, engine.model.config.vocab_size) for _ in range(sizes.prompt - 2)]

    async def reply(streams: list[Any], ids: list[int], tokens: int) -> None:
        await asyncio.gather(*(stream.extend(ids, Sampling(0.7, 1.0, tokens), (), rng) for stream in streams))

    with asyncio.Runner() as runner:
        streams = [runner.run(engine.open()) for _ in range(count)]
        runner.run(reply(streams, prompt, 1))
        spent = seconds(lambda: runner.run(reply(streams, [5], sizes.new)))
        for stream in streams:
            stream.close()
    return spent


def _reading_step(device: Any, prompt: int) -> tuple[int, float]:
    """Tokens of a chunk of whole prompts, and the seconds that reading it takes."""
    count = device.chunk // prompt
    slots, positions = np.repeat(np.arange(count), prompt), np.tile(np.arange(prompt), count)
    tokens = np.full(len(slots), 7)

    def chunks() -> None:
        for _ in range(8):
            device.read(tokens, slots, positions)

    chunks()
    return len(tokens), min(gpu_seconds(chunks) for _ in range(3)) / 8


def _rollout(loaded: Any, sizes: Sizes, reply: int) -> list[dict[str, Cell]]:
    """Sampled tokens a second of whole trials, and of the engine alone on as many tokens."""
    engine, _ = _engine(loaded, sizes, context=2048)
    renderer = copy.copy(loaded.renderer)
    renderer.stop_ids = frozenset()  # replies never end before their limit
    policy = LocalPolicy(engine, renderer)
    sampling = Sampling(1.0, 1.0, reply)
    settings = TrialSettings(memory="history", episodes=EPISODES, stop="never", sampling=sampling)
    jobs = [Job(registry.make_task("minesweeper", seed), seed) for seed in range(sizes.decode[-1])]
    trials: dict[int, Trial] = {}
    play = partial(collect, jobs, policy, settings, concurrency=len(jobs), on_trial=trials.__setitem__)
    played = gpu_seconds(lambda: asyncio.run(play()))
    rows, _ = rows_of(list(trials.values()))
    rng = random.Random(0)

    async def replay(rows: list[Any]) -> None:
        stream = await engine.open()
        for row in rows:
            stream.restart()
            for span in row.spans:
                await stream.extend([7] * (span.start - stream.length), sampling, (), rng)
        stream.close()

    async def replay_all() -> None:
        await asyncio.gather(*(replay(list(some)) for _, some in groupby(rows, lambda row: row.spans[0].trial)))

    alone = gpu_seconds(lambda: asyncio.run(replay_all()))
    sampled, count = sum(len(span.ids) for row in rows for span in row.spans), sizes.decode[-1]
    share = f"{100 * alone / played:.0f} % of the next"
    label = f"{reply}-token replies"
    rollout: dict[str, Cell] = {"what": f"rollout, {label}", "sequences": count, "sampled tok/s": sampled / played}
    return [
        {**rollout, "share of the limit": share},
        {**rollout, "what": f"engine alone, {label}", "sampled tok/s": sampled / alone},
    ]
