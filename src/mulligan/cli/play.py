"""Play a game yourself, or watch a policy play it: up to N episodes of one task, with memory between them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mulligan.cli.options import (
    Parser,
    add_policy_options,
    add_trial_options,
    endpoint_options,
    take_defaults_of_run,
    trial_settings,
)
from mulligan.policy.base import Conversation, Policy, Spectator, World
from mulligan.types import Completion, Episode, Message, Sampling, Step, Task, Trial

if TYPE_CHECKING:
    from rich.console import Console


def add_options(parser: Parser) -> None:
    parser.add_argument("env", help="a name from 'mulligan envs', or path/to/file.py:ClassName")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which task (0)")
    add_policy_options(parser, default="human")
    add_trial_options(parser)
    parser.epilog = "Parameters of the environment: --env.NAME VALUE, e.g. --env.mines 5"


def run(parser: Parser, words: list[str]) -> int:
    from rich.console import Console

    from mulligan.envs import registry
    from mulligan.players import player_from
    from mulligan.policy.human import HumanPolicy
    from mulligan.trial.runner import run_trial_sync

    trained_on = take_defaults_of_run(parser, words)
    options, given = parser.read(words)
    params = {**trained_on, **given}
    task = registry.make_task(options.env, options.seed, **params)
    settings = trial_settings(options)
    env = registry.build(task)
    console = Console()
    about = registry.spec(options.env)
    if options.policy == "human":
        if not sys.stdin.isatty():
            console = Console(force_terminal=False)
        policy: Policy = HumanPolicy(console, glyphs=about.glyphs)
    else:
        policy = Watched(player_from(options.policy, **endpoint_options(options)), console)
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
        if hasattr(conversation, "count_tokens"):
            self.count_tokens = conversation.count_tokens

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

    def see(self, step: Step) -> None:
        if self.beside is not None:
            self.beside.see(step)
        self.taken += 1
        if step.done or self.taken == self.turns:  # nobody will be asked again, so nobody else would show it
            self.console.print(step.observation, markup=False, highlight=False)
            self.taken = 0

    def ended(self, episode: Episode) -> None:
        if self.beside is not None:
            self.beside.ended(episode)
