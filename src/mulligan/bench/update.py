"""A whole update of the weights, packing to optimiser, on rows like those of MineSweeper, with models drawn at random.

Tokens a second are those of the rows, in an update that nobody disturbs. Times of its parts come from another one, in
which the host waits for the GPU between them; `look over` is the extra pass that updates need where they have several
minibatches, a critic or a KL term. From Python: `run(shape="qwen3-4b")` for a large model, `profile()` for where a
GPU's time goes.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mulligan.bench import Report
from mulligan.errors import UnknownName

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, and how much an update gives it to read."""

    family: str
    sizes: dict[str, Any]
    rows: int
    length: tuple[int, int]
    """Tokens of a row, from and to."""
    rules: int
    """Of them, tokens that all rows begin with."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compute the same update."""

    name: str
    compile: str = "on"
    checkpointing: bool = False
    lora: int = 0
    """Rank; 0 trains all weights."""
    whole_logits: bool = False
    """All logits of a micro-batch at a time."""
    share: str = "off"
    """Whether what all rows begin with is computed once."""


def _sizes(vocabulary: int, hidden: int, inner: int, layers: int, heads: int, key_heads: int, longest: int) -> Any:
    """Sizes of a model, as transformers names them; `longest` is its own limit of positions."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "max_position_embeddings": longest,
    }


_NANO = _sizes(2000, 96, 256, 2, 4, 4, longest=40_960)  # as much as Qwen3: the papers' presets in small
_SMOLLM2 = _sizes(49_152, 576, 1536, 30, 9, 3, longest=8192)
_QWEN3 = {**_sizes(151_936, 2560, 9728, 36, 32, 8, longest=40_960), "head_dim": 128}
_LLAMA3 = {**_sizes(128_256, 4096, 14_336, 32, 32, 8, longest=131_072), "tie_word_embeddings": False}
SHAPES = {
    "nano": Shape("Llama", _NANO, 80, (60, 140), 25),
    "smollm2": Shape("Llama", _SMOLLM2, 512, (300, 700), 190),
    "qwen3-4b": Shape("Qwen3", _QWEN3, 128, (300, 700), 190),
    "llama3.1-8b": Shape("Llama", _LLAMA3, 128, (300, 700), 190),
}
WAYS = {
    "nano": (Way("eager", "off"), Way("eager, logits in slices", "off")),
    "smollm2": (
        Way("eager", "off"),
        Way("compiled"),
        Way("compiled, rules once", share="on"),
        Way("compiled, whole logits", whole_logits=True),
    ),
    "qwen3-4b": (
        Way("full"),
        Way("full, checkpoints", checkpointing=True),
        Way("LoRA", lora=16),
        Way("LoRA, rules once", lora=16, share="on"),
    ),
    "llama3.1-8b": (Way("LoRA", lora=16), Way("LoRA, rules once", lora=16, share="on")),
}


def run(
    shape: str | None = None, *, ways: Sequence[Way] | None = None, tokens: int = 0, epochs: int = 1, repeats: int = 3
) -> Report:
    """shape: of `SHAPES`; by default smollm2 on a GPU, nano elsewhere. tokens: of a micro-batch, 0 for the default."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = shape or ("smollm2" if device.type == "cuda" else "nano")
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    asked = ways or WAYS[name]
    found, reference = [], None
    for way in asked:
        numbers, logp = _measure(SHAPES[name], way, device, tokens, epochs, repeats)
        found.append(numbers)
        if reference is None:
            reference = logp
        numbers["logp against the first"] = float((logp - reference).abs().mean())
        _clear(device)
    rows = [(measure, *(_text(measure, numbers.get(measure)) for numbers in found)) for measure in found[0]]
    place = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    title = f"one update of {name}, {epochs} epoch, {place}, torch {torch.__version__}; times in ms"
    return Report(title, ("", *(way.name for way in asked)), tuple(rows))


def profile(shape: str = "smollm2", way: Way | None = None, tokens: int = 0, lines: int = 40) -> str:
    """A table of where the time of one update goes, kernel by kernel."""
    import torch
    from torch.profiler import ProfilerActivity

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bench = _Bench(SHAPES[shape], way or Way("compiled", "on" if device.type == "cuda" else "off"), device, tokens, 1)
    bench.update()
    bench.update()
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device.type == "cuda")]
    with torch.profiler.profile(activities=activities) as profiler:
        bench.update()
        bench.wait()
    kind = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    return str(profiler.key_averages().table(sort_by=kind, row_limit=lines, max_name_column_width=70))


def _measure(shape: Shape, way: Way, device: Any, tokens: int, epochs: int, repeats: int) -> tuple[Numbers, Any]:
    """What one way of computing an update costs, and the log-probabilities it starts from."""
    import torch

    bench = _Bench(shape, way, device, tokens, epochs)
    began = time.perf_counter()
    logp = bench.look_over()  # also compiles
    bench.update()
    first = time.perf_counter() - began
    bench.forget_peak()
    times = [bench.timed(bench.update) for _ in range(repeats)]
    peak = bench.peak()
    parts = bench.in_parts()
    again = bench.look_over()
    looked = bench.timed(bench.look_over)
    seen: list[Any] = []
    bench.update(seen=seen)
    seconds = statistics.median(times)
    return {
        "tokens/s": bench.tokens * epochs / seconds,
        "tokens/s with looking over": bench.tokens * epochs / (seconds + looked),
        "update": 1000 * seconds,
        **{f"  {part}": 1000 * taken for part, taken in parts.items()},
        "look over": 1000 * looked,
        "first update, with compiling": 1000 * first,
        "peak of memory (GB)": peak,
        "weights, masters, moments (GB)": bench.resting(),
        "tokens": float(bench.tokens),
        "sampled": float(bench.sampled),
        "tokens of a micro-batch": float(bench.learner.tokens),
        "logp, look over against first step": float((again - torch.cat(seen[: bench.batches])).abs().mean()),
    }, logp


class _Bench:
    """A model, its learner and rows to learn from."""

    def __init__(self, shape: Shape, way: Way, device: Any, tokens: int, epochs: int) -> None:
        import torch

        from mulligan.train.config import Config, ModelConfig, OptimConfig
        from mulligan.train.step import Learner, UpdateData

        self.device = device
        model = random_model(shape, way, device)
        config = Config(
            model=ModelConfig(gradient_checkpointing=way.checkpointing),
            optim=OptimConfig(lr=1e-6, warmup=1, lr_end=1.0, epochs=epochs, tokens=tokens),
        )
        compiles, shares = way.compile == "on", way.share == "on"
        self.learner = Learner(model, config, compiles=compiles, shares_openings=shares, uses_own_logp=True)
        if way.whole_logits:
            self.learner.head.few = 2**62
        elif "slices" in way.name:
            self.learner.head.few = 0
        rows, steps = _rows(shape)
        advantages = torch.randn(steps, generator=torch.Generator().manual_seed(0)).to(device)
        self.data = UpdateData(rows, advantages)
        self.steps = steps
        self.tokens = sum(len(row.ids) for row in rows)
        self.sampled = sum(len(span.ids) for row in rows for span in row.spans)
        self.batches = 0
        """Micro-batches of a pass."""

    def update(self, seen: list[Any] | None = None) -> None:
        with self._wrapped("score", lambda scores: None if seen is None else seen.append(scores.logp.detach())):
            if self.learner.update(self.data, update=0)["skipped"]:
                raise RuntimeError("the loss of the benchmark is not finite")

    def look_over(self) -> Any:
        """The extra pass; the log-probabilities, in the order of packing."""
        import torch

        found: list[Any] = []
        self.learner._later_rows = lambda rows, update: list(rows)  # type: ignore[method-assign]
        try:
            with self._wrapped("score", lambda scores: found.append(scores.logp)):
                self.learner.look_over(self.data.rows, self.steps, 0)
        finally:
            del self.learner._later_rows
        for row in self.data.rows:
            for span in row.spans:
                span.old = None
        self.batches = len(found)
        return torch.cat(found)

    def in_parts(self) -> Numbers:
        """Seconds of each part of an update, the host waiting for each."""
        spent: Counter[str] = Counter()
        names = {"_pack": "packing", "score": "forward", "_apply": "optimiser"}
        originals = {name: getattr(self.learner, name) for name in names}
        for name, part in names.items():
            setattr(self.learner, name, self._timing(originals[name], part, spent))
        try:
            self.timed(self.update)  # what is measured is called in another way than before: it may be compiled again
            spent.clear()
            whole = self.timed(self.update)
        finally:
            for name in names:
                delattr(self.learner, name)
        spent["backward, loss, rest"] = whole - sum(spent.values())  # type: ignore[assignment]
        return dict(spent)

    def _timing(self, work: Callable[..., Any], part: str, spent: Counter[str]) -> Callable[..., Any]:
        def timed(*given: Any, **options: Any) -> Any:
            self.wait()
            began = time.perf_counter()
            result = work(*given, **options)
            self.wait()
            spent[part] += time.perf_counter() - began  # type: ignore[assignment]
            return result

        return timed

    @contextmanager
    def _wrapped(self, name: str, look: Callable[[Any], None]) -> Iterator[None]:
        real = getattr(self.learner, name)

        def looked(*given: Any) -> Any:
            result = real(*given)
            look(result)
            return result

        before = self.learner.__dict__.get(name)
        setattr(self.learner, name, looked)
        try:
            yield
        finally:
            if before is None:
                delattr(self.learner, name)
            else:
                setattr(self.learner, name, before)

    def timed(self, work: Callable[[], Any]) -> float:
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    def wait(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        import torch

        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float:
        """GB that tensors took at most; on a CPU, nobody counts."""
        import torch

        return torch.cuda.max_memory_allocated() / 1e9 if self.device.type == "cuda" else float("nan")

    def resting(self) -> float:
        """GB that stay between updates, gradients gone."""
        import torch

        self.learner._no_gradient()
        return torch.cuda.memory_allocated() / 1e9 if self.device.type == "cuda" else float("nan")


def random_model(shape: Shape, way: Way, device: Any) -> Any:
    """A model of this shape; on the device "meta" its sizes without its weights."""
    import torch
    import transformers

    from mulligan.models.checkpointing import old_name_allowed, use_checkpointing

    settings = getattr(transformers, f"{shape.family}Config")(**{"tie_word_embeddings": True, **shape.sizes})
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if device.type == "cpu" else torch.bfloat16)
    try:
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model = getattr(transformers, f"{shape.family}ForCausalLM")(settings)
    finally:
        torch.set_default_dtype(before)
    if way.lora:
        from peft import LoraConfig, get_peft_model

        adapter = LoraConfig(r=way.lora, lora_alpha=2 * way.lora, target_modules="all-linear", task_type="CAUSAL_LM")
        with old_name_allowed():
            model = get_peft_model(model, adapter, autocast_adapter_dtype=False).to(device)
    if way.checkpointing:
        use_checkpointing(model)
    return model


def _rows(shape: Shape) -> tuple[list[Any], int]:
    """Rows of rules and turns, a quarter of whose tokens are sampled; and how many turns they have."""
    from mulligan.train.rows import Row, Span

    rng = random.Random(0)
    vocabulary = shape.sizes["vocab_size"]
    rules = [rng.randrange(vocabulary) for _ in range(shape.rules)]
    rows, step = [], 0
    for number in range(shape.rows):
        row, length = Row([*rules]), rng.randint(*shape.length)
        while len(row.ids) < length:
            turn = rng.randint(30, 80)
            reply = max(1, int(turn * rng.uniform(0.2, 0.3)))
            row.ids += [rng.randrange(vocabulary) for _ in range(turn - reply)]
            ids = tuple(rng.randrange(vocabulary) for _ in range(reply))
            row.spans.append(Span(len(row.ids), ids, tuple(-11.0 for _ in ids), step, number, False))
            row.ids += ids
            step += 1
        rows.append(row)
    return rows, step


def _clear(device: Any) -> None:
    import torch

    gc.collect()
    if device.type == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def _text(measure: str, value: float | None) -> str:
    if value is None or value != value:
        return "-"
    if measure.startswith("logp"):
        return f"{value:.6f}"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
