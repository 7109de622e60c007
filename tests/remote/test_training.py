"""Training through a real Tinker server: an update equals ours, and a whole run learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from e2e.command import call
from mulligan.models.load import load
from mulligan.training.adapter import download
from mulligan.training.config import BackendConfig, Config, ModelConfig, OptimConfig, RunConfig
from mulligan.training.remote import RemoteLearner
from mulligan.training.rows import rows_of
from mulligan.training.step import GRAD_CLIP, Learner, UpdateData
from remote.servers import SkyRL
from small_runs import metrics
from small_updates import play

pytestmark = pytest.mark.tinker
RANK = 8
LR = 1e-3


def remote_config(base: Path, server: SkyRL, **sections) -> Config:
    config = Config(
        run=RunConfig(updates=4, seed=1),
        model=ModelConfig(name=str(base)),
        backend=BackendConfig(kind="tinker", url=server.url, rank=RANK),
        optim=OptimConfig(lr=LR, warmup=1, epochs=2, minibatches=1, lr_end=1.0),
    )
    return replace(config, **sections)


def adapter(learner: RemoteLearner, folder: Path, name: str) -> Path:
    """The adapter as the server has it now, as files that PEFT reads."""
    download(learner.service, learner.saved(name)["sampler"], folder, learner.base)
    return folder


def trained_weights(model) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}


def test_an_update_is_ours(base, server, tmp_path):
    """The same adapter, rows and advantages; two AdamW steps, of which the second one has clipped ratios and momentum.

    AdamW's steps are as long as the learning rate wherever a gradient is not nearly 0, whatever its size: weights that
    were sent a gradient of the other sign would be apart by twice the learning rate. They are within a tenth of it, and
    on average within a thousandth: what float32 of two libraries leaves where a gradient is nearly 0.
    """
    loaded = load(f"hf:{base}")
    params = {"rows": 3, "cols": 3, "mines": 2, "turns": 2, "view": "compact"}
    group = play(loaded, memory="reflection", style="bare", episodes=2, params=params, trials=3)
    rows, steps = rows_of(group.trials)
    assert len({len(row.ids) for row in rows}) > 1, "rows differ in length, so that it matters how losses are added up"
    # Small enough that our own gradients stay below the norm at which they are clipped, which this server does not do.
    advantages = 0.02 * torch.linspace(-1.0, 1.0, steps)
    config = remote_config(base, server)
    remote = RemoteLearner(config, context=256)
    remote.begin(loaded.model.config.vocab_size)
    assert remote.reduction == "rows", "SkyRL's backend on JAX takes means of rows"
    start = load(f"hf:{adapter(remote, tmp_path / 'start', 'before')}")
    ours = Learner(start.model, config, uses_own_logp=True)
    before = trained_weights(start.model)

    remote_rows, our_rows = copy.deepcopy(rows), copy.deepcopy(rows)
    remote.look_over(remote_rows, steps, 0)
    remote_losses = remote.update(UpdateData(remote_rows, advantages), update=0)
    ours.look_over(our_rows, steps, 0)
    our_losses = ours.update(UpdateData(our_rows, advantages), update=0)

    assert our_losses["grad_norm"] < GRAD_CLIP
    for name in ("loss", "kl_old", "clip", "sampler/mismatch", "sampler/weight", "lr"):
        assert remote_losses[name] == pytest.approx(our_losses[name], rel=1e-2, abs=1e-5), name
    assert remote_losses["grad_norm"] == pytest.approx(our_losses["grad_norm"], rel=1e-2)
    server_has = trained_weights(load(f"hf:{adapter(remote, tmp_path / 'end', 'after')}").model)
    apart = [(server_has[name] - weight).abs() for name, weight in trained_weights(start.model).items()]
    moved = [(server_has[name] - weight).abs() for name, weight in before.items()]
    assert torch.cat([each.flatten() for each in moved]).max() > LR
    assert torch.cat([each.flatten() for each in apart]).max() < 0.1 * LR
    assert torch.cat([each.flatten() for each in apart]).mean() < 1e-3 * LR


def test_mulligan_train_learns_a_bandit_through_a_server(beginner, bandit_server, tmp_path):
    run = tmp_path / "run"
    words = (
        "train bandit --env.arms 2 --trial.style bare --trial.memory history --trial.max-tokens 1 --trial.stop never "
        f"--backend.kind tinker --backend.url {bandit_server.url} --model.name {beginner} --run.updates 12 "
        "--run.tasks 12 --run.group 8 --run.checkpoint-every 6 --algo.estimator grpo --algo.gamma-traj 0.9 "
        f"--optim.lr 6e-3 --optim.warmup 2 --optim.epochs 2 --optim.lr-end 0.5 --run {run}"
    )
    assert call(*words.split()) == 0
    lines = metrics(run)
    assert [line["update"] for line in lines] == list(range(1, 13))
    last = lines[-3:]
    assert sum(line["won/3"] for line in last) / 3 >= 0.9
    gain = sum(line["won/3"] - line["won/1"] for line in last) / 3
    assert gain > 0.2, "which arm pays is found out, and then remembered"
    assert all(line["loss/sampler/mismatch"] < 1e-3 for line in lines), "the sampler has the trainer's weights"
    assert "warning" not in lines[-1]
