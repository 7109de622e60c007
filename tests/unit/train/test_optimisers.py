"""Optimisers: which weights each steps, how precisely, and that engines can see it."""

from __future__ import annotations

import functools

import pytest
import torch

from mulligan.models.load import load
from mulligan.training import optimisers
from mulligan.training.config import OptimConfig, WarmstartConfig
from mulligan.training.optimisers import Float32Muon
from mulligan.training.step import Learner, UpdateData
from small_updates import TINY, config, good_update, hand_made_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("fused", [False, True])
def test_engines_can_see_that_weights_were_written_to(lora, dtype, fused):
    """By the versions that torch counts: keys and values of earlier weights must not be used again."""
    loaded = load(TINY, lora=lora)
    rows, advantages = hand_made_rows()
    model = loaded.model.to(dtype)
    learner = Learner(model, config())
    learner.optimiser = optimisers.for_updates(learner.weights(), None, config(), fused=fused)
    before = sum(parameter._version for parameter in model.parameters())
    good_update(learner, UpdateData(rows, advantages), update=0)
    assert sum(parameter._version for parameter in model.parameters()) > before


def test_small_steps_are_not_lost_in_bfloat16():
    """The optimiser works on float32 copies: nearly every weight moves, however small the step."""
    loaded = load(TINY, dtype="bfloat16")
    rows, advantages = hand_made_rows()
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-6, warmup=1, epochs=1)))
    before = {name: weight.detach().clone() for name, weight in learner.weights().items()}
    learner.look_over(rows, len(advantages), 0)
    good_update(learner, UpdateData(rows, advantages), update=0)
    moved = sum(int((weight != before[name]).sum()) for name, weight in learner.weights().items())
    assert moved > 0.5 * sum(weight.numel() for weight in before.values())
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(parameter, learner.weights()[name].to(torch.bfloat16))


@pytest.mark.parametrize("adapter", [False, True])
def test_muon_steps_the_maps_inside_the_layers_and_adamw_all_else(adapter):
    loaded = load(TINY, lora=2 if adapter else 0)
    learner = Learner(loaded.model, config(warmstart=WarmstartConfig(optimiser="muon")))
    found = learner.warm_optimisers()
    stepped = [id(p) for optimiser in found for group in optimiser.param_groups for p in group["params"]]
    assert sorted(stepped) == sorted(map(id, learner.weights().values()))  # each once
    maps = {
        id(p)
        for each in found
        if not isinstance(each, torch.optim.AdamW)
        for g in each.param_groups
        for p in g["params"]
    }
    names = {name for name, p in loaded.model.named_parameters() if id(p) in maps}
    assert len(names) == (0 if adapter else 2 * 7)  # q, k, v, o, gate, up, down of two layers
    assert not any("embed" in name for name in names)


@pytest.mark.parametrize("shape", [(6, 6), (4, 10), (10, 4)], ids=str)
def test_muon_in_float32_steps_as_torchs_does(shape):
    """Where a processor emulates bfloat16, torch's takes seconds for a step."""
    draw = torch.Generator().manual_seed(1)
    begin = torch.randn(shape, generator=draw)
    gradients = [torch.randn(shape, generator=draw) for _ in range(3)]
    found = []
    for kind in (Float32Muon, functools.partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw")):
        parameter = torch.nn.Parameter(begin.clone())
        optimiser = kind([parameter], lr=0.05, weight_decay=0.1)
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimiser.step()
        found.append(parameter.detach() - begin)
    assert found[0].norm() > 0.1
    assert (found[0] - found[1]).norm() < 0.03 * found[0].norm()  # bfloat16 has three digits


@pytest.mark.parametrize(("native", "expected"), [(True, torch.optim.Muon), (False, Float32Muon)])
def test_muon_is_torchs_own_where_the_processor_multiplies_bfloat16(native, expected, monkeypatch):
    monkeypatch.setattr(optimisers, "multiplies_bfloat16", lambda device: native)
    assert type(optimisers.muon([torch.nn.Parameter(torch.eye(3))], lr=0.1, weight_decay=0.0)) is expected
