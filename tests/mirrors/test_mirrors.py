"""Runs in other people's tools, read back with those tools: inspect_ai, TensorBoard, Weights & Biases.

`make test-mirrors` installs them; elsewhere this file is skipped.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.command import call

import mulligan

WAY = "make test-mirrors installs it"
inspect_logs = pytest.importorskip("inspect_ai.log", reason=f"inspect_ai is not installed; {WAY}")
accumulating = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason=f"tensorboard is not installed; {WAY}"
)
wandb = pytest.importorskip("wandb", reason=f"wandb is not installed; {WAY}")
wandb_records = pytest.importorskip("wandb.proto.wandb_internal_pb2", reason=f"wandb is not installed; {WAY}")

NAMES = {"project": "doors", "entity": None, "group": "seeds", "id": "first"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No login, and no server to ask for one."""
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RUN_GROUP", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def trained(run: str, **options: Any) -> mulligan.TrainedRun:
    settings = {"run.updates": 2, "run.validate_every": 1, "run.validation_tasks": 2}
    return mulligan.train(preset="test", settings=settings, run=run, **options)


def evaluated(run: str) -> None:
    mulligan.evaluate("minesweeper", run, tasks=4, room=False, run=f"{run}/evaluation")
    result = mulligan.evaluate("minesweeper", run, tasks=4, room=False, run=f"{run}/evaluation", resume=True)
    (Path(run) / "evaluation" / "result.json").write_text(json.dumps(result.to_dict()))


def sent(folder: Path) -> list[Any]:
    """The records of an offline run of W&B: a log in LevelDB's form, blocks of 32 KiB after seven bytes."""
    wandb.teardown()  # waits for W&B's own process, which writes the last of the log after finish() has returned
    [path] = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, at, records, waiting = path.read_bytes(), 7, [], b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        waiting += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = wandb_records.Record()
            record.ParseFromString(waiting)
            records.append(record)
            waiting = b""
    return records


def history(records: list[Any]) -> list[dict[str, Any]]:
    rows = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_a_run_is_mirrored_while_it_trains_and_when_it_is_sent_later():
    """With its warm start, its updates and its evaluation; project, group and id are those that were given."""
    run = trained("live", wandb=NAMES, tensorboard=True)
    records = sent(run.path)
    [about] = [record.run for record in records if record.WhichOneof("record_type") == "run"][:1]
    assert (about.project, about.run_group, about.run_id) == ("doors", "seeds", "first")
    rows = history(records)
    assert [row["warmstart/step"] for row in rows if "warmstart/loss" in row] == [1, 2, 3, 4, 5]
    updates = {row["update"]: row for row in rows if "p@1" in row}
    assert {number: row["p@2"] for number, row in updates.items()} == {
        line["update"]: line["p@2"] for line in run.metrics if line["update"]
    }
    boards = accumulating.EventAccumulator(str(run.path / "tensorboard"))
    boards.Reload()
    assert [event.value for event in boards.Scalars("p@2")] == pytest.approx(
        [line["p@2"] for line in run.metrics if line["update"]]
    )
    assert len(boards.Scalars("warmstart/loss")) >= 5

    trained("later")
    evaluated("later")
    assert call("send", "later", "--wandb", "--tensorboard", "--wandb-project", "doors") == 0
    rows = history(sent(Path("later")))
    assert {row["update"] for row in rows if "validation/p@1" in row} == {0, 1, 2}
    result = json.loads(Path("later/evaluation/result.json").read_text())
    [evaluation] = [row for row in rows if "evaluation/p@3" in row]
    assert evaluation["evaluation/p@3"] == pytest.approx(result["p"][2])
    assert any(name.startswith("evaluation/table") for name in evaluation)
    boards = accumulating.EventAccumulator(str(Path("later") / "tensorboard"))
    boards.Reload()
    assert boards.Scalars("evaluation/p@3")[0].value == pytest.approx(result["p"][2])
    [text] = boards.Tensors("evaluation/text_summary")
    assert b"| independent |" in text.tensor_proto.string_val[0]


def test_the_evaluation_of_a_sweeps_arm_is_sent_with_it():
    Path("sweep.toml").write_text(
        'title = "T"\npreset = "test"\nseeds = [0]\ntasks = 4\n[settings]\n"run.updates" = 1\n[arms."a | b"]\n'
    )
    assert call("sweep", "sweep.toml", "--run", "swept") == 0
    [arm] = [
        path.parent for path in Path("swept").glob("*/arm.json") if json.loads(path.read_text())["name"] == "a | b"
    ]
    assert call("send", str(arm), "--tensorboard") == 0
    main = json.loads((arm / "arm.json").read_text())["main"]
    boards = accumulating.EventAccumulator(str(arm / "tensorboard"))
    boards.Reload()
    assert boards.Scalars("evaluation/p@1")[0].value == pytest.approx(main["p"][0])
    [text] = boards.Tensors("evaluation/text_summary")
    assert rb"| a \| b |" in text.tensor_proto.string_val[0]


def test_without_a_login_one_line_says_what_to_do(monkeypatch, capsys):
    trained("mine")
    monkeypatch.setenv("WANDB_MODE", "online")
    assert call("send", "mine", "--wandb") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has no login here" in said
    assert "WANDB_MODE=offline" in said


@pytest.mark.parametrize("file", ["played.json", "played.eval"])
def test_a_trial_is_a_sample_of_inspect(file):
    """Attempts and reflections are spans of events; scores, metadata and p@k are those of the run."""
    words = ("eval", "minesweeper", "--policy", "expert:0.3:0", "--memory", "reflection", "--tasks", "6", "--json")
    assert call(*words, "--controls", "off", "--run", "played") == 0
    assert call("report", "played", "--inspect", file) == 0
    log = inspect_logs.read_eval_log(file)
    trials = mulligan.load_trials("played")
    assert (log.status, log.eval.task, log.eval.model) == ("success", "minesweeper", "mulligan/expert:0.3:0")
    [solved] = log.results.scores
    result = json.loads(Path("played/result.json").read_text())
    assert [solved.metrics[f"p@{k}"].value for k in (1, 2, 3)] == pytest.approx(result["p"])
    for sample, trial in zip(log.samples, trials, strict=True):
        at = trial.solved_at
        assert sample.scores["attempt"].value == (0 if at is None else at + 1)
        assert sample.metadata["attempts"] == [episode.stop.value for episode in trial.episodes]
        spans = [event.name for event in sample.events if event.event == "span_begin"]
        noted = [f"reflection {episode.index + 1}" for episode in trial.episodes if episode.reflection]
        assert spans == sorted([*(f"attempt {n + 1}" for n in range(len(trial.episodes))), *noted], key=_order)
        replies = [event.output.completion for event in sample.events if event.event == "model"]
        played = [turn.reply.text for episode in trial.episodes for turn in episode.turns]
        assert [text for text in replies if text in played] == played
        scores = [event.score.value for event in sample.events if event.event == "score"]
        assert scores == [episode.reward for episode in trial.episodes]
    if file.endswith(".eval"):  # the viewer lists these under any name, and shows samples before it reads them whole
        assert [Path(each.name).name for each in inspect_logs.list_eval_logs(".")] == [file]
        summaries = inspect_logs.read_eval_log_sample_summaries(file)
        assert [each.scores["attempt"].value for each in summaries] == [
            sample.scores["attempt"].value for sample in log.samples
        ]


def _order(span: str) -> tuple[int, str]:
    kind, number = span.split()
    return int(number), kind
