"""Kuhn poker: the rules against OpenSpiel and by hand, the opponents against their tables, what a player may see."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs import openspiel
from mulligan.envs.kuhn import (
    HABITS,
    OPPONENTS,
    STAKES,
    Guess,
    KuhnPoker,
    best_response_value,
    best_value,
    equilibrium,
    opponent_table,
    payoff,
)
from mulligan.envs.registry import build, make, make_task, spec
from mulligan.errors import MissingExtra, ParameterError, StopReason, UnknownName
from mulligan.types import Completion, Episode, Step, Turn

pyspiel = pytest.importorskip("pyspiel")

PASS, BET = "<action>pass</action>", "<action>bet</action>"
J, Q, K = 0, 1, 2
ENDINGS = ("pp", "pbp", "pbb", "bp", "bb")


def world(seed: int = 0, **params: Any) -> KuhnPoker:
    env = make("kuhn", seed, **params)
    assert isinstance(env, KuhnPoker)
    return env


def play(env: KuhnPoker, chance: int, replies: list[str], stop: StopReason | None = None) -> Episode:
    """An episode with these replies, as the trial runner would record it."""
    seen, turns, step = env.reset(chance), [], Step("")
    for reply in replies:
        step = env.step(reply)
        turns.append(Turn(seen, Completion(reply), step.reward, step.valid, step.state_key))
        seen = step.observation
        if step.done:
            break
    won = StopReason.WON if step.won else StopReason.LOST
    return Episode(0, tuple(turns), seen, stop or won)


def hand_of(env: KuhnPoker, mine: int, theirs: int) -> int:
    """A chance that deals these cards."""
    for chance in range(500):
        env.reset(chance)
        if (env.card, env.hidden) == (mine, theirs):
            return chance
    raise AssertionError("no such deal")


def dealt(cards: tuple[int, int], betting: str = "") -> Any:
    state = openspiel.load_game("kuhn", "kuhn_poker").new_initial_state()
    for action in (*cards, *("pb".index(move) for move in betting)):
        state.apply_action(action)
    return state


DEALS = list(itertools.permutations(range(3), 2))


# The game and its values


@pytest.mark.parametrize(
    ("cards", "betting", "first_wins"),
    [
        ((K, J), "pp", 1),  # two passes: the better card wins the ante
        ((J, K), "pp", -1),
        ((K, J), "bb", 2),  # bet and call: ante and bet
        ((Q, K), "bb", -2),
        ((J, K), "bp", 1),  # the second folds, whatever the cards
        ((K, J), "pbp", -1),  # the first folds to a bet, whatever the cards
        ((Q, J), "pbb", 2),
        ((J, Q), "pbb", -2),
    ],
)
def test_payoffs_by_hand(cards: tuple[int, int], betting: str, first_wins: int) -> None:
    assert payoff(betting, 1, *cards) == first_wins
    assert payoff(betting, 2, *reversed(cards)) == -first_wins
    assert dealt(cards, betting).returns() == [first_wins, -first_wins]


def test_every_ending_pays_as_openspiel_says() -> None:
    for (first, second), betting in itertools.product(DEALS, ENDINGS):
        state = dealt((first, second), betting)
        assert state.is_terminal()
        assert [payoff(betting, 1, first, second), payoff(betting, 2, second, first)] == state.returns()


def decision_states() -> set[str]:
    return {dealt(cards, betting).information_state_string() for cards in DEALS for betting in ("", "p", "b", "pb")}


@pytest.mark.parametrize("name", OPPONENTS)
def test_tables_cover_the_twelve_information_states(name: str) -> None:
    table = opponent_table(name)
    assert set(table) == decision_states()
    assert len(table) == 12  # 3 cards x (2 bettings for each of 2 seats)
    for passing, betting in table.values():
        assert passing + betting == pytest.approx(1.0)
        assert 0.0 <= passing <= 1.0


def test_intermediate_is_half_way_between_conservative_and_aggressive() -> None:
    for betting, chances in HABITS["intermediate"].items():
        ends = zip(HABITS["conservative"][betting], HABITS["aggressive"][betting], strict=True)
        assert chances == pytest.approx([(low + high) / 2 for low, high in ends])


def value_of(first: Any, second: Any) -> float:
    """Chips the first player wins when the two play these tables, by walking OpenSpiel's tree."""

    def walk(state: Any) -> float:
        if state.is_terminal():
            return float(state.returns()[0])
        chances = (first, second)[state.current_player()][state.information_state_string()]
        return sum(chance * walk(state.child(action)) for action, chance in enumerate(chances) if chance > 0)

    return sum(walk(dealt(cards)) for cards in DEALS) / len(DEALS)


def test_equilibrium_is_worth_minus_one_eighteenth_and_is_hardly_exploitable() -> None:
    table = equilibrium()
    assert value_of(table, table) == pytest.approx(-1 / 18, abs=0.001)
    assert (best_response_value(table, 1) + best_response_value(table, 2)) / 2 <= 0.005
    # Kuhn 1950: with a Jack the first player bets some share a <= 1/3, with a King 3a; the second calls a bet with a
    # Queen, and bluffs with a Jack after a pass, one time in three.
    assert table["2"][1] == pytest.approx(3 * table["0"][1], abs=0.02)
    assert table["1b"][1] == pytest.approx(1 / 3, abs=0.02)
    assert table["0p"][1] == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("name", OPPONENTS)
def test_exploitability_agrees_with_openspiel(name: str) -> None:
    table = opponent_table(name)
    policy = pyspiel.TabularPolicy({state: list(enumerate(chances)) for state, chances in table.items()})
    ours = (best_response_value(table, 1) + best_response_value(table, 2)) / 2
    assert ours == pytest.approx(pyspiel.exploitability(openspiel.load_game("kuhn", "kuhn_poker"), policy), abs=1e-9)


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("name", OPPONENTS)
def test_best_response_is_the_best_of_all_pure_strategies(name: str, seat: int) -> None:
    table = opponent_table(name)
    own = sorted(state for state in table if len(state[1:]) % 2 == seat - 1)
    assert len(own) == 6
    values = []
    for actions in itertools.product((0, 1), repeat=6):  # all 64
        pure = {state: (1.0 - action, float(action)) for state, action in zip(own, actions, strict=True)}
        values.append(value_of(pure, table) if seat == 1 else -value_of(table, pure))
    assert best_response_value(table, seat) == pytest.approx(max(values))


def test_best_response_to_random_by_hand() -> None:
    # First seat. K: bet, called half the time: (2 + 1) / 2 = 1.5. Q: bet, folded to half the time, and a call is even:
    # 1 / 2 = 0.5. J: bet, folded to half the time: (1 - 2) / 2 = -0.5. Mean over the three cards: 0.5.
    assert best_response_value(opponent_table("random"), 1) == pytest.approx(0.5)


def test_knowing_the_card_is_worth_more_than_not_knowing_it() -> None:
    # First seat with Q against random. Opponent J: bet wins (2 + 1) / 2 = 1.5. Opponent K: bet (1 - 2) / 2 = -0.5;
    # pass, then fold: -1 either way. So -0.5. Second seat with Q, the opponent has bet with K: fold, -1.
    table = opponent_table("random")
    assert best_value(1, Q, "", [Guess(table, J, 1.0)]) == pytest.approx(1.5)
    assert best_value(1, Q, "", [Guess(table, K, 1.0)]) == pytest.approx(-0.5)
    assert best_value(2, Q, "b", [Guess(table, K, 1.0)]) == -1.0
    assert best_value(2, Q, "b", [Guess(table, J, 0.25)]) == 0.5  # calls and wins 2, weighted by a quarter


# Luck and the opponents


@pytest.mark.parametrize("seat", [1, 2])
@pytest.mark.parametrize("name", OPPONENTS)
def test_opponents_are_sampled_from_their_tables(name: str, seat: int) -> None:
    env, table = world(opponent=name, seat=seat), opponent_table(name)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for chance, replies in itertools.product(range(900), ([PASS, PASS], [BET, BET])):
        play(env, chance, replies)
        for turn, move in enumerate(env.betting):
            if turn % 2 != seat - 1:
                counts[f"{env.hidden}{env.betting[:turn]}"][move] += 1
    assert set(counts) <= {state for state in table if len(state[1:]) % 2 == 2 - seat}
    assert len(counts) >= 5  # a state that the opponent itself avoids may stay unseen
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
@pytest.mark.parametrize("name", OPPONENTS)
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
    env = world(opponent="conservative", seat=1)
    play(env, hand_of(env, Q, J), [BET])  # a conservative Jack always folds
    assert env.shown is None
    assert env._observe() == (
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
    texts = {world(opponent=name, seat=seat).rules() for name in OPPONENTS}
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
    opened = world(opponent="aggressive", seat=1)
    for word, betting in (("check", "p"), ("raise", "b"), ("Pass", "p"), (" BET ", "b")):
        opened.reset(0)
        assert opened.step(f"<action>{word}</action>").valid
        assert opened.betting.startswith(betting)
    facing = world(opponent="aggressive", seat=2)
    chance = next(chance for chance in range(50) if facing.reset(chance) and facing.betting == "b")
    for word, betting in (("fold", "bp"), ("call", "bb")):
        facing.reset(chance)
        assert facing.step(f"<action>{word}</action>").done
        assert facing.betting == betting
    for word in ("check", "raise"):
        facing.reset(chance)
        assert not facing.step(f"<action>{word}</action>").valid


@settings(deadline=None, max_examples=60)
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
    task = make_task("kuhn", 0, opponent="conservative")
    assert (task.task_class, task.opponent) == ("kuhn/vs-conservative", "conservative")
    about = spec("kuhn")
    assert (about.kind, about.stop, about.restart, about.timeout_reward) == ("versus", "never", "fresh", -1.0)
    with pytest.raises(UnknownName, match="opponent of kuhn 'agressive'; did you mean 'aggressive'"):
        make_task("kuhn", 0, opponent="agressive")
    with pytest.raises(ParameterError, match="seat=3"):
        make_task("kuhn", 0, seat=3)


def test_openspiel_is_needed_only_to_play(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, mulligan.envs.kuhn, mulligan.envs.tictactoe; sys.exit('pyspiel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    task = make_task("kuhn", 0)
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    openspiel.load_game.cache_clear()
    with pytest.raises(MissingExtra, match=r"kuhn needs the extra 'games'; .* -e '\.\[games\]'"):
        build(task)


# Players


def mean_reward(name: str, kind: str, recall: float, trials: int, episodes: int, skip: int = 0) -> float:
    total = 0.0
    for seed in range(trials):
        env = world(seed, opponent=name)
        player = env.player(kind, random.Random(seed), 1.0, recall)
        for chance in range(episodes):
            env.reset(chance)
            while not env.match.over:
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
        chance = equilibrium()[str(card)][1]
        assert abs(sum(seen) / len(seen) - chance) <= 4.5 * (chance * (1 - chance) / len(seen)) ** 0.5


@pytest.mark.parametrize("name", ["random", "conservative", "aggressive"])
def test_memory_pays_and_full_knowledge_pays_more(name: str) -> None:
    table = opponent_table(name)
    room = (best_response_value(table, 1) + best_response_value(table, 2)) / 2
    without = mean_reward(name, "expert", 0.0, trials=150, episodes=20, skip=8)
    memory = mean_reward(name, "expert", 1.0, trials=150, episodes=20, skip=8)
    ceiling = mean_reward(name, "omniscient", 0.0, trials=150, episodes=20, skip=8)
    assert without < memory < ceiling
    # 1800 hands of at most two chips: the mean is good to about 0.035
    assert abs(memory - room) < 0.1


def test_memory_finds_out_who_the_opponent_is() -> None:
    weights: dict[str, list[float]] = defaultdict(list)  # opponent in question -> its weight, over all opponents met
    right = []
    for seed, name in itertools.product(range(30), OPPONENTS):
        env = world(seed, opponent=name)
        player: Any = env.player("expert", random.Random(seed), 1.0, 1.0)
        for chance in range(40):
            env.reset(chance)
            while not env.match.over:
                player.see(env.step(player.act()))
        for candidate, (table, weight) in zip(OPPONENTS, player.likelihoods, strict=True):
            assert table is opponent_table(candidate)
            weights[candidate].append(weight)
        right.append(player.likelihoods[OPPONENTS.index(name)][1])
    assert sum(right) / len(right) > 0.8
    # Bayes' rule with the right likelihoods keeps the prior of 1/5 on average, when all five are met equally often.
    for candidate, seen in weights.items():
        assert sum(seen) / len(seen) == pytest.approx(0.2, abs=0.03), candidate


def test_omniscient_calls_only_with_the_better_card() -> None:
    for seat in (1, 2):
        env = world(opponent="aggressive", seat=seat)
        player = env.player("omniscient", random.Random(0), 1.0, 0.0)
        answered = 0
        for chance in range(200):
            env.reset(chance)
            while not env.match.over:
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
    env = world(opponent="conservative", seat=1)
    episode = play(env, hand_of(env, J, K), [BET])
    env.reset(0)  # a digest reads the episode, not the world as it stands now
    assert env.digest(episode) == (
        "You acted first. Your card: J. Betting: you bet, opponent bet. "
        "Showdown: the opponent holds K. You lose 2 chips."
    )
    stalled = play(env, hand_of(env, J, K), ["?"], StopReason.TURN_LIMIT)
    assert env.digest(stalled) == "You acted first. Your card: J. Betting: none. The hand was not finished."


def fields_of(reflection: str) -> dict[str, str]:
    lines = reflection.splitlines()
    assert (lines[0], lines[-1]) == ("<reflection>", "</reflection>")
    return dict(line.split(": ", 1) for line in lines[1:-1])


FIELDS = ["strategy", "outcome", "reward", "failed_at", "reasoning", "env_answer", "error_category", "plan"]


def test_reflections_are_truthful_and_blind_to_the_hidden_card() -> None:
    for seat, name in itertools.product((1, 2), OPPONENTS):
        env = world(opponent=name, seat=seat)
        told: dict[tuple[int, str], set[str]] = defaultdict(set)
        for chance, script in itertools.product(range(40), itertools.product((PASS, BET), repeat=2)):
            episode = play(env, chance, list(script))
            text = env.reflect(episode)
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
    env = world(opponent="aggressive", seat=2)
    facing = [chance for chance in range(300) if env.reset(chance) and env.betting == "b"]
    for card, reply, category in (
        (K, PASS, "wrong-move"),
        (J, BET, "wrong-move"),
        (J, PASS, "bad-luck"),
        (K, BET, "none"),
    ):
        chance = next(chance for chance in facing if env.reset(chance) and env.card == card)
        assert fields_of(env.reflect(play(env, chance, [reply])))["error_category"] == category
    stalled = fields_of(env.reflect(play(env, facing[0], ["?"], StopReason.TURN_LIMIT)))
    assert (stalled["outcome"], stalled["error_category"]) == ("not finished", "out-of-turns")
