"""Train an agent: meta-RL over trials of several episodes, or RL with one."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import textwrap
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mulligan.app.cli.mirrors import to_tensorboard, to_wandb
from mulligan.app.cli.options import Parser, new_run_path, split_flags
from mulligan.app.cli.stopping import stopping_politely
from mulligan.app.progress import Metrics, OnUpdate, Status, is_versus, shares, update_progress
from mulligan.errors import MissingExtra, MulliganError, UnknownName, UsageError

if TYPE_CHECKING:
    from mulligan.training.config import Config


def add_options(parser: Parser) -> None:
    parser.add_argument("env", nargs="?", help="an environment, or a mixture with weights: minesweeper:2,sokoban:1")
    parser.add_argument("--preset", metavar="NAME", help="named settings to start from; see below")
    parser.add_argument("--config", metavar="FILE", help="settings in TOML, on top of the preset")
    parser.add_argument("--seed", metavar="N", help="root of all randomness of the run (0)")
    parser.add_argument("--run", metavar="DIR", help="run folder (runs/<time>-train-…)")
    parser.add_argument("--resume", metavar="RUN", help="continue a run; --run.updates N trains it longer")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved settings and stop")
    parser.add_argument("--settings", action="store_true", help="list every setting with its meaning and stop")
    parser.add_argument("--json", action="store_true", help="print the last update's metrics as JSON at the end")
    parser.add_argument("--tensorboard", action="store_true", help="mirror the metrics into the run folder")
    parser.add_argument("--wandb", action="store_true", help="mirror the metrics to Weights & Biases")


def run(parser: Parser, words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        parser.epilog = _overview()
    flags, rest = _split(words)
    options = _read(parser, rest)
    if options.settings:
        sys.stdout.write(_explained())
        return 0
    config = _resumed(options, flags) if options.resume else _resolved(options, flags)
    if options.dry_run:
        sys.stdout.write(_written(config, as_json=options.json))
        return 0
    folder = Path(options.resume or options.run or new_run_path("train", config.task.env))
    _check_folder(folder, is_new=not options.resume)
    with contextlib.ExitStack() as stack:
        mirrors = [stack.enter_context(mirror) for mirror in _mirrors(options, folder, config)]
        show = stack.enter_context(update_progress(config.task.env, quiet=options.json))
        polite = stack.enter_context(stopping_politely())
        try:
            _train(
                config, folder, [*mirrors, show, polite.on_update], resume=bool(options.resume), stop=polite.is_asked
            )
            interrupted = polite.was_asked and not _is_trained(config, folder)
        except KeyboardInterrupt:
            interrupted = True
        if interrupted:
            stack.close()
            sys.stderr.write(_interrupted(folder))
            return 130
    _report(config, folder, options)
    return 0


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Settings (``--section.name VALUE``), and the options of the command itself."""
    from mulligan.training.config import settings

    flags, others = split_flags(words, lambda name: name.startswith("--") and "." in name)
    values: dict[str, str] = {}
    for name, value in flags.items():
        key = name.removeprefix("--").replace("-", "_")
        if value is None and (key not in settings() or settings()[key].kind is not bool):
            raise UsageError(f"train: {name} needs a value; 'mulligan train --settings' explains it")
        values[key] = "true" if value is None else value
    return values, others


def _read(parser: Parser, words: list[str]) -> argparse.Namespace:
    from mulligan.training.config import settings

    options, rest = parser.parse_known_args(words)
    for word in rest:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            raise UsageError(f"train: unexpected argument {word!r}; see 'mulligan train --help'")
        dotted = ["--" + key.replace("_", "-") for key in settings()]
        namesakes = [flag for flag in dotted if flag.rpartition(".")[2] == name.lstrip("-")]
        raise UnknownName("option", name, namesakes or [*parser._option_string_actions, *dotted])
    return options


def _resolved(options: argparse.Namespace, flags: dict[str, str]) -> Config:
    from mulligan.training.resolve import resolve

    if options.env is not None:
        flags["task.env"] = options.env
    if options.seed is not None:
        if "run.seed" in flags:
            raise UsageError("train: --seed and --run.seed are the same; give one of them")
        flags["run.seed"] = options.seed
    preset = options.preset
    if preset is None and options.config is None and "model.name" not in flags:
        preset = "cpu"
    return resolve(preset, options.config, flags)


def _resumed(options: argparse.Namespace, flags: dict[str, str]) -> Config:
    """The settings of the run itself, with the changes that leave it the same run: its length, what it keeps."""
    from mulligan.report.run import RunFolder
    from mulligan.training.resolve import from_run, with_resume_flags

    surplus = [f"--{name}" for name in ("preset", "config", "seed", "run") if getattr(options, name) is not None]
    surplus += [repr(options.env)] if options.env is not None else []
    if surplus:
        raise UsageError(f"train: --resume goes on with the run's own settings; leave out {', '.join(surplus)}")
    return with_resume_flags(from_run(RunFolder.open(options.resume)), flags)


def _written(config: Config, *, as_json: bool) -> str:
    from mulligan.report.run import to_toml
    from mulligan.training.resolve import to_tree

    tree = to_tree(config)
    return json.dumps(tree, indent=2) + "\n" if as_json else to_toml(tree).lstrip("\n")


def _check_folder(folder: Path, *, is_new: bool) -> None:
    """Before anything heavy is imported: a run is not begun twice."""
    if is_new and (folder / "config.toml").exists():
        raise UsageError(f"{folder} already holds a run; choose another folder, or continue it with --resume {folder}")


def _is_trained(config: Config, folder: Path) -> bool:
    """Whether there is nothing left to do."""
    from mulligan.training.metrics import MetricsFile

    return any(line["update"] >= config.run.updates for line in MetricsFile(folder / "metrics.jsonl").read())


def _mirrors(
    options: argparse.Namespace, folder: Path, config: Config
) -> list[contextlib.AbstractContextManager[OnUpdate]]:
    mirrors: list[contextlib.AbstractContextManager[OnUpdate]] = []
    if options.tensorboard:
        mirrors.append(to_tensorboard(folder))
    if options.wandb:
        mirrors.append(to_wandb(folder, config))
    return mirrors


def _train(config: Config, folder: Path, callbacks: list[OnUpdate], *, resume: bool, stop: Callable[[], bool]) -> None:
    try:
        from mulligan.training.loop import train
    except ModuleNotFoundError as error:
        raise missing_extra("training", error) from error

    if warning := _without_gpu(config):
        sys.stderr.write(f"warning: {warning}\n")

    def on_update(metrics: Metrics) -> None:
        for callback in callbacks:
            callback(metrics)

    train(config, folder, resume=resume, on_update=on_update, stop=stop)


def _without_gpu(config: Config) -> str | None:
    """A warning where a model of real size is about to be trained on the CPU, and nobody asked for that."""
    name = config.model.name
    if config.model.device != "auto" or name.partition(":")[0] not in ("smollm2", "hf"):
        return None
    import torch

    if torch.cuda.is_available():
        return None
    return (
        f"torch sees no GPU: {name} is trained on the CPU, many times more slowly; the presets cpu… are made for one, "
        "and --model.device cpu says that it is meant"
    )


def missing_extra(activity: str, error: ModuleNotFoundError) -> MulliganError | ModuleNotFoundError:
    """The error for a failed import: the extra that brings the module, unless the module is Mulligan's."""
    return error if (error.name or "").partition(".")[0] == "mulligan" else MissingExtra(activity, "train")


def _interrupted(folder: Path) -> str:
    if not (folder / "config.toml").exists():
        return "interrupted before the run began\n"
    return f"interrupted: the run is in {folder}; continue with: mulligan train --resume {folder}\n"


def _report(config: Config, folder: Path, options: argparse.Namespace) -> None:
    from mulligan.training.metrics import MetricsFile

    last: Metrics = next(reversed(MetricsFile(folder / "metrics.jsonl").read()), {})
    if options.json:
        from mulligan.report.run import to_json

        sys.stdout.write(to_json({"run": str(folder), **last}))
        return
    sys.stdout.write(
        (_trained(last, config) if config.run.updates else _warmed(last, folder, options)) + f"Run: {folder}\n"
    )


def _trained(last: Metrics, config: Config) -> str:
    figures = "  ".join(Status(versus=is_versus(config.task.env)).success(last))
    done = int(last.get("update", 0))
    return f"{done} update{'' if done == 1 else 's'} done{f'; the last one: {figures}' if figures else ''}\n"


def _warmed(last: Metrics, folder: Path, options: argparse.Namespace) -> str:
    """The summary of a warm start alone: its result, where its weights are, and how to start from them."""
    shown = "  ".join(f"p@{k} {100 * share:.1f}" for k, share in shares(last, "validation/p@"))
    weights = folder / "checkpoints" / "update-00000" / "weights.safetensors"
    preset, file = options.preset or ("" if options.config or options.resume else "cpu"), options.config
    again = f"{f'--preset {preset} ' if preset else ''}{f'--config {file} ' if file else ''}"
    return (
        f"warm start done{f'; on validation tasks: {shown}' if shown else ''}\n"
        f"Weights: {weights}; other runs begin there with {again}--model.name {folder} --warmstart.steps 0\n"
    )


# ---- help


def _overview() -> str:
    """The presets, and the settings section by section."""
    from mulligan.training.config import Config, settings
    from mulligan.training.resolve import presets

    lines = ["presets (cpu, where neither a preset, a file nor a model is named):"]
    width = max(map(len, presets()))
    lines += [f"  {name:<{width}}  {summary}" for name, summary in presets().items()]
    lines += ["", "settings: --SECTION.NAME VALUE, or NAME = VALUE under [SECTION] in a file; --settings explains them"]
    for section in fields(Config):
        keys = [key for key in settings() if key.startswith(f"{section.name}.")]
        shown = [f"{key.partition('.')[2]}={settings()[key].shown(settings()[key].default)}" for key in keys]
        lines.append(f"  {section.name}: {(getattr(Config(), section.name).__doc__ or '').partition(chr(10))[0]}")
        lines += textwrap.wrap("  ".join(shown), 100, initial_indent="    ", subsequent_indent="    ")
    lines.append("  env: parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5")
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
