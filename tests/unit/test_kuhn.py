"""Kuhn poker: the opponents against their tables, what a player may see, replies, the task."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuhn_hands import BET, DEALS, PASS, J, K, Q, hand_of, play, world
from mulligan.envs.kuhn.env import KuhnPoker
from mulligan.envs.kuhn.habits import DRAWN, GROUPS, HABITS, UNSEEN, VALIDATION, opponent_table
from mulligan.envs.kuhn.rules import STAKES, payoff
from mulligan.envs.registry import build, make_task, spec
from mulligan.errors import ParameterError, StopReason, UnknownName
from mulligan.types import Task

# Luck and the opponents


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("name", HABITS)
def test_opponents_are_sampled_from_their_tables(name: str, seat: int) -> None:
    env, table = world(opponent=name, seat=seat), opponent_table(name)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for chance, replies in itertools.product(range(500), ([PASS, PASS], [BET, BET])):
        play(env, chance, replies)
        for turn, move in enumerate(env.betting):
            if turn % 2 != seat - 1:
                counts[f"{env.hidden}{env.betting[:turn]}"][move] += 1
    turns = [state for state in table if len(state[1:]) % 2 == 2 - seat]
    assert set(counts) <= set(turns)
    # A state that the opponent itself avoids stays unseen: it faces a bet after its own pass only where it passes.
    assert set(counts) >= {state for state in turns if state[1:] != "pb" or table[state[0]][0] > 0.01}
    for state, seen in counts.items():
        total, chance = seen.total(), table[state][1]
        spread = (chance * (1 - chance) / total) ** 0.5
        assert abs(seen["b"] / total - chance) <= 4.5 * spread + 1e-9, state


def test_the_equilibrium_opponent_mixes_where_its_policy_does() -> None:
    env = world(opponent="cfr", seat=1)
    chances = [chance for chance in range(300) if env.reset(chance) and env.hidden == Q]
    answers = Counter()
    for chance in chances:
        play(env, chance, [BET])
        answers[env.betting] += 1
    # A Queen calls a bet one time in three; an opponent that took the likelier action would always fold.
    assert 0.2 < answers["bb"] / len(chances) < 0.47


def test_cards_are_uniform_over_chances() -> None:
    env = world(opponent="random", seat=1)
    deals = Counter()
    for chance in range(3000):
        env.reset(chance)
        deals[env.card, env.hidden] += 1
    assert set(deals) == set(DEALS)
    # 500 of each expected, with a spread of sqrt(3000 * 1/6 * 5/6) = 20.4
    assert all(abs(count - 500) < 4.5 * 20.4 for count in deals.values())


def transcript(env: KuhnPoker, chance: int, replies: tuple[str, ...]) -> list[Any]:
    return [env.reset(chance), *(env.step(reply) for reply in replies)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", HABITS)
def test_a_chance_repeats_exactly_and_another_redraws(name: str, seed: int) -> None:
    env, again = world(seed, opponent=name), world(seed, opponent=name)
    scripts = list(itertools.product((PASS, BET), repeat=2))
    first = {(chance, script): transcript(env, chance, script) for chance in range(20) for script in scripts}
    for (chance, script), seen in reversed(first.items()):  # in another order, in another world of the same task
        assert transcript(again, chance, script) == seen
    assert len({seen[0] for seen in first.values()}) > 1
    other = world(seed + 2, opponent=name)
    assert any(transcript(other, chance, script) != seen for (chance, script), seen in first.items())


# What the player sees


@pytest.mark.parametrize("seat", [1, 2])
def test_nothing_shown_before_a_showdown_depends_on_the_hidden_card(seat: int) -> None:
    env = world(opponent="random", seat=seat)
    seen: dict[tuple[int, str], set[tuple[str, str]]] = defaultdict(set)
    hidden: dict[tuple[int, str], set[int]] = defaultdict(set)

    def note(observation: str, key: str) -> None:
        if env.betting in STAKES:
            assert f"opponent holds {'JQK'[env.hidden]}" in observation
            assert key == f"{env.card}{env.betting}/{env.hidden}"
            return
        seen[env.card, env.betting].add((observation, key))
        hidden[env.card, env.betting].add(env.hidden)
        assert not set("JQK") - {"JQK"[env.card]} & set(observation)

    for chance, script in itertools.product(range(150), itertools.product((PASS, BET), repeat=2)):
        note(env.reset(chance), "")
        for reply in script:
            step = env.step(reply)
            note(step.observation, step.state_key)
            if step.done:
                break
    assert sum(len(cards) == 2 for cards in hidden.values()) >= 9  # both possible cards met in each of these
    for situation, shown in seen.items():
        texts = {text for text, _ in shown}
        assert len(texts) == 1, situation


def test_a_fold_hides_the_card_and_a_showdown_shows_it() -> None:
    env = world(opponent="soft-conservative", seat=1)
    play(env, hand_of(env, Q, J), [BET])  # a conservative Jack always folds
    assert env.shown is None
    assert env.observe() == (
        "Your card: Q\nBetting: you bet, opponent pass\n"
        "The opponent folds. The opponent's card stays hidden. You win 1 chip."
    )
    step = play(env, hand_of(env, Q, K), [BET])  # a conservative King always calls
    assert step.final == (
        "Your card: Q\nBetting: you bet, opponent bet\nShowdown: the opponent holds K. You lose 2 chips."
    )
    folded = play(env, hand_of(env, J, K), [PASS, PASS])
    assert folded.final == (
        "Your card: J\nBetting: you pass, opponent bet, you pass\n"
        "You fold. The opponent's card stays hidden. You lose 1 chip."
    )


@pytest.mark.parametrize("seat", [1, 2])
def test_rules_tell_the_seat_and_not_the_opponent(seat: int) -> None:
    texts = {world(opponent=name, seat=seat).rules() for name in HABITS}
    assert len(texts) == 1
    assert ("You act first" in texts.pop()) == (seat == 1)


def test_rewards_are_the_chips_of_the_player() -> None:
    for seat, chance, script in itertools.product((1, 2), range(60), itertools.product((PASS, BET), repeat=2)):
        env = world(opponent="random", seat=seat)
        episode = play(env, chance, list(script))
        assert [turn.reward for turn in episode.turns[:-1]] == [0.0] * (len(episode.turns) - 1)
        assert episode.reward == payoff(env.betting, seat, env.card, env.hidden)
        assert (episode.stop is StopReason.WON) == (episode.reward > 0)


# Replies


def test_poker_words_count_where_they_can_mean_one_thing() -> None:
    opened = world(opponent="soft-aggressive", seat=1)
    for word, betting in (("check", "p"), ("raise", "b"), ("Pass", "p"), (" BET ", "b")):
        opened.reset(0)
        assert opened.step(f"<action>{word}</action>").valid
        assert opened.betting.startswith(betting)
    facing = world(opponent="soft-aggressive", seat=2)
    chance = next(chance for chance in range(50) if facing.reset(chance) and facing.betting == "b")
    for word, betting in (("fold", "bp"), ("call", "bb")):
        facing.reset(chance)
        assert facing.step(f"<action>{word}</action>").done
        assert facing.betting == betting
    for word in ("check", "raise"):
        facing.reset(chance)
        assert not facing.step(f"<action>{word}</action>").valid


@settings(deadline=None, max_examples=25)
@given(reply=st.one_of(st.text(max_size=40), st.text(max_size=20).map(lambda text: f"<action>{text}</action>")))
def test_garbage_changes_nothing(reply: str) -> None:
    env = world(opponent="random", seat=1)
    before = env.reset(3)
    step = env.step(reply)
    if not step.valid:
        assert step.observation == before
        assert (step.reward, step.done, step.won) == (0.0, False, False)
        assert "<action>pass</action>" in step.feedback
        assert env.step(BET) == transcript(world(opponent="random", seat=1), 3, (BET,))[1]


@pytest.mark.parametrize(
    "reply",
    ["", "bet", "<action>fold</action>", "<action>bet</action> or <action>pass</action>", "<action>bet", "x" * 200_000],
)
def test_replies_that_are_no_action(reply: str) -> None:
    env = world(opponent="random", seat=1)
    before = env.reset(3)
    step = env.step(reply)
    assert not step.valid
    assert step.observation == before


def test_nothing_can_be_played_after_the_end() -> None:
    env = world(opponent="random", seat=2)
    episode = play(env, 0, [PASS, PASS])
    step = env.step(BET)
    assert (step.valid, step.done, step.reward, step.observation) == (False, False, 0.0, episode.final)
    assert list(env.legal()) == []


# The task


def test_task_settles_opponent_and_seat() -> None:
    assert [make_task("kuhn", seed).seat for seed in (0, 1, 6, 7)] == [1, 2, 1, 2]
    assert make_task("kuhn", 4, seat=2).seat == 2
    task = make_task("kuhn", 0, opponent="soft-conservative")
    assert (task.task_class, task.opponent) == ("kuhn/vs-soft-conservative", "soft-conservative")
    about = spec("kuhn")
    assert (about.kind, about.stop, about.restart, about.timeout_reward) == ("versus", "never", "fresh", -1.0)
    with pytest.raises(UnknownName, match=r"'agressive'.*'aggressive'"):
        make_task("kuhn", 0, opponent="agressive")
    with pytest.raises(ParameterError, match=r"seat must be .* 3"):
        make_task("kuhn", 0, seat=3)
    with pytest.raises(ParameterError, match=r"hands must be 1 to 1000 \(got 0\)"):
        make_task("kuhn", 0, hands=0)


def test_several_opponents_are_mixed_by_the_seed() -> None:
    spec = "conservative,aggressive:3"
    tasks = [make_task("kuhn", seed, opponent=spec) for seed in range(200)]
    drawn = Counter(task.opponent for task in tasks)
    assert set(drawn) == {"conservative", "aggressive"}
    assert 120 < drawn["aggressive"] < 180
    assert {task.task_class for task in tasks} == {"kuhn/vs-conservative", "kuhn/vs-aggressive"}
    assert {task.text("pool") for task in tasks} == {spec}


def test_an_opponent_changes_at_its_episode() -> None:
    env = world(opponent="always-pass>always-bet@3", seat=2)
    first_moves = [(env.reset(chance), env.betting[0])[1] for chance in range(5)]
    assert first_moves == ["p", "p", "b", "b", "b"]


def test_tasks_from_before_the_deterministic_habits_play_as_they_did() -> None:
    """They have no pool, and their "aggressive" is what is called "soft-aggressive" now."""
    old = Task("kuhn", 3, 4, "kuhn/vs-aggressive", (("opponent", "aggressive"), ("seat", 2)))
    again, soft, hard = (
        build(old),
        world(3, opponent="soft-aggressive", seat=2),
        world(3, opponent="aggressive", seat=2),
    )
    openings = [[env.reset(chance) for chance in range(30)] for env in (again, soft, hard)]
    assert openings[0] == openings[1] != openings[2]


# Matches of several hands


def test_a_match_pays_each_hand_and_is_won_by_the_sum() -> None:
    for seed in range(40):
        env = world(seed, opponent="random", hands=3)
        assert env.task.turns == 12
        env.reset(0)
        rewards, hands = [], []
        while True:
            step = env.step(BET)
            if env.ended:
                hand = env.ended
                hands.append(hand)
                assert step.reward == payoff(hand.betting, env.seat, hand.mine, hand.theirs)
            rewards.append(step.reward)
            if step.done:
                break
        assert len(hands) == 3
        assert step.won == (sum(rewards) > 0)
        assert step.observation.endswith(f"The match is over: {sum(rewards):+g} chips in all.")
        assert not env.step(BET).valid


def test_a_match_shows_the_hand_that_ended_and_its_digest_all_of_them() -> None:
    env = world(0, opponent="always-pass", seat=1, hands=3)
    assert env.reset(0).startswith("Hand 1 of 3.\nYour card: ")
    first, second = env.card, env.step(BET)
    folds = "Betting: you bet, opponent pass. The opponent folds. The opponent's card stays hidden. You win 1 chip."
    assert second.observation.startswith(f"Hand 1: Your card: {'JQK'[first]}. {folds}\nHand 2 of 3.\nYour card: ")
    assert env.step("?").observation == second.observation  # nothing has changed
    episode = play(env, 0, [BET, BET, BET])
    digest = env.digest(episode)
    assert digest.startswith(f"You acted first. Hand 1: Your card: {'JQK'[first]}. {folds} Hand 2: Your card: ")
    assert digest.endswith(f"{folds} The match is over: +3 chips in all.")
    assert digest.count("Hand ") == 3


def test_openspiel_is_not_needed_to_play() -> None:
    code = (
        "import sys; sys.modules['pyspiel'] = None\nimport random, mulligan\n"
        "env = mulligan.make('kuhn', 1, {'opponent': 'cfr'})\n"
        "env.step(env.player('expert', random.Random(0), 1.0, 1.0).act())"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_groups_of_habits_are_for_training_and_for_evaluation() -> None:
    assert build(make_task("kuhn", 1, opponent="seen:4,drawn")).expected().keys() == {*GROUPS["seen"], *DRAWN}
    assert GROUPS["validation"] == tuple(VALIDATION)
    assert not {str(habit) for habit in VALIDATION.values()} & {str(habit) for habit in DRAWN.values()}
    for (name, one), other in itertools.product({**DRAWN, **VALIDATION}.items(), UNSEEN):
        pairs = [pair for betting in one for pair in zip(one[betting], HABITS[other][betting], strict=True)]
        assert max(abs(a - b) for a, b in pairs) >= 0.1, (name, other)
        assert all(list(one[betting]) == sorted(one[betting]) for betting in one)
