"""From trials to the loss: the right tokens, the right numbers, the right direction."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from dataclasses import replace

import pytest
import torch

import mulligan
from mulligan.algo.build import batch_from_groups
from mulligan.engine.slots import SlotEngine
from mulligan.errors import MulliganError, UsageError
from mulligan.models.load import LoraSettings, load, save
from mulligan.policy.local import Demonstrated, LocalPolicy
from mulligan.policy.scripted import ExpertPolicy
from mulligan.train import head as head_module
from mulligan.train import muon, optimisers
from mulligan.train.config import (
    AlgoConfig,
    Config,
    ModelConfig,
    OptimConfig,
    RunConfig,
    TrialConfig,
    WarmstartConfig,
)
from mulligan.train.muon import Float32Muon
from mulligan.train.pack import pack
from mulligan.train.rows import rows_of
from mulligan.train.step import Learner, UpdateData
from mulligan.trial import prompts
from mulligan.types import Group, Sampling

TINY = "nano:hidden=32,layers=2"


def config(**sections) -> Config:
    base = Config(
        run=RunConfig(updates=4),
        trial=TrialConfig(temperature=1.0),
        model=ModelConfig(name=TINY),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, lr_end=1.0),
        algo=AlgoConfig(),
    )
    return replace(base, **sections)


def play(loaded, *, memory="both", trials=4, temperature=1.0, style="plain", env="minesweeper", **options):
    """A group of trials of a random model, through the engine."""
    policy = LocalPolicy(SlotEngine(loaded.model, slots=8), loaded.renderer)
    params = options.pop("params", {"rows": 3, "cols": 3, "mines": 2, "turns": 3})
    task = mulligan.make_task(env, 5, **params)

    async def all_of_them():
        return await asyncio.gather(
            *(
                mulligan.run_trial(
                    task,
                    policy,
                    seed=n,
                    index=n,
                    memory=memory,
                    style=style,
                    sampling=Sampling(temperature, 1.0, 6),
                    reflection_tokens=5,
                    stop="never",
                    **options,
                )
                for n in range(trials)
            )
        )

    return Group(task, tuple(asyncio.run(all_of_them())))


@pytest.mark.parametrize("memory", ["none", "history", "reflection", "both"])
@pytest.mark.parametrize("env", ["minesweeper", "examples/my_env.py:GuessNumber"])  # with and without a digest
@pytest.mark.parametrize("window", [None, 2])
def test_trainer_and_sampler_agree_on_every_token(memory, env, window, monkeypatch):
    """The log-probabilities of the first pass are the sampler's: same tokens, same places, same temperature."""
    monkeypatch.chdir(__file__.partition("/tests/")[0])
    loaded = load(TINY)
    params = {} if "my_env" in env else {"rows": 3, "cols": 3, "mines": 2, "turns": 3}
    group = play(loaded, memory=memory, env=env, params=params, window=window, temperature=0.8)
    rows, steps = rows_of(group.trials)
    assert steps == len(batch_from_groups([group], gamma_step=1.0, gamma_traj=1.0))
    learner = Learner(loaded.model, config(trial=TrialConfig(temperature=0.8)))
    seen = 0
    for batch in pack(rows, 2000):
        with torch.no_grad():
            scores = learner.score(batch, 0.8)
        torch.testing.assert_close(scores.logp, batch.logp_sampler, atol=1e-4, rtol=1e-4)
        seen += len(batch.target)
    assert seen == sum(len(turn.reply.ids) for t in group.trials for e in t.episodes for turn in e.turns) + sum(
        len(e.reflection.completion.ids) for t in group.trials for e in t.episodes if e.reflection
    )


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_dropout_of_an_adapter_is_left_out(tmp_path, checkpointing):
    """Adapters made elsewhere often have some. The trainer would learn from another policy than the one that played,
    and draw from torch's own generator, so that no resumed run were the same."""
    made = load(TINY, lora=LoraSettings(rank=4))
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
    learned = learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    assert learned["sampler/mismatch"] < 1e-4


def test_rows_follow_the_memory_mode():
    """A row is an episode where memory starts anew, the whole trial where history goes on, a turn under a window."""
    loaded = load(TINY)
    env, params = f"{__file__.partition('/tests/')[0]}/examples/my_env.py:GuessNumber", {}
    count = {
        mode: len(rows_of(play(loaded, memory=mode, env=env, params=params, trials=2, episodes=3).trials)[0])
        for mode in ("reflection", "history", "both", "none")
    }
    assert count == {"reflection": 6, "history": 2, "both": 2, "none": 6}
    windowed = rows_of(play(loaded, memory="history", env=env, params=params, trials=1, window=1).trials)[0]
    assert len(windowed) == 3 * 4  # a row for each of the four turns of three episodes


def hand_made_rows(loaded):
    group = play(loaded, trials=3, memory="reflection", episodes=2)
    rows, steps = rows_of(group.trials)
    rng = random.Random(0)
    return rows, torch.tensor([rng.uniform(-1, 1) for _ in range(steps)])


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
                clipped = ratio.clamp(1 - config.algo.clip_low, 1 + config.algo.clip_high)
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
def test_the_gradient_is_that_of_the_formula(everywhere):
    settings = config(
        algo=AlgoConfig(entropy_weight=0.02, reflection_entropy=everywhere),
        optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, grad_clip=1e9),
    )
    loaded, plain = load(TINY), load(TINY).model
    rows, advantages = hand_made_rows(loaded)
    assert {span.reflects for row in rows for span in row.spans} == {False, True}
    # Move both models off the sampling policy, so that ratios differ from 1 and some are clipped.
    move_alike(loaded.model, plain, 0.02)
    slow_loss(plain, rows, advantages, settings).backward()
    learner = Learner(loaded.model, settings)
    learner.optimiser.step = lambda: None  # look at the gradient, keep the weights
    found = learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    for (name, own), other in zip(loaded.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=2e-5, rtol=2e-3, msg=name)
    assert found["clip"] > 0


def test_stale_samples_are_weighted_and_not_clipped_away():
    """On CPU too: what older weights drew counts by min(exp(logp_old - logp_sampler), C), and the ratio begins at 1."""
    optim = OptimConfig(lr=1e-3, warmup=1, epochs=1, grad_clip=1e9)
    loaded, plain = load(TINY), load(TINY).model
    rows, advantages = hand_made_rows(loaded)
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
    found = learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    assert (found["clip"], most > 2.0) == (0.0, True)
    for (name, own), other in zip(loaded.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=2e-5, rtol=2e-3, msg=name)


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("aggregate", ["token", "turn", "trial"])
def test_one_or_many_micro_batches_give_the_same_weights(aggregate):
    found = []
    for tokens in (100_000, 120):
        loaded = load(TINY)
        rows, advantages = hand_made_rows(loaded)
        algo = AlgoConfig(aggregate=aggregate, reflection_weight=0.5)
        learner = Learner(
            loaded.model, config(algo=algo, optim=OptimConfig(lr=1e-3, warmup=1, epochs=2, tokens=tokens))
        )
        learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
        found.append(weights(loaded.model))
    torch.testing.assert_close(found[0], found[1], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_better_than_expected_becomes_likelier(lora, checkpointing):
    """Advantage +1 on some steps, -1 on the others: their tokens become likelier, and less likely."""
    loaded = load(TINY, lora=lora, gradient_checkpointing=checkpointing)
    rows, _ = hand_made_rows(loaded)
    spans = [span for row in rows for span in row.spans]
    advantages = torch.tensor([1.0 if span.step % 2 else -1.0 for span in sorted(spans, key=lambda s: s.step)])
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=3e-3, warmup=1, epochs=6, lr_end=1.0)))
    learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    change = torch.zeros(2)
    for batch in pack(rows, 100_000):
        with torch.no_grad():
            moved = learner.score(batch, 1.0).logp - batch.logp_sampler
        change[1] += moved[advantages[batch.step] > 0].mean()
        change[0] += moved[advantages[batch.step] < 0].mean()
    assert change[1] > 0.01
    assert change[0] < -0.01


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8)])
@pytest.mark.parametrize("tokens", [100_000, 900])
def test_a_shared_beginning_changes_nothing_but_the_work(lora, tokens):
    """The rules stand once in a micro-batch: the same metrics, and the same weights after two steps."""
    found, after, seen = [], [], []
    for share in ("off", "on"):
        loaded = load(TINY, lora=lora)
        rows, advantages = hand_made_rows(loaded)
        optim = OptimConfig(lr=1e-3, warmup=1, epochs=2, lr_end=1.0, tokens=tokens, share=share)
        learner = Learner(loaded.model, config(optim=optim))
        seen.append(sum(batch.tokens for batch in learner._packed(rows)))
        found.append(learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail))
        after.append(weights(loaded.model))
    assert seen[1] < 0.9 * seen[0]
    assert found[1] == pytest.approx(found[0], rel=1e-2, abs=1e-5)
    torch.testing.assert_close(after[1], after[0], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8)])
@pytest.mark.parametrize("fused", [False, True])
def test_engines_can_see_that_weights_were_written_to(lora, dtype, fused):
    """By the versions that torch counts: keys and values of earlier weights must not be used again."""
    loaded = load(TINY, lora=lora)
    rows, advantages = hand_made_rows(loaded)
    model = loaded.model.to(dtype)
    learner = Learner(model, config())
    learner.optimiser = optimisers.for_updates(learner.weights(), None, config(), fused=fused)
    before = sum(parameter._version for parameter in model.parameters())
    learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    assert sum(parameter._version for parameter in model.parameters()) > before


def test_lora_trains_the_adapter_alone():
    loaded = load(TINY, lora=LoraSettings(rank=4, alpha=8))
    before = {name: p.detach().clone() for name, p in loaded.model.named_parameters()}
    rows, advantages = hand_made_rows(loaded)
    Learner(loaded.model, config()).update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    changed = {name for name, p in loaded.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all("lora" in name for name in changed)


def test_weights_of_reflections():
    """With weight 0, reflections carry no loss: the gradient is that of the turns alone."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    reflecting = {span.step for row in rows for span in row.spans if span.reflects}
    assert reflecting
    optim = OptimConfig(lr=1e-3, warmup=1, epochs=1)
    Learner(loaded.model, config(algo=AlgoConfig(reflection_weight=0.0), optim=optim)).update(
        UpdateData(rows, advantages), update=0, on_bad=pytest.fail
    )
    other = load(TINY)
    for row in rows:
        row.spans = [span for span in row.spans if not span.reflects]
    Learner(other.model, config(optim=optim)).update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    torch.testing.assert_close(weights(loaded.model), weights(other.model), atol=2e-5, rtol=1e-3)


def test_kl_holds_the_policy_back():
    def moved(kl_weight):
        loaded = load(TINY)
        rows, advantages = hand_made_rows(loaded)
        algo = AlgoConfig(kl_weight=kl_weight, clip_low=1.0, clip_high=1e6)
        learner = Learner(loaded.model, config(algo=algo, optim=OptimConfig(lr=2e-3, warmup=1, epochs=12, lr_end=1.0)))
        learner.keep_reference()
        start = weights(loaded.model)
        learner.look_over(rows, len(advantages), 0)
        assert torch.equal(weights(loaded.model), start)  # looking changes nothing
        learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
        (batch,) = pack(rows, 100_000)
        with torch.no_grad():
            return (learner.score(batch, 1.0).logp - batch.logp_sampler).abs().mean().item()

    assert moved(5.0) < 0.6 * moved(0.0)


def test_trainers_own_logprobs_and_the_metric_of_disagreement():
    """With logp_old = trainer, a sampler that was off is seen, weighed, and does not bend the ratio."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    for row in rows:
        for span in row.spans:
            span.logprobs = tuple(value - 0.3 for value in span.logprobs)
    learner = Learner(loaded.model, config(algo=AlgoConfig(logp_old="trainer")))
    learner.look_over(rows, len(advantages), 0)
    found = learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    assert found["sampler/mismatch"] == pytest.approx(0.3, abs=1e-3)
    assert found["sampler/weight"] == pytest.approx(min(2.0, 2.718281828**0.3), abs=1e-3)
    assert found["kl_old"] == pytest.approx(0.0, abs=1e-6)


def test_a_loss_that_is_not_finite_is_skipped_counted_and_in_the_end_fatal():
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    bad = advantages.clone()
    bad[0] = float("nan")
    learner = Learner(loaded.model, config(run=RunConfig(updates=4, max_bad_steps=3)))
    start, kept = weights(loaded.model), []
    found = learner.update(UpdateData(rows, bad), update=0, on_bad=kept.append)
    assert found["skipped"] == 1
    assert torch.equal(weights(loaded.model), start)
    assert kept[0]["rows"] == rows
    learner.update(UpdateData(rows, advantages), update=1, on_bad=pytest.fail)  # a good one: the count starts again
    assert learner.bad_in_a_row == 0
    for update in (2, 3):
        learner.update(UpdateData(rows, bad), update=update, on_bad=kept.append)
    with pytest.raises(MulliganError, match="3 steps in a row"):
        learner.update(UpdateData(rows, bad), update=3, on_bad=kept.append)


def test_out_of_memory_halves_the_micro_batch(monkeypatch):
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, tokens=4096)))
    real = head_module.states

    def cramped(model, ids, *rest):
        if len(ids) > 400:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, ids, *rest)

    monkeypatch.setattr(head_module, "states", cramped)
    learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    assert learner.tokens <= 512
    other = load(TINY)
    monkeypatch.setattr(head_module, "states", real)
    rows, advantages = hand_made_rows(other)
    Learner(other.model, config()).update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    torch.testing.assert_close(weights(loaded.model), weights(other.model), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(
    "words", ["CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "CUDA error: out of memory"]
)
def test_micro_batches_grow_again_when_memory_is_free_again(monkeypatch, words):
    """Whoever shared the GPU has ended: what memory did not hold for a while, it holds now."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    learner = Learner(loaded.model, config(optim=OptimConfig(lr=1e-3, warmup=1, epochs=1, tokens=512)))
    real, room = head_module.states, [400]

    def cramped(model, ids, *rest):
        if len(ids) > room[0]:
            raise RuntimeError(words)
        return real(model, ids, *rest)

    def train(update: int) -> int:
        learner.look_over(rows, len(advantages), update)
        learner.update(UpdateData(rows, advantages), update=update, on_bad=pytest.fail)
        return learner.tokens

    monkeypatch.setattr(head_module, "states", cramped)
    assert [train(update) for update in range(6)] == [256] * 6  # tried in the last, in vain
    room[0] = 100_000
    assert [train(update) for update in range(6, 15)] == [256] * 8 + [512]


def test_the_number_of_steps_does_not_depend_on_the_trials():
    for trials in (1, 5):
        loaded = load(TINY)
        rows, steps = rows_of(play(loaded, trials=trials).trials)
        learner = Learner(loaded.model, config(optim=OptimConfig(epochs=3, minibatches=2, warmup=1)))
        taken = []
        real = learner.optimiser.step
        learner.optimiser.step = lambda real=real, taken=taken: (taken.append(1), real())
        learner.update(UpdateData(rows, torch.ones(steps)), update=0, on_bad=pytest.fail)
        assert len(taken) == 6 if trials > 1 else len(taken) >= 3


def test_the_critic_learns_its_targets():
    """Reflections are worth 1, turns -1: the last prompt token tells them apart."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    targets = torch.full((len(advantages), 1), -1.0)
    targets[[span.step for row in rows for span in row.spans if span.reflects]] = 1.0
    algo = AlgoConfig(estimator="ppo", form="chained", value_lr=1e-2, value_weight=1.0)
    optim = OptimConfig(lr=1e-4, warmup=1, epochs=60, lr_end=1.0)
    learner = Learner(loaded.model, config(algo=algo, optim=optim), heads=1)
    before = learner.look_over(rows, len(advantages), 0)
    assert torch.equal(before, torch.zeros_like(before))
    learner.update(UpdateData(rows, torch.zeros(len(advantages)), targets), update=0, on_bad=pytest.fail)
    after = learner.look_over(rows, len(advantages), 0)
    assert (after - targets).square().mean() < 0.3


@pytest.mark.parametrize("minibatches", [1, 2, 4])
def test_the_critics_loss_is_a_mean_however_many_minibatches_there_are(minibatches):
    """Before the first step it says 0 everywhere; targets of 2: half the square is 2."""
    loaded = load(TINY)
    rows, advantages = hand_made_rows(loaded)
    algo = AlgoConfig(estimator="ppo", form="chained", value_lr=1e-9)
    optim = OptimConfig(lr=1e-9, warmup=1, minibatches=minibatches)
    learner = Learner(loaded.model, config(algo=algo, optim=optim), heads=1)
    data = UpdateData(rows, torch.zeros(len(advantages)), torch.full((len(advantages), 1), 2.0))
    assert learner.update(data, update=0, on_bad=pytest.fail)["value_loss"] == pytest.approx(2.0, abs=1e-3)


def test_minibatches_without_trials_do_not_count_in_the_metrics():
    entropies = []
    for minibatches in (1, 8):
        loaded = load(TINY)
        rows, steps = rows_of(play(loaded, trials=1).trials)
        optim = OptimConfig(lr=1e-9, warmup=1, minibatches=minibatches)
        learner = Learner(loaded.model, config(optim=optim))
        entropies.append(learner.update(UpdateData(rows, torch.ones(steps)), update=0, on_bad=pytest.fail)["entropy"])
    assert entropies[1] == pytest.approx(entropies[0], rel=1e-4)


def test_demonstrations_carry_the_tokens_an_agent_would_sample():
    loaded = load(TINY)
    player = Demonstrated(ExpertPolicy(0.7, 0.5), loaded.renderer, prompts.style("bare").demonstrated)
    task = mulligan.make_task("minesweeper", 3, view="compact", rows=4, cols=5, turns=10)
    trial = mulligan.run_trial_sync(task, player, memory="both", style="bare")
    rows, steps = rows_of([trial])
    assert steps == sum(len(episode.turns) for episode in trial.episodes) + len(trial.episodes) - 1
    for row in rows:
        for span in row.spans:
            assert row.ids[span.start : span.start + len(span.ids)] == list(span.ids)
            assert span.ids[-1] in loaded.renderer.stop_ids
            assert "<action>" not in loaded.renderer.decode_reply(span.ids)


def test_text_without_tokens_cannot_be_trained_on():
    trial = mulligan.run_trial_sync(mulligan.make_task("bandit", 0), ExpertPolicy())
    with pytest.raises(UsageError, match="without tokens"):
        rows_of([trial])


@pytest.mark.parametrize("style", ["bare", "plain"])
def test_rows_are_what_the_chat_template_says(style):
    """With and without a system message, an episode's row is the template's own rendering of its messages."""
    loaded = load(TINY)
    player = Demonstrated(ExpertPolicy(), loaded.renderer, prompts.style(style).demonstrated)
    task = mulligan.make_task("minesweeper", 3, view="compact", rows=3, cols=3)
    trial = mulligan.run_trial_sync(task, player, style=style, episodes=1)
    (row,) = rows_of([trial])[0]
    (episode,) = trial.episodes
    said = [dict(message) for message in episode.opening]
    for turn, after in zip(episode.turns, [*episode.turns[1:], None], strict=True):
        said.append({"role": "assistant", "content": turn.reply.text})
        if after is not None:
            left = task.turns - len([m for m in said if m["role"] == "assistant"])
            said.append({"role": "user", "content": prompts.turn(after.observation, "", left, prompts.style(style))})
    assert row.ids == loaded.tokenizer.apply_chat_template(said, return_dict=False)


def test_small_steps_are_not_lost_in_bfloat16():
    """The optimiser works on float32 copies: nearly every weight moves, however small the step."""
    loaded = load(TINY, dtype="bfloat16")
    rows, advantages = hand_made_rows(loaded)
    algo = AlgoConfig(logp_old="trainer")
    learner = Learner(loaded.model, config(algo=algo, optim=OptimConfig(lr=1e-6, warmup=1, epochs=1)))
    before = {name: weight.detach().clone() for name, weight in learner.weights().items()}
    learner.look_over(rows, len(advantages), 0)
    learner.update(UpdateData(rows, advantages), update=0, on_bad=pytest.fail)
    moved = sum(int((weight != before[name]).sum()) for name, weight in learner.weights().items())
    assert moved > 0.5 * sum(weight.numel() for weight in before.values())
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(parameter, learner.weights()[name].to(torch.bfloat16))


@pytest.mark.parametrize("adapter", [False, True])
def test_muon_steps_the_maps_inside_the_layers_and_adamw_all_else(adapter):
    loaded = load(TINY, lora=LoraSettings(rank=2, alpha=4) if adapter else None)
    learner = Learner(loaded.model, config(warmstart=WarmstartConfig(optimiser="muon")))
    found = learner.warm_optimisers()
    stepped = [id(p) for optimiser in found for group in optimiser.param_groups for p in group["params"]]
    assert sorted(stepped) == sorted(map(id, learner.trainable()))  # each once
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
    monkeypatch.setattr(muon, "multiplies_bfloat16", lambda device: native)
    assert type(muon.muon([torch.nn.Parameter(torch.eye(3))], lr=0.1, weight_decay=0.0)) is expected
