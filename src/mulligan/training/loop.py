"""The training loop: tasks -> groups of trials -> returns -> advantages -> rows -> optimiser steps -> new weights.

Sampler and trainer share one model, so that new weights need no copy. Everything random is derived from (seed, update),
so that a resumed run goes on exactly as if it had never stopped.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mulligan.algo.advantage import ESTIMATORS, Advantages, Options
from mulligan.algo.advantage.ppo import heads
from mulligan.algo.batch import REFLECT, StepBatch
from mulligan.algo.build import batch_from_groups
from mulligan.algo.loss import mismatch_warning
from mulligan.algo.normalise import History
from mulligan.engine.choose import LocalEngine, MakeEngine, make_engine
from mulligan.engine.tinker import TinkerEngine
from mulligan.engine.vllm import VllmEngine
from mulligan.errors import MulliganError, StopReason, lost_device
from mulligan.eval.passk import WARN_FROM, CutReplies, cut_replies
from mulligan.models.load import Loaded, load_without_weights
from mulligan.models.memory import leave_room
from mulligan.policy.base import Policy
from mulligan.policy.local import Demonstrated, LocalPolicy
from mulligan.policy.scripted import RandomPolicy
from mulligan.policy.threads import EventLoop
from mulligan.policy.writer import Advised
from mulligan.report.run import RunFolder
from mulligan.rollout.groups import Mixture, draw_tasks, play_groups
from mulligan.rollout.ray_worlds import RayWorlds
from mulligan.training import checkpoint, optimisers
from mulligan.training.config import Config
from mulligan.training.context import bytes_to_come, fixed_context, keep_settings
from mulligan.training.metrics import MetricsFile, describe_groups
from mulligan.training.processes import Processes, joined
from mulligan.training.remote import RemoteLearner, UpdateLost
from mulligan.training.resolve import checked, from_run, to_tree
from mulligan.training.rows import Row, rows_of
from mulligan.training.step import Learner, UpdateData
from mulligan.training.validation import RETRIES, TRIALS_AT_A_TIME, Validation
from mulligan.training.warmstart import warm_start
from mulligan.trial import prompts
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import check_server, check_url
from mulligan.types import Group, Trial

OnUpdate = Callable[[dict[str, Any]], None]
RANDOM_UNTIL = 0.7
"""Share of the updates in which `run.random_trials` counts; from then on all trials are the agent's own."""

LOSSES = 3
"""Times that a server may lose one update before the run ends."""


def train(
    config: Config | None,
    run: str | Path,
    *,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Train into the folder `run` and return it.

    With `resume`, the configuration is the folder's own, in which only `resolve.MAY_CHANGE` may differ
    from what the run began with. `stop` is called after every update and every step of the warm start: where it returns
    True, the run is saved and ends, and a later `resume` continues it. It is called before the first one too, where the
    answer does not count: a process finishes at least that.
    """
    processes = joined()
    if resume:
        folder = RunFolder.open(run)
        config = config or from_run(folder)
    else:
        config = checkpoint.as_kept(checked(config or Config()), Path(run))
        created = RunFolder.create(run, {"kind": "train", **to_tree(config)}) if processes.is_first else None
        processes.meet()
        folder = created or RunFolder.open(run)
    with folder.held() if processes.is_first else nullcontext():
        try:
            if resume:
                checkpoint.check_settings(config, folder.path)
            trainer = Trainer(config, folder, on_update or (lambda metrics: None), stop=stop, processes=processes)
            if processes.is_first:
                keep_settings(trainer.config, folder)
        except BaseException:
            if not resume and processes.is_first:  # a run that cannot begin leaves no folder behind
                folder.discard()
            raise
        trainer.run()
    processes.leave()
    del trainer
    gc.collect()
    torch.cuda.empty_cache()  # whoever goes on in this process, or shares the GPU, may need the memory
    return Path(folder.name)


@dataclass
class Playing:
    """The trials of one update, under way."""

    task: asyncio.Future[list[Group]] = field(init=False)
    all_begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when every trial has begun: from then on, free slots go to the next update."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed attempts by reason, also those that a retry mended."""


class Trainer:
    """A training run under way."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        on_update: OnUpdate,
        *,
        loaded: Loaded | None = None,
        stop: Callable[[], bool] = lambda: False,
        loop: EventLoop | None = None,
        processes: Processes | None = None,
        engines: MakeEngine = make_engine,
    ) -> None:
        """`loaded`: a model to use instead of the one that the configuration names. `loop`: one that is shared.
        `engines` gives the model's engine."""
        self.processes = processes = processes or Processes()
        processes.check(config)
        self.folder, self.on_update = folder, on_update
        self.stop: Callable[[], bool] = lambda: any(processes.gathered(stop()))
        # Sums of floats depend on how many threads share them: a resumed run keeps the number, wherever it goes on.
        config = replace(config, run=replace(config.run, threads=config.run.threads or torch.get_num_threads()))
        torch.set_num_threads(config.run.threads)
        device = config.model.device
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self.device = processes.device(self.device)
        is_remote = config.backend.kind == "tinker"
        if is_remote:
            self.device, loaded = "cpu", load_without_weights(config.model.name)
        self.loaded = loaded or checkpoint.load_base(config, self.device, folder.path)
        config, notice = fixed_context(config, self.loaded)
        self.config = config
        self.notices = [notice] if notice else []
        """Warnings for the next update, each given once in a run."""
        self.has_warned_of_cuts = False
        self.learner: Learner | RemoteLearner
        self.engine: LocalEngine | TinkerEngine
        self.learner, self.engine = self._remote() if is_remote else self._local(engines, is_given=loaded is not None)
        self.policy = self._agent(LocalPolicy(self.engine, self.loaded.renderer, config.model.name))
        style = prompts.style(config.trial.style)
        self.stand_in = Demonstrated(RandomPolicy(), self.loaded.renderer, style.demonstrated, self.engine.context)
        self.options = Options(config.algo.baseline, config.algo.scale)
        mixture = Mixture.parse(config.task.env, config.task.params)
        self.mixture = replace(mixture, env_timeout=config.trial.env_timeout)
        self.concurrency = TRIALS_AT_A_TIME
        self.worlds = (
            RayWorlds(config.ray.workers, config.ray.address, config.trial.env_timeout) if config.ray.workers else None
        )
        self.play_trial = self.worlds.play if self.worlds else run_trial
        self.history = History()
        self.loop = loop or EventLoop()
        self.playing: dict[int, Playing] = {}
        """Update -> its trials, of updates whose trials have begun."""
        self.metrics = MetricsFile(folder.path / "metrics.jsonl")
        self.validation = None
        if config.run.validate_every or not config.run.updates:  # a warm start alone is validated once
            self.validation = Validation(config, self.mixture, self.policy, self.loop.run, self.play_trial, processes)

    @property
    def local_learner(self) -> Learner:
        """The learner of a model in this process, whose weights can be read and copied."""
        assert isinstance(self.learner, Learner), "the weights are on a server"
        return self.learner

    def _local(self, engines: MakeEngine, *, is_given: bool) -> tuple[Learner, LocalEngine]:
        """The model in this process: its learner, and the engine that samples from it."""
        config, model = self.config, self.loaded.model
        critic = heads(config.algo.form) if config.algo.estimator == "ppo" else 0
        learner = Learner(model, config, critic, processes=self.processes)
        if not is_given:
            checkpoint.take_masters(config, self.folder.path, learner)
        slots, context, kind = config.engine.slots, config.engine.context, config.engine.kind
        reserved = bytes_to_come(model, config)
        return learner, engines(model, slots=slots, context=context, kind=kind, reserved=reserved)

    def _remote(self) -> tuple[RemoteLearner, TinkerEngine]:
        """A server's model: what trains it, and what samples from it."""
        check_url(self.config.backend.url)
        learner = RemoteLearner(self.config, context=self.config.engine.context)
        learner.begin(len(self.loaded.tokenizer))
        return learner, learner.engine

    def _agent(self, trained: LocalPolicy) -> Policy:
        """Who plays: the model itself, or a frozen player that it advises."""
        run, task = self.config.run, self.config.task
        if not run.player:
            return trained
        if run.player.startswith("endpoint:"):
            check_server(run.player)
        players = import_module(
            "mulligan.players"
        )  # by its name: a player may be a run, which it reads with `training`
        plays = players.Plays(task.env, task.params, self.config.trial)
        name = checkpoint.player_of(run.player, self.folder.path)
        player = players.player_from(name, device=self.device, slots=self.config.engine.slots, plays=plays)
        return Advised(player, trained)

    def run(self) -> None:
        """From the newest checkpoint, or from the beginning, to the last update."""
        gc.collect()
        gc.freeze()  # the garbage collector would look through the model's many objects again and again
        try:
            self._run()
        except RuntimeError as error:
            if (lost := lost_device(error, "training")) is None:
                raise
            raise lost from error
        finally:
            gc.unfreeze()
            self.loop.close()
            if self.worlds is not None:
                self.worlds.close()
            if isinstance(self.learner, RemoteLearner):
                self.learner.close()

    def _run(self) -> None:
        newest = checkpoint.newest(self.folder.path)
        if newest is None and not self.begin():
            return
        update = self.go_on(newest)
        self.stop()  # from here on there is an update to finish
        losses: Counter[int] = Counter()
        stopping = False
        while update < self.config.run.updates and not stopping:
            try:
                stopping = self._finished(update)
                update += 1
            except UpdateLost as lost:
                losses[update] += 1
                if losses[update] > LOSSES:
                    raise
                update = self._back_at_checkpoint(lost)

    def _finished(self, update: int) -> bool:
        """Do an update with all that belongs to it; returns whether the run is to stop."""
        done, metrics = update + 1, self._update(update)
        metrics = self.note(done, metrics)
        stopping = self.stop()
        if self.is_saved(done) or stopping:
            self.save(done)
        self.on_update({"update": done, "updates": self.config.run.updates, **metrics})
        return stopping

    def _back_at_checkpoint(self, lost: UpdateLost) -> int:
        """Go on from the newest checkpoint, as a resumed run would, where the server can; returns the updates done."""
        newest = checkpoint.newest(self.folder.path)
        assert isinstance(self.learner, RemoteLearner), "only a server loses updates"
        if newest is None:
            raise lost
        self.loop.run(self._stop_playing)
        try:
            self.learner.renew()
            start = self.go_on(newest)
        except MulliganError:
            raise lost from None
        self.notices.append(f"{lost.loss}; the run went on from its checkpoint after {start} updates")
        return start

    async def _stop_playing(self) -> None:
        """End all trials under way: a resumed run plays them again, with the same seeds."""
        tasks = [playing.task for playing in self.playing.values()]
        self.playing.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self) -> bool:
        """Warm start, then the first checkpoint; returns False where it was stopped before."""
        if self.config.warmstart.steps and not warm_start(self):
            return False
        if self.config.algo.kl_weight:
            checkpoint.save_reference(self.folder.path, self.local_learner)
        self.save(0)
        return True

    def go_on(self, saved: Path | None) -> int:
        """Go on from a checkpoint, or from the beginning; returns how many updates are done."""
        start = checkpoint.restore(saved, self.learner, self.history) if saved else 0
        if self.config.algo.kl_weight:
            checkpoint.load_reference(self.folder.path, self.local_learner)
        self.processes.each(lambda: self.metrics.cut(start), first_alone=True)
        if isinstance(self.learner, Learner):
            self.learner.divide()
        if start:  # an earlier process has given them
            self.notices = []
        self.has_warned_of_cuts = any(line.get("replies/cut", 0.0) >= WARN_FROM for line in self.metrics.read())
        if self.validation is not None and start == 0 and not any(self.processes.gathered(self.metrics.read())):
            self._write({"update": 0, **self._validate(0)})
        return start

    def use(self, config: Config) -> None:
        """Go on with other settings of the updates, and write them into the run folder."""
        self.config = self.learner.config = config
        if isinstance(self.learner, Learner):
            optimisers.use(self.learner.optimiser, config.optim)
        if self.validation is not None:
            self.validation.settings = config.trial
        keep_settings(config, self.folder)

    def note(self, done: int, metrics: dict[str, Any]) -> dict[str, Any]:
        """Write the metrics of an update, with those of a validation where it is due; returns both."""
        every = self.config.run.validate_every
        if self.validation is not None and (done % every == 0 or done == self.config.run.updates):
            metrics = {**metrics, **self._validate(done)}
        self._write({"update": done, **metrics})
        return metrics

    def is_saved(self, done: int) -> bool:
        """Whether a checkpoint is due after so many updates."""
        return done % self.config.run.checkpoint_every == 0 or done == self.config.run.updates

    def save(self, done: int) -> None:
        checkpoint.save(self.folder.path, done, self.learner, self.history, self.config.run.keep)

    def _write(self, metrics: dict[str, Any]) -> None:
        if self.processes.is_first:
            self.metrics.write(metrics)

    def _update(self, update: int) -> dict[str, Any]:
        began, tokens_before = time.perf_counter(), self.engine.tokens
        self.loaded.model.eval()
        groups, failures = self._gathered(update, *self._played(update))
        seconds = time.perf_counter() - began
        speed = (self.engine.tokens - tokens_before) / max(1e-9, seconds)
        return {**self.learn(update, groups, failures), "time/rollout": seconds, "time/engine_tokens_per_s": speed}

    def learn(self, update: int, groups: list[Group], failures: Counter[str]) -> dict[str, Any]:
        """Everything of an update that comes after its trials were played; returns its metrics."""
        played = time.perf_counter()
        if isinstance(self.engine, VllmEngine) and not self.config.run.staleness:  # nobody plays meanwhile
            self.engine.sleep()
        batch = batch_of(self.config, groups)
        reflections_alone = bool(self.config.run.player)
        if reflections_alone:
            batch = batch.of_phase(REFLECT)
        if not len(batch):
            missing = "reflection" if reflections_alone else "reply"
            raise MulliganError(f"no trial of update {update + 1} had a {missing}; the first: {_first_error(groups)}")
        trials = [groups[group].trials[index] for group, index in batch.source]
        rows, steps = rows_of(trials, reflections_alone=reflections_alone)
        assert steps == len(batch), f"{steps} steps have tokens, {len(batch)} have returns"
        budget = self.learner.tokens
        advantages, losses = self._learn(update, batch, rows, steps)
        ended = time.perf_counter()
        self._keep_trials(update, groups)
        own_groups = self._own(groups, update)
        cut = cut_replies([trial for group in own_groups for trial in group.trials], self.config.trial)
        return {
            **describe_groups(own_groups, self.config.trial.episodes),
            "replies": cut.replies,
            "replies/cut": cut.share,
            **{f"loss/{name}": value for name, value in losses.items()},
            **advantages.metrics,
            **{f"failures/{name}": count for name, count in sorted(failures.items())},
            "tokens/rows": sum(len(row.ids) for row in rows),
            "tokens/longest_row": max(len(row.ids) for row in rows),
            "tokens/sampled": sum(len(span.ids) for row in rows for span in row.spans),
            "optim/tokens": self.learner.tokens,
            "warning": self._warning(losses, budget, groups, cut),
            "time/update": ended - played,
        }

    def _learn(self, update: int, batch: StepBatch, rows: list[Row], steps: int) -> tuple[Advantages, dict[str, float]]:
        values = self.learner.look_over(rows, steps, update)
        if values is not None:
            batch = replace(batch, critic=values.double().cpu().numpy())
        advantages = ESTIMATORS[self.config.algo.estimator](batch, self.options, self.history)
        self.history.observe(batch)
        random_steps = [span.step for row in rows for span in row.spans if span.logprobs is None]
        advantages.values[random_steps] = advantages.values[random_steps].clip(min=0.0)
        targets = advantages.targets
        data = UpdateData(
            rows,
            torch.tensor(advantages.values, dtype=torch.float32, device=self.device),
            None if targets is None else torch.tensor(targets, dtype=torch.float32, device=self.device),
        )
        losses = self.learner.update(data, update=update)
        leave_room(self.learner.device)
        return advantages, losses

    def _warning(self, losses: dict[str, float], budget: int, groups: list[Group], cut: CutReplies) -> str | None:
        warnings: list[str | None] = [*self.notices]
        self.notices = []
        if not self.config.run.staleness:  # trials that began before the last update were drawn from other weights
            warnings.append(mismatch_warning(losses))
        if self.learner.tokens < budget:
            warnings.append(f"out of memory: micro-batches now hold {self.learner.tokens} tokens instead of {budget}")
        stops = [episode.stop for group in groups for trial in group.trials for episode in trial.episodes]
        full = stops.count(StopReason.CONTEXT_FULL)
        if 2 * full > len(stops):
            warnings.append(f"{full} of {len(stops)} episodes filled the context; engine.context is too short")
        if losses["skipped"]:
            warnings.append(f"{losses['skipped']:.0f} steps skipped: the loss was not finite")
        if not self.has_warned_of_cuts and (text := cut.warning()):
            warnings.append(text)
            self.has_warned_of_cuts = True
        return "; ".join(filter(None, warnings)) or None

    def _played(self, update: int) -> tuple[list[Group], Counter[str]]:
        """The groups of an update, and its failed attempts by reason; with staleness, the trials of the next update
        begin as soon as all of these have begun."""

        async def finish() -> tuple[list[Group], Counter[str]]:
            playing = self.playing.pop(update, None) or self._begin_playing(update)
            following = asyncio.ensure_future(self._begin_ahead(update, playing))
            try:
                return await playing.task, playing.failures
            finally:
                following.cancel()

        return self.loop.run(finish)

    def _gathered(
        self, update: int, own_groups: list[Group], own_failures: Counter[str]
    ) -> tuple[list[Group], Counter[str]]:
        """The groups and failures of all processes: every one computes the same advantages from them."""
        parts = self.processes.gathered((own_groups, own_failures))
        groups = self.processes.dealt([part for part, _ in parts])
        self._check_played(update, groups)
        return groups, sum((failures for _, failures in parts), Counter())

    async def _begin_ahead(self, update: int, before: Playing) -> None:
        """Begin the updates after `update` that staleness allows, each when all trials of the one before have begun."""
        run = self.config.run
        for number in range(update + 1, min(update + run.staleness, run.updates - 1) + 1):
            await before.all_begun.wait()
            if number not in self.playing:
                self.playing[number] = self._begin_playing(number)
            before = self.playing[number]

    def _begin_playing(self, update: int) -> Playing:
        playing = Playing()
        playing.task = asyncio.ensure_future(self.play(update, playing))
        # The error of an update that nobody awaits yet is raised when somebody does: it is marked as seen.
        playing.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return playing

    async def play(self, update: int, playing: Playing, tasks: int | None = None) -> list[Group]:
        """The groups of an update, on as many tasks as an update has, or on `tasks` of them."""
        run, tasks = self.config.run, self.config.run.tasks if tasks is None else tasks
        related = self.config.trial.episodes - 1 if self.config.task.related else 0
        draws = draw_tasks(self.mixture, tasks, seed=run.seed, update=update, related=related)
        share = self.processes.share
        groups = await play_groups(
            share(draws),
            run.group,
            self.policy,
            self.trial,
            seed=run.seed,
            update=update,
            stand_in=self.stand_in,
            stand_in_trials=self._random_trials(update),
            concurrency=self.concurrency,
            retries=RETRIES,
            on_failure=lambda trial: playing.failures.update([why_failed(trial)]),
            on_last=playing.all_begun.set,
            play=self.play_trial,
            numbers=share(range(tasks)),
        )
        if self.processes.count == 1:
            self._check_played(update, groups)
        return groups

    def _check_played(self, update: int, groups: list[Group]) -> None:
        if all(trial.failed for group in self._own(groups, update) for trial in group.trials):
            raise MulliganError(f"every trial of update {update + 1} failed; the first failure: {_first_error(groups)}")

    @property
    def trial(self) -> TrialSettings:
        """How trials are played. With RL, whose trials have one episode, agents are told of as many as policies are
        evaluated on."""
        settings = self.config.trial
        return replace(settings, announced=settings.episodes if settings.episodes > 1 else TrialSettings().episodes)

    def _random_trials(self, update: int) -> int:
        """How many of a group's trials random moves take part in; one at least is the agent's own."""
        run, planned = self.config.run, self.learner.schedule.updates
        count = math.ceil(run.random_trials * run.group - 1e-9)
        return min(run.group - 1, count) if update < RANDOM_UNTIL * planned else 0

    def _own(self, groups: Sequence[Group], update: int) -> list[Group]:
        """The groups without the trials that random moves may take part in, whether they did or not."""
        first = self._random_trials(update)
        return [replace(group, trials=group.trials[first:]) for group in groups]

    def _validate(self, updates: int) -> dict[str, float]:
        """Validate after so many updates, and keep some of the trials."""
        if self.validation is None:
            return {}
        self.loaded.model.eval()
        metrics, trials = self.validation.play()
        if trials and self.processes.is_first:
            self.folder.write_trials(f"validation-{updates:05d}", trials)
        return metrics

    def _keep_trials(self, update: int, groups: list[Group]) -> None:
        every = self.config.run.save_trials_every
        if self.processes.is_first and every and (update % every == 0 or update + 1 == self.config.run.updates):
            trials = [trial for group in groups for trial in group.trials]
            self.folder.write_trials(f"update-{update + 1:05d}", trials)


def batch_of(config: Config, groups: Sequence[Group]) -> StepBatch:
    """The steps of an update's trials, with the returns that these settings give them."""
    algo = config.algo
    return batch_from_groups(
        groups,
        gamma_step=algo.gamma_step,
        gamma_traj=algo.gamma_traj,
        form=algo.form,
        shaping_weight=algo.shaping,
        invalid_penalty=algo.invalid_penalty,
        length_penalty=algo.length_penalty,
        length_limit=config.trial.sampling.max_tokens,
        reflection_limit=config.trial.reflection_tokens,
    )


def _first_error(groups: list[Group]) -> str:
    errors = (episode.error for group in groups for trial in group.trials for episode in trial.episodes)
    return next(filter(None, errors), "no error")


def why_failed(trial: Trial) -> str:
    """The first failure of a trial, which may go on after it and even be won."""
    stops = (episode.stop for episode in trial.episodes)
    return next((stop.value for stop in stops if stop.is_infrastructure), "unreflected")
