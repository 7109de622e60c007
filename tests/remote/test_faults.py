"""What goes wrong between a run and its server: the number of trials is right, the weights are, and one line tells."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import mulligan
from mulligan.training.config import AlgoConfig, BackendConfig, Config, ModelConfig, OptimConfig, RunConfig, TaskConfig
from mulligan.training.loop import train
from remote.faulty_way import DROPPED, FaultyWay
from small_runs import metrics, trial

pytestmark = pytest.mark.tinker
UPDATES = 3


def config(base: Path, url: str, **run) -> Config:
    """Three updates, each saved, of 2 × 4 trials."""
    return Config(
        run=RunConfig(**{"updates": UPDATES, "tasks": 2, "group": 4, "threads": 1, "checkpoint_every": 1, **run}),
        task=TaskConfig(env="bandit", params={"arms": 3}),
        trial=trial(episodes=3, memory="history", style="bare", max_tokens=1, stop="never"),
        model=ModelConfig(name=str(base)),
        backend=BackendConfig(kind="tinker", url=url, rank=8),
        algo=AlgoConfig(estimator="grpo", gamma_traj=0.9),
        optim=OptimConfig(lr=1e-2, warmup=1, epochs=1, lr_end=1.0),
    )


def told(run: Path) -> list[dict]:
    """What each update came to, without what a retry or the clock changes."""
    figures = ("won/1", "won/2", "won/3", "episodes", "replies", "loss/loss", "loss/grad_norm", "loss/sampler/weight")
    return [{name: line[name] for name in figures} for line in metrics(run)]


@pytest.fixture(scope="module")
def undisturbed(beginner, bandit_server, tmp_path_factory) -> list[dict]:
    run = train(config(beginner, bandit_server.url), tmp_path_factory.mktemp("undisturbed") / "run")
    lines = told(run)
    assert len(lines) == UPDATES
    assert all(line["replies"] == 2 * 4 * 3 for line in lines)
    return lines


def assert_as_undisturbed(run: Path, undisturbed: list[dict]) -> None:
    """The same trials and the same gradients in every update, hence the same weights before each."""
    lines = told(run)
    assert len(lines) == UPDATES
    for line, expected in zip(lines, undisturbed, strict=True):
        assert line == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_server_that_is_away_for_a_while_costs_nothing(beginner, bandit_server, undisturbed, tmp_path):
    away_until = [0.0]

    def away(call, body):
        if call == "asample" and not away_until[0]:
            away_until[0] = time.monotonic() + 5.0
        return (DROPPED, {}) if time.monotonic() < away_until[0] else None

    with FaultyWay(bandit_server.url, before=away) as way:
        run = train(config(beginner, way.url), tmp_path / "run")
    assert_as_undisturbed(run, undisturbed)


def test_a_server_that_has_too_much_to_do_is_asked_again(beginner, bandit_server, undisturbed, tmp_path):
    refused = []

    def busy(call, body):
        if call in ("asample", "forward_backward") and len(refused) < 4:
            refused.append(call)
            return 429, {"detail": "too many requests"}
        return None

    with FaultyWay(bandit_server.url, before=busy) as way:
        run = train(config(beginner, way.url), tmp_path / "run")
    assert len(refused) == 4
    assert_as_undisturbed(run, undisturbed)


def test_a_sample_that_is_cut_off_is_drawn_again_with_its_trial(beginner, bandit_server, tmp_path):
    cut = []

    def cutting(call, body, answer):
        if not cut and answer.get("sequences"):
            cut.append(answer["sequences"][0])
            answer["sequences"][0] |= {"tokens": [], "logprobs": []}
        return answer

    with FaultyWay(bandit_server.url, after=cutting) as way:
        run = train(config(beginner, way.url, updates=1, save_trials_every=1), tmp_path / "run")
    (line,) = metrics(run)
    assert cut
    assert line["failures/request_failed"] == 1
    assert line["trials/failed"] == 0
    assert line["replies"] == 2 * 4 * 3, "every trial is there once"
    assert len(list(mulligan.load_trials(run, "update-00001"))) == 2 * 4


def test_a_sampler_with_old_weights_is_told_and_weighed(beginner, bandit_server, undisturbed, tmp_path):
    def stale(call, body):
        if call == "asample":  # the base model's weights, which are those before the first update
            del body["sampling_session_id"], body["seq_id"]
            body["base_model"] = str(beginner)

    with FaultyWay(bandit_server.url, before=stale) as way:
        run = train(config(beginner, way.url), tmp_path / "run")
    lines = metrics(run)
    assert [line["replies"] for line in lines] == [2 * 4 * 3] * UPDATES
    assert "warning" not in lines[0], "before the first update there are no older weights"
    assert lines[0]["loss/sampler/weight"] == pytest.approx(1.0, abs=1e-3)
    assert "sampler and trainer differ by" in lines[-1]["warning"]
    assert "\n" not in lines[-1]["warning"]
    assert abs(lines[-1]["loss/sampler/weight"] - 1.0) > 1e-3
