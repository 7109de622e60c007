"""Play a game yourself, or watch a policy play it: up to N episodes of one task, with memory between them."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mulligan.app.cli.options import (
    Parser,
    add_policy_options,
    add_trial_options,
    endpoint_options,
    take_defaults_of_run,
    trial_settings,
)
from mulligan.app.cli.show import beside_text
from mulligan.calls import call_within, described, text_of
from mulligan.envs.opponents import nameless_class, who_it_was
from mulligan.errors import MulliganError, UsageError
from mulligan.policy.base import Conversation, Policy, Spectator, World
from mulligan.text import visible
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from mulligan.envs.base import Env
    from mulligan.trial.settings import TrialSettings


def add_options(parser: Parser) -> None:
    parser.add_argument("env", help="a name from 'mulligan envs', or path/to/file.py:ClassName")
    parser.add_argument("--seed", type=seed, default=0, metavar="N|random", help="which task (0)")
    parser.add_argument("--opponent", metavar="X", help="who plays the other side; told in the end (--env.opponent)")
    parser.add_argument("--web", action="store_true", help="play in the browser, beside what an agent sees")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="with --web: the port (any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="with --web: only print the address")
    add_policy_options(parser, default="human")
    add_trial_options(parser)


def seed(word: str) -> int:
    return secrets.randbelow(1_000_000) if word == "random" else int(word)


def run(parser: Parser, words: list[str]) -> int:
    from rich.console import Console

    from mulligan.envs import registry
    from mulligan.players import Plays, player_from
    from mulligan.policy.human import HumanPolicy, QuitGame
    from mulligan.trial.runner import run_trial_sync

    trained_params = take_defaults_of_run(parser, words)
    options, given_params = parser.read(words)
    if options.opponent is not None and "opponent" in given_params:
        raise UsageError("play: --opponent and --env.opponent are the same; give one of them")
    params = {**trained_params, **given_params}
    if options.opponent is not None:
        params["opponent"] = options.opponent
    endpoint = endpoint_options(options, params)
    is_versus = registry.spec(options.env).kind == "versus"
    if options.web and options.policy != "human" and not is_versus:
        raise UsageError(
            f"play: --web must be played by a person, but for games of two (got --policy {options.policy})"
        )
    if not options.web and (options.port or options.no_browser):
        raise UsageError("play: --port and --no-browser need --web")
    task = registry.task_of(options.env, options.seed, params)
    settings = trial_settings(options)
    try:
        env = call_within(settings.env_timeout, registry.build, task)
        rules = text_of("rules()", call_within(settings.env_timeout, env.rules))
    except MulliganError:
        raise
    except Exception as error:  # of a class of the user's own
        raise UsageError(f"{task.env} cannot be built: {described(error)}") from error
    console = Console()
    player = None
    if options.policy != "human":
        player = player_from(options.policy, plays=Plays(options.env, params, settings), **endpoint)
    if options.web:
        return _play_in_browser(env, player, settings, options, console)
    spec = registry.spec(options.env)
    policy = Watched(player, console, spec.glyphs) if player else HumanPolicy(console, glyphs=spec.glyphs)
    console.print(spec.name, style="bold", end="  ", markup=False, highlight=False)
    details = f"{nameless_class(task)}, seed {task.seed}, player {policy.name}"
    console.print(visible(details), markup=False, highlight=False)
    console.print(visible(rules), markup=False, highlight=False)
    console.print(f"Up to {settings.episodes} episodes of {task.turns} turns.\n", highlight=False)
    try:
        trial = run_trial_sync(env, policy, settings=settings)
    except KeyboardInterrupt as stopped:
        _tell_opponent(env, console)
        console.print("Good bye.")
        return 0 if isinstance(stopped, QuitGame) else 130
    _print_verdict(trial, console)
    _tell_opponent(env, console)
    return 0


def _tell_opponent(env: Env, console: Console) -> None:
    """Who it was, which nothing before has told."""
    if env.task.opponent:
        line = f"The opponent was {who_it_was(env, env.task.opponent)}."
        console.print(visible(line), style="bold", markup=False, highlight=False)


def _play_in_browser(
    env: Env, player: Policy | None, settings: TrialSettings, options: argparse.Namespace, console: Console
) -> int:
    from mulligan.app.web.server import Table, serving
    from mulligan.app.web.visitor import Visitor
    from mulligan.envs import registry
    from mulligan.trial.runner import run_trial_sync

    table = Table()
    visitor = Visitor(table, registry.spec(options.env), settings, player)
    trial: Trial | None = None
    try:
        with serving(table, options.port) as address:
            console.print(f"Play at {address}   (Ctrl-C ends it)", markup=False, highlight=False)
            if not options.no_browser:
                _open_browser(address)
            trial = run_trial_sync(env, visitor, settings=settings)
            visitor.finish(trial)
            _print_verdict(trial, console)
            _tell_opponent(env, console)
            console.print("The page stays until you finish there, or press Ctrl-C here.", highlight=False)
            table.left.wait()
    except KeyboardInterrupt:
        if trial is None:
            console.print("Good bye.")
            return 130
    return 0


def _open_browser(address: str) -> None:
    """Open the address if there is a screen; a browser in the terminal would cover what is printed here."""
    import webbrowser

    if not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def _print_verdict(trial: Trial, console: Console) -> None:
    """How the trial ended, an episode a line."""
    console.print()
    for episode in trial.episodes:
        line = (
            f"Episode {episode.index + 1}: {episode.stop.value.replace('_', ' ')} after {len(episode.turns)} turns, "
            f"reward {episode.reward:g}" + (f" ({episode.error})" if episode.error else "")
        )
        console.print(visible(line), style="green" if episode.won else "", markup=False, highlight=False)


class Watched:
    """A policy whose every turn is shown."""

    def __init__(self, policy: Policy, console: Console, glyphs: Mapping[str, str]) -> None:
        self.policy, self.console, self.glyphs, self.name = policy, console, glyphs, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _WatchedConversation(self.policy.start(task, seed), self)


class _WatchedConversation:
    def __init__(self, conversation: Conversation, watched: Watched) -> None:
        self.conversation, self.console, self.glyphs = conversation, watched.console, watched.glyphs
        self.spectator = conversation if isinstance(conversation, Spectator) else None
        self.world: World | None = None
        for name in ("count_tokens", "context", "offer"):
            if hasattr(conversation, name):
                setattr(self, name, getattr(conversation, name))

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self._show(messages[-1]["content"])
        completion = await self.conversation.reply(messages, sampling)
        for part in beside_text(completion):
            self.console.print(visible(part), style="dim", markup=False, highlight=False)
        self.console.print(f"> {visible(completion.text)}\n", style="bold", markup=False, highlight=False)
        return completion

    def close(self) -> None:
        self.conversation.close()

    def watch(self, world: World) -> None:
        self.world = world
        if self.spectator is not None:
            self.spectator.watch(world)

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        if self.spectator is not None:
            self.spectator.see(step, timeout_reward)
        if step.done or timeout_reward is not None:  # no later message shows this observation
            self._show(step.observation)

    def ended(self, episode: Episode) -> None:
        if self.spectator is not None:
            self.spectator.ended(episode)

    def _show(self, text: str) -> None:
        from mulligan.policy.human import painted, picture_of

        self.console.print(painted(picture_of(self.world) + text, self.glyphs), end="", highlight=False)
