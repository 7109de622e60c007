"""What Python programs and notebooks call. Environments are names or classes; their parameters are always `params`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, TypedDict, Unpack

from mulligan.app.progress import OnUpdate, in_notebook, shares, trial_progress, update_progress
from mulligan.app.stopping import kept_trials, train_until_stopped
from mulligan.envs import check, registry
from mulligan.envs.base import Env
from mulligan.errors import UsageError
from mulligan.eval.plan import EvalPlan, Prices, create_folder, named_controls, open_folder
from mulligan.eval.run import EvalResult, Progress, run_plan
from mulligan.notebook import Shown, to_html
from mulligan.players import Plays, advised_by, as_trained, player_from, trained_with, writer_from
from mulligan.policy.base import Policy, ReplyFunction, as_policy
from mulligan.policy.threads import run_async
from mulligan.report.mirrors import mirroring
from mulligan.report.run import RunFolder
from mulligan.rollout import tasksets
from mulligan.trial import runner
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import flag, trust
from mulligan.types import Memory, Restart, Sampling, Stop, Task, Trial

if TYPE_CHECKING:
    from mulligan.eval.optimum import Optimum
    from mulligan.journal.journal import Journal
    from mulligan.training.config import Config

Params = Mapping[str, Any]
"""Parameters of an environment by name: ``{"mines": 4, "turns": 20}``. Those left out have their defaults."""


class TrialOptions(TypedDict, total=False):
    """Single fields of `TrialSettings`, which documents them."""

    episodes: int
    memory: Memory | None
    style: str
    stop: Stop | None
    restart: Restart | None
    memory_tokens: int
    window: int | None
    sampling: Sampling
    reflection_tokens: int
    env_timeout: float | None


def make_task(env: str | type[Env], seed: int = 0, params: Params | None = None, **surplus: Never) -> Task:
    """A task of `env`: ``mulligan.make_task("minesweeper", seed=3, params={"mines": 4})``.

    >>> task = mulligan.make_task("minesweeper", seed=7, params={"mines": 4})
    >>> task.task_class, task.turns, task["mines"]
    ('minesweeper/6x6/4', 7, 4)
    """
    if surplus:
        raise UsageError(f"parameters of an environment are passed in params: params={surplus}")
    trust(env, params)
    return registry.task_of(registry.environment_named(env), seed, params or {})


def make(env: str | type[Env] | Task, seed: int = 0, params: Params | None = None, **surplus: Never) -> Env:
    """A live environment, of a task or of what `make_task` takes.

    >>> world = mulligan.make("bandit", seed=3, params={"arms": 2})
    >>> world.reset()
    'No arm pulled yet.'
    >>> world.step("<action>1</action>").valid
    True
    """
    if isinstance(env, Task) and (seed or params or surplus):
        raise UsageError("make: a task brings its seed and its parameters; leave them out")
    return registry.build(env if isinstance(env, Task) else make_task(env, seed, params, **surplus))


@dataclass(frozen=True)
class CheckResult(Shown):
    """An environment that keeps the contract, and how training and evaluation are kept apart (`rollout.tasksets`).

    >>> mulligan.check_env("bandit").separation
    'shared'
    """

    env: str
    separation: tasksets.Separation
    tasks: int
    """Tasks that were looked at."""
    worlds: int
    """Different worlds among them by `world_key`; without one, different beginnings: 1 where all begin alike."""

    def rows(self) -> list[dict[str, Any]]:
        return [vars(self)]


def check_env(env: str | type[Env], params: Params | None = None) -> CheckResult:
    """Test an environment against the contract; raises `ContractBroken`, naming seed and reply, where it breaks it.

    >>> checked = mulligan.check_env("bandit", params={"arms": 8})
    >>> checked.env, checked.tasks
    ('bandit', 64)
    """
    trust(env, params)
    name = registry.environment_named(env)
    check.check_env(name, **(params or {}))
    survey = tasksets.survey(name, params or {})
    return CheckResult(name, survey.separation, survey.tasks, survey.worlds)


def evaluate(
    env: str | type[Env],
    policy: str | os.PathLike[str] | Policy | ReplyFunction,
    *,
    params: Params | None = None,
    tasks: int = 512,
    seed_set: str = "eval",
    seed: int = 0,
    controls: str | Sequence[str] = ("independent",),
    room: bool = True,
    related: bool | None = None,
    concurrency: int = 16,
    run: str | os.PathLike[str] | None = None,
    resume: bool = False,
    price_in: float = 0.0,
    price_out: float = 0.0,
    max_cost: float | None = None,
    progress: bool | Progress | None = None,
    journal: Journal | None = None,
    writer: str | os.PathLike[str] | Policy | ReplyFunction | None = None,
    settings: TrialSettings | None = None,
    **trial: Unpack[TrialOptions],
) -> EvalResult:
    """p@1 … p@N of a policy on a frozen task set: ``mulligan.evaluate("minesweeper", my_function, tasks=64)``.

    policy       a function of the messages, a policy such as `EndpointPolicy`, a name ("expert"), or a training run,
                 which is evaluated with the settings and parameters it was trained with unless others are given
    tasks        how many tasks of `seed_set` (eval, validation or train)
    seed         root of the policy's sampling; the tasks do not depend on it
    controls     some of independent, removed, foreign, other-trial, told; or "all" or "off"
    room         whether scripted players play the same tasks: ceiling and experts
    related      whether later episodes are other tasks of the class; None: as the run was trained, otherwise no
    concurrency  trials at a time, and so calls of a function
    run, resume  a folder that keeps every trial, also at Ctrl-C; with `resume`, what it holds is not played again
    price_in, price_out  of a million tokens of prompts and of replies
    max_cost     start no new trial beyond this cost
    progress     a bar: None shows it on a terminal and in a notebook; or a function of (arm, done, total)
    journal      what the policy's trials learn is kept there and shown to later ones; controls do without
    writer       who writes the reflections in the policy's place; of a run that trained a writer, the writer
    settings     how trials are played; `trial` changes single fields: ``episodes=3, memory="history"``

    >>> result = mulligan.evaluate("minesweeper", "expert", tasks=16, room=False, controls="off")
    >>> len(result.p), result.main.trials, result.complete
    (3, 16, True)
    """
    if isinstance(policy, os.PathLike):
        policy = os.fspath(policy)
    trust(env, params, *(name for name in (policy, writer) if isinstance(name, str)))
    env = registry.environment_named(env)
    config = trained_with(policy)
    if config is not None:
        trained_settings, trained_params = as_trained(config, env)
        settings, params = settings or trained_settings, {**trained_params, **(params or {})}
        related = config.task.related if related is None else related
    settings = runner.with_overrides(settings or TrialSettings(), {**trial})
    plays = Plays(env, params or {}, settings)
    if isinstance(policy, str):
        policy = player_from(policy, plays=plays)
    if writer is not None:
        if isinstance(writer, str | os.PathLike):
            writer = writer_from(os.fspath(writer), plays=plays)
        policy = advised_by(as_policy(policy), as_policy(writer), settings)
    plan = EvalPlan(
        env=env,
        params=params or {},
        tasks=tasks,
        seed_set=seed_set,
        seed=seed,
        settings=settings,
        controls=named_controls(controls if isinstance(controls, str) else ",".join(controls)),
        room=room,
        related=bool(related),
    )
    player = as_policy(policy)
    folder: RunFolder | Callable[[], RunFolder] | None = None
    if run is not None:
        create = partial(create_folder, plan, player.name, run, **({"journal": True} if journal is not None else {}))
        folder = open_folder(plan, player.name, run) if resume else create
    shown = nullcontext(progress) if callable(progress) else trial_progress(quiet=_is_quiet(progress))
    try:
        with nullcontext() if progress is False else shown as show:
            result = run_plan(plan, player, folder, concurrency, Prices(price_in, price_out), max_cost, show, journal)
    except KeyboardInterrupt:
        if run is None or not (Path(run) / "config.toml").exists():
            raise KeyboardInterrupt("no trial was kept; with run=FOLDER they are, and resume=True continues") from None
        way_on = f"mulligan.evaluate(…, run={os.fspath(run)!r}, resume=True)"
        raise KeyboardInterrupt(f"{kept_trials(run)}; continue with: {way_on}") from None
    if result.says_nothing:
        reason = f"every trial failed for reasons outside the agent, and the figures say nothing: {result.main.failure}"
        warnings.warn(reason, stacklevel=2)
    return result


def optimum(
    env: str | type[Env],
    *,
    params: Params | None = None,
    gamma_traj: float = 1.0,
    episodes: int = 3,
    stop: Stop | None = None,
) -> Optimum:
    """The best that any agent can do: ``mulligan.optimum("bandit", params={"arms": 8}, gamma_traj=0.6).best.returns``.

    gamma_traj  what the return of the next attempt is worth; 1: all attempts count alike
    episodes    attempts of a trial
    stop        when a trial ends: "success" or "never"; None: as the environment says

    It is exact, for games with a model that is small enough; others are refused with their size.

    >>> best = mulligan.optimum("bandit", params={"arms": 4}).best
    >>> best.returns  # an arm that was tried in vain is not tried again
    [0.25, 0.25, 0.25]
    """
    from mulligan.eval.optimum import optimum_of

    return optimum_of(make_task(env, params=params), TrialSettings(episodes=episodes, stop=stop), gamma_traj)


class RunOptions(TrialOptions, total=False):
    """All options of `run_trial`."""

    seed: int
    index: int
    related: Sequence[Task]
    settings: TrialSettings | None
    journal: Journal | None


async def run_trial(task: Task | Env, policy: Policy | ReplyFunction, **trial: Unpack[RunOptions]) -> Trial:
    """Play one trial: up to N episodes of `task`, with reflections and memory between them.

    seed, index  seed of the policy's sampling, and which of the task's trials this is; both are 0 by default
    related      tasks of the second and later episodes, where they are others of the same class
    journal      shows what earlier trials taught, and keeps what this one teaches; the trial is one episode of it
    settings     how it is played; other options change single fields: ``episodes=3, memory="history"``

    A failure of the environment or of the policy ends an episode with a named reason (`Episode.stop`, `Episode.error`).
    It is not raised, but there is a warning.

    >>> import asyncio
    >>> task = mulligan.make_task("bandit", seed=3, params={"arms": 2})
    >>> trial = asyncio.run(mulligan.run_trial(task, lambda messages: "no action", episodes=2, memory="history"))
    >>> len(trial.episodes)
    2
    """
    return _warned_of(await _play(task, policy, **trial))


def run_trial_sync(task: Task | Env, policy: Policy | ReplyFunction, **trial: Unpack[RunOptions]) -> Trial:
    """`run_trial` for code that is not async; works inside a running event loop too (a notebook).

    >>> task = mulligan.make_task("bandit", seed=3, params={"arms": 2})
    >>> trial = mulligan.run_trial_sync(task, lambda messages: "<action>2</action>", episodes=3, memory="history")
    >>> trial.episodes[0].turns[0].reply.text
    '<action>2</action>'
    """
    return _warned_of(run_async(lambda: _play(task, policy, **trial)))


async def _play(
    task: Task | Env, policy: Policy | ReplyFunction, *, journal: Journal | None = None, **trial: Any
) -> Trial:
    if journal is None:
        return await runner.run_trial(task, policy, **trial)
    from mulligan.journal.trials import run_trial_with  # SQLAlchemy, which the core does without

    return await run_trial_with(journal, task, policy, **trial)


def _warned_of(trial: Trial) -> Trial:
    """The trial, with a warning at the line that asked for it, where it failed."""
    if trial.failed:
        first = next(episode for episode in trial.episodes if episode.stop.is_infrastructure or episode.unreflected)
        reason = f"the trial failed for reasons outside the agent, in episode {first.index + 1}: {first.error}"
        warnings.warn(reason, stacklevel=3)
    return trial


@dataclass(frozen=True)
class TrainedRun(Shown):
    """A training run on disk; `evaluate` takes it as a policy, `open` and `Path` as a path. A row for each update.

    >>> run = mulligan.train(preset="test", run="runs/tiny", settings={"run.updates": 1})
    >>> [line["update"] for line in run.metrics if line["update"]]
    [1]
    >>> mulligan.evaluate("minesweeper", run, tasks=8, controls="off", room=False).main.trials
    8
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was measured at each update."""
        from mulligan.training.metrics import MetricsFile

        return MetricsFile(self.path / "metrics.jsonl").read()

    def rows(self) -> list[dict[str, Any]]:
        return self.metrics

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {value}" for name, value in self._last().items())
        return f"<TrainedRun {self.path}: {last}>"

    def _repr_html_(self) -> str:
        return to_html(f"Training run {self.path}", [self._last()])

    def _last(self) -> dict[str, object]:
        """How far it is, and p@k of the last update in percent."""
        last: dict[str, Any] = next(reversed(self.metrics), {})
        return {"updates": last.get("update", 0), **{f"p@{k}": f"{100 * share:.1f} %" for k, share in shares(last)}}


def train(
    env: str | type[Env] | None = None,
    *,
    params: Params | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    config: Config | None = None,
    run: str | os.PathLike[str],
    resume: bool = False,
    on_update: OnUpdate | None = None,
    progress: bool | None = None,
    wandb: Mapping[str, str | None] | None = None,
    tensorboard: bool = False,
) -> TrainedRun:
    """Train a policy into the folder `run`: ``mulligan.train("minesweeper", params={"mines": 4}, run="runs/mine")``.

    env        an environment, or a mixture with weights: "minesweeper:2,sokoban:1"
    preset     named settings to start from; "cpu" if neither a preset nor a model is named
    settings   changes to it by name: ``{"algo.gamma_traj": 0.9}``; `mulligan train --settings` lists them;
               or in sections, as `tomllib.load` reads a file of them
    config     all settings at once, in place of the four above
    resume     go on with the run in the folder, with its own settings: ``settings={"run.updates": 200}`` trains longer;
               Ctrl-C finishes and saves the update under way
    on_update  called with the metrics of each update; while demonstrations are played, in a notebook, in another thread
    progress   a line with the time left: None shows it on a terminal and in a notebook
    wandb      mirror it to Weights & Biases: {} or some of ``{"project": …, "entity": …, "group": …, "id": …}``
    tensorboard  mirror it into the run folder, for ``tensorboard --logdir RUN``

    >>> mulligan.train(preset="test", run="runs/small", settings={"run.updates": 1, "algo.gamma_traj": 0.9}).path.name
    'small'
    """
    given: dict[str, object] = {} if resume else {"env": env, "params": params, "settings": settings}
    given |= {"preset": preset, "config": config if resume else None}
    surplus = [name for name, value in given.items() if value]
    if surplus and (config is not None or resume):
        source = "resume" if resume else "config"
        raise UsageError(f"train: {source}= brings its own settings; leave out {', '.join(surplus)}")
    run = Path(run)
    trust(env, params, settings, config)
    from mulligan.training.resolve import flat, from_run, resolve, to_tree, with_resume_flags

    changes = {"task.env": registry.environment_named(env)} if env else {}
    changes |= {key: str(value) for key, value in flat(settings or {}).items()}
    changes |= {f"env.{key}": str(value) for key, value in (params or {}).items()}
    if resume:
        config = with_resume_flags(from_run(RunFolder.open(run)), changes)
    elif config is None:
        if preset is None and "model.name" not in changes:
            preset = "cpu"
        config = resolve(preset, None, changes)
    shown = nullcontext() if progress is False else update_progress(config.task.env, quiet=_is_quiet(progress))
    mirrored = mirroring(run, to_tree(config), wandb=wandb, tensorboard=tensorboard)
    with shown as show, mirrored as mirror:
        interrupted = train_until_stopped(config, run, [*filter(None, (on_update, show)), mirror], resume=resume)
    if interrupted:
        env_file = f"{config.task.env!r}, " if flag(config.task.env) else ""  # what is named here is trusted
        command = f"mulligan.train({env_file}run={str(run)!r}, resume=True)"
        raise KeyboardInterrupt(f"the run is in {run}; continue with: {command}")
    return TrainedRun(run)


def _is_quiet(wanted: bool | None) -> bool:
    """By default a script that is not at a terminal shows nothing; a notebook without widgets shows lines."""
    return not wanted and not in_notebook()
