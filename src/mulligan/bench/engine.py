"""The engine against `transformers.generate`, and against what the memory's bandwidth allows; then whole rollouts.

A decoding step must read all weights once and the keys and values of every sequence: bytes over bandwidth (that of a
large copy, measured in the same run) is the limit. A rollout plays MineSweeper with replies of one length, environments
and tokenisation included; below it the engine alone is fed the same numbers of tokens. On a GPU the model is SmolLM2,
on a CPU nano.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mulligan.bench import Report
from mulligan.envs import registry
from mulligan.errors import UsageError
from mulligan.types import Sampling, Task

EPISODES = 3


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    generate: tuple[int, ...]
    decode: tuple[int, ...]
    prompt: int
    new: int
    slots: int
    trials: int
    replies: tuple[int, ...]


GPU = Sizes((512, 1024), (64, 256, 512, 1024), 400, 32, 1024, 1024, (64, 15))
CPU = Sizes((8, 32), (8, 32), 100, 16, 32, 32, (64, 15))


def run() -> Report:
    import torch

    gpu = torch.cuda.is_available()
    sizes = GPU if gpu else CPU
    loaded, name = subject("cuda" if gpu else "cpu")
    bandwidth = _bandwidth(loaded.model.device)
    rows: list[tuple[str | float, ...]] = []
    slowest: dict[int, float] = {}
    with torch.no_grad():
        for count in sizes.generate:
            step, rate = _generate(loaded, count, sizes)
            slowest[count] = rate
            rows.append(("transformers.generate, eager", count, rate, 1000 * step, "", ""))
    engine, warm = _engine(loaded, sizes.slots, sizes.prompt + 2 * sizes.new)
    for count in sizes.decode:
        step, rate, limit = _decode(engine, loaded, count, sizes, bandwidth)
        times = f"{rate / slowest[count]:.1f}" if count in slowest else ""
        rows.append(("engine, decoding", count, rate, 1000 * step, f"{100 * limit / step:.0f} %", times))
    if hasattr(engine, "device"):
        step, read = _reading(engine.device, sizes.prompt)
        rows.append(("engine, reading prompts (tokens read)", read, read / step, 1000 * step, "", ""))
    del engine
    rows.append(_with_adapter(loaded.model.device, sizes, bandwidth))
    for reply in sizes.replies:
        played, alone = _rollout(loaded, sizes, reply)
        label = f"{reply}-token replies"
        rows.append((f"rollout, {label}", sizes.slots, played, "", f"{100 * played / alone:.0f} % of the next", ""))
        rows.append((f"engine alone, {label}", sizes.slots, alone, "", "", ""))
    lengths = f"prompts of {sizes.prompt} tokens, {sizes.new} new ones"
    title = f"{name}, {lengths}; {bandwidth / 1e12:.2f} TB/s; warm-up {warm:.1f} s"
    columns = ("what", "sequences", "sampled tok/s", "ms a step", "share of the limit", "times generate")
    return Report(title, columns, tuple(rows))


def subject(device: str, lora: int = 0) -> tuple[Any, str]:
    """The model that is measured, and what to call it; `lora` is the rank of an adapter to put on it."""
    from mulligan.models.load import LoraSettings, load

    adapter = LoraSettings(rank=lora) if lora else None
    if device == "cpu":
        return load("nano:context=4096", lora=adapter), "nano"
    try:
        return load("smollm2", device=device, dtype="bfloat16", lora=adapter), "SmolLM2-135M, bfloat16"
    except UsageError:
        small = load("nano:context=4096", device=device, dtype="bfloat16", lora=adapter)
        return small, "nano, bfloat16 (smollm2 is not installed)"


def _with_adapter(device: Any, sizes: Sizes, bandwidth: float) -> tuple[str | float, ...]:
    """Decoding at the most sequences with a LoRA adapter of rank 16 on every linear layer."""
    loaded, _ = subject(device.type, lora=16)
    engine, _ = _engine(loaded, sizes.slots, sizes.prompt + 2 * sizes.new)
    count = sizes.decode[-1]
    step, rate, limit = _decode(engine, loaded, count, sizes, bandwidth)
    del engine, loaded
    gc.collect()
    return "engine, decoding, LoRA of rank 16", count, rate, 1000 * step, f"{100 * limit / step:.0f} %", ""


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def _timed(device: Any, work: Callable[[], object]) -> float:
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def _bandwidth(device: Any) -> float:
    """Bytes a second of a large copy, read and write."""
    import torch

    size = 2**30 if device.type == "cuda" else 2**27
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * size / min(_timed(device, lambda: target.copy_(source)) for _ in range(5))


def _generate(loaded: Any, count: int, sizes: Sizes) -> tuple[float, float]:
    """Seconds a step and tokens a second of `generate`, reading the prompts not counted."""
    import torch

    model = loaded.model
    model.set_attn_implementation("sdpa")
    vocabulary = model.config.vocab_size
    ids = torch.randint(3, vocabulary, (count, sizes.prompt), device=model.device)

    def sample(new: int) -> Callable[[], object]:
        return lambda: model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=True,
            temperature=0.7,
            top_k=0,
            pad_token_id=0,
        )

    sample(2)()
    first, whole = (min(_timed(model.device, sample(new)) for _ in range(2)) for new in (1, 1 + sizes.new))
    step = (whole - first) / sizes.new
    return step, count / step


def _engine(loaded: Any, slots: int, context: int) -> tuple[Any, float]:
    from mulligan.engine.choose import make_engine

    began = time.perf_counter()
    engine = make_engine(loaded.model, slots=slots, context=context, share=False)  # each prompt counts
    if hasattr(engine, "warm_up"):
        engine.warm_up()
    return engine, time.perf_counter() - began


def _decode(engine: Any, loaded: Any, count: int, sizes: Sizes, bandwidth: float) -> tuple[float, float, float]:
    """Seconds a step, tokens a second, and the least seconds a step that the bandwidth allows.

    On a GPU the steps alone; on a CPU `count` streams whose prompts are read, for `new` tokens each.
    """
    from mulligan.engine.places import token_bytes

    if hasattr(engine, "device"):
        step = _steps_alone(engine.device, count, sizes) / sizes.new
    else:
        step = _streams(engine, loaded, count, sizes) / sizes.new
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    past = token_bytes(loaded.model.config, loaded.model.dtype)
    limit = (weights + count * (sizes.prompt + sizes.new / 2) * past) / bandwidth
    return step, count / step, limit


def _steps_alone(device: Any, count: int, sizes: Sizes) -> float:
    """Seconds of `new` decoding steps of `count` slots that hold a prompt each."""
    import numpy as np

    from mulligan.engine.state import DONE, LEFT, LENGTH, SCALE, STATE, STOPS

    states = np.zeros((count, 1 + STATE), dtype=np.int32)
    states[:, 0] = slots = np.arange(count)
    own = states[:, 1:]
    own[:, LEFT], own[:, STOPS:], own[:, DONE] = 10**6, -1, 0
    own[:, SCALE] = np.float32(1 / 0.7).view(np.int32)
    spans = []

    def steps() -> None:
        for _ in range(sizes.new):
            flight = device.decode(slots)
        flight.wait()

    for _ in range(4):
        own[:, LENGTH] = sizes.prompt
        device.admit(states)
        device.decode(slots).wait()
        own[:, LENGTH] = sizes.prompt
        device.admit(states)
        spans.append(_timed(device.device, steps))
    return sorted(spans)[1]


def _reading(device: Any, prompt: int) -> tuple[float, int]:
    """Seconds that reading a chunk of whole prompts takes, and its tokens."""
    import numpy as np

    count = device.chunk // prompt
    slots, positions = np.repeat(np.arange(count), prompt), np.tile(np.arange(prompt), count)
    tokens = np.full(len(slots), 7)

    def chunks() -> None:
        for _ in range(8):
            device.read(tokens, slots, positions)

    chunks()
    return min(_timed(device.device, chunks) for _ in range(3)) / 8, len(tokens)


def profile(rows: int = 1024, context: int = 400) -> str:
    """Where the time of a decoding step goes, kernel by kernel; for a GPU, from Python."""
    import numpy as np
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    loaded, _ = subject("cuda")
    engine, _ = _engine(loaded, rows, context + 64)
    _steps_alone(engine.device, rows, replace(GPU, prompt=context))
    with recording(activities=[ProfilerActivity.CUDA]) as found:
        engine.device.decode(np.arange(rows)).wait()
        _wait(loaded.model.device)
    return str(found.key_averages().table(sort_by="cuda_time_total", row_limit=20, max_name_column_width=60))


def _streams(engine: Any, loaded: Any, count: int, sizes: Sizes) -> float:
    rng = random.Random(0)
    vocabulary = loaded.model.config.vocab_size

    async def play() -> float:
        streams = [await engine.open() for _ in range(count)]
        prompt = [rng.randrange(3, vocabulary) for _ in range(sizes.prompt - 2)]
        await asyncio.gather(*(s.extend(prompt, Sampling(0.7, 1.0, 1), (), rng) for s in streams))
        began = time.perf_counter()
        await asyncio.gather(*(s.extend([5], Sampling(0.7, 1.0, sizes.new), (), rng) for s in streams))
        spent = time.perf_counter() - began
        for stream in streams:
            stream.close()
        return spent

    return asyncio.run(play())


class Endless:
    """A renderer whose replies never end before their limit."""

    def __init__(self, renderer: Any) -> None:
        self.renderer, self.stop_ids = renderer, frozenset[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.renderer, name)


class Noting:
    """An engine that notes how many tokens it was given, and where sequences began."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.context = engine, int(engine.context)
        self.trials: list[list[int | None]] = []
        """For each stream: tokens appended, or None where a new sequence began."""

    async def open(self) -> Any:
        stream = _NotingStream(await self.engine.open())
        self.trials.append(stream.noted)
        return stream


class _NotingStream:
    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.noted: list[int | None] = []

    async def extend(self, ids: Sequence[int], sampling: Sampling, stop: Collection[int], rng: random.Random) -> Any:
        self.noted.append(len(ids))
        return await self.stream.extend(ids, sampling, stop, rng)

    def restart(self) -> None:
        self.noted.append(None)
        self.stream.restart()

    def close(self) -> None:
        self.stream.close()


def _rollout(loaded: Any, sizes: Sizes, reply: int) -> tuple[float, float]:
    """Sampled tokens a second of whole trials, and of the engine alone on as many tokens."""
    from mulligan.policy.local import LocalPolicy
    from mulligan.trial.runner import run_trial

    engine, _ = _engine(loaded, sizes.slots, 2048)
    noting = Noting(engine)
    renderer: Any = Endless(loaded.renderer)
    policy = LocalPolicy(noting, renderer)
    sampling = Sampling(1.0, 1.0, reply)
    tasks = [registry.make_task("minesweeper", seed) for seed in range(sizes.trials)]

    async def trial(task: Task) -> Any:
        return await run_trial(
            task, policy, memory="history", episodes=EPISODES, stop="never", sampling=sampling, seed=task.seed
        )

    async def all_trials() -> list[Any]:
        return await asyncio.gather(*(trial(task) for task in tasks))

    found: list[Any] = []
    device = loaded.model.device
    spent = _timed(device, lambda: found.extend(asyncio.run(all_trials())))
    sampled = sum(turn.reply.completion_tokens for t in found for e in t.episodes for turn in e.turns)
    rng = random.Random(0)

    async def same(noted: Sequence[int | None]) -> None:
        stream = await engine.open()
        for count in noted:
            if count is None:
                stream.restart()
            else:
                await stream.extend([7] * count, sampling, (), rng)
        stream.close()

    async def all_same() -> None:
        await asyncio.gather(*(same(noted) for noted in noting.trials))

    alone = _timed(device, lambda: asyncio.run(all_same()))
    return sampled / spent, sampled / alone
