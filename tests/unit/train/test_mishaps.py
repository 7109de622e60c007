"""What goes wrong in training is said, early and truly; and what only looks wrong does not end it."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mulligan.envs import registry
from mulligan.envs.bandit import Bandit
from mulligan.errors import DeviceLost, MulliganError, ParameterError, UnknownName, UsageError
from mulligan.models.load import is_checkpointed
from mulligan.policy import local
from mulligan.policy.local import LocalPolicy
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder
from mulligan.rollout.collect import Job
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import world_key
from mulligan.rollout.workers import play
from mulligan.training import checkpoint, step
from mulligan.training.config import AlgoConfig, EngineConfig, ModelConfig, OptimConfig, TaskConfig
from mulligan.training.loop import Trainer, train
from mulligan.training.resolve import checked, from_run, resolve
from mulligan.training.step import Learner
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import trust
from mulligan.types import Task
from notebooks import interrupt, run_interrupted
from small_runs import TINY, metrics, small

trust(__file__)


def test_numbers_of_numpy_are_as_good_as_pythons(tmp_path):
    """As a loop over np.logspace gives them; also where the run is resumed, and randomness is the same."""
    config = small()
    odd = replace(
        config,
        optim=replace(config.optim, lr=np.float64(1e-3)),
        run=replace(config.run, seed=np.int64(0), tasks=np.int64(3)),
    )
    train(config, tmp_path / "plain")
    train(odd, tmp_path / "numpy")
    assert metrics(tmp_path / "numpy") == metrics(tmp_path / "plain")
    assert train(None, tmp_path / "numpy", resume=True) == tmp_path / "numpy"


@pytest.mark.parametrize(
    "sections",
    [
        {"algo": AlgoConfig(form="papper")},
        {"algo": AlgoConfig(estimator="rlo")},
        {"model": ModelConfig(name="two\nlines")},
    ],
    ids=str,
)
def test_a_configuration_made_in_python_is_checked_before_anything_begins(sections, tmp_path):
    with pytest.raises((ParameterError, UnknownName)):
        train(small(**sections), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_configuration_that_is_in_order_stays_what_it_is():
    config = resolve("cpu", None, {})
    assert checked(config) == config


def test_averages_that_never_forget_are_refused():
    with pytest.raises(ParameterError, match=r"optim\.beta2 must be >= 0 and < 1 \(got 1\)"):
        small(optim=OptimConfig(beta2=1.0))


class Sided(Bandit):
    """A seat may have a name."""

    defaults: ClassVar[dict] = {**Bandit.defaults, "seat": "north"}


class Brittle(Bandit):
    """Some worlds cannot be built."""

    def __init__(self, task: Task) -> None:
        if task.seed % 3 == 0:
            raise ValueError("no such world")
        super().__init__(task)

    def world_key(self) -> str:
        return str(self.task.seed)


class Broken(Brittle):
    """No world can."""

    def __init__(self, task: Task) -> None:
        raise ValueError("no world at all")


def test_a_seat_with_a_name_is_no_number():
    task = registry.make_task(f"{__file__}:Sided", 0)
    assert (task["seat"], task.seat) == ("north", None)
    assert registry.make_task("kuhn", 0, seat=2).seat == 2


def test_a_world_that_cannot_be_built_is_passed_over():
    mixture = Mixture.parse(f"{__file__}:Brittle", {})
    assert {draw.task.seed % 3 for draw in draw_tasks(mixture, 40, seed=0, update=0)} == {1, 2}
    with pytest.raises(MulliganError, match=r"Broken, seed \d+.*ValueError: no world"):
        draw_tasks(Mixture.parse(f"{__file__}:Broken", {}), 1, seed=0, update=0)


def test_related_tasks_are_other_worlds():
    """3x3 with two mines has eight worlds, of which training has three or so."""
    mixture = Mixture.parse("minesweeper", {"rows": 3, "cols": 3, "mines": 2})
    for draw in draw_tasks(mixture, 30, seed=0, update=0, related=1):
        assert world_key(draw.task) != world_key(draw.related[0])
    for draw in draw_tasks(mixture, 3, seed=0, update=0, related=12):  # more than there are: some come again
        assert len(draw.related) == 12


def test_a_run_in_which_nothing_is_ever_said_ends(tmp_path):
    config = small(run=replace(small().run, tasks=1), engine=EngineConfig(slots=16, context=2))
    with pytest.raises(MulliganError, match="update 1"):
        train(replace(config, warmstart=replace(config.warmstart, steps=0)), tmp_path / "run")


def test_a_context_that_is_too_short_is_warned_of(tmp_path):
    """Where some replies fit and most episodes end for want of room, the run looks like any other."""
    config = small(
        run=replace(small().run, updates=1),
        task=TaskConfig(env="minesweeper", params={"rows": 4, "cols": 5, "mines": 2, "view": "compact"}),
        engine=EngineConfig(slots=16, context=30),
        warmstart=replace(small().warmstart, steps=5),
    )
    told: list[dict] = []
    train(config, tmp_path / "run", on_update=told.append)
    found = metrics(tmp_path / "run")[-1]
    assert found["stop/context_full"] > found["episodes"] / 2
    assert "engine.context" in found["warning"]
    # and before the first update, of what is demonstrated, which takes its time
    assert told[0]["demonstrations"] == 40
    said = [update.get("warning") for update in told]
    assert "context of 30 tokens" in (said[1] or "")
    assert not any("demonstrated" in (text or "") for text in said[6:])


def test_a_failure_is_counted_under_its_own_name(tmp_path, monkeypatch):
    """One request fails; the trial goes on after it, and is played again."""
    start, failed = LocalPolicy.start, []

    def flaky(self, task, seed):
        conversation = start(self, task, seed)
        if not failed:
            failed.append(conversation)
            reply = conversation.reply

            async def failing(messages, sampling):
                conversation.reply = reply
                raise RuntimeError("gone")

            conversation.reply = failing
        return conversation

    config = small(run=replace(small().run, updates=1, validate_every=0))
    monkeypatch.setattr(LocalPolicy, "start", flaky)
    train(config, tmp_path / "run")
    assert {key: value for key, value in metrics(tmp_path / "run")[-1].items() if key.startswith("failures/")} == {
        "failures/request_failed": 1
    }


@pytest.mark.parametrize("most", [1, 2])
def test_a_run_ends_after_so_many_bad_steps(tmp_path, monkeypatch, most):
    apply = Learner._apply

    def bad(self, loss, optimisers):
        updating = optimisers == [self.optimiser]
        return apply(self, loss * float("nan") if updating else loss, optimisers)

    monkeypatch.setattr(Learner, "_apply", bad)
    monkeypatch.setattr(step, "MAX_BAD_STEPS", most)
    with pytest.raises(MulliganError, match=f"not finite in {most} steps"):
        train(small(), tmp_path / "run")


@pytest.mark.parametrize("doing", ["supervised", "look_over"])
def test_a_device_that_fails_in_the_warm_start_or_an_update_is_said_so(tmp_path, monkeypatch, doing):
    def break_down(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand much more")

    monkeypatch.setattr(Learner, doing, break_down)
    config = small(warmstart=replace(small().warmstart, steps=1))
    with pytest.raises(DeviceLost, match=r"failed while training: CUDA error: .* encountered; continue with --resume"):
        train(config, tmp_path / "run")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run of one update."""
    config = small(run=replace(small().run, updates=1), warmstart=replace(small().warmstart, steps=1))
    return train(config, tmp_path_factory.mktemp("begun") / "run")


@pytest.mark.parametrize("doing", ["reading", "writing"])
@pytest.mark.parametrize(
    ("failure", "reported"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), torch.OutOfMemoryError),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), DeviceLost),
    ],
    ids=["memory", "device"],
)
def test_neither_files_nor_the_disk_are_blamed_for_a_device(begun, tmp_path, monkeypatch, doing, failure, reported):
    """On reading a checkpoint, which is whole, and on writing one."""
    run = Path(shutil.copytree(begun, tmp_path / "run"))

    def break_down(*_):
        raise failure

    if doing == "reading":
        monkeypatch.setattr(torch.optim.Optimizer, "load_state_dict", break_down)
    else:
        monkeypatch.setattr(checkpoint, "save_file", break_down)
    config = from_run(RunFolder.open(run))
    before = sorted((run / "checkpoints").rglob("*"))
    with pytest.raises(reported, match="CUDA") as raised:
        train(replace(config, run=replace(config.run, updates=2)), run, resume=True)
    assert "make room" not in str(raised.value)
    assert sorted((run / "checkpoints").rglob("*")) == before


def edited(begun: Path, to: Path, *changes: tuple[str, str]) -> Path:
    """A copy of a run, with other settings in its file."""
    shutil.copytree(begun, to)
    text = (to / "config.toml").read_text()
    for before, now in changes:
        assert text.count(before) == 1
        text = text.replace(before, now)
    (to / "config.toml").write_text(text)
    return to


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("gamma_traj = 0.6", "gamma_traj = 0.1", "algo.gamma_traj was 0.6, is 0.1"),
        ("lora_rank = 0", "lora_rank = 2", "model.lora_rank was 0, is 2"),
        ('estimator = "gigpo"', 'estimator = "ppo"', "algo.estimator was gigpo, is ppo"),
        ("arms = 2", "arms = 3", "env.arms was 2, is 3"),
        ('memory = "history"', 'memory = "none"', "trial.memory was history, is none"),
        ("[run]\nseed = 0", "[run]\nseed = 1", "run.seed was 0, is 1"),
        ("hidden=32", "hidden=64", "model.name was nano:hidden=32,layers=1, is nano:hidden=64,layers=1"),
    ],
)
def test_a_run_is_not_gone_on_with_as_another(begun, tmp_path, before, now, said):
    run = edited(begun, tmp_path / "run", (before, now))
    with pytest.raises(UsageError, match=re.escape(f"({said})")):
        train(None, run, resume=True)


def test_what_does_not_make_it_another_run_may_be_changed_before_it_goes_on(begun, tmp_path):
    changes = (("updates = 1\n", "updates = 2\n"), ("slots = 16", "slots = 8"), ("keep = 2", "keep = 1"))
    run = edited(begun, tmp_path / "run", *changes)
    train(None, run, resume=True)
    assert metrics(run)[-1]["update"] == 2


def test_an_error_of_ones_own_keeps_its_cause(tmp_path):
    def log(_):
        raise RuntimeError("cannot log") from OSError("the disk is full")

    with pytest.raises(RuntimeError, match="cannot log") as caught:
        train(small(), tmp_path / "run", on_update=log)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_run_goes_on_with_the_full_weights_of_the_one_before(tmp_path):
    """Float32 copies of bfloat16 weights, and no gradient checkpointing that was not asked for."""
    model = ModelConfig(name=TINY, dtype="bfloat16", gradient_checkpointing=True)
    start = train(small(model=model), tmp_path / "start")
    kept = checkpoint.newest(start)
    wanted = load_file(kept / "weights.safetensors")
    for dtype in ("bfloat16", "float32"):
        config = small(model=ModelConfig(name=str(start), dtype=dtype), warmstart=replace(small().warmstart, steps=0))
        folder = RunFolder.create(tmp_path / dtype, {"kind": "train"})
        trainer = Trainer(config, folder, lambda told: None)
        trainer.loop.close()
        for name, weight in trainer.learner.weights().items():
            assert torch.equal(weight, wanted[name]), name
        assert not is_checkpointed(trainer.loaded.model)


def test_an_interrupt_in_a_notebook_ends_a_rollout(tmp_path, monkeypatch):
    """It reaches the notebook's thread alone; the rollout's must not play on to the end."""

    async def slow(self, messages, sampling):
        await asyncio.sleep(3600)

    monkeypatch.setattr(local._LocalConversation, "reply", slow)

    async def cell() -> None:
        threading.Timer(3, interrupt).start()
        train(small(warmstart=replace(small().warmstart, steps=0)), tmp_path / "run")

    run_interrupted(cell())


def test_demonstrations_in_processes_find_what_this_process_finds(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("ARMS = 3\n")
    file = tmp_path / "own.py"
    trust(file)
    file.write_text(
        "from beside import ARMS\nfrom mulligan.envs.bandit import Bandit\n\n\n"
        'class Own(Bandit):\n    """Imports what lies beside it."""\n'
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    jobs = [(Job(registry.make_task(f"{file}:Own", seed), 0), TrialSettings(episodes=1)) for seed in range(200)]
    assert not any(trial.failed for trial in play(jobs, ExpertPolicy(), processes=2))
