"""A training run that is killed with SIGKILL at any moment, and resumed, ends exactly as one that was left alone.

The same weights, bit for bit, the same optimiser, statistics, trials and metrics (but for times), and no file more.

What a kill leaves behind can only differ where the run folder changes. So the processes here are told at which change
to die: a host imports everything once and forks a process for each run, and an audit hook in that process sees every
change just before it happens. A kill in the middle of a write is one after it, with half of what was written missing.

``make test`` has no process killed: it resumes, in this process, what a kill leaves. ``make test-slow`` has all, and
``make test-hostile`` kills at random moments.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mulligan.models.load import load, save
from mulligan.report.files import read_lines
from mulligan.training import checkpoint, warmstart
from mulligan.training.config import (
    AlgoConfig,
    Config,
    EngineConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TaskConfig,
    WarmstartConfig,
)
from mulligan.training.loop import train
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling

TASKS, GROUP, UPDATES = 3, 4, 4
CONFIG = Config(
    run=RunConfig(
        updates=UPDATES, tasks=TASKS, group=GROUP, threads=1, checkpoint_every=1, keep=2, save_trials_every=1
    ),
    task=TaskConfig(env="bandit", params={"arms": 2}),
    trial=TrialSettings(episodes=3, memory="history", style="bare", sampling=Sampling(1.0, 1.0, 2)),
    model=ModelConfig(name="nano:hidden=32,layers=1", device="cpu"),
    engine=EngineConfig(slots=16),
    warmstart=WarmstartConfig(steps=30, trials=20, batch=16, lr=1e-2, warmup=1),
    # What is remembered from earlier updates counts: the agent's own statistics, and the weights at the start.
    algo=AlgoConfig(estimator="grpo", baseline="agent", scale="agent", kl_weight=0.1),
    optim=OptimConfig(lr=3e-3, warmup=1, epochs=2),
)
COMMAND = [sys.executable, "-c", "from mulligan.app.cli import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


# The process that is killed ---------------------------------------------------------------------------------------


STEP = "mulligan.step"
"""The event of a step of the warm start or an update, beside those of Python itself."""
AFTER = " > "
"""Between two changes, of which the second one comes right after the first."""


class Watch:
    """An audit hook: describes each change of the run folder before it happens, and kills the process at one of them.

    `at` is a step like "warmstart 5", or the descriptions of two changes: it dies before the second one. With `torn`,
    half of what was written just before is lost.
    """

    def __init__(self, run: str, at: str | None = None, torn: bool = False) -> None:
        self.run, self.at, self.torn = run, at, torn
        self.changes: list[str] = []
        self.written: tuple[str, int] | None = None

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        change = self.describe(event, args)
        if change is None:
            return
        if event != STEP:
            self.changes.append(change)
        if self.at == (change if event == STEP else AFTER.join(["", *self.changes][-2:])):
            if self.torn and self.written:
                path, before = self.written
                os.truncate(path, before + (os.path.getsize(path) - before) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        self.written = (str(args[0]), _size(args[0])) if event == "open" else None

    def describe(self, event: str, args: tuple[Any, ...]) -> str | None:
        if event == STEP:
            return str(args[0])
        if event == "open":
            path = args[0] if (args[2] or 0) & (os.O_WRONLY | os.O_RDWR) else None
        elif event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir"):
            path = args[1] if event == "os.rename" else args[0]
        else:
            return None
        if not isinstance(path, str | os.PathLike):
            return None
        verb = event.removeprefix("os.")
        if event in ("os.remove", "os.rmdir") and args[1] != -1:  # within a folder that is being deleted
            return f"{verb} {os.fspath(path)}"
        return f"{verb} {os.path.relpath(path, self.run)}" if os.fspath(path).startswith(self.run) else None


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def play(run: str, log: str | None, at: str | None, torn: bool) -> None:
    """Start or resume a run in this process, which dies at the change `at`."""
    import safetensors.torch

    def announced(write: Any) -> Any:
        """These two write files without Python's knowledge."""

        def announce(what: Any, path: Path) -> None:
            sys.audit("open", str(path), "wb", os.O_WRONLY)
            write(what, path)

        return announce

    safetensors.torch.save_file, torch.save = announced(safetensors.torch.save_file), announced(torch.save)
    watch = Watch(run, at, torn)
    sys.addaudithook(watch)

    def on_update(found: dict[str, Any]) -> None:
        name = "warmstart" if "warmstart" in found else "update"
        sys.audit(STEP, f"{name} {found[name]}")

    warmstart.CHECKPOINT_EVERY = 10
    is_begun = (Path(run) / "config.toml").exists()
    train(None if is_begun else CONFIG, run, resume=is_begun, on_update=on_update)
    if log:
        Path(log).write_text(json.dumps(watch.changes), encoding="utf-8")


def host() -> None:
    """Play the runs that come in as JSON lines, each in a process of its own, and answer how that ended."""
    import safetensors.torch  # noqa: F401

    load(CONFIG.model.name, device="cpu")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        job = json.loads(line)
        after = job.pop("after")
        process = os.fork()
        if process == 0:
            try:
                play(**job)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        if after is not None:
            time.sleep(after)
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


class Host:
    """The other end of `host`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def play(
        self,
        run: Path,
        *,
        at: str | None = None,
        torn: bool = False,
        after: float | None = None,
        log: Path | None = None,
    ) -> int:
        """Start or resume `run`; returns the exit code of its process, -9 where it was killed."""
        job = {"run": str(run), "log": log and str(log), "at": at, "torn": torn, "after": after}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def player() -> Iterator[Host]:
    command = [sys.executable, str(Path(__file__).resolve())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield Host(process)
        process.stdin.close()


# What is compared -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run that was left alone; in a process with another hash seed than the host's."""
    return train(CONFIG, tmp_path_factory.mktemp("whole") / "run")


def contents(run: Path) -> dict[str, Any]:
    """Every file of a run folder -> what it holds, but for times."""
    return {str(path.relative_to(run)): content(path) for path in sorted(run.rglob("*")) if path.is_file()}


def content(path: Path) -> Any:
    if path.name == "metrics.jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [{key: value for key, value in line.items() if not key.startswith("time/")} for line in lines]
    if path.name == "warmstart.json":
        return {**json.loads(path.read_text()), "seconds": None}
    if path.name == "state.json":
        return json.loads(path.read_text())
    if path.name == "optimiser.pt":
        return plain(torch.load(path, weights_only=True))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def plain(value: Any) -> Any:
    """Nested data with each tensor as its type, shape and bits."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), hashlib.sha256(value.numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def assert_same(run: Path, whole: Path) -> None:
    found, expected = contents(run), contents(whole)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def test_the_run_left_alone_holds_what_is_compared(whole):
    """Otherwise two empty folders would pass for equal."""
    found = contents(whole)
    last = f"checkpoints/update-{UPDATES:05d}"
    assert {f"{last}/weights.safetensors", "reference/weights.safetensors"} <= found.keys()
    assert found[f"{last}/weights.safetensors"] != found["checkpoints/update-00003/weights.safetensors"]
    assert {"exp_avg", "exp_avg_sq", "step"} <= found[f"{last}/optimiser.pt"]["state"][0].keys()
    assert found[f"{last}/state.json"]["history"]["agents"]
    assert [line["update"] for line in found["metrics.jsonl"]] == [1, 2, 3, 4]
    assert max(line["loss/kl_ref"] for line in found["metrics.jsonl"]) > 0
    for update in range(1, UPDATES + 1):
        file = whole / "trials" / f"update-{update:05d}.jsonl.gz"
        gzip.decompress(file.read_bytes())  # raises where the tail is torn
        assert [json.loads(line)["place"] for line in read_lines(file)] == list(range(TASKS * GROUP))


# Kills ------------------------------------------------------------------------------------------------------------

IN_BETWEEN = {
    "warmstart 5": ".warmstart-00010.tmp",
    "warmstart 15": ".warmstart-00020.tmp",
    "update 3": ".update-00003.tmp",
}
"""Steps at which nothing is written -> what is written next."""


def kills_of(changes: list[str]) -> Iterator[tuple[str, bool]]:
    """Where a process dies, and whether half of what it wrote last is lost: at each change after another one, at those
    that came already in another update not again."""
    seen: set[str] = set()
    steps = dict(IN_BETWEEN)
    for before, change in zip(["", *changes[:-1]], changes, strict=True):
        for step in [step for step, written in steps.items() if written in change]:
            yield step, False
            del steps[step]
        kind = re.sub(r"\d+", "", f"{before} {change}")
        if kind not in seen:
            yield f"{before}{AFTER}{change}", False
            if before.startswith("open "):
                yield f"{before}{AFTER}{change}", True
        seen.add(kind)
    assert not steps


@pytest.mark.slow
def test_killed_at_every_kind_of_change(player, whole, tmp_path):
    """Before each kind of change of the run folder, and in the middle of each write. One run goes on from kill to kill;
    what a resumed run no longer comes to is met by another run."""
    assert player.play(tmp_path / "alone", log=tmp_path / "changes.json") == 0
    changes = json.loads((tmp_path / "changes.json").read_text())
    assert len(changes) > 50
    run = tmp_path / "run"
    kills = 0
    for at, torn in kills_of(changes):
        code = player.play(run, at=at, torn=torn)
        if code == 0:
            assert_same(run, whole)
            shutil.rmtree(run)
            code = player.play(run, at=at, torn=torn)
        assert code == -signal.SIGKILL, at
        kills += 1
    assert kills > 50
    assert player.play(run) == 0
    assert_same(run, whole)


# What a kill leaves, and what a hand, a disk or a copy may -----------------------------------------------------------


class Stopped(BaseException):
    """Ends a run in this process where a kill would."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A run that ended in its fourth update, with checkpoints after the second and the third."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    save_checkpoint = checkpoint.save

    def save(run: Path, update: int, *others: Any) -> Path:
        if update == UPDATES:
            raise Stopped
        return save_checkpoint(run, update, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        with pytest.raises(Stopped):
            train(CONFIG, run)
    assert [path.name for path in checkpoint.kept(run)] == ["update-00002", "update-00003"]
    assert [line["update"] for line in content(run / "metrics.jsonl")] == [1, 2, 3, 4]
    return run


def resume(run: Path) -> None:
    train(None, run, resume=True)


def tear(path: Path, before: int = 0) -> None:
    """Lose half of what was written to a file after its first bytes."""
    os.truncate(path, before + (path.stat().st_size - before) // 2)


@pytest.fixture
def run(stopped, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def test_what_a_kill_leaves_half_written_is_made_good(run, whole):
    """In the fourth update: its checkpoint, its trials and its line; and an old checkpoint is half deleted."""
    begun = Path(shutil.copytree(run / "checkpoints/update-00003", run / "checkpoints/.update-00004.tmp"))
    tear(begun / "weights.safetensors")
    (begun / "optimiser.pt").unlink()
    (begun / "state.json").unlink()
    old = Path(shutil.copytree(run / "checkpoints/update-00002", run / "checkpoints/update-00001"))
    (old / "state.json").unlink()
    tear(run / "trials/update-00004.jsonl.gz")
    metrics = run / "metrics.jsonl"
    tear(metrics, before=metrics.read_bytes().rindex(b"\n", 0, -1) + 1)
    resume(run)
    assert_same(run, whole)


def test_folders_that_never_got_their_name_are_ignored_and_cleaned(run, whole):
    shutil.copytree(run / "checkpoints/update-00002", run / "checkpoints" / ".update-00009.tmp")
    assert checkpoint.newest(run).name == "update-00003"
    resume(run)
    assert_same(run, whole)


@pytest.mark.parametrize("missing", ["weights.safetensors", "state.json"])
def test_a_checkpoint_that_lacks_a_file_is_passed_over(run, whole, missing):
    (run / "checkpoints/update-00003" / missing).unlink()
    assert checkpoint.newest(run).name == "update-00002"
    resume(run)
    assert_same(run, whole)


@pytest.mark.slow
def test_where_no_checkpoint_is_whole_the_run_starts_over(run, whole):
    shutil.rmtree(run / "checkpoints/update-00002")
    (run / "checkpoints/update-00003").rename(run / "checkpoints/update-00000")
    (run / "checkpoints/update-00000/state.json").unlink()
    assert checkpoint.newest(run) is None
    resume(run)
    assert_same(run, whole)


def test_only_checkpoints_are_taken_for_checkpoints(run, whole):
    """A copy under another name is neither resumed from nor deleted."""
    kept = run / "checkpoints/update-00009-best"
    shutil.copytree(run / "checkpoints/update-00003", kept)
    resume(run)
    assert (kept / "weights.safetensors").is_file()
    shutil.rmtree(kept)
    assert_same(run, whole)


def test_checkpoints_are_ordered_by_number(tmp_path):
    for name in ("update-99998", "update-100000", "update-99999"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        for file in ("weights.safetensors", "optimiser.pt", "state.json", "checksums.json"):
            (tmp_path / "checkpoints" / name / file).touch()
    assert checkpoint.newest(tmp_path).name == "update-100000"


def test_metrics_that_are_gone_begin_anew(run, whole):
    (run / "metrics.jsonl").unlink()
    resume(run)
    again, before = content(run / "metrics.jsonl"), content(whole / "metrics.jsonl")[3:]
    for line in (*again, *before):  # what was warned of once was in the lines that are gone: it is said again
        line.pop("warning", None)
    assert again == before
    shutil.copy(whole / "metrics.jsonl", run)
    assert_same(run, whole)


def test_a_run_of_which_only_the_settings_are_left_starts_over(run, whole):
    for path in run.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "config.toml":
            path.unlink()
    resume(run)
    assert_same(run, whole)


# The command itself -----------------------------------------------------------------------------------------------

SETTINGS = {
    "env.arms": 2,
    "model.lora-rank": 4,
    "model.device": "cpu",
    "trial.memory": "history",
    "trial.style": "bare",
    "trial.max-tokens": 2,
    "trial.episodes": 3,
    "algo.estimator": "ppo",
    "algo.kl-weight": 0.1,
    "optim.minibatches": 2,
    "optim.lr": 0.01,
    "run.updates": 12,
    "run.checkpoint-every": 2,
    "run.save-trials-every": 3,
    "run.validate-every": 5,
    "run.validation-tasks": 2,
    "run.threads": 1,
}
BEGIN = ["bandit", "--preset", "test", "--seed", "5", *(f"--{key}={value}" for key, value in SETTINGS.items())]
KILLS = 4


def start(run: Path, model: Path) -> subprocess.Popen[bytes]:
    """The command that starts a run with `model`, or resumes it."""
    words = [*BEGIN, f"--model.name=hf:{model}", "--run", str(run)]
    if (run / "config.toml").exists():
        words = ["--resume", str(run)]
    command = [*COMMAND, "train", *words]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def state(run: Path) -> dict[Path, int]:
    found = {}
    for path in run.rglob("*"):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # renamed in the meantime
            continue
    return found


def killed_on_the_way(run: Path, model: Path, times: int) -> int:
    """Play a run to its end, and kill it up to `times` times on the way; returns how often that was."""
    kills = 0
    while True:
        before = state(run)
        with start(run, model) as process:
            while kills < times and process.poll() is None and state(run) == before:
                time.sleep(0.02)  # it is still importing
            if kills < times and process.poll() is None:
                time.sleep(random.uniform(0.0, 1.5))
                process.kill()
            code = process.wait()
        if code == 0:
            return kills
        assert code == -signal.SIGKILL
        kills += 1


@pytest.mark.slow
def test_the_command_killed_again_and_again(whole, tmp_path):
    """An adapter, a critic, KL to a reference, minibatches, validation, and not every update has a checkpoint."""
    model, alone = tmp_path / "model", tmp_path / "alone"
    save(checkpoint.load_model(whole), model)
    assert killed_on_the_way(alone, model, 0) == 0
    before, *updates = content(alone / "metrics.jsonl")
    names = {"update", *(f"validation/{name}" for name in ("p@1", "p@2", "p@3", "share_of_optimum"))}
    assert before.keys() == names
    assert all(line["loss/value_loss"] > 0 and line["loss/kl_ref"] > 0 for line in updates)
    kills = runs = 0
    while kills < KILLS:  # a run may be through before it has been killed often enough
        runs += 1
        kills += killed_on_the_way(tmp_path / f"run{runs}", model, KILLS - kills)
        assert_same(tmp_path / f"run{runs}", alone)


if __name__ == "__main__":
    host()
