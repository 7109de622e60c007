"""What the note changed: chances of moves with a memory, without it, with another trial's; and what is refused."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.small_runs import small, trial

import mulligan
from mulligan.algo.advantage import ESTIMATORS
from mulligan.algo.batch import StepBatch
from mulligan.errors import RunFolderError, UsageError
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder
from mulligan.training.config import TaskConfig
from mulligan.training.loop import train
from mulligan.trusted import trust
from mulligan.types import Completion
from mulligan.view.export import answers, question
from mulligan.view.library import Library
from mulligan.view.noted import moved
from mulligan.view.tokens import pieces

ESTIMATED: list[tuple[StepBatch, list[float]]] = []
"""Batch and advantages of each update of the run."""


def recorded(estimate):
    def recording(batch, options, history):
        advantages = estimate(batch, options, history)
        ESTIMATED.append((batch, advantages.values.tolist()))
        return advantages

    return recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained for seconds, and its evaluation."""
    folder = tmp_path_factory.mktemp("noted") / "runs"
    params = {"rows": 4, "cols": 4, "mines": 2, "view": "compact", "turns": 4}
    settings = trial(episodes=3, memory="history", style="bare", max_tokens=1, reflection_tokens=3)
    recording = pytest.MonkeyPatch()
    recording.setattr("mulligan.training.loop.ESTIMATORS", {name: recorded(each) for name, each in ESTIMATORS.items()})
    train(small(task=TaskConfig(env="minesweeper", params=params), trial=settings), folder / "trained")
    recording.undo()
    mulligan.evaluate("minesweeper", str(folder / "trained"), tasks=12, params=params, run=folder / "evaluated")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))


def asked(folder: Path, run: str, arm: str, place: int, episode: int, turn: int) -> dict:
    words = {"run": run, "arm": arm, "place": place, "episode": episode, "turn": turn}
    return Library(folder, patience=60.0).answer("noted", {name: str(value) for name, value in words.items()})


def later_attempts(folder: Path, run: str, arm: str) -> list[tuple[int, int, int]]:
    """Place, attempt and turn, from 1, of what was played with a memory by a reply that is a move."""
    return [
        (place, episode.index + 1, number + 1)
        for place, each in sorted(RunFolder.open(folder / run).trials(arm).items())
        for episode in each.episodes[1:]
        for number, turn in enumerate(episode.turns)
        if turn.valid
    ]


@pytest.mark.parametrize(("run", "arm"), [("evaluated", "main"), ("trained", "update-00002")])
def test_the_chance_of_what_was_played_is_that_with_which_it_was_sampled(folder, run, arm):
    """The engine's own log-probabilities, which stand in the trial."""
    trials = RunFolder.open(folder / run).trials(arm)
    moments = later_attempts(folder, run, arm)
    assert len(moments) > 3, "some attempts remember something"
    for place, episode, turn in moments[:6]:
        about = asked(folder, run, arm, place, episode, turn)
        sampled = trials[place].episodes[episode - 1].turns[turn - 1].reply
        chance = about["chances"]["own"][about["moves"].index(about["played"])]
        assert chance == pytest.approx(math.exp(sum(sampled.logprobs)), rel=1e-3)
        assert sum(about["chances"]["none"]) <= 1 + 1e-6
        assert about["memories"]["own"] != about["memories"]["foreign"]
        assert about["memories"]["own"] in trials[place].episodes[episode - 1].opening[-1]["content"]


def test_tokens_have_their_probabilities_and_the_advantages_that_training_gave_them(folder):
    batch, advantages = ESTIMATED[-1]
    library = Library(folder, patience=60.0)
    trials = RunFolder.open(folder / "trained").trials("update-00002")
    learned = 0
    for place in range(4):
        about = library.answer("tokens", {"run": "trained", "arm": "update-00002", "place": str(place)})
        assert about["whyNoAdvantage"] == ""
        shown = [turn for episode in about["episodes"] for turn in episode["turns"]]
        replies = [turn.reply for episode in trials[place].episodes for turn in episode.turns]
        for turn, reply in zip(shown, replies, strict=True):
            assert "".join(text for text, _ in turn["tokens"]) == reply.text
            assert [chance for _, chance in turn["tokens"]] == pytest.approx(
                [math.exp(each) for each in reply.logprobs]
            )
        of_place = [value for number, value in zip(batch.trial, advantages, strict=True) if number == place]
        steps = [each for episode in about["episodes"] for each in (*episode["turns"], episode["note"]) if each]
        assert [each["advantage"] for each in steps if each["advantage"] is not None] == pytest.approx(of_place)
        learned += sum(value != 0 for value in of_place)
    assert learned, "some steps had an advantage"
    evaluated = library.answer("tokens", {"run": "evaluated", "arm": "main", "place": "0"})
    assert "Only what training learned" in evaluated["whyNoAdvantage"]
    validation = replace(trials[0], episodes=tuple(map(without_tokens, trials[0].episodes)))
    RunFolder.open(folder / "evaluated").write_trials("bare", [validation])
    with pytest.raises(UsageError, match="no tokens are kept"):
        library.answer("tokens", {"run": "evaluated", "arm": "bare", "place": "0"})


def without_tokens(episode):
    turns = [replace(turn, reply=replace(turn.reply, ids=None, logprobs=None)) for turn in episode.turns]
    return replace(episode, turns=tuple(turns))


def test_characters_of_several_tokens_stand_together():
    """Where a token ends within a character, it is shown with the next one; their probabilities are multiplied."""

    class Bytes:
        @staticmethod
        def decode_reply(ids):
            return bytes(ids).decode("utf-8", "replace")

    ids = tuple("a\u00e9b".encode())  # é has two bytes
    reply = Completion("a\u00e9b", ids=ids, logprobs=tuple(map(math.log, (0.5, 0.5, 0.4, 1.0))))
    assert pieces(Bytes(), reply) == [
        ("a", pytest.approx(0.5)),
        ("\u00e9", pytest.approx(0.2)),
        ("b", pytest.approx(1.0)),
    ]


def test_how_much_moved_counts_what_is_no_move_too():
    assert moved((0.7, 0.2), (0.4, 0.2)) == pytest.approx(0.3)  # (.3 + 0 + |.9 - .6|) / 2
    assert moved((0.5, 0.5), (0.5, 0.5)) == 0


def test_pages_without_a_server_have_it_for_trials_that_were_solved_later(folder):
    """For the turns of the attempt that solved the task, as far as they fit; the same answers as a live page's."""
    library = Library(folder, patience=60.0)
    still = dict(answers(library, 100, 2, ["evaluated"]))
    listed = still[question("run", run="evaluated")]["noted"]
    trials = RunFolder.open(folder / "evaluated").trials("main")
    later = [place for place, each in sorted(trials.items()) if each.solved_at] + [
        place for place, each in sorted(trials.items()) if each.solved_at is None
    ]
    assert list(dict.fromkeys(each["place"] for each in listed)) == later[:2]
    for place in later[:2]:
        attempt = (trials[place].solved_at or 1) + 1
        turns = range(1, len(trials[place].episodes[attempt - 1].turns) + 1)
        assert still[question("trial", run="evaluated", arm="main", place=place)]["noted"] == [
            [attempt, turn] for turn in turns
        ]
        for turn in turns:
            where = {"run": "evaluated", "arm": "main", "place": place, "episode": attempt, "turn": turn}
            live = asked(folder, "evaluated", "main", place, attempt, turn)
            answer = still[question("noted", **where)]
            assert {key: answer[key] for key in ("moves", "memories", "played")} == {
                key: live[key] for key in ("moves", "memories", "played")
            }
            for kind, chances in live["chances"].items():
                assert answer["chances"][kind] == pytest.approx(chances, abs=1e-6)
            assert answer["shown"] == [*turns]
            moved_there = next(each["moved"] for each in listed if (each["place"], each["turn"]) == (place, turn))
            assert moved_there == pytest.approx(live["moved"]["none"], abs=1e-6)


def test_pages_without_a_server_load_no_model_that_a_live_page_would_refuse(folder, tmp_path, monkeypatch):
    loaded: list[str] = []
    monkeypatch.setattr("mulligan.players.player_from", lambda name, **_: loaded.append(name))
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(folder / "evaluated", alone / "evaluated")
    for place, notes in ((alone, 4), (folder, 0)):
        still = dict(answers(Library(place, patience=60.0), 100, notes))
        assert not any(key.startswith("noted?") for key in still)
        assert still[question("run", run="evaluated")]["noted"] == []
    assert loaded == []


def test_where_nothing_was_remembered_it_says_so(folder):
    with pytest.raises(UsageError, match="remembered nothing"):
        asked(folder, "evaluated", "main", 0, 1, 1)
    with pytest.raises(UsageError, match="attempts"):
        asked(folder, "evaluated", "main", 0, 9, 1)


def test_only_models_of_the_folder_are_loaded(folder, tmp_path):
    place, episode, turn = later_attempts(folder, "evaluated", "main")[0]
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(folder / "evaluated", alone / "evaluated")
    with pytest.raises(UsageError, match="lies outside alone"):
        asked(alone, "evaluated", "main", place, episode, turn)
    trust("*")
    assert asked(alone, "evaluated", "main", place, episode, turn)["player"] == "trained"


def test_a_model_that_a_run_names_by_a_path_or_reaches_by_a_link_is_not_loaded(folder, tmp_path):
    place, episode, turn = later_attempts(folder, "evaluated", "main")[0]
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    config = copied / "evaluated" / "config.toml"
    config.write_text(config.read_text().replace(str(folder / "trained"), "trained"))  # as where both were moved
    assert asked(copied, "evaluated", "main", place, episode, turn)["moves"]
    [*_, newest] = sorted((copied / "trained" / "checkpoints").iterdir())
    weights = newest / "weights.safetensors"
    weights.unlink()
    weights.symlink_to(folder / "trained" / "checkpoints" / newest.name / "weights.safetensors")
    with pytest.raises(RunFolderError, match="is a link"):
        asked(copied, "evaluated", "main", place, episode, turn)
    weights.unlink()
    shutil.copy(folder / "trained" / "checkpoints" / newest.name / "weights.safetensors", weights)
    settings = copied / "trained" / "config.toml"
    settings.write_text(settings.read_text().replace('name = "nano:hidden=32,layers=1"', 'name = "hf:/etc"'))
    with pytest.raises(UsageError, match="--trust"):
        asked(copied, "evaluated", "main", place, episode, turn)


def test_worlds_that_a_task_alone_names_are_not_built(tmp_path):
    """Neither Python files nor level files; what is played by a program has no chances."""
    task = mulligan.make_task("minesweeper", 1, params={"rows": 4, "cols": 5, "mines": 4})
    played = mulligan.run_trial_sync(task, ExpertPolicy(0.3, 0.3), episodes=3, memory="reflection")
    run = RunFolder.create(tmp_path / "r", {"kind": "eval", "policy": "expert", "env": "minesweeper", "tasks": 1})
    run.write_trials("main", [played])
    with pytest.raises(UsageError, match="no training run"):
        asked(tmp_path, "r", "main", 0, 2, 1)
    from mulligan.view.worlds import world_of

    for env, params, words in (
        ("/nowhere/evil.py:Evil", (), "not an environment"),
        ("gymnasium:FrozenLake-v1", (), "not an environment"),
        ("sokoban", (("levels", "/etc/passwd"),), "names a file"),
        ("tictactoe", (("opponent", "endpoint:model"),), "is a policy"),
    ):
        with pytest.raises(UsageError, match=words):
            world_of(replace(task, env=env, params=params))
