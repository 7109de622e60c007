"""``mulligan compare``: what rows are read from runs, what they are compared with, and in which forms."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from html import unescape

import numpy as np
import pytest
from markdown_it import MarkdownIt

from mulligan import evaluate
from mulligan.app.cli import main
from mulligan.app.sweep.compare import compare
from mulligan.app.sweep.rows import as_table, read_rows
from mulligan.errors import RequestFailed, RunFolderError, UnknownName, UsageError
from mulligan.eval.intervals import difference, share_interval
from mulligan.report.comparison import as_csv, draw, grids, latex, markdown, notes
from mulligan.report.run import RunFolder, to_json
from mulligan.types import Message

TASKS = 16
META, RL = "1111111111110000", "1111000000000000"


def summary(solved: str, digest: str = "boards", episodes: int = 2):
    """Tasks marked "1" are solved in the second episode, those marked "2" in the first."""
    outcomes = [[int(mark == "2"), int(mark == "1"), *[0] * (episodes - 2)] for mark in solved]
    shares = [sum(any(row[:k]) for row in outcomes) / len(solved) for k in range(1, episodes + 1)]
    figures = {"trials": len(solved), "p": shares, "ci": [[0, 1]] * episodes, "valid": 1.0}
    evidence = {"outcomes": outcomes, "worlds": [*range(len(solved))], "tasks_digest": digest}
    return {**figures, **evidence, "effective": [len(solved)] * episodes}


def write_arm(sweep, name, seed, solved, *, retries=None, also=None, changes=None, digest="boards", env="minesweeper"):
    """What a worker of a sweep leaves."""
    arm = {
        "name": name,
        "seed": seed,
        "settings": {"run.seed": str(seed), "task.env": env, **(changes or {})},
        "preset": "test",
        "evaluation": {},
        "updates": 5,
        "curve": [{"update": 0, "p": [0.0, 0.1]}, {"update": 5, "p": [0.1, 0.2 + seed / 10]}],
        "seconds": 60.0,
        "kind": "solve",
        "main": summary(solved, digest),
        "controls": {"independent": summary(retries or solved, digest)},
        "by_class": {"a": summary(solved[:8], f"{digest} a"), "b": summary(solved[8:], f"{digest} b")},
        "memory": "reflection",
        "seed_set": "eval",
        "also": {further: {"main": each, "controls": {}} for further, each in (also or {}).items()},
    }
    folder = sweep / f"{name.replace(' ', '-')}-seed{seed}"
    folder.mkdir(parents=True)
    (folder / "arm.json").write_text(json.dumps(arm))
    return folder


ONE = {"trial.episodes": "1"}


@pytest.fixture
def sweep(tmp_path):
    folder = tmp_path / "sweep"
    for seed in (0, 1):
        write_arm(folder, "meta-RL", seed, META)
        write_arm(folder, "RL, PPO", seed, RL, changes=ONE)
    return folder


def rows_of(section):
    return {row["name"]: row for row in section["rows"]}


def call(*words) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


def test_shares_and_differences_are_over_seeds_and_tasks(sweep):
    (section,) = compare(read_rows([sweep]))["sections"]
    assert section["against"] == "RL, PPO"
    row = rows_of(section)["meta-RL"]
    first, second = (np.array([[float(mark) for mark in word]] * 2) for word in (META, RL))
    assert (row["p"], row["by_seed"], row["seeds"]) == ([0.0, 0.75], [0.75, 0.75], [0, 1])
    assert row["ci"][1] == pytest.approx(share_interval(first))
    assert row["difference"]["mean"] == pytest.approx(0.5)
    assert row["difference"]["ci"] == pytest.approx(difference(first, second)[1])
    assert rows_of(section)["RL, PPO"]["difference"] is None


def test_the_reference_is_the_best_rl_with_its_better_memory(sweep):
    history = {"history": summary("1" * 6 + "0" * 10), "4 mines": summary("1" * 16, "harder")}
    write_arm(sweep, "RL, RLOO", 0, RL, changes=ONE, also=history)
    assert compare(read_rows([sweep]))["sections"][0]["against"] == "RL, RLOO, history"
    write_arm(sweep, "RL, GRPO", 0, RL, changes=ONE, retries="1" * 7 + "0" * 9)
    (section, *_) = compare(read_rows([sweep]))["sections"]
    assert section["against"] == "RL, GRPO, independent retries"
    assert rows_of(section)["meta-RL"]["difference"]["mean"] == pytest.approx((12 - 7) / 16)
    assert not rows_of(section)["meta-RL"]["difference"]["same_seeds"]  # one seed on the other side


def test_another_reference_can_be_named(sweep):
    section = compare(read_rows([sweep]), "meta-RL")["sections"][0]
    assert rows_of(section)["RL, PPO"]["difference"]["mean"] == pytest.approx(-0.5)
    with pytest.raises(UnknownName, match="did you mean 'meta-RL'"):
        compare(read_rows([sweep]), "metaRL")


def test_further_evaluations_are_compared_on_their_own_tasks(tmp_path):
    easy, hard = summary("1" * 16, "cool"), summary("0" * 12 + "1" * 4, "cool")
    write_arm(tmp_path, "meta-RL", 0, META, also={"cool": easy})
    write_arm(tmp_path, "RL", 0, RL, changes=ONE, also={"cool": summary("0" * 16, "cool"), "history, cool": hard})
    section = compare(read_rows([tmp_path]))["sections"][1]
    assert (section["title"], section["against"]) == ("minesweeper, cool", "RL, history, cool")
    assert rows_of(section)["meta-RL, cool"]["difference"]["mean"] == pytest.approx(0.75)


def test_evaluations_of_one_list_of_tasks_in_other_ways_are_no_reference(tmp_path):
    """More turns on the same boards: the list of tasks is the same, what was played is not."""
    write_arm(tmp_path, "meta-RL", 0, META, also={"20 turns": summary("1" * 16)})
    write_arm(tmp_path, "RL", 0, RL, changes=ONE, also={"20 turns": summary("1" * 14 + "00")})
    first, second = compare(read_rows([tmp_path]))["sections"]
    assert (first["title"], first["against"]) == ("minesweeper", "RL")
    assert rows_of(first)["meta-RL"]["difference"]["mean"] == pytest.approx(0.5)
    assert (second["title"], second["against"]) == ("minesweeper, 20 turns", "RL, 20 turns")
    assert rows_of(second)["meta-RL, 20 turns"]["difference"]["mean"] == pytest.approx(2 / 16)


def test_an_evaluation_played_again_for_its_controls_is_shown_once(tmp_path):
    folder = write_arm(
        tmp_path, "meta-RL", 0, META, also={"notes": summary(META), "history": summary("2" * 12 + "0000")}
    )
    arm = json.loads((folder / "arm.json").read_text())
    arm["also"]["notes"]["controls"] = {"removed": summary(RL)}
    (folder / "arm.json").write_text(json.dumps(arm))
    (section,) = compare(read_rows([tmp_path]))["sections"]
    # With its history the agent solves the same boards, all of them at once: that is a row of its own.
    assert list(rows_of(section)) == ["meta-RL", "meta-RL, notes, reflection removed", "meta-RL, history"]


def test_a_control_that_was_cut_short_is_not_paired(tmp_path):
    """The money ran out after ten tasks of the control."""
    write_arm(tmp_path, "meta-RL", 0, META)
    write_arm(tmp_path, "RL", 0, RL, changes=ONE, retries="1" * 10)
    (section,) = compare(read_rows([tmp_path]))["sections"]
    assert section["against"] == "RL, independent retries"
    assert rows_of(section)["meta-RL"]["difference"] == {"mean": pytest.approx(-0.25), "ci": None, "same_seeds": True}


def test_classes_of_tasks_are_compared_on_request(sweep):
    assert len(compare(read_rows([sweep]))["sections"]) == 1
    _, first, second = compare(read_rows([sweep], classes=True))["sections"]
    assert (first["title"], second["title"]) == ("minesweeper, a", "minesweeper, b")
    assert rows_of(first)["meta-RL, a"]["difference"]["mean"] == pytest.approx(0.5)
    assert rows_of(second)["meta-RL, b"]["difference"]["mean"] == pytest.approx(0.5)


def test_rows_of_other_tasks_are_refused_by_the_parameters_that_differ(sweep):
    write_arm(sweep, "other", 0, META, digest="other boards", changes={"env.mines": "4"})
    refusal = r"played on different tasks: 'RL, PPO' .* and 'other' \(.*\); mines is unset and 4; compare"
    with pytest.raises(UsageError, match=refusal):
        compare(read_rows([sweep]))


def test_evaluations_with_other_parameters_or_settings_are_told_apart(tmp_path, capsys):
    """Of four evaluations of one policy that differ, none is dropped; one that was made again replaces the older."""
    changes = {"a": ["--env.mines=4"], "b": ["--env.mines=3"], "c": ["--temperature=0.9"], "d": ["--seed=1"], "e": []}
    for name, words in changes.items():
        run = ["--policy", "random", "--tasks", "4", "--run", tmp_path / name, "--no-room"]
        assert call("eval", "minesweeper", *run, *words) == 0
    capsys.readouterr()
    assert call("compare", *(tmp_path / name for name in changes), "--out", tmp_path / "out", "--json") == 0
    printed = capsys.readouterr()
    harder, usual = json.loads(printed.out)["sections"]
    assert (harder["title"], usual["title"]) == ("minesweeper (mines=4)", "minesweeper (mines=3)")  # 3 is the default
    seeds = {name: row["seeds"] for name, row in rows_of(usual).items()}
    assert seeds == {"random, reflection, temperature 0.7": [0, 1], "random, reflection, temperature 0.9": [0]}
    assert list(rows_of(harder)) == ["random, reflection"]
    assert printed.err.startswith("mulligan: random, reflection, seed 0: given twice; the later one counts\n")
    assert call("compare", tmp_path / "out", tmp_path / "c", "--markdown") == 0  # a table can be joined
    assert capsys.readouterr().out == (tmp_path / "out" / "table.md").read_text()


def test_what_was_never_played_is_not_compared(tmp_path, capsys):
    """The server died before the control."""

    def leaving(messages: list[Message]) -> str:
        if "Episode " not in messages[1]["content"]:  # only retries say nothing of episodes
            raise RequestFailed("gone")
        return "<action>1</action>"

    run = tmp_path / "run"
    result = evaluate("bandit", leaving, tasks=4, run=run, room=False)
    (run / "result.json").write_text(to_json(result.to_dict()))
    (row,) = compare(read_rows([run]))["sections"][0]["rows"]
    assert row["retry"] is None
    assert capsys.readouterr().err.endswith(f"continue with: mulligan eval --resume {run}\n")


def test_seeds_of_other_tasks_are_refused(sweep):
    write_arm(sweep, "meta-RL", 2, META, digest="other boards")
    with pytest.raises(UsageError, match="different tasks: the seeds of 'meta-RL'"):
        compare(read_rows([sweep]))


def test_environments_have_tables_of_their_own(sweep):
    write_arm(sweep, "levels", 0, META, digest="levels", env="sokoban")
    assert [section["env"] for section in compare(read_rows([sweep]))["sections"]] == ["minesweeper", "sokoban"]


def test_the_column_of_retries_is_explained_on_a_terminal(sweep, capsys):
    assert call("compare", sweep) == 0
    assert "retries: the last p@k of the same agent without memory" in capsys.readouterr().out


def test_a_table_is_read_back_as_it_was_written(sweep, tmp_path):
    table = tmp_path / "table.json"
    table.write_text(as_table(read_rows([sweep])))
    assert compare(read_rows([table])) == compare(read_rows([sweep]))
    assert len(table.read_text().splitlines()) == 4 + 2


def test_a_table_beside_runs_does_not_hide_them(sweep):
    (sweep / "table.json").write_text(as_table(read_rows([sweep])))
    write_arm(sweep, "RL, RLOO", 0, META, changes=ONE)
    assert "RL, RLOO" in {row["name"] for row in read_rows([sweep])}


def test_later_inputs_replace_rows_and_leave_other_seeds(sweep, tmp_path):
    table, new = tmp_path / "table.json", tmp_path / "new"
    table.write_text(as_table(read_rows([sweep], main=["meta-RL"])))
    write_arm(new, "RL, PPO", 1, META, changes=ONE)
    rows = read_rows([table, new])
    assert [(row["name"], row["seed"], row["p"][-1], row["main"]) for row in rows] == [
        ("RL, PPO", 0, 0.25, False),
        ("RL, PPO", 1, 0.75, False),
        ("meta-RL", 0, 0.75, True),
        ("meta-RL", 1, 0.75, True),
    ]


def test_rows_without_outcomes_have_one_seeds_interval_and_a_mark(sweep):
    rows = [
        {key: value for key, value in row.items() if "outcomes" not in key and key != "tasks_digest"}
        for row in read_rows([sweep])
    ]
    data = compare(rows)
    row = rows_of(data["sections"][0])["meta-RL"]
    assert row["difference"] == {"mean": 0.5, "ci": None, "same_seeds": True}
    assert row["ci"][1] == pytest.approx(share_interval(np.array([[float(mark) for mark in META]])))
    assert "| meta-RL* |" in markdown(data)
    assert any(note.startswith("*") for note in notes(data))


def test_games_are_compared_by_their_returns(sweep):
    rows = read_rows([sweep])
    for row in rows:
        value = 1.0 if row["name"] == "meta-RL" else -0.5
        row |= {"kind": "versus", "outcomes": [[0.0, value]] * 15 + [[0.0, None]], "ceiling": 0.4}
    section = compare(rows, "RL, PPO")["sections"][0]
    assert section["ceiling"] is None  # a share of games won, where returns are shown
    assert rows_of(section)["meta-RL"]["p"] == [0.0, 1.0]
    assert rows_of(section)["meta-RL"]["difference"]["mean"] == pytest.approx(1.5)
    assert "+1.00 ± 0.00" in markdown({"sections": [section], "settings": {}, "curves": []})


def test_settings_that_differ_and_curves_are_told(sweep):
    data = compare(read_rows([sweep]))
    assert data["settings"] == {"trial.episodes": {"1": ["RL, PPO"], "": ["meta-RL"]}}
    curves = {curve["name"]: curve["seeds"] for curve in data["curves"]}
    assert curves["meta-RL"] == {"0": [[0, 0.1], [5, 0.2]], "1": [[0, 0.1], [5, pytest.approx(0.3)]]}
    assert grids(data)[-1].rows[1] == ["meta-RL", "10.0", "25.0"]


def test_curves_are_of_as_many_attempts_as_all_arms_were_validated_with(tmp_path):
    """RL is validated with two attempts, meta-RL with three."""
    write_arm(tmp_path / "sweep", "RL", 0, RL, changes=ONE)
    folder = write_arm(tmp_path / "sweep", "meta-RL", 0, META)
    arm = json.loads((folder / "arm.json").read_text())
    arm["curve"] = [{"update": 0, "p": [0.0, 0.1, 0.5]}, {"update": 5, "p": [0.1, 0.3, 0.9]}]
    (folder / "arm.json").write_text(json.dumps(arm))
    data = compare(read_rows([tmp_path / "sweep"]))
    assert [curve["seeds"]["0"] for curve in data["curves"]] == [[[0, 0.1], [5, 0.2]], [[0, 0.1], [5, 0.3]]]
    assert "success on validation tasks within 2 attempts" in markdown(data)


def test_the_share_of_the_optimum_has_a_column_where_it_is_known(sweep):
    assert "share of the optimum" not in markdown(compare(read_rows([sweep])))
    shares = {("meta-RL", 0): 1.01, ("meta-RL", 1): 0.97, ("RL, PPO", 0): 0.5, ("RL, PPO", 1): 0.4}
    rows = [{**row, "share_of_optimum": shares[row["name"], row["seed"]]} for row in read_rows([sweep])]
    text = markdown(compare(rows))
    assert "| 99.0 (101 / 97) |" in text
    assert "| 45.0 (50 / 40) |" in text


def test_every_form_has_the_same_figures(sweep):
    data = compare(read_rows([sweep]))
    first = next(csv.DictReader(io.StringIO(as_csv(data))))
    assert (first["row"], first["p@2"], first["seeds"]) == ("RL, PPO", "0.25", "2")
    assert "| RL, PPO | 0.0 ± " in markdown(data)
    assert r"$\pm$" in latex(data)
    assert "±" not in latex(data)


def test_a_name_does_not_break_the_cells_of_a_markdown_table(sweep):
    name = "a|b \\| <img src=x>\n| c"
    write_arm(sweep, name, 0, META)
    html = MarkdownIt().enable("table").render(markdown(compare(read_rows([sweep]))))
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL) if "a|b" in row)
    cells = [unescape(cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)]
    assert cells[0] == name.replace("\n", " ")
    assert [cell.partition(" ")[0] for cell in cells[1:3]] == ["0.0", "75.0"]


def test_out_keeps_tables_whether_or_not_curves_can_be_drawn(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = tmp_path / "out"
    assert call("compare", sweep, "--out", out, "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["sections"][0]["against"] == "RL, PPO"
    assert "'plots'" in printed.err
    assert sorted(path.name for path in out.iterdir()) == ["table.json", "table.md"]
    assert call("compare", out, "--markdown") == 0
    assert capsys.readouterr().out == (out / "table.md").read_text()


def test_evaluations_are_compared_with_the_scripted_players_on_their_tasks(tmp_path, capsys):
    run = tmp_path / "run"
    assert call("eval", "minesweeper", "--policy", "random", "--tasks", "12", "--run", run) == 0
    capsys.readouterr()
    assert call("compare", run, "--against", "random, reflection", "--json") == 0
    section = json.loads(capsys.readouterr().out)["sections"][0]
    assert rows_of(section)["ceiling (omniscient)"]["difference"]["mean"] > 0


def test_curves_are_drawn(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    draw(compare(read_rows([sweep])), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [(None, "", "holds no results"), ("x.json", "{", "no JSON"), ("x.json", '[{"p": 1}]', "no table of results"),
     ("arm.json", '{"name": "a"}', "not what this version writes")],
)  # fmt: skip
def test_what_is_no_result_is_refused_in_one_line(tmp_path, name, text, message):
    if name:
        (tmp_path / name).write_text(text)
    with pytest.raises((UsageError, RunFolderError), match=message):
        read_rows([tmp_path / name if name else tmp_path])


def test_a_missing_file_and_a_training_run_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"no file or folder .*nope\.json"):
        read_rows([tmp_path / "nope.json"])
    RunFolder.create(tmp_path / "mine", {"kind": "train"})
    with pytest.raises(UsageError, match=r"training run; evaluate it first: mulligan eval ENV --policy .*mine"):
        read_rows([tmp_path / "mine"])
