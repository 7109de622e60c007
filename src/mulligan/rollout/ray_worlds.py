"""Worlds in processes of Ray, on this machine or in a cluster: for environments that are slow, as a browser is.

A trial is played here, by the one trial loop; only its world lives in a worker, which many worlds share and which
answers one call at a time. A worker that dies takes its worlds along: their trials are played again from the beginning,
with the same seeds, while Ray starts the worker anew.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from mulligan.calls import Ended, Hung, call_within, described
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.envs.opponents import asks_policy
from mulligan.envs.tools import tools_of
from mulligan.errors import MissingExtra, MulliganError, StopReason, UsageError
from mulligan.trial.runner import run_trial
from mulligan.trusted import TRUSTED, check_cluster
from mulligan.types import Task, Tool, Trial

ATTEMPTS = 5
"""Times that a trial is played whose worker dies; then the world itself may be what kills it."""
_STORE = 100_000_000
"""Bytes of Ray's store of objects: a world's answer is small and passes it by."""
_READ_AFTER_CALLS = ("drawn",)
"""Attributes of a world that the trial loop reads."""


class WorkerLost(Exception):
    """The process of a world has ended."""


@dataclass(frozen=True)
class _About:
    """What the trial loop asks of a world before it begins."""

    task: Task
    rules: object
    tools: tuple[Tool, ...]
    methods: frozenset[str]


@dataclass(frozen=True)
class _Raised:
    """An error, in words: its class may exist in the worker alone."""

    error_class: type[BaseException] | str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> _Raised:
        ours = isinstance(error, MulliganError | Hung | Ended | WorkerLost)
        text = described(error).partition(": ")[2]
        return cls(type(error) if ours else type(error).__name__, text)

    def as_error(self) -> Exception:
        if isinstance(self.error_class, str):
            return cast(Exception, type(self.error_class, (Exception,), {})(self.text))
        error = self.error_class.__new__(self.error_class)  # its own constructor may want more than a text
        error.args = (self.text,)
        return cast(Exception, error)


class _Worker:
    """The worlds of one process."""

    def __init__(self, env_timeout: float | None, trusted: str, paths: list[str]) -> None:
        """`paths`: where the calling process looks for modules."""
        os.environ[TRUSTED] = trusted
        sys.path += [path for path in paths if path not in sys.path]
        self.env_timeout = env_timeout
        self.worlds: dict[int, Env] = {}

    def build(self, number: int, task: Task, env_class: type | None) -> _About | _Raised:
        """`env_class` where only the calling process knows it."""
        try:
            if env_class is not None:
                registry.REGISTERED.setdefault(task.env, env_class)
            world = call_within(self.env_timeout, registry.build, task)
            rules, tools = call_within(self.env_timeout, world.rules), call_within(self.env_timeout, tools_of, world)
        except Exception as error:
            return _Raised.of(error)
        self.worlds[number] = world
        methods = (name for name in dir(world) if not name.startswith("_") and callable(getattr(world, name, None)))
        return _About(world.task, rules, tools, frozenset(methods))

    def call(self, number: int, method: str, arguments: tuple[Any, ...]) -> _Raised | tuple[Any, dict[str, Any]]:
        """What a method gives, and the attributes that the trial loop may read after it."""
        if number not in self.worlds:
            return _Raised(WorkerLost, "the worker was started anew")
        world = self.worlds[number]
        try:
            answer = call_within(self.env_timeout, getattr(world, method), *arguments)
            return answer, {name: getattr(world, name) for name in _READ_AFTER_CALLS if hasattr(world, name)}
        except Exception as error:
            return _Raised.of(error)

    def forget(self, number: int) -> None:
        self.worlds.pop(number, None)


@dataclass
class _Handle:
    """A worker as this process sees it."""

    actor: Any
    worlds: set[int] = field(default_factory=set)


class _Elsewhere:
    """A world in a worker, as the trial loop sees it."""

    def __init__(self, task: Task, worker: _Handle, number: int) -> None:
        self.task, self.worker, self.number = task, worker, number
        self.env_class = registry.spec(task.env).build
        self.is_lost = False
        self.about: _About | None = None

    def begin(self) -> None:
        env_class = self.env_class if self.task.env in registry.REGISTERED else None
        build = self.worker.actor.build.options(max_task_retries=ATTEMPTS)  # nothing has come of it yet
        self.about = self._answer(build, self.task, env_class)
        assert self.about is not None, "what a worker raised was raised here"
        self.task = self.about.task

    def rules(self) -> str:
        return cast(str, cast(_About, self.about).rules)

    def tools(self) -> tuple[Tool, ...]:
        return cast(_About, self.about).tools

    def reset(self, chance: int = 0) -> str:
        return cast(str, self._call("reset", chance))

    def step(self, reply: str) -> Any:
        return self._call("step", reply)

    def __getattr__(self, name: str) -> Any:
        about = self.__dict__.get("about")
        if about is None or name not in about.methods:
            raise AttributeError(name)
        if name == "player":
            raise UsageError(
                "scripted players sit beside the world, which is in a worker of Ray; leave out ray.workers"
            )
        return partial(self._call, name)

    def _call(self, method: str, *arguments: Any) -> Any:
        answer, attributes = self._answer(self.worker.actor.call, method, arguments)
        self.__dict__.update(attributes)
        return answer

    def _answer(self, method: Any, *arguments: Any) -> Any:
        ray = _ray()
        try:
            answer = ray.get(method.remote(self.number, *arguments))
        except ray.exceptions.RayActorError as error:
            self.is_lost = True
            raise WorkerLost(str(error).partition("\n")[0]) from error
        if isinstance(answer, _Raised):
            self.is_lost = answer.error_class is WorkerLost
            raise answer.as_error()
        return answer


class RayWorlds:
    """Workers that hold the worlds of trials."""

    def __init__(self, workers: int, address: str = "", env_timeout: float | None = None) -> None:
        """`address`: a cluster's, or "auto" for the one that this machine belongs to; empty: processes here."""
        check_cluster(address)
        ray = _ray()
        self.owns_ray = not ray.is_initialized()
        if self.owns_ray:
            _start(ray, workers, address)
        if (cores := ray.available_resources().get("CPU", 0)) < workers:  # Ray would wait for them without a word
            self.close()
            raise UsageError(f"ray.workers must be <= {cores:.0f}, the cores of Ray that are free (got {workers})")
        options = {"num_cpus": 1, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
        trusted, paths = os.environ.get(TRUSTED, ""), [path or os.getcwd() for path in sys.path]
        actor_class = ray.remote(**options)(_Worker)
        self.workers = [_Handle(actor_class.remote(env_timeout, trusted, paths)) for _ in range(workers)]
        self.lock = threading.Lock()
        self.begun = 0

    async def play(self, task: Task | Env, **options: Any) -> Trial:
        """As `run_trial`, and the same trial. Where a policy is the opponent, or a world is given, it stays here."""
        if not isinstance(task, Task) or asks_policy(task):
            return await run_trial(task, **options)
        for _ in range(ATTEMPTS):
            worlds: list[_Elsewhere] = []
            try:
                trial = await run_trial(task, build=partial(self._build, worlds), **options)
            finally:
                self._forget(worlds)
            if trial.episodes[-1].stop is StopReason.ENV_HUNG:
                self._restart(worlds[-1].worker)
            if not any(world.is_lost for world in worlds):
                break
        return trial

    def close(self) -> None:
        if self.owns_ray:
            _ray().shutdown()

    def _build(self, worlds: list[_Elsewhere], task: Task) -> Env:
        """A world in the worker that has the fewest."""
        with self.lock:
            worker = min(self.workers, key=lambda each: len(each.worlds))
            self.begun += 1
            worker.worlds.add(self.begun)
            world = _Elsewhere(task, worker, self.begun)
        worlds.append(world)
        world.begin()
        return cast(Env, world)

    def _forget(self, worlds: list[_Elsewhere]) -> None:
        with self.lock:
            for world in worlds:
                world.worker.worlds.discard(world.number)
                if not world.is_lost:
                    world.worker.actor.forget.remote(world.number)

    def _restart(self, worker: _Handle) -> None:
        """End a process in which a call hangs. Its other worlds are lost, and their trials played again."""
        _ray().kill(worker.actor, no_restart=False)


def _start(ray: Any, workers: int, address: str) -> None:
    quiet = {"include_dashboard": False, "num_cpus": workers, "object_store_memory": _STORE} if not address else {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray.init(address=address or "local", logging_level="error", log_to_driver=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"ray.address={address or 'local'}: {reason}; start a cluster with 'ray start --head'"
        ) from error


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtra("ray.workers", "ray") from None
