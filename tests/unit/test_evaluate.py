"""Evaluation: one protocol, numbers that depend on nothing but the seed, controls that control."""

from __future__ import annotations

import asyncio
import json

import pytest

import mulligan
from mulligan import evaluate
from mulligan.envs.bandit import Bandit
from mulligan.errors import ParameterError, RunFolderError, UnknownName, UsageError
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.tables import eval_table, footnotes
from mulligan.types import Completion, Message
from readers import Reader


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
    assert low > 0.4


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
        evaluate("minesweeper", ExpertPolicy(0.6, 0.5), tasks=24, memory="history", concurrency=n, seed=3).to_dict()
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
    first, second = (evaluate("minesweeper", "expert:0.5", tasks=16, seed=seed, room=False) for seed in (0, 1))
    assert [trial.task for trial in first.trials] == [trial.task for trial in second.trials]
    assert [t.episodes[0].turns for t in first.trials] != [t.episodes[0].turns for t in second.trials]


def test_room_and_ceiling():
    result = evaluate("minesweeper", "random", tasks=40, controls=())
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


def test_a_control_that_is_named_twice_is_played_and_paid_once(tmp_path):
    reader = Reader()
    once = evaluate("bandit", reader, tasks=6, room=False, controls=("independent",))
    calls = reader.calls
    assert evaluate("bandit", reader, tasks=6, room=False, controls=("independent",) * 2).gains == once.gains
    assert reader.calls == 2 * calls


def test_what_is_missing_is_told_of_controls_too():
    """Where the money ended in a control, "30 of 30 tasks" are not what is incomplete; and the cost is of all arms."""

    whole = evaluate("bandit", Paid(), tasks=30, price_in=1.0, room=False, controls=())
    result = evaluate("bandit", Paid(), tasks=30, price_in=1.0, max_cost=whole.cost + 0.005, room=False)
    told = footnotes(result.to_dict())
    played = result.controls["independent"].trials
    assert 0 < played < 30
    assert told[-1] == f"Incomplete: 30 of 30 tasks played, {played} of independent"
    tokens = result.main.prompt_tokens + result.controls["independent"].prompt_tokens
    assert f"{tokens:,} + 0 tokens, cost {result.cost:.4f}, " in told[-2]
    assert " s with controls" in told[-2]
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
    result = evaluate(
        "bandit", Paid(), tasks=100, price_in=1.0, price_out=1.0, max_cost=0.02, concurrency=1, room=False
    )
    assert not result.complete
    assert 0.02 <= result.cost < 0.02 + 5 * 0.001
    assert result.main.trials < 20
    with pytest.raises(ParameterError, match="price"):
        evaluate("bandit", Paid(), tasks=2, max_cost=1.0)


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
    result = evaluate("bandit", Paid(), tasks=4, price_in=1.0, max_cost=0.001, concurrency=1, room=False)
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
        ("bandit", numberless, {"tasks": 2}),
    ):
        with pytest.raises(UsageError):
            evaluate(env, policy, run=tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()


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
            with pytest.raises(ParameterError, match=f"{name} .*{value!r}"):
                evaluate("bandit", "random", **{name: value})
    with pytest.raises(ParameterError, match=r"bandit: seed .*'x'"):
        mulligan.make_task("bandit", seed="x")
