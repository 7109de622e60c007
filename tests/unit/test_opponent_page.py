"""Who the opponent may be: by hand, on the page, and told in the end."""

from __future__ import annotations

import random
from itertools import count

import pytest
from tests.unit.webshop.test_web import Page, Visit

from mulligan.app.cli import main
from mulligan.app.web.visitor import Visitor
from mulligan.envs import registry
from mulligan.policy.scripted import ExpertPolicy


def onlooker(world: object) -> object:
    return world.player("expert", random.Random(0), 1.0, 1.0)


def test_belief_in_kuhn_poker_goes_by_the_betting_of_the_hand_under_way():
    """Holding a Queen that passed. A conservative opponent bets with K alone, one of the two cards that it may hold; an
    aggressive one with both: 0.5 to 1."""
    world = registry.make("kuhn", 0, opponent="aggressive", pool="conservative,aggressive", seat=1)
    chance = next(chance for chance in count() if world.reset(chance).startswith("Your card: Q"))
    player = onlooker(world)
    world.reset(chance)
    assert player.beliefs() == {"conservative": 0.5, "aggressive": 0.5}
    player.see(world.step("<action>pass</action>"))
    assert player.beliefs() == pytest.approx({"conservative": 1 / 3, "aggressive": 2 / 3})
    player.see(world.step("<action>bet</action>"))  # a showdown: a Jack would give the aggressive one away
    assert player.beliefs()["conservative"] == pytest.approx({0: 0.0, 2: 0.5}[world.hidden])


def test_belief_in_leduc_poker():
    """Holding a Jack, with J, Q, Q, K, K left: a rock raises with 2 of 5, a maniac always; 0.4 to 1."""
    pytest.importorskip("pyspiel")
    world = registry.make("leduc", 0, opponent="maniac", pool="rock,maniac", seat=1)
    chance = next(chance for chance in count() if world.reset(chance).startswith("Your card: J"))
    player = onlooker(world)
    world.reset(chance)
    player.see(world.step("<action>call</action>"))
    assert player.beliefs() == pytest.approx({"rock": 0.4 / 1.4, "maniac": 1 / 1.4})


def test_belief_in_tictactoe():
    """Of 8 free cells the first corner: 1 to 1/8, and 0.01 more for each."""
    world = registry.make("tictactoe", 0, opponent="prefers-corners", pool="random,prefers-corners", seat=1)
    player = onlooker(world)
    player.see(world.step("<action>(2, 2)</action>"))
    assert player.beliefs()["prefers-corners"] == pytest.approx(1.01 / (1.01 + 0.135))
    pytest.importorskip("pyspiel")
    searching = registry.make("tictactoe", 0, opponent="mcts:200", pool="mcts:200,prefers-edges", seat=1)
    player = onlooker(searching)
    player.see(searching.step("<action>(2, 2)</action>"))  # a search takes a corner: an edge loses
    assert player.beliefs()["mcts:200"] > 0.9


def beliefs_on(page: Page) -> dict[str, str]:
    rows = page.root.findall(".//table[@id='beliefs']/tr")
    return {row.find("th").text: row.findall("td")[1].text for row in rows}


PARAMS = {"opponent": "rising,copies", "throws": 3}
SEED = next(seed for seed in count() if registry.make_task("rps", seed, **PARAMS).opponent == "copies")


def test_a_person_sees_what_may_be_believed_and_in_the_end_who_it_was():
    env = registry.make("rps", SEED, **PARAMS)
    with Visit(env, episodes=1) as visit:
        page = visit.look()
        assert beliefs_on(page) == {"rising": "50%", "copies": "50%"}
        assert "copies" not in page.words
        page = visit.send(page, say="rock")
        assert beliefs_on(page)["copies"] == "50%"  # whose first throw is drawn, as that of the other
        for _ in range(2):
            page = visit.send(page, say="rock")
        assert page.text_of("opponent") == "The opponent was copies: it throws what you threw last."
        assert beliefs_on(page)["copies"] in ("99%", "100%")


def test_an_agent_plays_on_the_page_move_by_move():
    env = registry.make("rps", SEED, **PARAMS)
    visit = Visit(env, episodes=2, memory="reflection")
    visit.visitor = Visitor(visit.table, registry.spec("rps"), visit.settings, ExpertPolicy(1.0, 1.0))
    with visit:
        page, moves = visit.look(), 0
        while "Next move" in page.words or "Next episode" in page.words:
            if "Next episode" in page.words:
                assert "it throws what you threw last, it seems" in page.words  # its reflection
            else:
                assert "What expert:1:1 sees" in "".join(page.root.find(".//aside").itertext())
                moves += 1
            page = visit.send(page, say="")
        assert moves == 6
        assert page.text_of("opponent").startswith("The opponent was copies")
    assert [len(episode.turns) for episode in visit.trial.episodes] == [3, 3]


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (["rps", "--opponent", "copies>beats@2"], "from episode 2 on beats: it throws what beats your last throw."),
        (["kuhn", "--opponent", "always-pass"], "The opponent was always-pass: it never bets, and folds to every bet."),
        (["dilemma", "--env.opponent", "grim"], "grim: it cooperates until you defect, and defects from then on."),
        (["tictactoe", "--opponent", "prefers-edges"], "it takes edges, then the centre, then corners."),
        (["leduc", "--opponent", "cfr"], "cfr: it plays close to the equilibrium, which tosses coins."),
    ],
)
def test_play_tells_who_it_was_at_the_end_and_not_before(capsys, monkeypatch, words, ending):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["play", *words, "--policy", "expert", "--episodes", "1"])
    assert ended.value.code == 0
    before, told, after = capsys.readouterr().out.rpartition("The opponent was ")
    assert ending in told + after
    assert words[-1].partition(">")[0] not in before
