"""Evidence: results hold the outcome of every attempt, in an order that can be paired."""

from __future__ import annotations

import json

import pytest

from mulligan import evaluate
from mulligan.app.cli.main import main
from mulligan.eval.passk import without_evidence
from mulligan.policy.scripted import ExpertPolicy
from mulligan.rollout.tasksets import world_key


def test_outcomes_give_p_at_k_again():
    result = evaluate("minesweeper", ExpertPolicy(0.6, 0.5), tasks=24, memory="history", concurrency=8, seed=3)
    for summary in (result.main, result.controls["independent"], *result.room.values(), *result.by_class.values()):
        assert len(summary.outcomes) == len(summary.worlds) == summary.trials
        shares = [sum(any(row[:k]) for row in summary.outcomes) / summary.trials for k in (1, 2, 3)]
        assert shares == pytest.approx(summary.p)


def test_arms_of_one_evaluation_are_on_the_same_tasks_in_the_same_order():
    result = evaluate("minesweeper", ExpertPolicy(0.6, 0.5), tasks=12, memory="history", concurrency=8, seed=3)
    digests = {summary.tasks_digest for summary in (result.main, *result.controls.values(), *result.room.values())}
    assert len(digests) == 1
    wins = [[int(episode.won) for episode in trial.episodes] for trial in result.trials]
    assert [row[: len(own)] for row, own in zip(result.main.outcomes, wins, strict=True)] == wins


def test_other_boards_have_another_digest():
    digests = {
        evaluate(
            "minesweeper", "random", tasks=8, room=False, controls=(), params=params, seed_set=seed_set
        ).main.tasks_digest
        for params, seed_set in (({}, "eval"), ({}, "validation"), ({"mines": 4}, "eval"))
    }
    assert len(digests) == 3


def test_games_keep_their_returns():
    result = evaluate("tictactoe", "random", tasks=12, room=False, controls=(), episodes=2)
    means = [sum(row[n] for row in result.main.outcomes) / 12 for n in (0, 1)]
    assert means == pytest.approx(result.main.returns)


def test_a_board_and_its_mirror_image_share_a_world():
    result = evaluate("minesweeper", "random", tasks=8, params={"mines": 1}, room=False, controls=())
    keys = [world_key(trial.task) for trial in result.trials]
    assert len(set(keys)) < len(keys)  # eight boards with one mine, of which some are mirror images
    assert result.main.worlds == [keys.index(key) for key in keys]


def test_without_names_every_task_is_its_own_world():
    assert evaluate("bandit", "random", tasks=4, room=False, controls=()).main.worlds == [0, 1, 2, 3]


def test_eval_keeps_outcomes_in_the_file_and_not_on_the_terminal(tmp_path, capsys):
    run = tmp_path / "run"
    with pytest.raises(SystemExit, match="0"):
        main(["eval", "bandit", "--policy", "random", "--tasks", "5", "--run", str(run), "--json"])
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((run / "result.json").read_text())
    assert len(kept["outcomes"]) == len(kept["controls"]["independent"]["outcomes"]) == 5
    assert printed == without_evidence(kept)
    assert '"outcomes"' not in json.dumps(printed)
