"""What goes wrong between a run and its server: the number of trials is right, the weights are, and one line tells."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

import mulligan
from e2e.command import call
from mulligan.errors import MulliganError, RunFolderError
from mulligan.training.config import AlgoConfig, BackendConfig, Config, ModelConfig, OptimConfig, RunConfig, TaskConfig
from mulligan.training.loop import train
from remote.faulty_way import DROPPED, FaultyWay
from remote.servers import SkyRL
from small_runs import metrics, trial

pytestmark = pytest.mark.tinker
UPDATES = 3


def config(base: Path, url: str, **run) -> Config:
    """Three updates, each saved, of 2 × 4 trials."""
    return Config(
        run=RunConfig(**{"updates": UPDATES, "tasks": 2, "group": 4, "threads": 1, "checkpoint_every": 1, **run}),
        task=TaskConfig(env="bandit", params={"arms": 2}),
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


def test_trials_that_began_before_the_last_update_are_weighed(beginner, bandit_server, tmp_path):
    """`run.staleness`: an update waits for the replies under way, and the trials go on with its weights."""
    run = train(config(beginner, bandit_server.url, staleness=1), tmp_path / "run")
    lines = metrics(run)
    assert [line["replies"] for line in lines] == [2 * 4 * 3] * UPDATES
    assert lines[0]["loss/sampler/mismatch"] < 1e-3
    assert max(line["loss/sampler/mismatch"] for line in lines[1:]) > 1e-3, "some were drawn with older weights"
    assert not any("warning" in line for line in lines)


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


LOST = {"future_id": "987654321", "request_id": "987654321", "status": "pending"}
"""The answer to a call that was acknowledged, and of which the server then knows nothing."""
SECOND_UPDATE = 5
"""Which call it belongs to: three are of the measurement with which a run begins, one of each update."""


def test_gradients_that_were_acknowledged_and_lost_are_computed_again(beginner, bandit_server, undisturbed, tmp_path):
    """The server has added them up, which nobody is told: with the next ones they would count twice."""
    steps = []

    def losing(call, body, answer):
        if call == "forward_backward" and way.calls[call] == SECOND_UPDATE:
            steps.append(way.calls["optim_step"])
            return LOST
        if call == "load_weights" and len(steps) == 1:
            steps.append(way.calls["optim_step"])
        return answer

    with FaultyWay(bandit_server.url, after=losing) as way:
        run = train(config(beginner, way.url), tmp_path / "run")
    assert steps[1] == steps[0] + 1, "no step without its gradients, but the one that uses up what was left"
    assert_as_undisturbed(run, undisturbed)
    first, second, third = (line.get("warning") for line in metrics(run))
    assert first is third is None
    assert "lost forward_backward" in second
    assert second.endswith("; the run went on from its checkpoint after 1 updates")
    assert "\n" not in second


def test_gradients_that_are_lost_each_time_end_the_run(beginner, bandit_server, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr("mulligan.training.loop.LOSSES", 1)
    lost = []

    def losing(call, body):
        # The second update's, and after that the first one of the model that takes its place.
        if call == "forward_backward" and way.calls[call] in (SECOND_UPDATE, SECOND_UPDATE + 2):
            lost.append(way.calls["optim_step"])
            return 200, LOST
        return None

    with (
        FaultyWay(bandit_server.url, before=losing) as way,
        pytest.raises(MulliganError, match=r"lost forward_backward .* continue with --resume") as error,
    ):
        train(config(beginner, way.url), tmp_path / "run")
    assert len(lost) == 2
    assert way.calls["optim_step"] == lost[1] == lost[0] + 1
    assert "\n" not in str(error.value)
    assert len(metrics(tmp_path / "run")) == 1
    assert call("train", "--resume", str(tmp_path / "run"), "--backend.url", bandit_server.url) == 0
    assert_as_undisturbed(tmp_path / "run", undisturbed)


def test_a_full_disk_at_a_checkpoint_ends_the_run_which_then_goes_on(
    beginner, bandit_server, undisturbed, tmp_path, monkeypatch
):
    written, full = Path.write_text, []

    def write_text(path, *text, **options):
        if path.name == "server.json" and "update-00002" in str(path) and not full:
            full.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path, *text, **options)

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(RunFolderError, match=r"cannot be written .* No space left .* --resume") as error:
        train(config(beginner, bandit_server.url), tmp_path / "run")
    assert len(full) == 1
    assert "\n" not in str(error.value)
    assert call("train", "--resume", str(tmp_path / "run"), "--backend.url", bandit_server.url) == 0
    assert_as_undisturbed(tmp_path / "run", undisturbed)


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


def test_a_run_goes_on_after_its_server_was_killed_in_the_middle_of_an_update(
    beginner, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr("mulligan.training.remote.PATIENCE", 5.0)
    monkeypatch.setattr("mulligan.training.remote.LOOK_EVERY", 1.0)
    server = SkyRL(tmp_path, beginner)
    server.start()

    def kill(call, body):
        # Between the second update's gradients and its step.
        if call == "optim_step" and way.calls[call] == SECOND_UPDATE:
            server.kill()

    try:
        lost = pytest.raises(MulliganError, match=r"lost optim_step .* continue with --resume")
        with FaultyWay(server.url, before=kill) as way, lost:
            train(config(beginner, way.url), tmp_path / "run")
        assert len(metrics(tmp_path / "run")) == 1
        server.start()
        assert call("train", "--resume", str(tmp_path / "run"), "--backend.url", server.url) == 0
        assert_as_undisturbed(tmp_path / "run", undisturbed)
        # And what the run came to can be played and taken away.
        result = mulligan.evaluate(
            "bandit", str(tmp_path / "run"), params={"arms": 2}, tasks=4, controls=(), room=False
        )
        assert result.main.trials == 4
        assert call("export", str(tmp_path / "run"), str(tmp_path / "exported")) == 0
    finally:
        server.kill()
    exported = mulligan.evaluate(
        "bandit", f"hf:{tmp_path / 'exported'}", params={"arms": 2}, tasks=4, controls=(), room=False
    )
    assert exported.main.trials == 4
