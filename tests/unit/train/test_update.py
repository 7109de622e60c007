"""An update as a whole: how it is cut up, compiled and computed must not show in what it does."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend

from mulligan.algo import loss as loss_module
from mulligan.errors import DeviceLost
from mulligan.models.load import load
from mulligan.training import head as head_module
from mulligan.training import optimisers
from mulligan.training import step as step_module
from mulligan.training.config import AlgoConfig, Config, ModelConfig, OptimConfig, RunConfig, WarmstartConfig
from mulligan.training.rows import Row, Span
from mulligan.training.step import Learner, UpdateData
from small_updates import good_update

TINY = "nano:hidden=32,layers=2"


def some_rows(count: int = 12, seed: int = 0) -> tuple[list[Row], torch.Tensor]:
    """Rows of three turns each, random but for the seed, with an advantage for every turn."""
    rng = random.Random(seed)
    rows, step = [], 0
    for trial in range(count):
        row = Row()
        for _ in range(3):
            row.ids += [rng.randrange(1000) for _ in range(rng.randint(3, 12))]
            ids = tuple(rng.randrange(1000) for _ in range(rng.randint(1, 4)))
            logprobs = tuple(-7.0 - rng.random() for _ in ids)
            row.spans.append(Span(len(row.ids), ids, logprobs, step, trial, step % 3 == 2))
            row.ids += ids
            step += 1
        rows.append(row)
    return rows, torch.tensor([rng.uniform(-1, 1) for _ in range(step)])


def config(**sections) -> Config:
    base = Config(
        run=RunConfig(updates=4),
        model=ModelConfig(name=TINY),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, lr_end=1.0),
        algo=AlgoConfig(entropy_weight=0.01),
    )
    return replace(base, **sections)


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture
def unclipped(monkeypatch):
    """Gradients and ratios as they are."""
    monkeypatch.setattr(step_module, "GRAD_CLIP", 1e9)
    monkeypatch.setattr(loss_module, "CLIP_LOW", 1.0)
    monkeypatch.setattr(loss_module, "CLIP_HIGH", 1e6)


def gradient(learner: Learner, rows, advantages) -> torch.Tensor:
    learner.optimiser.step = lambda: None  # look at the gradient, keep the weights
    good_update(learner, UpdateData(rows, advantages), update=0)
    return torch.cat([p.grad.flatten() for p in learner.weights().values()])


# Precision ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unclipped")
def test_gradients_of_bfloat16_weights_add_up_in_float32():
    """However many micro-batches: as close to the gradient of float32 weights as in one."""
    rows, advantages = some_rows(24)
    optim = OptimConfig(warmup=1, epochs=1)
    settings = config(optim=optim)

    def found(dtype: str, tokens: int) -> torch.Tensor:
        model = load(TINY, dtype="bfloat16").model.to(getattr(torch, dtype))  # the same numbers, in either precision
        learner = Learner(model, replace(settings, optim=replace(optim, tokens=tokens)), uses_own_logp=False)
        return gradient(learner, rows, advantages)

    exact, one, many = found("float32", 10**6), found("bfloat16", 10**6), found("bfloat16", 30)
    assert one.dtype == many.dtype == torch.float32
    apart = [float((x - exact).norm() / exact.norm()) for x in (one, many)]
    assert apart[1] < 1.2 * apart[0] < 0.05


def test_small_parts_are_not_lost_in_a_large_sum():
    """In bfloat16, 1 + 0.001 is 1, however often it is added."""
    from mulligan.training import masters

    layer = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    copies = masters.copies(layer)
    with masters.taking_gradients(layer, copies):
        for value in [1.0, *[0.001] * 1000]:
            layer(torch.tensor([[value]], dtype=torch.bfloat16)).sum().backward()
            assert layer.weight.grad is None  # kept in one place only
    assert copies["weight"].grad.item() == pytest.approx(2.0, abs=0.01)
    layer(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
    assert layer.weight.grad.item() == 1.0  # afterwards gradients go where they always go


@pytest.mark.usefixtures("unclipped")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_head_in_slices_trains_alike(dtype):
    found = []
    for few in (10**9, 0):
        loaded = load(TINY, dtype=dtype)
        rows, advantages = some_rows()
        learner = Learner(loaded.model, config(optim=OptimConfig(warmup=1, epochs=1)))
        learner.head.few, learner.head.slice = few, 7 * 2000
        found.append(gradient(learner, rows, advantages))
    apart = float((found[1] - found[0]).norm() / found[0].norm())
    assert apart < (1e-5 if dtype == "float32" else 0.02)


# The trainer's own log-probabilities --------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch):
    """Ratios are clipped at 0.99 and 1.01."""
    monkeypatch.setattr(loss_module, "CLIP_LOW", 0.01)
    monkeypatch.setattr(loss_module, "CLIP_HIGH", 0.01)


def updated(rows, advantages, *, tokens: int = 0, look: bool, monkeypatch=None, **optim) -> tuple[torch.Tensor, dict]:
    loaded = load(TINY)
    settings = config(
        optim=OptimConfig(lr=3e-3, warmup=1, lr_end=1.0, tokens=tokens, **optim),
    )
    learner = Learner(loaded.model, settings, uses_own_logp=True)
    if look:  # as with several minibatches: an extra pass, noted on the spans
        learner._later_rows = lambda rows, update: list(rows)
    learner.look_over(rows, len(advantages), 0)
    assert (rows[0].spans[0].old is not None) == look
    if monkeypatch is not None:
        _run_out_of_memory_in_the_second_epoch(monkeypatch, learner)
    metrics = good_update(learner, UpdateData(rows, advantages), update=0)
    return weights(loaded.model), metrics


def _run_out_of_memory_in_the_second_epoch(monkeypatch, learner: Learner) -> None:
    real, calls = head_module.states, []

    def cramped(model, ids, *rest):
        calls.append(len(ids))
        if len(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, ids, *rest)

    monkeypatch.setattr(head_module, "states", cramped)


@pytest.mark.usefixtures("narrow")
def test_the_first_pass_over_all_rows_is_what_looking_over_would_find(monkeypatch):
    """Three epochs, so that ratios move off 1 and are clipped; and once more with memory that runs out on the way."""
    expected, said = updated(*some_rows(), look=True, epochs=3)
    assert said["clip"] > 0.1
    assert said["sampler/mismatch"] > 0.01
    for options in ({}, {"tokens": 200}, {"tokens": 200, "monkeypatch": monkeypatch}):
        found, metrics = updated(*some_rows(), look=False, epochs=3, **options)
        assert (found - expected).norm() < 1e-4 * expected.norm()
        assert metrics["clip"] == pytest.approx(said["clip"], abs=0.01)
        assert metrics["sampler/mismatch"] == pytest.approx(said["sampler/mismatch"], rel=1e-3)


@pytest.mark.usefixtures("narrow")
def test_minibatches_after_the_first_are_looked_over_before_it_is_stepped():
    """Two passes: the log-probabilities of before the update are those of all rows in both."""
    found = []
    for everything in (False, True):
        loaded = load(TINY)
        rows, advantages = some_rows()
        settings = config(optim=OptimConfig(lr=3e-3, minibatches=2, warmup=1, lr_end=1.0, epochs=2))
        learner = Learner(loaded.model, settings, uses_own_logp=True)
        if everything:
            learner._later_rows = lambda rows, update: list(rows)
        learner.look_over(rows, len(advantages), 5)
        first, second = learner._minibatches(rows, 5)
        assert all((span.old is not None) == everything for row in first for span in row.spans)
        noted = [tuple(span.old) for row in second for span in row.spans]
        metrics = good_update(learner, UpdateData(rows, advantages), update=5)
        assert [tuple(span.old) for row in second for span in row.spans] == noted
        assert metrics["clip"] > 0.1
        found.append(weights(loaded.model))
    assert (found[0] - found[1]).norm() < 1e-4 * found[1].norm()


# Out of memory --------------------------------------------------------------------------------------------------------


def no_room(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_step_is_taken_once_however_often_memory_runs_out(monkeypatch):
    """Before it the gradients are computed again; after it nothing is."""
    rows, advantages = some_rows(4)
    learner = Learner(load(TINY).model, config())
    monkeypatch.setattr(step_module, "summarise", no_room)
    with pytest.raises(torch.OutOfMemoryError):
        good_update(learner, UpdateData(rows, advantages), update=0)
    assert {int(state["step"]) for state in learner.optimiser.state.values()} == {1}


def test_memory_that_runs_out_while_the_optimiser_steps_ends_the_run(monkeypatch):
    """Some weights have moved by then: trying again would move them twice, or miss the averages of the others."""
    rows, advantages = some_rows(4)
    settings = config(warmstart=WarmstartConfig(optimiser="muon"))
    learner = Learner(load(TINY).model, settings)
    with monkeypatch.context() as cramped:
        cramped.setattr(torch, "zeros_like", no_room)
        with pytest.raises(DeviceLost, match=r"\(CUDA out of memory.*GiB\)"):
            good_update(learner, UpdateData(rows, advantages), update=0)
    with monkeypatch.context() as cramped:
        cramped.setattr(torch.nn.utils, "clip_grad_norm_", no_room)
        with pytest.raises(DeviceLost, match="--resume"):
            good_update(learner, UpdateData(rows, advantages), update=0)
    monkeypatch.setattr(optimisers, "multiplies_bfloat16", lambda device: False)
    monkeypatch.setattr(optimisers, "_orthogonal", no_room)
    adamw, _ = steppers = learner.warm_optimisers()
    with pytest.raises(DeviceLost, match="--resume"):
        learner.supervised(rows, 1e-3, steppers)
    assert {int(state["step"]) for state in adamw.state.values()} == {1}


# Reading back ---------------------------------------------------------------------------------------------------------


def test_a_step_reads_numbers_back_as_often_for_one_micro_batch_as_for_many(monkeypatch):
    """Each reading makes the host wait for a GPU."""
    names = ("item", "tolist", "__float__", "__bool__", "cpu", "numpy")
    count = 0
    for name in names:
        real = getattr(torch.Tensor, name)

        def counted(self, *args, real=real, **options):
            nonlocal count
            count += 1
            return real(self, *args, **options)

        monkeypatch.setattr(torch.Tensor, name, counted)
    seen = []
    for tokens in (10**6, 60):
        loaded = load(TINY)
        rows, advantages = some_rows()
        algo = AlgoConfig(estimator="ppo", entropy_weight=0.01)
        settings = config(algo=algo, optim=OptimConfig(epochs=1, warmup=1, tokens=tokens))
        learner = Learner(loaded.model, settings, heads=1, uses_own_logp=True)
        learner.look_over(rows, len(advantages), 0)
        targets = torch.zeros(len(advantages), 1)
        count = 0
        good_update(learner, UpdateData(rows, advantages, targets), update=0)
        seen.append(count)
    assert seen[0] == seen[1] > 0


# Compiled -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def compiler():
    torch._dynamo.reset()
    traced = logging.getLogger("torch.__trace")
    traced.disabled = True  # pytest would keep what it says of every line
    yield CompileCounterWithBackend("eager")
    traced.disabled = False
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of torch's own making, while it compiles
def test_a_compiled_learner_trains_alike_and_compiles_before_the_first_rows(compiler, monkeypatch):
    """So that a resumed run has the code of the run that was left alone, whichever rows it begins with."""
    monkeypatch.setattr(head_module, "FEW", 0)
    found, counts = [], []
    for compiles in (False, True):
        loaded = load("nano:hidden=32,layers=1")
        settings = config(
            model=ModelConfig(name=TINY),
            algo=AlgoConfig(estimator="ppo", entropy_weight=0.01),
            optim=OptimConfig(lr=1e-3, warmup=1, lr_end=1.0, epochs=2, tokens=150),
        )
        learner = Learner(loaded.model, settings, 1, compiles=compiles, backend=compiler, uses_own_logp=True)
        counts.append(compiler.frame_count)
        for update in range(2):
            rows, advantages = some_rows(6 + update, seed=update)  # other lengths each time
            learner.look_over(rows, len(advantages), 0)
            targets = advantages.unsqueeze(1)
            good_update(learner, UpdateData(rows, advantages, targets), update=update)
            learner.supervised(rows, 0.0, learner.warm_optimisers())
            counts.append(compiler.frame_count)
        found.append(weights(loaded.model))
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-3)
    assert counts[:3] == [0, 0, 0]
    assert 0 < counts[3] == counts[4] == counts[5]


def test_nothing_is_compiled_on_a_cpu_unless_asked_for(compiler):
    rows, advantages = some_rows(2)
    learner = Learner(load(TINY).model, config(), backend=compiler)
    good_update(learner, UpdateData(rows, advantages), update=0)
    assert compiler.frame_count == 0
