"""The exploration budget: its share, Thompson's chances, what is stored of a choice, and off-policy estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.errors import ParameterError, UnknownName
from mulligan.journal.budget import NEVER, Budget, Tally, _evidence, choose, tally, thompson_chances, values
from mulligan.journal.proof import Evidence, uniform


def test_the_share_decays_to_its_floor():
    budget = Budget(start=0.9, floor=0.1, halved_after=10)
    # 0.1 + 0.8 · 10 / (10 + n)
    assert [budget.share(n) for n in (0, 10, 30)] == pytest.approx([0.9, 0.5, 0.3])
    assert budget.share(10**9) == pytest.approx(0.1)


def test_tallies_by_hand():
    chosen, rewards = ["a", "b", "a"], [1.0, 0.0, 0.5]
    assert tally(["a", "b", "c"], chosen, rewards, budget=Budget()) == {
        "a": Tally(2, 1.5),
        "b": Tally(1, 0),
        "c": Tally(0, 0),
    }
    # remembers 2: each episode halves what was before. Weights 1/4, 1/2, 1.
    faded = tally(["a", "b"], chosen, rewards, budget=Budget(remembers=2))
    assert faded == {"a": Tally(1.25, 0.75), "b": Tally(0.5, 0)}
    assert tally(["a"], ["a"], [30.0], budget=Budget(), bounds=(0, 40)) == {"a": Tally(1, 0.75)}


def test_thompsons_chances_by_hand():
    # One success against nothing: Beta(2, 1) exceeds a uniform number with its mean, 2/3.
    assert thompson_chances([Tally(1, 1), Tally()]) == pytest.approx([2 / 3, 1 / 3], abs=1e-4)
    assert thompson_chances([Tally(3, 1)] * 4) == pytest.approx([0.25] * 4)
    # 10,000 outcomes each, means 0.50 and 0.51: the difference has deviation 0.00707, so Φ(1.414) = 0.921.
    assert thompson_chances([Tally(10_000, 5000), Tally(10_000, 5100)])[1] == pytest.approx(0.921, abs=1e-3)


def test_thompsons_chances_are_those_of_sampling():
    tallies = [Tally(20, 14), Tally(5, 4), Tally(60, 40)]
    rng = np.random.default_rng(0)
    samples = [rng.beta(each.total + 1, each.count - each.total + 1, 100_000) for each in tallies]
    drawn = np.bincount(np.argmax(samples, axis=0), minlength=3) / 100_000
    assert thompson_chances(tallies) == pytest.approx(drawn, abs=0.006)


def test_the_stored_chances_are_those_of_the_draw():
    tallies = {"a": Tally(10, 7), "b": Tally(4, 1), "c": Tally()}
    choices = [choose(tallies, Budget(), episodes=14, luck=(number + 0.5) / 300) for number in range(300)]
    chances = choices[0].chances
    assert sum(chances.values()) == pytest.approx(1)
    for name, chance in chances.items():
        assert sum(each.strategy == name for each in choices) / 300 == pytest.approx(chance, abs=5e-3)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 1, width=16))
@settings(max_examples=50, deadline=None)
def test_any_outcomes_give_chances_with_a_floor(records, luck):
    tallies = {str(index): Tally(count, count * mean) for index, (count, mean) in enumerate(records)}
    choice = choose(tallies, Budget(), episodes=10**9, luck=min(luck, 0.999))
    assert sum(choice.chances.values()) == pytest.approx(1)
    assert min(choice.chances.values()) >= 0.1 * 0.1 / len(records) * (1 - 1e-9)  # a tenth of the floor, evenly
    assert choice.chances[choice.strategy] > 0


def test_a_class_that_never_explores_takes_the_best():
    tallies = {"a": Tally(10, 4), "b": Tally(10, 6)}
    for luck in (0.0, 0.5, 0.999999):
        choice = choose(tallies, NEVER, episodes=0, luck=luck)
        assert (choice.strategy, choice.chances, choice.explored) == ("b", {"a": 0.0, "b": 1.0}, False)
    assert "never explores" in choice.words


def test_the_days_cap_ends_exploration():
    tallies, budget = {"a": Tally(2, 1), "b": Tally()}, Budget(per_day=3)
    assert choose(tallies, budget, episodes=2, luck=0.99, explored_today=2).explored
    capped = choose(tallies, budget, episodes=2, luck=0.99, explored_today=3)
    assert (capped.strategy, capped.share) == ("a", 0.0)
    assert "today's cap of 3 explorations is reached" in capped.words


def test_words_say_why():
    tallies = {"look up first": Tally(20, 15), "ask first": Tally()}
    budget = Budget(start=0.5, floor=0.5)
    # Beta(1, 1) exceeds Beta(16, 6) with 1 − 16/22 = 0.273: 0.5 · (0.9 · 0.273 + 0.05) = 0.148.
    assert choose(tallies, budget, episodes=20, luck=0.9).words == (
        "'ask first' with chance 0.148: to explore; 50% of episodes explore now, and 'look up first' is the best so far"
        " ('ask first': not tried yet; 'look up first': mean 0.75 of 20 outcomes)"
    )
    assert choose(tallies, budget, episodes=20, luck=0.1).words == (
        "'look up first' with chance 0.852: the best so far; 50% of episodes explore now "
        "('look up first': mean 0.75 of 20 outcomes)"
    )


def test_the_best_strategy_is_found_and_found_again_after_a_change():
    rng, chosen, rewards = np.random.default_rng(1), [], []
    budget, names = Budget(remembers=40), ["a", "b"]
    for episode in range(400):
        tallies = tally(names, chosen, rewards, budget=budget)
        choice = choose(tallies, budget, episodes=episode, luck=uniform("strategy", "x", "y", f"{episode}"))
        good = "a" if episode < 200 else "b"
        chosen.append(choice.strategy)
        rewards.append(float(rng.random() < (0.8 if choice.strategy == good else 0.2)))
    assert chosen[100:200].count("a") > 85
    assert chosen[300:].count("b") > 85


# Off-policy estimates


def collect(rng, means, episodes):
    """Chances depend on all earlier outcomes: 0.9 for what did better so far. means: [episode, strategy]."""
    names, sums, counts = "ab", np.full(2, 0.5), np.ones(2)
    chosen, rewards, chances = [], [], []
    for episode in range(episodes):
        better = int(np.argmax(sums / counts))
        of_a = 0.9 if better == 0 else 0.1
        taken = 0 if rng.random() < of_a else 1
        chosen.append(names[taken])
        chances.append({"a": of_a, "b": 1 - of_a})
        rewards.append(float(rng.random() < means[episode][taken]))
        sums[taken] += rewards[-1]
        counts[taken] += 1
    return chosen, rewards, chances


def test_evidence_by_hand():
    # Predictions use earlier outcomes only: 1/2, then (1 + 1/2) / 2 twice. Weights are the chances, 1/2.
    proof = _evidence("a", ["a", "b", "a"], np.array([1.0, 0.0, 0.0]), [{"a": 0.5, "b": 0.5}] * 3)
    assert proof.surprises == pytest.approx([1 / 2, 0, -3 / 4])
    assert proof.predictions == pytest.approx([1 / 4, 3 / 8, 3 / 8])


def test_the_interval_holds_the_truth_at_all_times_under_adaptive_choice():
    rng, wrong = np.random.default_rng(2), 0
    drifting = np.stack([np.linspace(0.2, 0.8, 200), np.full(200, 0.5)], axis=1)
    for _ in range(60):
        chosen, rewards, chances = collect(rng, drifting, 200)
        for index, name in enumerate("ab"):
            proof = _evidence(name, chosen, np.array(rewards), chances)
            centred = Evidence(proof.surprises, proof.predictions - proof.weights * drifting[:, index], proof.weights)
            wrong += centred.excludes(0.0, 0.95).any()
    assert wrong <= 6  # 5 % of 120


def test_what_each_episode_counts_for():
    # a pays 0.2 while it is likely (0.9), then 0.8 while it is unlikely (0.1): 0.9 · 0.2 + 0.1 · 0.8 = 0.26.
    rng = np.random.default_rng(3)
    of_a, mean = np.repeat([0.9, 0.1], 4000), np.repeat([0.2, 0.8], 4000)
    is_a = rng.random(8000) < of_a
    rewards = (rng.random(8000) < np.where(is_a, mean, 0.5)).astype(float)
    chosen = np.where(is_a, "a", "b").tolist()
    chances = [{"a": each, "b": 1 - each} for each in of_a.tolist()]
    found = values(chosen, rewards, chances)["a"]
    assert found.mean == pytest.approx(0.26, abs=0.03)
    assert found.low < 0.26 < found.high


def test_a_better_alternative_is_found_in_its_own_unit():
    rng = np.random.default_rng(4)
    chosen = np.where(rng.random(3000) < 0.9, "usual", "other").tolist()
    rewards = [10.0 * (rng.random() < (0.5 if name == "usual" else 0.8)) for name in chosen]
    found = values(chosen, rewards, [{"usual": 0.9, "other": 0.1}] * 3000, bounds=(0, 10))
    assert found["other"].low > found["usual"].high
    assert found["other"].low < 8 < found["other"].high
    assert found["usual"].episodes == 3000


def test_a_strategy_without_a_chance_stays_open():
    found = values(["a"] * 20, [1.0] * 20, [{"a": 1.0, "b": 0.0}] * 20)
    assert (found["b"].low, found["b"].high, found["b"].episodes) == (0, 1, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"floor": 0.6, "start": 0.5}, "a budget needs 0 <= floor <= start <= 1 (got floor 0.6, start 0.5)"),
        ({"halved_after": 0}, "halved_after must be > 0 (got 0)"),
        ({"per_day": -1}, "per_day must be >= 0 (got -1)"),
        ({"remembers": 1}, "remembers must be > 1 (got 1)"),
    ],
)
def test_impossible_budgets_are_refused(settings, message):
    with pytest.raises(ParameterError) as caught:
        Budget(**settings)
    assert str(caught.value) == message


def test_impossible_records_are_refused():
    with pytest.raises(ParameterError, match=r"at least one strategy \(got none\)"):
        choose({}, Budget(), episodes=0, luck=0.5)
    with pytest.raises(ParameterError, match=r"luck must be at least 0 and below 1 \(got 1\)"):
        choose({"a": Tally()}, Budget(), episodes=0, luck=1)
    with pytest.raises(UnknownName, match="unknown strategy 'c'"):
        values(["c"], [1.0], [{"a": 1.0}])
    with pytest.raises(ParameterError, match=r"\(got 1 chosen, 2 rewards, 1 chances\)"):
        values(["a"], [1.0, 1.0], [{"a": 1.0}])
    with pytest.raises(ParameterError, match=r"above 0 and at most 1 \(strategy 'a'\)"):
        values(["a"], [1.0], [{"a": 0.0}])
