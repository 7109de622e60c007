"""A whole update of the weights, packing to optimiser, on rows like those of MineSweeper, with models drawn at random.

Tokens a second are those of the rows. `look over` is the extra pass that updates need where they have several
minibatches, a critic or a KL term.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from mulligan.app.bench import Cell, Report
from mulligan.app.bench.measure import free_gpu, gpu_seconds, peak_gigabytes
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
    compiles: bool = True
    checkpointing: bool = False
    lora: int = 0
    """Rank; 0 trains all weights."""
    slice_from: int | None = None
    """Tokens from which on logits are computed in slices; None: as the learner does it."""
    shares: bool = False
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


_NANO = _sizes(2000, 96, 256, 2, 4, 4, longest=40_960)  # as long as Qwen3: the papers' presets in small
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
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = shape or ("smollm2" if device.type == "cuda" else "nano")
    if name not in SHAPES:
        raise UnknownName("shape", name, SHAPES)
    columns: dict[str, Numbers] = {}
    first_logp = None
    for way in WAYS[name]:
        columns[way.name], logp = _measure(SHAPES[name], way, device)
        first_logp = logp if first_logp is None else first_logp
        columns[way.name]["logp against the first"] = float((logp - first_logp).abs().mean())
        torch._dynamo.reset()
        free_gpu()
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    title = f"one update of {name}, 1 epoch, {machine}, torch {torch.__version__}; times in ms"
    measures = next(iter(columns.values()))
    rows: list[dict[str, Cell]] = [
        {"": name, **{way: _text(name, numbers[name]) for way, numbers in columns.items()}} for name in measures
    ]
    return Report(title, rows)


def _measure(shape: Shape, way: Way, device: Any) -> tuple[Numbers, Any]:
    """What one way of computing an update costs, and the log-probabilities it starts from."""
    import torch

    started = time.perf_counter()
    bench = _Bench(shape, way, device)  # also compiles
    logp = bench.look_over()
    bench.update()
    first = time.perf_counter() - started
    free_gpu()
    update = statistics.median(gpu_seconds(bench.update) for _ in range(3))
    peak = peak_gigabytes()
    look_over = gpu_seconds(bench.look_over)
    bench.learner._no_gradient()
    resting = torch.cuda.memory_allocated() / 1e9 if device.type == "cuda" else float("nan")
    return {
        "tokens/s": bench.tokens / update,
        "tokens/s with looking over": bench.tokens / (update + look_over),
        "update": 1000 * update,
        "look over": 1000 * look_over,
        "first update, with compiling": 1000 * first,
        "peak of memory (GB)": peak,
        "weights, masters, moments (GB)": resting,
        "tokens": float(bench.tokens),
        "sampled": float(bench.sampled),
        "tokens of a micro-batch": float(bench.learner.tokens),
    }, logp


class _Bench:
    """A model, its learner and rows to learn from."""

    def __init__(self, shape: Shape, way: Way, device: Any) -> None:
        import torch

        from mulligan.training.config import Config, ModelConfig, OptimConfig
        from mulligan.training.step import Learner, UpdateData

        config = Config(
            model=ModelConfig(gradient_checkpointing=way.checkpointing),
            optim=OptimConfig(lr=1e-6, warmup=1, lr_end=1.0, epochs=1),
        )
        model = random_model(shape, way, device)
        self.learner = Learner(model, config, compiles=way.compiles, shares_openings=way.shares, uses_own_logp=True)
        if way.slice_from is not None:
            self.learner.head.few = way.slice_from
        rows, self.steps = _rows(shape)
        advantages = torch.randn(self.steps, generator=torch.Generator().manual_seed(0)).to(device)
        self.data = UpdateData(rows, advantages)
        self.tokens = sum(len(row.ids) for row in rows)
        self.sampled = sum(len(span.ids) for row in rows for span in row.spans)

    def update(self) -> None:
        if self.learner.update(self.data, update=0)["skipped"]:
            raise RuntimeError("the loss of the benchmark is not finite")

    def look_over(self) -> Any:
        """The extra pass; the log-probabilities of all sampled tokens, in the order of packing."""
        import torch

        learner: Any = self.learner
        learner._later_rows = lambda rows, update: list(rows)  # all of them, not only those of later minibatches
        learner.look_over(self.data.rows, self.steps, 0)
        del learner._later_rows
        spans = [span for row in self.data.rows for span in row.spans]
        logp = torch.tensor([value for span in spans for value in span.old or ()])
        for span in spans:
            span.old = None
        return logp


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
    from mulligan.training.rows import Row, Span

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


def _text(measure: str, value: float) -> str:
    if value != value:
        return "-"
    if measure.startswith("logp"):
        return f"{value:.6f}"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
