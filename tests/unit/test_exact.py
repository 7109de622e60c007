"""Hands scored by what was to be expected: the values by another way, the very prompts, sampled means, a real model."""

from __future__ import annotations

import asyncio
import math
import random
import re
from statistics import mean, stdev

import pytest

import mulligan
from gamblers import BETS, MAGE, Gambler
from mulligan.eval.exact import MOST_OTHER
from mulligan.eval.rooms import value_against
from mulligan.report.tables import eval_table, footnotes
from mulligan.types import Sampling

pytest.importorskip("pyspiel")


def evaluate(policy, env="kuhn", **options):
    given = {"params": {"opponent": MAGE}, "tasks": 24, "memory": "history", "controls": (), "room": False}
    return mulligan.evaluate(env, policy, **{**given, **options})


def test_hands_are_worth_what_the_policys_table_is():
    """Against the table of its chances, walked through by `eval.rooms`; from the second hand on it bets always."""
    result = evaluate(Gambler())
    states = [f"{card}{betting}" for card in range(3) for betting in ("", "p", "b", "pb")]
    tables = [
        {state: {0: 1 - bets["JQK"[int(state[0])]], 1: bets["JQK"[int(state[0])]]} for state in states}
        for bets in (BETS, dict.fromkeys("JQK", 1.0))
    ]
    for trial in result.trials:
        values = [value_against("kuhn_poker", table, trial.task.seat, trial.task.opponent) for table in tables]
        assert [episode.expected for episode in trial.episodes] == pytest.approx([values[0], values[1], values[1]])
    assert result.main.exact == [24, 24, 24]
    assert result.main.returns[2] == pytest.approx(mean(trial.episodes[2].expected for trial in result.trials))
    assert result.main.outcomes[5] == [episode.expected for episode in result.trials[5].episodes]


@pytest.mark.parametrize("style", ["plain", "bare", "react"])
@pytest.mark.parametrize(
    ("env", "opponent"), [("kuhn", MAGE), pytest.param("leduc", "caller,random", marks=pytest.mark.slow)]
)
def test_what_is_weighed_is_what_the_agent_is_shown(env, opponent, style):
    """Every prompt of the trials is one of those whose replies were weighed, word for word."""
    policy = Gambler(dict.fromkeys("JQK", 0.4), adapts=False)
    evaluate(policy, env, params={"opponent": opponent}, tasks=6, style=style, episodes=2, memory="both")
    assert any(message["role"] == "assistant" for messages in policy.asked for message in messages)
    assert all(messages in policy.weighed for messages in policy.asked)


def test_exact_and_sampled_means_agree():
    result = evaluate(Gambler(), tasks=300, memory="reflection", episodes=2)
    for episode in range(2):
        played = [trial.episodes[episode] for trial in result.trials]
        differences = [each.reward - each.expected for each in played]
        assert abs(mean(differences)) < 4 * stdev(differences) / math.sqrt(300)
        assert stdev(each.expected for each in played) < 0.2 * stdev(each.reward for each in played)


def test_replies_in_other_words_are_asked_again_if_they_are_few():
    usual, rare = evaluate(Gambler(adapts=False)), evaluate(Gambler(adapts=False, other=0.02))
    assert rare.main.returns == pytest.approx(usual.main.returns)
    assert 0.02 < rare.exact["other_replies"] < MOST_OTHER  # some hands have two decisions
    often = evaluate(Gambler(adapts=False, other=0.1))
    assert often.main.exact == [0, 0, 0]
    assert often.main.returns[0] == pytest.approx(mean(trial.episodes[0].reward for trial in often.trials))
    assert any(line.startswith("Returns are sampled: ") for line in footnotes(often.to_dict()))


def test_who_answers_in_other_words_is_not_asked_about_everything():
    """Sixty-four trials and the first decisions are enough to see that nothing can be scored."""
    policy = Gambler(adapts=False, other=0.5)
    evaluate(policy, params={"opponent": MAGE, "seat": 1}, tasks=80, memory="history", episodes=1)
    assert len(policy.weighed) == 3  # one for each card
    assert all(message["role"] != "assistant" for messages in policy.weighed for message in messages)


def test_what_is_no_single_hand_is_sampled():
    assert evaluate(Gambler(), params={"opponent": MAGE, "hands": 2}, tasks=4).exact is None
    assert evaluate(Gambler(), restart="replay", tasks=4).exact is None
    assert evaluate("random", tasks=4).exact is None


def test_an_opponent_that_changes_is_met_as_it_is_in_the_episode():
    result = evaluate(Gambler(adapts=False), params={"opponent": "always-bet>always-pass@2", "seat": 2}, tasks=2)
    table = {f"{card}{betting}": {0: 1 - bet, 1: bet} for card, bet in enumerate(BETS.values()) for betting in "pb"}
    values = [value_against("kuhn_poker", table, 2, name) for name in ("always-bet", "always-pass", "always-pass")]
    assert result.main.returns == pytest.approx(values)


def test_the_table_says_what_is_exact():
    data = evaluate(Gambler()).to_dict()
    names = [str(getattr(cell, "renderable", cell)) for cell in eval_table(data).columns[0].cells]
    assert names[0] == "gambler (exact)"
    assert any(line.startswith("(exact): ") and "72 of 72 hands" in line for line in footnotes(data))


@pytest.mark.parametrize("top_p", [1.0, 0.6])
@pytest.mark.parametrize("max_tokens", [1, 3])
def test_a_model_weighs_replies_as_it_samples_them(max_tokens, top_p):
    """The probability of a sampled reply is that of its tokens, in prompts of one turn and of two."""
    pytest.importorskip("torch")
    from mulligan.engine.slots import SlotEngine
    from mulligan.models.load import load
    from mulligan.policy.local import LocalPolicy

    loaded = load("nano:hidden=32,layers=2")
    policy = LocalPolicy(SlotEngine(loaded.model, slots=8), loaded.renderer)
    sampling = Sampling(0.7, top_p, max_tokens)

    async def sampled():
        conversation = policy.start(mulligan.make_task("kuhn"), 0)
        replies = []
        for number in range(12):
            messages = [{"role": "user", "content": f"Your card: K {number}"}]
            for _ in range(2):
                reply = await conversation.reply(messages, sampling)
                if tuple(loaded.renderer.encode_reply(reply.text)[: len(reply.ids)]) != reply.ids:
                    break  # sampled in other tokens than usual
                replies.append((messages, reply))
                messages = [
                    *messages,
                    {"role": "assistant", "content": reply.text},
                    {"role": "user", "content": "bet?"},
                ]
        conversation.close()
        return replies

    replies = asyncio.run(sampled())
    assert {len(messages) for messages, _ in replies} == {1, 3}
    texts = [[reply.text, "another"] for _, reply in replies]
    chances = policy.reply_chances([messages for messages, _ in replies], texts, sampling)
    for (_, reply), (chance, other) in zip(replies, chances, strict=True):
        assert chance == pytest.approx(math.exp(sum(reply.logprobs)), rel=1e-4)
        assert 0 <= other < 1


def test_what_prompts_share_changes_nothing():
    """Prompts that begin alike are computed together, others alone: the same chances."""
    pytest.importorskip("torch")
    from mulligan.engine.base import Pair
    from mulligan.engine.weigh import _batches, reply_chances
    from mulligan.models.load import load

    loaded, rng = load("nano:hidden=32,layers=2"), random.Random(0)
    drawn = [tuple(rng.randrange(5, 90) for _ in range(size)) for size in (300, 200, 3, 40)]
    prompts = [(*drawn[0], *drawn[3][:n]) for n in range(4)] + [drawn[1], (*drawn[1], 7), drawn[2], drawn[2][:1]]
    pairs = [Pair(prompt, reply) for prompt in prompts for reply in ((9, 10), (11,))]
    shared = {length for batch, length in _batches(sorted(pairs)) if len(batch) > 1}
    assert {199, 299} <= shared
    together = reply_chances(loaded.model, pairs, Sampling(1.0))
    for pair in pairs:
        assert together[pair] == pytest.approx(reply_chances(loaded.model, [pair], Sampling(1.0))[pair], rel=1e-4)


class Careful(Gambler):
    """In the first hand the equilibrium of the first seat with α = 0: passes, and calls with K and a third of Q."""

    def bet(self, messages):
        if "You acted" in messages[1]["content"]:
            return 1.0
        calls = {"J": 0.0, "Q": 1 / 3, "K": 1.0}
        (card,) = re.findall(r"^Your card: (.)$", messages[-1]["content"], re.MULTILINE)
        return calls[card] if "Betting: you pass, opponent bet" in messages[-1]["content"] else 0.0


def test_exploitability_before_and_after_adapting():
    """Who always bets, as after the first hand, gives away 1/3 - 1/18 in the first seat (`test_rooms`)."""
    result = evaluate(Careful(), params={"opponent": MAGE, "seat": 1}, tasks=4)
    before, after = (result.exploitability[name]["mean"] for name in ("before", "after"))
    assert before == pytest.approx(0.0, abs=0.002)
    assert after == pytest.approx(1 / 3 - 1 / 18, abs=0.002)
    assert result.exploitability["trials"] == 4
    assert any(line.startswith("Exploitability: 0.00") for line in footnotes(result.to_dict()))


def test_exploitability_in_leduc_is_that_of_the_whole_policy():
    """Who always calls (checks), in Leduc: the same as its table."""
    from mulligan.envs.leduc import GAME
    from mulligan.eval.rooms import equilibrium, exploitability

    class Caller(Gambler):
        def chances(self, messages, replies):
            return [float("call" in reply) for reply in replies]

    result = evaluate(Caller(), "leduc", params={"opponent": "caller", "seat": 1}, tasks=1, episodes=1)
    calls = {state: {1: 1.0} for state in equilibrium(GAME)}
    expected = exploitability(GAME, calls, 1)
    assert result.exploitability["before"]["mean"] == pytest.approx(expected)
    assert result.exploitability["before"] == result.exploitability["after"]
