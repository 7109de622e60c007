"""A game between two agents, a trial long: each plays its own side, with a trial, memory and reflections of its own.

Worlds know one player and an opponent whose moves they ask for in the middle of a step. Here both are players of the
trial runner, and the opponent's move is a reply that somebody awaits. So a step is tried on a copy of the world: where
it asks for a move that nobody has made yet, the copy is dropped, the other side is asked, and the step is tried again.
No thread waits for another, and the order of play does not depend on the clock.

The other side reads the game through `TwoSided.switched`, as policies that play as opponents do: its own cards, and
what was done openly.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, Self, cast

from mulligan.envs import registry
from mulligan.envs.base import Env
from mulligan.envs.opponents import TwoSided, seated
from mulligan.errors import OpponentFailed, StopReason, UsageError
from mulligan.policy.base import Policy
from mulligan.seeding import derive
from mulligan.trial.runner import run_trial
from mulligan.trial.settings import TrialSettings
from mulligan.types import Step, Task, Trial

_SETTINGS = ("kind", "defaults", "turns", "timeout_reward")
"""What the runner asks the class of an environment for."""


class Player(NamedTuple):
    """One side of a game."""

    name: str
    """What the other side's task calls its opponent: ``agent/2``, ``past/2@40``."""
    policy: Policy
    settings: TrialSettings


def check(env: str) -> None:
    """Raise unless two agents can play `env`."""
    if registry.spec(env).kind != "versus":
        raise UsageError(
            f"population.others and population.past must be 0 for {env}, where nobody plays the other side"
        )
    missing = [
        name for name in ("switched", "position", "named", "legal") if not hasattr(registry.spec(env).build, name)
    ]
    if missing:
        raise UsageError(f"{env} cannot be played by two agents: it has no {missing[0]}(); see envs/opponents.py")


async def play(task: Task, players: Sequence[Player], *, seed: int, index: int) -> tuple[Trial, Trial]:
    """The trials of both players; the first has the seat that the task names."""
    table = _Table(task, [player.name for player in players])

    async def side(world: _Side, player: Player, number: int) -> Trial:
        settings = replace(player.settings, stop="never")
        try:
            return await run_trial(
                cast(Env, world), player.policy, settings=settings, seed=derive(seed, "side", number), index=index
            )
        finally:
            world.leave()

    first, second = await asyncio.gather(side(table.host, players[0], 0), side(table.guest, players[1], 1))
    return _unplayed(first, second), _unplayed(second, first)


def _unplayed(trial: Trial, others: Trial) -> Trial:
    """The trial, which counts as failed where the other side's failed: what was won then was won against nobody."""
    if trial.failed or not others.failed:
        return trial
    last = replace(trial.episodes[-1], stop=StopReason.OPPONENT_FAILED, error="the other side's trial failed")
    return replace(trial, episodes=(*trial.episodes[:-1], last))


class _MoveWanted(BaseException):
    """Raised in the middle of a world's step; not an `Exception`, which the world may take for the opponent's."""


class _GivenUp(Exception):
    """The other side's episode ended before the game did."""


class _Turn(NamedTuple):
    """What the host tells the guest."""

    view: Any
    """The game as the guest sees it; None where the trial is over."""
    over: bool = False
    given_up: bool = False


class _Mover:
    """The opponent's moves, as a world asks for them."""

    def __init__(self, world: TwoSided | None = None) -> None:
        self.world = world
        self.given: Iterator[Any] | None = None
        """The moves that were made since the step began; None while the world is being built."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __call__(self) -> Any:
        if self.given is None:  # of an episode that is never played: the first one is begun by `reset`
            assert self.world is not None, "a world that asks for moves has named itself"
            view = self.world.switched({})
            return view.named(view.legal()[0])[0]
        try:
            return next(self.given)
        except StopIteration:
            raise _MoveWanted from None


class _Table:
    """The world of a trial, and both sides of it."""

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        self.mover = _Mover()
        self.params = dict(task.params)
        with self.seating():
            self.world = cast(TwoSided, registry.build(_sided(task, names[1])))
        self.requests: asyncio.Queue[_Turn] = asyncio.Queue()
        self.answers: asyncio.Queue[Callable[[], Any]] = asyncio.Queue()
        """Each is called, and returns the guest's move or raises why there is none."""
        self.host = cast(_Host, _side_class(_Host, task.env)(self, self.world))
        other = _sided(task, names[0], seat=None if task.seat is None else 3 - task.seat)
        self.guest = cast(_Guest, _side_class(_Guest, task.env)(self, self.switched(self.world)))
        self.guest.task = other

    @contextmanager
    def seating(self) -> Iterator[None]:
        """Inside, worlds ask `mover` for the opponent's moves."""

        def seat(world: TwoSided) -> Callable[[], Any]:
            self.mover.world = world
            return self.mover

        token = seated.set(seat)
        try:
            yield
        finally:
            seated.reset(token)

    def switched(self, world: TwoSided) -> TwoSided:
        return world.switched(self.params)

    async def advance(self, method: str, argument: object) -> Any:
        """Call a method of the world, with the guest's moves where it wants some."""
        moves: list[Any] = []
        while True:
            world = copy.deepcopy(self.world)
            self.mover.given = iter(moves)
            try:
                with self.seating():
                    result = getattr(world, method)(argument)
            except _MoveWanted:
                self.requests.put_nowait(_Turn(self.switched(world)))
                answer = await self.answers.get()
                try:
                    moves.append(answer())
                except _GivenUp:
                    self.world = world  # as it stood when the guest should have moved
                    raise
            else:
                self.world = world
                return result


def _sided(task: Task, opponent: str, seat: int | None = None) -> Task:
    """The task with another opponent, and from the other seat."""
    params = {**dict(task.params), "opponent": opponent, "pool": opponent}
    if seat is not None:
        params["seat"] = seat
    build: Any = registry.spec(task.env).build
    return replace(task, task_class=build.task_class(params), params=tuple(sorted(params.items())))


class _Side:
    """One side of the game, as an environment of the trial runner; what is not here, its view of the world has."""

    def __init__(self, table: _Table, view: TwoSided) -> None:
        self.table, self.view = table, view
        self.task = view.task

    def __getattr__(self, name: str) -> Any:
        if name in ("table", "view", "task"):  # not set yet
            raise AttributeError(name)
        return getattr(self.view, name)

    def rules(self) -> str:
        return self.view.rules()

    async def reset(self, chance: int = 0) -> str:
        raise NotImplementedError

    async def step(self, reply: str) -> Step:
        raise NotImplementedError

    def leave(self) -> None:
        """The side's trial has ended."""
        raise NotImplementedError

    def unopposed(self) -> Step:
        """The other side stalled: what that costs it is won here."""
        won = -registry.spec(self.task.env).timeout_reward
        return self.view.position()._replace(reward=won, done=True, won=won > 0)


class _Host(_Side):
    """The task's own seat, whose steps move the world."""

    is_open = False
    """Whether a game is under way."""

    async def reset(self, chance: int = 0) -> str:
        self.give_up()
        self.is_open = True
        try:
            await self._advance("reset", chance)
        except _GivenUp:  # any reply then takes the result
            self.is_open = False
        return self.view.position().observation

    async def step(self, reply: str) -> Step:
        if not self.is_open:
            return self.unopposed()
        try:
            step: Step = await self._advance("step", reply)
        except _GivenUp:
            self.is_open = False
            return self.unopposed()
        if step.done:
            self.is_open = False
            self.table.requests.put_nowait(_Turn(self.table.switched(self.table.world), over=True))
        return step

    async def _advance(self, method: str, argument: object) -> Any:
        try:
            return await self.table.advance(method, argument)
        finally:
            self.view = self.table.world

    def give_up(self) -> None:
        """Tell the guest of a game that is left before its end."""
        if self.is_open:
            self.is_open = False
            self.table.requests.put_nowait(_Turn(self.table.switched(self.table.world), over=True, given_up=True))

    def leave(self) -> None:
        self.give_up()
        self.table.requests.put_nowait(_Turn(None))


class _Guest(_Side):
    """The other seat, which is asked for moves."""

    is_asked = False
    """Whether the host waits for a move."""
    paid = 0.0
    """What the episode has paid so far."""

    async def reset(self, chance: int = 0) -> str:
        self.give_up()
        self.paid = 0.0
        await self._next()
        return self.view.position().observation

    async def step(self, reply: str) -> Step:
        if not self.is_asked:  # the host gave up before the first move: any reply takes the result
            return self.unopposed()
        move, feedback = self.view.named(reply)
        if move is None:
            return self.view.position()._replace(reward=0.0, valid=False, feedback=feedback)
        self._answer(lambda: move)
        turn = await self._next()
        if turn.given_up:
            return self.unopposed()
        position = self.view.position()
        reward, self.paid = position.reward - self.paid, position.reward
        return position._replace(reward=reward, done=turn.over, won=turn.over and position.won)

    async def _next(self) -> _Turn:
        turn = await self.table.requests.get()
        if turn.view is None:
            raise OpponentFailed("the other side's trial has ended")
        self.view, self.is_asked = turn.view, not turn.over
        return turn

    def _answer(self, answer: Callable[[], Any]) -> None:
        self.is_asked = False
        self.table.answers.put_nowait(answer)

    def give_up(self) -> None:
        """Tell the host, if it waits for a move, that this side has left the game before its end."""
        if self.is_asked:
            self._answer(_raise_given_up)

    def leave(self) -> None:
        self.give_up()
        self.table.answers.put_nowait(_raise_left)


def _raise_given_up() -> None:
    raise _GivenUp


def _raise_left() -> None:
    raise OpponentFailed("the other side's trial has ended")


@cache
def _side_class(base: type[_Side], env: str) -> type[_Side]:
    """A side as an environment with the settings of `env`."""
    spec = registry.spec(env)
    return type(base.__name__, (base,), {name: getattr(spec, name) for name in _SETTINGS})
