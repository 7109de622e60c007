"""The contract any environment must keep, as a test anybody can run: ``check_env("minesweeper")``."""

from __future__ import annotations

import json
import random
import reprlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from numbers import Real
from typing import Any, cast

from mulligan.calls import Hung, call_within, described
from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.envs.model import Model, Outcome
from mulligan.envs.tools import tools_of
from mulligan.errors import ContractBroken, MulliganError, UsageError
from mulligan.seeding import generator
from mulligan.types import Step, Task

SEEDS = range(8)
GARBAGE_REPLIES = 1_000
MODEL_WORLDS = 1_000
"""Worlds of the largest model that is checked."""


_ARGUMENTS: tuple[Any, ...] = ("x", "", -1, 10**6, 0.5, True, None, [], {})
"""What every argument of a tool is set to, one after another."""
_LIMIT: ContextVar[float | None] = ContextVar("limit", default=None)
"""Seconds that a call of the environment may take."""


def check_env(env: str | type, env_timeout: float | None = None, /, **params: Any) -> None:
    """Raise `ContractBroken`, naming seed and reply, if an environment (a name or a class) does not keep the contract.

    The same task twice gives the same first observation; a recorded list of replies replays to the same transcript;
    garbage never raises; an invalid reply never changes the world; observations are text and rewards finite; what
    `legal` lists is legal; scripted players can play; a model expects what happens; tools are the same for a task and
    their schemas can be sent, and no call of one raises. Whether episodes end is not tested:
    after the task's turns the runner ends them. A call that takes longer than `env_timeout` seconds breaks it.
    """
    tasks = [registry.make_task(env, seed, **params) for seed in SEEDS]
    limit = _LIMIT.set(env_timeout)
    try:
        with _must_not_raise(f"{tasks[0].env}: comparing what it returned"):
            _check_tools(tasks[0])
            for task in tasks:
                _check_reset(task)
                for chance in (0, 1):
                    _check_replay(task, chance)
                _check_invalid_changes_nothing(task)
                _check_model(task)
            _check_garbage(tasks[0])
            _check_players(tasks[0])
    finally:
        _LIMIT.reset(limit)


def garbage(rng: random.Random) -> Iterator[str]:
    """Replies no environment should act on, or fall over: noise, huge, nested, contradictory, out of range."""
    yield from ("", " ", "\x00\xff\ud800", "<action>", "</action>", "<action></action>", "<action><action>1</action>")
    yield from ("<action>(1, 1)</action><action>(2, 2)</action>", "<action>" * 2_000, "</action>" * 2_000 + "<action>")
    yield "x" * 1_000_000
    yield "<action>(" + "9" * 5_000 + ", 1)</action>"
    yield from (f"<action>{digits}</action>" for digits in ("²", "٣", "①", "9" * 5_000, "-1", "1e9"))
    yield "<action>" + " " * 50_000 + "</action>"
    yield "<think>" * 5_000 + "<action>(0, 0)</action>"
    alphabet = "<>/action()[], 0123456789abcxyz\n\t\x00é漢{}:=-"
    while True:
        size = rng.choice((1, 3, 12, 60))
        text = "".join(rng.choice(alphabet) for _ in range(size))
        yield text if rng.random() < 0.5 else f"<action>{text}</action>"


@contextmanager
def _must_not_raise(call: str) -> Iterator[None]:
    try:
        yield
    except MulliganError:
        raise
    except Hung as error:
        raise ContractBroken(f"{call} gave {error}") from error
    except (Exception, SystemExit) as error:
        raise ContractBroken(f"{call} raised {described(error)}") from error


def _site(task: Task) -> str:
    return f"{task.env}, seed {task.seed}"


def _built(task: Task) -> Env:
    with _must_not_raise(f"{_site(task)}: __init__(task)"):
        return call_within(_LIMIT.get(), registry.build, task)


def _reset(env: Env, chance: int = 0) -> str:
    with _must_not_raise(f"{_site(env.task)}: reset({chance})"):
        return call_within(_LIMIT.get(), env.reset, chance)


def _check_reset(task: Task) -> None:
    with _must_not_raise(f"{_site(task)}: rules()"):
        first, second = ((env, env.rules(), _reset(env)) for env in (_built(task), _built(task)))
    if first[1:] != second[1:]:
        raise ContractBroken(f"{_site(task)}: the same task gave two different beginnings")
    if not _are_texts(first[1:]):
        raise ContractBroken(f"{task.env}: rules() and reset() must return text")
    if first[0].task != task:
        raise ContractBroken(f"{task.env}: env.task is not the task it was built from")


def _check_replay(task: Task, chance: int) -> None:
    """Play once, noting the replies; play them again on the same and on a new instance."""
    rng = generator(task.seed, "check", chance)
    env = _built(task)
    opening = _reset(env, chance)
    replies: list[str] = []
    steps: list[Step] = []
    while len(steps) < task.turns and not (steps and steps[-1].done):
        replies.append(_pick(env, rng))
        steps.append(_step(env, replies[-1]))
        if not steps[-1].valid and hasattr(env, "legal"):
            raise ContractBroken(f"{_site(task)}: legal() lists {replies[-1][:80]!r}, which step() rejects")
    for again in (env, _built(task)):
        same_opening = _reset(again, chance) == opening
        for turn, (reply, step) in enumerate(zip(replies, steps, strict=True), 1):
            if not same_opening or _step(again, reply) != step:
                differs = f"chance {chance}, turn {turn}, reply {reply[:80]!r}"
                raise ContractBroken(f"{_site(task)}: {differs} gave another transcript the second time")


def _check_invalid_changes_nothing(task: Task) -> None:
    """A game disturbed by invalid replies goes as the same game without them."""
    rng = generator(task.seed, "invalid")
    noise = garbage(rng)
    plain, disturbed = _built(task), _built(task)
    _reset(plain)
    _reset(disturbed)
    key: str | None = None
    for _ in range(task.turns):
        for reply in (next(noise), next(noise), next(noise), _pick(plain, rng)):
            step = _step(disturbed, reply)
            if not step.valid:
                if key is not None and step.state_key != key:
                    raise ContractBroken(f"{_site(task)}: the invalid {reply[:80]!r} changed the state")
                continue
            if _step(plain, reply) != step:
                raise ContractBroken(f"{_site(task)}: an invalid reply changed what {reply[:80]!r} does")
            key = step.state_key
            if step.done:
                return


def _check_model(task: Task) -> None:
    """What happens in an episode is what some world of the model leads to; models of many worlds are left out."""
    env: Any = _built(task)
    if not hasattr(env, "model"):
        return
    rng = generator(task.seed, "model")
    with _must_not_raise(f"{_site(task)}: model() or one of its methods"):
        try:
            model: Model = env.model()
        except UsageError:  # none of a task with these parameters
            return
        worlds = list(islice(model.worlds(), MODEL_WORLDS + 1))
        possible = [(world, model.begin(world)) for _, world in worlds]
        env.reset()
        if hasattr(model, "begins"):
            begun = [(world, Outcome(*each)) for _, world in worlds for each in model.begins(world)]
            begun = [(world, each) for world, each in begun if each.probability > 0]
            possible = [(world, each.state) for world, each in begun if each.told == cast(Any, model).opening()]
            if not possible:
                raise ContractBroken(f"{_site(task)}: model() does not expect what reset() told")
        for _ in range(task.turns if len(worlds) <= MODEL_WORLDS else 0):
            action = rng.choice(model.actions(possible[0][1]))
            step = _step(env, model.reply(action))
            answer = (model.told(step), step.reward, step.done, step.won)
            outcomes = [
                (world, Outcome(*each)) for world, state in possible for each in model.outcomes(world, state, action)
            ]
            possible = [(world, each.state) for world, each in outcomes if each.probability > 0 and each[2:] == answer]
            if not step.valid or not possible:
                raise ContractBroken(
                    f"{_site(task)}: model() does not expect what {model.reply(action)!r} led to: {step}"
                )
            if step.done:
                return


def _check_garbage(task: Task) -> None:
    env = _built(task)
    _reset(env)
    noise = garbage(generator(task.seed, "garbage"))
    for _ in range(GARBAGE_REPLIES):
        if _step(env, next(noise)).done:
            _reset(env)


def _check_tools(task: Task) -> None:
    """What is offered can be sent to a model, and is called with all kinds of arguments."""
    env, other = _built(task), _built(task)
    with _must_not_raise(f"{_site(task)}: tools()"):
        tools, same = (call_within(_LIMIT.get(), tools_of, each) for each in (env, other))
    if tools != same:
        raise ContractBroken(f"{_site(task)}: the same task offered two different lists of tools")
    for tool in tools:
        _reset(env)
        properties = tool.parameters.get("properties", {})
        texts = [json.dumps(dict.fromkeys(properties, value)) for value in _ARGUMENTS]
        for arguments in ("", "{", "[]", "{}", *texts):
            if _step(env, f"<action>{tool.name} {arguments}</action>").done:
                _reset(env)


def _check_players(task: Task) -> None:
    """The scripted players can be made as the runner makes them, move, and take what comes of it."""
    env_spec = registry.spec(task.env)
    if not callable(getattr(env_spec.build, "player", None)):
        return
    kinds = env_spec.players
    if not _are_texts(kinds):
        raise ContractBroken(f"{task.env}: players must be a list of names (got {reprlib.repr(kinds)})")
    unknown = [kind for kind in env_spec.room_players if kind not in kinds]
    if unknown:
        raise ContractBroken(f"{task.env}: room_players names {unknown[0]!r}, which is not one of its players {kinds}")
    for kind in kinds:
        env: Any = _built(task)
        with _must_not_raise(f"{_site(task)}: its player {kind!r}, made by player(kind, rng, skill, recall),"):
            player = env.player(kind, generator(task.seed, "player", kind), 1.0, 0.0)
            env.reset()
            reply = player.act()
            if not isinstance(reply, str):
                raise ContractBroken(f"{_site(task)}: act() of {kind!r} must return text (got {reprlib.repr(reply)})")
            player.see(env.step(reply))


def _are_texts(values: object) -> bool:
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    return is_list and all(isinstance(value, str) for value in cast(Sequence[object], values))


def _pick(env: Env, rng: random.Random) -> str:
    """A legal reply where the environment lists them, noise otherwise."""
    if not hasattr(env, "legal"):
        return next(garbage(rng))
    with _must_not_raise(f"{_site(env.task)}: legal()"):
        replies: Sequence[str] = call_within(_LIMIT.get(), env.legal)
    if not replies or not _are_texts(replies):
        raise ContractBroken(
            f"{_site(env.task)}: legal() must return a list of replies as text, never empty before the episode is over "
            f"(got {reprlib.repr(replies)})"
        )
    return rng.choice(replies)


def _step(env: Env, reply: str) -> Step:
    site = f"{_site(env.task)}, reply {reply[:80]!r}"
    with _must_not_raise(f"{site}: step()"):
        step = call_within(_LIMIT.get(), env.step, reply)
    if not isinstance(step, Step):
        raise ContractBroken(f"{site}: step() must return a Step (got {type(step).__name__})")
    for name in ("observation", "state_key", "feedback"):
        if not isinstance(getattr(step, name), str):
            raise ContractBroken(f"{site}: {name} must be text (got {reprlib.repr(getattr(step, name))})")
    for name in ("reward", "shaping", "luck"):
        value = getattr(step, name)
        if not (isinstance(value, Real) and abs(cast(float, value)) <= sys.float_info.max):
            raise ContractBroken(f"{site}: {name} must be a finite number (got {reprlib.repr(value)})")
    for name in ("done", "won", "valid"):
        if getattr(step, name) not in (False, True):
            raise ContractBroken(f"{site}: {name} must be True or False (got {reprlib.repr(getattr(step, name))})")
    if step.won and not step.done:
        raise ContractBroken(f"{site}: won without being done")
    if not step.valid and (step.reward or step.done):
        raise ContractBroken(f"{site}: an invalid reply ended the episode or was rewarded")
    return step
