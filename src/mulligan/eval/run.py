"""Honest evaluation: one protocol for every method, on frozen tasks, with controls, ceiling and room.

Arms of an evaluation, each a file of trials in the run folder:

main         the policy under the settings asked for
independent  as many retries without any memory: what the gain must beat
removed      memory without the reflection's text
foreign      the reflection of a different task of the same class, written after the same episode; in games, all that
             was remembered in a trial against another opponent
other-trial  the reflection of another trial of the same task
told         in games, with who the opponent is, in words
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from mulligan import notebook
from mulligan.calls import call_within
from mulligan.envs import registry
from mulligan.errors import ParameterError, PolicyError, RunFolderError, UsageError
from mulligan.eval import passk
from mulligan.eval.opponents import Told, left_out, other_opponents, remembered_by
from mulligan.eval.paid import PaidReplies, Remembering
from mulligan.eval.plan import EvalPlan, Prices
from mulligan.policy.base import Policy
from mulligan.policy.scripted import ExpertPolicy
from mulligan.policy.threads import run_async
from mulligan.report.files import read_json
from mulligan.report.run import SCHEMA_VERSION, RunFolder
from mulligan.report.tables import eval_table, footnotes, game_name
from mulligan.rollout.collect import Job, Judge, collect
from mulligan.rollout.tasksets import SAMPLED, Separation, names_world, next_alike, separation, tasks_of
from mulligan.seeding import generator
from mulligan.trial.runner import ReflectionSource, run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import PLAYERS, Reflection, Task, Trial, plain, whole

if TYPE_CHECKING:
    from mulligan.eval.ceilings import Ceilings
    from mulligan.eval.exact import ExactScores
    from mulligan.eval.optimum import Play
    from mulligan.journal.journal import Journal

_REQUESTS, _TASKS = "requests.json", "tasks.json"
"""File of the run folder with the requests so far, which a resumed evaluation adds to."""
Progress = Callable[[str, int, int], None]
"""Called with the arm, how many of its trials are done, and how many there are."""


@dataclass(frozen=True, repr=False)
class EvalResult(notebook.Shown):
    """What an evaluation found.

    >>> result = mulligan.evaluate("bandit", "expert", tasks=8, room=False)
    >>> result.kind, sorted(result.controls), len(result.rows())
    ('solve', ['independent'], 2)
    """

    plan: EvalPlan
    """What was asked for; `main.trials` says how many tasks were played."""
    policy: str
    kind: str
    main: passk.Summary
    controls: Mapping[str, passk.Summary]
    room: Mapping[str, passk.Summary]
    """Scripted players on the same tasks: ceiling (omniscient), expert and, where later episodes are of the same task,
    expert with perfect memory; then those that the environment names in `room_players`."""
    optimum: Sequence[Mapping[str, Any]]
    """What no agent can pass, and the share of it that the policy reached (`mulligan.eval.optimum.Play.beside`): for
    γ_traj = 1 and for the policy's own, where the game has a model that is quickly solved."""
    controls_left_out: Mapping[str, str]
    """Controls that were asked for and not played, with the reason where it is not the memory."""
    ceilings: Mapping[str, Any] | None
    """Of games against an opponent: exact returns by episode, and the share of the room between them that the policy
    and its `controls` reached (`mulligan.eval.ceilings`); or why there are none (`left_out`). None elsewhere."""
    by_opponent: Sequence[Mapping[str, Any]]
    """The main arm's figures by opponent and seat, where there is an opponent."""
    exact: Mapping[str, Any] | None
    """How many hands of poker count with their exact expectation (`mulligan.eval.exact`); None where none can."""
    exploitability: Mapping[str, Any] | None
    """Chips a hand that the policy gives away to its best response, before and after it has met the opponent: in the
    first episode and in the last. None where hands have no exact expectation."""
    gains: Mapping[str, tuple[float, passk.Interval]]
    """main − control, paired by task: at p@N, or in the last episode's return for games. Tasks of which a trial failed
    outside the agent are left out, and so is a control that has no task in common with main."""
    by_class: Mapping[str, passk.Summary]
    seconds: float
    tokens: tuple[int, int]
    """Prompt and completion tokens of all requests, those of controls and of trials that were played again too."""
    cost: float
    complete: bool
    run: str | None
    separation: Separation
    """Whether these worlds were kept apart from those of training (`mulligan.rollout.tasksets`)."""
    turns_per_second: float | None
    """Pace of the main arm; None when none of it had to be played now."""
    requests: Mapping[str, Any] | None
    """What an endpoint had to be asked, before a resume too: requests, answers, retries, faults by kind."""
    spent: Mapping[str, Mapping[str, float]]
    """Arm -> its requests, prompt_tokens, completion_tokens and cost; the scripted players of the room cost nothing."""
    cut: passk.CutReplies
    """Replies of the main arm that a limit ended."""
    trials: Sequence[Trial]

    def rows(self) -> list[dict[str, object]]:
        """A row for the policy, each control and each scripted player."""
        summaries = [(self.policy, "policy", self.main)]
        summaries += [(name, "control", summary) for name, summary in self.controls.items()]
        summaries += [(name, "scripted player", summary) for name, summary in self.room.items()]
        return [
            {"row": name, "kind": kind, "trials": summary.trials, **summary.figures(self.kind), "valid": summary.valid}
            for name, kind, summary in summaries
        ]

    def _repr_html_(self) -> str:
        """The table that the terminal shows."""
        data = self.to_dict()
        table = eval_table(data)
        table.caption, table.caption_justify = footnotes(data)[0], "left"
        return table._repr_mimebundle_((), ())["text/html"]

    def __repr__(self) -> str:
        name, values = ("return ", self.main.returns) if self.kind == "versus" else ("p@", self.main.p)
        figures = ", ".join(f"{name}{k} {value:.3g}" for k, value in enumerate(values, 1) if value is not None)
        game = game_name(self.plan.env, self.plan.params)
        return f"<EvalResult of {self.policy} on {game}, {self.main.trials} tasks: {figures}>"

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
        return self.room["ceiling"].p[-1 if self.plan.related else 0] if "ceiling" in self.room else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for ``--json`` and ``result.json``; the main arm's figures stand at the top."""
        same = (
            "separation",
            "ceiling",
            "complete",
            "tokens",
            "cost",
            "seconds",
            "turns_per_second",
            "requests",
            "spent",
            "run",
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "env": self.plan.env,
            "params": {name: plain(value) for name, value in self.plan.params.items()},
            "policy": self.policy,
            "kind": self.kind,
            "tasks": self.plan.tasks,
            "episodes": self.plan.settings.episodes,
            **{name: getattr(self, name) for name in same},
            "memory": self.plan.settings.memory_mode,
            "style": self.plan.settings.style,
            **({"related": True} if self.plan.related else {}),
            **asdict(self.main),
            "controls_left_out": sorted(self.controls_left_out),
            "left_out_because": {name: reason for name, reason in self.controls_left_out.items() if reason},
            "controls": {name: asdict(summary) for name, summary in self.controls.items()},
            "gains": {name: {"gain": gain, "ci": ci} for name, (gain, ci) in self.gains.items()},
            "room": {name: asdict(summary) for name, summary in self.room.items()},
            "optimum": self.optimum,
            "ceilings": self.ceilings,
            "by_opponent": self.by_opponent,
            "exact_scores": self.exact,
            "exploitability": self.exploitability,
            "by_class": {name: asdict(summary) for name, summary in self.by_class.items()},
            "cut_replies": self.cut.to_dict(),
        }


def run_plan(
    plan: EvalPlan,
    policy: Policy,
    folder: RunFolder | Callable[[], RunFolder] | None = None,
    concurrency: int = 16,
    prices: Prices | None = None,
    max_cost: float | None = None,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> EvalResult:
    """Play the trials of `plan` that are not in `folder` yet, and summarise them all.

    A function as `folder` makes a new one, once the plan has been checked: a mistake leaves no folder behind. The main
    arm reads and writes `journal`; controls and scripted players do not.
    """
    prices = prices or Prices()
    if journal is not None and plan.settings.memory_mode == "none":
        raise UsageError("memory 'none' lets nothing cross from one trial to the next; give another one with a journal")
    if plan.related and policy.name.partition(":")[0] == "optimal":
        raise UsageError("the optimal player plans for one task in all episodes; leave out --related")
    if isinstance(folder, RunFolder) and bool(folder.config().get("journal")) != (journal is not None):
        given = "with" if journal is None else "without"
        raise RunFolderError(f"{folder.name} was begun {given} a journal; continue it the same way (--journal DB)")
    if whole("concurrency", concurrency) < 1:
        raise ParameterError(f"concurrency must be >= 1 (got {concurrency})")
    if max_cost is not None and not max_cost >= 0:
        raise ParameterError(f"max_cost must be >= 0 (got {max_cost})")
    if max_cost is not None and prices == Prices():
        raise ParameterError("max_cost needs the price of a million tokens: give price_in and price_out")
    if isinstance(policy, ExpertPolicy):
        registry.check_player(plan.env, policy.kind)
    show = progress or (lambda arm, done, total: None)
    evaluation = _Evaluation(plan, policy, concurrency, prices, max_cost, show, journal)
    run_folder = evaluation.folder = folder() if callable(folder) else folder
    with nullcontext() if run_folder is None else run_folder.held():
        try:
            result: EvalResult = run_async(evaluation.play)
        except UsageError:
            if callable(folder) and run_folder is not None:
                run_folder.discard()
            raise
    return result


@dataclass
class _Evaluation:
    """An evaluation under way."""

    plan: EvalPlan
    policy: Policy
    concurrency: int
    prices: Prices
    max_cost: float | None
    progress: Progress
    journal: Journal | None = None
    folder: RunFolder | None = None
    turns_per_second: float | None = None
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Arm -> prompt and completion tokens of all requests that were ever made, whether or not their trials count."""
    replies: Counter[str] = field(default_factory=Counter)
    """Arm -> replies with these tokens."""
    sent: dict[str, int] = field(default_factory=dict)
    """Arm -> requests, where the policy counts them; those that failed too."""
    requests: dict[str, Any] | None = None
    done: dict[str, dict[int, Trial]] = field(default_factory=dict)
    """Arm -> index of the task -> trial."""
    paid: dict[str, PaidReplies] = field(default_factory=dict)
    """Arm -> the replies that were paid for, kept for a resume."""
    judge: Judge = field(default_factory=Judge)
    ceilings: Ceilings | str | None = None
    """Of games against an opponent, or why they have none."""
    scores: ExactScores | None = None
    """Of hands that can be scored exactly."""
    exploitability: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        limit = self.plan.settings.env_timeout
        self.tasks = tasks_of(self.plan.env, self.plan.tasks, self.plan.seed_set, self.plan.params, env_timeout=limit)
        self.versus = registry.spec(self.plan.env).kind == "versus"
        self.pays = bool(getattr(self.policy, "pays", False))
        reasons = {
            arm: left_out(arm, self.tasks, self.plan.settings) if self.versus else "" for arm in self.plan.arms()
        }
        self.arms = [arm for arm, reason in reasons.items() if not reason]
        """The arms to play, main first."""
        wanted = [name for name in self.plan.controls if self.versus or name != "told"]
        self.controls_left_out = {name: reasons.get(name, "") for name in wanted if name not in self.arms}

    async def play(self) -> EvalResult:
        room = await self._room() if self.plan.room else {}  # first, so that its mistakes come before any cost
        optima = {} if self.plan.related else self._optima()
        self.ceilings = self._ceilings() if self.versus else None
        started = time.perf_counter()
        self._keep_tasks()
        self._restore()
        try:
            for arm in self.arms:
                arm_started = time.perf_counter()
                turns = await self._arm(arm)
                if arm == "main" and turns:
                    self.turns_per_second = turns / (time.perf_counter() - arm_started)
                self._score_exactly(arm)
        finally:
            if hasattr(self.policy, "aclose"):
                await self.policy.aclose()
            self._count_requests()
        return self._result(time.perf_counter() - started, room, optima)

    def _keep_tasks(self) -> None:
        """The seeds of all tasks: worlds that cannot always be built must not make other tasks of a resumed one."""
        if self.folder is None:
            return
        file = self.folder.path / _TASKS
        if not file.exists():
            self.folder.write_text(_TASKS, json.dumps([task.seed for task in self.tasks]) + "\n")
            return
        advice = "delete it: tasks are then drawn as at first"
        seeds = read_json(file.read_bytes(), file, advice)
        if not isinstance(seeds, list) or len(seeds) != len(self.tasks):
            raise RunFolderError(f"{file} holds no list of {len(self.tasks)} seeds; {advice}")
        self.tasks = [registry.task_of(self.plan.env, whole("seed", seed), self.plan.params) for seed in seeds]

    def _restore(self) -> None:
        """Read what the folder holds: trials that need not be played again, and what all of it has cost so far."""
        file = self.folder.path / _REQUESTS if self.folder else None
        advice = "delete it: only the count of requests begins anew"
        earlier = read_json(file.read_bytes(), file, advice) if file and file.exists() else {}
        # What to subtract from the policy's count: requests before this evaluation, less those of earlier parts of it.
        try:
            self.requests_before = _difference(getattr(self.policy, "stats", {}), earlier)
            self.sent = {str(arm): int(count) for arm, count in earlier.get("arms", {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise RunFolderError(f"{file} holds no count of requests; {advice}") from error
        for arm in self.arms:
            trials = self.folder.trials(arm) if self.folder else {}
            self._check_trials(arm, trials)
            for trial in trials.values():
                self._count_trial(arm, trial)
            if self.folder is not None and self.pays:
                paid = self.paid[arm] = PaidReplies(self.folder.path / "paid" / f"{arm}.jsonl")
                # Some were paid for in trials that were played again, and others may be damaged where trials are not.
                prompt, completion = self.tokens.get(arm, (0, 0))
                self.tokens[arm] = (max(prompt, paid.tokens[0]), max(completion, paid.tokens[1]))
                self.replies[arm] = max(self.replies[arm], paid.replies)
            self.done[arm] = {index: trial for index, trial in trials.items() if not trial.failed}
            self.judge.answered |= any(episode.turns for trial in trials.values() for episode in trial.episodes)
        if earlier and "arms" not in earlier:  # of an earlier version
            self.sent = dict(self.replies)

    def _check_trials(self, arm: str, trials: Mapping[int, Trial]) -> None:
        """Raise where a file holds trials of another arm or evaluation: it was swapped, or the settings were edited."""
        for index, trial in trials.items():
            task = self.tasks[index] if isinstance(index, int) and 0 <= index < len(self.tasks) else None
            expected = (task, self.plan.seed, self._trial_index(arm), self._settings(arm).memory_mode)
            if (trial.task, trial.seed, trial.index, trial.memory) != expected:
                raise RunFolderError(
                    f"{self.folder and self.folder.path}: trials/{arm}.jsonl.gz and config.toml are of different "
                    f"evaluations (task {index}); put back the one that was here"
                )

    def _trial_index(self, arm: str) -> int:
        return {"main": 0, "donors": 1}.get(arm, 2)

    def _settings(self, arm: str) -> TrialSettings:
        return replace(self.plan.settings, memory="none") if arm == "independent" else self.plan.settings

    def _count_requests(self, arm: str | None = None) -> None:
        """Take the policy's count of requests, where it counts them, and keep it for a resume.

        Arms are played one after another: what is new since the last count was sent for `arm`.
        """
        if (stats := getattr(self.policy, "stats", None)) is not None:
            self.requests = _difference(stats, self.requests_before)
            if arm is not None and "requests" in self.requests:
                others = sum(count for other, count in self.sent.items() if other != arm)
                self.sent[arm] = self.requests["requests"] - others
            if self.folder is not None and any(self.requests.values()):
                with suppress(RunFolderError):  # a count is no reason to end an evaluation
                    self.folder.write_text(_REQUESTS, json.dumps({**self.requests, "arms": self.sent}) + "\n")

    def _count(self, arm: str, prompt: int, completion: int) -> None:
        before = self.tokens.get(arm, (0, 0))
        self.tokens[arm] = (before[0] + prompt, before[1] + completion)
        self.replies[arm] += 1

    def _count_trial(self, arm: str, trial: Trial) -> None:
        for reply in passk.replies(trial):
            self._count(arm, reply.prompt_tokens, reply.completion_tokens)

    def _all_tokens(self) -> tuple[int, int]:
        return (sum(prompt for prompt, _ in self.tokens.values()), sum(reply for _, reply in self.tokens.values()))

    def _cost(self) -> float:
        return self.prices.of(*self._all_tokens())

    def _spent(self, arm: str) -> dict[str, float]:
        prompt, completion = self.tokens.get(arm, (0, 0))
        requests = self.sent.get(arm, self.replies[arm])
        tokens = {"prompt_tokens": prompt, "completion_tokens": completion}
        return {"requests": requests, **tokens, "cost": self.prices.of(prompt, completion)}

    async def _arm(self, arm: str) -> int:
        """Play what is missing of an arm; returns how many turns that took."""
        done, paid = self.done[arm], self.paid.get(arm)
        missing = [index for index in range(len(self.tasks)) if index not in done]
        self.progress(arm, len(done), len(self.tasks))
        if not missing:
            return 0
        turns = 0
        policy = Told(self.policy) if arm == "told" else self.policy
        writer = self.folder.writer(arm) if self.folder else None

        def on_trial(number: int, trial: Trial) -> None:
            nonlocal turns
            turns += sum(len(episode.turns) for episode in trial.episodes)
            done[missing[number]] = trial
            if not self.pays:
                self._count_trial(arm, trial)
            if writer is not None:
                writer.write(missing[number], trial)
            self._count_requests(arm)
            self.progress(arm, len(done), len(self.tasks))

        try:
            await collect(
                [self._job_of(arm, index) for index in missing],
                Remembering(policy, paid, partial(self._count, arm)) if self.pays else policy,
                self._settings(arm),
                concurrency=self.concurrency,
                on_trial=on_trial,
                proceed=lambda: self.max_cost is None or self._cost() < self.max_cost,
                judge=self.judge,
                play=run_trial if self.journal is None or arm != "main" else self._with_journal(self.journal),
            )
        finally:
            self._count_requests(arm)
            if writer is not None:
                writer.flush()
        return turns

    def _with_journal(self, journal: Journal) -> Callable[..., Awaitable[Trial]]:
        from mulligan.journal.trials import run_trial_with  # SQLAlchemy, which the core does without

        return partial(run_trial_with, journal)

    def _job(self, task: Task, index: int = 0, reflections: ReflectionSource | None = None) -> Job:
        later = self.plan.settings.episodes - 1 if self.plan.related else 0
        return Job(task, self.plan.seed, index, reflections, related=next_alike(task, self.tasks, later))

    def _job_of(self, arm: str, index: int) -> Job:
        """The trial of an arm on a task."""
        task, number = self.tasks[index], self._trial_index(arm)
        if not (arm == "foreign" and self.versus):
            return self._job(task, number, self._reflections(arm, index))
        main = [trial for _, trial in sorted(self.done["main"].items()) if not trial.failed]
        donor = generator(self.plan.seed, task.seed, "foreign").choice(other_opponents(task, main) or main)
        notes = {episode.index: episode.reflection for episode in donor.episodes if episode.reflection}
        job = self._job(task, number, lambda n: replace(notes[n], completion=None) if n in notes else None)
        return replace(job, memories=lambda n: remembered_by(donor, n))

    def _reflections(self, arm: str, index: int) -> ReflectionSource | None:
        """Where a control takes the reflections from that it shows to a task; None: the agent writes them."""
        if arm not in ("removed", "foreign", "other-trial"):
            return None
        task, donors = self.tasks[index], self.done.get("donors", {})
        trials = [donors[index]] if arm == "other-trial" and index in donors else []
        if arm == "foreign":  # on other tasks of the class, none of which this trial plays
            played = {task, *self._job(task).related}
            main = sorted(self.done["main"].items())
            alike = [trial for _, trial in main if trial.task.task_class == task.task_class]
            trials = [trial for trial in alike if played.isdisjoint((trial.task, *trial.related))]
        written: dict[int, list[Reflection]] = defaultdict(list)
        # A last episode has one for a journal alone: no trial was shown it.
        for episode in (episode for trial in trials for episode in trial.episodes[:-1]):
            written[episode.index] += [episode.reflection] if episode.reflection else []
        rng = generator(self.plan.seed, task.seed, "foreign")
        # Without the completion: it was not sampled in the trial that shows it.
        return lambda index: replace(rng.choice(written[index]), completion=None) if written[index] else None

    async def _room(self) -> dict[str, passk.Summary]:
        """The scripted players on the same tasks."""
        maker = registry.spec(self.plan.env).build
        if not hasattr(maker, "player"):
            return {}
        players = {"ceiling": ExpertPolicy(omniscient=True), "expert": ExpertPolicy()}
        # A scripted player remembers one world: at the next of related tasks it would begin anew.
        memory = "" if self.plan.related else ", perfect memory"
        for kind in ("expert", *getattr(maker, "room_players", ())):
            players[kind + memory] = ExpertPolicy(recall=1.0 if memory else 0.0, kind=kind)
        summaries = {}
        for name, player in players.items():
            if player.kind not in getattr(maker, "players", PLAYERS):  # an environment's own list may lack some
                continue
            settings = replace(self.plan.settings, memory="history" if player.recall else "none", style="plain")
            trials: dict[int, Trial] = {}
            jobs = [self._job(task) for task in self.tasks]
            with suppress(PolicyError):  # the summary has the failure
                await collect(jobs, player, settings, concurrency=1, on_trial=trials.__setitem__)
            summary = summaries[name] = self._summary(trials)
            if summary.failed == len(trials):
                raise UsageError(
                    f"{self.plan.env}: its scripted player {player.kind!r} cannot play: {summary.failure}; name "
                    "those that it has in a class variable `players`, or leave them out with --no-room (room=False)"
                )
        return summaries

    def _optima(self) -> dict[float, Play]:
        """γ_traj -> the optimum on the tasks; computed on the side only where it takes seconds."""
        from mulligan.eval.optimal import OptimalPolicy  # numpy, which a command's help does without
        from mulligan.eval.optimum import MOST, MOST_ASIDE, mean_optimum

        plays_it = isinstance(self.policy, OptimalPolicy)
        optima = {}
        for gamma_traj in (1.0, getattr(self.policy, "gamma_traj", 1.0)):
            try:
                most = MOST if plays_it else MOST_ASIDE
                optima[gamma_traj] = mean_optimum(self._drawn_tasks, self.plan.settings, gamma_traj, most)
            except UsageError:  # the game has no model, or too large a one
                if plays_it:
                    raise
        return optima

    @cached_property
    def _drawn_tasks(self) -> list[Task]:
        """The tasks; against opponents, with what those were drawn from as the pool."""
        from mulligan.eval.ceilings import drawn_from

        return drawn_from(self.tasks, self.plan.params)

    def _ceilings(self) -> Ceilings | str:
        """The exact ceilings of a game, or why there are none."""
        from mulligan.eval.ceilings import ceilings_of  # numpy, which a command's help does without

        if self.plan.related:
            return "later episodes are of other tasks"
        try:
            return ceilings_of(self._drawn_tasks, self.plan.settings)
        except UsageError as error:
            return str(error)

    def _beside_ceilings(self) -> dict[str, Any] | None:
        """The ceilings with what each arm reached of the room, as data."""
        if self.ceilings is None or isinstance(self.ceilings, str):
            return None if self.ceilings is None else {"left_out": self.ceilings}
        arms = {arm: (self._summary(trials), sorted(trials)) for arm, trials in self.done.items() if trials}
        return self.ceilings.beside(arms) if "main" in arms else None

    def _by_opponent(self) -> list[dict[str, Any]]:
        """Figures of the main arm for each opponent in each seat."""
        sides: dict[tuple[str, int], dict[int, Trial]] = defaultdict(dict)
        for index, trial in self.done["main"].items():
            if self.versus and trial.task.opponent is not None:
                sides[trial.task.opponent, trial.task.seat or 0][index] = trial
        return [
            {"opponent": opponent, "seat": seat or None, **self._summary(trials).of_games()}
            for (opponent, seat), trials in sorted(sides.items())
        ]

    def _result(self, seconds: float, room: dict[str, passk.Summary], optima: Mapping[float, Play]) -> EvalResult:
        main = self.done["main"]
        classes: dict[str, dict[int, Trial]] = defaultdict(dict)
        for index, trial in main.items():
            classes[trial.task.task_class][index] = trial
        controls = [arm for arm in self.arms if arm not in ("main", "donors")]
        trials = [main[index] for index in sorted(main)]
        ended = [trial for trial in trials if not trial.failed]
        return EvalResult(
            plan=self.plan,
            policy=self.policy.name,
            kind=registry.spec(self.plan.env).kind,
            main=self._summary(main),
            controls_left_out=self.controls_left_out,
            controls={arm: self._summary(self.done[arm]) for arm in controls},
            room=room,
            optimum=[optimum.beside(ended, gamma_traj) for gamma_traj, optimum in optima.items() if ended],
            ceilings=self._beside_ceilings(),
            by_opponent=self._by_opponent(),
            exact=self.scores.to_dict() if self.scores is not None else None,
            exploitability=self.exploitability,
            gains={arm: gain for arm in controls if (gain := self._gain(arm))},
            by_class={name: self._summary(classes[name]) for name in sorted(classes)},
            seconds=seconds,
            tokens=self._all_tokens(),
            cost=self._cost(),
            complete=all(len(self.done[arm]) == len(self.tasks) for arm in self.arms),
            run=self.folder.name if self.folder else None,
            separation=_separation(self.plan, trials),
            turns_per_second=self.turns_per_second,
            requests=self.requests,
            spent={arm: self._spent(arm) for arm in self.plan.arms()},
            cut=passk.cut_replies(trials, self.plan.settings),
            trials=trials,
        )

    def _score_exactly(self, arm: str) -> None:
        """What the hands of an arm were worth before luck, where the policy knows how likely its replies are."""
        from mulligan.eval.exact import ExactScores, can_score

        if arm == "donors" or not can_score(self.tasks[0], self.plan.settings, self.policy):
            return
        if self.scores is None:
            self.scores = ExactScores(cast(Any, self.policy), self.plan.settings)
        trials = dict(sorted(self.done[arm].items()))
        scored = self.scores.scored([*trials.values()], is_told=arm == "told")
        self.done[arm] = dict(zip(trials, scored, strict=True))
        if arm == "main":
            self.exploitability = self.scores.exploitability([*self.done[arm].values()])

    @cached_property
    def _names(self) -> passk.TaskNames:
        """Made on first use, since naming worlds takes as long as drawing them."""
        return passk.TaskNames(self.tasks, self.plan.settings.env_timeout)

    def _summary(self, by_index: Mapping[int, Trial]) -> passk.Summary:
        """The summary of trials, with the outcome of each attempt."""
        trials, episodes = [by_index[index] for index in sorted(by_index)], self.plan.settings.episodes
        return self._names.evidence(passk.summarise(trials, episodes), trials, episodes, versus=self.versus)

    def _gain(self, arm: str) -> tuple[float, passk.Interval] | None:
        """main − `arm` on the tasks that both have played; where model or environment failed, nothing was."""
        import numpy as np  # here: a command's help does without it

        from mulligan.eval.intervals import interval_of_mean

        main, control = self.done["main"], self.done[arm]
        pairs = [(main[index], control[index]) for index in sorted(main.keys() & control.keys())]
        pairs = [pair for pair in pairs if not any(trial.failed for trial in pair)]
        if not pairs:
            return None
        trials = [first for first, _ in pairs]
        gains = [self._score(first) - self._score(second) for first, second in pairs]
        effect = passk.design_effect(gains, trials, self.plan.settings.episodes)
        return interval_of_mean(np.array([gains]), self._names.worlds(trials), effect=effect)

    def _score(self, trial: Trial) -> float:
        return trial.episodes[-1].value if self.versus else float(trial.solved_at is not None)


def _separation(plan: EvalPlan, trials: Sequence[Trial]) -> Separation:
    """Whether the worlds of `trials` are separate from those of training, by rules and first observation."""
    begun = [trial for trial in trials if trial.episodes and trial.episodes[0].turns]
    observations = [trial.episodes[0].turns[0].observation for trial in begun]
    named = False
    with suppress(Exception):  # a world that is not always the same
        named = any(names_world(trial.task, plan.settings.env_timeout) for trial in trials[:1])
    by_observation = separation(plan.env, observations, named=named)
    if by_observation != "shared":
        return by_observation
    # Rules may tell tasks apart that begin alike. Trials do not keep them: worlds are built anew, for a few tasks.
    beginnings = []
    for trial, shown in zip(begun[:SAMPLED], observations, strict=False):
        with suppress(Exception):  # a world that is not always the same
            world = call_within(plan.settings.env_timeout, registry.build, trial.task)
            beginnings.append(f"{call_within(plan.settings.env_timeout, world.rules)}\n{shown}")
    return separation(plan.env, beginnings, named=named) if beginnings else by_observation


def _difference(stats: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of requests less those of `before`, and in the same way their faults by kind."""
    counts = {name: count - before.get(name, 0) for name, count in stats.items() if name != "faults"}
    faults = Counter(stats.get("faults", {}))
    faults.subtract(before.get("faults", {}))
    return {**counts, "faults": {kind: count for kind, count in faults.items() if count}}
