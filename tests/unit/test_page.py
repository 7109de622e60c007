"""The HTML report: its numbers are those of the data, and any text in them is shown as text."""

from __future__ import annotations

import copy
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mulligan
from mulligan.report import charts
from mulligan.report.page import page
from mulligan.report.run import trial_to_dict
from scripted_play import ScriptedPolicy

SVG = "{http://www.w3.org/2000/svg}"
# Mines of this board lie on c1, e2 and e4 (a test below would fail if that changed).
TASK = mulligan.make_task("minesweeper", 7, params={"rows": 4, "cols": 5, "mines": 3, "view": "compact", "turns": 10})


def plain(trial: mulligan.Trial) -> dict:
    return json.loads(json.dumps(trial_to_dict(trial)))


def played(*replies: str) -> mulligan.Trial:
    return mulligan.run_trial_sync(TASK, ScriptedPolicy(list(replies)), episodes=3, style="bare")


def row(method: str, shares: list[float], half: float = 0.04) -> dict:
    spans = [[share - half, share + half] for share in shares]
    return {"method": method, "p": shares, "ci": spans, "tasks": 512, "valid": 0.98, "updates": 80}


def curve(*last: float) -> list[dict]:
    return [{"update": 0, "p": [0.2, 0.25, 0.3]}, {"update": 80, "p": list(last)}]


@pytest.fixture
def data() -> dict:
    rows = [
        row("warm start", [0.2, 0.25, 0.3]),
        row("RL", [0.477, 0.492, 0.498]),
        row("RL, independent retries", [0.471, 0.51, 0.53]),
        row("meta-RL", [0.451, 0.668, 0.771]),
        row("meta-RL, independent retries", [0.449, 0.553, 0.597]),
    ]
    return {
        "title": "MineSweeper 4x5 with 3 mines, 10 turns",
        "seed": 5,
        "minutes": 4.7,
        "tasks": 512,
        "episodes": 3,
        "ceiling": 0.973,
        "rows": rows,
        "gap": {"points": 27.3, "ci": [22.1, 32.4]},
        "curves": {"RL": curve(0.48, 0.49, 0.5), "meta-RL": curve(0.45, 0.67, 0.77)},
        "trials": [
            # attempt by attempt: d4, then the mine e4 | e4 at once, again | the mine e2
            {"method": "RL", "task": "ms#7", "trial": plain(played("d4", "e4", "e4", "e2"))},
            # the mine e4 | everything safe: a1 opens all but d1, e1 and e3
            {"method": "meta-RL", "task": "ms#7", "trial": plain(played("e4", "a1", "d1", "e1", "e3"))},
        ],
        "validation_tasks": 100,
        "rule": "The first board that tells them apart.",
        "about": ["First note.", "Second note."],
        "command": "mulligan demo --seed 5",
    }


@pytest.fixture
def signpost() -> dict:
    exact = [
        {"method": "optimum at γ_traj 0", "p": [0.125, 0.25, 0.375]},
        {"method": "optimum (exact)", "p": [0, 1, 1]},
    ]
    agents = [
        row("RL", [0.12, 0.2, 0.3]),
        row("meta-RL, gamma_traj 0", [0.12, 0.2, 0.3]),
        row("meta-RL", [0, 0.9, 0.98]),
    ]
    return {
        "title": "Eight doors",
        "tasks": 512,
        "episodes": 3,
        "updates": 8,
        "rows": [*agents, *exact],
        "gap_to_myopic": {"points": 68.0, "ci": [64.1, 71.9]},
        "reads_first": {"RL": 0.01, "meta-RL, gamma_traj 0": 0.023, "meta-RL": 0.996},
        "first_attempts": [
            {
                "method": "meta-RL, gamma_traj 0",
                "map": "  [ ] a1  [x] b2\n  [ ] c1",
                "moves": ["opens b2", "opens a1", "opens c1"],
                "earned": [0.1, 0.1, 1.0],
            },
            {
                "method": "meta-RL",
                "map": "  [ ] a1  [ ] b2\n  [!] c1",
                "moves": ["reads the sign", "opens c1", "opens c1"],
                "earned": [0.0, 1.0, 1.0],
            },
        ],
        "rule": "The first task that fits.",
        "sentence": "Exploring is learned by credit.",
        "about": "All start alike.",
    }


def parse(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def words(element: ElementTree.Element) -> str:
    """The text a reader sees, with single spaces."""
    return " ".join("".join(element.itertext()).replace("\u00a0", " ").split())


def part(text: str, heading: str) -> ElementTree.Element:
    return next(found for found in parse(text).iter("section") if found.findtext("h2") == heading)


def page_of(data: dict, trial: mulligan.Trial) -> str:
    """A page with this trial to read."""
    return page({**data, "trials": [{"method": "RL", "task": "x", "trial": plain(trial)}]})


def episodes(text: str, trial: int) -> list[ElementTree.Element]:
    column = [found for found in parse(text).iter("article") if found.get("class") == "trial"][trial]
    return [found for found in column.iter("section") if found.get("class") == "episode"]


def test_the_table_has_the_numbers_of_the_data(data):
    table = next(part(page(data), "Share of tasks solved within k attempts").iter("table"))
    found = [[words(cell) for cell in line] for line in table.iter("tr")]
    assert found[0] == ["method", "p@1", "p@2", "p@3", "updates", "valid"]
    # the half-width of [p - 0.04, p + 0.04] is 4 points
    assert found[2] == ["RL", "47.7 ±4.0", "49.2 ±4.0", "49.8 ±4.0", "80", "98 %"]
    assert found[4] == ["meta-RL", "45.1 ±4.0", "66.8 ±4.0", "77.1 ±4.0", "80", "98 %"]
    assert len(found) == 1 + len(data["rows"])


def test_the_summary_is_computed_from_the_rows(data):
    said = words(parse(page(data)))
    assert "meta-RL solves 77.1 % of the tasks" in said
    assert "trained with RL, 49.8 %" in said
    assert "+27.3 points (95 % interval +22.1 to +32.4" in said
    assert "meta-RL gains 32.0 points and RL 2.1" in said  # 77.1 - 45.1 and 49.8 - 47.7
    assert "the same meta-RL agent reaches 59.7 %" in said
    assert "is 97.3 %" in said
    assert "512 held-out tasks · 3 attempts at each · 4.7 minutes · seed 5" in said
    assert "includes 0" not in said
    data["rows"][3]["p"][2] = 0.614
    assert "meta-RL solves 61.4 % of the tasks" in words(parse(page(data)))


def test_a_gap_that_may_be_nothing_is_called_so(data):
    data["gap"] = {"points": -1.2, "ci": [-4.0, 1.5]}
    said = words(parse(page(data)))
    assert "-1.2 points" in said
    assert "the interval includes 0" in said


def test_every_method_is_in_table_and_legend(data):
    text = page(data)
    names = [entry["method"] for entry in data["rows"]]
    chart = part(text, "p@k by attempt")
    assert [words(item) for item in chart.iter("li")] == names
    assert len(list(chart.iter(f"{SVG}polyline"))) == len(names)
    assert [words(item) for item in part(text, "Learning curves").iter("li")] == list(data["curves"])


def test_methods_look_different_and_variants_share_a_colour(data):
    how = charts.strokes(entry["method"] for entry in data["rows"])
    assert len({(stroke.colour, stroke.dash) for stroke in how.values()}) == len(how)
    assert how["RL"].colour == how["RL, independent retries"].colour != how["meta-RL"].colour
    assert how["RL"].main
    assert not how["RL, independent retries"].main
    assert how["RL"] == charts.strokes(["x", "meta-RL", "RL"])["RL"]  # whatever else is drawn


def test_lines_are_drawn_where_the_data_are(data):
    data["rows"] = [row("RL", [0.0, 0.5, 1.0], half=0.0)]
    chart = ElementTree.fromstring(charts.attempts(data, charts.strokes(["RL"])))
    drawn = next(chart.iter(f"{SVG}polyline")).get("points")
    places = [tuple(map(float, point.split(","))) for point in drawn.split()]
    # the plot lies between y = 330 - 44 = 286 (0 %) and y = 14 (100 %)
    assert [y for _, y in places] == [286.0, 150.0, 14.0]
    # between x = 46 and 480 - 16 = 464, which are 0.8 and 3.2 attempts; the only row stands at k - 0.13:
    # 46 + 418 * (k - 0.13 - 0.8) / 2.4
    assert [x for x, _ in places] == pytest.approx([58.2, 232.4, 406.5], abs=0.05)


@settings(max_examples=40)
@given(st.integers(0, 10**7))
def test_ticks_are_few_and_evenly_spaced(last):
    ticks = charts.whole_ticks(last)
    assert ticks[0] == 0
    assert len(ticks) <= 7
    assert ticks[-1] <= last < ticks[-1] + (ticks[1] if len(ticks) > 1 else 1)


NASTY = "<script>alert(1)</script> & \"quoted\" 'too' \x00\x1b\ud800 ]]> é漢"


def test_any_text_is_shown_as_text(data):
    for entry in data["rows"]:
        if entry["method"] == "warm start":
            entry["method"] = NASTY
    data["curves"][NASTY] = curve(0.1, 0.2, 0.3)
    data |= {"title": NASTY, "rule": NASTY, "about": [NASTY], "command": NASTY}
    trial = mulligan.run_trial_sync(TASK, lambda messages: NASTY, episodes=2, style="bare")
    data["trials"] = [{"method": NASTY, "task": NASTY, "trial": plain(trial)}]
    text = page(data)
    text.encode("utf-8")
    tree = parse(text)  # would fail on a control character or a bare & or <
    assert not list(tree.iter("script"))
    shown = words(tree)
    assert shown.count("<script>alert(1)</script> & \"quoted\" 'too'") > 10
    assert "é漢" in shown


def test_the_page_needs_nothing_else(data):
    text = page(data)
    assert len(text.encode()) < 300_000
    tags = {element.tag.removeprefix(SVG) for element in parse(text).iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "image", "use"}
    assert not re.search(r"url\(|@import|(src|href)=", text)
    assert "prefers-color-scheme:dark" in text


def test_every_picture_is_well_formed_alone(data):
    pictures = re.findall(r"<svg.*?</svg>", page(data), re.DOTALL)
    # 3 charts, samples of lines: 5 + 2 in the legends and 2 above the trials
    assert len(pictures) == 3 + 5 + 2 + 2
    for picture in pictures:
        assert ElementTree.fromstring(picture).tag == f"{SVG}svg"


def test_moves_stand_in_order_with_what_they_showed(data):
    first, second, third = episodes(page(data), 0)
    assert [words(item) for item in first.iter("li")] == ["d4 d4=1", "e4 e4=*"]
    assert [words(item) for item in second.iter("li")] == ["e4 e4=*"]
    assert [words(item) for item in third.iter("li")] == ["e2 e2=*"]
    solved = episodes(page(data), 1)[1]
    assert [words(item).split()[0] for item in solved.iter("li")] == ["a1", "d1", "e1", "e3"]
    assert words(solved.find("h4")) == "Attempt 2 won"


def test_memory_is_what_the_agent_was_shown(data):
    first, second, third = episodes(page(data), 0)
    assert first.find("pre") is None
    assert second.findtext("pre") == "d4=ok e4=*"
    assert third.findtext("pre") == "d4=ok e4=*\ne4=*"


def test_the_board_stands_beside_the_moves(data):
    text = page(data)
    for number, entry in enumerate(data["trials"]):
        for found, episode in zip(episodes(text, number), entry["trial"]["episodes"], strict=True):
            boards = [text.text for text in found.iter("pre") if text.get("class") == "board"]
            before = episode["turns"][-1]["state_key"]  # of the first turn there is none
            assert boards == ([before] if before else [])


def test_invalid_replies_say_why(data):
    trial = mulligan.run_trial_sync(TASK, ScriptedPolicy(["d4", "d4", "z9", "e4"]), episodes=1, style="bare")
    (only,) = episodes(page_of(data, trial), 0)
    said = [words(item) for item in only.iter("li")]
    assert said[1] == "d4 not valid: d4 is open already. nothing new"
    assert said[2].startswith("z9 not valid: That is not on the board")


def test_the_second_act_stands_below_the_first(data, signpost):
    before, after = page(data), page({**data, "signpost": signpost})
    assert "Eight doors" not in before
    _, table = parse(after).iter("table")
    cells = [[words(cell) for cell in line] for line in table.iter("tr")]
    assert cells[3] == ["meta-RL", "0.0 ±4.0", "90.0 ±4.0", "98.0 ±4.0", "80", "98 %"]
    assert cells[4] == ["optimum at γ_traj 0", "12.5", "25.0", "37.5", "–", "–"]  # computed, not played
    text = words(parse(after))
    assert text.index("The same task, played by both") < text.index("Eight doors") < text.index("How to read p@k")
    assert "reads the sign first in 99.6 % of the tasks; without it (γ_traj 0), in 2.3 %" in text
    assert "+68.0 points (95 % interval +64.1 to +71.9)" in text
    assert "Exploring is learned by credit." in text


def test_the_first_attempts_stand_side_by_side_on_the_map(data, signpost):
    section = part(page({**data, "signpost": signpost}), "The first attempt at one task, by two agents")
    myopic, meta = section.iter("figure")
    assert ["".join(found.itertext()) for found in section.iter("pre")] == [
        entry["map"] for entry in signpost["first_attempts"]
    ]
    assert [(mark.text, mark.get("class")) for mark in myopic.find("pre").iter("b")] == [("[x] b2", "bad")]
    assert [(mark.text, mark.get("class")) for mark in meta.find("pre").iter("b")] == [("[!] c1", "good")]
    said = "The agent opens b2 and earns 0.1. Then it opens a1 and earns 0.1, then opens c1 and earns 1: 1.2 in all."
    assert said in words(myopic)
    assert "The agent reads the sign and earns 0. Then it opens c1 and earns 1" in words(meta)
    signpost["first_attempts"] = []
    assert "The first attempt at one task" not in page({**data, "signpost": signpost})


def test_any_text_of_the_second_act_is_shown_as_text(data, signpost):
    for name in ("title", "rule", "sentence", "about"):
        signpost[name] = NASTY
    signpost["first_attempts"][0] |= {"map": f"[x] {NASTY}", "moves": [NASTY] * 3}
    tree = parse(page({**data, "signpost": signpost}))
    assert not list(tree.iter("script"))
    assert words(tree).count("<script>alert(1)</script> & \"quoted\" 'too'") == 4 + 1 + 3


def test_the_data_are_not_changed_and_the_page_is_the_same_each_time(data):
    before = copy.deepcopy(data)
    assert page(data) == page(data)
    assert data == before
