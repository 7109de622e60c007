"""Models by name: made, loaded and saved.

nano[:hidden=128,layers=3,…]  a fresh tiny model
smollm2                       SmolLM2-135M-Instruct
hf:FOLDER_OR_HUB_NAME         any causal language model with safetensors weights and a chat template
FOLDER                        what `save` wrote: a whole model, or a LoRA adapter and where its base is

Code that comes with a model is never run, and pickled weights are never read. A missing chat template, an attention
that is not supported and too little memory are refused before weights are loaded.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.models import smollm2
from mulligan.models.attention import partial_attention
from mulligan.models.memory import need_memory
from mulligan.models.nano import nano_model, nano_tokenizer, seeded_randomness
from mulligan.models.renderer import Renderer
from mulligan.seeding import derive

Precision = Literal["auto", "float32", "bfloat16"]
NAMES = ("nano", "smollm2", "hf:FOLDER_OR_HUB_NAME", "FOLDER")
_ADAPTER, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_BASE, _TOKENIZER = "base", "tokenizer_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_NEEDED = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model, and what turns messages into its tokens."""

    model: Any
    """A causal model of transformers, or a PEFT model around one; in evaluation mode."""
    tokenizer: Any
    renderer: Renderer


def load(
    spec: str,
    *,
    seed: int = 0,
    dtype: Precision = "auto",
    device: str = "cpu",
    lora: int = 0,
    gradient_checkpointing: bool = False,
) -> Loaded:
    """The model that `spec` names; `seed` draws the weights that are new, and torch's own seed is left alone.

    dtype     "auto" is bfloat16 on a GPU that computes in it, float32 elsewhere.
    device    "auto" is the GPU where there is one.
    lora      rank of an adapter to add; 0 trains all weights, or the adapter that the folder already has.
    """
    target = _device(device)
    fast_bfloat16 = target.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    precision = torch.bfloat16 if dtype == "bfloat16" or (dtype == "auto" and fast_bfloat16) else torch.float32
    name, _, sizes = spec.partition(":")
    if name == "nano":
        model = nano_model(seed, **_sizes(spec, sizes)).to(precision)
        tokenizer = nano_tokenizer(model.config.max_position_embeddings)
        renderer = Renderer(tokenizer)
    else:
        with _quietly():
            folder, source = _find(spec)
            is_adapter = (folder / _ADAPTER).is_file()  # of LoRA, which needs its base
            base = _base(folder, source) if is_adapter else (folder, source)
            tokenizer = _read_tokenizer(*((folder, source) if (folder / _TOKENIZER).is_file() else base))
            renderer = Renderer(tokenizer)
            model = _read_model(*base, precision, target)
            if is_adapter:
                model = _read_adapter(model, folder, source)
    if lora:
        if hasattr(model, "peft_config"):
            raise UsageError(f"model {spec!r} already has an adapter; leave LoRA out to train that one further")
        model = add_lora(model, lora, seed)
    model = model.to(target)
    if gradient_checkpointing:
        use_checkpointing(model)
    model.eval()
    return Loaded(model, tokenizer, renderer)


class Elsewhere:
    """A model whose weights only a server has: its configuration."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def eval(self) -> None:
        """Nothing to prepare here."""


def load_without_weights(spec: str) -> Loaded:
    """Tokenizer, renderer and configuration of a model (a folder or a hub name) that a server samples from."""
    from transformers import AutoConfig

    name = spec.removeprefix("hf:")
    folder = Path(name)
    with _quietly(), _told(f"model {spec!r}"):
        if not folder.is_dir():
            from huggingface_hub import snapshot_download

            folder = Path(snapshot_download(name, allow_patterns=["*.json", "*.jinja", "*.model", "*.txt"]))
        tokenizer = _read_tokenizer(folder, name)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return Loaded(Elsewhere(config), tokenizer, Renderer(tokenizer))


def save(loaded: Loaded, folder: str | Path, *, merge: bool = False) -> None:
    """Write model and tokenizer as a folder that `load`, transformers and PEFT read.

    A LoRA adapter is written alone, beside its base where that has no folder or hub name of its own; with `merge` its
    weights are added into the model's, and a whole model is written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _quietly():
        is_adapted = hasattr(loaded.model, "peft_config")
        if is_adapted and not merge:
            _save_adapter(loaded, folder)
        else:
            model = copy.deepcopy(loaded.model).merge_and_unload() if is_adapted else loaded.model
            model.save_pretrained(folder)
            for stale in (_ADAPTER, _ADAPTER_WEIGHTS):  # of an earlier save: the folder would still read as an adapter
                (folder / stale).unlink(missing_ok=True)
        loaded.tokenizer.save_pretrained(folder)


def _sizes(spec: str, text: str) -> dict[str, int]:
    """``hidden=128,layers=3`` as keyword arguments."""
    try:
        pairs = [part.split("=") for part in text.split(",") if part]
        return {name.strip(): int(value) for name, value in pairs}
    except ValueError:
        raise ParameterError(f"model must be written like nano:hidden=128,layers=3 (got {spec!r})") from None


def _device(name: str) -> torch.device:
    gpu = torch.cuda.is_available()
    try:
        device = torch.device(("cuda" if gpu else "cpu") if name == "auto" else name)
    except RuntimeError:
        raise UnknownName("device", name, ("auto", "cpu", "cuda", "cuda:1")) from None
    if device.type == "cuda" and (not gpu or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"device {name!r} does not exist: torch sees {torch.cuda.device_count()} GPUs; use 'cpu'")
    return device


def _find(spec: str) -> tuple[Path, str]:
    """The folder that holds the model, and what to call it: a hub name is fetched, once, into the hub's own cache."""
    if spec == "smollm2":
        folder = smollm2.model_folder()
        return folder, str(folder)  # a name that PEFT finds too
    named_hub, name = spec.startswith("hf:"), spec.removeprefix("hf:")
    if name and Path(name).is_dir():
        return Path(name), name
    if not named_hub and "/" not in spec:
        raise UnknownName("model", spec, NAMES)
    if not named_hub or name.count("/") > 1 or not name or name[0] in "./~":
        way_out = "" if named_hub else f"; for a model of the hub write hf:{name}"
        raise UsageError(f"model {spec!r}: there is no folder {name!r}{way_out}")
    from huggingface_hub import snapshot_download

    with _told(f"model {spec!r} is no folder, and from the hub it"):
        return Path(snapshot_download(name, allow_patterns=list(_NEEDED))), name


def _read_tokenizer(folder: Path, source: str) -> Any:
    from transformers import AutoTokenizer

    if not (folder / "config.json").is_file() and not (folder / _ADAPTER).is_file():
        raise UsageError(f"model {source!r} has no config.json, so it is not a model of transformers")
    with _told(f"the tokenizer of model {source!r}"):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _read_model(folder: Path, source: str, dtype: torch.dtype, device: torch.device) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    with _told(f"model {source!r}"):
        _need_full_attention(AutoConfig.from_pretrained(folder, trust_remote_code=False), source)
        need_memory(sum(map(_weights_in, _weight_files(folder))), source, dtype, device)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    # Weights that the files lack were drawn at random.
    lacking = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    if lacking:
        problem = f"{len(lacking)} weights are missing or of the wrong shape, e.g. {lacking[0]}"
        raise UsageError(f"model {source!r}: {problem}; fetch it again")
    # What an adapter calls its base: a hub name, not the hub's cache; a folder so that it is found from anywhere.
    model.name_or_path = str(Path(source).absolute()) if Path(source).is_dir() else source
    return model


def _read_adapter(model: Any, folder: Path, source: str) -> Any:
    from peft import PeftModel

    with _told(f"the adapter {source!r}"), old_name_allowed():
        _weights_in(folder / _ADAPTER_WEIGHTS)
        return PeftModel.from_pretrained(model, str(folder), is_trainable=True, autocast_adapter_dtype=False)


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files that transformers reads."""
    if (folder / _WEIGHTS).is_file() or not (folder / _INDEX).is_file():
        return [folder / _WEIGHTS]
    index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]


def _weights_in(file: Path) -> int:
    """How many weights a safetensors file holds; only its head is read, and compared with its size."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            return sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
    except (SafetensorError, OSError) as failure:
        way_out = f"fetch the model again (smollm2: delete {file.parent})"
        raise UsageError(f"{file} is missing or damaged: {_first_line(failure)}; {way_out}") from None


def _base(folder: Path, source: str) -> tuple[Path, str]:
    """Where the model is that an adapter belongs to, and what to call it."""
    if (folder / _BASE).is_dir():
        return folder / _BASE, str(folder / _BASE)
    with _told(f"{_ADAPTER} of the adapter {source!r}"):
        named = json.loads((folder / _ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"]
    if not named:
        raise UsageError(f"the adapter {source!r} does not name its model: set base_model_name_or_path in {_ADAPTER}")
    if Path(named).name == smollm2.FOLDER and not Path(named).is_dir():  # another machine's, or another cache
        return _find("smollm2")
    return _find(f"hf:{named}")


@contextmanager
def _told(subject: str) -> Iterator[None]:
    """Tell in one line why something cannot be loaded: libraries raise errors of all kinds."""
    try:
        yield
    except MulliganError:
        raise
    except Exception as failure:
        raise UsageError(f"{subject} cannot be loaded: {_first_line(failure)}") from failure


def _first_line(error: BaseException) -> str:
    """The message of a library's error: its first line, and the second where the first only announces it."""
    lines = [line.strip(" ,") for line in str(error).strip().split("\n")]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1]) or type(error).__name__


def _need_full_attention(config: Any, source: str) -> None:
    """Refuse what `mulligan.models.attention` cannot do: it would not fail, but attend to the wrong tokens."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    lacking = partial_attention(config.get_text_config())
    if lacking or not getattr(kind, "_supports_attention_backend", False):
        problem = f"has layers of {' and '.join(sorted(lacking))}" if lacking else "lacks the attention interface"
        raise UsageError(
            f"model {source!r} ({config.model_type}) {problem}: not supported; "
            "use a language model with full attention in all layers, such as Llama, Qwen3 or SmolLM2"
        )


def is_checkpointed(model: Any) -> bool:
    """Whether activations are computed again in the backward pass rather than kept."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def use_checkpointing(model: Any, wanted: bool = True) -> None:
    """Turn gradient checkpointing on or off, by the name that this release of transformers has for it."""
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    if wanted:
        options = {f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}
        getattr(model, f"{kind}_checkpointing_enable")(**options)
    elif is_checkpointed(model):
        getattr(model, f"{kind}_checkpointing_disable")()


@contextmanager
def old_name_allowed() -> Iterator[None]:
    """PEFT asks transformers by a name that newer releases warn of; whoever trains cannot help it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`(is_)?gradient_checkpointing", category=FutureWarning)
        yield


def add_lora(model: Any, rank: int, seed: int) -> Any:
    """A low-rank addition to every linear layer (LoRA, arXiv 2106.09685), without dropout: sampling has none."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with seeded_randomness(derive(seed, "lora")), old_name_allowed():
        # As precise as the model: the trainer keeps float32 copies of whatever it trains (`mulligan.training.masters`).
        return get_peft_model(model, config, autocast_adapter_dtype=False)


def _save_adapter(loaded: Loaded, folder: Path) -> None:
    """The adapter; and the base beside it, where it was made here or came from beside an adapter itself."""
    model, config = loaded.model, loaded.model.peft_config["default"]
    named = config.base_model_name_or_path
    if not named or Path(named).name == _BASE:
        copy.deepcopy(model).unload().save_pretrained(folder / _BASE)
        loaded.tokenizer.save_pretrained(folder / _BASE)
        config.base_model_name_or_path = str(folder / _BASE)
    try:
        model.save_pretrained(str(folder))
    finally:
        config.base_model_name_or_path = named


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars and tables of transformers: loading is part of some command that has its own."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
