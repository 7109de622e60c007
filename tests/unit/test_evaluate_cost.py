"""What an evaluation costs, all of it, and what outages do to its figures."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest

from mulligan import evaluate
from mulligan.errors import DamagedFile, RequestFailed, RunFolderError
from mulligan.eval.paid import PaidReplies
from mulligan.report.tables import eval_table, footnotes
from mulligan.types import Completion, Message, Step, Task

A_REPLY = 0.001


class Paying:
    """Pulls the first arm, always; every reply has a thousand tokens."""

    name, pays = "paying", True

    def __init__(self) -> None:
        self.calls = 0

    def start(self, task, seed):
        return _Paying(self, task)

    def answer(self, task: Task, messages: list[Message]) -> str:
        return "<action>1</action>"


class _Paying:
    def __init__(self, owner: Paying, task: Task) -> None:
        self.owner, self.task = owner, task

    async def reply(self, messages, sampling):
        text = self.owner.answer(self.task, messages)
        self.owner.calls += 1
        return Completion(text, prompt_tokens=1000)

    def close(self):
        pass


class Raising:
    """A world that falls apart at its first step."""

    turns: ClassVar[int] = 2

    def __init__(self, task: Task) -> None:
        self.task = task

    def rules(self) -> str:
        return "<action>1</action>"

    def reset(self, chance: int = 0) -> str:
        return "begin"

    def step(self, reply: str) -> Step:
        raise RuntimeError("apart")


def test_a_function_cannot_spend_without_limit():
    """It counts no tokens; they are estimated, as an endpoint's are that says nothing of them."""
    calls = 0

    def function(messages: list[Message]) -> str:
        nonlocal calls
        calls += 1
        return "<action>1</action>"

    result = evaluate(
        "bandit", function, tasks=200, price_in=3, price_out=15, max_cost=0.001, concurrency=1, room=False
    )
    assert not result.complete
    assert 0.001 <= result.cost < 0.003
    assert calls < 60


def test_replies_to_a_broken_world_are_paid_for_too():
    policy = Paying()
    options = {"price_in": 1.0, "max_cost": 0.01, "room": False, "concurrency": 1}
    with pytest.warns(UserWarning, match="RuntimeError"):
        result = evaluate(f"{__file__}:Raising", policy, tasks=100, **options)
    assert not result.complete
    assert result.cost == pytest.approx(policy.calls * A_REPLY)
    assert policy.calls == 10


def test_what_an_outage_has_cost_is_not_forgotten(tmp_path):
    """A request fails for good, the trial goes on, and is played again when the evaluation is resumed."""

    class Flaky(Paying):
        broken = True

        def answer(self, task, messages):
            if self.broken and task.seed % 3 == 0 and len(messages) == 2:
                raise RequestFailed("503")
            return super().answer(task, messages)

    policy = Flaky()
    options = {"tasks": 20, "run": tmp_path / "run", "room": False, "price_in": 1.0, "concurrency": 1}
    first = evaluate("bandit", policy, **options)
    assert first.main.failed > 0
    assert first.cost == pytest.approx(policy.calls * A_REPLY)
    policy.broken = False
    second = evaluate("bandit", policy, resume=True, **options)
    assert second.main.failed == 0
    assert second.cost == pytest.approx(policy.calls * A_REPLY)
    calls = policy.calls
    third = evaluate("bandit", policy, resume=True, **options)
    assert (third.cost, policy.calls) == (pytest.approx(calls * A_REPLY), calls)


def test_the_limit_knows_what_later_arms_have_cost(tmp_path):
    policy = Paying()
    options = {"tasks": 6, "run": tmp_path / "run", "room": False, "price_in": 1.0, "concurrency": 1}
    spent = evaluate("bandit", policy, **options).cost
    for trials in (tmp_path / "run" / "trials").glob("main*"):
        trials.unlink()
    calls = policy.calls
    result = evaluate("bandit", policy, resume=True, max_cost=spent, **options)
    assert (policy.calls, result.main.trials) == (calls, 0)


def test_tasks_that_always_fail_do_not_keep_an_evaluation_from_its_end(tmp_path):
    """A filter refuses ten tasks of forty; when the evaluation is resumed, these ten are all that is left of main."""

    class Refused(Paying):
        stop_at = 10**9

        def answer(self, task, messages):
            if self.calls >= self.stop_at:
                raise KeyboardInterrupt
            if task.seed % 4 == 0:
                raise RequestFailed("400: content filter")
            return super().answer(task, messages)

    options = {"tasks": 40, "room": False, "concurrency": 1}
    whole = Refused()
    wanted = evaluate("bandit", whole, **options)
    assert (wanted.main.failed, wanted.complete) == (10, True)
    policy = Refused()
    policy.stop_at = whole.calls - 5  # in the control
    with pytest.raises(KeyboardInterrupt):
        evaluate("bandit", policy, run=tmp_path / "run", **options)
    policy.stop_at = 10**9
    result = evaluate("bandit", policy, run=tmp_path / "run", resume=True, **options)
    assert (result.main.failed, result.complete) == (10, True)


def test_an_outage_after_main_keeps_its_result():
    class Leaving(Paying):
        def answer(self, task, messages):
            if "Episode " not in messages[1]["content"]:  # only retries say nothing of episodes
                raise RequestFailed("gone")
            return super().answer(task, messages)

    result = evaluate("bandit", Leaving(), tasks=20, room=False)
    assert (result.main.failed, result.main.trials) == (0, 20)
    assert result.controls["independent"].failed == 20
    assert not result.gains  # nothing was played that main could be compared with
    data = {**result.to_dict(), "run": "r"}
    assert footnotes(data)[-1] == "continue with: mulligan eval --resume r"
    assert "independent retries*" in [
        str(getattr(cell, "renderable", cell)) for cell in eval_table(data).columns[0].cells
    ]


def test_it_is_told_where_trials_under_way_cost_more_than_the_limit():
    data = evaluate("bandit", Paying(), tasks=20, room=False, price_in=1.0, max_cost=0.0105).to_dict()
    assert any("went beyond max_cost 0.0105" in line for line in footnotes({**data, "max_cost": 0.0105}))
    assert not any("max_cost" in line for line in footnotes({**data, "max_cost": data["cost"]}))


def test_a_game_that_failed_is_no_draw():
    """Where nothing fails, the first legal cell loses often; half of all requests failing must not look better."""

    class Half(Paying):
        def __init__(self, broken: bool) -> None:
            super().__init__()
            self.broken = broken

        def answer(self, task, messages):
            if self.broken and task.seed % 2:
                raise RequestFailed("gone")
            return "<action>nothing</action>"

    options = {"params": {"opponent": "minimax"}, "tasks": 20, "room": False}
    sound, broken = (evaluate("tictactoe", Half(broken), **options) for broken in (False, True))
    assert sound.main.returns[0] == broken.main.returns[0] == -1.0
    assert broken.main.failed == 10
    assert broken.gains["independent"][0] == 0.0
    assert "10 trials, what failed of them left out" in "\n".join(footnotes(broken.to_dict()))


def test_it_is_told_where_a_control_had_no_reflection_to_show():
    """Another trial of the task that has won at once wrote none."""

    class Lucky(Paying):
        def answer(self, task, messages):
            return f"<action>{1 + self.calls % 2}</action>"

    result = evaluate("bandit", Lucky(), params={"arms": 2}, tasks=60, controls=("other-trial",), room=False)
    control = result.controls["other-trial"]
    later = sum(control.played[1:])
    assert control.reflections < later
    assert f" {control.reflections} of {later} " in "\n".join(footnotes(result.to_dict()))


def test_one_episode_has_no_control():
    policy = Paying()
    assert not evaluate("bandit", policy, tasks=5, episodes=1, room=False).controls
    assert policy.calls == 5


def test_a_policy_that_counts_is_asked_what_this_evaluation_took():
    class Counting(Paying):
        @property
        def stats(self):
            return {"requests": self.calls, "faults": {"503": self.calls // 2}}

    policy = Counting()
    first, second = (evaluate("bandit", policy, tasks=4, episodes=1, room=False) for _ in range(2))
    assert first.requests == second.requests == {"requests": 4, "faults": {"503": 2}}
    assert "Requests: 4 (faults: 503 2)" in footnotes(first.to_dict())


def test_a_full_disk_is_said_and_leaves_what_was_paid_for_readable(tmp_path, monkeypatch):
    file = tmp_path / "main.jsonl"
    paid = PaidReplies(file)
    paid.keep(1, 0, 7, Completion("a", prompt_tokens=5))

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("os.fsync", full)
        disk.setattr(paid, "_synced", -math.inf)
        with pytest.raises(RunFolderError, match=r"main\.jsonl.*No space left"):
            paid.keep(1, 1, 8, Completion("b"))
    paid.keep(1, 2, 9, Completion("c"))
    assert PaidReplies(file).kept.keys() == {(1, 0), (1, 2)}
    file.write_bytes(file.read_bytes().replace(b'"c"', b'"d"'))
    with pytest.warns(DamagedFile, match="1 of its 2 paid replies"):
        assert PaidReplies(file).kept.keys() == {(1, 0)}


def test_replies_outlive_their_trials(tmp_path):
    """Where the file of trials is lost, it is made again from them; each is counted once."""
    policy, folder = Paying(), tmp_path / "run"
    options = {"tasks": 6, "run": folder, "room": False, "price_in": 1.0, "concurrency": 1}
    first = evaluate("bandit", policy, **options)
    calls = policy.calls
    (folder / "trials/main.jsonl.gz").unlink()
    replies = folder / "paid/main.jsonl"
    replies.write_bytes(replies.read_bytes() + replies.read_bytes()[: replies.read_bytes().index(b"\n") + 1])
    second = evaluate("bandit", policy, resume=True, **options)
    assert (second.main, second.cost, policy.calls) == (first.main, pytest.approx(first.cost), calls)


def test_replies_of_earlier_versions_are_not_paid_for_again(tmp_path):
    """They wrote no checksums, and of complete trials only the sum of tokens."""
    policy, folder = Paying(), tmp_path / "run"
    options = {"tasks": 6, "run": folder, "room": False, "price_in": 1.0, "concurrency": 1}
    first = evaluate("bandit", policy, **options)
    calls = policy.calls
    main, control = folder / "paid/main.jsonl", folder / "paid/independent.jsonl"
    main.write_bytes(b"".join(line[9:] for line in main.read_bytes().splitlines(keepends=True)))
    (folder / "trials/main.jsonl.gz").unlink()
    replies = len(control.read_bytes().splitlines())
    control.write_text(f'{{"prompt_tokens": {1000 * (replies + 5)}, "completion_tokens": 0}}\n')  # five played again
    second = evaluate("bandit", policy, resume=True, **options)
    assert (second.main, policy.calls) == (first.main, calls)
    assert second.cost == pytest.approx(first.cost + 5 * A_REPLY)


def test_what_complete_trials_have_cost_is_known_without_their_replies(tmp_path):
    policy, folder = Paying(), tmp_path / "run"
    options = {"tasks": 6, "run": folder, "room": False, "price_in": 1.0, "concurrency": 1}
    first = evaluate("bandit", policy, **options)
    replies = folder / "paid/main.jsonl"
    for lines in (replies.read_bytes().splitlines(keepends=True)[:7], []):
        replies.write_bytes(b"".join(lines))
        assert evaluate("bandit", policy, resume=True, **options).cost == pytest.approx(first.cost)


def test_trials_of_another_arm_are_refused(tmp_path):
    folder = tmp_path / "run"
    evaluate("bandit", Paying(), tasks=6, run=folder, room=False)
    main, control = folder / "trials/main.jsonl.gz", folder / "trials/independent.jsonl.gz"
    main.write_bytes(control.read_bytes())
    with pytest.raises(RunFolderError, match=r"main\.jsonl\.gz and config\.toml are of different evaluations"):
        evaluate("bandit", Paying(), tasks=6, run=folder, room=False, resume=True)


def test_a_run_ends_where_its_folder_cannot_be_written(tmp_path, monkeypatch):
    """It is not the model that failed."""

    def full(*_, **__):
        raise RunFolderError("no space")

    monkeypatch.setattr(PaidReplies, "keep", full)
    with pytest.raises(RunFolderError, match="no space"):
        evaluate("bandit", Paying(), tasks=4, run=tmp_path / "run", room=False)
