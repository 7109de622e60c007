"""A whole update of the weights, packing to optimiser, on rows like those of MineSweeper, with models drawn at random.

Tokens a second are those of the rows.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from mulligan.app.bench import Report, free_gpu, gpu_seconds, peak_gigabytes
from mulligan.errors import UnknownName
from mulligan.models.load import add_lora, use_checkpointing
from mulligan.training.config import Config, ModelConfig, OptimConfig
from mulligan.training.rows import Row, Span
from mulligan.training.step import Learner, UpdateData


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
    compiles: bool = True
    checkpointing: bool = False
    lora: int = 0
    """Rank; 0 trains all weights."""
    slice_from: int | None = None
    """Tokens from which on logits are computed in slices; None: as the learner does it."""
    shares: bool = False
    """Whether what all rows begin with is computed once."""


def _sizes(*sizes: int) -> dict[str, Any]:
    """Sizes of a model: vocabulary, hidden, inner, layers, heads, key heads, and its own limit of positions."""
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "max_position_embeddings")  # fmt: skip
    return dict(zip(names, sizes, strict=True))


_NANO = _sizes(2000, 96, 256, 2, 4, 4, 40_960)  # as long as Qwen3: the papers' presets in small
_SMOLLM2 = _sizes(49_152, 576, 1536, 30, 9, 3, 8192)
_QWEN3 = {**_sizes(151_936, 2560, 9728, 36, 32, 8, 40_960), "head_dim": 128}
_LLAMA3 = {**_sizes(128_256, 4096, 14_336, 32, 32, 8, 131_072), "tie_word_embeddings": False}
SHAPES = {
    "nano": Shape("Llama", _NANO, 80, (60, 140), 25),
    "smollm2": Shape("Llama", _SMOLLM2, 512, (300, 700), 190),
    "qwen3-4b": Shape("Qwen3", _QWEN3, 128, (300, 700), 190),
    "llama3.1-8b": Shape("Llama", _LLAMA3, 128, (300, 700), 190),
}
WAYS = {
    "nano": (Way("eager", compiles=False), Way("eager, logits in slices", compiles=False, slice_from=0)),
    "smollm2": (
        Way("eager", compiles=False),
        Way("compiled"),
        Way("compiled, rules once", shares=True),
        Way("compiled, whole logits", slice_from=2**62),
    ),
    "qwen3-4b": (
        Way("full"),
        Way("full, checkpoints", checkpointing=True),
        Way("LoRA", lora=16),
        Way("LoRA, rules once", lora=16, shares=True),
    ),
    "llama3.1-8b": (Way("LoRA", lora=16), Way("LoRA, rules once", lora=16, shares=True)),
}


def run(shape: str = "") -> Report:
    """shape: of `SHAPES`; by default smollm2 on a GPU, nano elsewhere."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = shape or ("smollm2" if device.type == "cuda" else "nano")
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    columns: dict[str, dict[str, float]] = {}
    for way in WAYS[name]:
        columns[way.name] = _measure(SHAPES[name], way, device)
        torch._dynamo.reset()
        free_gpu()
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    title = f"one update of {name}, 1 epoch, {machine}, torch {torch.__version__}; times in ms"
    measures = next(iter(columns.values()))
    rows = [{"": measure, **{way: _text(column[measure]) for way, column in columns.items()}} for measure in measures]
    return Report(title, rows)


def _measure(shape: Shape, way: Way, device: Any) -> dict[str, float]:
    started = time.perf_counter()
    model_config = ModelConfig(gradient_checkpointing=way.checkpointing)
    config = Config(model=model_config, optim=OptimConfig(lr=1e-6, warmup=1, lr_end=1.0, epochs=1))
    model = random_model(shape, way, device)
    learner = Learner(model, config, compiles=way.compiles, shares_openings=way.shares, uses_own_logp=True)
    if way.slice_from is not None:
        learner.head.few = way.slice_from
    rows, steps = _rows(shape)
    data = UpdateData(rows, torch.randn(steps, generator=torch.Generator().manual_seed(0)).to(device))
    tokens = sum(len(row.ids) for row in rows)

    def update() -> None:
        if learner.update(data, update=0)["skipped"]:
            raise RuntimeError("the loss of the benchmark is not finite")

    update()  # which also compiles
    first = time.perf_counter() - started
    free_gpu()
    spent = statistics.median(gpu_seconds(update) for _ in range(3))
    peak = peak_gigabytes()
    learner._no_gradient()
    return {
        "tokens/s": tokens / spent,
        "update": 1000 * spent,
        "first update, with compiling": 1000 * first,
        "peak of memory (GB)": peak,
        "weights, masters, moments (GB)": torch.cuda.memory_allocated() / 1e9 if device.type == "cuda" else math.nan,
        "tokens": tokens,
        "sampled": sum(len(span.ids) for row in rows for span in row.spans),
        "tokens of a micro-batch": learner.tokens,
    }


def random_model(shape: Shape, way: Way, device: Any) -> Any:
    """A model of this shape; on the device "meta" its sizes without its weights."""
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
        model = add_lora(model, way.lora, seed=0).to(device)
    if way.checkpointing:
        use_checkpointing(model)
    return model


def _rows(shape: Shape) -> tuple[list[Any], int]:
    """Rows of rules and turns, a quarter of whose tokens are sampled; and how many turns they have."""
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


def _text(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
