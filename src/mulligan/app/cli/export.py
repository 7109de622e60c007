"""Write the model of a training run as Hugging Face files, for transformers, PEFT and vLLM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.app.cli.options import Parser
from mulligan.errors import UsageError, extra_named
from mulligan.trusted import check_url

if TYPE_CHECKING:
    from mulligan.report.run import RunFolder
    from mulligan.training.config import Config


def add_options(parser: Parser) -> None:
    parser.add_argument("run", help="run folder of a training")
    parser.add_argument("folder", metavar="DIR", help="where the files go; a new or an empty folder")
    parser.add_argument("--merge", action="store_true", help="LoRA: add the adapter to the weights, and write those")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.run import RunFolder, policy_folder

    options = parser.parse_args(words)
    run_folder = RunFolder.open(policy_folder(options.run))
    if run_folder.config().get("kind") != "train":
        raise UsageError(f"{options.run} is not the run folder of a training")
    target = Path(options.folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not an empty folder; choose another one")
    with extra_named("export"):
        from mulligan.models.load import save
        from mulligan.training.checkpoint import load_model
        from mulligan.training.context import trained_context
        from mulligan.training.resolve import from_run
    config = from_run(run_folder)
    if config.backend.kind == "tinker":
        context = _export_from_server(run_folder, config, target, merge=options.merge)
    else:
        loaded = load_model(run_folder.path)
        context = trained_context(run_folder, loaded)
        loaded.tokenizer.model_max_length = context  # where transformers, vLLM and `mulligan eval` look for it
        save(loaded, target, merge=options.merge)
    sys.stdout.write(f"Model: {target} (context: {context:,} tokens)\n")
    return 0


def _export_from_server(run_folder: RunFolder, config: Config, target: Path, *, merge: bool) -> int:
    """Write the adapter that a server holds, or the merged weights, with the tokenizer; returns the context."""
    from mulligan.models.load import load, load_without_weights, save
    from mulligan.training.context import trained_context

    loaded = load_without_weights(config.model.name)
    context = loaded.tokenizer.model_max_length = trained_context(run_folder, loaded)
    fetch(run_folder.path, config, target)
    loaded.tokenizer.save_pretrained(target)
    if merge:
        save(load(f"hf:{target}"), target, merge=True)
    return context


def fetch(run: Path, config: Config, target: Path) -> None:
    """Download the weights of a run's newest checkpoint from its server."""
    from mulligan.engine.tinker import connect
    from mulligan.training.adapter import download
    from mulligan.training.checkpoint import find, saved_on_server

    check_url(config.backend.url)
    saved = saved_on_server(find(run))["sampler"]
    target.mkdir(parents=True, exist_ok=True)
    download(connect(config.backend.url), saved, target, config.model.name.removeprefix("hf:"))
