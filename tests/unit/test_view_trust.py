"""What pages and commands open of a folder that may be somebody else's: nothing that only the folder names."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from tests.e2e.command import call

from mulligan.envs.registry import make_task
from mulligan.errors import RunFolderError, UsageError
from mulligan.report.mirrors import send
from mulligan.report.run import RunFolder
from mulligan.training.resolve import resolve, to_tree
from mulligan.view.models import Models
from mulligan.view.runs import card
from mulligan.view.tags import set_tags, tags_of
from mulligan.view.worlds import world_of


def training(folder: Path, name: str, **backend: str) -> Path:
    run = RunFolder.create(
        folder / "run", {"kind": "train", "model": {"name": name}, "backend": {"kind": "local", **backend}}
    )
    return run.path


@pytest.mark.parametrize("name", ["hf:gpt2", "gpt2", "MODEL"])
def test_a_model_outside_the_folder_is_not_loaded_for_a_page(tmp_path, name):
    private = tmp_path / "private"
    private.mkdir()
    run = training(tmp_path / "shown", str(private) if name == "MODEL" else name)
    with pytest.raises(UsageError, match="--trust"):
        Models(run.parent)._check_start(run, 5)


def test_a_server_that_a_run_names_is_not_asked_for_a_page(tmp_path):
    run = training(tmp_path / "shown", "nano", kind="tinker", url="http://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"http://127\.0\.0\.1:9.*--trust"):
        Models(run.parent)._check_start(run, 5)


def test_weights_behind_a_link_are_not_loaded_for_a_page(tmp_path):
    run = training(tmp_path / "shown", "nano")
    (tmp_path / "elsewhere.safetensors").write_bytes(b"")
    (run / "checkpoints" / "update-00000").mkdir(parents=True)
    (run / "checkpoints" / "update-00000" / "weights.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(RunFolderError, match="link"):
        Models(run.parent)._check_start(run, 5)
    (run / "checkpoints" / "update-00000" / "weights.safetensors").unlink()
    Models(run.parent)._check_start(run, 5)  # all of it lies there


def test_a_file_that_a_task_names_is_not_opened_for_a_page(tmp_path, monkeypatch):
    """Also without a slash: a file in the folder that the viewer was started in."""
    monkeypatch.chdir(tmp_path)
    Path("levels.txt").write_text("#######\n# #   #\n# $@. #\n#   $.#\n#######\n")
    named = make_task("sokoban", levels="levels.txt")
    with pytest.raises(UsageError, match=r"levels=levels\.txt.*--trust"):
        world_of(named)
    assert world_of(make_task("sokoban")).reset()


def test_a_run_is_not_mirrored_through_a_link(tmp_path):
    run = training(tmp_path / "runs", "nano")
    (tmp_path / "elsewhere").mkdir()
    (run / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFolderError, match="link"):
        send(run, tensorboard=True)


def test_a_damaged_file_of_tags_is_kept(tmp_path):
    training(tmp_path, "nano")
    (tmp_path / "tags.json").write_text('{"run": ["x"],}')
    with pytest.raises(RunFolderError, match="tags"):
        set_tags(tmp_path, "run", "y")
    assert (tmp_path / "tags.json").read_text() == '{"run": ["x"],}'
    (tmp_path / "tags.json").unlink()
    assert set_tags(tmp_path, "run", "y, z") == tags_of(tmp_path)["run"] == ["y", "z"]


def test_the_best_agent_of_a_population_is_the_present_one(tmp_path):
    config = resolve("test", None, {"population.agents": "2"})
    run = RunFolder.create(tmp_path / "run", {"kind": "population", **to_tree(config)}).path
    for best in (0, 1):
        (run / "population.json").write_text(json.dumps({"agents": 2, "best": best, "round": best}))
        assert f"agent {best}" in card(tmp_path, "run")["headline"]


def test_reading_a_journal_begins_none_in_another_programs_database(tmp_path, capsys):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    assert call("journal", "report", "--journal", str(path)) == 2
    assert "no journal" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_options_that_an_action_would_ignore_are_refused(tmp_path, capsys):
    journal = str(tmp_path / "agent.db")
    assert call("journal", "add", "plan=look first", "--class", "refund", "--journal", journal) == 0
    for words in (["export", str(tmp_path / "x.jsonl"), "--class", "refund"], ["notes", "--person", "p"]):
        assert call("journal", *words, "--journal", journal) == 2
        assert "does not heed" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()
    assert call("journal", "add", "task_class=x", "--class", "refund", "--journal", journal) == 2
    assert "part of a note" in capsys.readouterr().err


def test_a_report_of_no_trials_is_refused(tmp_path, capsys):
    assert call("report", str(tmp_path), "--trials", "0") == 2
    assert "--trials must be >= 1 (got 0)" in capsys.readouterr().err
