"""Evaluation: one protocol, numbers that depend on nothing but the seed, controls that control."""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import threading

import pytest

import mulligan
from mulligan import api
from mulligan.envs.bandit import Bandit
from mulligan.errors import ParameterError, PolicyError, RequestFailed, RunFolderError, UnknownName, UsageError
from mulligan.eval.paid import PaidReplies
from mulligan.eval.plan import Prices
from mulligan.eval.run import evaluate
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.tables import eval_table, footnotes
from mulligan.train.resolve import resolve
from mulligan.types import Completion, Message


class Reader:
    """A bandit player that only knows what its memory tells: it pulls the first arm not said to have failed.

    Its reflections name the arms it has seen fail, so controls that change reflections change what it does.
    """

    name = "reader"

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: list[Message]) -> str:
        self.calls += 1
        said = messages[-1]["content"]
        if "Write a short reflection" in said:
            failed = [line for line in said.splitlines() if line.startswith("Arm ")]
            earlier = [line for line in messages[1]["content"].splitlines() if line.startswith("Arm ")]
            return "<reflection>\nenv_answer:\n" + "\n".join([*earlier, *failed]) + "\n</reflection>"
        for arm in range(1, 9):
            if f"Arm {arm} paid 0" not in said:
                return f"<action>{arm}</action>"
        return "<action>1</action>"


class Numbering(Reader):
    """A reader whose notes can be told apart."""

    def __call__(self, messages: list[Message]) -> str:
        answer = super().__call__(messages)
        return answer.replace("env_answer:", f"strategy: note {self.calls}\nenv_answer:")


class Paid(Reader):
    """A reader whose every request has a thousand tokens."""

    def start(self, task, seed):
        return self

    async def reply(self, messages, sampling):
        return Completion(Reader.__call__(self, list(messages)), prompt_tokens=1000)

    def close(self):
        pass


ALL = ("independent", "removed", "foreign", "other-trial")


def test_the_ceiling_of_related_tasks_is_that_of_all_their_episodes():
    """Of two boards one cannot be won in the turns there are; the next episode is on the other one."""
    result = evaluate("minesweeper", ExpertPolicy(), params={"turns": 2}, tasks=16, related=True, controls=())
    assert set(result.room) == {"ceiling", "expert"}  # "perfect memory" would forget all at each new task
    p = result.room["ceiling"].p
    assert p[0] < p[1] <= p[2] == result.ceiling


def test_later_episodes_can_be_other_tasks_of_the_class(tmp_path):
    options = {"params": {"arms": 3}, "tasks": 9, "controls": ("independent",), "stop": "never", "related": True}
    result = evaluate("bandit", Reader(), **options, run=tmp_path / "run")
    seeds = [trial.task.seed for trial in result.trials]
    for place, trial in enumerate(result.trials):
        assert [task.seed for task in trial.related] == [seeds[(place + 1) % 9], seeds[(place + 2) % 9]]
        assert {task.task_class for task in trial.related} == {trial.task.task_class}
    assert ", related tasks" in str(eval_table(result.to_dict()).title)
    assert result.main.effective[0] == 9 >= result.main.effective[2]
    again = Reader()
    assert evaluate("bandit", again, **options, run=tmp_path / "run", resume=True).p == result.p
    assert again.calls == 0
    with pytest.raises(RunFolderError):
        evaluate("bandit", again, **{**options, "related": False}, run=tmp_path / "run", resume=True)


def test_controls_tell_what_the_memory_is_worth():
    """Three arms, three episodes, truthful notes: every bandit is solved, and only with its own notes."""
    result = evaluate("bandit", Reader(), params={"arms": 3}, tasks=90, controls=ALL)
    assert result.p[2] == 1.0
    first = result.p[0]
    assert 0.2 < first < 0.5
    # Without notes the player pulls arm 1 again and again: retries add nothing.
    assert result.controls["independent"].p == pytest.approx([first] * 3)
    assert result.controls["removed"].p == pytest.approx([first] * 3)
    # Another trial of the same deterministic player on the same task writes the same notes.
    assert result.controls["other-trial"].p == result.p
    gain, (low, _) = result.gains["independent"]
    assert gain == pytest.approx(1 - first)
    assert low > 0.5


def test_foreign_notes_come_from_another_task_after_the_same_episode(tmp_path):
    evaluate("bandit", Numbering(), tasks=60, controls=("foreign",), room=False, run=tmp_path / "run")
    own = mulligan.load_trials(tmp_path / "run", "main")
    foreign = mulligan.load_trials(tmp_path / "run", "foreign")
    writers = {
        episode.reflection.text: (trial.task.seed, episode.index)
        for trial in own
        for episode in trial.episodes
        if episode.reflection
    }
    shown = 0
    for trial in foreign:
        for episode in trial.episodes[:-1]:
            seed, index = writers[episode.reflection.text]
            assert seed != trial.task.seed
            assert index == episode.index
            shown += 1
    assert shown > 30


@pytest.mark.parametrize(("tasks", "some"), [(5, False), (16, True)])
def test_foreign_notes_know_none_of_the_related_tasks(tmp_path, tasks, some):
    """Trials of related tasks overlap; where all of them do, no note is foreign, and the footnotes tell."""
    options = {"tasks": tasks, "params": {"arms": 8}, "room": False, "related": True}
    evaluate("bandit", Numbering(), **options, controls=("foreign",), run=tmp_path / "run")
    played = {
        episode.reflection.text: {trial.task, *trial.related}
        for trial in mulligan.load_trials(tmp_path / "run", "main")
        for episode in trial.episodes
        if episode.reflection
    }
    foreign = mulligan.load_trials(tmp_path / "run", "foreign")
    shown = [(trial, e.reflection.text) for trial in foreign for e in trial.episodes if e.reflection]
    assert bool(shown) == some
    assert all(played[text].isdisjoint({trial.task, *trial.related}) for trial, text in shown)


def test_results_do_not_depend_on_concurrency():
    numbers = [
        evaluate("minesweeper", ExpertPolicy(0.6, 0.5), tasks=60, memory="history", concurrency=n, seed=3).to_dict()
        for n in (1, 7, 64)
    ]
    for found in numbers:
        found.pop("seconds")
        found.pop("turns_per_second")
    assert numbers[0] == numbers[1] == numbers[2]


def test_answers_that_come_in_any_order_give_the_same_numbers():
    class Jittery(Reader):
        async def __call__(self, messages: list[Message]) -> str:  # type: ignore[override]
            await asyncio.sleep((hash(messages[-1]["content"]) % 5) / 1000)
            return Reader.__call__(self, messages)

    fast = evaluate("bandit", Reader(), tasks=40, room=False)
    slow = evaluate("bandit", Jittery(), tasks=40, room=False, concurrency=9)
    assert fast.main == slow.main
    assert [trial.task for trial in slow.trials] == [trial.task for trial in fast.trials]


def test_another_seed_plays_the_same_tasks_differently():
    first, second = (evaluate("minesweeper", "expert:0.5", tasks=50, seed=seed, room=False) for seed in (0, 1))
    assert [trial.task for trial in first.trials] == [trial.task for trial in second.trials]
    assert [t.episodes[0].turns for t in first.trials] != [t.episodes[0].turns for t in second.trials]


def test_room_and_ceiling():
    result = evaluate("minesweeper", "random", tasks=100, controls=())
    assert set(result.room) == {"ceiling", "expert", "expert, perfect memory"}
    assert result.ceiling == result.room["ceiling"].p[0] == result.room["ceiling"].p[2]
    assert result.room["expert"].p[0] <= result.ceiling
    assert result.room["expert, perfect memory"].p[2] >= result.room["expert"].p[2]


def test_an_environment_need_not_have_every_scripted_player(monkeypatch):
    """The room shows those it has: the trials are played by then, and must not end in an error."""
    monkeypatch.setattr(Bandit, "players", ("expert", "lazy"), raising=False)
    assert list(evaluate("bandit", "random", tasks=4).room) == ["expert", "expert, perfect memory"]


def test_scripted_players_that_cannot_play_are_found_out_before_anything_is_paid(tmp_path, monkeypatch):
    """An environment with an expert alone may refuse the others; the trials must not be lost to that at the end."""

    def player(self, kind, rng, skill, recall):
        raise NotImplementedError(f"no {kind} here")

    monkeypatch.setattr(Bandit, "player", player)
    reader = Reader()
    for tasks in (3, 20):
        with pytest.raises(UsageError, match=r"'omniscient' cannot play: .*no omniscient here; .*--no-room"):
            evaluate("bandit", reader, tasks=tasks, run=tmp_path / "run")
    assert reader.calls == 0
    assert not (tmp_path / "run").exists()
    assert evaluate("bandit", reader, tasks=20, room=False).main.trials == 20


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


@pytest.mark.parametrize("stop_after", [1, 7, 50, 83])
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
    assert all(any(paid.tokens) and not paid.kept for paid in left.values())  # what it took, and no reply


def _named(reader: Reader) -> Reader:
    reader.__name__ = "reader"  # type: ignore[attr-defined]
    return reader


def test_an_interrupt_in_a_notebook_ends_the_evaluation(tmp_path):
    """Inside a running loop it is played in a thread of its own, which must not go on and pay to the end."""
    calls = 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored

    async def slow(messages: list[Message]) -> str:
        nonlocal calls
        calls += 1
        if calls == 20:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.sleep(0.005)
        return "<action>1</action>"

    async def cell() -> None:
        evaluate("bandit", slow, tasks=300, episodes=1, controls=(), room=False, concurrency=4, run=tmp_path / "run")

    loop = asyncio.new_event_loop()  # asyncio.run would take the signal itself; a notebook's loop does not
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(cell())
    finally:
        loop.close()
        signal.signal(signal.SIGINT, before)
    assert calls < 60
    assert 0 < len(mulligan.load_trials(tmp_path / "run")) < 60


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
        assert PaidReplies(file).kept == {(1, 0): (7, Completion("a"))}
    assert file.read_bytes() == paid


def test_a_control_that_is_named_twice_is_played_and_paid_once(tmp_path):
    reader = Reader()
    once = evaluate("bandit", reader, tasks=6, room=False, controls=("independent",))
    calls = reader.calls
    assert evaluate("bandit", reader, tasks=6, room=False, controls=("independent",) * 2).gains == once.gains
    assert reader.calls == 2 * calls


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
    assert f"Failed for reasons outside the agent: {failed} trials of independent" in told
    assert "503: overloaded" in told


def test_what_is_missing_is_told_of_controls_too():
    """Where the money ended in a control, "30 of 30 tasks" are not what is incomplete; and the cost is of all arms."""

    whole = evaluate("bandit", Paid(), tasks=30, prices=Prices(1.0), room=False, controls=())
    result = evaluate("bandit", Paid(), tasks=30, prices=Prices(1.0), max_cost=whole.cost + 0.005, room=False)
    told = footnotes(result.to_dict())
    played = result.controls["independent"].trials
    assert 0 < played < 30
    assert told[-1] == f"Incomplete: 30 of 30 tasks played, {played} of independent"
    assert f"cost {result.cost:.4f} with controls" in told[-2]
    assert "controls" not in footnotes(whole.to_dict())[-1]


def test_max_cost_starts_nothing_new():
    class Paid(Reader):
        def start(self, task, seed):
            return self

        async def reply(self, messages, sampling):
            return Completion(Reader.__call__(self, list(messages)), prompt_tokens=900, completion_tokens=100)

        def close(self):
            pass

    # An episode costs one call of 900 · 1 + 100 · 1 = 1,000 tokens = 0.001; reflections cost as much.
    result = evaluate("bandit", Paid(), tasks=100, prices=Prices(1.0, 1.0), max_cost=0.02, concurrency=1, room=False)
    assert not result.complete
    assert 0.02 <= result.cost < 0.02 + 5 * 0.001
    assert result.main.trials < 20
    with pytest.raises(ParameterError, match="price"):
        evaluate("bandit", Paid(), tasks=2, max_cost=1.0)


def test_a_model_that_is_not_there_stops_the_run_early():
    calls = []

    def gone(messages: list[Message]) -> str:
        calls.append(1)
        raise RequestFailed("connection refused")

    with pytest.raises(PolicyError, match="connection refused"):
        evaluate("bandit", gone, tasks=512, concurrency=4)
    assert len(calls) < 60


def test_games_report_returns_and_play_on():
    result = evaluate("bandit", "omniscient", tasks=10, stop="never", room=False)
    assert result.main.played == [10, 10, 10]
    assert result.main.returns == [1.0, 1.0, 1.0]


def test_result_is_plain_json_with_the_promised_keys():
    data = evaluate("bandit", "random", tasks=20).to_dict()
    read = json.loads(json.dumps(data))
    assert {"env", "policy", "tasks", "episodes", "p", "ci", "schema_version"} <= read.keys()
    assert len(read["p"]) == len(read["ci"]) == read["episodes"] == 3


def test_a_control_that_was_not_played_has_no_gain():
    result = evaluate("bandit", Paid(), tasks=4, prices=Prices(1.0), max_cost=0.001, concurrency=1, room=False)
    assert result.controls["independent"].trials == 0
    assert result.gains == {}
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_mistake_leaves_no_folder(tmp_path):
    def numberless(messages: list[Message]) -> str:
        return 7  # type: ignore[return-value]

    for env, policy, options in (
        ("minesweper", "random", {}),
        ("bandit", "random", {"tasks": 0}),
        ("bandit", "random", {"max_cost": 1.0}),
        ("bandit", "random", {"concurrency": 0}),
        ("bandit", numberless, {}),
    ):
        with pytest.raises(UsageError):
            evaluate(env, policy, run=tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()


def test_the_pace_is_of_what_was_played_now(tmp_path):
    options = {"tasks": 5, "run": tmp_path / "run", "room": False}
    assert evaluate("bandit", "random", **options).turns_per_second > 0
    assert evaluate("bandit", "random", resume=True, **options).turns_per_second is None


def test_training_takes_its_settings_from_one_place(tmp_path):
    with pytest.raises(UsageError, match="leave out env, settings"):
        mulligan.train("bandit", run=tmp_path / "run", resume=True, settings={"run.seed": 1})
    with pytest.raises(UsageError, match="leave out config"):  # it would count for nothing
        mulligan.train(config=resolve("test", None, {}), run=tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_training_begins_with_the_preset_for_any_machine(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    loop = importlib.import_module("mulligan.train.loop")
    begun = []
    monkeypatch.setattr(loop, "train", lambda config, run, **_: begun.append(config))
    mulligan.train("bandit", run=tmp_path / "run")
    mulligan.train("bandit", preset="cpu", run=tmp_path / "run")
    assert begun[0] == begun[1]


def test_a_trained_policy_is_evaluated_as_it_was_trained_unless_told_otherwise(monkeypatch):
    given = {"task.env": "minesweeper", "env.rows": "4", "env.mines": "2", "trial.tasks": "related"}
    monkeypatch.setattr(api, "trained_with", lambda policy: resolve("test", None, given))
    result = mulligan.evaluate("minesweeper", "random", params={"mines": 3}, tasks=3, room=False)
    params = dict(result.trials[0].task.params)
    assert (params["rows"], params["mines"]) == (4, 3)
    assert [len(trial.related) for trial in result.trials] == [2, 2, 2]
    result = mulligan.evaluate("minesweeper", "random", tasks=3, room=False, related=False)
    assert [len(trial.related) for trial in result.trials] == [0, 0, 0]


def test_bad_requests_name_the_way_out():
    with pytest.raises(UnknownName, match="'minesweeper'"):
        evaluate("minesweper", "random")
    with pytest.raises(UnknownName, match="'expert'"):
        evaluate("bandit", "exprt")
    with pytest.raises(UnknownName, match="'independent'"):
        evaluate("bandit", "random", controls=("independant",))
    with pytest.raises(ParameterError, match="SKILL"):
        evaluate("bandit", "expert:7")
    with pytest.raises(UnknownName, match="'memory'"):
        evaluate("bandit", "random", memry="none")
    for name in ("tasks", "seed", "episodes", "concurrency"):
        for value in ("a", 2.5, None):
            with pytest.raises(ParameterError, match=f"{name}={value!r} cannot be; give a whole number"):
                evaluate("bandit", "random", **{name: value})
    with pytest.raises(ParameterError, match="bandit: seed='x' cannot be; give a whole number"):
        mulligan.make_task("bandit", seed="x")
