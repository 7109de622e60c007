"""The training loop end to end on tiny worlds: it learns, repeats itself exactly, and survives what goes wrong."""

from __future__ import annotations

import gc
import json
import statistics
import time
import weakref
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file

import mulligan
from mulligan.engine.choose import make_engine
from mulligan.envs.bandit import Bandit
from mulligan.errors import MulliganError, ParameterError, RunFolderError, UsageError
from mulligan.models.load import is_checkpointed
from mulligan.players import player_from, trained_with
from mulligan.report.run import RunFolder
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.rollout.tasksets import belongs
from mulligan.training import checkpoint, loop, validation
from mulligan.training.config import (
    AlgoConfig,
    Config,
    EngineConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TaskConfig,
    WarmstartConfig,
)
from mulligan.training.loop import Trainer, train
from mulligan.training.metrics import MetricsFile
from mulligan.training.resolve import checked
from mulligan.training.step import Learner
from mulligan.training.validation import Validation
from mulligan.trial import prompts
from mulligan.trial.runner import run_trial_sync
from mulligan.types import Sampling, Step
from small_runs import TINY, metrics, small, trial, weights

# It learns --------------------------------------------------------------------------------------------------------


def bandit(episodes: int, group: int, updates: int = 20) -> Config:
    """Three arms: who remembers finds the paying one in three episodes, who does not in 19 of 27 trials."""
    return Config(
        run=RunConfig(updates=updates, tasks=16, group=group, threads=1, checkpoint_every=100, save_trials_every=0),
        task=TaskConfig(env="bandit", params={"arms": 3}),
        trial=trial(episodes=episodes, memory="history", style="bare", max_tokens=1),
        model=ModelConfig(name="nano:hidden=32,layers=2"),
        warmstart=WarmstartConfig(steps=80, trials=300, skill=1.0, recall=0.3, batch=32, lr=6e-3, warmup=5),
        algo=AlgoConfig(estimator="grpo", gamma_traj=0.9),
        optim=OptimConfig(lr=3e-3, warmup=2, epochs=2, lr_end=0.5),
    )


def evaluated(run: Path) -> mulligan.EvalResult:
    return mulligan.evaluate(
        "bandit",
        str(run),
        params={"arms": 3},
        tasks=150,
        memory="history",
        style="bare",
        sampling=Sampling(1.0, 1.0, 1),
        controls=("independent",),
    )


def test_training_on_trials_teaches_to_use_what_they_remember(tmp_path):
    """A small twin of the next test."""
    config = bandit(episodes=3, group=8, updates=3)
    config = replace(config, warmstart=replace(config.warmstart, steps=50, trials=150, batch=24))
    run = train(config, tmp_path / "meta")
    trained = mulligan.evaluate(
        "bandit", str(run), params={"arms": 3}, tasks=40, memory="history", style="bare", sampling=Sampling(1.0, 1.0, 1)
    )
    assert trained.main.won[2] > trained.main.won[0] + 0.05


@pytest.mark.slow
def test_meta_rl_learns_to_use_its_memory_and_rl_does_not(tmp_path):
    meta = evaluated(train(bandit(episodes=3, group=8), tmp_path / "meta"))
    plain = evaluated(train(bandit(episodes=1, group=24), tmp_path / "rl"))
    # The last episode beats the first, and beats the last episode of the agent trained on single episodes. Seeds 0, 1
    # and 2 have gaps of 0.66, 0.41, 0.24 to the first, of 0.62, 0.51, 0.24 to RL, and of 0.29, 0.31, 0.13 in p@3.
    assert meta.main.won[2] > meta.main.won[0] + 0.15
    assert meta.main.won[2] > plain.main.won[2] + 0.15
    assert meta.p[2] > plain.p[2] + 0.05
    # It is the memory: without it the same weights gain nothing.
    assert meta.gains["independent"][1][0] > 0


@pytest.mark.slow
def test_what_random_moves_found_is_learned(tmp_path):
    """From random weights: hardly any reply is valid, until those of random moves that won are."""
    settings = replace(
        bandit(episodes=3, group=8, updates=8),
        warmstart=WarmstartConfig(steps=0),
        algo=AlgoConfig(estimator="reinforce_pp", baseline="group", invalid_penalty=0.3),
        optim=OptimConfig(lr=1e-2, warmup=2, epochs=4, lr_end=1.0),
    )
    valid = {}
    for share in (0.0, 0.5):
        run = train(replace(settings, run=replace(settings.run, random_trials=share)), tmp_path / f"{share}")
        valid[share] = [line["valid"] for line in metrics(run) if "valid" in line]
    assert valid[0.5][0] < 0.1
    assert valid[0.5][-1] > valid[0.0][-1] + 0.3


def test_random_moves_play_some_trials_of_a_group_and_none_towards_the_end(tmp_path):
    config = brief(run=RunConfig(updates=4, tasks=2, group=4, threads=1, save_trials_every=1, random_trials=0.5))
    run = train(config, tmp_path / "run")
    shares = []
    for update in range(1, 5):
        trials = mulligan.load_trials(run, f"update-{update:05d}")
        random_ones = {trial.index for trial in trials if any(episode.by_stand_in for episode in trial.episodes)}
        assert random_ones <= {0, 1}, "of four trials two are the agent's own"
        shares.append(statistics.mean(episode.by_stand_in for trial in trials for episode in trial.episodes))
    assert all(share > 0 for share in shares[:3])  # 70 % of four updates
    assert shares[3] == 0


def test_nothing_is_unlearned_from_random_moves(tmp_path, monkeypatch):
    """Their advantages are cut at 0, the agent's own are not."""
    seen = []

    def learning(learner, data, *, update):
        chosen = [span.step for row in data.rows for span in row.spans if span.logprobs is None]
        own = [span.step for row in data.rows for span in row.spans if span.logprobs is not None]
        seen.append((data.advantages[chosen], data.advantages[own]))
        return learn(learner, data, update=update)

    learn = loop.Learner.update
    monkeypatch.setattr(loop.Learner, "update", learning)
    config = brief(
        run=RunConfig(updates=2, tasks=8, group=4, threads=1, random_trials=0.5),
        algo=AlgoConfig(estimator="reinforce_pp", baseline="group", invalid_penalty=0.1),
    )
    train(config, tmp_path / "run")
    random_ones, own_ones = (torch.cat(parts) for parts in zip(*seen, strict=True))
    assert random_ones.min() == 0
    assert random_ones.max() > 0
    assert own_ones.min() < 0


def test_metrics_are_of_trials_that_random_moves_take_no_part_in(tmp_path):
    """A trial that was won before its first random attempt counts no more than one that was not."""
    config = brief(run=RunConfig(updates=3, tasks=4, group=4, threads=1, save_trials_every=1, random_trials=0.5))
    run = train(config, tmp_path / "run")
    for line in [line for line in metrics(run) if "p@1" in line][:2]:
        trials = mulligan.load_trials(run, f"update-{line['update']:05d}")
        assert line["played/1"] == sum(trial.index >= 2 for trial in trials) == 8


def test_a_model_that_never_answers_is_noticed_beside_random_moves(tmp_path, monkeypatch):
    async def silent(*_):
        raise OSError("no model")

    monkeypatch.setattr("mulligan.policy.local._LocalConversation.reply", silent)
    config = small(
        run=RunConfig(updates=1, tasks=8, group=4, threads=1, random_trials=0.7), warmstart=WarmstartConfig(steps=0)
    )
    with pytest.raises(MulliganError, match="no model"):
        train(config, tmp_path / "run")


def test_random_moves_keep_to_the_context_and_memory_makes_room_for_them(tmp_path):
    """The rows that are trained on fit the context, as the agent's own do."""
    config = small(
        run=RunConfig(updates=1, tasks=2, group=4, threads=1, save_trials_every=1, random_trials=0.75),
        task=TaskConfig(env="minesweeper", params={"rows": 3, "cols": 3, "mines": 2, "turns": 6}),
        trial=trial(episodes=3, memory="both", max_tokens=8, reflection_tokens=8),
        engine=EngineConfig(slots=16, context=256),
        warmstart=WarmstartConfig(steps=0),
    )
    run = train(config, tmp_path / "run")
    assert max(line["tokens/longest_row"] for line in metrics(run) if "tokens/longest_row" in line) <= 256


def brief(**sections) -> Config:
    """With a warm start of a moment, for what does not ask that anything be learned."""
    config = small(**sections)
    return replace(config, warmstart=replace(config.warmstart, steps=3, trials=8, batch=8))


def test_the_same_seed_gives_the_same_weights_and_another_one_does_not(tmp_path):
    first, second = train(small(), tmp_path / "a"), train(small(), tmp_path / "b")
    assert torch.equal(weights(first), weights(second))
    assert metrics(first) == metrics(second)
    assert mulligan.load_trials(first, "update-00002") == mulligan.load_trials(second, "update-00002")
    other = train(brief(run=replace(small().run, seed=1, updates=1)), tmp_path / "c")
    assert not torch.equal(weights(first), weights(other))


# Every option really trains ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Path:
    """A run that has ended with its warm start."""
    config = small(run=replace(small().run, updates=0, validation_tasks=1))
    return train(config, tmp_path_factory.mktemp("warm") / "run")


def warmed(warm: Path, **sections) -> Config:
    """Starts from that run."""
    model = replace(sections.pop("model", ModelConfig()), name=str(warm))
    return small(model=model, warmstart=WarmstartConfig(), **sections)


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_pp", "gigpo", "ppo"])
@pytest.mark.parametrize("form", ["paper", "chained", "difference", "final"])
def test_every_estimator_trains_with_every_form(warm, tmp_path, estimator, form):
    config = warmed(warm, algo=AlgoConfig(estimator=estimator, form=form), run=replace(small().run, updates=1))
    if estimator == "ppo" and form in ("difference", "final"):
        with pytest.raises(MulliganError, match="ppo"):
            train(config, tmp_path / "run")
        return
    run = train(config, tmp_path / "run")
    (line,) = metrics(run)
    assert line["loss/grad_norm"] > 0
    assert line["loss/sampler/mismatch"] < 1e-4  # sampler and trainer are one model
    assert line["loss/kl_old"] >= 0
    assert ("loss/value_loss" in line) == (estimator == "ppo")


@pytest.mark.parametrize("memory", ["none", "history", "reflection", "both"])
def test_every_memory_mode_trains(warm, tmp_path, memory):
    run = train(warmed(warm, trial=replace(small().trial, memory=memory)), tmp_path / "run")
    assert max(line["loss/grad_norm"] for line in metrics(run)) > 0
    trials = mulligan.load_trials(run, "update-00002")
    reflected = any(episode.reflection for trial in trials for episode in trial.episodes)
    assert reflected == (memory in ("reflection", "both"))


@pytest.mark.parametrize(
    "sections",
    [
        {"model": ModelConfig(name=TINY, lora_rank=4)},
        {"model": ModelConfig(gradient_checkpointing=True), "algo": AlgoConfig(scale="agent")},
        {"model": ModelConfig(dtype="bfloat16")},
        {"algo": AlgoConfig(kl_weight=0.1, entropy_weight=0.01, entropy_end=0.0, length_penalty=0.1)},
        {
            "algo": AlgoConfig(scale="none", baseline="group"),
            "optim": OptimConfig(minibatches=3, epochs=1, warmup=1, tokens=64),
        },
        {"task": TaskConfig(env="bandit:2,minesweeper:1", params={"rows": 3, "cols": 3, "mines": 2, "turns": 2})},
        {
            "trial": trial(episodes=3, memory="both", style="bare", max_tokens=3, reflection_tokens=3),
            "task": TaskConfig(env="bandit", params={"arms": 2}, related=True),
        },
        {
            "trial": trial(episodes=2, memory="history", style="bare", max_tokens=2, window=1),
            "run": RunConfig(updates=2, tasks=3, group=4, threads=1, validate_every=1, validation_tasks=2),
        },
        {"model": ModelConfig(name="nano:hidden=64,layers=1"), "engine": EngineConfig(slots=5)},
        {
            "run": RunConfig(updates=2, tasks=3, group=4, threads=1, random_trials=0.5),
            "trial": trial(episodes=3, memory="both", style="bare", max_tokens=3, reflection_tokens=3),
        },
    ],
    ids=lambda sections: "-".join(sections) if isinstance(sections, dict) else None,
)
def test_every_option_trains_and_resumes(warm, tmp_path, sections, monkeypatch):
    """Straight through, and stopped after the first update and resumed: the same weights and metrics."""
    if "engine" in sections:  # as on a GPU
        monkeypatch.setattr(loop, "make_engine", partial(make_engine, kind="graphs"))
    # An adapter, another size or other games cannot start where the others do.
    lora = getattr(sections.get("model"), "lora_rank", 0)
    own = lora or sections.keys() & {"engine", "task"}
    half = small(**sections) if own else warmed(warm, **{"run": replace(small().run, tasks=2, group=3), **sections})
    whole = train(half, tmp_path / "whole")
    run = tmp_path / "half"

    class Enough(Exception):
        pass

    def stop(found):
        if found.get("update") == 1:
            raise Enough

    with pytest.raises(Enough):
        train(replace(half, run=replace(half.run, checkpoint_every=1)), run, on_update=stop)
    train(None, run, resume=True)
    assert torch.equal(weights(whole), weights(run))
    assert metrics(whole) == metrics(run)
    # So short a warm start teaches an adapter nothing: all its trials end alike.
    assert lora or max(line.get("loss/grad_norm", 0.0) for line in metrics(run)) > 0


def test_a_run_that_is_over_holds_no_memory(tmp_path, monkeypatch):
    """An evaluation that follows in the same process needs the GPU's, and so do runs beside it."""
    made: list[weakref.ref[object]] = []
    frozen = Counter()
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(frozen.update, [name]))

    class Noted(Trainer):
        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            made.extend(map(weakref.ref, (self, self.learner, self.loaded.model, self.engine)))

    monkeypatch.setattr("mulligan.training.loop.Trainer", Noted)
    train(brief(run=replace(small().run, updates=1)), tmp_path / "run")
    assert [held() for held in made] == [None] * 4
    assert frozen == {"freeze": 1, "unfreeze": 1}


def test_diversity_is_looked_at_where_it_is_asked_for(tmp_path):
    config = brief(run=replace(small().run, validate_every=1, validation_tasks=2, diversity_tasks=2))
    run = train(config, tmp_path / "run")
    shown = [line["validation/diversity"] for line in MetricsFile(run / "metrics.jsonl").read()]
    assert len(shown) == 3
    assert all(0.0 < nats < 3.47 for nats in shown)


def test_validation_tells_the_share_of_the_optimum(tmp_path):
    """Of four arms one pays 1, and a trial ends with it: three attempts are worth .25 + .25 + .25 at most."""
    run = replace(small().run, validate_every=1, validation_tasks=20)
    folder = train(brief(run=run, task=TaskConfig(env="bandit", params={"arms": 4})), tmp_path / "run")
    for line in metrics(folder):
        assert line["validation/share_of_optimum"] == pytest.approx(line["validation/p@3"] / 0.75)


def test_games_without_a_known_optimum_have_no_share_of_it(tmp_path):
    """6x6 MineSweeper has too many boards; of rock-paper-scissors luck would hide it; related tasks change."""
    for number, task in enumerate(
        (
            TaskConfig(env="minesweeper", params={"turns": 1}),
            TaskConfig(env="rps", params={"throws": 1}),
            TaskConfig(env="bandit", params={"arms": 4}, related=True),
        )
    ):
        run = replace(small().run, updates=0, validation_tasks=2)
        (line,) = metrics(train(brief(run=run, task=task), tmp_path / str(number)))
        assert "validation/p@1" in line
        assert "validation/share_of_optimum" not in line


def test_the_same_validation_trials_are_kept_at_every_validation(tmp_path, monkeypatch):
    """By these one task is followed from update to update: few, and without their tokens."""
    monkeypatch.setattr(validation, "KEPT_TASKS", 2)
    config = brief(run=replace(small().run, validate_every=1, validation_tasks=3, save_trials_every=1))
    run = RunFolder.open(train(config, tmp_path / "run"))
    arms = ["validation-00000", "validation-00001", "validation-00002"]
    assert run.arms() == ["update-00001", "update-00002", *arms]
    assert run.arm(None) == "update-00002"
    kept = [run.trials(arm) for arm in arms]
    tasks = [[trial.task for trial in each.values()] for each in kept]
    assert tasks == [tasks[0]] * 3
    assert len(tasks[0]) == 2
    assert all(turn.reply.ids is None for each in kept for trial in each.values() for turn in trial.episodes[0].turns)


def test_a_loss_that_is_no_number_leaves_metrics_that_every_reader_takes(tmp_path, monkeypatch):
    """JSON has no NaN: readers other than Python's would stop at the line that matters."""

    def update(learner, data, **options):
        return {"loss": float("nan"), "grad_norm": 0.0, "skipped": 1.0}

    monkeypatch.setattr(Learner, "update", update)
    run = train(brief(run=replace(small().run, updates=1)), tmp_path / "run")
    (line,) = (run / "metrics.jsonl").read_text().splitlines()
    told = json.loads(line, parse_constant=pytest.fail)
    assert "loss/loss" not in told
    assert (told["loss/skipped"], told["warning"][:14]) == (1.0, "1 steps skippe")


def test_a_run_that_is_asked_to_stop_goes_on_as_if_it_never_had(tmp_path):
    config = brief(run=replace(small().run, updates=2, checkpoint_every=100))
    whole = train(config, tmp_path / "whole")
    said: list[dict] = []
    part = train(config, tmp_path / "part", on_update=said.append, stop=lambda: len(said) > config.warmstart.steps)
    assert [line["update"] for line in metrics(part)] == [1]
    train(None, part, resume=True)
    assert torch.equal(weights(whole), weights(part))
    assert metrics(whole) == metrics(part)


def test_a_mixture_reports_each_task_class(tmp_path):
    task = TaskConfig(env="bandit:1,minesweeper:1", params={"rows": 3, "cols": 3, "mines": 2, "turns": 2})
    run = train(brief(task=task, run=replace(small().run, tasks=4, group=2, seed=1, updates=1)), tmp_path / "run")
    assert {"bandit/4/p@1", "minesweeper/3x3/2/p@1"} <= metrics(run)[0].keys()


def test_trials_over_related_tasks_play_another_one_each_episode(tmp_path):
    config = brief(task=TaskConfig(env="bandit", params={"arms": 4}, related=True))
    draws = draw_tasks(Mixture.parse("bandit", {"arms": 4}), 5, seed=0, update=0, related=2)
    assert all(len({draw.task.seed, *(task.seed for task in draw.related)}) == 3 for draw in draws)
    run = train(config, tmp_path / "run")
    trials = mulligan.load_trials(run, "update-00002")
    assert all(len({trial.task.seed, *(task.seed for task in trial.related)}) == 3 for trial in trials)


def test_validation_over_related_tasks_keeps_to_the_class():
    task = TaskConfig(env="alfworld", params={"kind": "all"}, related=True)
    config = small(task=task, run=replace(small().run, validate_every=1, validation_tasks=24))
    mixture = Mixture.parse("alfworld", task.params)
    (jobs,) = Validation(config, mixture, None, None).jobs.values()
    assert len({job.task.task_class for job in jobs}) > 3
    assert all(len(job.related) == 2 for job in jobs)
    assert all(other.task_class == job.task.task_class for job in jobs for other in job.related)


class Maze(Bandit):
    """Each is of a class of its own."""

    defaults: ClassVar = {"arms": 4, "maze": 0}

    @staticmethod
    def settle(params, seed):
        return {**params, "maze": seed}

    @staticmethod
    def task_class(params):
        return f"maze/{params['maze']}"


def test_a_class_of_one_has_no_related_tasks(monkeypatch):
    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Maze)
    with pytest.raises(ParameterError, match="related"):
        draw_tasks(Mixture.parse("bandit", {}), 1, seed=0, update=0, related=2)


def test_training_tasks_never_belong_to_another_set():
    mixture = Mixture.parse("minesweeper", {"rows": 3, "cols": 3, "mines": 2})
    tasks = [draw.task for update in range(5) for draw in draw_tasks(mixture, 20, seed=1, update=update)]
    assert all(belongs(task, "train") for task in tasks)
    assert len({task.seed for task in tasks}) > 90


# What goes wrong --------------------------------------------------------------------------------------------------


class Faulty(Bandit):
    """A bandit whose every fifth step raises and whose every 25th hangs."""

    steps: ClassVar[int] = 0

    def step(self, reply: str) -> Step:
        Faulty.steps += 1
        if Faulty.steps % 5 == 0:
            raise RuntimeError("the world fell apart")
        if Faulty.steps % 25 == 1:
            time.sleep(1.5)
        return super().step(reply)


def test_training_survives_worlds_that_raise_and_hang(warm, tmp_path, monkeypatch):
    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Faulty)
    monkeypatch.setattr("mulligan.training.loop.RETRIES", 1)  # with more, hardly a trial would fail for good
    seen = []
    real = loop.batch_of

    def watched(config, groups):
        batch = real(config, groups)
        for number, index in batch.source:
            assert not groups[number].trials[index].failed
        seen.extend(trial.failed for group in groups for trial in group.trials)
        return batch

    monkeypatch.setattr(loop, "batch_of", watched)
    config = warmed(warm, run=replace(small().run, updates=2, tasks=4), trial=replace(small().trial, env_timeout=0.3))
    run = train(config, tmp_path / "run")
    lines = metrics(run)
    assert len(lines) == 2
    assert sum(line["trials/failed"] for line in lines) == sum(seen) > 0
    assert sum(line["groups/short"] for line in lines) > 0
    # Every failed attempt is counted, also those that a retry mended.
    attempts = {name: sum(line.get(f"failures/{name}", 0) for line in lines) for name in ("env_raised", "env_hung")}
    assert attempts["env_raised"] >= sum(line.get("stop/env_raised", 0) for line in lines) > 0
    assert attempts["env_hung"] > 0


def test_train_can_be_called_again_and_again(tmp_path):
    for name in ("a", "b"):
        run = mulligan.train(config=brief(run=replace(small().run, updates=1)), run=tmp_path / name)
        assert checkpoint.newest(run.path) is not None


def test_what_train_returns_can_be_evaluated(tmp_path):
    run = train(brief(run=replace(small().run, updates=1)), tmp_path / "run")
    assert mulligan.evaluate("bandit", run, tasks=2, room=False).policy == str(run)


def test_hung_worlds_are_named(monkeypatch):
    class Hanging(Bandit):
        def step(self, reply: str) -> Step:
            time.sleep(1.5)
            return super().step(reply)

    env = Hanging(mulligan.make_task("bandit", 0))
    trial = run_trial_sync(env, lambda messages: "<action>1</action>", env_timeout=0.1)
    assert [episode.stop.value for episode in trial.episodes] == ["env_hung"]
    assert trial.failed


def test_a_run_in_which_everything_fails_says_why(tmp_path, monkeypatch):
    class Broken(Bandit):
        def step(self, reply: str) -> Step:
            raise RuntimeError("no world today")

    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Broken)
    with pytest.raises(MulliganError, match="no world today"):
        train(small(warmstart=WarmstartConfig(steps=0)), tmp_path / "run")


class Half(Bandit):
    """Falls apart on every other task."""

    def reset(self, chance: int = 0) -> str:
        if self.task.seed % 2:
            raise OSError("no simulator")
        return super().reset(chance)


def test_validation_tells_what_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(mulligan.envs.registry, "_load", lambda name: Half)
    run = replace(small().run, updates=1, validate_every=1, validation_tasks=8)
    (*_, line) = metrics(train(small(run=run), tmp_path / "run"))
    assert line["validation/failed"] == 4
    assert line["trials/failed"] > 0


def test_a_folder_where_somebody_else_is_at_work_is_left_as_it_was(tmp_path):
    with RunFolder(tmp_path / "busy").held():
        before = sorted((tmp_path / "busy").iterdir())
        with pytest.raises(RunFolderError, match="busy"):
            train(small(), tmp_path / "busy")
        assert sorted((tmp_path / "busy").iterdir()) == before


def test_a_run_that_starts_from_another_has_the_precision_it_asks_for(warm, tmp_path):
    model = ModelConfig(name=str(warm), dtype="bfloat16", gradient_checkpointing=True)
    loaded = checkpoint.load_base(small(model=model), "cpu", tmp_path / "run")
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}
    assert is_checkpointed(loaded.model)
    as_it_is = checkpoint.load_base(small(model=ModelConfig(name=str(warm))), "cpu", tmp_path / "run")
    assert {weight.dtype for weight in as_it_is.model.parameters()} == {torch.float32}


def test_bad_requests(tmp_path):
    with pytest.raises(ParameterError, match=r"run\.group must be >= 2"):
        small(run=RunConfig(group=1))
    with pytest.raises(ParameterError, match=r"run\.group must be >= 2 with run\.random_trials"):
        small(run=RunConfig(group=1, random_trials=0.5), algo=AlgoConfig(estimator="ppo"))
    with pytest.raises(ParameterError, match=r"run\.random_trials must be >= 0 and < 1"):
        small(run=RunConfig(random_trials=1.0))
    mute = tmp_path / "mute.py"
    mute.write_text(
        "class Mute:\n    def rules(self): ...\n    def reset(self, chance=0): ...\n    def step(self, reply): ...\n"
    )
    mulligan.trust(str(mute))
    with pytest.raises(ParameterError, match=r"run\.random_trials must be 0 for .*Mute, which has no legal\(\)"):
        checked(
            small(
                task=TaskConfig(env=f"{mute}:Mute"),
                run=RunConfig(random_trials=0.5),
                warmstart=WarmstartConfig(steps=0),
            )
        )
    with pytest.raises(ParameterError, match=r"run\.updates must be >= 0 \(got -1\)"):
        small(run=RunConfig(updates=-1))
    with pytest.raises(ParameterError, match="temperature"):
        small(trial=trial(temperature=0.0))
    with pytest.raises(ParameterError, match="weight"):
        Mixture.parse("bandit:0", {})
    with pytest.raises(mulligan.envs.registry.UnknownName, match="'arms'"):
        Mixture.parse("bandit", {"arm": 3})


def test_folders(tmp_path):
    run = train(brief(), tmp_path / "run")
    assert checkpoint.newest(run).name == "update-00002"
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["update-00001", "update-00002"]  # keep = 2
    assert json.loads((run / "warmstart.json").read_text())["rows"] > 0
    assert RunFolder.open(run).config()["kind"] == "train"
    with pytest.raises(RunFolderError, match="--resume"):
        train(small(), run)
    with pytest.raises(RunFolderError, match=r"config\.toml"):
        checkpoint.load_model(tmp_path)
    # A finished run resumed does nothing more.
    before = weights(run)
    train(None, run, resume=True)
    assert torch.equal(before, weights(run))


def test_checkpoints_are_policies(tmp_path):
    """RUN@N and RUN@best have the weights after that update, and all settings of the run."""
    config = brief(run=replace(small().run, updates=3, group=2, validate_every=1, validation_tasks=2))
    run = train(config, tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line, share in zip(lines, (0.9, 0.1, 0.5, 0.4), strict=True):
        line |= {"validation/p@1": 1 - share, "validation/p@3": share}
    MetricsFile(run / "metrics.jsonl").cut(-1)
    for line in lines[1:]:
        MetricsFile(run / "metrics.jsonl").write(line)
    for name, update in (("", 3), ("3", 3), ("2", 2), ("best", 2)):  # p@3 after updates 1, 2, 3: 0.1, 0.5, 0.4
        path = checkpoint.find(run, name)
        assert path.name == f"update-{update:05d}"
        spec = f"{run}@{name}" if name else str(run)
        assert trained_with(spec) == trained_with(str(run))
        policy = player_from(spec, device="cpu")
        assert (policy.name, policy.gamma_traj) == (spec, 0.6)
        saved = load_file(path / "weights.safetensors")
        for name, weight in policy.engine.model.named_parameters():
            assert torch.equal(weight, saved[name])
    with pytest.raises(RunFolderError, match=r"update 1; kept: 2, 3.*run\.keep=2"):
        player_from(f"{run}@1")
    with pytest.raises(UsageError, match="'best'"):
        checkpoint.find(run, "newest")
    MetricsFile(run / "metrics.jsonl").cut(-1)
    with pytest.raises(RunFolderError, match=r"run\.validate_every"):
        checkpoint.find(run, "best")
    MetricsFile(run / "metrics.jsonl").write(lines[0])
    with pytest.raises(RunFolderError, match=r"update 0.*kept: 2, 3"):
        checkpoint.find(run, "best")


def test_with_staleness_the_next_update_begins_before_this_one_ends(tmp_path, monkeypatch):
    """With few places, the last trials of an update leave some empty: the next update's trials take them."""
    order: list[tuple[str, int]] = []
    play, update = Trainer.play, Learner.update

    async def noting(self, number, playing):
        order.append(("begins", number))
        groups = await play(self, number, playing)
        order.append(("played", number))
        return groups

    def learning(self, data, *, update: int):
        order.append(("learns", update))
        return learn(self, data, update=update)

    learn = update
    monkeypatch.setattr(Trainer, "play", noting)
    monkeypatch.setattr(Learner, "update", learning)
    base = brief()
    train(replace(base, run=replace(base.run, updates=3, staleness=1), engine=EngineConfig(slots=5)), tmp_path / "late")
    for number in range(2):
        assert order.index(("begins", number + 1)) < order.index(("played", number))
    assert order.index(("learns", 0)) < order.index(("begins", 2))  # but not two updates ahead
    assert [entry for entry in order if entry[0] == "learns"] == [("learns", number) for number in range(3)]
    assert ("begins", 3) not in order
    assert [line["update"] for line in metrics(tmp_path / "late")] == [1, 2, 3]
    order.clear()
    train(replace(base, run=replace(base.run, updates=2)), tmp_path / "fresh")
    assert order.index(("learns", 0)) < order.index(("begins", 1))


def test_what_goes_wrong_in_the_next_update_is_said_when_it_is_its_turn(tmp_path, monkeypatch):
    play = Trainer.play

    async def breaking(self, number, playing):
        if number == 1:
            raise MulliganError("the second update breaks")
        return await play(self, number, playing)

    monkeypatch.setattr(Trainer, "play", breaking)
    base = brief()
    with pytest.raises(MulliganError, match="the second update breaks"):
        train(replace(base, run=replace(base.run, staleness=1)), tmp_path / "run")
    assert [line["update"] for line in metrics(tmp_path / "run")] == [1]


def test_rl_reads_the_same_words_in_training_and_evaluation(tmp_path, monkeypatch):
    """Its trials have one episode, and say "Episode 1 of 3" as those of an evaluation do."""
    told: list[int] = []

    def opening(observation, index, episodes, *rest, **more):
        told.append(episodes)
        return original(observation, index, episodes, *rest, **more)

    original = prompts.opening
    config = brief(trial=trial(episodes=1, memory="history", style="bare", max_tokens=2))
    config = replace(config, run=replace(config.run, validate_every=1, validation_tasks=2))
    trainer = Trainer(config, RunFolder.create(tmp_path / "run", {}), lambda metrics: None)
    monkeypatch.setattr(prompts, "opening", opening)
    trainer.run()
    assert set(told) == {3}


def test_a_run_keeps_its_number_of_threads(tmp_path):
    """Sums of floats depend on it: what torch chose where the run began holds where it goes on."""
    config = brief(run=RunConfig(updates=1, tasks=2, group=2, checkpoint_every=1))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run = train(config, tmp_path / "run", stop=lambda: True)
        torch.set_num_threads(1)
        train(None, run, resume=True)
        assert torch.get_num_threads() == 2
        assert RunFolder.open(run).config()["run"]["threads"] == 2
    finally:
        torch.set_num_threads(threads)
