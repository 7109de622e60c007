"""The Bayes-adaptive optimum: by hand, against every policy there is, and against play in the real environments."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

import mulligan
from mulligan import evaluate
from mulligan.app.cli.main import main
from mulligan.app.sweep.rows import read_rows
from mulligan.envs.bandit import Bandit, BanditModel
from mulligan.envs.expedition.model import Model
from mulligan.envs.minesweeper.model import MineModel
from mulligan.envs.model import Outcome
from mulligan.errors import ContractBroken, ParameterError, UsageError
from mulligan.eval.beliefs import BeliefGraph, Plan, TooLarge, TrialRules
from mulligan.eval.optimal import OptimalPolicy
from mulligan.eval.optimum import optimum_of
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.tables import eval_table, footnotes
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import Task, Trial

# World -> returns by attempt below and above γ*, p@k above it, γ*. The sign: 0 + γ + γ² = .2125 + .325 γ + .4375 γ² at
# .2589; the tower: γ + γ² = (1 + 2 γ + 3 γ²) / 6 at .2153; the tools: .25 (1 + 2 γ + 3 γ²) = .3 (1 + γ + γ²) at .1784.
WORLDS = {
    "signpost": ([0.2125, 0.325, 0.4375], [0, 1, 1], [0, 1, 1], 0.258940),
    "lookout": ([1 / 6, 2 / 6, 3 / 6], [0, 1, 1], [0, 1, 1], 0.215250),
    "toolbox": ([0.3, 0.3, 0.3], [0.25, 0.5, 0.75], [0.25, 0.5, 0.75], 0.178395),
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_first_attempt_changes_at_the_threshold(world: str) -> None:
    below, above, p, threshold = WORLDS[world]
    optimum = mulligan.optimum("expedition", params={"world": world}, gamma_traj=0.6)
    assert optimum.threshold == pytest.approx(threshold, abs=1e-6)
    assert optimum.best.returns == pytest.approx(above)
    assert optimum.best.p == pytest.approx(p)
    assert optimum.best.value(0.6) == pytest.approx(above[0] + 0.6 * above[1] + 0.36 * above[2])
    for gamma_traj, returns in ((threshold - 1e-4, below), (threshold + 1e-4, above)):
        other = mulligan.optimum("expedition", params={"world": world}, gamma_traj=gamma_traj)
        assert other.best.returns == pytest.approx(returns)
    assert optimum.myopic.returns == pytest.approx(below)  # γ_traj = 0, with perfect memory
    assert optimum.alone.returns == pytest.approx(below[:1])
    assert optimum.clairvoyant.returns == pytest.approx([1.0])


def test_bandits_by_hand() -> None:
    """Each attempt tries a new arm; from the fourth on, three failures have named the arm that pays."""
    goes_on = mulligan.optimum("bandit", params={"arms": 4}, episodes=6, stop="never")
    assert goes_on.best.returns == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    assert goes_on.best.p == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    ends = mulligan.optimum("bandit", params={"arms": 8}, gamma_traj=0.5)  # a trial ends when it is won
    assert ends.best.won == pytest.approx([1 / 8] * 3)
    assert ends.best.p == pytest.approx([1 / 8, 2 / 8, 3 / 8])
    assert ends.best.value(0.5) == pytest.approx((1 + 0.5 + 0.25) / 8)
    assert ends.threshold is None  # the best pull for now is also the best one for later
    two_pulls = mulligan.optimum("bandit", params={"arms": 8, "turns": 2})
    assert two_pulls.best.p == pytest.approx([2 / 8, 4 / 8, 6 / 8])


class RandomGame:
    """Two worlds, states, actions and answers; all chances and rewards, and the drift, are drawn at random."""

    def __init__(self, seed: int, *, drifts: bool) -> None:
        rng = random.Random(seed)
        first = rng.random()
        self.prior = [(first, "a"), (1 - first, "b")]
        self.table = {key: self._outcomes(rng) for key in itertools.product("ab", (0, 1), (0, 1))}
        if drifts:
            stays = {world: rng.random() for world in "ab"}
            self.between = lambda world: [(stays[world], world), (1 - stays[world], "ba"["ab".index(world)])]

    def _outcomes(self, rng: random.Random) -> list[Outcome]:
        chance = rng.choice((1.0, rng.random()))
        endings = [rng.choice(((False, False), (True, False), (True, True))) for _ in range(2)]
        return [
            Outcome(each, rng.choice((0, 1)), told, rng.uniform(-1, 1), *ending)
            for each, told, ending in zip((chance, 1 - chance), ("x", "y"), endings, strict=True)
        ]

    def worlds(self) -> list[tuple[float, str]]:
        return self.prior

    def begin(self, world: str) -> int:
        return 0

    def actions(self, state: int) -> tuple[int, int]:
        return (0, 1)

    def outcomes(self, world: str, state: int, action: int) -> list[Outcome]:
        return self.table[world, state, action]


Tree = tuple[Any, dict[Any, Any]]
"""A policy: an action, and for each (answer, attempt over, won) that may follow, what to do next; None: nothing."""


class RandomDeals(RandomGame):
    """The same, and an attempt begins with one of two cards, in one of two states; what it costs to run out of turns
    is drawn too."""

    def __init__(self, seed: int, *, drifts: bool) -> None:
        super().__init__(seed, drifts=drifts)
        rng = random.Random(1000 + seed)
        self.deals = {}
        for world in "ab":
            weights = [rng.random() for _ in range(3)]
            self.deals[world] = [
                Outcome(weight / sum(weights), rng.choice((0, 1)), card)
                for weight, card in zip(weights, ("low", "high", "low"), strict=True)
            ]
        self.timeout_reward = rng.uniform(-1, 1)

    def begins(self, world: str) -> list[Outcome]:
        return self.deals[world]


def begun(rules: TrialRules, world: Any) -> list[tuple[float, Any, Any]]:
    """How an attempt may begin: its chance, what is seen of it, and the state."""
    model: Any = rules.model
    if not hasattr(model, "begins"):
        return [(1.0, None, model.begin(world))]
    return [(each.probability, each.told, each.state) for each in model.begins(world)]


def following(
    rules: TrialRules, world: Any, state: Any, action: Any, turn: int
) -> Iterator[tuple[float, Any, Any, Any]]:
    """All that may happen: its chance, what is seen of it, the reward, and each (chance, world, state) after it.

    What is seen of an attempt's end is followed by what is seen of the next one's beginning.
    """
    model: Any = rules.model
    for each in model.outcomes(world, state, action):
        outcome = Outcome(*each)
        ended = outcome.done or turn + 1 == rules.turns
        seen, reward = (outcome.told, ended, outcome.won), outcome.reward
        if not ended:
            yield outcome.probability, (*seen, None), reward, [(1.0, world, outcome.state)]
            continue
        reward += 0.0 if outcome.done else rules.timeout_reward
        after: dict[Any, list[Any]] = {}
        for chance, moved in model.between(world) if hasattr(model, "between") else [(1.0, world)]:
            for dealt, card, state_then in begun(rules, moved):
                after.setdefault(card, []).append((chance * dealt, moved, state_then))
        for card, pairs in after.items():
            chance = sum(pair[0] for pair in pairs)
            shares = [(pair[0] / chance, *pair[1:]) for pair in pairs] if chance else []
            yield outcome.probability * chance, (*seen, card), reward, shares


def moved_on(rules: TrialRules, seen: Any, episode: int, turn: int) -> tuple[int, int]:
    _, ended, won, _ = seen
    if ended and won and rules.stop == "success":
        return rules.episodes, 0
    return (episode + 1, 0) if ended else (episode, turn + 1)


def every_policy(rules: TrialRules, possible: set[Any], episode: int = 0, turn: int = 0) -> Iterator[Tree | None]:
    """Every deterministic policy from here on, where these (world, state) are possible."""
    if episode == rules.episodes:
        yield None
        return
    for action in rules.model.actions(next(iter(possible))[1]):
        after: dict[Any, set[Any]] = {}
        for world, state in possible:
            for _, seen, _, pairs in following(rules, world, state, action, turn):
                after.setdefault(seen, set()).update(pair[1:] for pair in pairs)
        later = [
            list(every_policy(rules, pairs, *moved_on(rules, seen, episode, turn))) for seen, pairs in after.items()
        ]
        for trees in itertools.product(*later):
            yield action, dict(zip(after, trees, strict=True))


def value(rules: TrialRules, tree: Tree | None, gamma: float, world: Any, state: Any, episode: int, turn: int) -> float:
    """What a policy earns in a world: all that can happen is walked through."""
    if tree is None:
        return 0.0
    total = 0.0
    for chance, seen, reward, pairs in following(rules, world, state, tree[0], turn):
        place = moved_on(rules, seen, episode, turn)
        later = sum(each * value(rules, tree[1][seen], gamma, *pair, *place) for each, *pair in pairs)
        total += chance * (reward + (gamma if seen[1] else 1.0) * later)
    return total


def check_against_every_policy(rules: TrialRules, gammas: tuple[float, ...]) -> int:
    """The best of all policies has the computed value; returns how many policies there are."""
    worlds = list(rules.model.worlds())
    starts: dict[Any, list[Any]] = {}
    for chance, world in worlds:
        for dealt, card, state in begun(rules, world):
            starts.setdefault(card, []).append((chance * dealt, world, state))
    policies = {card: list(every_policy(rules, {pair[1:] for pair in pairs})) for card, pairs in starts.items()}
    graph = BeliefGraph(rules, [worlds])
    for gamma in gammas:
        best = sum(
            max(
                sum(chance * value(rules, tree, gamma, *pair, 0, 0) for chance, *pair in pairs)
                for tree in policies[card]
            )
            for card, pairs in starts.items()
        )
        returns = Plan(graph, gamma).starts[0, 0]
        assert sum(gamma**n * each for n, each in enumerate(returns)) == pytest.approx(best)
    return sum(map(len, policies.values()))


@pytest.mark.parametrize(("episodes", "turns"), [(2, 1), (1, 2)])
@pytest.mark.parametrize("stop", ["success", "never"])
def test_no_policy_of_a_random_game_is_better(episodes: int, turns: int, stop: Any) -> None:
    for seed in range(10):
        check_against_every_policy(
            TrialRules(RandomGame(seed, drifts=seed % 2 == 1), turns, episodes, stop), (0.4, 1.0)
        )


@pytest.mark.parametrize(
    ("episodes", "turns", "stop"),
    [(2, 1, "success"), (1, 2, "success"), (1, 2, "never"), pytest.param(2, 1, "never", marks=pytest.mark.slow)],
)
def test_no_policy_of_a_game_that_begins_with_luck_is_better(episodes: int, turns: int, stop: Any) -> None:
    for seed in range(10):
        game = RandomDeals(seed, drifts=seed % 2 == 1)
        check_against_every_policy(TrialRules(game, turns, episodes, stop, game.timeout_reward), (0.4, 1.0))


def test_no_policy_of_a_small_expedition_is_better() -> None:
    """Two doors, a sign that errs and a prize that moves, three attempts; two rooms and a tower, two turns each."""
    doors = Model(2, 1.0, miss=0.1, scout=1, error=0.2, drift=0.1)
    assert check_against_every_policy(TrialRules(doors, 1, 3, "never"), (0.6,)) == 2187
    rooms = Model(2, 1.0, hours=2, search=1, scout=2)
    assert check_against_every_policy(TrialRules(rooms, 2, 2, "never"), (0.0, 0.5, 1.0)) == 80


def test_mirror_images_are_one_belief() -> None:
    """Naming beliefs of equal value alike changes how many there are, and no value."""

    class Plain:
        def __init__(self, model: Any) -> None:
            for name in ("worlds", "begin", "actions", "outcomes"):
                setattr(self, name, getattr(model, name))

    for model, turns, stop in ((MineModel(2, 4, 2), 4, "success"), (MineModel(3, 3, 1), 2, "never")):
        merged, plain = (
            BeliefGraph(TrialRules(each, turns, 2, stop), [list(model.worlds())]) for each in (model, Plain(model))
        )
        assert merged.beliefs < plain.beliefs / 2
        assert Plan(merged, 0.6).starts == pytest.approx(Plan(plain, 0.6).starts)


def test_minesweeper_by_hand() -> None:
    """1 x 2 with a mine: a coin is tossed once. 1 x 3: the middle shows 1 and leaves a guess; the ends show it all."""
    coin = mulligan.optimum("minesweeper", params={"rows": 1, "cols": 2, "mines": 1})
    assert coin.best.p == pytest.approx([1 / 2, 1, 1])
    # An end is safe in 2 of 3 boards: a 1 then means that the middle is the mine, a 0 opens both safe cells.
    three = mulligan.optimum("minesweeper", params={"rows": 1, "cols": 3, "mines": 1})
    assert three.best.p == pytest.approx([2 / 3, 1, 1])


def test_minesweeper_with_a_price_by_hand() -> None:
    """1 x 2 with a mine that costs 1.5: the toss is worth 1/2 - 3/4 = -1/4, and what it shows a win in half of all
    trials. It pays from -1/4 + γ/2 = 0 on; before, the game is ended each time."""
    params = {"rows": 1, "cols": 2, "mines": 1, "price": 1.5}
    far, near = (mulligan.optimum("minesweeper", params=params, gamma_traj=gamma) for gamma in (0.6, 0.4))
    assert far.threshold == pytest.approx(0.5)
    assert far.best.returns == pytest.approx([-1 / 4, 1 / 2, 0])
    assert far.best.p == pytest.approx([1 / 2, 1, 1])
    assert near.best.returns == near.myopic.returns == [0, 0, 0]
    assert near.best.p == [0, 0, 0]


def test_no_policy_of_a_small_minesweeper_with_a_price_is_better() -> None:
    coin = TrialRules(MineModel(1, 2, 1, price=1.5), 1, 3, "success")
    assert check_against_every_policy(coin, (0.0, 0.4, 0.6, 1.0)) == 23
    three = TrialRules(MineModel(1, 3, 1, price=1.0), 2, 2, "success")
    assert check_against_every_policy(three, (0.0, 0.5, 1.0)) == 358


def test_ties_of_the_myopic_player_are_broken_at_random() -> None:
    """3 mines on 3 x 3: what is best now may be better or worse for the next attempt."""
    optimum = mulligan.optimum("minesweeper", params={"rows": 3, "cols": 3, "mines": 3})
    assert optimum.threshold is None  # the best first attempt for its own sake is as good for the later ones
    assert optimum.best.p == pytest.approx([11 / 28, 5 / 6, 83 / 84])
    assert optimum.myopic.returns[0] == pytest.approx(optimum.best.returns[0])
    assert optimum.best.p[2] - 0.01 < optimum.myopic.p[2] < optimum.best.p[2] - 0.005


HIDDEN = {"bandit": "paying", "minesweeper": "mines", "expedition": "first_prize"}
GAMES: dict[str, tuple[str, dict[str, Any], float]] = {
    "bandit": ("bandit", {"arms": 8}, 1.0),
    "bandit, pulls": ("bandit", {"arms": 8, "turns": 2}, 0.6),
    "signpost": ("expedition", {"world": "signpost"}, 0.6),
    "signpost, myopic": ("expedition", {"world": "signpost", "view": "compact"}, 0.2),
    "lookout, myopic": ("expedition", {"world": "lookout"}, 0.1),
    "toolbox": ("expedition", {"world": "toolbox"}, 0.9),
    "minesweeper": ("minesweeper", {"rows": 3, "cols": 3, "mines": 2}, 1.0),
    "minesweeper, compact": ("minesweeper", {"rows": 2, "cols": 4, "mines": 3, "view": "compact"}, 0.6),
    "minesweeper, price": ("minesweeper", {"rows": 2, "cols": 3, "mines": 2, "price": 1.0, "view": "compact"}, 0.9),
    "minesweeper, some ended": ("minesweeper", {"rows": 3, "cols": 3, "mines": 2, "price": 2.0}, 0.1),
}


def rewards(trials: list[Trial]) -> list[tuple[float, ...]]:
    """[attempt, trial]; 0 where a trial had ended before."""
    assert not any(trial.failed for trial in trials)
    return list(itertools.zip_longest(*([e.reward for e in trial.episodes] for trial in trials), fillvalue=0.0))


@pytest.mark.parametrize("game", GAMES)
def test_the_optimal_player_earns_the_optimum(game: str) -> None:
    """Played in each world once: the mean is the expectation, without sampling error."""
    env, params, gamma_traj = GAMES[game]
    optimum = mulligan.optimum(env, params=params, gamma_traj=gamma_traj)
    tasks: dict[Any, Task] = {}
    for seed in itertools.count():
        task = mulligan.make_task(env, seed, params)
        tasks.setdefault(getattr(mulligan.make(task), HIDDEN[env]), task)
        if len(tasks) == len(optimum.graph.worlds):
            break
    policy = OptimalPolicy(TrialSettings(), gamma_traj)
    trials = [run_trial_sync(task, policy, memory="history") for task in tasks.values()]
    assert [statistics.mean(each) for each in rewards(trials)] == pytest.approx(optimum.best.returns)
    won = [statistics.mean(trial.solved_at is not None and trial.solved_at < k for trial in trials) for k in (1, 2, 3)]
    assert won == pytest.approx(optimum.best.p)


def test_the_optimal_player_earns_the_optimum_where_there_is_luck() -> None:
    """A tower that errs and a treasure that moves; the mean of 300 trials is right within four standard errors."""
    params = {"world": "camp", "trails": 2, "drift": 0.2, "error": 0.25}
    optimum = mulligan.optimum("expedition", params=params, gamma_traj=0.9)
    tasks = [mulligan.make_task("expedition", seed, params) for seed in range(300)]
    trials = [run_trial_sync(task, OptimalPolicy(TrialSettings(), 0.9), memory="history") for task in tasks]
    for values, expected in zip(rewards(trials), optimum.best.returns, strict=True):
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert statistics.mean(values) == pytest.approx(expected, abs=4 * error)
    for k, p in enumerate(optimum.best.p, 1):  # who has won once may lose later, and has solved it all the same
        solved = statistics.mean(trial.solved_at is not None and trial.solved_at < k for trial in trials)
        assert solved == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / len(trials)))


# Seat -> returns by hand. Against conservative, intermediate and aggressive, each 1/3, from six deals: fractions of 18.
KUHN = {1: ([1 / 18, 5 / 27, 19 / 81], 5 / 18), 2: ([1 / 6, 2 / 9, 20 / 81], 5 / 18)}


@pytest.mark.parametrize("seat", KUHN)
def test_the_room_of_kuhn_poker(seat: int) -> None:
    returns, clairvoyant = KUHN[seat]
    params = {"opponent": "conservative,intermediate,aggressive", "seat": seat}
    optimum = mulligan.optimum("kuhn", params=params)
    assert optimum.alone.returns == pytest.approx(returns[:1])
    assert optimum.best.returns == pytest.approx(returns)
    assert optimum.clairvoyant.returns == pytest.approx([clairvoyant])


def test_all_tasks_of_a_pool_have_one_optimum() -> None:
    params = {"opponent": "conservative,intermediate,aggressive", "seat": 2}
    tasks = [mulligan.make_task("kuhn", seed, params) for seed in range(12)]
    assert len({task.opponent for task in tasks}) == 3
    assert len({id(optimum_of(task, TrialSettings())) for task in tasks}) == 1


def test_the_room_of_kuhn_poker_with_soft_habits_is_small() -> None:
    params = {"opponent": "random,soft-conservative,soft-aggressive,soft-intermediate", "seat": 1}
    optimum = mulligan.optimum("kuhn", params=params)
    assert optimum.best.value() == pytest.approx(0.2381, abs=1e-4)
    assert optimum.clairvoyant.value() == pytest.approx(0.2)


def test_an_opponent_that_changes_is_expected_to() -> None:
    """always-pass folds to every bet: 1 chip. always-bet calls them all: 2 chips with K, 0 on average with Q; with J it
    is best to pass and fold, -1: a third of a chip in all."""
    optimum = mulligan.optimum("kuhn", params={"opponent": "always-pass>always-bet@3", "seat": 1}, episodes=4)
    assert optimum.best.returns == pytest.approx([1, 1, 1 / 3, 1 / 3])


def test_the_optimal_player_earns_the_optimum_in_poker() -> None:
    """The mean of 400 trials is right within four standard errors."""
    params = {"opponent": "conservative,intermediate,aggressive>conservative", "seat": 2}
    optimum = mulligan.optimum("kuhn", params=params)
    tasks = [mulligan.make_task("kuhn", seed, params) for seed in range(400)]
    trials = [run_trial_sync(task, OptimalPolicy(TrialSettings(), 1.0), memory="history") for task in tasks]
    for values, expected in zip(rewards(trials), optimum.best.returns, strict=True):
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert statistics.mean(values) == pytest.approx(expected, abs=4 * error)


def test_a_match_is_worth_its_hands() -> None:
    """Matches of two hands, hands by themselves: nothing is forgotten between them either way."""
    params = {"opponent": "conservative,intermediate,aggressive", "seat": 1}
    hands = mulligan.optimum("kuhn", params=params, episodes=4).best.returns
    matches = mulligan.optimum("kuhn", params={**params, "hands": 2}, episodes=2)
    assert matches.best.returns == pytest.approx([hands[0] + hands[1], hands[2] + hands[3]])
    assert matches.clairvoyant.value() == pytest.approx(2 * 5 / 18)
    for seed in range(20):  # what happens is what the model expects
        task = mulligan.make_task("kuhn", seed, {**params, "seat": 1 + seed % 2, "hands": 2})
        trial = run_trial_sync(task, OptimalPolicy(TrialSettings()), memory="history")
        assert not trial.failed


def test_scripted_players_lie_between_myopic_and_clairvoyant() -> None:
    params = {"world": "camp"}
    optimum = mulligan.optimum("expedition", params=params)
    totals = {}
    for kind, recall in (("expert", 1.0), ("explorer", 1.0), ("omniscient", 0.0)):
        tasks = [mulligan.make_task("expedition", seed, params) for seed in range(60)]
        policy = ExpertPolicy(kind=kind, recall=recall)
        trials = [run_trial_sync(task, policy, memory="history") for task in tasks]
        totals[kind] = sum(map(statistics.mean, rewards(trials)))
    assert totals["expert"] == pytest.approx(optimum.myopic.value())  # berries for ever
    assert totals["omniscient"] == pytest.approx(3 * optimum.clairvoyant.value())  # the nearest way, then berries
    assert totals["expert"] < totals["explorer"] < optimum.best.value() + 0.2 < totals["omniscient"]


def test_evaluations_tell_the_share_of_the_optimum() -> None:
    """The known tool earns 0.3 in each attempt; the optimum is 0.25 / 0.5 / 0.75, 1.5 in all."""
    options: dict[str, Any] = {"params": {"world": "toolbox"}, "tasks": 20}
    result = evaluate("expedition", "expert", **options)
    (row,) = result.to_dict()["optimum"]
    assert row["returns"] == pytest.approx([0.25, 0.5, 0.75])
    assert row["share_of_optimum"] == pytest.approx(0.9 / 1.5)
    assert row["share_by_attempt"] == pytest.approx([1.2, 0.6, 0.4])
    assert row["share_half_width"] == pytest.approx(0.0, abs=1e-9)
    assert "optimum (exact)" in [
        str(getattr(cell, "renderable", cell)) for cell in eval_table(result.to_dict()).columns[0].cells
    ]
    assert "Share of the optimum reached: 60.0 ±0.0 % in all; by episode 120.0 / 60.0 / 40.0" in footnotes(
        result.to_dict()
    )
    # An agent trained with γ_traj = 0.6 may prefer now: 0.3 · 1.96 of 0.25 + 0.6 · 0.5 + 0.36 · 0.75 = 0.82.
    policy = ExpertPolicy()
    policy.gamma_traj = 0.6  # type: ignore[attr-defined]
    rows = evaluate("expedition", policy, **options).optimum
    assert [each["gamma_traj"] for each in rows] == [1.0, 0.6]
    assert rows[1]["share_of_optimum"] == pytest.approx(0.3 * 1.96 / 0.82)
    unsolved: dict[str, Any] = {"tasks": 4, "controls": ()}
    assert evaluate("minesweeper", "expert", **unsolved).optimum == []  # too large to be solved on the side
    assert evaluate("tictactoe", "expert", **unsolved, params={"opponent": "random"}).optimum == []
    assert evaluate("bandit", "expert", **unsolved, related=True).optimum == []


def test_the_optimum_of_mixed_tasks_is_their_mean() -> None:
    """Of tasks with 2 to 4 doors each has its own optimum at γ_traj = 0: (1 + 0.1 · (doors − 1)) / doors at first."""
    result = evaluate("expedition", "optimal:0", params={"world": "signpost", "doors": "2-4"}, tasks=40, controls=())
    doors = [trial.task.integer("doors") for trial in result.trials]
    assert len(set(doors)) == 3
    first = statistics.mean((1 + 0.1 * (each - 1)) / each for each in doors)
    assert result.optimum[1]["returns"][0] == pytest.approx(first)


def test_without_memory_each_attempt_is_the_only_one() -> None:
    result = evaluate("expedition", "optimal", params={"world": "signpost"}, tasks=8, memory="none", room=False)
    assert all(turn.reward >= 0.1 for trial in result.trials for each in trial.episodes for turn in each.turns)


def test_the_command_prints_the_optimum(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--env.world", "lookout", "--tasks", "10", "--run", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="0"):
        main(["eval", "expedition", "--policy", "optimal:0.6", *where])
    assert read_rows([tmp_path / "run"])[0]["share_of_optimum"] == pytest.approx(1.0)
    printed = capsys.readouterr().out
    assert "optimum (exact): the most that can be expected of any agent, returns 0.000 / 1.000 / 1.000" in printed
    assert (
        "Share of the optimum reached: 100.0 ±0.0 % in all, weighed by γ_traj 0.6; by episode – / 100.0 / 100.0"
        in printed
    )


def test_what_cannot_be_solved_is_refused_with_its_size(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    task = mulligan.make_task("minesweeper", params={"rows": 4, "cols": 4})
    with pytest.raises(TooLarge, match=r"minesweeper/4x4/3 is too large .* 560 worlds, \d+ beliefs .* 20,000 outcomes"):
        optimum_of(task, TrialSettings(), most=(1_000, 20_000))
    with pytest.raises(TooLarge, match=r"more than 500 worlds"):
        optimum_of(task, TrialSettings(), most=(500, 20_000))
    huge = ["--env.rows", "9", "--env.cols", "9", "--env.mines", "10", "--no-room", "--run", str(tmp_path / "run")]
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "minesweeper", "--policy", "optimal", "--tasks", "2", *huge])
    assert "minesweeper/9x9/10 is too large for an exact optimum: more than 1,000 worlds" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ParameterError, match=r"gamma_traj must be from 0 to 1 \(got 1.5\)"):
        mulligan.optimum("bandit", gamma_traj=1.5)
    with pytest.raises(UsageError, match="plans for one task in all episodes; leave out --related"):
        evaluate("bandit", "optimal", tasks=4, related=True)
    with pytest.raises(ParameterError, match=r"optimal\[:GAMMA_TRAJ\] with a number \(got 'optimal:x'\)"):
        evaluate("bandit", "optimal:x", tasks=1)
    with pytest.raises(UsageError, match="tictactoe has no model"):
        evaluate("tictactoe", "optimal", tasks=1, room=False)
    with pytest.raises(UsageError, match="restart=fresh"):
        evaluate("expedition", "optimal", tasks=1, room=False, restart="replay")


class Hurried(Bandit):
    """Pulling in vain costs something when time is up."""

    timeout_reward: ClassVar[float] = -1.0


def test_what_running_out_of_turns_costs_is_part_of_the_optimum() -> None:
    """One of four arms pays 1, and each of the others costs 1: (1 - 3) / 4, then (1 - 2) / 4 of all trials, and 0."""
    assert mulligan.optimum(Hurried).best.returns == pytest.approx([-1 / 2, -1 / 4, 0])


class Lying(RandomGame):
    """A model that is not a probability, or lets actions tell what the agent cannot know."""

    def outcomes(self, world: str, state: int, action: int) -> list[Outcome]:
        return [Outcome(0.9, state, "x")]


class Telling(RandomGame):
    def begin(self, world: str) -> int:
        return int(world == "b")

    def actions(self, state: int) -> tuple[int, ...]:  # type: ignore[override]
        return (0, 1)[: 1 + state]


@pytest.mark.parametrize(("kind", "message"), [(Lying, "probability 0.9 in all"), (Telling, "which look alike")])
def test_wrong_models_are_refused(kind: type[RandomGame], message: str) -> None:
    game = kind(0, drifts=False)
    with pytest.raises(ContractBroken, match=message):
        BeliefGraph(TrialRules(game, 1, 2, "never"), [game.worlds()])


class Generous(Bandit):
    """A bandit whose model promises twice what it pays."""

    def model(self) -> Any:
        class Twice(BanditModel):
            def outcomes(self, world: int, state: None, action: int) -> list[Outcome]:
                return [each._replace(reward=2 * each.reward) for each in super().outcomes(world, state, action)]

        return Twice(self.arms)


def test_the_contract_holds_a_model_to_its_environment() -> None:
    for env, params in (
        ("bandit", {}),
        ("minesweeper", {"rows": 3, "cols": 3}),
        ("minesweeper", {"rows": 3, "cols": 3, "price": 0.5}),
        ("expedition", {"world": "camp"}),
        ("kuhn", {"opponent": "conservative,cfr>aggressive"}),
    ):
        mulligan.check_env(env, params)
    with pytest.raises(ContractBroken, match=r"model\(\) does not expect what '<action>\d</action>' led to"):
        mulligan.check_env(Generous)


def test_a_belief_is_the_same_whichever_way_led_to_it() -> None:
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1: beliefs of many worlds differed in the last digit, and the player did not
    find them in its plan."""
    rules = TrialRules(RandomGame(0, drifts=False), 1, 2, "never")
    worlds = [(0.1 * number, str(number)) for number in range(1, 200)]
    assert rules.start(worlds) == rules.start(worlds[::-1])


class Coins:
    """One of three coins is thrown, one throw an attempt."""

    def worlds(self) -> list[tuple[float, float]]:
        return [(0.3, 0.1), (0.1, 0.35), (0.6, 0.7)]

    def begin(self, world: float) -> int:
        return 0

    def actions(self, state: int) -> tuple[int]:
        return (0,)

    def outcomes(self, world: float, state: int, action: int) -> list[Outcome]:
        return [Outcome(world, 0, "heads", 1.0, True, True), Outcome(1 - world, 0, "tails", 0.0, True)]


def test_what_was_seen_in_another_order_is_the_same_belief() -> None:
    """Before attempt n there are n beliefs, from no heads to n - 1: 1 + 2 + ... + 6."""
    graph = BeliefGraph(TrialRules(Coins(), 1, 6, "never"), [tuple(Coins().worlds())])
    assert graph.beliefs == 21


def test_a_player_goes_on_from_the_belief_that_was_looked_at() -> None:
    """Reached in another way its chances differ in the last digit, and what follows might not be in the plan."""
    plan = Plan(BeliefGraph(TrialRules(Coins(), 1, 3, "never"), [tuple(Coins().worlds())]), 1.0)
    start = plan.graph.rules.start(plan.graph.worlds)
    other = tuple((world, state, math.nextafter(chance, 1.0)) for world, state, chance in start)
    assert other != start
    assert plan.action(other, 0, 0) is plan.action(start, 0, 0)
