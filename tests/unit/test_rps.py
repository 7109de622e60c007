"""Repeated rock-paper-scissors: habits by hand, bots, the exact room, the scripted players."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise

import pytest

import mulligan
from mulligan.envs.repeated.habits import Habit
from mulligan.envs.rps.bots import bot_names
from mulligan.envs.rps.env import RockPaperScissors
from mulligan.envs.rps.guessers import guesser
from mulligan.envs.rps.habits import DRAWN, MOVES, SEEN, UNSEEN, VALIDATION
from mulligan.envs.rps.wide import wide_habit
from mulligan.errors import MulliganError, StopReason, UnknownName, UsageError
from mulligan.eval.optimal import OptimalPolicy
from mulligan.policy.scripted import ExpertPolicy, RandomPolicy
from mulligan.trial.runner import run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import ParamValue

LETTERS = "rps"


def throws_of(opponent: str, agents: str, seed: int = 0, chance: int = 0) -> str:
    """What the opponent throws while the agent throws these."""
    env = mulligan.make("rps", seed=seed, params={"opponent": opponent, "throws": len(agents)})
    env.reset(chance)
    for letter in agents:
        assert env.step(f"<action>{MOVES[LETTERS.index(letter)]}</action>").valid
    return "".join(LETTERS[theirs] for _, theirs in env.played)


@pytest.mark.parametrize(
    ("habit", "expected"),
    [
        ("copies", "rpsrps"),
        ("beats", "psrpsr"),
        ("yields", "srpsrp"),
    ],
)
def test_reactive_habits_answer_the_throw_before(habit, expected):
    agents = "rpsrps"
    assert throws_of(habit, agents + "r")[1:] == expected


def test_cycles_go_on_from_a_first_throw_that_is_drawn():
    firsts = set()
    for seed in range(20):
        up, down, same = (throws_of(name, "rrrr", seed) for name in ("rising", "falling", "stays"))
        firsts.add(up[0])
        assert up in "rpsrps"
        assert down in "rsprsp"
        assert same == same[0] * 4
    assert firsts == {"r", "p", "s"}


def test_win_stay_repeats_what_won():
    """Against rock: paper wins and stays; rock draws and goes on to paper; scissors lose and go on to rock, paper."""
    assert {throws_of("win-stay", "rrrr", seed) for seed in range(20)} == {"pppp", "rppp", "srpp"}
    assert {throws_of("lose-stay", "rrrr", seed) for seed in range(20)} == {"ssss", "psss", "rpss"}


def test_every_habit_has_its_chances():
    """Of 3,000 throws each share is within 4 standard errors (0.036) of its chance."""
    for name, chances in (
        ("mostly-rock", (0.8, 0.1, 0.1)),
        ("often-paper", (0.2, 0.6, 0.2)),
        ("no-rock", (0, 0.5, 0.5)),
    ):
        counts = Counter("".join(throws_of(name, "r" * 100, seed) for seed in range(30)))
        assert [counts[letter] / 3000 for letter in LETTERS] == pytest.approx(chances, abs=0.036)
    answers = Counter("".join(throws_of("mostly-copies", "r" * 100, seed)[1:] for seed in range(30)))
    assert answers["r"] / 2970 == pytest.approx(0.8, abs=0.03)


def test_habits_of_training_and_of_evaluation_are_different_ones():
    assert not set(SEEN) & set(UNSEEN)
    drawn = {mulligan.make_task("rps", seed=seed).opponent for seed in range(100)}
    assert drawn == set(SEEN)
    unseen = {mulligan.make_task("rps", seed=seed, params={"opponent": "unseen"}).opponent for seed in range(200)}
    assert unseen == set(UNSEEN)


def test_drawn_habits_go_by_no_rule_that_is_kept_for_evaluation():
    def rule(habit):
        return [habit.after(None, own, agents) for own in range(3) for agents in range(3)]

    def closest(one, other):
        """The largest difference of a chance, which two habits of the same rule have everywhere."""
        return max(abs(a - b) for a, b in zip(one.chances(None), other.chances(None), strict=True))

    kept = [rule(UNSEEN[name]) for name in ("stays", "win-stay", "lose-stay")]
    drawn = {**DRAWN, **VALIDATION}
    for name, habit in drawn.items():
        assert rule(habit) not in kept, name
        if None in rule(habit):  # it likes a throw, whatever was thrown before
            near = [n for n in UNSEEN if rule(UNSEEN[n]) == rule(habit) and closest(habit, UNSEEN[n]) < 0.08]
            assert not near, name
    assert len({str((rule(habit), habit.chances(0))) for habit in drawn.values()}) == len(drawn)


def test_a_group_may_have_a_weight():
    weights = dict(RockPaperScissors.pool("seen:8,drawn,win-stay:2"))
    assert [weights[name] for name in ("copies", "drawn-7", "win-stay")] == [8.0, 1.0, 2.0]
    assert len(weights) == len(SEEN) + len(DRAWN) + 1


def test_what_a_match_pays_and_when_it_is_drawn():
    """Against rock, rock, rock: paper, scissors, rock is +1 -1 0; a third of a point each, in all exactly a draw."""
    env = mulligan.make("rps", seed=4, params={"opponent": "stays", "throws": 3})
    env.reset()
    stays = env.coming()
    replies = [MOVES[(stays + shift) % 3] for shift in (1, 2, 0)]
    steps = [env.step(f"<action>{reply}</action>") for reply in replies]
    assert [step.reward for step in steps] == pytest.approx([1 / 3, -1 / 3, 0])
    assert [step.done for step in steps] == [False, False, True]
    assert (steps[-1].won, env.drawn, env.outcome()) == (False, True, "drawn")


def test_a_trial_tells_won_drawn_and_lost():
    """0.1 + 0.1 + 0.1 - 0.1 - 0.1 - 0.1 is not 0, and ten throws of that kind are a draw all the same."""
    stops = set()
    for seed in range(60):
        task = mulligan.make_task("rps", seed=seed, params={"opponent": "mostly-rock"})
        trial = run_trial_sync(task, RandomPolicy())
        for episode in trial.episodes:
            points = round(episode.reward * 10)
            outcome = "won" if points > 0 else "lost" if points < 0 else "drawn"
            assert episode.stop.value == outcome
            stops.add(outcome)
    assert stops == {"won", "lost", "drawn"}


def test_an_opponent_that_changes_does_so_at_its_match():
    assert [throws_of("stays>copies@2", "rps", 1, chance)[1:] == "rp" for chance in (0, 1, 2)] == [False, True, True]


# Rooms


def test_the_room_for_adaptation():
    """8 habits: without memory 0; of the best play, .50 at throw 3 and .87 at throw 6; 7.1 / 8 for who knows the habit:
    3 biased ones pay .8 - .1, and the other 5 always 1, once they have thrown."""
    totals, clairvoyant = [0.0], [0.0]
    for throws in range(1, 7):
        optimum = mulligan.optimum("rps", params={"throws": throws}, episodes=1)
        totals.append(throws * optimum.best.returns[0])
        clairvoyant.append(throws * optimum.clairvoyant.returns[0])
    by_throw = [after - before for before, after in pairwise(totals)]
    assert by_throw == pytest.approx([0, 0.059, 0.502, 0.722, 0.858, 0.873], abs=0.001)
    known = [after - before for before, after in pairwise(clairvoyant)]
    assert known == pytest.approx([3 * 0.7 / 8] + [(3 * 0.7 + 5) / 8] * 5)


def test_the_optimal_player_gets_what_was_computed():
    params = {"throws": 4, "opponent": "mostly-rock,rising,copies:2"}
    settings = TrialSettings(episodes=2, memory="history")
    best = mulligan.optimum("rps", params=params, episodes=2).best
    tasks = [mulligan.make_task("rps", seed=seed, params=params) for seed in range(400)]
    trials = [run_trial_sync(task, OptimalPolicy(settings), settings=settings) for task in tasks]
    for n in range(2):
        for expected, values in (
            (best.returns[n], [trial.episodes[n].reward for trial in trials]),
            (best.won[n], [float(trial.episodes[n].won) for trial in trials]),
        ):
            error = statistics.stdev(values) / len(values) ** 0.5
            assert abs(statistics.mean(values) - expected) < 3.5 * error + 1e-9, (n, expected)


def test_a_hidden_switch_is_part_of_the_optimum():
    """Rising, then falling from the second, third or fourth match on. A throw that is known wins; the first is not."""
    known = mulligan.optimum("rps", params={"throws": 3, "opponent": "rising>falling@2"}, episodes=3)
    assert known.best.returns == pytest.approx([2 / 3] * 3)
    hidden = mulligan.optimum("rps", params={"throws": 3, "opponent": "rising>falling"}, episodes=3)
    assert hidden.best.returns[0] == pytest.approx(2 / 3)
    # At the second match a third of them has changed. After rock, paper is likelier than scissors: scissors win 2/3 and
    # draw 1/3. The third throw always wins.
    assert hidden.best.returns[1] == pytest.approx((2 / 3 + 1) / 3)


def mean_return(player: str, recall: float, opponent: str, pool: str = "", episode: int = 1) -> float:
    values = []
    for seed in range(150):
        task = mulligan.make_task("rps", seed=seed, params={"opponent": opponent, "pool": pool})
        trial = run_trial_sync(task, ExpertPolicy(1.0, recall, kind=player), episodes=2, memory="history")
        values.append(trial.episodes[episode].reward)
    return statistics.mean(values)


@pytest.mark.slow
def test_the_expert_profits_from_what_earlier_matches_showed():
    """At 10 throws: .654 for the best play of a first match, .825 for who knows the opponent."""
    assert mean_return("expert", 0.0, "seen") == pytest.approx(0.65, abs=0.06)
    assert mean_return("expert", 1.0, "seen") == pytest.approx(0.82, abs=0.04)
    assert mean_return("omniscient", 0.0, "seen", episode=0) == pytest.approx(0.825, abs=0.04)


@pytest.mark.slow
def test_the_expert_is_not_lost_where_the_opponent_is_none_that_it_expects():
    assert mean_return("expert", 0.0, "stays", pool="seen") > 0.5
    assert mean_return("expert", 1.0, "mostly-copies", pool="seen") > 0.5


# Bots


def test_every_bot_plays_and_plays_the_same_again():
    pytest.importorskip("pyspiel")
    names = bot_names()
    assert len(names) == 43
    agents = "rpssrprrps" * 3
    first = {name: throws_of(f"bot:{name}", agents, seed=5) for name in names}
    assert {name: throws_of(f"bot:{name}", agents, seed=5) for name in reversed(names)} == first
    assert first["rockbot"] == "r" * 30
    assert first["rotatebot"] == "rps" * 10
    assert first["copybot"][1:] == agents[:-1].translate(str.maketrans("rps", "psr"))
    assert throws_of("bot:randbot", agents, seed=5) != throws_of("bot:randbot", agents, seed=5, chance=1)


def test_bots_do_not_disturb_each_other():
    """All of them draw from one stream of the process."""
    pytest.importorskip("pyspiel")
    alone = throws_of("bot:randbot", "r" * 20, seed=1)
    one, other = (mulligan.make("rps", seed=seed, params={"opponent": "bot:randbot", "throws": 20}) for seed in (1, 2))
    for _ in range(20):
        for env in (other, one):
            env.step("<action>rock</action>")
    assert "".join(LETTERS[theirs] for _, theirs in one.played) == alone


@pytest.mark.slow
def test_a_tournament_match_has_a_thousand_throws():
    pytest.importorskip("pyspiel")
    task = mulligan.make_task("rps", params={"opponent": "bot:greenberg", "throws": 1000})
    assert task.turns == 1000
    trial = run_trial_sync(task, ExpertPolicy(1.0, 1.0), episodes=2, memory="history")
    assert [len(episode.turns) for episode in trial.episodes] == [1000, 1000]
    assert max(len(turn.state_key) for turn in trial.episodes[0].turns) < 200


def test_the_omniscient_player_sees_a_bots_throw():
    pytest.importorskip("pyspiel")
    task = mulligan.make_task("rps", params={"opponent": "bot:randbot"})
    trial = run_trial_sync(task, ExpertPolicy(1.0, kind="omniscient"), episodes=1)
    assert trial.episodes[0].reward == pytest.approx(1.0)


def test_bots_have_no_model():
    pytest.importorskip("pyspiel")
    with pytest.raises(UsageError, match="bot:greenberg has no model"):
        mulligan.optimum("rps", params={"opponent": "bot:greenberg,copies"})
    assert mulligan.evaluate("rps", "expert", params={"opponent": "bot:pibot"}, tasks=2, controls=()).optimum == []


# Opponents that remember more, and the player that counts


@pytest.mark.parametrize("number", range(0, 250, 5))
def test_a_pattern_is_repeated_whatever_the_agent_throws(number):
    habit = wide_habit(number)
    length = int(habit.words.split()[1])
    intended = intentions(habit, [(0, throw % 3) for throw in range(3 * length)])[: 3 * length]
    assert None not in intended
    assert intended == intended[:length] * 3


@pytest.mark.parametrize("number", range(1, 250, 5))
def test_a_rule_of_two_goes_by_the_last_two_throws_that_it_names(number):
    habit = wide_habit(number)
    reads = {
        "goes by both last throws": lambda rounds: rounds[-1],
        "goes by your last two throws": lambda rounds: (rounds[-2][1], rounds[-1][1]),
        "goes by its own last two throws": lambda rounds: (rounds[-2][0], rounds[-1][0]),
    }[habit.words]
    rounds = [(number // 3 % 3, number % 3) for number in (0, 4, 7, 2, 8, 1, 3, 5, 6, 0, 8, 4, 3, 1, 7, 5, 2, 6, 0)]
    rule: dict[tuple[int, int], set[int | None]] = {}
    for played, intended in enumerate(intentions(habit, rounds)[2:], 2):
        rule.setdefault(reads(rounds[:played]), set()).add(intended)
    assert all(len(throws) == 1 for throws in rule.values())
    assert len(set.union(*rule.values())) > 1 or len(rule) < 4  # nine draws of three throws are hardly ever one alone


@pytest.mark.parametrize("number", range(2, 250, 5))
def test_a_counting_opponent_answers_the_most_frequent_throw(number):
    habit = wide_habit(number)
    after_rock, after_paper = (intentions(habit, [(0, throw)] * 30)[-1] for throw in (0, 1))
    assert after_rock is not None
    assert after_paper == (after_rock + 1) % 3
    assert intentions(habit, [(0, 0)] * 30 + [(0, 1)])[-1] == after_rock  # it counts three throws at the least


@pytest.mark.parametrize("number", range(3, 250, 5))
def test_a_guessing_opponent_answers_what_has_followed(number):
    """Rock comes last in both cycles; after it comes paper in the one, and scissors in the other."""
    habit = wide_habit(number)
    rising, falling = (intentions(habit, [(0, step * count % 3) for count in range(1, 31)])[-1] for step in (1, -1))
    assert rising is not None
    assert falling == (rising + 1) % 3


def test_a_changing_opponent_goes_by_two_rules_in_turn():
    parts = []
    for number in range(4, 250, 5):
        habit = wide_habit(number)
        period = int(habit.words.removeprefix("goes by two rules in turn, ").split()[0])
        intended = intentions(habit, [(0, 0)] * 3 * period)
        first, second, third = (set(intended[start : start + period][1:]) for start in (0, period, 2 * period))
        assert len(first) == len(second) == 1
        assert first == third
        parts.append((first, second))
    assert sum(first != second for first, second in parts) > len(parts) / 2


def intentions(habit: Habit, rounds: list[tuple[int, int]]) -> list[int | None]:
    """What the habit is likeliest to throw before each of the rounds and after them; None: anything."""
    state, intended = habit.start, []
    for own, agents in [*rounds, (0, 0)]:
        chances = habit.chances(state)
        intended.append(None if max(chances) < 0.5 else chances.index(max(chances)))
        state = habit.after(state, own, agents)
    return intended


@pytest.mark.parametrize("number", range(10))
def test_a_guesser_begins_by_chance_and_sees_through_a_throw_that_is_repeated(number):
    habit = guesser(number)
    assert habit.chances(habit.start) == pytest.approx([1 / 3] * 3)
    assert throws_of(f"guesser-{number}", "r" * 80)[40:].count("p") > 28


def test_guessers_win_from_who_plays_the_best_answer_to_what_it_counted_and_nothing_from_chance():
    params: dict[str, ParamValue] = {"opponent": "guessers", "throws": 60}
    counting, chance = (
        mulligan.evaluate("rps", policy, params=params, tasks=24, episodes=1, controls=(), room=False).main.returns[0]
        for policy in ("player:counting", "random")
    )
    assert counting < -0.03 < chance


def test_wide_habits_have_no_exact_values():
    with pytest.raises(UsageError, match="wide-0 has no model"):
        mulligan.optimum("rps", params={"opponent": "wide-0", "throws": 3})
    result = mulligan.evaluate("rps", "player:counting", params={"opponent": "wide-validation"}, tasks=2, controls=())
    assert result.ceilings is not None
    assert "has no model" in result.ceilings["left_out"]


@pytest.mark.parametrize(("opponent", "least"), [("rising", 0.8), ("copies", 0.8), ("mostly-rock", 0.5)])
def test_the_counting_player_finds_habits_out_that_it_does_not_know(opponent, least):
    task = mulligan.make_task("rps", seed=3, params={"opponent": opponent, "throws": 60})
    trial = run_trial_sync(task, ExpertPolicy(1.0, kind="counting"), episodes=1)
    assert trial.episodes[0].reward > least


def test_the_counting_player_remembers_earlier_matches_with_recall_alone():
    def first_throws(recall: float) -> float:
        tasks = [mulligan.make_task("rps", seed=seed, params={"opponent": "mostly-rock"}) for seed in range(30)]
        trials = [run_trial_sync(task, ExpertPolicy(1.0, recall, kind="counting"), memory="history") for task in tasks]
        return sum(trial.episodes[2].turns[0].reward for trial in trials) / 30 * 10

    assert first_throws(1.0) > 0.4 > first_throws(0.0)  # 0.7 against rock 8 times in 10, and 0 for who knows nothing


# What is seen and written


def test_a_reflection_tells_what_was_seen_and_how_it_ended():
    task = mulligan.make_task("rps", seed=2, params={"opponent": "copies", "pool": "seen"})
    trial = run_trial_sync(task, ExpertPolicy(1.0, 1.0), episodes=2, memory="reflection")
    first = trial.episodes[0]
    assert first.stop is StopReason.WON
    assert first.reflection.fields["outcome"] == "won"
    assert "it throws what you threw last" in first.reflection.fields["plan"]
    assert "copies" not in first.reflection.text


def test_compact_rounds_are_one_token_each():
    nano = pytest.importorskip("mulligan.models.nano")
    env = mulligan.make("rps", seed=1, params={"view": "compact", "opponent": "copies"})
    env.reset()
    for letter in "abcabcabca":
        step = env.step(f"<action>{letter}</action>")
    tokenize = nano.nano_tokenizer().tokenize
    assert len(tokenize(step.observation)) == 2
    memory = env.digest(None)
    assert len(tokenize(memory)) == 11  # ten throws and how it ended
    assert memory.split()[1:4] == [f"a{env.played[0][1] + 1}=1", "b1=2", "c2=3"]


def test_invalid_replies_cost_a_turn_and_nothing_else():
    trial = run_trial_sync(mulligan.make_task("rps"), lambda messages: "<action>lizard</action>", episodes=1)
    assert trial.episodes[0].stop is StopReason.TURN_LIMIT
    assert trial.episodes[0].reward == 0


# What goes wrong


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ({"chances": lambda state: [1, 0, 0] if state < 2 else 1 / 0}, "broken raised ZeroDivisionError"),
        ({"chances": lambda state: [1, 0, 0] if state < 2 else [0, 0, 0, 1]}, "broken played 3, which is no move"),
        ({"after": lambda state, own, agents: state / 0}, "broken raised ZeroDivisionError"),
    ],
)
def test_an_opponent_that_fails_forfeits_the_episode(monkeypatch, fault, complaint):
    sound = Habit("is broken", 0, lambda state: [1, 0, 0], lambda state, own, agents: state + 1)
    broken = sound._replace(**fault)
    monkeypatch.setattr(RockPaperScissors, "habits", {"broken": broken})
    task = mulligan.make_task("rps", params={"opponent": "broken"})
    trial = run_trial_sync(task, lambda messages: "<action>paper</action>")
    assert [episode.stop for episode in trial.episodes] == [StopReason.OPPONENT_FAILED]
    assert complaint in trial.episodes[0].error
    assert trial.failed  # so that training leaves it out


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"opponent": "copycat"}, "unknown opponent of rps 'copycat'"),
        ({"opponent": "copies:0,beats:0"}, "must have a weight above 0"),
        ({"pool": "nobody"}, "unknown opponent of rps 'nobody'"),
        ({"throws": 0}, "throws must be 1 to 1000"),
        ({"throws": 1001}, "throws must be 1 to 1000"),
        ({"view": "cells"}, "unknown rps view 'cells'"),
        ({"opponent": "copies>nobody@2"}, "unknown opponent of rps 'nobody'"),
    ],
)
def test_bad_input_is_one_line(params, complaint):
    with pytest.raises(MulliganError) as raised:
        mulligan.make_task("rps", params=params)
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_bot_offers_the_nearest():
    pytest.importorskip("pyspiel")
    with pytest.raises(UnknownName, match="did you mean 'greenberg'"):
        mulligan.make_task("rps", params={"opponent": "bot:greenburg"})


@pytest.mark.parametrize(
    "params",
    [{}, {"view": "compact", "opponent": "unseen"}, {"opponent": "copies>beats,rising:2"}, {"opponent": "bot:boom"}],
    ids=str,
)
def test_keeps_the_contract(params):
    if "bot" in params.get("opponent", ""):
        pytest.importorskip("pyspiel")
    mulligan.check_env("rps", params=params)
