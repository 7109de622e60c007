"""The contract any environment must keep, as a test anybody can run: ``check_env("minesweeper")``."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.errors import ContractBroken, MulliganError
from mulligan.seeding import generator
from mulligan.types import PLAYERS, Step, Task

SEEDS = range(8)
GARBAGE_REPLIES = 1_000


def check_env(name: str, **params: Any) -> None:
    """Raise `ContractBroken`, naming seed and reply, if environment `name` does not keep the contract.

    The same task twice gives the same first observation; a recorded list of replies replays to the same transcript;
    garbage never raises; an invalid reply never changes the world; observations are text and rewards finite; what
    `legal` lists is legal; scripted players can play. Whether episodes end is not tested: after the task's turns the
    runner ends them.
    """
    for seed in SEEDS:
        task = registry.make_task(name, seed, **params)
        _check_reset(task)
        for chance in (0, 1):
            _check_replay(task, chance)
        _check_invalid_changes_nothing(task)
    task = registry.make_task(name, 0, **params)
    _check_garbage(task)
    _check_players(task)


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


def _check_reset(task: Task) -> None:
    first, second = _built(task), _built(task)
    once = (_called(first, "rules"), _called(first, "reset"))
    if once != (_called(second, "rules"), _called(second, "reset")):
        raise ContractBroken(f"{task.env}, seed {task.seed}: the same task gave two different beginnings")
    if not isinstance(once[0], str) or not isinstance(once[1], str):
        raise ContractBroken(f"{task.env}: rules() and reset() must return text")
    if first.task != task:
        raise ContractBroken(f"{task.env}: env.task is not the task it was built from")


def _built(task: Task) -> Env:
    try:
        return registry.build(task)
    except MulliganError:
        raise
    except Exception as error:
        raise ContractBroken(f"{task.env}, seed {task.seed}: __init__(task) raised {_named(error)}") from error


def _called(env: Env, method: str, *given: int) -> Any:
    """What `method` of the environment returns; an error in it breaks the contract."""
    try:
        return getattr(env, method)(*given)
    except Exception as error:
        call = f"{method}({', '.join(map(str, given))})"
        raise ContractBroken(f"{env.task.env}, seed {env.task.seed}: {call} raised {_named(error)}") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _shortened(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:79]}…"


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):  # no number, or one that no float can hold
        return False


def _check_replay(task: Task, chance: int) -> None:
    """Play once, noting the replies; play them again on the same and on a new instance."""
    rng = generator(task.seed, "check", chance)
    env = _built(task)
    opening = _called(env, "reset", chance)
    replies: list[str] = []
    steps: list[Step] = []
    for _ in range(task.turns):
        replies.append(_pick(env, rng))
        steps.append(_step(env, replies[-1]))
        if not steps[-1].valid and hasattr(env, "legal"):
            listed = f"legal() lists {replies[-1][:80]!r}, which step() rejects"
            raise ContractBroken(f"{task.env}, seed {task.seed}, chance {chance}: {listed}")
        if steps[-1].done:
            break
    for again in (env, _built(task)):
        same_opening = _called(again, "reset", chance) == opening
        for number, (reply, step) in enumerate(zip(replies, steps, strict=True), 1):
            if not same_opening or _step(again, reply) != step:
                raise ContractBroken(
                    f"{task.env}, seed {task.seed}, chance {chance}: turn {number}, reply {reply[:80]!r} gave another "
                    "transcript the second time"
                )


def _check_invalid_changes_nothing(task: Task) -> None:
    """A game disturbed by invalid replies goes as the same game without them."""
    rng = generator(task.seed, "invalid")
    noise = garbage(rng)
    plain, disturbed = _built(task), _built(task)
    _called(plain, "reset")
    _called(disturbed, "reset")
    key: str | None = None
    for _ in range(task.turns):
        for reply in (next(noise), next(noise), next(noise), _pick(plain, rng)):
            got = _step(disturbed, reply)
            if not got.valid:
                if key is not None and got.state_key != key:
                    raise ContractBroken(f"{task.env}, seed {task.seed}: the invalid {reply[:80]!r} changed the state")
                continue
            if _step(plain, reply) != got:
                raise ContractBroken(f"{task.env}, seed {task.seed}: an invalid reply changed what {reply[:80]!r} does")
            key = got.state_key
            if got.done:
                return


def _check_garbage(task: Task) -> None:
    env = _built(task)
    _called(env, "reset")
    noise = garbage(generator(task.seed, "garbage"))
    for _ in range(GARBAGE_REPLIES):
        if _step(env, next(noise)).done:
            _called(env, "reset")


def _check_players(task: Task) -> None:
    """The scripted players can be made as the runner makes them, move, and take what comes of it."""
    maker = registry.spec(task.env).build
    if not callable(getattr(maker, "player", None)):
        return
    kinds = getattr(maker, "players", PLAYERS)
    if isinstance(kinds, str) or not (isinstance(kinds, Sequence) and all(isinstance(kind, str) for kind in kinds)):
        raise ContractBroken(f"{task.env}: players is {_shortened(kinds)}, not a list of names")
    unknown = [kind for kind in getattr(maker, "room_players", ()) if kind not in kinds]
    if unknown:
        raise ContractBroken(f"{task.env}: room_players names {unknown[0]!r}, which is not one of its players {kinds}")
    for kind in kinds:
        env: Any = _built(task)
        who = f"{task.env}, seed {task.seed}: its player {kind!r}"
        try:
            player = env.player(kind, generator(task.seed, "player", kind), 1.0, 0.0)
            env.reset()
            reply = player.act()
            if isinstance(reply, str):
                player.see(env.step(reply))
        except Exception as error:
            way_out = "it is made by player(kind, rng, skill, recall); `players` names those that there are"
            raise ContractBroken(f"{who} cannot play: {_named(error)}; {way_out}") from error
        if not isinstance(reply, str):
            raise ContractBroken(f"{who} moves with act() = {_shortened(reply)}, which is no text")


def _pick(env: Env, rng: random.Random) -> str:
    """A legal reply where the environment lists them, noise otherwise."""
    if not hasattr(env, "legal"):
        return next(garbage(rng))
    found = _called(env, "legal")
    where = f"{env.task.env}, seed {env.task.seed}"
    is_list = isinstance(found, Sequence) and not isinstance(found, str)
    if found is not None and not (is_list and all(isinstance(reply, str) for reply in found)):
        raise ContractBroken(f"{where}: legal() returned {_shortened(found)}, not a list of replies as text")
    if not found:
        raise ContractBroken(
            f"{where}: legal() returned {found!r} before the episode was over; list some, or leave it out"
        )
    return str(rng.choice(found))


def _step(env: Env, reply: str) -> Step:
    """One step, checked on its own."""
    where = f"{env.task.env}, seed {env.task.seed}, reply {reply[:80]!r}"
    try:
        step = env.step(reply)
    except Exception as error:
        raise ContractBroken(f"{where}: raised {_named(error)}") from error
    if not isinstance(step, Step):
        raise ContractBroken(f"{where}: step() returned {type(step).__name__}, not Step")
    for name, text in (("observation", step.observation), ("state_key", step.state_key), ("feedback", step.feedback)):
        if not isinstance(text, str):
            raise ContractBroken(f"{where}: step() gave {name}={_shortened(text)}, which is no text")
    for name, number in (("reward", step.reward), ("shaping", step.shaping)):
        if not _is_finite(number):
            raise ContractBroken(f"{where}: step() gave {name}={_shortened(number)}, which is not a finite number")
    if step.won and not step.done:
        raise ContractBroken(f"{where}: won without being done")
    if not step.valid and (step.reward or step.done):
        raise ContractBroken(f"{where}: an invalid reply ended the episode or was rewarded")
    return step
