"""Policies as opponents: a snapshot of a run, an endpoint or a policy in a file plays the other side of any game.

    runs/x, runs/x@40, runs/x@best   a training run on the same game, with the settings it was trained with
    endpoint:MODEL                   the server is that of ``--base-url``, or of the variable OPENAI_BASE_URL
    path/to/file.py:NAME             a function of the messages, or a policy

It is asked as an agent is, and reads the game as its own side sees it (`TwoSided.switched`). It remembers the episode,
and nothing of earlier ones: such an opponent does not adapt. With the same luck it says the same again.
Environments find this module by its name, since they must not know policies (`mulligan.envs.opponents`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mulligan.envs import registry
from mulligan.envs.opponents import TwoSided
from mulligan.errors import OpponentFailed, UsageError
from mulligan.players import as_trained, player_from, trained_with
from mulligan.policy.base import Policy
from mulligan.policy.endpoint import URL_VARIABLE
from mulligan.rollout.groups import Mixture
from mulligan.seeding import derive
from mulligan.trial import prompts
from mulligan.trial.settings import TrialSettings
from mulligan.trusted import check_server
from mulligan.types import Message, ParamValue, Sampling, Task

if TYPE_CHECKING:
    from mulligan.training.config import Config

ENDPOINT = "endpoint:"
_SLOTS = 16
"""Replies at a time of a model in this process."""
_TRIES = 3
"""Replies that name no move before it forfeits."""
endpoint_options: dict[str, Any] = {}
"""How endpoints are reached: options of `EndpointPolicy`, as the command line gives them."""


class Host(NamedTuple):
    """A policy that plays for the other side, and how it is asked."""

    policy: Policy
    settings: TrialSettings
    params: Mapping[str, ParamValue]
    """Of the game that it was trained on: how it is used to see it."""


@lru_cache(maxsize=64)
def check(env: str, name: str) -> None:
    """Raise unless a policy of that name can play `env`. It is loaded: what is damaged must not look like a forfeit."""
    if config := trained_with(name):
        if _game_trained_on(config, env) is None:
            raise UsageError(f"{env}: the opponent {name} was trained on {config.task.env}; name a run on {env}")
    elif not name.startswith(ENDPOINT) and ".py:" not in name:
        raise UsageError(f"{env}: the opponent {name!r} is not a run folder (it has no config.toml)")
    _host(env, name)


def mover(world: TwoSided, name: str, chance: int) -> Callable[[], Any]:
    """The moves of the policy `name` in an episode of `world`, which has this draw of luck."""
    return Seated(world, name, derive(world.task.seed, "guest", chance)).move


class Seated:
    """The policy's side of one episode."""

    def __init__(self, world: TwoSided, name: str, seed: int) -> None:
        self.world, self.name, self.seed = world, name, seed
        self.host = _host(world.task.env, name)
        self.messages: list[Message] = []
        self.replies = 0

    def move(self) -> Any:
        """Its next move."""
        settings, style = self.host.settings, prompts.style(self.host.settings.style)
        game, feedback = self.world.switched(self.host.params), ""
        for _ in range(_TRIES):
            self._tell(game, feedback, settings, style)
            shown = prompts.last_turns(
                self.messages, self.replies, settings.window, self._system(game, settings, style), style
            )
            contents = tuple((each["role"], each["content"]) for each in shown)
            text = _reply(self.name, settings.sampling, self.seed, contents)
            self.messages.append({"role": "assistant", "content": text})
            self.replies += 1
            move, feedback = game.named(style.action(text))
            if move is not None:
                return move
        raise OpponentFailed(f"{self.name} named no move in {_TRIES} replies; the last one: {text[:200]!r}")

    def _tell(self, game: TwoSided, feedback: str, settings: TrialSettings, style: prompts.Style) -> None:
        if self.messages:
            turns_left = max(1, game.task.turns - self.replies)
            content = prompts.turn(game.observe(), feedback, turns_left, style)
        else:
            self.messages = self._system(game, settings, style)
            episodes, tell = settings.announced or settings.episodes, settings.memory_mode != "none"
            content = prompts.opening(game.observe(), 0, episodes, "", style, tell=tell)
        self.messages.append({"role": "user", "content": content})

    @staticmethod
    def _system(game: TwoSided, settings: TrialSettings, style: prompts.Style) -> list[Message]:
        text = prompts.system(game.rules(), style, game.task.turns, character=settings.character)
        return [{"role": "system", "content": text}] if text else []


@lru_cache(maxsize=10_000)
def _reply(name: str, sampling: Sampling, seed: int, messages: tuple[tuple[Any, str], ...]) -> str:
    """What the policy says; the same again to the same messages with the same luck, so that games can be repeated."""
    policy = _policy(name)

    async def ask() -> str:
        # One conversation for each reply: nobody tells that a game is over, and one left open would keep its memory.
        conversation = policy.start(Task("", seed, 1, ""), derive(seed, len(messages)))
        try:
            listed: list[Message] = [{"role": role, "content": content} for role, content in messages]
            return (await conversation.reply(listed, sampling)).text
        finally:
            conversation.close()

    return asyncio.run_coroutine_threadsafe(ask(), _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all guests, in a thread of its own: games wait for their moves in other threads."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mulligan-guests", daemon=True).start()
    return loop


_LOADING = threading.Lock()


@cache
def _host(env: str, name: str) -> Host:
    """The policy, and how it is asked in a game of `env`."""
    with _LOADING:  # many games ask at once: one of them loads the policy, and begins the loop
        policy, _ = _policy(name), _loop()
    config = trained_with(name)
    game = _game_trained_on(config, env) if config else None
    if config is None or game is None:
        return Host(policy, TrialSettings(memory="none"), {})
    settings, params = as_trained(config, game)
    return Host(policy, settings, {**registry.spec(game).defaults, **params})


def _game_trained_on(config: Config, env: str) -> str | None:
    """The first game of a run's mixture that is one of `env`; None where there is none."""
    games = [game for game, _ in Mixture.parse(config.task.env, {}).weights]
    return next((game for game in games if registry.game_of(game)[0] == env), None)


@cache
def _policy(name: str) -> Policy:
    if name.startswith(ENDPOINT):
        return _endpoint(name)
    # On the CPU: beside a model that is trained on a GPU, another one must not touch it while its steps are recorded.
    return player_from(name, device="cpu", slots=_SLOTS)


def _endpoint(name: str) -> Policy:
    check_server(name)
    options = {"base_url": os.environ.get(URL_VARIABLE), **endpoint_options}
    if not options["base_url"]:
        raise UsageError(f"the opponent {name} needs a URL: --base-url http://…/v1, or the variable {URL_VARIABLE}")
    return player_from(name, **options)
