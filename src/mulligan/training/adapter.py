"""What a Tinker server saved for sampling, as files that transformers, PEFT and vLLM read."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import httpx
from safetensors import safe_open

from mulligan.engine.tinker import first_line
from mulligan.errors import UsageError

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def download(service: Any, saved: str, folder: Path, base: str) -> None:
    """Put what the server calls `saved` (tinker://…) into `folder`; `base` is the model that its adapter belongs to."""
    run, _, checkpoint = saved.removeprefix("tinker://").partition("/")
    try:
        url = service.create_rest_client().get_checkpoint_archive_url(run, checkpoint).result().url
        with TemporaryFile() as archive:
            with httpx.stream("GET", url, follow_redirects=True, timeout=600) as response:
                response.raise_for_status()
                for part in response.iter_bytes():
                    archive.write(part)
            archive.seek(0)
            with tarfile.open(fileobj=archive) as files:
                files.extractall(folder, filter="data")
    except Exception as error:
        raise UsageError(f"the Tinker server does not give {saved} away: {first_line(error)}") from error
    if (folder / _CONFIG).is_file():
        _complete(folder, base)


def _complete(folder: Path, base: str) -> None:
    """Name the base, and the modules that have an adapter: SkyRL leaves them out, and PEFT would take two of seven."""
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    with safe_open(folder / _WEIGHTS, framework="pt") as weights:
        adapted = {name.partition(".lora_")[0].rpartition(".")[2] for name in weights.keys() if ".lora_" in name}  # noqa: SIM118
    named = str(Path(base).absolute()) if Path(base).is_dir() else base
    config |= {"base_model_name_or_path": named, "target_modules": sorted(adapted), "task_type": "CAUSAL_LM"}
    (folder / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
