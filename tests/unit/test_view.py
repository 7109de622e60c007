"""What the viewer's pages are made of: the index over trials, filters, pictures, and what a request may see."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import mulligan
from mulligan.app.cli import main
from mulligan.envs import registry
from mulligan.errors import Fault, MulliganError, RunFolderError, StopReason
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder, trial_from_dict
from mulligan.types import Completion, Episode, Reflection, Task, Trial, Turn
from mulligan.view.export import question
from mulligan.view.index import TrialIndex
from mulligan.view.library import Library
from mulligan.view.query import Wanted, page
from mulligan.view.runs import card
from mulligan.view.trials import as_page


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))


def trial(seed: int, outcomes: str, task_class: str = "bandit/2", opponent: str = "", **turn: object) -> Trial:
    """A trial with one turn an episode; `outcomes` has a w for each episode that was won."""
    params = (("arms", 2), *((("opponent", opponent),) if opponent else ()))
    played = {"observation": f"seen {seed}", "reply": Completion("1"), "reward": 0.0, "valid": True, "state_key": ""}
    episodes = tuple(
        Episode(
            n,
            (Turn(**{**played, "reward": float(letter == "w"), **turn}),),
            "end",
            StopReason.WON if letter == "w" else StopReason.LOST,
            reflection=Reflection("a note", True) if letter == "l" else None,
        )
        for n, letter in enumerate(outcomes)
    )
    return Trial(Task("bandit", seed, 1, task_class, params), episodes, "both")


def run_of(folder: Path, trials: list[Trial], arm: str = "main") -> RunFolder:
    run = RunFolder.create(folder, {"kind": "eval", "policy": "p", "env": "bandit", "tasks": len(trials)})
    run.write_trials(arm, trials)
    return run


def indexed(folder: Path) -> TrialIndex:
    index = TrialIndex(folder)
    index.refresh(float("inf"))
    return index


def places(index: TrialIndex, **wanted: object) -> list[int]:
    return [row["place"] for row in page(index, Wanted(**{"arm": "main", **wanted}))["rows"]]


def test_index_finds_what_the_files_hold_as_they_grow_are_damaged_and_replaced(tmp_path):
    run = run_of(tmp_path / "r", [])
    path = run.path / "trials" / "main.jsonl.gz"
    path.unlink()
    writer = run.writer("main")
    for number in range(6):  # six members
        writer.write(number, trial(number, "lw"))
        writer.flush()
    index = indexed(run.path)
    assert places(index) == [0, 1, 2, 3, 4, 5]
    assert trial_from_dict(index.read("main", 4)) == run.trials("main")[4]

    writer.write(2, trial(2, "lll"))  # a later line replaces an earlier one
    writer.flush()
    whole = path.read_bytes()
    path.write_bytes(whole + gzip.compress(b"torn")[:15])
    index.refresh(float("inf"))
    assert places(index, result="lost") == [2]
    assert index.state()["unread"] == 15
    assert len(index.read("main", 2)["episodes"]) == 3

    second = whole.find(b"\x1f\x8b\x08\x00", 10)
    damaged = bytearray(whole)
    damaged[second + 30] ^= 255
    path.unlink()
    path.write_bytes(damaged)
    index.refresh(float("inf"))
    assert places(index) == [0, 2, 3, 4, 5]
    third = whole.find(b"\x1f\x8b\x08\x00", second + 10)
    assert index.state()["unread"] == third - second

    run.write_trials("main", [trial(9, "w")])
    index.refresh(float("inf"))
    assert places(index) == [0]
    assert index.read("main", 0)["task"]["seed"] == 9


def test_a_cache_that_cannot_be_written_is_told_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunFolderError, match="set MULLIGAN_CACHE"):
        Library(run_of(tmp_path / "r", [trial(0, "w")]).path.parent).answer("run", {"run": "r"})


def test_an_index_that_is_damaged_is_made_again(tmp_path):
    run = run_of(tmp_path / "r", [trial(0, "w")])
    index = indexed(run.path)
    index.path.write_bytes(b"no database" * 1000)
    for more in ("-wal", "-shm"):
        Path(f"{index.path}{more}").unlink(missing_ok=True)
    assert places(indexed(run.path)) == [0]


def test_trials_are_filtered_sorted_and_paged(tmp_path):
    trials = [
        trial(0, "w", opponent="rock"),
        trial(1, "lw", opponent="paper"),
        trial(2, "lll", valid=False, fault=Fault.CUT_OFF),
        trial(3, "lll", task_class="bandit/3"),
        trial(4, "llw", valid=False, fault=Fault.INVALID),
    ]
    index = indexed(run_of(tmp_path / "r", trials).path)
    assert places(index, result="lost") == [2, 3]
    assert places(index, result="won") == [0, 1, 4]
    assert places(index, result="3") == [4]
    assert places(index, has="invalid") == [2, 4]
    assert places(index, has="cut_off") == [2]
    assert places(index, has="notes") == [1, 2, 3, 4]
    assert places(index, task_class="bandit/3") == [3]
    assert places(index, opponent="paper") == [1]
    assert places(index, text="5") == [4]  # the number of a task counts from 1
    assert places(index, sort="-turns") == [2, 3, 4, 1, 0]
    assert places(index, sort="-turns", limit=2, offset=2) == [4, 1]
    assert places(index, result="lost", task_class="bandit/3", text="nothing") == []
    for wrong in ({"sort": "1; DROP TABLE trials"}, {"offset": "-1"}, {"limit": "x"}, {"result": "maybe"}):
        with pytest.raises(MulliganError):
            page(index, Wanted.of({"arm": "main", **wrong}))


def test_a_sweeps_arm_has_its_name_and_the_figures_of_its_evaluation(tmp_path):
    config = {
        "kind": "train",
        "run": {"updates": 8, "seed": 3},
        "task": {"env": "bandit"},
        "trial": {"episodes": 1},
        "model": {"name": "../00-warm-start"},
        "algo": {"estimator": "rloo"},
    }
    arm = RunFolder.create(tmp_path / "study" / "01-rl", config)
    arm.write_text("order.json", json.dumps({"name": "RL, slower"}))
    evaluation = run_of(arm.path / "evaluation", [trial(0, "w"), trial(1, "lw")])
    assert card(tmp_path, "study/01-rl/evaluation")["status"] == "trials only"
    arm.write_text(
        "arm.json", json.dumps({"name": "RL, slower", "kind": "solve", "main": {"trials": 2, "p": [0.5, 1]}})
    )
    of_arm, of_evaluation = card(tmp_path, "study/01-rl"), card(tmp_path, "study/01-rl/evaluation")
    assert (of_arm["title"], of_arm["what"]) == ("RL, slower, seed 3", "RL · from 00-warm-start · rloo")
    assert of_evaluation["title"] == "RL, slower, seed 3: evaluation"
    assert of_arm["headline"] == of_evaluation["headline"] == "p@1 50.0 → p@2 100.0 %"
    assert of_evaluation["status"] == "complete"
    assert card(evaluation.path, ".")["status"] == "trials only"  # what lies above the folder is not read


def test_questions_are_spelt_as_browsers_spell_them():
    """`new URLSearchParams({a: "x y*~é"})` is a=x+y*%7E%C3%A9."""
    assert question("trial", run="x y*~é", place=0, arm="") == "trial?place=0&run=x+y*%7E%C3%A9"


def pictures(env: str, seed: int, **params: object) -> tuple[list[list[list[list[str]]]], list[str]]:
    """The kinds of cells of every picture of a trial that the expert plays, and their words."""
    task = mulligan.make_task(env, seed, params=params)
    shown = as_page(mulligan.run_trial_sync(task, ExpertPolicy(0.6), episodes=2, memory="history"))
    drawn = [
        picture
        for episode in shown["episodes"]
        for picture in (*(turn["drawing"] for turn in episode["turns"]), episode["finalDrawing"])
    ]
    assert all(drawn), f"{env} {params} draws every moment"
    return [[[cell[:2] for cell in row] for row in each["rows"]] for each in drawn], [each["words"] for each in drawn]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_views_of_a_game_are_drawn_alike(seed):
    """The compact views tell only what is new; drawn, both are the same board."""
    size = {"rows": 4, "cols": 5, "mines": 3}
    assert pictures("minesweeper", seed, **size) == pictures("minesweeper", seed, view="compact", **size)
    assert pictures("sokoban", seed) == pictures("sokoban", seed, view="cells")
    dark = {"sight": 1, "moves": 1, "turns": 20}  # of several moves in a turn, cells tell only where the last one ended
    assert pictures("sokoban", seed, **dark) == pictures("sokoban", seed, **dark, view="cells")


def test_games_are_drawn_from_what_the_agent_saw():
    task = mulligan.make_task("tictactoe", 1)
    draw = registry.spec("tictactoe").build.draw
    assert [cell.text for cell in draw(task, ["X . O\n. X .\n. . ."]).rows[0]] == ["X", "", "O"]
    draw = registry.spec("leduc").build.draw
    cards = draw(task, ["Your card: J\nOpen card: K\nShowdown: the opponent holds Q. You lose 1 chip."]).rows[0]
    assert [cell.text for cell in cards] == ["you", "J", "open", "K", "opponent", "Q"]
    draw = registry.spec("rps").build.draw
    throws = draw(task, ["So far (you/opponent): rock/scissors, rock/rock, paper/scissors\nWon 1"])
    assert [cell.kind for cell in throws.rows[0][1:]] == ["win", "draw", "loss"]
    task = mulligan.make_task("expedition", 1, params={"world": "camp"})
    seen = ["Trails: oasis, then kennel; ridge, then glacier.\nYou are at the camp. 6 hours left."]
    seen += ["The treasure is not at the ridge.\nYou are at the ridge. 3 hours left."]
    drawn = registry.spec("expedition").build.draw(task, seen)
    assert [[cell.kind for cell in row] for row in drawn.rows] == [["place"], ["place", "place"], ["miss", "place"]]


def test_a_household_is_drawn_with_what_was_seen_in_it_and_what_one_carries():
    """Cells are named as the commands that they stand for."""
    task = mulligan.make_task("alfworld", 1)
    draw = registry.spec("alfworld").build.draw
    around = "you see a desk 1, a safe 1, and a shelf 1."
    seen = [f"You are in the middle of a room. Looking quickly around you, {around}\n\nYour task is to: find a pen."]
    seen += [
        "You arrive at safe 1. The safe 1 is closed.",
        "You open the safe 1. The safe 1 is open. In it, you see nothing.",
    ]
    seen += [
        "You arrive at desk 1. On the desk 1, you see a pen 2, and a mug 1.",
        "You pick up the pen 2 from the desk 1.",
    ]
    rows = [[tuple(cell) for cell in row] for row in draw(task, seen).rows]
    assert rows[0] == [("label", "Task: find a pen.", "")]
    assert rows[1][1:3] == [("here", "desk 1", "go to desk 1"), ("place", "safe 1", "go to safe 1")]
    assert rows[2] == [("label", "safe 1", ""), ("label", "nothing", "")]
    assert rows[3] == [("label", "desk 1", ""), ("place", "mug 1", "take mug 1 from desk 1")]
    assert rows[4][1] == ("shown", "pen 2", "move pen 2 to desk 1")
    seen += ["You move the pen 2 to the desk 1.", "Nothing happens.", "You close the safe 1."]
    rows = [[cell.text for cell in row] for row in draw(task, seen).rows]
    assert rows[2:] == [["safe 1", "closed"], ["desk 1", "mug 1", "pen 2"], ["carries", "nothing"]]


def test_what_cannot_be_drawn_is_text():
    """A picture of somebody's environment that fails, and text that is no board."""

    class Crooked(registry.spec("bandit").build):
        @staticmethod
        def draw(task, seen):
            raise ZeroDivisionError

    mulligan.register(Crooked)
    shown = as_page(replace(trial(0, "w"), task=replace(trial(0, "w").task, env="Crooked")))
    assert shown["episodes"][0]["turns"][0]["drawing"] is None
    for env in ("minesweeper", "sokoban", "tictactoe", "kuhn", "rps", "expedition", "alfworld"):
        task = mulligan.make_task(env, 0)
        shown = as_page(replace(trial(0, "w"), task=task))
        assert shown["episodes"][0]["turns"][0]["seen"] == "seen 0"
    elsewhere = replace(trial(0, "w").task, env="/nowhere/evil.py:Evil")
    assert as_page(replace(trial(0, "w"), task=elsewhere))["episodes"][0]["finalDrawing"] is None


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Path, str]]:
    yield from serving(tmp_path)


def serving(tmp_path: Path, token: str = "") -> Iterator[tuple[Path, str]]:
    """A folder with one run, and the address of its pages."""
    uvicorn = pytest.importorskip("uvicorn")
    from mulligan.view.server import application, listen

    root = tmp_path / "runs"
    run_of(root / "r", [trial(0, "lw")])
    bound = listen("127.0.0.1", 0)
    app = application(Library(root), token=token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    yield root, f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    bound.close()


def test_paths_outside_the_folder_and_links_are_refused(served, tmp_path):
    root, address = served
    secret = run_of(tmp_path / "secret", [trial(7, "w")])
    (root / "link").symlink_to(secret.path)
    (root / "half").mkdir()
    (root / "half" / "config.toml").symlink_to(secret.path / "config.toml")
    (root / "piped").mkdir()
    os.mkfifo(root / "piped" / "config.toml")
    run_of(root / "inner", [])
    (root / "inner" / "trials" / "main.jsonl.gz").unlink()
    (root / "inner" / "trials" / "main.jsonl.gz").symlink_to(secret.path / "trials" / "main.jsonl.gz")
    ids = [run["id"] for run in httpx.get(f"{address}/api/runs").json()["runs"]]
    assert sorted(ids) == ["inner", "r"]
    assert httpx.get(f"{address}/api/trials", params={"run": "inner"}).json()["total"] == 0
    for name in ("../secret", "link", "r/../../secret", str(secret.path), "r\0", "", "half", "r/trials"):
        for asked in ("run", "curves", "trials", "compare"):
            answer = httpx.get(f"{address}/api/{asked}", params={"run": name, "runs": name, "arm": "main"})
            assert "seen 7" not in answer.text
            assert answer.status_code >= 400 or name in ("half", "r/trials"), (asked, name)
    for arm in ("../../../secret/trials/main", "main\0"):
        answer = httpx.get(f"{address}/api/trial", params={"run": "r", "arm": arm, "place": "0"})
        assert answer.status_code >= 400
    for path in ("/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "/pages/main.js", "/api/nothing"):
        assert httpx.get(f"{address}{path}").status_code == 404


def test_requests_of_other_pages_and_other_methods_are_refused(served):
    _, address = served
    assert httpx.get(address).status_code == 200
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        assert httpx.get(f"{address}/api/runs", headers=headers).status_code == 403
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert httpx.request(method, f"{address}/api/runs").status_code == 405
    headers = httpx.get(f"{address}/api/nothing").headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


BEGIN = {"run": "r", "arm": "main", "place": "0"}


def test_changes_are_taken_from_this_page_alone(served):
    _, address = served
    url, ours = f"{address}/do/begin", {"Origin": address}
    assert httpx.post(url, json=BEGIN, headers=ours).json()["moves"] == ["1", "2"]
    wrong = (
        {},  # no page sends a POST without its origin
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {**ours, "Host": "evil.example"},
        {**ours, "Sec-Fetch-Site": "cross-site"},
        {**ours, "Content-Type": "text/plain"},  # what a form of another page can send
    )
    for headers in wrong:
        assert httpx.post(url, json=BEGIN, headers=headers).status_code == 403, headers
    assert httpx.get(url, headers=ours).status_code == 405
    for content in (b"[]", b"x", b'{"run": 1}', b"[" * 60_000):
        answer = httpx.post(url, content=content, headers={**ours, "Content-Type": "application/json"})
        assert answer.status_code == 400
    assert httpx.post(url, json={"run": "x" * 70_000}, headers=ours).status_code == 413
    assert httpx.post(f"{address}/do/nothing", json={}, headers=ours).status_code == 400
    for run in ("../r", "x"):
        assert httpx.post(url, json={**BEGIN, "run": run}, headers=ours).status_code == 400


def test_games_of_people_are_played_by_the_rules_and_given_up_when_there_are_too_many(served):
    _, address = served

    def do(what: str, **given: str) -> httpx.Response:
        return httpx.post(f"{address}/do/{what}", json=given, headers={"Origin": address})

    first = do("begin", **BEGIN).json()
    task = trial(0, "lw").task
    paying = next(arm for arm in "12" if registry.build(task).step(f"<action>{arm}</action>").won)
    mistyped = do("move", game=first["game"], text="nothing like that").json()
    assert (mistyped["valid"], mistyped["turn"], mistyped["outcome"]) == (False, 1, "")
    assert do("next", game=first["game"]).status_code == 400
    lost = do("move", game=first["game"], text="12".replace(paying, "")).json()
    assert (lost["outcome"], lost["moves"], lost["attempts"]) == ("out of turns", [], 3)
    assert do("move", game=first["game"], text=paying).status_code == 400
    assert do("next", game=first["game"]).json()["attempt"] == 2
    assert do("move", game=first["game"], text=paying).json()["past"] == ["out of turns", "won"]
    for _ in range(16):
        do("begin", **BEGIN)
    assert "begin it again" in do("move", game=first["game"], text=paying).json()["error"]


def test_tags_are_kept_beside_the_runs_and_wrong_ones_refused(served):
    root, address = served

    def tag(run: str, tags: str) -> httpx.Response:
        return httpx.post(f"{address}/do/tag", json={"run": run, "tags": tags}, headers={"Origin": address})

    assert tag("r", " good,first try , good").json() == {"tags": ["good", "first try"]}
    assert httpx.get(f"{address}/api/runs").json()["runs"][0]["tags"] == ["good", "first try"]
    assert httpx.get(f"{address}/api/run", params={"run": "r"}).json()["tags"] == ["good", "first try"]
    for run, tags in (
        ("x", "good"),
        ("../r", "good"),
        ("r", "x" * 41),
        ("r", "a\nb"),
        ("r", ",".join("abcdefghijklm")),
    ):
        assert tag(run, tags).status_code == 400, (run, tags)
    assert json.loads((root / "tags.json").read_text()) == {"r": ["good", "first try"]}
    assert tag("r", "").json() == {"tags": []}
    assert json.loads((root / "tags.json").read_text()) == {}
    (root / "tags.json").write_text('{"r": ["fine", 3, "a,b", ""], "q": 1}')
    assert httpx.get(f"{address}/api/runs").json()["runs"][0]["tags"] == ["fine"]
    (root / "tags.json").unlink()
    (root / "elsewhere").write_text('{"r": ["theirs"]}')
    (root / "tags.json").symlink_to(root / "elsewhere")
    assert httpx.get(f"{address}/api/runs").json()["runs"][0]["tags"] == []
    tag("r", "ours")
    assert "theirs" in (root / "elsewhere").read_text(), "a link is replaced, not followed"


def test_a_token_opens_the_pages_to_who_has_it(tmp_path):
    for _, address in serving(tmp_path, token="0123456789abcdef"):
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, params={"token": "0123456789abcdee"}).status_code == 401
        with httpx.Client() as client:
            answer = client.get(f"{address}/?token=0123456789abcdef", follow_redirects=True)
            assert answer.status_code == 200
            assert "token" not in str(answer.url)
            assert client.get(f"{address}/api/runs").json()["runs"][0]["id"] == "r"
        bearer = {"Authorization": "Bearer 0123456789abcdef"}
        assert httpx.post(f"{address}/do/begin", json=BEGIN, headers={"Origin": address}).status_code == 401
        assert httpx.post(f"{address}/do/begin", json=BEGIN, headers={"Origin": address, **bearer}).status_code == 200
        assert httpx.get(f"{address}/api/runs", headers=bearer).status_code == 200


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["view", "nowhere"], "no folder nowhere"),
        (["view", "--host", "0.0.0.0"], "--token-env NAME"),
        (["view", "--host", "0.0.0.0", "--token-env", "SHORT"], "16 or more"),
        (["report", "nowhere"], "nowhere is no run"),
        (["show", "r", "1", "--list"], "leave it out"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHORT", "abc")
    (tmp_path / "runs").mkdir()
    run_of(tmp_path / "r", [trial(0, "w")])
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_runs_and_trials_are_listed_in_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["eval", "bandit", "--policy", "random", "--tasks", "8", "--run", "runs/one"])
    capsys.readouterr()
    for words in (["runs", "--json"], ["show", "runs/one", "--result", "lost", "--json"]):
        with pytest.raises(SystemExit):
            main(words)
    out = capsys.readouterr().out
    cards, rows = (json.loads(part) for part in out.replace("]\n[", "]\x00[").split("\x00"))
    (card,) = cards
    result = json.loads((tmp_path / "runs" / "one" / "result.json").read_text())
    assert (card["kind"], card["status"], card["figures"]) == ("eval", "complete", result["p"])
    lost = [place for place, outcome in enumerate(result["outcomes"]) if not any(outcome)]
    assert [row["place"] for row in rows] == lost
    assert lost, "some task is lost by random moves"
