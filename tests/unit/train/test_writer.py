"""Training who writes a frozen player's notes: reflections alone are learned from, and what they bring about counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mulligan
from mulligan.algo.batch import PLAY, REFLECT
from mulligan.algo.build import batch_from_groups
from mulligan.app.cli.main import main
from mulligan.errors import ParameterError, UsageError
from mulligan.policy.scripted import ExpertPolicy
from mulligan.policy.writer import Advised
from mulligan.training.config import (
    AlgoConfig,
    Config,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TaskConfig,
    WarmstartConfig,
)
from mulligan.training.loop import train
from mulligan.training.rows import rows_of
from mulligan.types import Group
from small_runs import TINY, metrics, small, trial, weights

ROOT = Path(__file__).parents[3]
I_SPY = f"{ROOT / 'examples' / 'i_spy.py'}:ISpy"
PLAYER = f"{ROOT / 'tests' / 'note_readers.py'}:does_as_noted"


@pytest.fixture(autouse=True)
def trusted() -> None:
    mulligan.trust(I_SPY, PLAYER)


def writer(**sections) -> Config:
    """Two attempts at I-spy by a player that knows nothing but its note."""
    base = Config(
        run=RunConfig(updates=24, tasks=16, group=8, threads=1, player=PLAYER, save_trials_every=30),
        task=TaskConfig(env=I_SPY, params={"letters": 3}),
        trial=trial(episodes=2, memory="reflection", style="bare", max_tokens=1, reflection_tokens=1),
        model=ModelConfig(name="nano:hidden=32,layers=1"),
        warmstart=WarmstartConfig(steps=0),
        algo=AlgoConfig(estimator="reinforce_pp", baseline="group", gamma_traj=1.0, invalid_penalty=0.0),
        optim=OptimConfig(lr=5e-3, lr_end=1.0, warmup=1, epochs=4, minibatches=2),
    )
    return replace(base, **sections)


@pytest.mark.slow
def test_a_writer_learns_to_note_what_a_frozen_player_needs(tmp_path):
    """The player says a, or the letter of its note: without help it has a third of both attempts."""
    run = train(writer(), tmp_path / "run")
    second = [line["p@2"] for line in metrics(run)]
    assert second[0] < 0.55
    assert max(second[-5:]) > 0.75
    advised = mulligan.evaluate(I_SPY, run, tasks=32, room=False, controls="removed", episodes=2)
    assert advised.policy == f"does_as_noted, advised by {run}"
    assert advised.p[1] > 0.7
    assert advised.controls["removed"].p[1] == advised.p[0]


def test_a_trained_writer_advises_whoever_plays(tmp_path):
    """A run as a writer gives its notes, and not its player's moves."""
    run = train(writer(run=replace(writer().run, updates=1)), tmp_path / "run")
    result = mulligan.evaluate("bandit", "random", tasks=2, room=False, controls=(), memory="reflection", writer=run)
    assert result.policy == f"random, advised by {run}"
    notes = [trial.episodes[0].reflection for trial in result.trials if len(trial.episodes) > 1]
    assert all(note.completion.ids is not None for note in notes)
    assert all(turn.reply.ids is None for trial in result.trials for turn in trial.episodes[0].turns)


def test_only_reflections_are_learned_from(tmp_path):
    """The rows of an update hold the sampled tokens of notes alone, in the order of the batch's steps."""
    run = train(writer(run=replace(writer().run, updates=1, save_trials_every=1)), tmp_path / "run")
    trials = mulligan.load_trials(run, "update-00001")
    group = Group(trials[0].task, tuple(trials))
    batch = batch_from_groups([group], gamma_step=1.0, gamma_traj=1.0).of_phase(REFLECT)
    rows, steps = rows_of(trials, reflections_alone=True)
    notes = [trial.episodes[0].reflection.completion for trial in trials if len(trial.episodes) > 1]
    assert steps == len(batch) == len(notes) > 0
    assert [span.ids for row in rows for span in row.spans] == [note.ids for note in notes]
    assert [tuple(row.ids) for row in rows] == [note.prompt_ids + note.ids for note in notes]
    # What a note was worth: the return of the attempt after it.
    assert batch.value.tolist() == [trial.episodes[1].reward for trial in trials if len(trial.episodes) > 1]


def test_the_steps_of_a_phase_keep_their_values():
    task = mulligan.make_task("bandit", params={"arms": 2})
    played = mulligan.run_trial_sync(task, lambda messages: "<action>1</action>", episodes=3, stop="never")
    batch = batch_from_groups([Group(task, (played,))], gamma_step=1.0, gamma_traj=0.5)
    plays, notes = batch.of_phase(PLAY), batch.of_phase(REFLECT)
    assert len(plays) + len(notes) == len(batch)
    assert np.array_equal(notes.value, batch.value[batch.phase == REFLECT])
    assert notes.source == batch.source


def test_a_scripted_writer_sees_what_the_player_does():
    """The bandit's expert advises a random player, whose moves stay its own."""
    task = mulligan.make_task("bandit", seed=3, params={"arms": 4})
    advised = Advised(mulligan.players.player_from("random"), ExpertPolicy(1.0, 1.0))
    own = mulligan.run_trial_sync(task, advised.player, episodes=2, stop="never", memory="reflection", seed=5)
    played = mulligan.run_trial_sync(task, advised, episodes=2, stop="never", memory="reflection", seed=5)
    replies = [[turn.reply.text for turn in episode.turns] for episode in played.episodes]
    assert replies[0] == [turn.reply.text for turn in own.episodes[0].turns]
    note = played.episodes[0].reflection
    assert note is not None
    assert note.valid
    assert note.text in played.episodes[1].opening[-1]["content"]


def test_the_player_is_frozen(tmp_path):
    """A run plays for the run that advises it, and its weights are what they were; the writer's have changed."""
    player = train(small(), tmp_path / "player")
    before = weights(player)
    notes = trial(episodes=3, memory="both", style="bare", max_tokens=2, reflection_tokens=3)
    config = small(trial=notes, model=ModelConfig(name=TINY), warmstart=WarmstartConfig(steps=0))
    config = replace(config, run=replace(config.run, player=str(player), updates=1))
    run = train(config, tmp_path / "writer")
    assert weights(player).equal(before)
    assert not weights(run).equal(before)


def test_a_player_is_found_from_anywhere_and_stays_as_it_was(tmp_path, monkeypatch):
    """Named with its whole path and its checkpoint, so that training it further changes nothing."""
    monkeypatch.chdir(tmp_path)
    train(small(), "player")
    notes = trial(episodes=3, memory="reflection", style="bare", max_tokens=2, reflection_tokens=3)
    config = small(trial=notes, warmstart=WarmstartConfig(steps=0))
    run = train(replace(config, run=replace(config.run, player="player", updates=1)), "writer")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = mulligan.evaluate("bandit", tmp_path / run, params={"arms": 2}, tasks=1, room=False, controls=())
    assert result.policy.startswith(f"{tmp_path}/player@2, advised by")
    (tmp_path / "player" / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"trained for the player .*/player@2 \(run.player\), which is not there"):
        mulligan.evaluate("bandit", tmp_path / run, tasks=1)


def test_a_server_that_only_a_folder_names_as_its_player_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    run = train(small(), tmp_path / "run")
    file = run / "config.toml"
    file.write_text(file.read_text().replace('player = ""', 'player = "endpoint:X"'))
    with pytest.raises(UsageError, match="endpoint:X is a server's model that a run folder names, and you do not"):
        mulligan.evaluate("bandit", run, tasks=1)


def test_a_writer_that_counts_no_tokens_does_not_crowd_out_the_player(tmp_path):
    """Memory leaves room for an episode as long as the longest so far, whoever wrote what it shows."""
    run = train(small(), tmp_path / "run")
    task = mulligan.make_task("bandit", params={"arms": 2, "turns": 6})
    options = {
        "episodes": 12,
        "stop": "never",
        "memory": "both",
        "style": "bare",
        "memory_tokens": 100_000,
        "reflection_tokens": 8,
    }
    player = mulligan.players.player_from(str(run), context=150)
    played = mulligan.run_trial_sync(task, Advised(player, ExpertPolicy(1.0, 1.0)), **options)
    assert "context_full" not in [episode.stop.value for episode in played.episodes]


def test_a_policy_with_a_writer_of_its_own_is_no_advised_one():
    class Logging:
        name, writer = "logging", open

        def start(self, task, seed):
            return mulligan.players.player_from("random").start(task, seed)

    assert not mulligan.run_trial_sync(mulligan.make_task("bandit"), Logging(), memory="reflection").failed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trial": trial(episodes=3, memory="history")}, r"needs trial.episodes >= 2 and trial.memory = reflection"),
        ({"trial": trial(episodes=1, memory="reflection")}, r"\(got 1 and reflection\)"),
        ({"algo": AlgoConfig(estimator="ppo")}, "needs an estimator without a critic"),
        ({"run": RunConfig(player="random", random_trials=0.5)}, "random_trials must be 0 where run.player plays"),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_line(changes, words, tmp_path):
    with pytest.raises(ParameterError, match=words):
        train(writer(**changes), tmp_path / "run")


@pytest.mark.parametrize("words", [["--train", "reflection"], ["--train", "all", "--player", "random"]])
def test_training_reflections_needs_somebody_who_plays(words, capsys):
    with pytest.raises(SystemExit):
        main(["train", "bandit", *words])
    assert (
        "--train reflection and --player NAME, who plays and is not trained, belong together" in capsys.readouterr().err
    )


def test_a_writer_whose_notes_nobody_is_shown_is_refused():
    with pytest.raises(UsageError, match=r"a writer needs a memory that shows reflections: .* \(got history\)"):
        mulligan.evaluate("bandit", "random", writer="expert", memory="history", tasks=4)
