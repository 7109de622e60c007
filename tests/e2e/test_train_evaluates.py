"""`mulligan train` with `run.evaluate`: a run ends with its evaluations, and does not play them twice."""

from __future__ import annotations

import json

import pytest

from mulligan.app.cli import ending, main

WORDS = ("--run.updates", "1", "--env.opponent", "always-bet,always-pass", "--trial.max-tokens", "2")
EVALUATE = "opponent=always-bet,always-pass; opponent=cfr"


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([*words])
    return int(stopped.value.code or 0)


def test_a_run_ends_with_its_evaluations(folder, capsys, monkeypatch):
    monkeypatch.setattr(ending, "TASKS", 8)
    assert call("train", "kuhn", "--preset", "test", "--run", "mine", "--run.evaluate", EVALUATE, *WORDS) == 0
    text = capsys.readouterr().out
    first, second = text.index("kuhn (opponent=always-bet,always-pass): 8 tasks"), text.index("kuhn (opponent=cfr)")
    assert first < text.index("best without memory (exact)") < second < text.index("Run: mine")
    kept = folder / "mine" / "evaluation-opponent-cfr"
    assert json.loads((kept / "result.json").read_text())["params"]["opponent"] == "cfr"
    written = {path: path.stat().st_mtime_ns for path in (kept / "trials").iterdir()}
    assert call("train", "--resume", "mine", "--json") == 0
    assert json.loads(capsys.readouterr().out)["evaluations"]["opponent=cfr"]["trials"] == 8
    assert written == {path: path.stat().st_mtime_ns for path in (kept / "trials").iterdir()}
    # A run that was trained longer is another agent.
    assert call("train", "--resume", "mine", "--run.updates", "2") == 0
    assert (folder / "mine" / "evaluation-opponent-cfr-update-2" / "result.json").is_file()
    assert written == {path: path.stat().st_mtime_ns for path in (kept / "trials").iterdir()}


def test_what_cannot_be_evaluated_is_said_before_training(folder, capsys):
    for text, said in (("opponent", "NAME=VALUE"), ("opponent=nobody", "nobody")):
        assert call("train", "kuhn", "--preset", "test", "--run", "mine", "--run.evaluate", text, *WORDS) == 2
        assert said in capsys.readouterr().err
    assert not (folder / "mine").exists()
