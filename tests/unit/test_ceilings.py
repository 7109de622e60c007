"""What games against an opponent are measured by: exact ceilings, shares of the room, figures by opponent and seat."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

import mulligan
from mulligan.app.cli.main import main
from mulligan.eval import optimum
from mulligan.eval.ceilings import ceilings_of, drawn_from, room_shares
from mulligan.eval.intervals import interval_of_mean, weighted
from mulligan.eval.rooms import room_of
from mulligan.report.tables import eval_table, footnotes, opponents_table
from mulligan.rollout.tasksets import tasks_of
from mulligan.trial.settings import TrialSettings

MAGE = "conservative,intermediate,aggressive"


def printed(*tables) -> str:
    console = Console(width=80, file=io.StringIO())
    for table in tables:
        console.print(table)
    return console.file.getvalue()


def command(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 0


def test_all_tasks_of_a_pool_share_one_graph():
    """Eight habits, one pool: solved once, and refused once."""
    optimum._graph.cache_clear()
    mulligan.evaluate("rps", "expert", params={"throws": 3}, tasks=16, controls=(), room=False)
    assert optimum._graph.cache_info().misses == 1
    task, settings = mulligan.make_task("rps", params={"throws": 5}), TrialSettings()
    for _ in range(2):
        with pytest.raises(optimum.TooLarge, match="more than 1,000 outcomes"):
            optimum.optimum_of(task, settings, most=(100, 1_000))
    assert optimum._graph.cache_info().misses == 2


def test_the_ceilings_of_hands_are_the_rooms_of_both_seats():
    pytest.importorskip("pyspiel")
    tasks = tasks_of("kuhn", 60, "eval", {"opponent": MAGE})
    ceilings = ceilings_of(tasks, TrialSettings(episodes=3))
    rooms = [room_of("kuhn_poker", dict.fromkeys(MAGE.split(","), 1.0), seat) for seat in (1, 2)]
    first = sum(task.seat == 1 for task in tasks) / 60
    for name, values in {"static": "static", "optimal": "by_hand", "clairvoyant": "clairvoyant"}.items():
        both = [np.broadcast_to(getattr(room, values), 3) for room in rooms]
        assert getattr(ceilings, name) == pytest.approx(first * both[0] + (1 - first) * both[1])
    assert sum(ceilings.weights) == pytest.approx(1.0)
    assert len(ceilings.weights) == 6  # three opponents, two seats


def test_ceilings_are_those_of_the_opponents_that_are_played():
    """The agent expects `seen`, and meets always the same stranger: best is paper, which wins .6 and loses .2."""
    params = {"opponent": "often-rock", "pool": "seen", "throws": 2}
    tasks = tasks_of("rps", 4, "eval", params)
    ceilings = ceilings_of(drawn_from(tasks, params), TrialSettings(episodes=2))
    assert ceilings.optimal == ceilings.static == ceilings.clairvoyant == pytest.approx([0.4, 0.4])
    assert ceilings.equilibrium == [0.0, 0.0]


def test_ceilings_follow_an_opponent_that_changes():
    """Against one that defects 1 point a round, .2; against one that cooperates 5, which is 1."""
    tasks = [mulligan.make_task("dilemma", params={"opponent": "always-defect>always-cooperate@3", "rounds": 2})]
    ceilings = ceilings_of(tasks, TrialSettings(episodes=3))
    assert ceilings.static == ceilings.optimal == ceilings.clairvoyant == pytest.approx([0.2, 0.2, 1.0])


def test_opponents_count_as_the_pool_says():
    """Three tasks against A (weight ½) with 1, 2, 3 and two against B with 6, 8: ½·2 + ½·7 = 4.5, where the mean of all
    is 4. The variance of the mean is ¼·1/3 + ¼·2/2 = 1/3, of which an interval takes 5/4 of the values' own."""
    values = np.array([[1.0, 2.0, 3.0, 6.0, 8.0]])
    same = weighted(values, [0, 0, 0, 1, 1], [0.5, 0.5])
    assert same.mean() == pytest.approx(4.5)
    assert np.square(same - 4.5).sum() / 5**2 * 5 / 4 == pytest.approx(1 / 3)
    assert weighted(values, [0, 0, 0, 0, 1], [0.5, 0.5]) is None
    with_gap = weighted(np.array([[1.0, 2.0, 3.0, 6.0, 8.0, np.nan]]), [0, 0, 0, 1, 1, 1], [0.5, 0.5])
    assert interval_of_mean(with_gap)[0] == pytest.approx(4.5)


def test_shares_of_the_room_over_tasks_and_seeds():
    """Room from .1 to .3 in the second episode: 1.1 comes to 500 %, and 1.0, of another seed, to 450 %. The first has
    no room."""
    ceilings = {"static": [0.1, 0.1], "optimal": [0.1, 0.3], "strata": [0, 0, 0], "weights": [1.0]}
    tasks = [[[0.0, 1.0], [0.0, 1.2], [0.0, 1.1]], [[0.0, 0.9], [0.0, 1.1], [0.0, 1.0]]]
    one, both = (room_shares(ceilings, each, [0, 1, 2]) for each in (tasks[:1], tasks))
    assert one["share"] == [None, pytest.approx(5.0)]
    assert one["share_ci"][0] is None
    low, high = one["share_ci"][1]
    assert high - 5.0 == pytest.approx(5.0 - low)
    assert 5.0 - low == pytest.approx(4.3027 * 0.1 / np.sqrt(3) / 0.2, rel=1e-3)  # t of two degrees, s = .1
    assert both["share"][1] == pytest.approx(4.75)
    lost = room_shares(ceilings, [[[0.0, 1.0], [0.0, None], [0.0, None]]], [0, 1, 2])
    assert lost["share"] == [None, None]


def test_figures_by_opponent_and_seat_add_up():
    params = {"opponent": "tit-for-tat,always-cooperate", "rounds": 2}
    result = mulligan.evaluate("dilemma", "expert:1:1", params=params, tasks=24, controls=(), room=False)
    rows = result.to_dict()["by_opponent"]
    assert [row["opponent"] for row in rows] == ["always-cooperate", "tit-for-tat"]
    assert sum(row["trials"] for row in rows) == 24
    for episode in range(3):
        total = sum(row["trials"] * row["returns"][episode] for row in rows)
        assert total / 24 == pytest.approx(result.main.returns[episode])
    # Against tit-for-tat one may defect at once (5 + 1 points: drawn) or in the last round (3 + 5: won).
    assert {*(row["not_lost"][0] > row["won"][0] for row in rows)} == {False, True}
    assert all(share == 1.0 for row in rows for share in row["not_lost"])


def test_draws_are_not_lost():
    params = {"opponent": "always-defect", "rounds": 1}
    cooperates = mulligan.evaluate(
        "dilemma", lambda _: "<action>cooperate</action>", params=params, tasks=2, controls=(), room=False
    )
    assert cooperates.by_opponent[0]["not_lost"] == [0.0, 0.0, 0.0]
    params["opponent"] = "always-cooperate"
    drawn = mulligan.evaluate(
        "dilemma", lambda _: "<action>cooperate</action>", params=params, tasks=2, controls=(), room=False
    )
    (row,) = drawn.by_opponent
    assert (row["won"], row["drawn"], row["not_lost"]) == ([0.0] * 3, [1.0] * 3, [1.0] * 3)


def test_tables_show_ceilings_shares_and_opponents():
    pytest.importorskip("pyspiel")
    result = mulligan.evaluate("kuhn", "expert:1:1", params={"opponent": MAGE}, tasks=48, room=False)
    data = result.to_dict()
    text = printed(eval_table(data), opponents_table(data))
    for row in ("best without memory (exact)", "opponent known (exact)", "equilibrium (exact)", "share of the room"):
        assert row in text
    assert text.count("aggressive  ") == 2
    assert "…" not in text
    assert any("share of the room, independent retries" in line for line in footnotes(data))
    assert "strata" not in str(mulligan.eval.passk.without_evidence(data))


def test_what_has_no_ceilings_says_why():
    pytest.importorskip("pyspiel")
    bots = mulligan.evaluate("rps", "expert", params={"opponent": "bot:pibot"}, tasks=2, controls=()).to_dict()
    assert [line for line in footnotes(bots) if line.startswith("No exact ceilings: rps: bot:pibot has no model")]
    few = mulligan.evaluate("rps", "expert", params={"throws": 2}, tasks=2, controls=(), room=False).to_dict()
    assert [line for line in footnotes(few) if line.startswith("No share of the room: each opponent")]
    related = mulligan.evaluate("kuhn", "expert", tasks=4, related=True, controls=(), room=False).to_dict()
    assert related["ceilings"] == {"left_out": "later episodes are of other tasks"}
    assert mulligan.evaluate("bandit", "expert", tasks=2, room=False).to_dict()["ceilings"] is None


def test_comparisons_have_the_share_over_seeds(tmp_path, capsys):
    pytest.importorskip("pyspiel")
    for seed in (0, 1):
        options = ["--env.opponent", MAGE, "--tasks", "48", "--seed", str(seed), "--no-room", "--controls", "off"]
        command("eval", "kuhn", "--policy", "expert:1:1", *options, "--run", str(tmp_path / f"{seed}"))
    capsys.readouterr()
    command("compare", str(tmp_path / "0"), str(tmp_path / "1"), "--json")
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    (row,) = section["rows"]
    results = [json.loads((tmp_path / f"{seed}" / "result.json").read_text()) for seed in (0, 1)]
    assert row["share"] == pytest.approx(np.mean([each["ceilings"]["share"][-1] for each in results]))
    command("compare", str(tmp_path / "0"), str(tmp_path / "1"))
    out = capsys.readouterr().out
    assert "share of the room" in " ".join(out.split())
    assert f"{100 * row['share']:.0f} ± " in out
