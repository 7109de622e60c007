"""Where a run finds the run it started from, also after both were moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.errors import RunFolderError
from mulligan.training.checkpoint import as_kept, find_start
from mulligan.training.config import Config, ModelConfig


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def run_at(path: str | Path) -> Path:
    Path(path).mkdir(parents=True)
    (Path(path) / "config.toml").write_text("")
    return Path(path)


def kept(name: str, run: str) -> str:
    return as_kept(Config(model=ModelConfig(name=name)), Path(run)).model.name


def test_a_run_beside_is_named_as_it_is_seen_from_there(folder):
    run_at("runs/warm")
    assert kept("runs/warm", "runs/meta") == "../warm"
    assert kept(str(folder / "work" / "runs" / "warm"), "runs/meta") == "../warm"
    assert kept("runs/warm/", "./runs/../runs/meta") == "../warm"


def test_a_run_elsewhere_is_named_so_that_it_is_found_from_anywhere(folder):
    run_at("runs/warm")
    assert kept("runs/warm", "other/meta") == str(folder / "work" / "runs" / "warm")


@pytest.mark.parametrize("name", ["nano", "nano:hidden=32,layers=1", "smollm2", "hf:some/model", "hf:/data/model"])
def test_models_keep_their_names_and_are_no_runs(name):
    run_at("runs/model")  # of the same name as the last part of some
    run = run_at("runs/meta")
    assert kept(name, "runs/meta") == name
    assert find_start(name, run) is None


@pytest.mark.parametrize("name", ["nano", "smollm2"])
def test_a_run_called_like_a_model_is_not_taken_for_it(name):
    run = run_at(name)
    assert kept(name, "b") == name
    assert find_start(name, run) is None
    assert find_start(name, run_at("b")) is None


def test_a_run_is_not_its_own_start():
    assert find_start("mine", run_at("mine")) is None


def test_a_run_behind_a_link_is_found_from_there(folder):
    run_at("runs/warm")
    run_at("scratch/meta")
    Path("runs/meta").symlink_to(folder / "work" / "scratch" / "meta")
    name = kept("runs/warm", "runs/meta")
    start = find_start(name, Path("runs/meta"))
    assert start is not None
    assert start.resolve() == folder / "work" / "runs" / "warm"


def test_what_lies_beside_is_found_after_a_move_of_both(folder, monkeypatch):
    run_at("runs/warm")
    run_at("runs/meta")
    Path("runs").rename(folder / "elsewhere")
    monkeypatch.chdir(folder)
    start = find_start("../warm", Path("elsewhere/meta"))
    assert start is not None
    assert start.resolve() == folder / "elsewhere" / "warm"


def test_what_the_run_names_comes_before_what_is_seen_from_here(folder):
    """Two sweeps have warm starts of the same name: a command typed inside one of them may be about the other."""
    run_at(folder / "warm")  # ../warm from here
    own = run_at("runs/warm")
    start = find_start("../warm", run_at("runs/meta"))
    assert start is not None
    assert start.resolve() == own.resolve()


def test_a_path_that_is_still_there_is_taken(folder):
    first, run = run_at(folder / "sweep" / "warm"), run_at("copied/meta")
    run_at("copied/warm")
    assert find_start(str(first), run) == first


def test_a_run_never_starts_from_itself():
    run = run_at("runs/best")
    with pytest.raises(RunFolderError):
        find_start("/gone/best", run)


def test_a_start_that_is_gone_is_named():
    run = run_at("runs/meta")
    run_at("runs/warm")  # of the same name: other weights
    with pytest.raises(RunFolderError, match="/gone/sweep/warm"):
        find_start("/gone/sweep/warm", run)


def test_a_name_as_seen_from_the_run_stays_though_the_same_is_seen_from_here(folder):
    run_at(folder / "warm")  # ../warm from here
    run_at("runs/warm")
    Path("runs/meta").mkdir()
    assert kept("../warm", "runs/meta") == "../warm"
