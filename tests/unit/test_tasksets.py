"""Frozen task sets: the same every time, and no evaluation world in training."""

from __future__ import annotations

import itertools

import pytest

from mulligan.errors import ParameterError, UnknownName
from mulligan.rollout import tasksets
from mulligan.rollout.tasksets import belongs, stream, tasks_of, world_key
from scripted_play import task_set


@pytest.fixture
def impatient(monkeypatch):
    """A set counts as exhausted after 500 seeds without a new world."""
    monkeypatch.setattr(tasksets, "_PATIENCE", 500)


def worlds(env: str, count: int, seed_set: str, **params: object) -> set[str]:
    return {world_key(task) for task in task_set(env, count, seed_set, **params)}  # type: ignore[misc]


def test_sets_are_frozen():
    assert task_set("minesweeper", 20) == task_set("minesweeper", 50)[:20]
    assert [task.seed for task in task_set("bandit", 3)] == [3_000_000_000, 3_000_000_001, 3_000_000_002]


def test_small_worlds_are_split_by_content_not_by_seed():
    """4x5 with 3 mines has only 1,140 boards: by seeds alone nearly every test board would be trained on."""
    size = {"rows": 4, "cols": 5, "mines": 3}
    test = worlds("minesweeper", 300, "eval", **size)
    validation = worlds("minesweeper", 80, "validation", **size)
    training = {world_key(task) for task in itertools.islice(stream("minesweeper", "train", size), 3_000) if task}
    assert len(test) > 100  # of 294 in all: boards that are mirror images of each other are one world
    assert len(validation) > 10
    assert len(training) > 100
    assert not test & validation
    assert not test & training
    assert not validation & training


def test_a_small_set_gives_all_it_has_where_fewer_will_do(impatient):
    size = {"rows": 3, "cols": 3, "mines": 2}
    few = tasks_of("minesweeper", 100, "validation", size, or_fewer=True)
    assert 0 < len(few) < 36  # C(9, 2) boards in all
    assert few == task_set("minesweeper", len(few), "validation", **size)
    assert few == task_set("minesweeper", 100, "validation", **size)
    with pytest.raises(ParameterError, match="only about "):
        task_set("minesweeper", 100, "eval", **size)


def test_every_world_belongs_to_exactly_one_set():
    for task in itertools.islice(stream("minesweeper", "train", {}), 300):
        if task is not None:
            assert [belongs(task, name) for name in ("train", "validation", "eval")] == [True, False, False]


def test_a_set_that_runs_out_says_so(impatient):
    with pytest.raises(ParameterError, match="different tasks"):
        task_set("minesweeper", 50, rows=2, cols=3, mines=1)
    with pytest.raises(ParameterError, match="different tasks"):  # at once, however many are asked for
        task_set("minesweeper", 10**9, rows=2, cols=3, mines=1)


def test_bad_requests():
    with pytest.raises(UnknownName, match="'eval'"):
        task_set("minesweeper", 5, "evall")
    with pytest.raises(ParameterError, match="tasks"):
        task_set("minesweeper", 0)
