"""What a journal has acknowledged survives SIGKILL, and nothing is left half done.

Processes play episodes and append to a file of their own what returned: that an episode began, that it was finished.
They are killed at random moments and begun again. In the end everything acknowledged must be there, every other episode
must be closed as abandoned, and totals and records must equal those counted anew.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from mulligan.journal.journal import Journal
from mulligan.journal.note_store import recount
from mulligan.journal.schema import CLASSES, NOTES

CLASSES_PLAYED = 5


def _play(make: Callable[[], Journal], ledger: Path, number: int, writes: int) -> None:
    """Episodes, two acknowledged writes each, until the ledger has as many lines as were asked for."""
    journal = make()
    rng = random.Random(f"{number}/{os.getpid()}")
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done = len(ledger.read_text().splitlines())
    while done < writes:
        episode = journal.episode("a task", f"class {rng.randrange(CLASSES_PLAYED)}", person=f"p{number}")
        os.write(file, f"began {episode.id}\n".encode())
        episode.context(200)
        reward = rng.randrange(2)
        episode.finish(reward, transcript=["text " * 50], reflection=f"lesson {rng.randrange(20)}")
        os.write(file, f"finished {episode.id} {reward}\n".encode())
        done += 2


def _kill_and_restart(start: Callable[[int], BaseProcess], processes: int, kills: int, pause: float) -> int:
    """Run the processes to their end, killing one now and then; returns how many kills hit a running one."""
    rng = random.Random(7)
    running = [start(number) for number in range(processes)]
    hits = 0
    while any(process.is_alive() for process in running):
        time.sleep(pause * rng.uniform(0.5, 1.5))
        victim = rng.randrange(processes)
        if hits < kills and running[victim].is_alive():
            os.kill(running[victim].pid or 0, signal.SIGKILL)
            running[victim].join()
            hits += running[victim].exitcode == -signal.SIGKILL
            running[victim] = start(victim)
    assert [process.exitcode for process in running] == [0] * processes
    return hits


def _counted(journal: Journal) -> list[dict[str, object]]:
    """Totals of classes and records of notes."""
    columns = {"outcomes", "reward_sum", "reward_squares", "shown"}
    with journal.reading() as scope:
        rows = [*scope.rows(CLASSES, order=(CLASSES.c.task_class,)), *scope.rows(NOTES, order=(NOTES.c.id,))]
    return [{name: value for name, value in row.items() if name in columns} for row in rows]


@pytest.mark.parametrize(
    ("database", "processes", "writes", "kills"),
    [
        ("sqlite", 3, 16, 3),
        pytest.param("postgresql", 4, 200, 20, marks=pytest.mark.journal),
        pytest.param("sqlite", 8, 250, 20, marks=pytest.mark.journal),
        pytest.param("sqlite", 8, 10_000, 200, marks=pytest.mark.journal_full),
    ],
    indirect=["database"],
)
def test_what_was_acknowledged_survives_kills(make, tmp_path, processes, writes, kills):
    journal = make()
    ledgers = [tmp_path / f"ledger{number}" for number in range(processes)]

    def start(number: int) -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(
            target=_play, args=(make, ledgers[number], number, writes)
        )
        process.start()
        return process

    hits = _kill_and_restart(start, processes, kills, pause=max(0.02, writes / 10_000))
    assert hits == kills or (hits and writes < 100)
    lines = [line.split() for ledger in ledgers for line in ledger.read_text().splitlines()]
    began = {words[1] for words in lines if words[0] == "began"}
    finished = {words[1]: float(words[2]) for words in lines if words[0] == "finished"}
    assert len(lines) >= processes * writes

    records = {record.id: record for record in journal.episodes()}
    assert began <= set(records)
    assert all(records[id].state == "finished" and records[id].reward == reward for id, reward in finished.items())
    assert all(len(records[id].notes_written) == 1 for id in finished)
    others = [record for id, record in records.items() if id not in finished]
    assert len(others) <= hits
    assert {record.state for record in others} <= {"abandoned", "finished"}  # a kill between the commit and the ledger
    assert {record.remark for record in others if record.state == "abandoned"} <= {"its process died"}

    before = _counted(journal)
    with journal.writing() as scope:
        for number in range(CLASSES_PLAYED):
            recount(scope, f"class {number}")
    for row, counted in zip(before, _counted(journal), strict=True):
        assert row == pytest.approx(counted)
