"""Populations on tiny worlds: who plays and learns, exact resume, agents that fail, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mulligan.app.cli.main import main
from mulligan.engine.choose import make_engine
from mulligan.engine.slots import SlotEngine
from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.models.load import load, save
from mulligan.players import player_from, trained_with
from mulligan.population import agents as members
from mulligan.population.loop import Population, check, train
from mulligan.population.matchmaker import matched, shares
from mulligan.population.selection import HeldOut, Score
from mulligan.report.run import RunFolder
from mulligan.training import checkpoint
from mulligan.training.config import (
    AlgoConfig,
    Config,
    ModelConfig,
    PopulationConfig,
    RunConfig,
    TaskConfig,
    WarmstartConfig,
    value_at,
)
from mulligan.training.context import bytes_to_come, fixed_context
from mulligan.training.loop import Trainer
from mulligan.training.loop import train as train_one
from mulligan.training.resolve import checked, from_run, resolve
from small_runs import metrics, small, weights

POPULATION = PopulationConfig(
    agents=3,
    others=0.5,
    past=0.25,
    snapshot_every=1,
    select_every=2,
    held_out="opponent=validation",
    held_out_tasks=8,
    spread=2.0,
)


def games(**population) -> Config:
    return small(
        task=TaskConfig(env="kuhn", params={"opponent": "seen"}),
        run=RunConfig(updates=3, tasks=4, group=2, threads=1, checkpoint_every=1, keep=2),
        population=replace(POPULATION, **population),
    )


def alone(**population) -> Config:
    """Agents that never meet, on a bandit."""
    return small(
        run=RunConfig(updates=3, tasks=3, group=3, threads=1, checkpoint_every=1, keep=2),
        population=replace(POPULATION, others=0.0, past=0.0, select_every=0, held_out="", **population),
    )


def everything(run: Path) -> dict[str, object]:
    """What two runs that are the same run have in common."""
    logs = {
        name: (run / name).read_text() for name in ("lineage.jsonl", "matches.jsonl", "ratings.json", "population.json")
    }
    each = {path.name: (weights(path).tolist(), metrics(path)) for path in sorted(run.glob("agent-*"))}
    return {**logs, **each, "settings": [trained_with(str(path)) for path in sorted(run.glob("agent-*"))]}


def code(words: list[str]) -> int:
    """The exit code of the command line."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(str(ended.value.code))


def lineage(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train(games(), tmp_path_factory.mktemp("runs") / "population")


def test_agents_play_habits_each_other_and_themselves_and_all_learn(trained):
    lines = [json.loads(line) for line in (trained / "matches.jsonl").read_text().splitlines()]
    assert {line["update"] for line in lines} == {1, 2, 3}
    for update in (1, 2, 3):
        for agent in range(3):
            met = {
                line["opponent"]: line["games"] for line in lines if (line["update"], line["agent"]) == (update, agent)
            }
            rivals = sum(count for name, count in met.items() if name.startswith("agent/"))
            past = {name: count for name, count in met.items() if name.startswith("past/")}
            assert rivals == 2 * 3  # one task as the host, of 2 trials with 3 episodes; the guest's side logs nothing
            assert list(past) in ([[]] if update == 1 else [[f"past/{agent}@{n}"] for n in range(1, update)])
            assert sum(met.values()) == 3 * 2 * 3  # every agent plays the same number of games
    steps = [metrics(trained / f"agent-{agent}")[0]["replies"] for agent in range(3)]
    assert all(replies >= 4 * 2 * 3 for replies in steps)  # and learns from the task that it is the guest in, too
    first = weights(trained / "agent-0")
    assert not torch.equal(first, weights(trained / "agent-1"))


def test_each_agent_has_a_run_folder_of_its_own_and_settings_of_its_own(trained):
    rates = {trained_with(str(trained / f"agent-{number}")).optim.lr for number in range(3)}
    base = games().optim.lr
    assert len(rates) == 3
    assert all(base / 2 <= rate <= base * 2 for rate in rates)
    assert [line["event"] for line in lineage(trained)][:6] == ["begun"] * 3 + ["scored"] * 3
    best = json.loads((trained / "population.json").read_text())["best"]
    assert player_from(str(trained / "agent-1")).name == str(trained / "agent-1")
    assert trained_with(str(trained)) == trained_with(str(trained / f"agent-{best}"))


def test_an_agent_plays_for_the_command_line_and_is_exported(trained, tmp_path, capsys):
    words = ["eval", "kuhn", "--policy", f"{trained}/agent-1", "--tasks", "2", "--run", str(tmp_path / "eval")]
    assert code([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2
    assert code(["export", f"{trained}/agent-1", str(tmp_path / "model")]) == 0
    exported = load(f"hf:{tmp_path / 'model'}").model
    assert torch.equal(
        torch.cat([each.detach().flatten() for each in exported.parameters()]), weights(trained / "agent-1")
    )


def test_a_run_that_is_stopped_and_one_that_was_killed_between_two_checkpoints_go_on_exactly(trained, tmp_path):
    """A kill between the agents' checkpoints leaves some with one that others lack, and longer logs."""
    run = tmp_path / "again"
    train(
        games(),
        run,
        stop=lambda: (run / "matches.jsonl").exists() and '"update": 2' in (run / "matches.jsonl").read_text(),
    )
    assert checkpoint.by_update(run / "agent-0").keys() == {1, 2}
    shutil.copytree(run, tmp_path / "killed")
    train(None, run, resume=True)
    assert everything(run) == everything(trained)
    killed = tmp_path / "killed"
    shutil.rmtree(killed / "agent-1" / "checkpoints" / "update-00002")
    shutil.rmtree(killed / "agent-2" / "checkpoints" / "update-00002")
    train(None, killed, resume=True)
    assert everything(killed) == everything(trained)


KILLED = """
import os, signal, sys
from mulligan.population.loop import train
from mulligan.training.loop import Trainer
from mulligan.training.loop import train as train_one
from mulligan.training.resolve import from_tree
import tomllib
save, saves = Trainer.save, []
def dying(self, done):
    saves.append(done)
    if len(saves) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, done)
Trainer.save = dying
train(from_tree(tomllib.load(open(sys.argv[1], "rb"))), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 9])  # at the beginning, when two agents of three have none, and in a later round
def test_a_run_that_is_killed_goes_on_exactly(trained, tmp_path, at):
    words = [sys.executable, "-c", KILLED, str(trained / "config.toml"), str(tmp_path / "run"), str(at)]
    assert subprocess.run(words, check=False).returncode == -9
    train(None, tmp_path / "run", resume=True)
    assert everything(tmp_path / "run") == everything(trained)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    return train(alone(), tmp_path_factory.mktemp("runs") / "undisturbed")


@pytest.mark.parametrize("mishap", ["diverges", "raises", "skips", "loops"])
def test_an_agent_that_cannot_go_on_becomes_a_copy_and_the_others_lose_nothing(
    undisturbed, tmp_path, monkeypatch, mishap
):
    learn, at = Trainer.learn, 3 if mishap == "loops" else 2

    def failing(self, update, groups, failures):
        line = learn(self, update, groups, failures)
        if self.folder.path.name == "agent-1" and (update + 1 == at or mishap == "loops"):
            if mishap == "raises":
                raise ValueError("no such thing")
            if mishap == "diverges":
                with torch.no_grad():
                    next(iter(self.learner.weights().values())).fill_(float("nan"))
            if mishap == "skips":
                line["loss/skipped"] = 2.0
            if mishap == "loops":
                ended = [name for name in line if name.startswith("stop/")]
                line = {name: value for name, value in line.items() if name not in ended} | {"stop/turn_limit": 9}
        return line

    monkeypatch.setattr(Trainer, "learn", failing)
    warnings = []
    run = train(alone(), tmp_path / "run", on_update=lambda line: warnings.append(line.get("warning")))
    event = lineage(run)[-1]
    assert (event["update"], event["agent"], event["event"]) == (at, 1, "replaced")
    reasons = {"diverges": "not finite", "raises": "no such thing", "skips": "not finite", "loops": "came to an end"}
    assert reasons[mishap] in event["why"]
    assert any(event["why"] in (text or "") for text in warnings)
    copied = trained_with(str(run / f"agent-{event['from']}")).optim.lr
    factor = event["settings"]["optim.lr"] / copied
    assert min(abs(factor - 1.25), abs(factor - 0.8)) < 1e-9
    for other in ("agent-0", "agent-2"):
        assert torch.equal(weights(run / other), weights(undisturbed / other))
    assert torch.isfinite(weights(run / "agent-1")).all()


def test_beginners_that_all_run_out_of_turns_go_on(tmp_path, monkeypatch):
    learn = Trainer.learn

    def unfinished(self, *played):
        line = {name: value for name, value in learn(self, *played).items() if not name.startswith("stop/")}
        return line | {"stop/turn_limit": 9}

    monkeypatch.setattr(Trainer, "learn", unfinished)
    run = train(alone(), tmp_path / "run")
    assert {line["event"] for line in lineage(run)} == {"begun"}


def test_updates_after_which_an_agent_was_replaced_do_not_make_it_one_that_loops():
    loops, replaced = {"stop/turn_limit": 9, "stop/success": 0}, {"warning": "agent 1 is replaced"}
    assert members.why_looping([loops] * 3) is not None
    assert members.why_looping([loops, loops, {"stop/turn_limit": 8, "stop/success": 1}]) is None
    assert members.why_looping([replaced] * 3) is None
    assert members.why_looping([replaced, loops, loops]) is None


def test_a_setting_keeps_its_value_where_its_range_ends_before():
    config = replace(alone(), optim=replace(alone().optim, beta2=0.95))
    assert members.scaled(config, "optim.beta2", 1.25) == 0.95  # 1 is no decay
    assert members.scaled(config, "optim.beta2", 0.8) == pytest.approx(0.76)
    assert members.scaled(config, "algo.gamma_traj", 10.0) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_the_first_settings_cover_the_whole_range(seed):
    """Four draws of their own would leave an end of it empty every other time."""
    config = alone(agents=4, spread=16.0, vary="optim.lr,algo.entropy_weight")
    config = replace(config, run=replace(config.run, seed=seed), algo=AlgoConfig(entropy_weight=0.01))
    each = members.agent_configs(config)
    for key in ("optim.lr", "algo.entropy_weight"):
        factors = sorted(value_at(one, key) / value_at(config, key) for one in each)
        for factor, (low, high) in zip(factors, [(1 / 16, 1 / 4), (1 / 4, 1), (1, 4), (4, 16)], strict=True):
            assert low <= factor <= high


def test_a_copy_steps_with_its_own_decay(tmp_path):
    config = alone(vary="optim.weight_decay,optim.beta2", spread=2.0)
    config = replace(config, optim=replace(config.optim, weight_decay=0.1, beta2=0.4))
    folder = RunFolder.create(tmp_path / "run", {"kind": "population"})
    population = Population(config, folder, lambda line: None, lambda: False)
    population._begin()
    for agent in population.agents:
        optim, group = agent.trainer.config.optim, agent.trainer.local_learner.optimiser.param_groups[0]
        assert (group["weight_decay"], group["betas"][1]) == (optim.weight_decay, optim.beta2)
    assert len({agent.trainer.config.optim.weight_decay for agent in population.agents}) == 3
    population.loop.close()


def test_where_no_agent_can_go_on_the_run_ends_with_every_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "learn", lambda *_: 1 / 0)
    with pytest.raises(MulliganError, match=r"after update 1: agent 0: .*division by zero.*agent 2: "):
        train(alone(), tmp_path / "run")


def test_a_copy_goes_on_as_its_source_would(tmp_path):
    """Weights, optimiser and statistics: with equal settings and the same trials, both come to the same weights."""
    folder = RunFolder.create(tmp_path / "run", {"kind": "population"})
    population = Population(alone(spread=1.0), folder, lambda line: None, lambda: False)
    population._begin()
    source, target = (agent.trainer for agent in population.agents[:2])
    groups = [source.loop.run(lambda u=update: source.play(u, population_playing())) for update in range(2)]
    source.learn(0, groups[0], population_playing().failures)
    members.copy_agent(source, target, target.config)
    lines = [trainer.learn(1, groups[1], population_playing().failures) for trainer in (source, target)]
    assert lines[0]["loss/loss"] == lines[1]["loss/loss"]
    assert lines[0]["loss/grad_norm"] > 0
    population.loop.close()
    for mine, theirs in zip(source.learner.weights().values(), target.learner.weights().values(), strict=True):
        assert mine is not theirs
        assert torch.equal(mine, theirs)


def population_playing():
    from mulligan.training.loop import Playing

    return Playing()


def test_a_population_begins_with_the_weights_of_another_run(tmp_path):
    """As arms of a sweep do; the agents, a folder deeper, name it too."""
    alone_run = replace(alone(), run=replace(alone().run, updates=1), population=PopulationConfig())
    start = train_one(alone_run, tmp_path / "start")
    config = replace(alone(), model=ModelConfig(name=str(start)), warmstart=WarmstartConfig())
    run = train(replace(config, run=replace(config.run, updates=1)), tmp_path / "run")
    assert trained_with(str(run / "agent-1")).model.name == "../../start"
    assert player_from(str(run / "agent-1")).name == str(run / "agent-1")
    shutil.move(tmp_path, tmp_path.with_name("moved"))
    assert player_from(str(tmp_path.with_name("moved") / "run" / "agent-2"))


def test_adapters_share_one_base_in_memory(tmp_path):
    pytest.importorskip("peft")
    save(load("nano:hidden=32,layers=1"), tmp_path / "base")
    model = ModelConfig(name=f"hf:{tmp_path / 'base'}", lora_rank=2)
    run = replace(alone().run, updates=1)
    algo = AlgoConfig(entropy_weight=0.1)  # a fresh model earns nothing
    config = replace(alone(), model=model, run=run, algo=algo, warmstart=WarmstartConfig())
    folder = RunFolder.create(tmp_path / "run", {"kind": "population"})
    population = Population(config, folder, lambda line: None, lambda: False)
    first, *others = (dict(agent.trainer.loaded.model.named_parameters()) for agent in population.agents)
    for other in others:
        for name, weight in first.items():
            assert (weight.data_ptr() == other[name].data_ptr()) == (not weight.requires_grad)
    population.run()
    adapters = [weights(tmp_path / "run" / f"agent-{number}") for number in range(3)]
    assert not torch.equal(adapters[0], adapters[1])


def test_adapters_and_their_snapshots_draw_from_one_engine(tmp_path, monkeypatch):
    """The engine for GPUs, which runs here without graphs."""
    pytest.importorskip("peft")
    monkeypatch.setattr(
        members, "make_engine", lambda *args, **given: make_engine(*args, **{**given, "kind": "graphs"})
    )
    save(load("nano:hidden=128,layers=1"), tmp_path / "base")
    model = ModelConfig(name=f"hf:{tmp_path / 'base'}", lora_rank=2)
    algo = AlgoConfig(entropy_weight=0.1)  # a fresh model earns nothing
    config = replace(games(), model=model, algo=algo, warmstart=WarmstartConfig())
    folder = RunFolder.create(tmp_path / "run", {"kind": "population"})
    population = Population(config, folder, lambda line: None, lambda: False)
    shares = [agent.trainer.engine for agent in population.agents]
    shares += [agent.snapshots.policy.engine for agent in population.agents]
    assert len({id(share.engine) for share in shares}) == 1
    assert sorted(share.number for share in shares) == list(range(6))
    assert {share.slots for share in shares} == {config.engine.slots}
    population.run()
    adapters = [weights(tmp_path / "run" / f"agent-{number}") for number in range(3)]
    assert not torch.equal(adapters[0], adapters[1])
    assert all(share.tokens for share in shares[:3])
    assert any(share.tokens for share in shares[3:])
    assert [line["update"] for line in metrics(tmp_path / "run")] == [1, 2, 3]
    assert all(
        line["loss/sampler/mismatch"] < 1e-4 for line in metrics(tmp_path / "run")
    )  # each drew from its own weights


def test_memory_is_kept_for_all_that_agents_learn_and_for_the_activations_of_one(tmp_path, monkeypatch):
    """Three agents learn in turn; where they cannot share an engine, they share the sequences that memory holds."""
    pytest.importorskip("peft")
    given = {}

    def fitted(model, **settings):
        given.update(settings)
        return SlotEngine(model, slots=20)  # of which three agents and their snapshots have three each

    monkeypatch.setattr(members, "make_engine", fitted)
    save(load("nano:hidden=128,layers=1"), tmp_path / "base")
    config = replace(games(), model=ModelConfig(name=f"hf:{tmp_path / 'base'}", lora_rank=2))
    model = checkpoint.load_base(config, "cpu", tmp_path).model
    trained_numbers = sum(each.numel() for each in model.parameters() if each.requires_grad)
    one = bytes_to_come(model, config)
    engine = members.Engines(config)(model, slots=8, context=64, kind="auto", reserved=one)
    assert given["reserved"] == one + 2 * 12 * trained_numbers  # 8 bytes of moments, 4 of gradients
    assert engine.slots == 3


def test_the_worst_becomes_a_copy_of_the_best_with_settings_a_little_apart(tmp_path, monkeypatch):
    scores = iter(Score((value,), (value,)) for value in (0.1, 0.5, 0.3))
    monkeypatch.setattr(HeldOut, "score", lambda *_: next(scores))
    config = replace(games(), population=replace(games().population, others=0.0, past=0.0))
    run = train(replace(config, run=replace(config.run, updates=2)), tmp_path / "run")
    scored, copied = lineage(run)[3:6], lineage(run)[6:]
    assert [line["value"] for line in scored] == [0.1, 0.5, 0.3]
    assert [(line["update"], line["event"], line["agent"], line["from"]) for line in copied] == [(2, "copied", 0, 1)]
    assert torch.equal(weights(run / "agent-0"), weights(run / "agent-1"))
    assert not torch.equal(weights(run / "agent-0"), weights(run / "agent-2"))
    rates = [trained_with(str(run / f"agent-{number}")).optim.lr for number in (0, 1)]
    assert min(abs(rates[0] / rates[1] - factor) for factor in (1.25, 0.8)) < 1e-9
    assert json.loads((run / "population.json").read_text())["standings"] == [0.5, 0.5, 0.3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"population.agents": "1"}, "population.agents must be >= 2"),
        (
            {"population.agents": "2", "population.others": "0.6", "population.past": "0.4"},
            "others + population.past must be < 1",
        ),
        ({"population.agents": "2", "population.others": "0.5"}, "minesweeper, where nobody plays the other side"),
        (
            {"population.agents": "2", "population.vary": "optim.rate"},
            "unknown setting in population.vary 'optim.rate'",
        ),
        (
            {"population.agents": "2", "population.vary": "run.tasks"},
            "population.vary must name settings that are numbers",
        ),
        ({"population.agents": "2", "population.vary": "warmstart.lr"}, "updates read them (got warmstart.lr)"),
        ({"population.agents": "2", "population.score": "training"}, "score must be one of last, gain, mean"),
        ({"population.agents": "2", "ray.workers": "2"}, "ray.workers must be 0 in a population (got 2)"),
        ({"population.agents": "2", "engine.kind": "vllm"}, "engine.kind must be 'auto' in a population (got 'vllm')"),
        ({"population.agents": "2", "run.staleness": "1"}, "run.staleness must be 0 in a population"),
        ({"algo.scale": "population"}, "algo.scale must be std, none or agent without a population"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, capsys, changes, words):
    flags = [word for name, value in changes.items() for word in (f"--{name}", value)]
    assert code(["train", "minesweeper", "--preset", "test", "--run", str(tmp_path / "run"), *flags]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert words in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("held_out", "evaluate", "words"),
    [
        ("", "", "other opponents than training"),
        ("opponent=validation,drawn-3", "", "other opponents than training"),
        ("opponent=unseen", "opponent=seen; opponent=unseen", "other opponents than opponent=unseen"),
    ],
)
def test_selection_by_opponents_of_training_or_evaluation_is_refused(held_out, evaluate, words):
    flags = {"population.held-out": held_out, "run.evaluate": evaluate}
    with pytest.raises(ParameterError, match=words):
        check(resolve("cpu-population", None, flags))
    check(resolve("cpu-population", None, {"run.evaluate": "opponent=unseen"}))


def test_a_held_out_opponent_that_training_hardly_ever_meets_is_refused():
    flags = {"env.opponent": "seen:1000,soft-conservative:0.001", "population.held-out": "opponent=soft-conservative"}
    with pytest.raises(ParameterError, match="soft-conservative is in both"):
        check(resolve("cpu-population", None, flags))


def test_agents_whose_prompts_differ_in_length_have_one_context_and_the_run_goes_on(tmp_path):
    config = alone(characters="brief;" + "patient, curious and never the first to give up, " * 40)
    model = ModelConfig(name="nano:hidden=32,layers=1,context=2048")
    config = replace(config, model=model, warmstart=replace(config.warmstart, steps=2))
    run = train(replace(config, run=replace(config.run, updates=1)), tmp_path / "run")
    contexts = {trained_with(str(run / f"agent-{number}")).engine.context for number in range(3)}
    assert contexts == {trained_with(str(run)).engine.context}
    kept = trained_with(str(run / "agent-0"))
    own = fixed_context(replace(kept, engine=replace(kept.engine, context=0)), load(kept.model.name))[0]
    assert own.engine.context < max(contexts)
    train(from_run(RunFolder.open(run)), run, resume=True)


def test_all_agents_divide_by_the_spread_before_the_round(tmp_path, monkeypatch):
    seen, learn = [], Trainer.learn

    def looking(self, *played):
        every = self.history.agents.joined([peer.agents for peer in self.history.peers])
        keys = sorted(every.state_dict())
        seen.append((keys, every.spread(keys).round(9).tolist()))
        return learn(self, *played)

    monkeypatch.setattr(Trainer, "learn", looking)
    config = replace(alone(), algo=AlgoConfig(scale="population"))
    train(config, tmp_path / "run")
    assert not seen[0][0]
    assert seen[3][0]
    for first in (0, 3, 6):
        assert repr(seen[first]) == repr(seen[first + 1]) == repr(seen[first + 2])


def test_shares_leave_scripted_opponents_to_everybody():
    config = PopulationConfig(agents=4, others=0.34, past=0.16)
    assert shares(12, config, has_snapshots=True) == (6, 4, 2)
    assert shares(12, config, has_snapshots=False) == (8, 4, 0)
    assert shares(2, PopulationConfig(agents=4, others=0.9), has_snapshots=True) == (2, 0, 0)


def test_even_games_and_hard_snapshots_are_played_more_often():
    """Agent 0 always wins against 1 and 2, and agents 1 and 2 play even; the snapshot at 20 is never beaten."""
    import random

    config = PopulationConfig(agents=4, others=0.5, past=0.25, matchmaking="prioritised")
    rates = {"agent/1": 1.0, "agent/2": 1.0, "past/0@10": 1.0, "past/0@20": 0.0}

    def win_rate(agent: int, name: str) -> float:
        return rates.get(name, 0.5) if agent == 0 else 0.5

    rng = random.Random(0)
    pairings = [pair for _ in range(300) for pair in matched(config, 8, (10, 20), win_rate, rng).pairings]
    met = [pair.other for pair in pairings if pair.agent == 0 and pair.snapshot is None]
    snapshots = [pair.snapshot for pair in pairings if pair.agent == 0 and pair.snapshot is not None]
    assert met.count(3) > 1.2 * max(met.count(1), met.count(2))
    assert snapshots.count(20) > 10 * snapshots.count(10)


def test_the_preset_is_a_population_and_its_agents_are_plain_runs():
    config = checked(resolve("cpu-population", None, {}))
    agents = members.agent_configs(config)
    assert len(agents) == config.population.agents == 4
    assert {agent.population.agents for agent in agents} == {0}
    assert config.run.tasks * 4 == resolve("cpu-kuhn", None, {}).run.tasks


def test_a_character_is_a_line_of_the_prompt():
    config = replace(alone(), population=PopulationConfig(agents=3, characters="cautious;curious"))
    assert [each.trial.character for each in members.agent_configs(config)] == ["cautious", "curious", "cautious"]


def test_unknown_names_are_told():
    with pytest.raises(UnknownName):
        members.varied(replace(alone(), population=PopulationConfig(agents=2, vary="lr")))
    with pytest.raises(ParameterError):
        PopulationConfig(agents=2) and Config(population=PopulationConfig(agents=1))
    with pytest.raises(UsageError):
        members.varied(replace(alone(), population=PopulationConfig(agents=2, vary="algo.entropy_end")))
