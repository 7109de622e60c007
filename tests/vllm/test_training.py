"""`mulligan train` through vLLM: it runs, it says how far sampler and trainer differ, and it resumes."""

from __future__ import annotations

import json

import pytest

from mulligan.training.config import EngineConfig, ModelConfig, OptimConfig, RunConfig, WarmstartConfig
from mulligan.training.loop import train
from small_runs import metrics, small, trial

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def config(folder, **run):
    return small(
        run=RunConfig(updates=3, tasks=4, group=4, threads=1, checkpoint_every=1, save_trials_every=1, **run),
        trial=trial(episodes=3, memory="history", style="bare", max_tokens=2, reflection_tokens=3),
        model=ModelConfig(name=f"hf:{folder}"),
        engine=EngineConfig(kind="vllm", slots=16),
        warmstart=WarmstartConfig(steps=20, trials=40, batch=16, lr=5e-3, warmup=1),
        optim=OptimConfig(lr=2e-3, warmup=0, epochs=2),
    )


def test_a_run_on_a_bandit_stops_and_resumes(tiny_llama, tmp_path):
    run = tmp_path / "run"
    train(config(tiny_llama), run, stop=lambda: (run / "metrics.jsonl").exists() and bool(metrics(run)))
    stopped = [line["update"] for line in metrics(run)]
    train(None, run, resume=True)
    lines = metrics(run)
    assert stopped == [1]
    assert [line["update"] for line in lines] == [1, 2, 3]
    for line in lines:
        # Rewards are of trials sampled by the weights of that update: others would be nats away after such steps.
        assert 0 < line["loss/sampler/mismatch"] < 1e-3
        assert line["loss/sampler/weight"] == pytest.approx(1.0, abs=1e-3)
        assert line.get("warning") is None
    assert json.loads((run / "checkpoints" / "update-00003" / "state.json").read_text())["update"] == 3
    weights_moved = [line["loss/kl_old"] for line in lines]
    assert max(weights_moved) > 1e-3, "updates change the weights, by which the mismatch stays small all the same"
