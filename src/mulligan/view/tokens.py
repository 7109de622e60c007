"""The tokens of a trial: how likely each was when it was drawn; of an update's trials with the advantage they got."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mulligan.errors import RunFolderError, UsageError
from mulligan.report.run import RunFolder, trial_from_dict
from mulligan.types import Completion, Group, Task, Trial
from mulligan.view.folder import json_of
from mulligan.view.index import TrialIndex
from mulligan.view.models import Models, Player
from mulligan.view.query import MOST, Wanted, page

if TYPE_CHECKING:
    from mulligan.models.renderer import Renderer

_LONGEST = 4_000
"""Tokens of a reply that are shown one by one."""
_MOST_TRIALS = 4_000
"""Of an update, whose advantages are computed again."""
_TORN = "\ufffd"
Advantages = Mapping[tuple[int, bool, int], float]
"""(episode, whether it is the reflection, turn) -> advantage, of one trial."""


def tokens(models: Models, index: TrialIndex, name: str, arm: str, place: int) -> dict[str, Any]:
    """Every reply of a trial as tokens with their probabilities; of an update's trials with their advantages."""
    trial = trial_from_dict(index.read(arm, place))
    if not has_tokens(trial):
        raise UsageError("no tokens are kept of this trial; those of updates and of a local model's evaluations are")
    player = models.player(name, arm)
    with models.busy:
        renderer = models.load(player).renderer
    advantages, why_none = _advantages(index, player, arm, place)
    episodes = [
        {
            "turns": [
                _shaded(renderer, turn.reply, advantages.get((number, False, t)))
                for t, turn in enumerate(episode.turns)
            ],
            "note": None
            if episode.reflection is None or episode.reflection.completion is None
            else _shaded(renderer, episode.reflection.completion, advantages.get((number, True, 0))),
        }
        for number, episode in enumerate(trial.episodes)
    ]
    return {"place": place, "arm": arm, "whyNoAdvantage": why_none, "episodes": episodes}


def _shaded(renderer: Renderer, reply: Completion, advantage: float | None) -> dict[str, Any] | None:
    """None of a reply without tokens: a stand-in's, which is shown as plain text."""
    if not (reply.ids and reply.logprobs):
        return None
    return {"tokens": pieces(renderer, reply), "advantage": advantage}


def has_tokens(trial: Trial) -> bool:
    return any(turn.reply.ids and turn.reply.logprobs for episode in trial.episodes for turn in episode.turns)


def pieces(renderer: Renderer, reply: Completion) -> list[tuple[str, float]]:
    """The text of each token and its probability; tokens that are one character together stand together.

    The token that ends a reply has no text.
    """
    ids, logprobs = (reply.ids or ())[:_LONGEST], (reply.logprobs or ())[:_LONGEST]
    tokens: list[tuple[str, float]] = []
    shown, held = "", 0.0
    for number, logprob in enumerate(logprobs, 1):
        text = renderer.decode_reply(ids[:number])
        held += logprob
        if text.endswith(_TORN) and number < len(ids):
            continue
        tokens.append((text[len(shown) :], math.exp(held)))
        shown, held = text, 0.0
    return tokens


def _advantages(index: TrialIndex, player: Player, arm: str, place: int) -> tuple[Advantages, str]:
    """The advantages of a trial's steps, computed again from all trials of its update; or none, and why."""
    if not arm.startswith("update-"):
        return {}, "Only what training learned from has advantages: the trials of its updates."
    from mulligan.algo.advantage import ESTIMATORS, Options
    from mulligan.algo.batch import REFLECT
    from mulligan.algo.normalise import History
    from mulligan.training.loop import batch_of
    from mulligan.training.resolve import from_run

    config = from_run(RunFolder.open(player.run))
    if config.algo.estimator == "ppo":
        return {}, "PPO's advantages need its critic's values of then, which are not kept."
    if config.algo.scale == "population":
        return {}, "These advantages compare with all agents of a population, whose returns stand in other folders."
    history, earlier = History(), _history(player.run, int(arm.rpartition("-")[2]) - 1)
    if earlier is not None:
        history.load_state_dict(earlier)
    elif "agent" in (config.algo.baseline, config.algo.scale):
        return {}, "These advantages compare with earlier updates, and the checkpoint before this one is not kept."
    groups = _groups(index, arm)
    batch = batch_of(config, groups)
    if config.run.player:
        batch = batch.of_phase(REFLECT)
    values = ESTIMATORS[config.algo.estimator](batch, Options(config.algo.baseline, config.algo.scale), history).values
    number = next((n for n, (g, i) in enumerate(batch.source) if groups[g].trials[i].index == place), None)
    steps = zip(batch.trial, batch.episode, batch.phase, batch.turn, values, strict=True)
    ours = {
        (int(n), bool(phase == REFLECT), int(t)): float(value) for each, n, phase, t, value in steps if each == number
    }
    return ours, "" if ours else "This trial failed outside the agent, and was not learned from."


def _history(run: Path, update: int) -> Any:
    """What advantages took from the updates before; None where that checkpoint is not kept."""
    try:
        state = json_of(run / "checkpoints" / f"update-{update:05d}" / "state.json")
    except RunFolderError:
        return None
    return state.get("history") if isinstance(state, dict) else None


def _groups(index: TrialIndex, arm: str) -> list[Group]:
    """The trials of an update by their tasks; each has its place in the file as its index."""
    places: list[int] = []
    while rows := page(index, Wanted(arm, offset=len(places), limit=MOST))["rows"]:
        places += [row["place"] for row in rows]
        if len(places) > _MOST_TRIALS:
            raise UsageError(f"an update of more than {_MOST_TRIALS:,} trials is not computed again")
    groups: dict[Task, list[Trial]] = {}
    for place in places:
        trial = trial_from_dict({**index.read(arm, place), "index": place})
        groups.setdefault(trial.task, []).append(trial)
    return [Group(task, tuple(trials)) for task, trials in groups.items()]
