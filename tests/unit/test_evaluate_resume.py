"""Evaluations that were interrupted go on and pay nothing twice; what failed is played again, or told."""

from __future__ import annotations

import asyncio

import pytest

import mulligan
from mulligan import evaluate
from mulligan.envs.bandit import Bandit
from mulligan.errors import DamagedFile, FaultyWorld, PolicyError, RequestFailed, RunFolderError
from mulligan.eval.paid import PaidReplies
from mulligan.report.tables import footnotes
from mulligan.types import Completion, Message
from notebooks import interrupt, run_interrupted
from readers import Reader


def test_an_interrupted_evaluation_goes_on_without_repeating(tmp_path):
    class Stopping(Reader):
        def __call__(self, messages: list[Message]) -> str:
            if self.calls >= 50:
                raise KeyboardInterrupt
            return super().__call__(messages)

    options = {"tasks": 40, "run": tmp_path / "run", "room": False}
    with pytest.raises(KeyboardInterrupt):
        evaluate("bandit", _named(Stopping()), **options)
    kept = mulligan.load_trials(tmp_path / "run")
    assert 0 < len(kept) < 40
    reader = Reader()
    result = evaluate("bandit", _named(reader), resume=True, **options)
    fresh = Reader()
    whole = evaluate("bandit", _named(fresh), tasks=40, room=False)
    assert result.main == whole.main
    assert reader.calls < fresh.calls


@pytest.mark.parametrize("stop_after", [1, 7, 83])
def test_not_one_paid_reply_is_asked_for_twice(tmp_path, stop_after):
    """Interrupted in the middle of several trials at once: the calls of both runs add up to those of one."""

    class Stopping(Reader):
        async def __call__(self, messages: list[Message]) -> str:  # type: ignore[override]
            if self.calls >= stop_after:
                raise KeyboardInterrupt
            answer = Reader.__call__(self, messages)
            await asyncio.sleep(0)
            return answer

    options = {"tasks": 40, "run": tmp_path / "run", "room": False, "concurrency": 6}
    first, second, whole = _named(Stopping()), _named(Reader()), _named(Reader())
    with pytest.raises(KeyboardInterrupt):
        evaluate("bandit", first, **options)
    result = evaluate("bandit", second, resume=True, **options)
    assert result.main == evaluate("bandit", whole, tasks=40, room=False).main
    assert first.calls + second.calls <= whole.calls + 6  # a reply that was under way at the interruption never came
    left = {file.name: PaidReplies(file) for file in (tmp_path / "run" / "paid").iterdir()}
    assert left.keys() == {"independent.jsonl", "main.jsonl"}
    assert sum(len(paid.kept) for paid in left.values()) == whole.calls  # they stay: trials can be made from them again


def _named(reader: Reader) -> Reader:
    reader.__name__ = "reader"  # type: ignore[attr-defined]
    return reader


def test_an_interrupt_in_a_notebook_ends_the_evaluation(tmp_path):
    """Inside a running loop it is played in a thread of its own, which must not go on and pay to the end."""
    calls = 0

    async def slow(messages: list[Message]) -> str:
        nonlocal calls
        calls += 1
        if calls == 20:
            interrupt()
        await asyncio.sleep(0.005)
        return "<action>1</action>"

    async def cell() -> None:
        evaluate("bandit", slow, tasks=300, episodes=1, controls=(), room=False, concurrency=4, run=tmp_path / "run")

    message = run_interrupted(cell())
    assert calls < 60
    kept = len(mulligan.load_trials(tmp_path / "run"))
    assert 0 < kept < 60
    run = str(tmp_path / "run")
    assert message == f"{kept} trials are in {run}; continue with: mulligan.evaluate(…, run={run!r}, resume=True)"


def test_paid_replies_outlive_a_full_disk(tmp_path, monkeypatch):
    """Nothing that was paid for is written anew, so that nothing can be lost where there is no room to write."""
    file = tmp_path / "main.jsonl"
    PaidReplies(file).keep(1, 0, 7, Completion("a"))
    paid = file.read_bytes()
    file.write_bytes(paid + b'[1, 1, 8, {"te')  # killed in the middle of a write

    def full(path, text, **options):
        path.open("w").close()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("pathlib.Path.write_text", full)
        with pytest.warns(DamagedFile, match="1 of its 2 paid replies"):
            assert PaidReplies(file).kept == {(1, 0): (7, Completion("a"))}
    assert file.read_bytes() == paid
    assert (tmp_path / "main.jsonl.damaged").read_bytes() == b'[1, 1, 8, {"te\n'
    file.write_bytes(paid + paid[9:-1])  # an older version, killed before the end of the line
    with pytest.warns(DamagedFile, match="1 of its 2 paid replies"):
        PaidReplies(file)
    assert file.read_bytes() == paid


def test_resuming_another_evaluation_is_refused(tmp_path):
    evaluate("bandit", "random", tasks=5, run=tmp_path / "run", room=False)
    with pytest.raises(RunFolderError, match="tasks = 5, not 6"):
        evaluate("bandit", "random", tasks=6, run=tmp_path / "run", resume=True)


def test_trials_that_never_reached_their_model_are_played_again(tmp_path):
    class Flaky(Reader):
        broken = True

        def __call__(self, messages: list[Message]) -> str:
            if self.broken and self.calls % 3 == 2:
                self.calls += 1
                raise RequestFailed("gone")
            return super().__call__(messages)

    flaky = _named(Flaky())
    first = evaluate("bandit", flaky, tasks=30, run=tmp_path / "run", room=False, controls=())
    assert first.main.failed > 0
    assert first.main.stop_reasons["request_failed"] > 0
    flaky.broken = False
    second = evaluate("bandit", flaky, tasks=30, run=tmp_path / "run", resume=True, room=False, controls=())
    assert second.main.failed == 0
    assert second.main == evaluate("bandit", Reader(), tasks=30, room=False, controls=()).main


def test_trials_that_lack_a_reflection_are_played_again(tmp_path):
    """An outage while reflections were asked for: the next episodes played without memory, and would count so."""

    class Flaky(Reader):
        broken = True

        def __call__(self, messages: list[Message]) -> str:
            if self.broken and "Write a short reflection" in messages[-1]["content"]:
                raise RequestFailed("503: overloaded")
            return super().__call__(messages)

    flaky = _named(Flaky())
    first = evaluate("bandit", flaky, tasks=30, run=tmp_path / "run", room=False, controls=())
    assert first.main.failed > 0
    assert "503: overloaded" in first.main.failure
    flaky.broken = False
    second = evaluate("bandit", flaky, tasks=30, run=tmp_path / "run", resume=True, room=False, controls=())
    assert second.main == evaluate("bandit", Reader(), tasks=30, room=False, controls=()).main


def test_failures_of_a_control_are_told():
    """A control that could not be played well makes the memory look better than it is."""

    class Dying(Reader):
        def __call__(self, messages: list[Message]) -> str:
            if "Episode " not in messages[-1]["content"] and self.calls > 120:  # only retries say nothing of episodes
                raise RequestFailed("503: overloaded")
            return super().__call__(messages)

    result = evaluate("bandit", Dying(), tasks=30, room=False)
    assert result.main.failed == 0
    failed = result.controls["independent"].failed
    assert failed > 0
    told = "\n".join(footnotes(result.to_dict()))
    assert f"{failed} trials of independent" in told
    assert "503: overloaded" in told


def test_a_model_that_is_not_there_stops_the_run_early():
    calls = []

    def gone(messages: list[Message]) -> str:
        calls.append(1)
        raise RequestFailed("connection refused")

    with pytest.raises(PolicyError, match="connection refused"):
        evaluate("bandit", gone, tasks=512, concurrency=4)
    assert len(calls) < 60


def test_the_pace_is_of_what_was_played_now(tmp_path):
    options = {"tasks": 5, "run": tmp_path / "run", "room": False}
    assert evaluate("bandit", "random", **options).turns_per_second > 0
    assert evaluate("bandit", "random", resume=True, **options).turns_per_second is None


def test_worlds_that_cannot_always_be_built_do_not_shift_the_tasks_of_a_resume(tmp_path):
    broken = True

    class Moody(Bandit):
        def world_key(self) -> str:
            if broken and self.task.seed % 3 == 0:
                raise RuntimeError("not today")
            return f"{self.paying} {self.task.seed}"

    options = {"tasks": 12, "run": tmp_path / "run", "room": False}
    with pytest.warns(FaultyWorld):
        first = evaluate(Moody, "random", **options)
    broken = False
    assert evaluate(Moody, "random", resume=True, **options).main == first.main
