"""The context of a run: the longest sequence that it plays and trains, fixed once as a number.

`engine.context = 0` stands for what the longest sequence of a trial needs (`mulligan.rollout.lengths`). It follows from
the settings and the model's tokenizer alone, so that it is the same on every machine. Memory decides how many such
sequences are sampled at a time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from mulligan.errors import UsageError
from mulligan.models.load import Loaded
from mulligan.models.renderer import Renderer
from mulligan.report.run import RunFolder, to_toml
from mulligan.rollout.groups import Mixture
from mulligan.rollout.lengths import Need, needed, sampled_lengths
from mulligan.training.config import Config, shown_memories
from mulligan.training.pack import layer_numbers
from mulligan.training.resolve import from_run, to_tree
from mulligan.trial.settings import TrialSettings, evaluated_episodes

SHORTEST = 1024
"""A context shorter than this is not chosen without being asked for: it would save little memory."""
STEP = 256
"""A context that is chosen is a multiple of this."""
MOMENTS, GRADIENT = 8, 4
"""Bytes of each trained weight that AdamW's moments and the gradient take, in float32."""


def fixed_context(config: Config, loaded: Loaded) -> tuple[Config, str | None]:
    """`config` with its context as a number; and a warning where the model's limit is shorter than a trial may need.

    Replies that no context of this model can hold are refused with the arithmetic. Memory that finds no room beside the
    replies is shortened by the runner, with a warning. A context that was set by hand is not questioned: the arithmetic
    is that of the longest replies, and where real ones are cut, metrics and evaluations say so.
    """
    limit = model_limit(loaded)
    env, need = longest_sequence(config, loaded.renderer)
    if not config.engine.context:
        if need.replies > limit:
            lower = "trial.max_tokens, trial.reflection_tokens" if need.reflection else "trial.max_tokens"
            raise UsageError(
                f"a trial of {env} does not fit the model {config.model.name}, whose limit is {limit:,} tokens: "
                f"{need}, {need.replies:,} of them without memory; lower {lower} or env.turns, set trial.window, or "
                f"accept replies that are cut with engine.context={limit}"
            )
        config = replace(config, engine=replace(config.engine, context=chosen_context(need, limit)))
    context = min(config.engine.context, limit)
    is_set_by_hand = context < limit and need.replies <= limit
    if context >= need.total or is_set_by_hand:
        return config, None
    effect = "memory is shortened" if need.replies <= context else "replies are cut and episodes end early"
    return config, (
        f"a trial of {env} could need more than the context of {context:,} tokens: {need}; "
        f"where replies are as long as their limits, {effect}"
    )


def keep_settings(config: Config, folder: RunFolder) -> None:
    """Write `config`, whose context is fixed now, into the run folder: what evaluates or resumes the run reads it."""
    before = folder.config()
    tree = {**before, **to_tree(config)}
    if tree != before:
        folder.write_text("config.toml", to_toml(tree))


def trained_context(folder: RunFolder, loaded: Loaded) -> int:
    return min(from_run(folder).engine.context, model_limit(loaded))


def chosen_context(need: Need, limit: int) -> int:
    """The context for sequences of up to `need`, with a model whose own limit is `limit`."""
    return min(limit, max(SHORTEST, math.ceil(need.total / STEP) * STEP))


def longest_sequence(config: Config, renderer: Renderer) -> tuple[str, Need]:
    """The environment whose trials need the longest sequence, and what they need.

    Trials of evaluations count too: RL plays one episode in training and three in evaluation, in one context. So does
    every memory that the warm start shows, since the agent may be evaluated with each.
    """
    settings = config.trial
    episodes = evaluated_episodes(settings.episodes)
    memories = dict.fromkeys((settings.memory_mode, *shown_memories(config)))
    mixture = Mixture.parse(config.task.env, config.task.params)
    played = [replace(settings, episodes=episodes, memory=memory) for memory in memories]
    needs = [
        (env, needed(each, lengths))
        for env, lengths in sampled_lengths(mixture, settings, renderer).items()
        for each in played
    ]
    return max(needs, key=lambda pair: pair[1].total)


def played_context(mixture: Mixture, settings: TrialSettings, loaded: Loaded) -> int:
    """The context of an untrained model in an evaluation: what its trials need, or the model's limit if that is less.
    The evaluation says how many replies were cut."""
    needs = [needed(settings, each) for each in sampled_lengths(mixture, settings, loaded.renderer).values()]
    limit = min(model_limit(loaded), loaded.tokenizer.model_max_length)  # an exported run keeps its context there
    return chosen_context(max(needs, key=lambda need: need.total), limit)


def model_limit(loaded: Loaded) -> int:
    return int(loaded.model.config.max_position_embeddings)


def bytes_to_come(model: Any, config: Config) -> int:
    """Memory that training will take beside the weights and their float32 copies: what is kept of each weight, and the
    activations of the longest row."""
    sizes, item = model.config, next(model.parameters()).dtype.itemsize
    layers, layer = sizes.num_hidden_layers, layer_numbers(sizes)
    # With checkpointing: what each layer was given, and all of the one layer that is computed again.
    kept = layers * sizes.hidden_size + layer if config.model.gradient_checkpointing else layers * layer
    activations = int(min(config.engine.context, sizes.max_position_embeddings) * kept * item)
    return bytes_of_trained(model, config) + activations


def bytes_of_trained(model: Any, config: Config) -> int:
    """Memory for the moments, gradients and the reference of a KL term of all weights that are trained."""
    references = 1 if config.algo.kl_weight else 0
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return sum(each.numel() * (MOMENTS + GRADIENT + references * each.dtype.itemsize) for each in trained)
