"""PPO over whole trials: λ = 1 gives G_t - V_t in both forms; the borders, by hand and against a plain recursion."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.algo.advantage import Options
from mulligan.algo.advantage.ppo import heads
from mulligan.errors import UsageError
from trial_records import TrialRecord, batch_from_records, estimate

REWARDS = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0]), max_size=3), min_size=1, max_size=3)


@st.composite
def batches(draw, form):
    records = []
    for rewards in draw(st.lists(REWARDS.filter(any), min_size=1, max_size=4)):
        forfeits = [0.0 if episode else draw(st.sampled_from([0.0, -1.0])) for episode in rewards]
        records.append(
            TrialRecord(
                rewards,
                forfeits=forfeits,
                shaping=[[draw(st.sampled_from([0.0, 0.2, -0.1])) for _ in episode] for episode in rewards],
                reflected=[draw(st.booleans()) and bool(episode or not any(forfeits)) for episode in rewards],
                penalised=[draw(st.booleans()) for _ in rewards],
            )
        )
    gammas = st.sampled_from([0.0, 0.6, 0.9, 1.0])
    batch = batch_from_records(records, gamma_step=draw(gammas), gamma_traj=draw(gammas), form=form)
    critic = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(len(batch), heads(form)))
    return dataclasses.replace(batch, critic=critic)


@pytest.mark.parametrize("form", ["chained", "paper"])
@given(data=st.data())
def test_with_lambda_one_it_is_the_return_less_the_value(form, data):
    batch = data.draw(batches(form))
    result = estimate("ppo", batch, Options(gae_lambda=1.0))
    np.testing.assert_allclose(result.values, batch.value - batch.critic.sum(axis=1), atol=1e-9)


def two_episodes(form, *, reflected, critic, gamma_step=0.5, gamma_traj=0.8):
    record = TrialRecord([[1.0, 2.0], [4.0]], reflected=[reflected, False])
    batch = batch_from_records([record], gamma_step=gamma_step, gamma_traj=gamma_traj, form=form)
    return dataclasses.replace(batch, critic=np.array(critic, dtype=float))


def test_chained_borders_by_hand():
    # λ = 0, so A = δ. Steps: turn, turn, reflection, turn with V = 10, 20, 30, 40; γ_step 0.5, γ_traj 0.8
    # 1 + 0.5·20 - 10 = 1; 2 + 0.8·30 - 20 = 6; 0 + 1·40 - 30 = 10; 4 + 0 - 40 = -36
    batch = two_episodes("chained", reflected=True, critic=[[10], [20], [30], [40]])
    result = estimate("ppo", batch, Options(gae_lambda=0.0))
    assert result.values == pytest.approx([1, 6, 10, -36])
    assert result.targets[:, 0] == pytest.approx([11, 26, 40, 4])
    # λ = 0.5: -36; 10 + 0.5·1·-36 = -8; 6 + 0.5·0.8·-8 = 2.8; 1 + 0.5·0.5·2.8 = 1.7
    assert estimate("ppo", batch, Options(gae_lambda=0.5)).values == pytest.approx([1.7, 2.8, -8, -36])


def test_chained_without_a_reflection_goes_to_the_next_episode():
    # 2 + 0.8·40 - 20 = 14
    batch = two_episodes("chained", reflected=False, critic=[[10], [20], [40]])
    assert estimate("ppo", batch, Options(gae_lambda=0.0)).values == pytest.approx([1, 14, -36])


def test_paper_borders_by_hand():
    # λ = 0, (V_in, V_cross) = (1, 2), (3, 4), reflection (0, 5), (6, 7); γ_step 0.5, γ_traj 0.8
    # in:    1 + 0.5·3 - 1 = 1.5;  2 - 3 = -1;              reflection 0;               4 - 6 = -2
    # cross: 1·4 - 2 = 2;          0.8·(6 + 7) - 4 = 6.4;   (6 + 7) - 5 = 8;            0 - 7 = -7
    batch = two_episodes("paper", reflected=True, critic=[[1, 2], [3, 4], [0, 5], [6, 7]])
    result = estimate("ppo", batch, Options(gae_lambda=0.0))
    assert result.values == pytest.approx([3.5, 5.4, 8, -9])
    assert result.targets == pytest.approx(np.array([[2.5, 4], [2, 10.4], [0, 13], [4, 0]]))
    # λ = 0.5. in: -2; 0; -1; 1.5 + 0.5·0.5·-1 = 1.25. cross: -7; reflection 8 + 0.5·(-2 - 7) = 3.5;
    # 6.4 + 0.5·0.8·(-9) = 2.8; 2 + 0.5·2.8 = 3.4
    half = estimate("ppo", batch, Options(gae_lambda=0.5))
    assert half.values == pytest.approx([1.25 + 3.4, -1 + 2.8, 3.5, -9])


def slow_chained(batch, gae_lambda):
    """Backwards over the steps, with the discount written out case by case."""
    value, result = batch.critic[:, 0], [0.0] * len(batch)
    for i in reversed(range(len(batch))):
        last = i + 1 == len(batch) or batch.trial[i + 1] != batch.trial[i]
        if last:
            result[i] = batch.reward[i] + batch.forfeit[i] - value[i]
            continue
        forfeit = batch.forfeit[i]
        if batch.phase[i] == 0 and batch.phase[i + 1] == 0 and batch.episode[i] == batch.episode[i + 1]:
            discount = batch.gamma_step
        elif batch.phase[i] == 0 and batch.phase[i + 1] == 1:
            discount = batch.gamma_traj ** (batch.episode[i + 1] - batch.episode[i] + 1)
            forfeit = 0.0  # the reflection, which comes between, has it
        elif batch.phase[i] == 1 and batch.phase[i + 1] == 0:
            discount = batch.gamma_traj ** (batch.episode[i + 1] - batch.episode[i] - 1)
        else:
            discount = batch.gamma_traj ** (batch.episode[i + 1] - batch.episode[i])
        delta = batch.reward[i] + forfeit + discount * value[i + 1] - value[i]
        result[i] = delta + gae_lambda * discount * result[i + 1]
    return result


@given(batch=batches("chained"), gae_lambda=st.sampled_from([0.0, 0.5, 0.95]))
def test_chained_agrees_with_the_recursion(batch, gae_lambda):
    plain = dataclasses.replace(batch, shaping=np.zeros(len(batch)))
    result = estimate("ppo", plain, Options(gae_lambda=gae_lambda))
    np.testing.assert_allclose(result.values, slow_chained(plain, gae_lambda), atol=1e-9)


def slow_paper(batch, gae_lambda):
    """The two heads step by step: each step looks for the first turn of the next episode that has one."""
    inside, cross = [0.0] * len(batch), [0.0] * len(batch)
    value_in, value_cross = batch.critic[:, 0], batch.critic[:, 1]

    def turns_after(i):
        return [j for j in range(i + 1, len(batch)) if batch.trial[j] == batch.trial[i] and batch.phase[j] == 0]

    for i in reversed(range(len(batch))):
        inside[i] = batch.reward[i] - value_in[i]
        cross[i] = batch.forfeit[i] - value_cross[i]
        after = turns_after(i)
        if not after:
            continue
        f, reflecting = after[0], batch.phase[i] == 1
        if batch.episode[f] == batch.episode[i]:
            inside[i] += batch.gamma_step * (value_in[f] + gae_lambda * inside[f])
            cross[i] += value_cross[f] + gae_lambda * cross[f]
        else:
            discount = batch.gamma_traj ** (batch.episode[f] - batch.episode[i] - reflecting)
            cross[i] += discount * (value_in[f] + value_cross[f] + gae_lambda * (inside[f] + cross[f]))
    return np.add(inside, cross)


@given(batch=batches("paper"), gae_lambda=st.sampled_from([0.0, 0.5, 0.95]))
def test_paper_agrees_with_the_recursion(batch, gae_lambda):
    plain = dataclasses.replace(batch, shaping=np.zeros(len(batch)))
    result = estimate("ppo", plain, Options(gae_lambda=gae_lambda))
    np.testing.assert_allclose(result.values, slow_paper(plain, gae_lambda), atol=1e-9)


@pytest.mark.parametrize("form", ["chained", "paper"])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.7])
def test_shaping_of_the_next_episode_never_leaks_back(form, gae_lambda):
    # Only the next episode's shaping differs: the first episode must not notice.
    def first_turns(shaping):
        record = TrialRecord([[0.0, 0.0], [1.0]], shaping=[[0.1, 0.0], [shaping]], reflected=[True, False])
        batch = batch_from_records([record], gamma_step=0.9, gamma_traj=0.9, form=form)
        critic = np.zeros((len(batch), heads(form)))
        return estimate("ppo", dataclasses.replace(batch, critic=critic), Options(gae_lambda=gae_lambda)).values[:2]

    np.testing.assert_array_equal(first_turns(0.0), first_turns(5.0))


@pytest.mark.parametrize("form", ["difference", "final"])
def test_other_forms_have_no_critic(form):
    with pytest.raises(UsageError, match=form):
        heads(form)


def test_a_perfect_critic_explains_everything():
    record = TrialRecord([[1.0, 2.0], [4.0]], reflected=[True, False])
    batch = batch_from_records([record], gamma_step=0.5, gamma_traj=0.8, form="chained")
    result = estimate("ppo", dataclasses.replace(batch, critic=batch.value[:, None].copy()))
    assert result.values == pytest.approx(np.zeros(4), abs=1e-12)
    assert result.metrics["critic/explained"] == pytest.approx(1.0)
