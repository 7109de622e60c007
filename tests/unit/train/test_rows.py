"""From trials to rows: the right tokens."""

from __future__ import annotations

import pytest
import torch

import mulligan
from mulligan.algo.build import batch_from_groups
from mulligan.errors import UsageError
from mulligan.models.load import load
from mulligan.policy.local import Demonstrated
from mulligan.policy.scripted import ExpertPolicy
from mulligan.training.pack import pack
from mulligan.training.rows import rows_of
from mulligan.training.step import Learner
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling
from small_updates import TINY, config, play

GUESS = "examples/my_env.py:GuessNumber"


@pytest.mark.parametrize("memory", ["none", "history", "reflection", "both"])
@pytest.mark.parametrize("env", ["minesweeper", GUESS])  # with and without a digest
@pytest.mark.parametrize("window", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_trainer_and_sampler_agree_on_every_token(memory, env, window, monkeypatch):
    _agree(memory, env, window, monkeypatch)


@pytest.mark.parametrize("env", ["minesweeper", GUESS])
def test_they_agree_under_a_window(env, monkeypatch):
    """One of the combinations above that are slow."""
    _agree("both", env, 2, monkeypatch)


def _agree(memory, env, window, monkeypatch):
    """The log-probabilities of the first pass are the sampler's: same tokens, same places, same temperature."""
    monkeypatch.chdir(__file__.partition("/tests/")[0])
    loaded = load(TINY)
    params = {"turns": 3} if env == GUESS else {"rows": 3, "cols": 3, "mines": 2, "turns": 3}
    group = play(loaded, memory=memory, env=env, params=params, window=window, temperature=0.8, trials=2)
    rows, steps = rows_of(group.trials)
    assert steps == len(batch_from_groups([group], gamma_step=1.0, gamma_traj=1.0))
    learner = Learner(loaded.model, config(trial=TrialSettings(sampling=Sampling(temperature=0.8))))
    seen = 0
    for batch in pack(rows, 2000):
        with torch.no_grad():
            scores = learner.head.score(batch, 0.8)
        torch.testing.assert_close(scores.logp, batch.logp_sampler, atol=1e-4, rtol=1e-4)
        seen += len(batch.target)
    assert seen == sum(len(turn.reply.ids) for t in group.trials for e in t.episodes for turn in e.turns) + sum(
        len(e.reflection.completion.ids) for t in group.trials for e in t.episodes if e.reflection
    )


def test_rows_follow_the_memory_mode():
    """A row is an episode where memory starts anew, the whole trial where history goes on, a turn under a window."""
    loaded = load(TINY)
    env, params = f"{__file__.partition('/tests/')[0]}/{GUESS}", {"turns": 3}
    count = {
        mode: len(rows_of(play(loaded, memory=mode, env=env, params=params, trials=2, episodes=2).trials)[0])
        for mode in ("reflection", "history", "both", "none")
    }
    assert count == {"reflection": 4, "history": 2, "both": 2, "none": 4}
    windowed = rows_of(play(loaded, memory="history", env=env, params=params, trials=1, window=1, episodes=2).trials)[0]
    assert len(windowed) == 2 * 3  # a row for each of the three turns of two episodes


def test_demonstrations_carry_the_tokens_an_agent_would_sample():
    loaded = load(TINY)
    player = Demonstrated(ExpertPolicy(0.7, 0.5), loaded.renderer, prompts.style("bare").demonstrated)
    task = mulligan.make_task("minesweeper", 3, params={"view": "compact", "rows": 4, "cols": 5, "turns": 10})
    trial = mulligan.run_trial_sync(task, player, memory="both", style="bare")
    rows, steps = rows_of([trial])
    assert steps == sum(len(episode.turns) for episode in trial.episodes) + len(trial.episodes) - 1
    for row in rows:
        for span in row.spans:
            assert row.ids[span.start : span.start + len(span.ids)] == list(span.ids)
            assert span.ids[-1] in loaded.renderer.stop_ids
            assert "<action>" not in loaded.renderer.decode_reply(span.ids)


def test_text_without_tokens_cannot_be_trained_on():
    trial = mulligan.run_trial_sync(mulligan.make_task("bandit", 0), ExpertPolicy())
    with pytest.raises(UsageError, match="without tokens"):
        rows_of([trial])


@pytest.mark.parametrize("style", ["bare", "plain"])
def test_rows_are_what_the_chat_template_says(style):
    """With and without a system message, an episode's row is the template's own rendering of its messages."""
    loaded = load(TINY)
    player = Demonstrated(ExpertPolicy(), loaded.renderer, prompts.style(style).demonstrated)
    task = mulligan.make_task("minesweeper", 3, params={"view": "compact", "rows": 3, "cols": 3})
    trial = mulligan.run_trial_sync(task, player, style=style, episodes=1)
    (row,) = rows_of([trial])[0]
    (episode,) = trial.episodes
    said = [dict(message) for message in episode.opening]
    for turn, after in zip(episode.turns, [*episode.turns[1:], None], strict=True):
        said.append({"role": "assistant", "content": turn.reply.text})
        if after is not None:
            left = task.turns - len([m for m in said if m["role"] == "assistant"])
            said.append({"role": "user", "content": prompts.turn(after.observation, "", left, prompts.style(style))})
    assert row.ids == loaded.tokenizer.apply_chat_template(said, return_dict=False)
