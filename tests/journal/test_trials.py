"""Trials and evaluations with a journal: what one trial learned, later ones are shown."""

from __future__ import annotations

import pytest

import mulligan
from e2e.command import call
from mulligan.errors import RunFolderError, UsageError

ENV = "bandit"
NOTE = "plan: <action>2</action> pays"


class Player:
    """Always answers with the same arm, and notes what it is told; keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def __call__(self, messages):
        self.requests.append(messages[-1]["content"])
        if "Write a short reflection" in self.requests[-1]:
            return f"<reflection>\n{NOTE}\napplies: to bandits\n</reflection>"
        return "<action>1</action>"

    @property
    def openings(self) -> list[str]:
        return [text for text in self.requests if "begins." in text]


@pytest.fixture
def journal(tmp_path):
    with mulligan.Journal(f"sqlite:///{tmp_path}/agent.db", hold_out=0.0) as opened:
        yield opened


def test_a_trial_reads_and_writes_the_journal(journal):
    player = Player()
    first = mulligan.run_trial_sync(mulligan.make_task(ENV), player, journal=journal, episodes=2, stop="never")
    assert [episode.reflection is not None for episode in first.episodes] == [True, True]
    assert not any("<notes>" in text for text in player.openings)
    assert "applies: when this holds" in player.requests[-1]  # what is kept must say where it ends
    assert "applies: when this holds" not in player.requests[1]
    player.requests.clear()
    mulligan.run_trial_sync(mulligan.make_task(ENV, seed=1), player, journal=journal, episodes=2, stop="never")
    assert len(player.openings) == 2
    for text in player.openings:
        assert "1. plan: 2 pays | applies: to bandits" in text  # without the tags, which would be refused as code
        assert text.index("</notes>") < text.index("begins.")
    records = list(journal.episodes(first.task.task_class))
    assert [record.state for record in records] == ["finished", "finished"]
    assert records[1].notes_shown == records[0].notes_written
    assert records[0].reward == max(episode.reward for episode in first.episodes)
    assert records[0].agent == "Player"


def test_the_journal_may_have_a_writer_of_its_own(tmp_path):
    def writer(messages):
        return "<reflection>plan: open the corner</reflection>"

    player = Player()
    with mulligan.Journal(tmp_path / "agent.db", hold_out=0.0, reflect=writer) as journal:
        trial = mulligan.run_trial_sync(mulligan.make_task(ENV), player, journal=journal, episodes=1)
        assert trial.episodes[-1].reflection is None
        assert [note.fields for note in journal.notes()] == [{"plan": "open the corner"}]


def test_without_a_journal_nothing_is_asked_after_the_last_episode():
    player = Player()
    trial = mulligan.run_trial_sync(mulligan.make_task(ENV), player, episodes=1)
    assert trial.episodes[-1].reflection is None
    assert len(player.requests) == len(trial.episodes[0].turns)


def test_a_trial_that_failed_outside_the_agent_teaches_nothing(journal):
    def unreachable(messages):
        raise ConnectionError("down")

    with pytest.warns(UserWarning, match="down"):
        mulligan.run_trial_sync(mulligan.make_task(ENV), unreachable, journal=journal)
    assert [record.state for record in journal.episodes()] == ["abandoned"]


def test_an_evaluation_shows_notes_to_its_main_arm_alone(journal, tmp_path):
    player = Player()
    options = {"tasks": 3, "concurrency": 1, "episodes": 2, "room": False, "stop": "never"}
    mulligan.evaluate(ENV, player, journal=journal, run=tmp_path / "run", controls=["independent"], **options)
    with_notes = [text for text in player.requests if "<notes>" in text and "reflection" not in text]
    assert len(with_notes) == 4  # two trials of the main arm after the first one, and none of the control's
    assert len(list(journal.episodes())) == 3
    with pytest.raises(RunFolderError, match="was begun with a journal; continue it the same way"):
        mulligan.evaluate(ENV, player, run=tmp_path / "run", resume=True, controls=["independent"], **options)


def test_memory_none_and_a_journal_exclude_each_other(journal):
    with pytest.raises(UsageError, match="memory 'none' lets nothing cross"):
        mulligan.run_trial_sync(mulligan.make_task(ENV), Player(), journal=journal, memory="none")
    with pytest.raises(UsageError, match="memory 'none' lets nothing cross"):
        mulligan.evaluate(ENV, Player(), journal=journal, style="react", tasks=1)


def test_the_command_takes_a_journal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["eval", ENV, "--policy", "random", "--tasks", "3", "--controls", "off", "--no-room", "--run", "run"]
    assert call(*words, "--journal", "agent.db") == 0
    with mulligan.Journal(tmp_path / "agent.db") as journal:
        assert len(list(journal.episodes())) == 3
    assert call("eval", "--resume", "run") == 2
    assert "begun with a journal; continue it the same way (--journal DB)" in capsys.readouterr().err
    assert call("eval", "--resume", "run", "--journal", "agent.db") == 0
