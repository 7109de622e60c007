"""Honest evaluation: one protocol for every method, on frozen tasks, with controls, ceiling and room.

Arms of an evaluation, each a file of trials in the run folder:

main         the policy under the settings asked for
independent  as many retries without any memory: what the gain must beat
removed      memory without the reflection's text
foreign      the reflection of a different task of the same class, written after the same episode
other-trial  the reflection of another trial of the same task
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from mulligan import notebook
from mulligan.envs import registry
from mulligan.errors import ParameterError, PolicyError, StopReason, UsageError
from mulligan.eval.cut import CutReplies, cut_replies
from mulligan.eval.evidence import TaskNames
from mulligan.eval.paid import PaidReplies, Remembering
from mulligan.eval.passk import Summary, design_effect, summarise, tasks_behind, tokens
from mulligan.eval.plan import EvalPlan, Prices
from mulligan.policy.base import Policy
from mulligan.policy.scripted import ExpertPolicy
from mulligan.policy.threads import run_async
from mulligan.report.run import SCHEMA_VERSION, RunFolder
from mulligan.rollout.collect import Job, Judge, collect
from mulligan.rollout.tasksets import next_alike, tasks_of
from mulligan.rollout.worlds import SAMPLED, Separation, separation
from mulligan.seeding import generator
from mulligan.trial.runner import ReflectionSource
from mulligan.trial.settings import TrialSettings
from mulligan.types import PLAYERS, Task, Trial, whole

Progress = Callable[[str, int, int], None]
"""Called with the arm, how many of its trials are done, and how many there are."""


@dataclass(frozen=True, repr=False)
class EvalResult:
    """What an evaluation found."""

    env: str
    policy: str
    tasks: int
    """Tasks asked for; `main.trials` says how many were played."""
    episodes: int
    kind: str
    settings: TrialSettings
    main: Summary
    controls: Mapping[str, Summary]
    room: Mapping[str, Summary]
    """Scripted players on the same tasks: ceiling (omniscient), expert and, where later episodes are of the same task,
    expert with perfect memory; then those that the environment names in `room_players`."""
    gains: Mapping[str, tuple[float, tuple[float, float]]]
    """main − control, paired by task: at p@N, or in the last episode's return for games.

    A control that has no task in common with main, because the money ran out, is left out.
    """
    by_class: Mapping[str, Summary]
    seconds: float
    cost: float
    complete: bool
    run: str | None
    related: bool = False
    """Whether later episodes were other tasks of the class."""
    separation: Separation = "split"
    """Whether these worlds were kept apart from those of training (`mulligan.rollout.worlds`)."""
    turns_per_second: float | None = None
    """Pace of the main arm; None when none of it had to be played now."""
    requests: Mapping[str, Any] | None = None
    """What an endpoint had to be asked: requests, answers, retries, faults by kind."""
    cut: CutReplies = field(default_factory=CutReplies)
    """Replies of the main arm that a limit ended."""
    trials: Sequence[Trial] = field(repr=False, default=())

    def rows(self) -> list[dict[str, object]]:
        """A row for the policy, each control and each scripted player, as `to_frame` and notebooks show it."""
        summaries = [(self.policy, "policy", self.main)]
        summaries += [(name, "control", summary) for name, summary in self.controls.items()]
        summaries += [(name, "scripted player", summary) for name, summary in self.room.items()]
        return [
            {"row": name, "kind": kind, "trials": summary.trials, **summary.figures(self.kind), "valid": summary.valid}
            for name, kind, summary in summaries
        ]

    def to_frame(self) -> Any:
        """The table as a pandas frame, with the intervals' ends."""
        return notebook.to_frame(self.rows())

    def __repr__(self) -> str:
        name, values = ("return ", self.main.returns) if self.kind == "versus" else ("p@", self.main.p)
        figures = ", ".join(f"{name}{k} {value:.3g}" for k, value in enumerate(values, 1) if value is not None)
        return f"<EvalResult of {self.policy} on {self.env}, {self.main.trials} tasks: {figures}>"

    def _repr_html_(self) -> str:
        return notebook.to_html(f"{self.policy} on {self.env}: {self.main.trials} tasks", self.rows())

    @property
    def p(self) -> list[float]:
        """p@1 … p@N."""
        return self.main.p

    @property
    def says_nothing(self) -> bool:
        """Whether every trial failed for reasons outside the agent."""
        return 0 < self.main.trials == self.main.failed

    @property
    def ceiling(self) -> float | None:
        """What an omniscient player reaches within the turn limit; where tasks are related, in all their episodes."""
        return self.room["ceiling"].p[-1 if self.related else 0] if "ceiling" in self.room else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``--json`` and ``result.json``; the main arm's figures stand at the top."""
        main = asdict(self.main)
        return {
            "schema_version": SCHEMA_VERSION,
            "env": self.env,
            "policy": self.policy,
            "kind": self.kind,
            "tasks": self.tasks,
            "episodes": self.episodes,
            "memory": self.settings.memory_mode,
            "style": self.settings.style,
            **({"related": True} if self.related else {}),
            "separation": self.separation,
            **main,
            "ceiling": self.ceiling,
            "controls": {name: asdict(summary) for name, summary in self.controls.items()},
            "gains": {name: {"gain": gain, "ci": ci} for name, (gain, ci) in self.gains.items()},
            "room": {name: asdict(summary) for name, summary in self.room.items()},
            "by_class": {name: asdict(summary) for name, summary in self.by_class.items()},
            "complete": self.complete,
            "cost": self.cost,
            "seconds": self.seconds,
            "turns_per_second": self.turns_per_second,
            "requests": self.requests,
            "cut_replies": self.cut.to_dict(),
            "run": self.run,
        }


def run_plan(
    plan: EvalPlan,
    policy: Policy,
    folder: RunFolder | Callable[[], RunFolder] | None = None,
    concurrency: int = 16,
    prices: Prices | None = None,
    max_cost: float | None = None,
    progress: Progress | None = None,
) -> EvalResult:
    """Play what of `plan` is not in `folder` yet, and count it all.

    A function as `folder` makes a new one; it is called when the plan has proved playable, so that a mistake leaves
    nothing behind.
    """
    concurrency = whole("concurrency", concurrency)
    if concurrency < 1:
        raise ParameterError(f"concurrency={concurrency} cannot be; give at least 1")
    if max_cost is not None and not max_cost >= 0:
        raise ParameterError(f"max_cost={max_cost} cannot be; give 0 or more")
    if max_cost is not None and not ((prices or Prices()).prompt or (prices or Prices()).completion):
        raise ParameterError(
            "max_cost needs the price of tokens, per million: give price_in and price_out (--price-in, --price-out)"
        )
    if isinstance(policy, ExpertPolicy):
        registry.check_player(plan.env, policy.kind)
    evaluation = _Evaluation(plan, policy, concurrency, prices or Prices(), max_cost, progress)
    into = evaluation.folder = folder() if callable(folder) else folder
    with nullcontext() if into is None else into.held():
        try:
            result: EvalResult = run_async(evaluation.play)
        except UsageError:
            if callable(folder) and into is not None:
                into.discard()
            raise
    return result


class _Evaluation:
    """An evaluation under way."""

    def __init__(
        self,
        plan: EvalPlan,
        policy: Policy,
        concurrency: int,
        prices: Prices,
        max_cost: float | None,
        progress: Progress | None,
    ) -> None:
        self.plan, self.policy = plan, policy
        self.folder: RunFolder | None = None
        self.concurrency, self.prices, self.max_cost = concurrency, prices, max_cost
        self.progress = progress or (lambda arm, done, total: None)
        self.tasks = tasks_of(plan.env, plan.tasks, plan.seed_set, plan.params)
        self.done: dict[str, dict[int, Trial]] = {}
        self.judge = Judge()
        self.paid: dict[str, PaidReplies] = {}
        """The replies of trials that were under way when the run was interrupted, where replies cost something."""
        self.read = self.wrote = 0
        """Tokens, of all that was ever asked for in this evaluation, whether or not it counts."""
        self.asked_before = _requests(policy)
        self.pace: float | None = None

    async def play(self) -> EvalResult:
        room = await self._room() if self.plan.room else {}  # first: what is wrong with it should come before any cost
        started = time.perf_counter()
        self._look_back()
        try:
            for arm in self.plan.arms():
                begun = time.perf_counter()
                turns = await self._arm(arm)
                if arm == "main" and turns:
                    self.pace = turns / (time.perf_counter() - begun)
        finally:
            close = getattr(self.policy, "aclose", None)
            if close is not None:
                await close()
        return self._result(time.perf_counter() - started, room)

    def _look_back(self) -> None:
        """What the folder holds: trials that need not be played again, and what all of it has cost so far."""
        for arm in self.plan.arms():
            found = self.folder.trials(arm) if self.folder else {}
            if self.folder is not None and self._pays():
                self.paid[arm] = PaidReplies(self.folder.path / "paid" / f"{arm}.jsonl")
            paid = self.paid[arm].tokens if arm in self.paid else (0, 0)
            for read, wrote in [paid] if any(paid) else map(tokens, found.values()):
                self._count(read, wrote)
            self.done[arm] = {place: trial for place, trial in found.items() if not _to_repeat(trial)}
            self.judge.answered |= any(episode.turns for trial in found.values() for episode in trial.episodes)

    def _pays(self) -> bool:
        return bool(getattr(self.policy, "pays", False))

    def _count(self, read: int, wrote: int) -> None:
        self.read, self.wrote = self.read + read, self.wrote + wrote

    def _spent(self) -> float:
        return self.prices.of(self.read, self.wrote)

    async def _arm(self, arm: str) -> int:
        """Play what is missing of an arm; returns how many turns that took."""
        kept, paid = self.done[arm], self.paid.get(arm)
        places = [place for place in range(len(self.tasks)) if place not in kept]
        self.progress(arm, len(kept), len(self.tasks))
        if not places:
            return 0
        turns = 0
        writer = self.folder.writer(arm) if self.folder else None

        def on_trial(place: int, trial: Trial) -> None:
            nonlocal turns
            turns += sum(len(episode.turns) for episode in trial.episodes)
            kept[place] = trial
            if not self._pays():
                self._count(*tokens(trial))
            if writer is not None:
                writer.write(place, trial)
            self.progress(arm, len(kept), len(self.tasks))

        settings = self.plan.settings
        if arm == "independent":
            settings = replace(settings, memory="none")
        try:
            index, donors = {"main": 0, "donors": 1}.get(arm, 2), self._donors(arm)
            await collect(
                [self._job(self.tasks[place], index, donors(place) if donors else None) for place in places],
                Remembering(self.policy, paid, self._count) if self._pays() else self.policy,
                settings,
                concurrency=self.concurrency,
                on_trial=lambda number, trial: on_trial(places[number], trial),
                proceed=lambda: self.max_cost is None or self._spent() < self.max_cost,
                judge=self.judge,
            )
        finally:
            if writer is not None:
                writer.flush()
        if paid is not None and len(kept) == len(self.tasks) and not any(map(_to_repeat, kept.values())):
            paid.forget()
        return turns

    def _job(self, task: Task, index: int = 0, reflections: ReflectionSource | None = None) -> Job:
        others = self.plan.settings.episodes - 1 if self.plan.related else 0
        return Job(task, self.plan.seed, index, reflections, related=next_alike(task, self.tasks, others))

    def _donors(self, arm: str) -> Callable[[int], ReflectionSource] | None:
        """For a control arm: where the reflections shown to each task come from."""
        if arm == "removed":
            return lambda place: lambda index: None
        if arm == "other-trial":
            donors = self.done["donors"]
            return lambda place: lambda index: _reflection(donors.get(place), index)
        if arm == "foreign":
            return self._foreign
        return None

    def _foreign(self, place: int) -> ReflectionSource:
        own = self.tasks[place]
        known = {own, *self._job(own).related}  # a note on any of these is not foreign
        written: dict[int, list[Trial]] = defaultdict(list)
        for _, trial in sorted(self.done["main"].items()):
            if trial.task.task_class == own.task_class and known.isdisjoint((trial.task, *trial.related)):
                for episode in trial.episodes:
                    if episode.reflection is not None:
                        written[episode.index].append(trial)
        rng = generator(self.plan.seed, own.seed, "foreign")
        return lambda index: _reflection(rng.choice(written[index]), index) if written[index] else None

    async def _room(self) -> dict[str, Summary]:
        """The scripted players on the same tasks."""
        maker = registry.spec(self.plan.env).build
        if not hasattr(maker, "player"):
            return {}
        players = {"ceiling": ExpertPolicy(omniscient=True), "expert": ExpertPolicy()}
        if not self.plan.related:  # a scripted player remembers one world: at the next task it would begin anew
            players["expert, perfect memory"] = ExpertPolicy(recall=1.0)
        for kind in getattr(maker, "room_players", ()):
            memory = "" if self.plan.related else ", perfect memory"
            players[kind + memory] = ExpertPolicy(recall=1.0 if memory else 0.0, kind=kind)
        known = getattr(maker, "players", PLAYERS)  # an environment's own list may lack some
        found = {}
        for name, player in players.items():
            if player.kind not in known:
                continue
            settings = replace(self.plan.settings, memory="history" if player.recall else "none", style="plain")
            trials: dict[int, Trial] = {}
            jobs = [self._job(task) for task in self.tasks]
            with suppress(PolicyError):  # it never played, as the summary says
                await collect(jobs, player, settings, concurrency=1, on_trial=trials.__setitem__)
            found[name] = self._summary([trials[place] for place in sorted(trials)])
            if found[name].failed == len(trials):
                raise UsageError(
                    f"{self.plan.env}: its scripted player {player.kind!r} cannot play: {found[name].failure}; name "
                    "those that it has in a class variable `players`, or leave them out with --no-room (room=False)"
                )
        return found

    def _result(self, seconds: float, room: dict[str, Summary]) -> EvalResult:
        episodes = self.plan.settings.episodes
        main = [self.done["main"][place] for place in sorted(self.done["main"])]
        classes: dict[str, list[Trial]] = defaultdict(list)
        for trial in main:
            classes[trial.task.task_class].append(trial)
        shown = [arm for arm in self.plan.arms() if arm not in ("main", "donors")]
        return EvalResult(
            env=self.plan.env,
            policy=self.policy.name,
            tasks=len(self.tasks),
            episodes=episodes,
            kind=registry.spec(self.plan.env).kind,
            settings=self.plan.settings,
            main=self._summary(main),
            controls={arm: self._summary([self.done[arm][place] for place in sorted(self.done[arm])]) for arm in shown},
            room=room,
            gains={arm: self._gain(arm, both) for arm in shown if (both := self._common(arm))},
            by_class={name: self._summary(trials) for name, trials in sorted(classes.items())},
            seconds=seconds,
            cost=self._spent(),
            complete=all(len(self.done[arm]) == len(self.tasks) for arm in self.plan.arms()),
            run=str(self.folder.path) if self.folder else None,
            related=self.plan.related,
            separation=_separation(self.plan.env, main),
            turns_per_second=self.pace,
            requests=_requests(self.policy, self.asked_before),
            cut=cut_replies(main, self.plan.settings),
            trials=main,
        )

    @cached_property
    def _names(self) -> TaskNames:
        """Made when it is needed: naming worlds takes as long as drawing them."""
        return TaskNames(self.tasks)

    def _summary(self, trials: Sequence[Trial]) -> Summary:
        """What trials came to, with the outcome of each attempt."""
        episodes = self.plan.settings.episodes
        return self._names.evidence(summarise(trials, episodes), trials, episodes, versus=self._versus())

    def _common(self, arm: str) -> list[int]:
        """Places of the tasks that both main and `arm` have played; of games, to their end."""
        both = sorted(self.done["main"].keys() & self.done[arm].keys())
        if not self._versus():  # what failed is not solved; but a game that failed is neither lost nor drawn
            return both
        return [place for place in both if not any(self.done[name][place].failed for name in ("main", arm))]

    def _gain(self, arm: str, both: list[int]) -> tuple[float, tuple[float, float]]:
        import numpy as np  # here: a command's help does without it

        from mulligan.eval.intervals import interval_of_mean

        score = _last_return if self._versus() else _solved
        first, second = ([self.done[name][place] for place in both] for name in ("main", arm))
        gains = [score(one) - score(other) for one, other in zip(first, second, strict=True)]
        behind = tasks_behind(first, self.plan.settings.episodes)
        effect = design_effect(gains, behind) if any(behind) else 1.0
        return interval_of_mean(np.array([gains]), self._names.worlds(first), effect=effect)

    def _versus(self) -> bool:
        return registry.spec(self.plan.env).kind == "versus"


def _separation(env: str, trials: Sequence[Trial]) -> Separation:
    """How the worlds of `trials` were kept apart from those of training, by rules and first observation."""
    begun = [trial for trial in trials if trial.episodes and trial.episodes[0].turns]
    observations = [trial.episodes[0].turns[0].observation for trial in begun]
    by_observation = separation(env, observations)
    if by_observation != "shared":
        return by_observation
    # Rules may tell tasks apart that are shown alike. They are not kept: worlds are built for them, of a few tasks.
    rules = [registry.build(trial.task).rules() for trial in begun[:SAMPLED]]
    return separation(env, [f"{rule}\n{shown}" for rule, shown in zip(rules, observations, strict=False)])


def _requests(policy: Policy, before: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """What an endpoint had to be asked since `before`; None where the policy does not count."""
    now: Mapping[str, Any] | None = getattr(policy, "stats", None)
    if now is None or before is None:
        return None if now is None else dict(now)
    since: dict[str, Any] = {}
    for name, value in now.items():
        if isinstance(value, Mapping):
            since[name] = dict(Counter(value) - Counter(before.get(name, {})))
        else:
            since[name] = value - before.get(name, 0)
    return since


def _reflection(trial: Trial | None, index: int) -> Any:
    if trial is None or index >= len(trial.episodes):
        return None
    found = trial.episodes[index].reflection
    return None if found is None else replace(found, completion=None)


def _solved(trial: Trial) -> float:
    return float(trial.solved_at is not None)


def _last_return(trial: Trial) -> float:
    return trial.episodes[-1].reward


def _to_repeat(trial: Trial) -> bool:
    """A trial that only failed to reach its model is played again when the evaluation is resumed."""
    return any(episode.stop is StopReason.REQUEST_FAILED or episode.unreflected for episode in trial.episodes)
