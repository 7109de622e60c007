"""Who plays the other side: one opponent, or several of which each task's seed draws one.

    aggressive               always the same one
    conservative,cfr:2       one of two, the second twice as likely
    copycat>rock             the first, and from a hidden episode on the second; ``copycat>rock@3``: from the third on
    runs/x@40                a policy: a run's snapshot (a path with a slash), ``endpoint:MODEL``, or ``file.py:NAME``;
                             see `mulligan.guests`

A weight is a number after the last colon, unless the whole is a name itself: ``mcts:100`` is one, ``mcts:100:2`` is
that one with the weight 2. What was drawn is the task's parameter ``opponent``; ``pool`` keeps what it was drawn from,
since that is what an agent may expect.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol, Self, TypeVar

from mulligan.calls import described
from mulligan.envs.base import draw
from mulligan.errors import MulliganError, OpponentFailed, ParameterError, UsageError
from mulligan.seeding import generator
from mulligan.types import ParamValue, Step, Task

Move = TypeVar("Move")
Result = TypeVar("Result")
Check = Callable[[str], object]
"""Raises for what is no opponent of the game."""
Members = Callable[[str], Sequence[str]]
"""From a part of a spec to the opponents that it stands for: itself, or those of a group."""
HIDDEN_SWITCHES = (2, 3, 4)
"""Episodes, from 1, of which a switch that names none draws one."""

MOST_SIMULATIONS = 100_000
LAST_SWITCH = 100
"""The last episode, from 1, at which an opponent may change."""


GUESTS = "mulligan.guests"
"""The module that seats policies; found by name, as policies stand above environments."""


class TwoSided(Protocol):
    """A game whose other side a policy can play."""

    task: Task

    def rules(self) -> str: ...

    def observe(self) -> str:
        """What the player sees now."""

    def named(self, reply: str) -> tuple[Any, str]:
        """The move that a reply names, or None and why."""

    def switched(self, params: Mapping[str, ParamValue]) -> Self:
        """The game as the opponent sees it, now that it is to move; `params` are those that it was trained with."""

    def position(self) -> Step:
        """What the player is told now; the reward is all that the episode has paid it so far."""

    def legal(self) -> Sequence[str]: ...


def is_guest(name: str) -> bool:
    """Whether an opponent is a policy rather than one of the game's own."""
    return "/" in name or ".py:" in name or name.startswith("endpoint:")


seated: ContextVar[Callable[[TwoSided], Callable[[], Any]] | None] = ContextVar("seated", default=None)
"""From a world to the moves of who sits at its other side; None where policies are seated by their names."""


def guest_mover(world: TwoSided, name: str, chance: int) -> Callable[[], Any]:
    """The moves of a policy that plays the other side in one episode."""
    if (seat := seated.get()) is not None:
        return seat(world)
    move: Callable[[], Any] = importlib.import_module(GUESTS).mover(world, name, chance)
    return move


def asks_policy(task: Task) -> bool:
    """Whether moves of the opponent are replies of a policy, which take their time."""
    return any(map(is_guest, filter(None, split_switch(task.opponent or "")[:2])))


awaited: ContextVar[list[str] | None] = ContextVar("awaited", default=None)
"""Opponents that have been asked and have not answered yet; None where nobody wants to know."""


def ask(name: str, method: Callable[..., Result], *arguments: object) -> Result:
    """What the opponent answers; raises `OpponentFailed` if that is an error."""
    waiting = awaited.get()
    if waiting is not None:
        waiting.append(name)
    try:
        answer = method(*arguments)
    except OpponentFailed:
        raise
    except Exception as error:
        raise OpponentFailed(f"{name} raised {described(error)}") from error
    if waiting is not None:  # not in a `finally`: of one that hangs, the name is read when its thread has been ended
        waiting.remove(name)
    return answer


def ask_move(env: str, name: str, method: Callable[[], Move], legal: Collection[Move]) -> Move:
    """The opponent's move; raises `OpponentFailed` if it is none."""
    move = ask(name, method)
    if move not in legal:
        raise OpponentFailed(f"{name} played {move!r}, which is no move of {env}")
    return move


def settle_opponent(
    env: str, params: dict[str, ParamValue], seed: int, check: Check, members: Members | None = None
) -> dict[str, ParamValue]:
    """`params` with one opponent, drawn by the seed, and the pool that it was drawn from, or that was given."""
    spec = str(params["opponent"])
    pool_spec = str(params["pool"]) or spec
    pool = parse_pool(env, spec, check, members)
    if pool_spec != spec:
        parse_pool(env, pool_spec, check, members)
    rng = generator(seed, "opponent")
    name = pool[draw(rng, [weight for _, weight in pool])][0]
    if is_hidden(name):
        name = f"{name}@{HIDDEN_SWITCHES[draw(rng, [1.0] * len(HIDDEN_SWITCHES))]}"
    return {**params, "opponent": name, "pool": pool_spec}


def parse_pool(env: str, spec: str, check: Check, members: Members | None = None) -> list[tuple[str, float]]:
    """Every opponent that `spec` names, with its weight."""
    pool = [each for part in spec.split(",") for each in _of_part(env, part.strip(), check, members)]
    if not sum(weight for _, weight in pool) > 0.0:
        raise ParameterError(f"{env}: one opponent must have a weight above 0 (got {spec!r})")
    return pool


def _of_part(env: str, part: str, check: Check, members: Members | None) -> list[tuple[str, float]]:
    """The opponents of a part with their weights; of a group with a weight (``seen:2``) each with that weight."""
    group, _, weight = part.rpartition(":")
    if members and _is_weight(weight) and list(members(part)) == [part] and list(members(group)) != [group]:
        return [(name, float(weight)) for name in members(group)]
    return [_weighed(env, name, check) for name in (members(part) if members else [part])]


def chances_of(env: str, spec: str, check: Check, members: Members | None = None) -> dict[str, float]:
    """Every opponent that a task with `spec` may settle on, with its probability."""
    pool = parse_pool(env, spec, check, members)
    total, chances = sum(weight for _, weight in pool), dict[str, float]()
    for name, weight in pool:
        settled = [f"{name}@{switch}" for switch in HIDDEN_SWITCHES] if is_hidden(name) else [name]
        for each in settled:
            chances[each] = chances.get(each, 0.0) + weight / total / len(settled)
    return chances


WORDS: Mapping[str, str] = {
    "random": "plays anything",
    "minimax": "never goes wrong",
    "cfr": "plays close to the equilibrium, which tosses coins",
}
"""What opponents that several games have do: "it …"."""


def nameless_class(task: Task) -> str:
    """The class of a task without its opponent, for people who are to find out."""
    return task.task_class.removesuffix(f"/vs-{task.opponent}")


def who_it_was(world: Any, opponent: str) -> str:
    """A settled opponent in words, for people: "copies: it throws what you threw last"; of one that changes, both.

    `world` may have words for its own opponents in `opponent_words`.
    """
    words = {**WORDS, **getattr(world, "opponent_words", {})}

    def described_name(name: str) -> str:
        search, _, simulations = name.partition(":")
        habit = f"looks ahead with {simulations} simulations" if search == "mcts" else words.get(name)
        return f"{name}: it {habit}" if habit else name

    first, then, switch = split_switch(opponent)
    return described_name(first) + (f"; from episode {switch} on {described_name(then)}" if then else "")


def check_models(env: str, names: Sequence[str]) -> None:
    """Raise if there are any opponents that have no model."""
    if names:
        raise UsageError(f"{env}: {names[0]} has no model, so that no optimum can be computed; name others")


def at_any_episode(chances: Mapping[str, float]) -> dict[str, float]:
    """The same weights for opponents that do not change: of one that does, both have its weight."""
    weights: dict[str, float] = {}
    for opponent, weight in chances.items():
        for name in dict.fromkeys((at_episode(opponent, 0), at_episode(opponent, LAST_SWITCH))):
            weights[name] = weights.get(name, 0.0) + weight
    return weights


def at_next_episode(opponent: str, episode: int) -> tuple[str, int]:
    """A settled opponent and the number of the next episode; one that will not change any more is always at 0."""
    after = at_episode(opponent, episode + 1)
    _, then, _ = split_switch(opponent)
    return (after, 0) if after == then or not then else (opponent, episode + 1)


def at_episode(opponent: str, episode: int) -> str:
    """Who of a settled opponent plays the episode, counted from 0."""
    first, then, switch = split_switch(opponent)
    return then if then and episode + 1 >= int(switch or 0) else first


def split_switch(opponent: str) -> tuple[str, str, str | None]:
    """Who plays first, who then, and from which episode on: ("rock", "runs/x@40", "3") of ``rock>runs/x@40@3``.

    Who does not change has no second one; an episode that is hidden, or that there is none of, is None.
    """
    first, _, rest = opponent.partition(">")
    then, at, switch = rest.rpartition("@")
    return (first, then, switch) if at else (first, rest, None)


def is_hidden(opponent: str) -> bool:
    """Whether it changes at an episode that is not settled yet."""
    _, then, switch = split_switch(opponent)
    return bool(then) and switch is None


def simulations_of(env: str, opponent: str) -> int:
    """K of ``mcts:K``."""
    count = opponent.partition(":")[2]
    if not (count.isascii() and count.isdecimal() and len(count) <= 9 and 1 <= int(count) <= MOST_SIMULATIONS):
        raise ParameterError(f"{env}: opponent must be mcts:1 to mcts:{MOST_SIMULATIONS} (got {opponent!r})")
    return int(count)


def _weighed(env: str, part: str, check: Check) -> tuple[str, float]:
    name, _, weight = part.rpartition(":")
    try:
        _check_each(env, part, check)
    except MulliganError as error:
        if name and _is_weight(weight):
            with suppress(MulliganError):
                _check_each(env, name, check)
                return name, float(weight)
        raise error from None
    return part, 1.0


def _check_each(env: str, name: str, check: Check) -> None:
    """Check an opponent, or both of a switch."""
    first, then, switch = split_switch(name)
    for each in (first, then) if ">" in name else (first,):
        if is_guest(each):
            importlib.import_module(GUESTS).check(env, each)
        else:
            check(each)
    if switch is not None and not (switch.isascii() and switch.isdecimal() and 2 <= int(switch[:4]) <= LAST_SWITCH):
        raise ParameterError(f"{env}: an opponent changes at an episode from 2 to {LAST_SWITCH} (got {name!r})")


def _is_weight(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdecimal() and len(text) <= 9
