"""The rounds of a population: all agents play, each learns from what it played, and some are copied.

The weights of a round are those of its beginning, for all who play in it; then the agents learn in turn, each with a
`Trainer` of its own, in a run folder of its own. Everything random is derived from (seed, round). Checkpoints of all
agents are written after the same rounds, and a resumed run goes on from the last one that all have; the logs are cut
back to it. So a resumed run is the same run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mulligan.algo.normalise import History
from mulligan.calls import described
from mulligan.errors import (
    DeviceLost,
    MulliganError,
    ParameterError,
    RunFolderError,
    UsageError,
    lacks_memory,
    lost_device,
)
from mulligan.models.load import load_without_weights
from mulligan.policy.threads import EventLoop
from mulligan.population import agents as members
from mulligan.population import table
from mulligan.population.matchmaker import Pairing, Round, matched, shares
from mulligan.population.records import Log, Matches, matches_of
from mulligan.population.selection import HeldOut, copies
from mulligan.report.run import POPULATION, RunFolder
from mulligan.rollout.groups import Mixture, draw_tasks
from mulligan.seeding import derive, generator
from mulligan.training import checkpoint
from mulligan.training.config import Config, value_at, with_changes
from mulligan.training.context import fixed_context, keep_settings
from mulligan.training.loop import OnUpdate, Playing, Trainer, why_failed
from mulligan.training.metrics import MetricsFile
from mulligan.training.remote import RemoteLearner, UpdateLost
from mulligan.training.resolve import checked, from_run, to_tree
from mulligan.training.step import Learner
from mulligan.training.validation import RETRIES
from mulligan.types import Group, Task, Trial

KEPT_SNAPSHOTS = 4
"""The newest snapshots that are played against."""
STANDING = 10
"""Updates whose mean return says how an agent stands, where it has no score."""
RATINGS = "ratings.json"


def train(
    config: Config | None,
    run: str | Path,
    *,
    resume: bool = False,
    on_update: OnUpdate | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Train a population into the folder `run`; as `mulligan.training.loop.train`."""
    if resume:
        folder = RunFolder.open(run)
        config = check(config or from_run(folder))
    else:
        config = checkpoint.as_kept(check(checked(config or Config())), Path(run))
        folder = RunFolder.create(run, {"kind": "population", **to_tree(config)})
    with folder.held():
        try:
            population = Population(config, folder, on_update or (lambda metrics: None), stop)
        except BaseException:
            if not resume:
                for path in folder.path.glob("agent-*"):
                    shutil.rmtree(path)
                folder.discard()
            raise
        population.run()
    del population
    gc.collect()
    torch.cuda.empty_cache()
    return Path(folder.name)


def check(config: Config) -> Config:
    """`config`, if a population can be trained with it."""
    members.varied(config)
    if config.population.select_every:
        HeldOut(config)  # raises where agents would be selected by what they train with
    if config.population.others + config.population.past:
        for env, _ in Mixture.parse(config.task.env, {}).weights:
            table.check(env)
        if config.trial.stop == "success":
            raise ParameterError("trial.stop must be never where agents play each other (got success)")
        if config.task.related:
            raise ParameterError("task.related must be false where agents play each other")
        if shares(config.run.tasks, config.population, has_snapshots=True)[1:] == (0, 0):
            raise ParameterError(
                f"run.tasks must be larger for shares of {config.population.others:g} and {config.population.past:g} "
                f"(got {config.run.tasks}, of which none is a game against another agent)"
            )
    for key, expected in (("run.player", ""), ("run.staleness", 0), ("ray.workers", 0), ("engine.kind", "auto")):
        if value_at(config, key) != expected:
            raise ParameterError(f"{key} must be {expected!r} in a population (got {value_at(config, key)!r})")
    return config


@dataclass
class Agent:
    """An agent of a population."""

    number: int
    trainer: Trainer
    seats: asyncio.Semaphore
    """For games with other agents: half of the engine's slots, so that two who wait for each other both have one."""
    snapshots: members.Snapshots | None = None
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=STANDING))
    """Metrics of the last updates."""
    score: float | None = None
    """On held-out tasks, at the last selection; a copy has its source's."""

    @property
    def name(self) -> str:
        return f"agent/{self.number}"

    @property
    def standing(self) -> float:
        """The score of the last selection; without one, the mean return of the last episode in the last updates."""
        if self.score is not None:
            return self.score
        last = f"reward/{self.trainer.config.trial.episodes}"
        values = [line[last] for line in self.recent if line.get(last) is not None]
        return sum(values) / len(values) if values else 0.0


@dataclass
class Played:
    """What an agent played in a round."""

    groups: list[Group] = field(default_factory=list)
    as_guest: list[Group] = field(default_factory=list)
    """Games whose host is another agent, which logs them; it learns from them too."""
    playing: Playing = field(default_factory=Playing)
    error: Exception | None = None


class Population:
    """A population under way."""

    def __init__(self, config: Config, folder: RunFolder, on_update: OnUpdate, stop: Callable[[], bool]) -> None:
        config = _with_one_context(config, folder)
        self.config, self.folder, self.on_update, self.stop = config, folder, on_update, stop
        self.loop = EventLoop()
        self.keys = members.varied(config)
        self.agents: list[Agent] = []
        engines = members.Engines(config)
        for number, each in enumerate(members.agent_configs(config)):
            agent_folder = self._own_folder(number, each)
            saved = checkpoint.kept(agent_folder.path)
            if saved:  # by which settings have been copied and perturbed
                then = checkpoint.settings_of(saved[-1])
                each = with_changes(each, {key: value_at(then, key) for key in self.keys})
                checkpoint.check_settings(each, agent_folder.path)
            first = self.agents[0].trainer.loaded if self.agents and config.backend.kind == "local" else None
            loaded = members.sharing_base(first) if first is not None else None
            spare = None
            trainer = Trainer(each, agent_folder, on_update, loaded=loaded, stop=stop, loop=self.loop, engines=engines)
            keep_settings(trainer.config, agent_folder)
            agent = Agent(number, trainer, asyncio.Semaphore(max(1, trainer.engine.slots // 2)))
            self.agents.append(agent)
            if config.population.past:
                spare = members.sharing_base(trainer.loaded)
                agent.snapshots = members.Snapshots(folder.path / "past", number, trainer, spare, engines)
        first_config = self.agents[0].trainer.config
        engine = replace(config.engine, context=first_config.engine.context)
        self.config = replace(config, engine=engine, run=replace(config.run, threads=first_config.run.threads))
        keep_settings(self.config, folder)
        self.held_out = HeldOut(config) if config.population.select_every else None
        self.lineage, self.matches = Log(folder.path / "lineage.jsonl"), Matches(folder.path)
        self.metrics = MetricsFile(folder.path / "metrics.jsonl")

    def _own_folder(self, number: int, config: Config) -> RunFolder:
        path = self.folder.path / f"agent-{number}"
        if (path / "config.toml").is_file():
            return RunFolder.open(path)
        return RunFolder.create(path, {"kind": "train", **to_tree(config)})

    def run(self) -> None:
        """From the newest checkpoint, or from the beginning, to the last update."""
        gc.collect()
        gc.freeze()
        try:
            self._run()
        except RuntimeError as error:
            if (lost := lost_device(error, "training")) is None:
                raise
            raise lost from error
        finally:
            gc.unfreeze()
            self.loop.close()
            self.close()

    def close(self) -> None:
        """Free the memory that a server has for the agents."""
        for agent in self.agents:
            if isinstance(agent.trainer.learner, RemoteLearner):
                agent.trainer.learner.close()

    def _run(self) -> None:
        if not self._begin():
            return
        start = self._go_on()
        self.stop()  # from here on there is an update to finish
        for update in range(start, self.config.run.updates):
            metrics = self._round(update)
            done = update + 1
            stopping = self.stop()
            if self.agents[0].trainer.is_saved(done) or stopping:
                for agent in self.agents:
                    agent.trainer.save(done)
                self._write_best(done)
            self.on_update({"update": done, "updates": self.config.run.updates, **metrics})
            if stopping:
                return

    def _begin(self) -> bool:
        """The first checkpoint of every agent; returns False where the warm start was stopped.

        All begin with the weights of the first one. Where each has a line of its own in its prompt, each has its own
        warm start, in which it reads that line.
        """
        first = self.agents[0].trainer
        saved = [checkpoint.newest(agent.trainer.folder.path) for agent in self.agents]
        if saved[0] is not None and not all(saved):  # the run was killed in here: the others begin as the first one did
            checkpoint.restore(saved[0], first.learner, first.history)
        for agent in self.agents:
            trainer = agent.trainer
            if checkpoint.newest(trainer.folder.path) is not None:
                continue
            if agent.number == 0 or self.config.population.characters:
                if not trainer.begin():
                    return False
                continue
            if isinstance(first.learner, Learner):
                checkpoint.load_weights(checkpoint.by_update(first.folder.path)[0], trainer.loaded.model)
            members.copy_agent(first, trainer, trainer.config)
            if trainer.config.algo.kl_weight:
                checkpoint.save_reference(trainer.folder.path, trainer.local_learner)
            trainer.save(0)
        return True

    def _go_on(self) -> int:
        """Put back the last checkpoints that all agents have; returns how many updates are done."""
        saved = [checkpoint.by_update(agent.trainer.folder.path) for agent in self.agents]
        start = min(max(each) for each in saved)
        self.metrics.cut(start)
        self.lineage.cut(start)
        self.matches.cut(start)
        for agent, each in zip(self.agents, saved, strict=True):
            trainer = agent.trainer
            if start not in each:
                raise RunFolderError(
                    f"{trainer.folder.name} has no checkpoint after update {start}, as the others have"
                )
            checkpoint.drop_after(trainer.folder.path, start)
            then = checkpoint.settings_of(each[start])
            trainer.use(with_changes(trainer.config, {key: value_at(then, key) for key in self.keys}))
            trainer.go_on(each[start])
            agent.recent.extend(line for line in trainer.metrics.read() if line["update"])
        for line in self.lineage.read():
            if line["event"] == "scored":
                self.agents[line["agent"]].score = line["value"]
            elif "from" in line:
                self.agents[line["agent"]].score = self.agents[line["from"]].score
        if not start and not self.lineage.read():
            begun = [{"agent": agent.number, "event": "begun", **self._settings(agent)} for agent in self.agents]
            self.lineage.write_all(0, begun)
            self._write_best(0)
        return start

    def _settings(self, agent: Agent) -> dict[str, Any]:
        return {"settings": members.shown(agent.trainer.config, self.keys)}

    def _round(self, update: int) -> dict[str, Any]:
        """One update of every agent; returns the mean of their metrics."""
        began, done = time.perf_counter(), update + 1
        self._share_returns()
        tokens = [agent.trainer.engine.tokens for agent in self.agents]
        played = self.loop.run(partial(self._play, update, self._plan(update)))
        seconds = time.perf_counter() - began
        lines: list[dict[str, Any]] = []
        unfit: dict[int, str] = {}
        for agent, each, before in zip(self.agents, played, tokens, strict=True):
            try:
                line = self._learned(agent, update, each)
                line |= {
                    "time/rollout": seconds,
                    "time/engine_tokens_per_s": (agent.trainer.engine.tokens - before) / max(1e-9, seconds),
                }
                why = members.why_unfit(agent.trainer, line)
            except Exception as error:
                if not _is_of_agent(error):
                    raise
                line, why = {}, described(error)
            if why is not None:
                unfit[agent.number] = why
            lines.append(line)
        unfit |= self._looping([agent for agent in self.agents if agent.number not in unfit], lines)
        for number, why in unfit.items():
            lines[number] = {"warning": f"agent {number} is replaced: {why}"}
        self._replace(done, unfit)
        for agent, line in zip(self.agents, lines, strict=True):
            agent.recent.append({"update": done, **agent.trainer.note(done, line)})
        self.matches.add(
            done, [m for a, p in zip(self.agents, played, strict=True) for m in matches_of(a.number, p.groups)]
        )
        if self.config.population.past and done % self.config.population.snapshot_every == 0:
            for agent in self.agents:
                assert agent.snapshots is not None, "a population with a past keeps snapshots"
                agent.snapshots.save(done)
        if self.held_out is not None and done % self.config.population.select_every == 0:
            self._select(done, self.held_out)
        metrics = _mean([dict(agent.recent[-1]) for agent in self.agents])
        self.metrics.write({**metrics, "update": done})
        return {**metrics, "update": done}

    def _share_returns(self) -> None:
        """Tell each agent the others' returns as they are before the round, so that all divide by the same spread."""
        before = [History(agents=agent.trainer.history.agents.joined([])) for agent in self.agents]
        for agent in self.agents:
            agent.trainer.history.peers[:] = [each for number, each in enumerate(before) if number != agent.number]

    def _looping(self, fit: Sequence[Agent], lines: Sequence[dict[str, Any]]) -> dict[int, str]:
        """Why agents are replaced that finish no episode. Where none does, as beginners may not, all go on."""
        recent = {agent.number: [*agent.recent, lines[agent.number]] for agent in fit}
        looping = {number: why for number, each in recent.items() if (why := members.why_looping(each)) is not None}
        return looping if any(members.finishes(lines[agent.number]) for agent in fit) else {}

    def _learned(self, agent: Agent, update: int, played: Played) -> dict[str, Any]:
        if played.error is not None:
            raise played.error
        return agent.trainer.learn(update, [*played.groups, *played.as_guest], played.playing.failures)

    # What is played ------------------------------------------------------------------------------------------------

    def _plan(self, update: int) -> Round:
        population = self.config.population
        newest = update // population.snapshot_every
        numbers = range(max(1, newest - KEPT_SNAPSHOTS + 1), newest + 1) if population.past else ()
        snapshots = [number * population.snapshot_every for number in numbers]
        rng = generator(self.config.run.seed, "population", "matches", update)
        return matched(population, self.config.run.tasks, snapshots, self.matches.win_rate, rng)

    async def _play(self, update: int, plan: Round) -> list[Played]:
        """What each agent played, at the same time as all others."""
        played = [Played() for _ in self.agents]
        mixture, seed = self.agents[0].trainer.mixture, self.config.run.seed
        draws = draw_tasks(mixture, len(plan.pairings), seed=seed, update=update, name="population")
        for pairing in plan.pairings:
            if pairing.snapshot is not None:
                snapshots = self.agents[pairing.agent].snapshots
                assert snapshots is not None, "a population with a past keeps snapshots"
                snapshots.load(pairing.snapshot)
        for agent in self.agents:
            agent.trainer.loaded.model.eval()

        async def scripted(agent: Agent, into: Played) -> None:
            into.groups = await agent.trainer.play(update, into.playing, plan.scripted)

        async def kept(agent: Agent, work: Coroutine[Any, Any, None]) -> None:
            try:
                await work
            except Exception as error:
                if not _is_of_agent(error):
                    raise
                played[agent.number].error = error

        await asyncio.gather(*(kept(each, scripted(each, played[each.number])) for each in self.agents))
        games = [self._paired(update, number, pair, draws[number].task) for number, pair in enumerate(plan.pairings)]
        for pairing, (group, other, failures) in zip(plan.pairings, await asyncio.gather(*games), strict=True):
            sides = [(pairing.agent, group)] + ([(pairing.other, other)] if pairing.snapshot is None else [])
            for number, each in sides:
                into = played[number]
                (into.groups if each is group else into.as_guest).append(each)
                into.playing.failures.update(failures)
        return played

    async def _paired(
        self, update: int, number: int, pairing: Pairing, task: Task
    ) -> tuple[Group, Group, Counter[str]]:
        """The groups of both sides of a task that two play, and the failed attempts by reason."""
        host, other = self.agents[pairing.agent], self.agents[pairing.other]
        players = [table.Player(each.name, each.trainer.policy, each.trainer.trial) for each in (host, other)]
        seats = sorted({host.number, other.number})
        places = [self.agents[each].seats for each in seats]
        if pairing.snapshot is not None:
            assert host.snapshots is not None, "a snapshot has a player"
            name = f"past/{pairing.agent}@{pairing.snapshot}"
            players[1] = players[1]._replace(name=name, policy=host.snapshots.policy)
            places.append(host.snapshots.seats)
        failures: Counter[str] = Counter()

        async def play(index: int) -> tuple[Trial, Trial]:
            seed = derive(self.config.run.seed, "population", "trial", update, number)
            async with AsyncExitStack() as stack:
                for place in places:  # in the same order by everybody, so that nobody waits in a circle
                    await stack.enter_async_context(place)
                for _ in range(RETRIES + 1):
                    trials = await table.play(task, players, seed=seed, index=index)
                    failures.update(why_failed(trial) for trial in trials if trial.failed)
                    if not any(trial.failed for trial in trials):
                        break
            return trials

        pairs = await asyncio.gather(*(play(index) for index in range(self.config.run.group)))
        mine, theirs = (tuple(each) for each in zip(*pairs, strict=True))
        return Group(mine[0].task, mine), Group(theirs[0].task, theirs), failures

    # Who is copied -------------------------------------------------------------------------------------------------

    def _replace(self, done: int, unfit: dict[int, str]) -> None:
        """Agents that cannot go on become copies of the best of the others."""
        if not unfit:
            return
        fit = [agent for agent in self.agents if agent.number not in unfit]
        if not fit:
            reasons = "; ".join(f"agent {number}: {why}" for number, why in unfit.items())
            raise MulliganError(f"no agent of the population can go on after update {done}: {reasons}")
        best = max(fit, key=lambda agent: (agent.standing, -agent.number))
        for number, why in unfit.items():
            self._copy(done, best, self.agents[number], "replaced", {"why": why})

    def _select(self, done: int, held_out: HeldOut) -> None:
        """Score all agents on held-out tasks, and make the worst copies of the best."""
        scores = {agent.number: held_out.score(agent.trainer) for agent in self.agents}
        for agent in self.agents:
            agent.score = scores[agent.number].value
        lines = [
            {"agent": n, "event": "scored", "value": each.value, "error": each.error, "episodes": each.episodes}
            for n, each in scores.items()
        ]
        self.lineage.write_all(done, lines)
        for best, worst in copies(scores):
            self._copy(done, self.agents[best], self.agents[worst], "copied", {})

    def _copy(self, done: int, source: Agent, target: Agent, event: str, more: dict[str, Any]) -> None:
        rng = generator(self.config.run.seed, "population", "copy", done, target.number)
        changed = members.perturbed(source.trainer.config, self.keys, rng)
        config = with_changes(target.trainer.config, {key: value_at(changed, key) for key in self.keys})
        members.copy_agent(source.trainer, target.trainer, config)
        target.score = source.score
        line = {"agent": target.number, "event": event, "from": source.number, **more, **self._settings(target)}
        self.lineage.write_all(done, [line])

    def _write_best(self, done: int) -> None:
        best = max(self.agents, key=lambda agent: (agent.standing, -agent.number))
        standings = [agent.standing for agent in self.agents]
        data = {"agents": len(self.agents), "best": best.number, "update": done, "standings": standings}
        self.folder.write_text(POPULATION, json.dumps(data) + "\n")
        if self.matches.ratings:
            ratings = {name: rating._asdict() for name, rating in self.matches.ratings.items()}
            self.folder.write_text(RATINGS, json.dumps({"update": done, "ratings": ratings}, indent=1) + "\n")


def _with_one_context(config: Config, folder: RunFolder) -> Config:
    """`config` with the longest context that any agent needs, where each has a line of its own in its prompt."""
    if config.engine.context or not config.population.characters:
        return config
    is_remote = config.backend.kind == "tinker"
    loaded = load_without_weights(config.model.name) if is_remote else checkpoint.load_base(config, "cpu", folder.path)
    longest = max(fixed_context(each, loaded)[0].engine.context for each in members.agent_configs(config))
    return replace(config, engine=replace(config.engine, context=longest))


def _is_of_agent(error: Exception) -> bool:
    """Whether an error is an agent's own affair, rather than the machine's, a server's or the caller's."""
    return not (isinstance(error, (UsageError, DeviceLost, RunFolderError, UpdateLost)) or lacks_memory(str(error)))


def _mean(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean of what all agents have that learned, and every warning."""
    learned = [line for line in lines if "turns" in line]
    names = [name for name in learned[0] if all(isinstance(line.get(name), int | float) for line in learned)]
    metrics: dict[str, Any] = {name: sum(line[name] for line in learned) / len(learned) for name in names}
    warnings = dict.fromkeys(line["warning"] for line in lines if line.get("warning"))
    return {**metrics, **({"warning": "; ".join(warnings)} if warnings else {})}
