"""examples/minimal.py: its credit agrees with hand-worked numbers, and a short run shows what it is there to show."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SCRIPT = Path(__file__).parents[2] / "examples" / "minimal.py"


@pytest.fixture(scope="module")
def minimal():
    specification = importlib.util.spec_from_file_location("minimal", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules["minimal"] = module  # dataclasses look their module up
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["minimal"]


@pytest.fixture
def own_torch():
    """Leaves torch's own random state and number of threads as they were."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_meta_rl_learns_to_explore_and_rl_does_not():
    command = [sys.executable, "-W", "error", str(SCRIPT), "--seed", "0", "--updates", "30", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rates = json.loads(done.stdout)["p"]
    last = {name: rate[2] for name, rate in rates.items()}
    assert last["meta-RL"] >= last["RL"] + 0.10
    assert last["myopic"] >= last["RL"] + 0.10
    # Never opening a door twice finds one of four within three episodes in 3/4 of the tasks, and nothing without the
    # map does better. On 1000 tasks one standard error is 1.4 points; 85 is out of reach without the map.
    assert last["meta-RL"] >= 0.85
    # What it costs: the first episode goes to the map, where RL opens a door that is right once in four times.
    assert rates["meta-RL"][0] < 0.10 < rates["RL"][0]


def test_the_same_seed_prints_the_same_table(minimal, monkeypatch, capsys, own_torch):
    monkeypatch.setattr(minimal, "WARM_STEPS", 1)
    monkeypatch.setattr(minimal, "EVAL_TASKS", 10)
    tables = []
    for seed in ("3", "3", "4"):
        monkeypatch.setattr(sys, "argv", ["minimal.py", "--updates", "1", "--seed", seed])
        minimal.main()
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] != tables[2]
    head, *rows = tables[0].splitlines()
    assert head.split()[:3] == ["p@1", "p@2", "p@3"]
    assert [row[:10].rstrip() for row in rows] == ["warm start", "RL", "myopic", "meta-RL"]


def test_returns_cross_episodes(minimal):
    # g_0^(1) = 0.95² · 10 = 9.025; every turn of episode 0 has 0.6 · 9.025 = 5.415.
    first, second = minimal.cross_episode_returns([[0.0] * 5, [0.0, 0.0, 10.0]], gamma_traj=0.6)
    assert first == pytest.approx([5.415] * 5)
    assert second == pytest.approx([9.025, 9.5, 10.0])
    # Three episodes: 1 + 0.5 · 1 + 0.25 · 1 = 1.75; 1 + 0.5 · 1 = 1.5; 1.
    assert minimal.cross_episode_returns([[1.0], [1.0], [1.0]], gamma_traj=0.5) == [[1.75], [1.5], [1.0]]
    assert minimal.cross_episode_returns([[1.0], [1.0], [1.0]], gamma_traj=0.0) == [[1.0], [1.0], [1.0]]


def test_advantages_compare_survivors_only(minimal):
    door, wrong, other = minimal.FIRST_DOOR, minimal.FIRST_DOOR + 1, minimal.FIRST_DOOR + 2
    group = [minimal.Trial(door) for _ in range(3)]
    for trial, words in zip(group, ([door], [minimal.MAP, door], [wrong, other, wrong]), strict=True):
        for word in words:
            trial.play(word, -1.0, 3)
    assert all(trial.over for trial in group)
    # γ_traj = 0.5: G = [1], [0.5, 1], [0, 0, 0].
    # n = 0: 1 - (0.5 + 0)/2 = 0.75; 0.5 - (1 + 0)/2 = 0; 0 - (1 + 0.5)/2 = -0.75.
    # n = 1: the first trial has stopped: 1 - 0 = 1; 0 - 1 = -1. n = 2: nobody to compare with: 0.
    assert minimal.advantages(group, gamma_traj=0.5) == pytest.approx([0.75, 0.0, 1.0, -0.75, -1.0, 0.0])


def test_a_trial_shows_what_was_found_and_trains_only_what_was_said(minimal):
    trial = minimal.Trial(minimal.FIRST_DOOR + 3)
    for word in (minimal.EMPTY, minimal.MAP, trial.door):  # "empty" is a word, but nothing one can do
        trial.play(word, -1.0, 3)
    assert " ".join(minimal.WORDS[token] for token in trial.tokens) == "| empty what? | map d3 | d3 gold"
    assert [action.position for action in trial.actions] == [1, 4, 7]
    assert [trial.solved_within(k) for k in (1, 2, 3)] == [False, False, True]
    assert trial.over
    only = minimal.Trial(minimal.FIRST_DOOR)
    only.play(minimal.MAP, -1.0, 1)  # with one episode, which is RL, nothing follows the map
    assert only.over


def test_sampler_and_trainer_agree_on_logprobs(minimal, own_torch):
    """The ratio starts at 1: sampling reads a prefix, training the whole padded trial."""
    model = minimal.LlamaForCausalLM(
        minimal.LlamaConfig(
            vocab_size=len(minimal.WORDS),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            initializer_range=0.5,
        )
    )
    player = minimal.partial(minimal.model_player, model)
    generator = torch.Generator().manual_seed(0)
    trials = minimal.play(player, [minimal.FIRST_DOOR] * 20, 3, generator)
    sampled = [action.logprob for trial in trials for action in trial.actions]
    assert len({len(trial.tokens) for trial in trials}) > 1
    assert minimal.action_logprobs(model, trials).tolist() == pytest.approx(sampled, abs=1e-5)
