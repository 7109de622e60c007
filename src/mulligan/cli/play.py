"""Play a game yourself, or watch a policy play it: up to N episodes of one task, with memory between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mulligan.cli.options import (
    Parser,
    add_policy_options,
    add_trial_options,
    check_endpoint,
    endpoint_options,
    take_defaults_of_run,
    trial_settings,
)
from mulligan.errors import MulliganError, UsageError
from mulligan.policy.base import Conversation, Policy, Spectator, World
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from mulligan.envs.base import Env
    from mulligan.trial.settings import TrialSettings


def add_options(parser: Parser) -> None:
    parser.add_argument("env", help="a name from 'mulligan envs', or path/to/file.py:ClassName")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which task (0)")
    parser.add_argument("--web", action="store_true", help="play in the browser, beside what an agent sees")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="with --web: the port (any that is free)")
    parser.add_argument("--no-browser", action="store_true", help="with --web: only print the address")
    add_policy_options(parser, default="human")
    add_trial_options(parser)
    parser.epilog = "Parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5"


def run(parser: Parser, words: list[str]) -> int:
    from rich.console import Console

    from mulligan.envs import registry
    from mulligan.players import Plays, player_from
    from mulligan.policy.human import HumanPolicy
    from mulligan.trial.runner import run_trial_sync

    trained_on = take_defaults_of_run(parser, words)
    options, given = parser.read(words)
    check_endpoint(options)
    _check_web(options)
    params = {**trained_on, **given}
    task = registry.task_of(options.env, options.seed, params)
    settings = trial_settings(options)
    env = _built(task)
    console = Console()
    if options.web:
        return _play_in_browser(env, settings, options, console)
    about = registry.spec(options.env)
    if options.policy == "human":
        if not sys.stdin.isatty():
            console = Console(force_terminal=False)
        policy: Policy = HumanPolicy(console, glyphs=about.glyphs)
    else:
        plays = Plays(options.env, params, settings)
        policy = Watched(player_from(options.policy, plays=plays, **endpoint_options(options)), console)
    console.print(f"[bold]{about.name}[/]  {task.task_class}, seed {task.seed}", highlight=False)
    console.print(env.rules(), markup=False, highlight=False)
    console.print(f"Up to {settings.episodes} episodes of {task.turns} turns.\n", highlight=False)
    try:
        trial = run_trial_sync(env, policy, settings=settings)
    except KeyboardInterrupt:
        console.print("Good bye.")
        return 130
    console.print(verdict(trial), markup=False, highlight=False)
    if options.policy == "human" and about.kind == "solve" and trial.episodes[-1].won:
        console.print("You won.")
    return 0


def _built(task: Task) -> Env:
    """The world to play in; one that cannot be built is somebody's own."""
    from mulligan.envs import registry

    try:
        return registry.build(task)
    except MulliganError:
        raise
    except Exception as error:
        raise UsageError(f"{task.env} cannot be built: {type(error).__name__}: {error}") from error


def _check_web(options: argparse.Namespace) -> None:
    if options.web and options.policy != "human":
        raise UsageError(f"play: --web is for a person, and --policy {options.policy} is none; leave one of them out")
    if not options.web and (options.port or options.no_browser):
        raise UsageError("play: --port and --no-browser say how to play with --web; give it too")


def _play_in_browser(env: Env, settings: TrialSettings, options: argparse.Namespace, console: Console) -> int:
    from mulligan.envs import registry
    from mulligan.trial.runner import run_trial_sync
    from mulligan.web.server import serving
    from mulligan.web.table import Table
    from mulligan.web.visitor import Visitor, last_scene

    table = Table()
    visitor = Visitor(table, registry.spec(options.env), settings)
    trial: Trial | None = None
    try:
        with serving(table, options.port) as address:
            console.print(f"Play at {address}   (Ctrl-C ends it)", markup=False, highlight=False)
            if not options.no_browser:
                _open_browser(address)
            trial = run_trial_sync(env, visitor, settings=settings)
            table.finish(last_scene(trial, visitor.title, settings.episodes))
            console.print(verdict(trial), markup=False, highlight=False)
            console.print("The page stays until you finish there, or press Ctrl-C here.", highlight=False)
            table.left.wait()
    except KeyboardInterrupt:
        if trial is None:
            console.print("Good bye.")
            return 130
    return 0


def _open_browser(address: str) -> None:
    """Open the address where there is a screen; a browser in the terminal would cover what is said here."""
    import webbrowser

    if not sys.platform.startswith("linux") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(address)


def verdict(trial: Trial) -> str:
    """How the trial ended, an episode a line."""
    lines = [
        f"Episode {episode.index + 1}: {episode.stop.value.replace('_', ' ')} after {len(episode.turns)} turns, "
        f"reward {episode.reward:g}" + (f" ({episode.error})" if episode.error else "")
        for episode in trial.episodes
    ]
    return "\n".join(["", *lines])


class Watched:
    """A policy whose every turn is shown."""

    def __init__(self, policy: Policy, console: Console) -> None:
        self.policy, self.console, self.name = policy, console, policy.name

    def start(self, task: Task, seed: int) -> Conversation:
        return _WatchedConversation(self.policy.start(task, seed), self.console, task.turns)


class _WatchedConversation:
    def __init__(self, conversation: Conversation, console: Console, turns: int) -> None:
        self.conversation, self.console, self.turns = conversation, console, turns
        self.beside = conversation if isinstance(conversation, Spectator) else None
        self.taken = 0
        for name in ("count_tokens", "context"):
            if hasattr(conversation, name):
                setattr(self, name, getattr(conversation, name))

    async def reply(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        self.console.print(messages[-1]["content"], markup=False, highlight=False)
        completion = await self.conversation.reply(messages, sampling)
        self.console.print(f"> {completion.text}\n", style="bold", markup=False, highlight=False)
        return completion

    def close(self) -> None:
        self.conversation.close()

    def watch(self, world: World) -> None:
        if self.beside is not None:  # scripted players sit beside the world: pass on what they are told
            self.beside.watch(world)

    def see(self, step: Step, timeout_reward: float | None = None) -> None:
        if self.beside is not None:
            self.beside.see(step, timeout_reward)
        self.taken += 1
        if step.done or self.taken == self.turns:  # nobody will be asked again, so nobody else would show it
            self.console.print(step.observation, markup=False, highlight=False)
            self.taken = 0

    def ended(self, episode: Episode) -> None:
        if self.beside is not None:
            self.beside.ended(episode)
