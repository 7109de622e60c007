"""The warm start: what is demonstrated, what of it is imitated, and that it goes on where it was stopped."""

from __future__ import annotations

import itertools
import json
import pickle
from dataclasses import replace

import pytest
import torch

import mulligan
from mulligan.envs.bandit import Bandit
from mulligan.errors import MulliganError, RunFolderError, UnknownName, UsageError
from mulligan.models.load import load
from mulligan.rollout import tasksets, workers
from mulligan.training import checkpoint, warmstart
from mulligan.training.config import (
    RunConfig,
    TaskConfig,
)
from mulligan.training.loop import train
from mulligan.training.resolve import resolve
from mulligan.training.rows import rows_of
from mulligan.training.warmstart import demonstrate
from small_runs import metrics, small, weights


def test_a_warm_start_can_show_games_that_training_leaves_out():
    settings = {"task.env": "alfworld", "env.kind": "train", "warmstart.trials": "30"}
    loaded = load("nano")

    def kinds(shown: str) -> set[str]:
        config = resolve("test", None, {**settings, "warmstart.params": shown})
        trials = demonstrate(config, loaded.renderer)
        return {trial.task.task_class.partition("/")[2] for trial in trials}

    assert kinds("") == {"pick", "look", "clean", "heat"}
    assert kinds("kind=all") == {"pick", "look", "clean", "heat", "cool", "pick2"}
    for wrong, said in (("kind", r"warmstart\.params"), ("kind=cols", "cool"), ("kinds=all", "kind")):
        with pytest.raises(MulliganError, match=said):
            resolve("test", None, {**settings, "warmstart.params": wrong})


def test_a_warm_start_can_show_several_memories():
    config = resolve("test", None, {"warmstart.memory": "history, reflection", "warmstart.trials": "6"})
    loaded = load(config.model.name)
    trials = demonstrate(config, loaded.renderer)
    assert [trial.memory for trial in trials] == ["history", "reflection"] * 3
    with pytest.raises(UnknownName, match="did you mean 'history'"):
        resolve("test", None, {"warmstart.memory": "histori"})


def test_each_game_of_a_mixture_is_demonstrated_by_the_first_player_that_it_has():
    flags = {"task.env": "bandit,expedition(world=signpost)", "env.turns": "1", "warmstart.trials": "60"}
    flags |= {"warmstart.skill": "1", "warmstart.recall": "1"}
    config = resolve("test", None, {**flags, "warmstart.player": "explorer,expert"})
    trials = demonstrate(config, load(config.model.name).renderer)
    signs = {trial.episodes[0].turns[0].reply.text for trial in trials if trial.task.env == "expedition"}
    assert len(signs) == 1  # the explorer always reads it; the expert opens any door
    assert {trial.task.env for trial in trials} == {"bandit", "expedition"}
    with pytest.raises(UnknownName, match="explorer,mixed"):
        resolve("test", None, {**flags, "warmstart.player": "explorer,mixed"})


def test_mistakes_on_purpose_are_shown_and_not_imitated():
    """A note whose advice loses is what the next episode remembers, and no span that is trained on."""
    params = {"view": "cells", "lost": "hopeless", "advice": "doubtful"}
    options = {"task.env": "sokoban", "trial.memory": "reflection", "trial.style": "note", "warmstart.player": "hasty"}
    config = resolve("test", None, {**options, "warmstart.skill": "0", "warmstart.trials": "60"})
    renderer = load(config.model.name).renderer
    trials = demonstrate(replace(config, task=replace(config.task, params=params)), renderer)
    notes = wrong = 0
    for trial in trials:
        imitated = [span.ids for row in rows_of([trial])[0] for span in row.spans if span.reflects]
        for episode, following in itertools.pairwise(trial.episodes):
            note = episode.reflection
            assert note is not None
            assert note.completion is not None
            assert any(note.text in message["content"] for message in following.opening)
            assert note.completion.mistaken == (note.completion.ids not in imitated)
            notes, wrong = notes + 1, wrong + note.completion.mistaken
    assert notes / 4 < wrong < 3 * notes / 4


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_demonstrations_are_the_same_however_many_processes_play_them(real, monkeypatch):
    def in_turn(function, calls):
        """What processes are told and answer is pickled; that they start and answer is tested with the workers."""
        messages = [pickle.dumps((function, arguments)) for arguments in calls]
        answers = [each(*arguments) for each, arguments in map(pickle.loads, messages)]
        return pickle.loads(pickle.dumps(answers))

    if not real:
        monkeypatch.setattr(workers, "_in_processes", in_turn)
    config = resolve("test", None, {"warmstart.memory": "history, reflection", "warmstart.trials": "200"})
    here = load(config.model.name)
    trials = [
        demonstrate(replace(config, warmstart=replace(config.warmstart, processes=processes)), here.renderer)
        for processes in (1, 2)
    ]
    assert trials[0] == trials[1]
    assert [trial.memory for trial in trials[1]] == ["history", "reflection"] * 100


@pytest.mark.parametrize(
    "sections",
    [
        {"warmstart": {"optimiser": "muon"}, "algo": {"estimator": "ppo"}},
        {"model": {"dtype": "bfloat16"}, "optim": {"tokens": 64, "epochs": 1}},
    ],
    ids=["two optimisers and a critic", "half precision"],
)
def test_a_warm_start_that_is_asked_to_stop_goes_on_step_by_step(tmp_path, sections, monkeypatch):
    """Each process takes one step, as under a time limit that is far too short."""
    monkeypatch.setattr(warmstart, "CHECKPOINT_EVERY", 3)
    warm = {"steps": 4, "trials": 16, "batch": 8, **sections.get("warmstart", {})}
    sections = {**sections, "warmstart": warm, "run": {"updates": 1}}
    config = small(**{name: replace(getattr(small(), name), **changes) for name, changes in sections.items()})
    whole, run, steps = train(config, tmp_path / "whole"), tmp_path / "part", []

    def note(found):
        if "loss" in found and "warmstart" in found:
            steps.append(found["warmstart"])

    for step in range(1, 4):
        train(config if not steps else None, run, resume=bool(steps), on_update=note, stop=lambda: True)
        assert [path.name for path in (run / "checkpoints").iterdir()] == [f"warmstart-{step:05d}"]
    train(None, run, resume=True, on_update=note)
    assert steps == [1, 2, 3, 4]
    assert torch.equal(weights(whole), weights(run))
    assert metrics(whole) == metrics(run)
    told = [json.loads((path / "warmstart.json").read_text()) for path in (whole, run)]
    assert told[0]["loss"] == told[1]["loss"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["update-00000", "update-00001"]


def test_a_warm_start_goes_on_with_the_settings_it_was_begun_with(tmp_path):
    run = train(small(), tmp_path / "run", stop=lambda: True)
    file = run / "config.toml"
    file.write_text(file.read_text().replace("lr = 0.02", "lr = 0.03"))
    with pytest.raises(UsageError, match=r"warmstart.lr was 0.02, is 0.03"):
        train(None, run, resume=True)
    file.write_text(file.read_text().replace("lr = 0.03", "lr = 0.02"))
    (run / "checkpoints" / "warmstart-00001" / "optimiser.pt").write_bytes(b"nothing")
    with pytest.raises(RunFolderError, match="warmstart-00001"):
        train(None, run, resume=True)


def test_nothing_to_imitate_is_said_at_once(tmp_path, monkeypatch):
    class Broken(Bandit):
        def reset(self, chance: int = 0) -> str:
            raise OSError("no simulator")

    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Broken)
    with pytest.raises(MulliganError, match=r"40 trials.*OSError: no simulator"):
        train(small(), tmp_path / "run")


def test_a_warm_start_alone_is_validated_once(tmp_path):
    run = train(small(run=RunConfig(updates=0, threads=1, validation_tasks=6)), tmp_path / "warm")
    (line,) = metrics(run)
    assert list(line) == ["update", *(f"validation/{name}" for name in ("p@1", "p@2", "p@3", "share_of_optimum"))]
    assert line["update"] == 0
    assert checkpoint.newest(run).name == "update-00000"
    train(None, run, resume=True)  # not twice
    assert metrics(run) == [line]


def test_a_warm_start_is_validated_on_as_many_worlds_as_there_are(tmp_path, monkeypatch):
    """3x3 with 2 mines has 36 boards, of which validation has a few, not 100."""
    monkeypatch.setattr(tasksets, "_PATIENCE", 500)
    board = TaskConfig(env="minesweeper", params={"rows": 3, "cols": 3, "mines": 2, "view": "compact", "turns": 3})
    run = RunConfig(updates=0, threads=1, validation_tasks=100)
    config = small(run=run, task=board)
    config = replace(config, warmstart=replace(config.warmstart, steps=2, trials=8, batch=8))
    (line,) = metrics(train(config, tmp_path / "warm"))
    assert 0.0 <= line["validation/p@1"] <= line["validation/p@3"] <= 1.0


def test_it_is_told_how_many_demonstrations_were_played():
    config, played = resolve("test", None, {"task.env": "bandit", "warmstart.trials": "250"}), []
    demonstrate(config, load(config.model.name).renderer, played.append)
    assert played == [100, 200]
