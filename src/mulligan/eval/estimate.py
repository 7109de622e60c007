"""What an evaluation will take, before it is begun: requests, tokens and cost.

At most: every episode is played, takes all of its turns, and every reply uses up its limit. Likely: the episodes and
turns of two programs on the first tasks, the expert and random moves, in replies of `REPLY` tokens. A request holds all
earlier turns of its episode::

    prompt of turn t = opening + memory + t x (observation + reply)

so that an episode of T turns reads T x (opening + memory) + T(T-1)/2 x (observation + reply) tokens. Tokens are
estimated from characters; requests that fail and are sent again are not counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from mulligan.envs import registry
from mulligan.eval.plan import EvalPlan, Prices
from mulligan.policy.base import Policy, estimate_tokens
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.rollout.tasksets import tasks_of
from mulligan.trial import prompts
from mulligan.trial.memory import shows_history, shows_reflection
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import Memory, Trial

TASKS = 8
"""Tasks that programs play to see how long texts and games are."""
REPLY = 150
"""Tokens of a likely reply: a short thought and an action. Models that reason write many more."""
MARGIN, WORDS = 1.25, 32
"""Other tasks may have longer texts than the sample; and tokens of the words around what is remembered."""
ASK_ABOVE_COST, ASK_ABOVE_TOKENS = 1.0, 1_000_000
"""A likely cost, and without prices likely tokens, above which a person is asked."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Requests, and the tokens of their prompts and replies."""

    requests: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.requests + other.requests, self.prompt + other.prompt, self.completion + other.completion)

    def times(self, factor: float) -> Amount:
        return Amount(factor * self.requests, factor * self.prompt, factor * self.completion)

    def in_words(self, prices: Prices) -> str:
        tokens = f"{_rounded(self.prompt)} + {_rounded(self.completion)} tokens"
        cost = f", cost {self.cost(prices):.2f}" if prices != Prices() else ""
        return f"{round(self.requests):,} requests with {tokens}{cost}"

    def cost(self, prices: Prices) -> float:
        return prices.of(round(self.prompt), round(self.completion))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is still to be played."""

    most: Amount
    likely: Amount
    players: str
    """Whose episodes and turns the likely amount takes."""

    def in_words(self, prices: Prices) -> str:
        assumed = f"as many turns as {self.players} players, replies of {REPLY} tokens"
        return f"about {self.likely.in_words(prices)} ({assumed}); at most {self.most.in_words(prices)}"

    def is_much(self, prices: Prices) -> bool:
        if prices != Prices():
            return self.likely.cost(prices) > ASK_ABOVE_COST
        return self.likely.prompt + self.likely.completion > ASK_ABOVE_TOKENS


@dataclass(frozen=True, slots=True)
class _Lengths:
    """How long an episode is."""

    episodes: float
    turns: float
    opening: float
    """Tokens of the rules and the first observation."""
    observation: float
    """Tokens of what is said between two replies."""
    reply: float
    reflection: float


def estimate(plan: EvalPlan, trials_left: Mapping[str, int]) -> Estimate:
    """What the arms of a plan will take that have so many trials left."""
    players = _players(plan.env)
    settings = replace(plan.settings, memory="none", window=None)
    with warnings.catch_warnings():  # the evaluation itself will tell of them
        warnings.simplefilter("ignore")
        tasks = tasks_of(
            plan.env,
            min(TASKS, plan.tasks),
            plan.seed_set,
            plan.params,
            or_fewer=True,
            env_timeout=settings.env_timeout,
        )
        trials = [run_trial_sync(task, player, settings=settings) for player in players for task in tasks]
    limits = plan.settings.sampling.max_tokens, plan.settings.reflection_tokens
    likely = _lengths(trials, min(REPLY, limits[0]), min(REPLY, limits[1]))
    most = replace(
        likely,
        episodes=plan.settings.episodes,
        turns=max(task.turns for task in tasks),
        opening=MARGIN * max(map(_opening, trials)),
        observation=MARGIN * max(map(_observation, trials)),
        reply=limits[0],
        reflection=limits[1],
    )
    return Estimate(
        _total(plan, trials_left, most),
        _total(plan, trials_left, likely),
        " and ".join(player.name for player in players),
    )


def _total(plan: EvalPlan, trials_left: Mapping[str, int], lengths: _Lengths) -> Amount:
    return sum((_arm(plan.settings, arm, lengths).times(count) for arm, count in trials_left.items()), Amount())


def _players(env: str) -> list[Policy]:
    """The environment's expert, if it has one, and random moves, if it lists some; a model is probably between them."""
    spec = registry.spec(env)
    has_expert = callable(getattr(spec.build, "player", None)) and "expert" in spec.players
    players: list[Policy] = [ExpertPolicy()] if has_expert else []
    if hasattr(spec.build, "legal") or not has_expert:
        players.append(RandomPolicy("estimate", otherwise="?"))
    return players


def _lengths(trials: Sequence[Trial], reply: float, reflection: float) -> _Lengths:
    episodes = [episode for trial in trials for episode in trial.episodes]
    return _Lengths(
        episodes=len(episodes) / len(trials),
        turns=mean(len(episode.turns) for episode in episodes),
        opening=mean(map(_opening, trials)),
        observation=mean(map(_observation, trials)),
        reply=reply,
        reflection=reflection,
    )


def _opening(trial: Trial) -> int:
    return estimate_tokens(*(message["content"] for message in trial.episodes[0].opening))


def _observation(trial: Trial) -> float:
    """Mean tokens of what is said after a reply, the words of the runner included."""
    style = prompts.style("plain")
    texts = [
        prompts.turn(turn.observation, turn.feedback, 10, style)
        for episode in trial.episodes
        for turn in episode.turns[1:]
    ]
    return mean(map(estimate_tokens, texts)) if texts else 0.0


def _arm(settings: TrialSettings, arm: str, lengths: _Lengths) -> Amount:
    """A trial of an arm; only main and those it takes reflections from write reflections."""
    memory: Memory = "none" if arm == "independent" else settings.memory_mode
    reflects = arm in ("main", "donors") and shows_reflection(memory)
    total, memory_before = Amount(), 0.0
    for index in range(settings.episodes):
        share = min(1.0, max(0.0, lengths.episodes - index))
        if reflects and index:  # written after every episode but the last
            prompt = lengths.opening + memory_before + _transcript(lengths) + _request(settings)
            total += Amount(1, prompt, lengths.reflection).times(share)
        memory_before = _memory(settings, memory, lengths, index)
        total += _episode(settings, lengths, memory_before).times(share)
    return total


def _episode(settings: TrialSettings, lengths: _Lengths, memory: float) -> Amount:
    turns, shown = lengths.turns, min(lengths.turns, settings.window or lengths.turns)
    earlier = shown * (shown - 1) / 2 + (turns - shown) * (shown - 1)
    prompt = turns * (lengths.opening + memory) + max(0.0, earlier) * (lengths.observation + lengths.reply)
    return Amount(turns, prompt, turns * lengths.reply)


def _memory(settings: TrialSettings, memory: Memory, lengths: _Lengths, index: int) -> float:
    """Tokens of what is shown of `index` earlier episodes, and of the words around it."""
    if memory == "none" or not index:
        return 0.0
    each = float(WORDS)
    each += lengths.reflection + _request(settings) if shows_reflection(memory) else 0.0
    each += lengths.opening + _transcript(lengths) if shows_history(memory) else 0.0
    return min(float(settings.memory_tokens), index * each) + WORDS


def _transcript(lengths: _Lengths) -> float:
    return lengths.turns * (lengths.observation + lengths.reply)


def _request(settings: TrialSettings) -> int:
    """Tokens of the request for a reflection."""
    return estimate_tokens(prompts.reflection_request("", "fresh", prompts.style(settings.style)))


def _rounded(tokens: float) -> str:
    return f"{tokens / 1e6:.1f} M" if tokens >= 1e6 else f"{round(tokens):,}"
