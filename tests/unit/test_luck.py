"""Luck: what training takes out of rewards. Its mean is zero, and what is left is what was to be expected."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import permutations

import numpy as np
import pytest

import mulligan
from kuhn_hands import BET, PASS, J, K, Q, world
from mulligan.algo.build import batch_from_groups
from mulligan.envs.adapters.spiel_hand import hand_tree, losses_of
from mulligan.envs.kuhn.habits import HABITS, opponent_table
from mulligan.envs.kuhn.rules import FOLDED, STAKES, payoff
from mulligan.envs.leduc import GAME
from mulligan.envs.registry import make, make_task
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import Group


def test_a_called_bet_counts_with_what_calling_earns_on_average() -> None:
    """Second, with Q, against somebody who bets with any card: J and K are equally likely, so that calling earns
    (2 - 2) / 2 = 0, whatever was held. Folding always costs one chip."""
    env = world(opponent="always-bet", seat=2)
    for chance in (chance for chance in range(60) if env.reset(chance) and env.card == Q):
        env.reset(chance)
        step = env.step(BET)
        assert step.reward == (2.0 if env.hidden == J else -2.0)
        assert step.luck == step.reward
        env.reset(chance)
        assert env.step(PASS).luck == 0.0


def test_a_bluff_counts_with_the_answers_of_either_card() -> None:
    """First, with J, against `aggressive`, which calls with Q and K: a bet loses two chips for sure. Against
    `conservative`, which calls with K alone: Q folds, so that a bet earns (1 - 2) / 2 = -0.5."""
    for opponent, worth in (("aggressive", -2.0), ("conservative", -0.5)):
        env = world(opponent=opponent, seat=1)
        for chance in (chance for chance in range(60) if env.reset(chance) and env.card == J):
            env.reset(chance)
            step = env.step(BET)
            assert step.reward - step.luck == worth
    env = world(opponent="conservative", seat=1)
    assert any(env.reset(chance) and env.card == J and env.step(BET).luck for chance in range(60))


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("opponent", HABITS)
def test_in_kuhn_the_expected_reward_is_the_mean_over_hands_that_the_player_cannot_tell_apart(opponent, seat) -> None:
    """By enumeration: all deals, the opponent's moves with their chances, and the player's both moves."""
    table = opponent_table(opponent)
    hands: dict[tuple[int, str], list[tuple[float, float, int, str]]] = defaultdict(list)

    def walk(mine: int, theirs: int, betting: str, chance: float, moved: str) -> None:
        if betting in STAKES or betting in FOLDED:
            hands[mine, moved].append((chance, payoff(betting, seat, mine, theirs), theirs, betting))
        elif len(betting) % 2 == seat - 1:
            for move in "pb":
                walk(mine, theirs, betting + move, chance, betting + move)
        else:
            for move, likely in zip("pb", table[f"{theirs}{betting}"], strict=True):
                if likely:
                    walk(mine, theirs, betting + move, chance * likely, moved)

    for mine, theirs in permutations((J, Q, K), 2):
        walk(mine, theirs, "", 1.0, "")
    env = world(opponent=opponent, seat=seat)
    for (mine, _), endings in hands.items():
        mean = sum(chance * paid for chance, paid, *_ in endings) / sum(chance for chance, *_ in endings)
        for _, _, theirs, betting in endings:
            env.card, env.hidden, env.betting = mine, theirs, betting
            assert env.expected_reward() == pytest.approx(mean)


def test_in_leduc_the_best_play_earns_the_same_with_any_cards() -> None:
    """What is dealt is luck. `maniac` raises with everything, so that hands cost or bring up to 13 chips."""
    rewards, earned = set(), []
    for seed in range(30):
        game = make("leduc", seed, opponent="maniac", seat=1)
        game.reset()
        best, losses = losses_of(GAME, 1, "maniac")
        steps = []
        while not steps or not steps[-1].done:
            of_state = losses[game.state.information_state_string(0)]
            steps.append(game.step(game.reply_of(min(of_state, key=of_state.get))))
        rewards.add(steps[-1].reward)
        earned.append(sum(step.reward - step.luck for step in steps))
    assert len(rewards) > 3
    assert earned == pytest.approx([best] * 30)


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("opponent", ["bluffer", "drawn-5"])
def test_in_leduc_any_play_earns_what_it_is_paid_on_average(opponent, seat) -> None:
    """Exactly, over all cards and answers, for a play that draws its moves."""
    tree, (best, losses) = hand_tree(GAME, seat, (opponent,)), losses_of(GAME, seat, opponent)
    rng = random.Random(0)
    policy = {}
    for state in tree.states:
        weights = {action: rng.random() for action in state.actions}
        policy[state.key] = {action: weight / sum(weights.values()) for action, weight in weights.items()}
    lost = sum(
        state.reach[0] * chance * policy[state.key][action] * losses[state.key][action]
        for state, chance in zip(tree.states, tree.own_chances(policy), strict=True)
        for action in state.actions
    )
    assert tree.value(policy)[0] == pytest.approx(best - lost)
    assert lost > 0.1


def test_a_throw_counts_with_the_chances_of_the_habit() -> None:
    """`mostly-rock` throws rock 8 times in 10: paper earns (0.8 - 0.1) / throws, scissors (0.1 - 0.8) / throws."""
    env = mulligan.make("rps", params={"opponent": "mostly-rock", "throws": 2})
    env.reset()
    for move, worth in (("paper", 0.35), ("scissors", -0.35)):
        step = env.step(f"<action>{move}</action>")
        assert step.reward - step.luck == pytest.approx(worth)


@pytest.mark.parametrize(
    ("env", "params"),
    [
        ("leduc", {"opponent": "random"}),
        ("leduc", {"opponent": "bluffer"}),
        ("kuhn", {"opponent": "soft-intermediate", "hands": 3}),
        ("rps", {"opponent": "often-paper", "throws": 6}),
        ("dilemma", {"opponent": "random:0.7"}),
    ],
)
def test_luck_is_nothing_on_average(env: str, params: dict[str, object]) -> None:
    rng, luck = random.Random(0), []
    for seed in range(400):
        game = make(env, seed, **params)
        game.reset()
        steps = []
        while not steps or not steps[-1].done:
            steps.append(game.step(rng.choice(list(game.legal()))))
        luck.append(sum(step.luck for step in steps))
    assert abs(np.mean(luck)) < 3 * np.std(luck) / len(luck) ** 0.5
    assert np.std(luck) > 0.05


def test_of_an_opponent_without_a_habit_nothing_is_known() -> None:
    match = mulligan.make("rps", params={"opponent": "bot:randbot", "throws": 3})
    match.reset()
    step = match.step("<action>paper</action>")
    assert step.luck == 0.0
    assert step.valid


def test_training_learns_from_rewards_without_their_luck() -> None:
    """Calls with Q what J and K bet alike earn 0, whatever they are paid; the other hands earn what they are paid."""
    settings = TrialSettings(episodes=2, memory="history")
    for seed in range(20):
        task = make_task("kuhn", seed=seed, opponent="always-bet", seat=2)
        trial = run_trial_sync(task, lambda messages: BET, settings=settings)
        first, second = (0.0 if "Your card: Q" in episode.final else episode.reward for episode in trial.episodes)
        batch = batch_from_groups([Group(task, (trial,))], gamma_step=1.0, gamma_traj=0.5)
        assert batch.reward.tolist() == [first, second]
        assert batch.value.tolist() == [first + 0.5 * second, second]
        assert {episode.reward for episode in trial.episodes} <= {-2.0, 2.0}, "what is told keeps its luck"
