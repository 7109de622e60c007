"""Train an agent: meta-RL over trials of several episodes, or RL with one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan import trusted
from mulligan.app.cli.options import Parser, new_run_path, print_tables
from mulligan.app.cli.send import add_wandb_names, wandb_names
from mulligan.app.progress import Metrics, OnUpdate, Status, is_versus, shares, update_progress
from mulligan.app.stopping import train_until_stopped
from mulligan.errors import UsageError, extra_named
from mulligan.text import visible

if TYPE_CHECKING:
    from mulligan.training.config import Config


def add_options(parser: Parser) -> None:
    parser.add_argument("env", nargs="?", help="an environment, or a mixture with weights: minesweeper:2,sokoban:1")
    parser.add_argument("--preset", metavar="NAME", help="named settings to start from; see below")
    parser.add_argument("--config", metavar="FILE", help="settings in TOML, on top of the preset")
    parser.add_argument("--seed", metavar="N", help="root of all randomness of the run (0)")
    parser.add_argument("--train", choices=("all", "reflection"), help="reflection: those of --player alone (all)")
    parser.add_argument("--player", metavar="NAME", help="who plays, frozen: a run, endpoint:MODEL, expert, …")
    parser.add_argument("--run", metavar="DIR", help="run folder (runs/<time>-train-…)")
    parser.add_argument("--resume", metavar="RUN", help="continue a run; --run.updates N trains it longer")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved settings and stop")
    parser.add_argument("--settings", action="store_true", help="list every setting with its meaning and stop")
    parser.add_argument("--json", action="store_true", help="print the last update's metrics as JSON at the end")
    parser.add_argument("--tensorboard", action="store_true", help="mirror metrics and evaluations in the run folder")
    parser.add_argument("--wandb", action="store_true", help="mirror metrics and evaluations to Weights & Biases")
    add_wandb_names(parser)


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.report.files import refuse_links
    from mulligan.report.mirrors import mirroring
    from mulligan.training.config import settings
    from mulligan.training.resolve import to_tree

    if {"-h", "--help"} & set(words):
        parser.epilog = _overview()
    options, flags = parser.read(words, settings())
    if options.settings:
        sys.stdout.write(_explained())
        return 0
    config = _resumed(options, flags) if options.resume else _resolved(options, flags)
    if options.dry_run:
        sys.stdout.write(_written(config, as_json=options.json))
        return 0
    rank = os.environ.get("RANK") if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    if rank is not None and not (options.resume or options.run):
        raise UsageError("train: with torchrun, --run DIR must name the folder, which is the same for all processes")
    folder = Path(options.resume or options.run or new_run_path("train", config.task.env))
    if rank is not None and config.population.agents:
        raise UsageError("train: population.agents are trained by one process; leave out torchrun")
    if rank not in (None, "0"):  # the first process says it all
        return 130 if train_until_stopped(config, folder, [], resume=bool(options.resume)) else 0
    named = (config.task.env, config.task.params, config.run.player, config.backend.url)
    resume_words = f"--resume {folder}{trusted.flag(*named)}"
    if not options.resume and (folder / "config.toml").exists():  # before anything heavy is imported
        raise UsageError(f"{folder} already holds a run; choose another folder, or continue it with {resume_words}")
    _warn_without_gpu(config)
    if not options.json:
        sys.stderr.write(visible(_heading(config, folder, options)))
    steps_and_updates: list[Metrics] = []
    if options.tensorboard or options.wandb:  # which write before the trainer looks at the folder
        refuse_links(folder)
    names = wandb_names(options)
    with mirroring(folder, to_tree(config), wandb=names, tensorboard=options.tensorboard) as mirror:
        with ExitStack() as stack:
            progress = stack.enter_context(update_progress(config.task.env, quiet=options.json))
            # What an environment prints must not get into the JSON.
            stack.enter_context(redirect_stdout(sys.stderr if options.json else sys.stdout))
            callbacks: list[OnUpdate] = [steps_and_updates.append, mirror, progress]
            interrupted = train_until_stopped(config, folder, callbacks, resume=bool(options.resume))
        if interrupted:
            sys.stderr.write(f"interrupted: the run is in {folder}; continue with: mulligan train {resume_words}\n")
            return 130
        try:
            with redirect_stdout(sys.stderr if options.json else sys.stdout):
                evaluations = _evaluated(config, folder, options)
        except KeyboardInterrupt:
            sys.stderr.write(f"interrupted: the run is done; to evaluate it: mulligan train {resume_words}\n")
            return 130
    _report(config, folder, options, evaluations, was_trained=bool(steps_and_updates))
    return 0


def _resolved(options: argparse.Namespace, flags: dict[str, str]) -> Config:
    from mulligan.training.resolve import resolve

    if options.env is not None:
        flags["task.env"] = options.env
    if options.train is not None and (options.train == "reflection") != bool(options.player):
        raise UsageError("train: --train reflection and --player NAME, who plays and is not trained, belong together")
    for name in ("seed", "player"):
        if (value := getattr(options, name)) is not None:
            if f"run.{name}" in flags:
                raise UsageError(f"train: --{name} and --run.{name} are the same; give one of them")
            flags[f"run.{name}"] = value
    is_bare = options.preset is None and options.config is None
    if is_bare and "model.name" not in flags:
        options.preset = "cpu"
    config = resolve(options.preset, options.config, flags)
    if is_bare and "task.env" not in flags:
        raise UsageError("train: an environment is missing; 'mulligan envs' lists them")
    return config


def _resumed(options: argparse.Namespace, flags: dict[str, str]) -> Config:
    """The settings of the run itself, with the changes that leave it the same run: its length, what it keeps."""
    from mulligan.report.run import RunFolder
    from mulligan.training.resolve import from_run, with_resume_flags

    surplus = [
        f"--{name}"
        for name in ("preset", "config", "seed", "train", "player", "run")
        if getattr(options, name) is not None
    ]
    surplus += [repr(options.env)] if options.env is not None else []
    if surplus:
        raise UsageError(f"train: --resume goes on with the run's own settings; leave out {', '.join(surplus)}")
    return with_resume_flags(from_run(RunFolder.open(options.resume)), flags)


def _written(config: Config, *, as_json: bool) -> str:
    from mulligan.report.run import to_toml
    from mulligan.training.resolve import to_tree

    tree = to_tree(config)
    return json.dumps(tree, indent=2) + "\n" if as_json else to_toml(tree).lstrip("\n")


def _warn_without_gpu(config: Config) -> None:
    """Where a model of real size is about to be trained on the CPU, and nobody asked for that."""
    with extra_named("training"):
        import torch
    name = config.model.name
    is_large = name.partition(":")[0] in ("smollm2", "hf") and config.backend.kind == "local"
    if is_large and config.model.device == "auto" and not torch.cuda.is_available():
        sys.stderr.write(
            f"warning: torch sees no GPU: {name} is trained on the CPU, many times more slowly; the presets cpu… are "
            "made for one, and --model.device cpu says that it is meant\n"
        )


def _heading(config: Config, folder: Path, options: argparse.Namespace) -> str:
    """``minesweeper, preset cpu: 250 steps of warm start, 80 updates, into runs/mine``."""
    updates = _updates(config.run.updates)
    if options.resume:
        return f"{config.task.env}: {updates} in all, continuing {folder}\n"
    sources = [config.task.env, options.preset and f"preset {options.preset}", options.config]
    warm = f"{config.warmstart.steps} steps of warm start, " if config.warmstart.steps else ""
    return f"{', '.join(filter(None, sources))}: {warm}{updates}, into {folder}\n"


def _updates(count: int) -> str:
    return f"{count} update{'s' * (count != 1)}"


def _evaluated(config: Config, folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    if not config.run.evaluate:
        return {}
    from mulligan.app.cli.ending import evaluate_at_end

    return evaluate_at_end(config, folder, quiet=options.json)


def _report(
    config: Config,
    folder: Path,
    options: argparse.Namespace,
    evaluations: Mapping[str, dict[str, Any]],
    *,
    was_trained: bool,
) -> None:
    from mulligan.eval.passk import without_evidence
    from mulligan.report.run import to_json
    from mulligan.report.tables import eval_table
    from mulligan.training.metrics import MetricsFile

    last: Metrics = next(reversed(MetricsFile(folder / "metrics.jsonl").read()), {})
    if options.json:
        evaluated = {name: without_evidence(result) for name, result in evaluations.items()}
        sys.stdout.write(to_json({"run": str(folder), **last, **({"evaluations": evaluated} if evaluated else {})}))
        return
    done = int(last.get("update", 0))
    if done and not was_trained:
        summary = f"{_updates(done)} done already: nothing was trained; --run.updates N trains longer\n"
    elif config.run.updates:
        success = "  ".join(Status(versus=is_versus(config.task.env)).success(last))
        summary = f"{_updates(done)} done{success and f'; the last one: {success}'}\n"
    else:
        summary = _warmed(last, folder, options)
    if evaluations:
        print_tables([eval_table(result) for result in evaluations.values()], [])
    sys.stdout.write(f"{summary}Run: {folder}\n")


def _warmed(last: Metrics, folder: Path, options: argparse.Namespace) -> str:
    """The summary of a warm start alone: its result, where its weights are, and how to start from them."""
    success = "  ".join(f"p@{k} {100 * share:.1f}" for k, share in shares(last, "validation/p@"))
    weights = folder / "checkpoints" / "update-00000" / "weights.safetensors"
    given = [f"--preset {options.preset} "] if options.preset else []
    given += [f"--config {options.config} "] if options.config else []
    return (
        f"warm start done{success and f'; on validation tasks: {success}'}\n"
        f"Weights: {weights}; other runs begin there with {''.join(given)}--model.name {folder} --warmstart.steps 0\n"
    )


def _overview() -> str:
    """The presets, and how settings are given."""
    from mulligan.training.resolve import presets

    lines = ["presets (cpu, where neither a preset, a file nor a model is named):"]
    width = max(map(len, presets()))
    lines += [f"  {name:<{width}}  {summary}" for name, summary in presets().items()]
    lines += ["", "settings: --SECTION.NAME VALUE, or NAME = VALUE under [SECTION] in a file; --settings explains them"]
    lines.append("parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5")
    return "\n".join(lines)


def _explained() -> str:
    """Every setting on a line of its own, as it would be typed."""
    from mulligan.training.config import settings

    flags = {key: f"--{key.replace('_', '-')} {each.shown(each.default)}" for key, each in settings().items()}
    width = max(map(len, flags.values()))
    lines = []
    for key, flag in flags.items():
        choices = " | ".join(settings()[key].choices)
        lines.append(f"{flag:<{width}}  {settings()[key].help}{f' [{choices}]' if choices else ''}")
    return "\n".join(lines) + "\n"
