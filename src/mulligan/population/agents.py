"""The agents of a population: their settings, their models over one base, copies of each other, and snapshots."""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from mulligan.engine.choose import Kind, LocalEngine, make_engine
from mulligan.engine.graphs import GraphEngine
from mulligan.engine.slots import SlotEngine
from mulligan.errors import MulliganError, ParameterError, UnknownName
from mulligan.models.load import Loaded
from mulligan.policy.local import LocalPolicy
from mulligan.report.files import sync
from mulligan.seeding import generator
from mulligan.training import masters
from mulligan.training.config import Config, PopulationConfig, settings, value_at, with_changes
from mulligan.training.context import bytes_of_trained
from mulligan.training.loop import Trainer
from mulligan.training.remote import RemoteLearner
from mulligan.training.step import Learner

SEEDS = 1000
"""Agents of a run with seed 7 have the seeds 7000, 7001 and so on."""
PERTURB = 1.25
"""Factor by which a copied setting becomes larger or smaller, as in Jaderberg et al. (arXiv 1711.09846)."""
LOOPS = 3
"""Updates in a row in which not one episode came to its end, after which an agent counts as one that loops."""
_OF_UPDATES = ("algo.", "optim.", "trial.temperature")
_UNFINISHED = ("stop/turn_limit", "stop/context_full")


def varied(config: Config) -> list[str]:
    """The settings in which agents differ."""
    keys = [key.strip().replace("-", "_") for key in config.population.vary.split(",") if key.strip()]
    for key in keys:
        if key not in settings():
            raise UnknownName("setting in population.vary", key, settings())
        if settings()[key].kind is not float or value_at(config, key) is None:
            raise ParameterError(f"population.vary must name settings that are numbers with a fraction (got {key})")
        if not key.startswith(_OF_UPDATES):
            raise ParameterError(
                "population.vary must name settings of algo or optim, or trial.temperature: updates read them "
                f"(got {key})"
            )
    return keys


def agent_configs(config: Config) -> list[Config]:
    """The settings of each agent's own run, before the first update."""
    keys, population = varied(config), config.population
    characters = [each.strip() for each in population.characters.split(";") if each.strip()] or [""]
    name = config.model.name
    model = replace(config.model, name=f"../{name}" if name.startswith("../") else name)
    run = replace(config.run, keep=max(2, config.run.keep), evaluate="")
    configs = []
    factors = {key: _factors(population, generator(config.run.seed, "population", "settings", key)) for key in keys}
    for number in range(population.agents):
        changes = {key: scaled(config, key, factors[key][number]) for key in keys}
        each = replace(
            with_changes(config, changes),
            run=replace(run, seed=SEEDS * config.run.seed + number),
            trial=replace(config.trial, character=characters[number % len(characters)]),
            model=model,
            population=PopulationConfig(),
        )
        configs.append(with_changes(each, changes))
    return configs


def _factors(population: PopulationConfig, rng: random.Random) -> list[float]:
    """Of each agent a factor for one setting: one in each of as many equal parts of the range of its logarithm, so that
    few agents cover it too."""
    parts = list(range(population.agents))
    rng.shuffle(parts)
    return [population.spread ** (2.0 * (part + rng.random()) / len(parts) - 1.0) for part in parts]


def scaled(config: Config, key: str, factor: float) -> float:
    """A setting times a factor, within its range; as it was where that ends at a value that it may not have."""
    allowed, before = settings()[key].range, float(value_at(config, key))
    if allowed is None:
        return before * factor
    value = min(max(before * factor, allowed.low), allowed.high)
    return value if value in allowed else before


def perturbed(config: Config, keys: Sequence[str], rng: random.Random) -> Config:
    """The settings of a copy: each a little larger or smaller."""
    return with_changes(config, {key: scaled(config, key, rng.choice((PERTURB, 1.0 / PERTURB))) for key in keys})


def shown(config: Config, keys: Sequence[str]) -> dict[str, Any]:
    """What the lineage says of an agent's settings."""
    character = {"trial.character": config.trial.character} if config.trial.character else {}
    return {**{key: value_at(config, key) for key in keys}, **character}


def sharing_base(loaded: Loaded) -> Loaded:
    """Another model over the same base: what is not trained is the same memory, what is trained a copy."""
    same = {id(each): each for each in (*loaded.model.parameters(), *loaded.model.buffers())}
    kept = {number: each for number, each in same.items() if not each.requires_grad}
    return replace(loaded, model=copy.deepcopy(loaded.model, dict(kept)))


class Engines:
    """One engine for the adapters of all agents, whose replies are then drawn in one batch; or one for each agent.

    They share one where the engine for GPUs runs their model, and what is trained of it is an adapter.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.common: GraphEngine | None = None

    def __call__(self, model: Any, *, slots: int, context: int, kind: Kind, reserved: int = 0) -> LocalEngine:
        """As `make_engine`."""
        if self.common is not None:
            return self.common.join(model)
        if not hasattr(model, "peft_config"):
            return make_engine(model, slots=slots, context=context, kind=kind, reserved=reserved)
        population = self.config.population
        count = population.agents * (2 if population.past else 1)
        # Agents learn in turn: activations take memory once.
        reserved += (population.agents - 1) * bytes_of_trained(model, self.config)
        engine = make_engine(model, slots=slots * count, context=context, kind=kind, reserved=reserved, adapters=count)
        if not isinstance(engine, GraphEngine):
            return SlotEngine(model, slots=engine.slots // count, context=context)
        self.common = engine
        return engine.shares[0]


def copy_agent(source: Trainer, target: Trainer, config: Config) -> None:
    """Make `target` what `source` is: weights, critic, optimiser and statistics; with the settings `config`."""
    if isinstance(source.learner, RemoteLearner) and isinstance(target.learner, RemoteLearner):
        target.learner.copy_from(source.learner)
    else:
        _copy_weights(source.local_learner, target.local_learner)
    target.history.load_state_dict(source.history.state_dict())
    target.use(config)


@torch.no_grad()
def _copy_weights(source: Learner, target: Learner) -> None:
    from_weights = source.weights()
    for name, weight in target.weights().items():
        weight.copy_(from_weights[name])
    masters.follow(target.model, target.masters)
    if source.critic is not None and target.critic is not None:
        target.critic.load_state_dict(source.critic.state_dict())
    target.optimiser.load_state_dict(copy.deepcopy(source.optimiser.state_dict()))
    target.bad_in_a_row = 0


def why_unfit(trainer: Trainer, last: Mapping[str, Any]) -> str | None:
    """Why an agent cannot go on after an update with these metrics, if it cannot."""
    optim = trainer.config.optim
    weights = trainer.learner.weights().values() if isinstance(trainer.learner, Learner) else ()  # or on a server
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        return "its weights are not finite"
    if last.get("loss/skipped", 0.0) >= optim.epochs * optim.minibatches:
        return "the loss was not finite in any step"
    return None


def why_looping(recent: Sequence[Mapping[str, Any]]) -> str | None:
    """Why an agent counts as one that loops, if it does; `recent` are its metrics, the newest last. An update after
    which it was replaced has no metrics of episodes, and says nothing."""
    latest = recent[-LOOPS:]
    if len(latest) == LOOPS and all(_episodes(line) and not finishes(line) for line in latest):
        return f"no episode of {LOOPS} updates came to an end before its turns or its context ran out"
    return None


def finishes(line: Mapping[str, Any]) -> bool:
    """Whether any episode of an update came to its end."""
    return _episodes(line) > sum(int(line.get(name, 0)) for name in _UNFINISHED)


def _episodes(line: Mapping[str, Any]) -> int:
    return sum(int(count) for name, count in line.items() if name.startswith("stop/"))


class Snapshots:
    """Weights of earlier updates, and a player that has those of one of them."""

    def __init__(self, folder: Path, agent: int, trainer: Trainer, loaded: Loaded, engines: Engines) -> None:
        """`loaded`: a model for the player, beside the trainer's own."""
        self.folder, self.agent, self.trainer = folder, agent, trainer
        self.model, engine = loaded.model, trainer.config.engine
        made = engines(self.model, slots=engine.slots, context=engine.context, kind=engine.kind)
        self.seats = asyncio.Semaphore(max(1, made.slots // 2))
        self.policy = LocalPolicy(made, loaded.renderer, f"past/{agent}")

    def path(self, update: int) -> Path:
        return self.folder / f"agent-{self.agent}-{update:05d}.safetensors"

    def save(self, update: int) -> None:
        """Keep the agent's weights; all snapshots stay, as a resumed run may need any of the last ones again."""
        self.folder.mkdir(exist_ok=True)
        weights = {name: each.detach().contiguous() for name, each in self.trainer.local_learner.weights().items()}
        temporary = self.path(update).with_suffix(".tmp")
        save_file(weights, temporary)
        sync(temporary)
        os.replace(temporary, self.path(update))

    @torch.no_grad()
    def load(self, update: int) -> None:
        """Let the player have the weights of a snapshot."""
        parameters = dict(self.model.named_parameters())
        try:
            for name, weight in load_file(self.path(update)).items():
                parameters[name].copy_(weight)
        except (OSError, LookupError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise MulliganError(f"{self.path(update)} cannot be read: {reason}; begin another run") from error
