"""Kuhn poker's scripted players, and what digests and reflections tell of a hand."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import pytest

from kuhn_hands import BET, PASS, J, K, best_response_value, hand_of, play, reflection, world
from mulligan.envs.kuhn.habits import HABITS, SOFT, opponent_table
from mulligan.errors import StopReason
from reflections import FIELDS, fields_of

# Players


def mean_reward(name: str, kind: str, recall: float, trials: int, episodes: int, skip: int = 0) -> float:
    total = 0.0
    for seed in range(trials):
        env = world(seed, opponent=name)
        player = env.player(kind, random.Random(seed), 1.0, recall)
        for chance in range(episodes):
            env.reset(chance)
            while not env.over:
                step = env.step(player.act())
                player.see(step)
            total += step.reward if chance >= skip else 0.0
    return total / (trials * (episodes - skip))


def test_memoryless_expert_plays_the_equilibrium_mix() -> None:
    env = world(opponent="random", seat=1)
    player = env.player("expert", random.Random(0), 1.0, 0.0)
    bets: dict[int, list[bool]] = defaultdict(list)
    for chance in range(1500):
        env.reset(chance)
        bets[env.card].append(player.act() == BET)
        player.see(env.step(BET))
    for card, seen in bets.items():
        chance = opponent_table("cfr")[str(card)][1]
        assert abs(sum(seen) / len(seen) - chance) <= 4.5 * (chance * (1 - chance) / len(seen)) ** 0.5


@pytest.mark.parametrize("name", ["random", "soft-conservative", "soft-aggressive"])
def test_memory_pays_and_full_knowledge_pays_more(name: str) -> None:
    table = opponent_table(name)
    room = (best_response_value(table, 1) + best_response_value(table, 2)) / 2
    without = mean_reward(name, "expert", 0.0, trials=60, episodes=18, skip=8)
    memory = mean_reward(name, "expert", 1.0, trials=60, episodes=18, skip=8)
    ceiling = mean_reward(name, "omniscient", 0.0, trials=60, episodes=18, skip=8)
    assert without < memory < ceiling
    # 600 hands of at most two chips: the mean is good to about 0.06
    assert abs(memory - room) < 0.15


def test_memory_finds_out_who_the_opponent_is() -> None:
    weights: dict[str, list[float]] = defaultdict(list)  # opponent in question -> its weight, over all opponents met
    right = []
    for seed, name in itertools.product(range(20), SOFT):
        env = world(seed, opponent=name)
        player: Any = env.player("expert", random.Random(seed), 1.0, 1.0)
        for chance in range(40):
            env.reset(chance)
            while not env.over:
                player.see(env.step(player.act()))
        for candidate, (table, weight) in zip(SOFT, player.likelihoods, strict=True):
            assert table is opponent_table(candidate)
            weights[candidate].append(weight)
        right.append(player.likelihoods[SOFT.index(name)][1])
    assert sum(right) / len(right) > 0.8
    # Bayes' rule with the right likelihoods keeps the prior of 1/5 on average, when all five are met equally often.
    for candidate, seen in weights.items():
        assert sum(seen) / len(seen) == pytest.approx(0.2, abs=0.04), candidate


def test_memory_expects_the_pool_and_begins_anew_when_the_opponent_has_changed() -> None:
    """First always-pass, from the third hand on always-bet: nobody else is thought of, and the change is noticed."""
    env = world(opponent="always-pass>always-bet@3", seat=2)
    player: Any = env.player("expert", random.Random(0), 1.0, 1.0)
    weights = []
    for chance in range(4):
        env.reset(chance)
        while not env.over:
            player.see(env.step(player.act()))
        assert [table for table, _ in player.likelihoods] == [
            opponent_table("always-pass"),
            opponent_table("always-bet"),
        ]
        weights.append([weight for _, weight in player.likelihoods])
    assert weights == [[1, 0], [1, 0], [0, 1], [0, 1]]


def test_memory_learns_within_a_match() -> None:
    env = world(0, opponent="conservative,aggressive", hands=20)
    player: Any = env.player("expert", random.Random(0), 1.0, 1.0)
    env.reset(0)
    while not env.over:
        player.see(env.step(player.act()))
    names = ("conservative", "aggressive")
    assert max(player.likelihoods, key=lambda each: each[1])[0] is opponent_table(env.opponent)
    assert [table for table, _ in player.likelihoods] == [opponent_table(name) for name in names]


def test_omniscient_calls_only_with_the_better_card() -> None:
    for seat in (1, 2):
        env = world(opponent="soft-aggressive", seat=seat)
        player = env.player("omniscient", random.Random(0), 1.0, 0.0)
        answered = 0
        for chance in range(200):
            env.reset(chance)
            while not env.over:
                reply = player.act()
                if env.betting.endswith("b"):
                    answered += 1
                    assert (reply == BET) == (env.card > env.hidden)
                player.see(env.step(reply))
        assert answered > 20


def test_unskilled_player_is_random() -> None:
    env = world(opponent="random", seat=1)
    player = env.player("omniscient", random.Random(0), 0.0, 0.0)
    env.reset(hand_of(env, K, J))
    assert {player.act() for _ in range(50)} == {PASS, BET}


# Memory texts


def test_digest_tells_the_visible_facts() -> None:
    env = world(opponent="soft-conservative", seat=1)
    episode = play(env, hand_of(env, J, K), [BET])
    env.reset(0)  # a digest reads the episode, not the world as it stands now
    assert env.digest(episode) == (
        "You acted first. Your card: J. Betting: you bet, opponent bet. "
        "Showdown: the opponent holds K. You lose 2 chips."
    )
    stalled = play(env, hand_of(env, J, K), ["?"], StopReason.TURN_LIMIT)
    assert env.digest(stalled) == "You acted first. Your card: J. Betting: none. The hand was not finished."


def test_reflections_are_truthful_and_blind_to_the_hidden_card() -> None:
    for seat, name in itertools.product((1, 2), HABITS):
        env = world(opponent=name, seat=seat)
        told: dict[tuple[int, str], set[str]] = defaultdict(set)
        for chance, script in itertools.product(range(40), itertools.product((PASS, BET), repeat=2)):
            episode = play(env, chance, list(script))
            text = reflection(env, episode)
            fields = fields_of(text)
            assert list(fields) == FIELDS
            assert float(fields["reward"]) == episode.reward
            assert fields["outcome"] == ("won" if episode.reward > 0 else "lost")
            if env.shown is None:
                told[env.card, env.betting].add(text + env.digest(episode))
            else:
                assert f"opponent holds {'JQK'[env.shown]}." in fields["env_answer"]
        assert all(len(texts) == 1 for texts in told.values())


def test_reflection_names_a_dominated_move() -> None:
    env = world(opponent="soft-aggressive", seat=2)
    facing = [chance for chance in range(300) if env.reset(chance) and env.betting == "b"]
    for card, reply, category in (
        (K, PASS, "wrong-move"),
        (J, BET, "wrong-move"),
        (J, PASS, "bad-luck"),
        (K, BET, "none"),
    ):
        chance = next(chance for chance in facing if env.reset(chance) and env.card == card)
        assert fields_of(reflection(env, play(env, chance, [reply])))["error_category"] == category
    stalled = fields_of(reflection(env, play(env, facing[0], ["?"], StopReason.TURN_LIMIT)))
    assert (stalled["outcome"], stalled["error_category"]) == ("not finished", "out-of-turns")
