"""Workers side by side, and how they end; Python programs of a few lines stand in for training."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from mulligan.app import stopping
from mulligan.app.sweep import schedule
from mulligan.app.sweep.arms import Work
from mulligan.app.sweep.schedule import run_work
from mulligan.errors import MulliganError

TRAINS = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
print(json.dumps({"stage": "training", "done": 1, "total": 2}), flush=True)
(folder / "begun").touch()
if sys.stdin.readline():
    (folder / "saved").touch()
sys.exit(75)
"""
FAILS = """
import json, pathlib, sys, time
others = pathlib.Path(sys.argv[1]).parent
while len(list(others.glob("*/begun"))) < 2:
    time.sleep(0.01)
sys.exit("out of order")
"""
GONE = "pass"
DEAF = "import os; os._exit(3)"


def _work(folder: Path, name: str) -> Work:
    return Work(name, 0, folder / name, {}, "test", None, {})


WAITS_WHILE_EVALUATING = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
print(json.dumps({"stage": "evaluation", "done": 0, "total": 2}), flush=True)
end = time.monotonic() + 30
while not (folder.parent / "arm" / "arm.json").exists():
    time.sleep(0.01)
    if time.monotonic() > end:
        sys.exit("nobody began")
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
TRAINED = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""


BEGUN = """
import pathlib, sys
(pathlib.Path(sys.argv[1]) / "begun").touch()
"""
UNTIL_TOLD = """
import time
end, told = time.monotonic() + 30, pathlib.Path(sys.argv[1]).parent / "told"
while not told.exists() and time.monotonic() < end:
    time.sleep(0.01)
"""
NO_ROOM_BESIDE_THE_FIRST = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
is_alone = (folder.parent / "first" / "arm.json").exists()  # before it tells the first that it has tried
with (folder / "tries").open("a") as file:
    file.write("x")
if not is_alone:
    sys.exit(73)
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
WHILE_NOBODY_BUT_ONE_HAS_TRIED = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
end = time.monotonic() + 30
while not (tried := list(folder.parent.glob("*/tries"))) or (len(tried) < 2 and time.monotonic() < end):
    end = min(end, time.monotonic() + 1) if tried else end
    time.sleep(0.01)
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
WHEN_THE_OTHERS_HAVE_TRIED = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
while len(list(folder.parent.glob("*/tries"))) < 2:
    time.sleep(0.01)
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
NO_ROOM_FOR_TWO = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
tries = folder / "tries"
if not tries.exists():
    tries.touch()
    while len(list(folder.parent.glob("*/tries"))) < 2:
        time.sleep(0.01)
    sys.exit(73)
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
ROOM_AT_THE_SECOND_TRY = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
if not (folder / "tries").exists():
    (folder / "tries").touch()
    sys.exit(73)
(folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
"""
EVALUATES_UNTIL_THE_ARM_HAS_WAITED = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
print(json.dumps({"stage": "evaluation", "done": 0, "total": 2}), flush=True)
if (folder / "tries").exists():
    (folder / "arm.json").write_text('{"settings": {}, "preset": "test", "evaluation": {}}')
    sys.exit()
(folder / "tries").touch()
while not (folder.parent / "told").exists():
    time.sleep(0.01)
"""


AFTER_THE_PLAYER = """
import pathlib, sys
assert (pathlib.Path(sys.argv[1]).parent / "player" / "arm.json").exists()
"""


@pytest.fixture
def begin(monkeypatch):
    """Have each worker run the program of its name."""
    real = schedule._Process

    def with_programs(programs: dict[str, str]):
        def process(work, reports):
            monkeypatch.setattr(schedule, "_WORKER", ("-c", programs[work.name]))
            return real(work, reports)

        monkeypatch.setattr(schedule, "_Process", process)
        return process

    return with_programs


def _ignore(*_: object) -> None:
    pass


def test_an_arm_that_fails_costs_the_others_nothing(tmp_path, begin, monkeypatch):
    monkeypatch.setattr("sys.stderr", told := _Told(tmp_path, "the others go on"))
    begin({"a": BEGUN + UNTIL_TOLD + TRAINED, "bad": FAILS, "b": BEGUN + TRAINED, "last": TRAINED})
    begun_after = {"last": tmp_path / "b", "lost": tmp_path / "bad", "lost too": tmp_path / "bad"}
    work = [
        Work(name, 0, tmp_path / name, {}, "test", begun_after.get(name), {})
        for name in ("a", "bad", "b", "last", "lost", "lost too")
    ]
    with pytest.raises(MulliganError) as raised:
        run_work(work, 3, _ignore)
    assert all(words in str(raised.value) for words in ("'bad'", "exit code 1", "out of order"))
    assert all(name in str(raised.value) for name in ("'lost'", "'lost too'"))
    assert [name for name in ("a", "b", "last") if (tmp_path / name / "arm.json").exists()] == ["a", "b", "last"]
    assert not (tmp_path / "lost").exists()
    assert "the others go on" in told.text


def test_a_writer_waits_for_its_player_and_is_given_up_with_it(tmp_path, begin, capsys):
    """Also where the player itself could not begin: what it starts from failed."""
    begin({"warm": TRAINED, "bad": DEAF, "player": TRAINED, "writer": TRAINED})
    warm, bad, player = (tmp_path / name for name in ("warm", "bad", "player"))
    work = [
        _work(tmp_path, "warm"),
        _work(tmp_path, "bad"),
        Work("player", 0, player, {}, "test", bad, {}),
        Work("writer", 0, tmp_path / "writer", {}, "test", warm, {}, player=player),
    ]
    with pytest.raises(MulliganError, match="not begun without it: 'player' with seed 0, 'writer' with seed 0"):
        run_work(work, 4, _ignore)
    assert not (tmp_path / "writer").exists()
    begin({"player": TRAINED, "writer": AFTER_THE_PLAYER + TRAINED})
    played = Work("player", 0, player, {}, "test", warm, {})
    assert len(run_work([work[0], played, work[3]], 4, _ignore)) == 3


def test_all_that_failed_are_named(tmp_path, begin):
    begin({"a": DEAF, "b": TRAINED, "c": DEAF})
    with pytest.raises(MulliganError, match=r"(?s)'a' with seed 0 failed.*\n'c' with seed 0 failed"):
        run_work([_work(tmp_path, name) for name in "abc"], 1, _ignore)
    assert (tmp_path / "b" / "arm.json").exists()


def test_arms_that_found_too_little_memory_beside_another_begin_again_when_it_has_ended(tmp_path, begin, capsys):
    """And only then: a try costs the time in which a model is loaded."""
    begin({"first": WHEN_THE_OTHERS_HAVE_TRIED, "a": NO_ROOM_BESIDE_THE_FIRST, "b": NO_ROOM_BESIDE_THE_FIRST})
    assert len(run_work([_work(tmp_path, name) for name in ("first", "a", "b")], 3, _ignore)) == 3
    assert [(tmp_path / name / "tries").read_text() for name in "ab"] == ["xx", "xx"]
    assert capsys.readouterr().err.count("it begins again when another has ended") == 2


def test_nobody_else_begins_beside_those_that_left_too_little_memory(tmp_path, begin):
    """Each arm of a long sweep would try in vain, again and again."""
    begin({"first": WHILE_NOBODY_BUT_ONE_HAS_TRIED, "a": NO_ROOM_BESIDE_THE_FIRST, "b": NO_ROOM_BESIDE_THE_FIRST})
    assert len(run_work([_work(tmp_path, name) for name in ("first", "a", "b")], 2, _ignore)) == 3
    assert [(tmp_path / name / "tries").read_text() for name in "ab"] == ["xx", "x"]


def test_arms_for_which_there_is_no_room_side_by_side_are_done_all_the_same(tmp_path, begin):
    begin({"a": NO_ROOM_FOR_TWO, "b": NO_ROOM_FOR_TWO})
    assert len(run_work([_work(tmp_path, name) for name in "ab"], 2, _ignore)) == 2


class _Told:
    """Standard error that makes a file when something is said: that somebody waits, or has failed."""

    def __init__(self, folder: Path, what: str = "it begins again") -> None:
        self.folder, self.what, self.text = folder, what, ""

    def write(self, text: str) -> None:
        self.text += text
        if self.what in text:
            (self.folder / "told").touch()


def _start_and_arm(folder: Path) -> list[Work]:
    return [_work(folder, "start"), Work("arm", 0, folder / "arm", {}, "test", folder / "start", {})]


def test_of_those_without_room_side_by_side_whoever_is_started_from_comes_first(tmp_path, begin, monkeypatch):
    """The arm began beside its start, which was still evaluated; both found too little, the arm first."""
    monkeypatch.setattr("sys.stderr", _Told(tmp_path))
    begin({"start": EVALUATES_UNTIL_THE_ARM_HAS_WAITED + "sys.exit(73)", "arm": ROOM_AT_THE_SECOND_TRY})
    assert len(run_work(_start_and_arm(tmp_path), 2, _ignore)) == 2


def test_an_arm_that_waits_for_room_is_not_begun_again_when_what_it_starts_from_has_failed(
    tmp_path, begin, monkeypatch
):
    monkeypatch.setattr("sys.stderr", _Told(tmp_path))
    begin({"start": EVALUATES_UNTIL_THE_ARM_HAS_WAITED + "sys.exit('disk full')", "arm": ROOM_AT_THE_SECOND_TRY})
    with pytest.raises(MulliganError, match=r"'start' with seed 0 failed.*disk full.*not begun without it: 'arm'"):
        run_work(_start_and_arm(tmp_path), 2, _ignore)


def test_an_arm_begins_again_though_what_it_started_from_has_failed_since(tmp_path, begin, monkeypatch):
    """When it was evaluated: the weights are there."""
    monkeypatch.setattr("sys.stderr", told := _Told(tmp_path, "the others go on"))
    fails = EVALUATES_UNTIL_THE_ARM_HAS_WAITED.replace('"told"', '"arm" / "tries"') + "sys.exit('disk full')"
    waits = "    while not (folder.parent / 'told').exists():\n        time.sleep(0.01)\n    sys.exit"
    begin({"start": fails, "arm": "import time" + ROOM_AT_THE_SECOND_TRY.replace("    sys.exit(73", f"{waits}(73")})
    with pytest.raises(MulliganError, match=r"'start' with seed 0 failed \(exit code 1\): disk full"):
        run_work(_start_and_arm(tmp_path), 2, _ignore)
    assert "'arm' with seed 0 failed" in told.text
    assert (tmp_path / "arm" / "arm.json").exists()


def test_too_little_memory_for_an_arm_alone_is_a_failure(tmp_path, begin):
    begin({"a": "import sys; sys.exit(73)", "b": TRAINED})
    with pytest.raises(MulliganError, match=r"'a' with seed 0 failed \(exit code 73\)"):
        run_work([_work(tmp_path, name) for name in "ab"], 1, _ignore)
    assert (tmp_path / "b" / "arm.json").exists()


def test_what_failed_before_the_time_was_over_is_told(tmp_path, begin):
    begin({"a": TRAINS, "bad": DEAF})
    with pytest.raises(MulliganError, match="'bad' with seed 0 failed"):
        run_work([_work(tmp_path, name) for name in ("a", "bad")], 2, _ignore, seconds=1.0)
    assert (tmp_path / "a" / "saved").exists()


def test_an_arm_begins_when_the_weights_it_starts_from_are_there_though_they_are_still_evaluated(tmp_path, begin):
    begin({"start": WAITS_WHILE_EVALUATING, "arm": TRAINED})
    work = [_work(tmp_path, "start"), Work("arm", 0, tmp_path / "arm", {}, "test", tmp_path / "start", {})]
    assert set(run_work(work, 2, _ignore)) == {tmp_path / "start", tmp_path / "arm"}


def test_an_interruption_at_any_moment_lets_the_workers_save(tmp_path, begin):
    begin({"a": TRAINS})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_work([_work(tmp_path, "a")], 1, interrupted)
    assert (tmp_path / "a" / "saved").exists()


def test_one_that_can_be_begun_again_is_no_failure_as_it_is_let_go(tmp_path, begin):
    """The same command goes on from there."""
    begin({"a": TRAINS, "b": TRAINS.replace("sys.exit(75)", "sys.exit(73)")})
    begun: set[str] = set()

    def interrupted(work: Work, *_: object) -> None:
        begun.add(work.name)
        if len(begun) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_work([_work(tmp_path, name) for name in "ab"], 2, interrupted)


def test_one_that_fails_as_it_is_let_go_does_not_cost_the_others_what_they_trained(tmp_path, begin):
    fails = TRAINS.replace("sys.exit(75)", "sys.exit('no room left')")
    begin({"a": TRAINS, "b": fails, "c": TRAINS})
    begun: set[str] = set()

    def interrupted(work: Work, *_: object) -> None:
        begun.add(work.name)
        if len(begun) == 3:
            raise KeyboardInterrupt

    with pytest.raises(MulliganError, match=r"'b' with seed 0 failed.*no room left"):
        run_work([_work(tmp_path, name) for name in "abc"], 3, interrupted)
    assert (tmp_path / "a" / "saved").exists()
    assert (tmp_path / "c" / "saved").exists()


def test_a_worker_that_ends_as_it_is_asked_to_leave_is_no_failure(tmp_path, begin):
    scheduler = schedule._Scheduler([], 1, _ignore)
    process = begin({"a": GONE})(_work(tmp_path, "a"), scheduler.reports)
    scheduler.running[process.work.folder] = process
    process.process.wait()
    scheduler.let_go()
    assert scheduler.failures == []


def test_a_worker_that_never_listens_is_reported(tmp_path, begin):
    begin({"a": DEAF})
    with pytest.raises(MulliganError, match=r"failed \(exit code 3\)"):
        run_work([_work(tmp_path, "a")], 1, _ignore)


def test_two_signals_within_a_second_are_one_request(monkeypatch):
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(stopping, "time", clock)
    with stopping.handling(stopping.interrupt_once()):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        clock.now += 0.5
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        clock.now += 1.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_is_under_way_is_said_once(tmp_path, capsys, monkeypatch):
    """Not "warm start: warm start 1 of 250"."""
    monkeypatch.setattr("mulligan.app.progress._EVERY_SECONDS", 0.0)
    work = [_work(tmp_path, "warm start"), _work(tmp_path, "RL")]
    with schedule.work_progress(work) as show:
        show(work[0], "demonstrations", 100, 400)
        show(work[0], "warm start", 1, 250)
        show(work[1], "training", 2, 80)
    said = ["warm start: demonstrations 100 of 400", "warm start: 1 of 250", "RL: training 2 of 80"]
    assert capsys.readouterr().err.splitlines() == said
