"""From rows to the loss: the right numbers, the right direction."""

from __future__ import annotations

import json

import pytest
import torch

from mulligan.algo import loss as loss_module
from mulligan.errors import MulliganError
from mulligan.models.load import load, save
from mulligan.training import head as head_module
from mulligan.training import pack as pack_module
from mulligan.training import step as step_module
from mulligan.training.config import AlgoConfig, OptimConfig, RunConfig
from mulligan.training.pack import pack
from mulligan.training.rows import rows_of
from mulligan.training.step import Learner, UpdateData
from small_updates import TINY, config, good_update, hand_made_rows, play


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_dropout_of_an_adapter_is_left_out(tmp_path, checkpointing):
    """Adapters made elsewhere often have some. The trainer would learn from another policy than the one that played,
    and draw from torch's own generator, so that no resumed run were the same."""
    made = load(TINY, lora=4)
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(0))
    save(made, tmp_path)
    told = tmp_path / "adapter_config.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "lora_dropout": 0.2}))
    loaded = load(str(tmp_path), gradient_checkpointing=checkpointing)
    rows, advantages = hand_made_rows(loaded)
    learner = Learner(loaded.model, config())
    learned = good_update(learner, UpdateData(rows, advantages), update=0)
    assert learned["sampler/mismatch"] < 1e-4


def slow_loss(model, rows, advantages, config):
    """The loss as the formula says it, row by row and token by token, with nothing packed."""
    total, tokens = 0.0, sum(len(span.ids) for row in rows for span in row.spans)
    for row in rows:
        logp = (model(input_ids=torch.tensor([row.ids]), use_cache=False).logits[0] / 1.0).log_softmax(-1)
        for span in row.spans:
            for place, token in enumerate(span.ids):
                new = logp[span.start + place - 1, token]
                ratio = (new - span.logprobs[place]).exp()
                advantage = advantages[span.step]
                clipped = ratio.clamp(1 - loss_module.CLIP_LOW, 1 + loss_module.CLIP_HIGH)
                distribution = logp[span.start + place - 1]
                entropy = -(distribution.exp() * distribution).sum()
                total = total - torch.minimum(ratio * advantage, clipped * advantage) / tokens
                if config.algo.reflection_entropy or not span.reflects:
                    total = total - config.algo.entropy_weight * entropy / tokens
    return total


def move_alike(model, other, size):
    """Change the weights of both by the same noise."""
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for own, same in zip(model.parameters(), other.parameters(), strict=True):
            change = size * torch.randn(own.shape, generator=noise)
            own.add_(change)
            same.add_(change)


@pytest.mark.parametrize("everywhere", [False, True])
def test_the_gradient_is_that_of_the_formula(everywhere, monkeypatch):
    monkeypatch.setattr(step_module, "GRAD_CLIP", 1e9)
    settings = config(
        algo=AlgoConfig(entropy_weight=0.02, reflection_entropy=everywhere),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=1),
    )
    loaded, plain = load(TINY), load(TINY).model
    rows, advantages = hand_made_rows()
    assert {span.reflects for row in rows for span in row.spans} == {False, True}
    # Move both models off the sampling policy, so that ratios differ from 1 and some are clipped.
    move_alike(loaded.model, plain, 0.02)
    slow_loss(plain, rows, advantages, settings).backward()
    learner = Learner(loaded.model, settings)
    learner.optimiser.step = lambda: None  # look at the gradient, keep the weights
    found = good_update(learner, UpdateData(rows, advantages), update=0)
    for (name, own), other in zip(loaded.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=2e-5, rtol=2e-3, msg=name)
    assert found["clip"] > 0


def test_stale_samples_are_weighted_and_not_clipped_away(monkeypatch):
    """On CPU too: what older weights drew counts by min(exp(logp_old - logp_sampler), C), and the ratio begins at 1."""
    monkeypatch.setattr(step_module, "GRAD_CLIP", 1e9)
    optim = OptimConfig(lr=1e-3, warmup=1, epochs=1)
    loaded, plain = load(TINY), load(TINY).model
    rows, advantages = hand_made_rows()
    move_alike(loaded.model, plain, 0.05)
    tokens = sum(len(span.ids) for row in rows for span in row.spans)
    total, most = 0.0, 0.0
    for row in rows:
        logp = plain(input_ids=torch.tensor([row.ids]), use_cache=False).logits[0].log_softmax(-1)
        for span in row.spans:
            new = torch.stack([logp[span.start + place - 1, token] for place, token in enumerate(span.ids)])
            weight = (new.detach() - torch.tensor(span.logprobs)).exp()
            most = max(most, float(weight.max()))
            total = total - (weight.clamp(max=2.0) * advantages[span.step] * new).sum() / tokens
    total.backward()
    learner = Learner(loaded.model, config(run=RunConfig(updates=4, staleness=1), optim=optim))
    learner.optimiser.step = lambda: None
    learner.look_over(rows, len(advantages), 0)
    found = good_update(learner, UpdateData(rows, advantages), update=0)
    assert (found["clip"], most > 2.0) == (0.0, True)
    for (name, own), other in zip(loaded.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=2e-5, rtol=2e-3, msg=name)


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_one_or_many_micro_batches_give_the_same_weights():
    found = []
    for tokens in (100_000, 120):
        loaded = load(TINY)
        rows, advantages = hand_made_rows()
        learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-3, warmup=1, epochs=2, tokens=tokens)))
        good_update(learner, UpdateData(rows, advantages), update=0)
        found.append(weights(loaded.model))
    torch.testing.assert_close(found[0], found[1], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("uses_own_logp", [False, True])
def test_replies_of_another_player_are_imitated_by_their_advantage(uses_own_logp):
    """They have no log-probabilities of the sampler. However unlikely they are, no ratio makes less of them."""
    loaded = load(TINY)
    rows, _ = hand_made_rows()
    spans = [span for row in rows for span in row.spans]
    chosen = spans[0].step
    for span in spans:
        if span.step == chosen:
            span.logprobs = None
    advantages = torch.tensor([float(step == chosen) for step in range(1 + max(span.step for span in spans))])
    settings = config(optim=OptimConfig(lr=3e-3, warmup=1, epochs=8, lr_end=1.0))
    learner = Learner(loaded.model, settings, uses_own_logp=uses_own_logp)
    gains = []
    for update in range(2):
        before = logp_of(learner, rows, chosen)
        learner.look_over(rows, len(advantages), update)
        metrics = good_update(learner, UpdateData(rows, advantages), update=update)
        gains.append(logp_of(learner, rows, chosen) - before)
        assert metrics["clip"] == 0
        assert metrics["sampler/mismatch"] < 1e-4 or update
    assert min(gains) > 0.3  # far more than a clipped ratio of 1.2 allows


def logp_of(learner, rows, step):
    """The mean log-probability of a step's tokens now."""
    found = []
    for batch in pack(rows, 100_000):
        with torch.no_grad():
            found.append(learner.head.score(batch, 1.0).logp[batch.step == step])
    return float(torch.cat(found).mean())


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_better_than_expected_becomes_likelier(lora, checkpointing):
    """Advantage +1 on some steps, -1 on the others: their tokens become likelier, and less likely."""
    loaded = load(TINY, lora=lora, gradient_checkpointing=checkpointing)
    rows, _ = hand_made_rows()
    spans = [span for row in rows for span in row.spans]
    advantages = torch.tensor([1.0 if span.step % 2 else -1.0 for span in sorted(spans, key=lambda s: s.step)])
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=3e-3, warmup=1, epochs=4, lr_end=1.0)))
    good_update(learner, UpdateData(rows, advantages), update=0)
    change = torch.zeros(2)
    for batch in pack(rows, 100_000):
        with torch.no_grad():
            moved = learner.head.score(batch, 1.0).logp - batch.logp_sampler
        change[1] += moved[advantages[batch.step] > 0].mean()
        change[0] += moved[advantages[batch.step] < 0].mean()
    assert change[1] > 0.01
    assert change[0] < -0.01


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("tokens", [100_000, 900])
def test_a_shared_beginning_changes_nothing_but_the_work(lora, tokens):
    """The rules stand once in a micro-batch: the same metrics, and the same weights after two steps."""
    found, after, seen = [], [], []
    for share in (False, True):
        loaded = load(TINY, lora=lora)
        rows, advantages = hand_made_rows()
        optim = OptimConfig(lr=1e-3, warmup=1, epochs=2, lr_end=1.0, tokens=tokens)
        learner = Learner(loaded.model, config(optim=optim), shares_openings=share)
        seen.append(sum(len(batch.ids) for batch in learner._packed(rows)))
        found.append(good_update(learner, UpdateData(rows, advantages), update=0))
        after.append(weights(loaded.model))
    assert seen[1] < 0.9 * seen[0]
    assert found[1] == pytest.approx(found[0], rel=1e-2, abs=1e-5)
    torch.testing.assert_close(after[1], after[0], atol=2e-5, rtol=1e-3)


def test_lora_trains_the_adapter_alone():
    loaded = load(TINY, lora=4)
    before = {name: p.detach().clone() for name, p in loaded.model.named_parameters()}
    rows, advantages = hand_made_rows()
    good_update(Learner(loaded.model, config()), UpdateData(rows, advantages), update=0)
    changed = {name for name, p in loaded.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all("lora" in name for name in changed)


def test_kl_holds_the_policy_back(monkeypatch):
    monkeypatch.setattr(loss_module, "CLIP_LOW", 1.0)
    monkeypatch.setattr(loss_module, "CLIP_HIGH", 1e6)

    def moved(kl_weight):
        loaded = load(TINY)
        rows, advantages = hand_made_rows()
        algo = AlgoConfig(kl_weight=kl_weight)
        learner = Learner(loaded.model, config(algo=algo, optim=OptimConfig(lr=2e-3, warmup=1, epochs=4, lr_end=1.0)))
        learner.reference = learner.reference_weights()
        start = weights(loaded.model)
        learner.look_over(rows, len(advantages), 0)
        assert torch.equal(weights(loaded.model), start)  # looking changes nothing
        good_update(learner, UpdateData(rows, advantages), update=0)
        (batch,) = pack(rows, 100_000)
        with torch.no_grad():
            return (learner.head.score(batch, 1.0).logp - batch.logp_sampler).abs().mean().item()

    assert moved(5.0) < 0.6 * moved(0.0)


def test_trainers_own_logprobs_and_the_metric_of_disagreement():
    """With the trainer's own log-probabilities, a wrong sampler is seen, weighed, and does not bend the ratio."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    for row in rows:
        for span in row.spans:
            span.logprobs = tuple(value - 0.3 for value in span.logprobs)
    learner = Learner(loaded.model, config(), uses_own_logp=True)
    learner.look_over(rows, len(advantages), 0)
    found = good_update(learner, UpdateData(rows, advantages), update=0)
    assert found["sampler/mismatch"] == pytest.approx(0.3, abs=1e-3)
    assert found["sampler/weight"] == pytest.approx(min(2.0, 2.718281828**0.3), abs=1e-3)
    assert found["kl_old"] == pytest.approx(0.0, abs=1e-6)


def test_a_loss_that_is_not_finite_is_skipped_counted_and_in_the_end_fatal():
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    bad = advantages.clone()
    bad[0] = float("nan")
    learner = Learner(loaded.model, config(run=RunConfig(updates=4)))
    start = weights(loaded.model)
    found = learner.update(UpdateData(rows, bad), update=0)
    assert found["skipped"] == 1
    assert torch.equal(weights(loaded.model), start)
    good_update(learner, UpdateData(rows, advantages), update=1)  # a good one: the count starts again
    assert learner.bad_in_a_row == 0
    for update in (2, 3):
        learner.update(UpdateData(rows, bad), update=update)
    with pytest.raises(MulliganError, match="3 steps in a row"):
        learner.update(UpdateData(rows, bad), update=3)


def test_out_of_memory_halves_the_micro_batch(monkeypatch):
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, tokens=4096)))
    real = head_module.states

    def cramped(model, ids, *rest):
        if len(ids) > 400:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, ids, *rest)

    monkeypatch.setattr(head_module, "states", cramped)
    good_update(learner, UpdateData(rows, advantages), update=0)
    assert learner.tokens <= 512
    other = load(TINY)
    monkeypatch.setattr(head_module, "states", real)
    rows, advantages = hand_made_rows()
    good_update(Learner(other.model, config()), UpdateData(rows, advantages), update=0)
    torch.testing.assert_close(weights(loaded.model), weights(other.model), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("words", ["CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out of memory"])
def test_errors_that_say_that_memory_is_full(words):
    assert step_module.out_of_memory(RuntimeError(f"CUDA error: {words}"))
    assert not step_module.out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_micro_batches_grow_again_when_memory_is_free_again(monkeypatch):
    """Whoever shared the GPU has ended: what memory did not hold for a while, it holds now."""
    patience = 2
    monkeypatch.setattr(pack_module, "PATIENCE", patience)
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, tokens=512)))
    real, room = head_module.states, [400]

    def cramped(model, ids, *rest):
        if len(ids) > room[0]:
            raise RuntimeError("CUDA error: out of memory")
        return real(model, ids, *rest)

    def train(update: int) -> int:
        learner.look_over(rows, len(advantages), update)
        good_update(learner, UpdateData(rows, advantages), update=update)
        return learner.tokens

    monkeypatch.setattr(head_module, "states", cramped)
    # Tried in vain in update 3 (the one that finds the memory full is no calm one), then tried again.
    assert [train(update) for update in range(patience + 2)] == [256] * (patience + 2)
    room[0] = 100_000
    assert [train(update) for update in range(patience + 1)] == [256] * patience + [512]


def test_the_number_of_steps_does_not_depend_on_the_trials():
    for trials in (1, 3):
        loaded = load(TINY)
        rows, steps = rows_of(play(loaded, trials=trials, episodes=2).trials)
        learner = Learner(loaded.model, config(optim=OptimConfig(epochs=3, minibatches=2, warmup=1)))
        taken = []
        real = learner.optimiser.step
        learner.optimiser.step = lambda real=real, taken=taken: (taken.append(1), real())
        good_update(learner, UpdateData(rows, torch.ones(steps)), update=0)
        assert len(taken) == 6 if trials > 1 else len(taken) >= 3


def test_the_critic_learns_its_targets(monkeypatch):
    """Reflections are worth 1, turns -1: the last prompt token tells them apart."""
    monkeypatch.setattr(step_module, "VALUE_LR", 3e-2)
    monkeypatch.setattr(step_module, "VALUE_WEIGHT", 1.0)
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    targets = torch.full((len(advantages), 1), -1.0)
    targets[[span.step for row in rows for span in row.spans if span.reflects]] = 1.0
    algo = AlgoConfig(estimator="ppo", form="chained")
    optim = OptimConfig(lr=1e-4, warmup=1, epochs=15, lr_end=1.0)
    learner = Learner(loaded.model, config(algo=algo, optim=optim), heads=1)
    before = learner.look_over(rows, len(advantages), 0)
    assert torch.equal(before, torch.zeros_like(before))
    good_update(learner, UpdateData(rows, torch.zeros(len(advantages)), targets), update=0)
    after = learner.look_over(rows, len(advantages), 0)
    assert (after - targets).square().mean() < 0.3


@pytest.mark.parametrize("minibatches", [1, 2, 4])
def test_the_critics_loss_is_a_mean_however_many_minibatches_there_are(minibatches, monkeypatch):
    """Before the first step it says 0 everywhere; targets of 2: half the square is 2."""
    monkeypatch.setattr(step_module, "VALUE_LR", 1e-9)
    loaded = load(TINY)
    rows, advantages = hand_made_rows()
    algo = AlgoConfig(estimator="ppo", form="chained")
    optim = OptimConfig(lr=1e-9, warmup=1, minibatches=minibatches)
    learner = Learner(loaded.model, config(algo=algo, optim=optim), heads=1)
    data = UpdateData(rows, torch.zeros(len(advantages)), torch.full((len(advantages), 1), 2.0))
    assert good_update(learner, data, update=0)["value_loss"] == pytest.approx(2.0, abs=1e-3)


def test_minibatches_without_trials_do_not_count_in_the_metrics():
    entropies = []
    for minibatches in (1, 8):
        loaded = load(TINY)
        rows, steps = rows_of(play(loaded, trials=1, episodes=2).trials)
        optim = OptimConfig(lr=1e-9, warmup=1, minibatches=minibatches)
        learner = Learner(loaded.model, config(optim=optim))
        entropies.append(good_update(learner, UpdateData(rows, torch.ones(steps)), update=0)["entropy"])
    assert entropies[1] == pytest.approx(entropies[0], rel=1e-4)
