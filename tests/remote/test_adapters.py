"""Several runs on one server: each has an adapter of its own."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from e2e.command import call
from mulligan.errors import ParameterError, UsageError
from mulligan.population.loop import train as train_population
from mulligan.training.config import PopulationConfig
from mulligan.training.remote import RemoteLearner
from mulligan.training.resolve import checked
from mulligan.training.rows import Row, Span
from mulligan.training.step import UpdateData
from mulligan.types import Sampling
from remote.test_faults import config as faults_config
from remote.test_training import remote_config
from small_runs import metrics

pytestmark = pytest.mark.tinker
PROMPT = [5, 6, 7, 8]
TOKENS = (20, 30, 40)


def wishing(learner: RemoteLearner, token: int) -> float:
    """An update towards one reply, as if it had been drawn; its log-probability before."""
    row = Row([*PROMPT, token], [Span(len(PROMPT), (token,), None, 0, 0, reflects=False)])
    learner.look_over([row], 1, 0)
    assert row.spans[0].old is not None
    before = row.spans[0].old[0]
    learner.update(UpdateData([row], torch.ones(1)), update=0)
    return before


def likeliest(learners: list[RemoteLearner]) -> list[int]:
    """The reply of each, asked for at the same time."""

    async def reply_of(learner):
        stream = await learner.engine.open()
        try:
            return (await stream.extend(PROMPT, Sampling(0.0, 1.0, 1), (), random.Random(0))).ids[0]
        finally:
            stream.close()

    async def all_of_them():
        return await asyncio.gather(*map(reply_of, learners))

    return asyncio.run(all_of_them())


def test_three_adapters_do_not_mix_and_a_fourth_is_refused(beginner, bandit_server):
    config = remote_config(beginner, bandit_server)
    config = replace(config, optim=replace(config.optim, lr=3e-2, epochs=1))
    learners = [RemoteLearner(config, context=64, slots=4) for _ in TOKENS]
    try:
        first = [wishing(learner, token) for learner, token in zip(learners, TOKENS, strict=True)]
        for _ in range(5):  # in turn, each towards its own
            for learner, token in zip(learners, TOKENS, strict=True):
                wishing(learner, token)
        assert likeliest(learners) == list(TOKENS)
        for learner, token, before in zip(learners, TOKENS, first, strict=True):
            assert wishing(learner, token) > before + 1.0
        with pytest.raises(UsageError, match=r"does not train an adapter of rank 8 .*Maximum number of LoRA adapters"):
            RemoteLearner(config, context=64)
    finally:
        for learner in learners:
            learner.close()
    after = RemoteLearner(config, context=64)  # what is closed makes room
    assert wishing(after, TOKENS[0]) == pytest.approx(first[0], abs=1e-4), "an adapter begins where the base model is"
    after.close()


def test_a_population_on_one_server_is_selected_and_goes_on(beginner, bandit_server, tmp_path, monkeypatch):
    """Three agents play, two of them each other's copies after the last update; then the run is trained on."""
    monkeypatch.setattr("mulligan.population.selection._is_better", lambda one, other: True)
    base = faults_config(beginner, bandit_server.url)
    config = replace(
        base,
        run=replace(base.run, updates=2, keep=2),
        population=PopulationConfig(agents=3, select_every=2, held_out_tasks=8, vary="optim.lr", spread=2.0),
    )
    run = train_population(config, tmp_path / "run")
    (copied,) = [
        line for line in map(json.loads, (run / "lineage.jsonl").read_text().splitlines()) if line["event"] == "copied"
    ]
    weights = [adapter_of(run / f"agent-{number}", tmp_path) for number in range(3)]
    source, target = weights[copied["from"]], weights[copied["agent"]]
    (other,) = [each for number, each in enumerate(weights) if number not in (copied["from"], copied["agent"])]
    assert all(torch.equal(source[name], target[name]) for name in source)
    assert any(not torch.equal(source[name], other[name]) for name in source)
    assert call("train", "--resume", str(run), "--run.updates", "3", "--backend.url", bandit_server.url) == 0
    for number in range(3):
        lines = metrics(run / f"agent-{number}")
        assert [line["update"] for line in lines] == [1, 2, 3]
        assert all(line["replies"] == 2 * 4 * 3 for line in lines)
    with pytest.raises(ParameterError, match=r"population\.past must be 0 where backend\.kind = tinker"):
        checked(replace(config, population=replace(config.population, past=0.2)))


def adapter_of(agent: Path, folder: Path) -> dict[str, torch.Tensor]:
    """The weights of an agent's newest checkpoint, as the server gives them away."""
    assert call("export", str(agent), str(folder / agent.name)) == 0
    return load_file(folder / agent.name / "adapter_model.safetensors")


def test_a_server_that_trains_adapters_alone_refuses_all_weights_in_one_line(beginner, bandit_server):
    config = remote_config(beginner, bandit_server)
    with pytest.raises(UsageError, match=r"does not train all weights of .*rank 0 must be between 1 and") as refused:
        RemoteLearner(replace(config, backend=replace(config.backend, rank=0)), context=64)
    assert "\n" not in str(refused.value)
