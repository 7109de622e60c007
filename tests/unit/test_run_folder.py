"""The run folder: what was written can be read, also after a kill in the middle of a write."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import tomllib
import types
import zlib

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mulligan
from mulligan.errors import DamagedFile, RunFolderError, UnknownName
from mulligan.policy.scripted import ExpertPolicy
from mulligan.report.run import RunFolder, load_trials, to_toml, trial_from_dict, trial_to_dict
from mulligan.seeding import derive
from mulligan.types import Sampling


def some_trials(count: int = 6) -> list[mulligan.Trial]:
    return [
        mulligan.run_trial_sync(mulligan.make_task("minesweeper", seed), ExpertPolicy(0.5), memory="both", seed=seed)
        for seed in range(count)
    ]


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", {"kind": "eval", "params": {"mines": 3}})


def write(run: RunFolder, trials: list[mulligan.Trial], start: int = 0) -> None:
    writer = run.writer("main")
    for place, trial in enumerate(trials, start):
        writer.write(place, trial)
    writer.flush()


def test_trials_come_back_equal(run):
    trials = some_trials()
    write(run, trials)
    assert load_trials(run.path) == trials


@pytest.mark.parametrize("name", ["open", "fsync"])
def test_folders_that_cannot_be_synced_are_written_to(tmp_path, monkeypatch, name):
    """Network file systems sync no folders, and a parent may be somebody else's; a file not synced is told."""
    real, refused = getattr(os, name), stat.S_ISDIR

    def refusing(target, *others, **options):
        if os.path.exists(target) and refused(os.stat(target).st_mode):
            raise OSError(22, "Invalid argument")
        return real(target, *others, **options)

    monkeypatch.setattr(os, name, refusing)
    run = RunFolder.create(tmp_path / "run", {"kind": "eval"})
    trials = some_trials(2)
    write(run, trials)
    assert load_trials(run.path) == trials
    if name == "fsync":
        refused = stat.S_ISREG
        with pytest.raises(RunFolderError, match=r"config\.toml cannot be written.*Invalid argument"):
            RunFolder.create(tmp_path / "other", {"kind": "eval"})


def test_of_a_training_run_the_last_update_is_loaded(run):
    for arm, trials in (("update-00001", some_trials(2)), ("update-00011", some_trials(1))):
        run.write_trials(arm, trials)
    assert load_trials(run.path) == some_trials(1)
    assert load_trials(run.path, "update-00001") == some_trials(2)
    with pytest.raises(UnknownName, match="update-00001"):
        load_trials(run.path, "main")


def test_replies_of_any_bytes_survive():
    task = mulligan.make_task("minesweeper", 0)
    trial = mulligan.run_trial_sync(task, lambda messages: "\x00\ud800 é 漢 \u2028", episodes=1)
    import json

    assert trial_from_dict(json.loads(json.dumps(trial_to_dict(trial)))) == trial


@pytest.mark.parametrize("cut", [1, 7, 40, 200])
def test_a_torn_tail_loses_only_the_last_moment(run, cut):
    trials = some_trials()
    write(run, trials[:4])
    write(run, trials[4:], start=4)  # a member of its own
    file = run.path / "trials" / "main.jsonl.gz"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    with pytest.warns(DamagedFile, match="bytes cannot be read"):
        trials_left = run.trials("main")
    assert list(trials_left)[:4] == [0, 1, 2, 3]
    # Going on after the kill: everything can be read again, nothing twice.
    missing = [place for place in range(6) if place not in trials_left]
    writer = run.writer("main")
    for place in missing:
        writer.write(place, trials[place])
    writer.flush()
    assert load_trials(run.path) == trials


def test_a_line_that_is_too_long_costs_only_its_trial(run, monkeypatch):
    """Earlier versions wrote some; the others of the arm can be read, and more can be written."""
    trials = some_trials()
    sizes = [len(json.dumps(trial_to_dict(trial))) for trial in trials]
    longest = max(range(len(trials)), key=lambda place: sizes[place])
    monkeypatch.setattr("mulligan.report.files._LONGEST_LINE", max(sizes) - 1000)
    monkeypatch.setattr("mulligan.report.files._PIECE", 100)
    write(run, trials)
    for _ in range(2):
        with pytest.warns(DamagedFile, match=r"main\.jsonl\.gz has lines of more than .* left out: 1"):
            kept = run.trials("main")
        assert kept == {place: trial for place, trial in enumerate(trials) if place != longest}
        write(run, trials[:1])


def test_a_small_file_costs_no_hours(run, monkeypatch):
    """Two hundred damaged members that begin within each other, so that each would be unpacked to the end of all."""
    header, stored = b"\x1f\x8b\x08\x00" + bytes(6), b"\x00\x0a\x00\xf5\xff"  # which ten bytes follow as they are
    nested = (header + stored) * 200 + gzip.compress(bytes(2**20), mtime=0)[:-8] + bytes(8)
    unpacked = 0

    class Counting:
        def __init__(self, **options):
            self.real = zlib.decompressobj(**options)

        def decompress(self, *arguments):
            nonlocal unpacked
            piece = self.real.decompress(*arguments)
            unpacked += len(piece)
            return piece

        def __getattr__(self, name):
            return getattr(self.real, name)

    trials = some_trials()
    write(run, trials)
    file = run.path / "trials/main.jsonl.gz"
    content = file.read_bytes()
    file.write_bytes(content + nested + content)
    fake = types.SimpleNamespace(decompressobj=Counting, error=zlib.error)
    monkeypatch.setattr("mulligan.report.files.zlib", fake)
    monkeypatch.setattr("mulligan.report.files._MOST_WASTED", 2**23)
    left_out = len(nested) + len(content)
    with pytest.warns(DamagedFile, match=f"{left_out:,} of its {left_out + len(content):,} bytes"):
        assert run.trials("main") == dict(enumerate(trials))
    assert 2**22 < unpacked < 2**24


def test_whatever_a_world_says_can_be_read_back(run):
    """JSON takes twelve bytes for some characters."""
    text = 950_000 * "\U0001f600"

    class Talking:
        turns = 20

        def __init__(self, task: mulligan.Task) -> None:
            self.task = task

        def rules(self) -> str:
            return text

        def reset(self, chance: int = 0) -> str:
            return text

        def step(self, reply: str) -> mulligan.Step:
            return mulligan.Step(text)

    with pytest.warns(UserWarning, match="characters were given in this trial; at most 5,000,000 are kept"):
        trial = mulligan.run_trial_sync(
            Talking(mulligan.Task("talking", 0, 20, "talking")), lambda messages: "", memory="none"
        )
    write(run, [trial])
    assert run.trials("main") == {0: trial}


def test_a_later_line_supersedes_an_earlier_one(run):
    trials = some_trials(2)
    write(run, trials[:1])
    write(run, trials[1:2])
    assert run.trials("main") == {0: trials[1]}


def test_folders_that_are_not_runs(tmp_path, run):
    with pytest.raises(RunFolderError, match=r"config\.toml"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunFolderError, match="nowhere"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match=r"config\.toml"):
        RunFolder.open(run.path / "config.toml")
    with pytest.raises(RunFolderError, match=f"{run.path.name}$"):
        RunFolder.open(run.path.parent)
    with pytest.raises(RunFolderError, match=r"--resume .*resume=True"):
        RunFolder.create(run.path, {})
    with pytest.raises(RunFolderError, match="no trials yet"):
        load_trials(run.path)
    (run.path / "config.toml").write_bytes(b"title = '\xff'\n")
    with pytest.raises(RunFolderError, match=r"config\.toml"):
        RunFolder.open(run.path)
    (run.path / "config.toml").write_text("schema_version = 99\n")
    with pytest.raises(RunFolderError, match="schema_version 99"):
        RunFolder.open(run.path)


def test_links_are_refused_where_a_run_is_written_unless_they_are_trusted(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    write(run, some_trials(1))
    (run.path / "notes").mkdir()
    (run.path / "notes" / "papers").symlink_to(tmp_path)
    (run.path / "newest.jsonl.gz").symlink_to(run.path / "trials" / "main.jsonl.gz")
    with run.held():
        write(run, some_trials(2))
    for target in (tmp_path / "scratch", run.path / "notes"):
        target.mkdir(exist_ok=True)
        (run.path / "trials").rename(tmp_path / "before")
        (run.path / "trials").symlink_to(target)
        with pytest.raises(RunFolderError, match=r"trials is a link.*--trust"), run.held():
            pass
        (run.path / "trials").unlink()
        (tmp_path / "before").rename(run.path / "trials")
    (run.path / "trials").rename(tmp_path / "scratch" / "trials")
    (run.path / "trials").symlink_to(tmp_path / "scratch" / "trials")
    mulligan.trust("*")
    with run.held():
        write(run, some_trials(3))
    assert len(load_trials(run.path)) == 3
    assert len(list((tmp_path / "scratch" / "trials").iterdir())) == 1


def test_a_run_is_read_while_its_folders_come_and_go(run):
    write(run, some_trials(1))
    busy = """if True:
        import itertools, os, shutil, sys
        print("begun", flush=True)
        for number in itertools.count():
            folder = os.path.join(sys.argv[1], "checkpoints", f".update-{number % 9:05d}.tmp")
            os.makedirs(folder)
            open(os.path.join(folder, "state.json"), "w").close()
            shutil.rmtree(folder)
    """
    with subprocess.Popen([sys.executable, "-c", busy, run.path], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        try:
            for _ in range(1500):
                assert RunFolder.open(run.path).arms() == ["main"]
        finally:
            trainer.kill()


names = st.text("abcdefgh_ß. 漢", min_size=1, max_size=6)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x7f"), max_size=20),
)


@settings(max_examples=40)
@given(st.dictionaries(names, st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(names, scalars))))
def test_toml_reads_back(tree):
    assert tomllib.loads(to_toml(tree)) == tree


def test_numpys_numbers_in_settings_read_back(tmp_path):
    """A sweep over ``np.linspace`` must leave folders that can be read and resumed."""

    def found(whole, real, **more):
        return mulligan.evaluate(
            "bandit",
            "random",
            tasks=whole(2),
            seed=whole(1),
            episodes=whole(2),
            params={"arms": whole(3)},
            sampling=Sampling(temperature=real(0.2), max_tokens=whole(9)),
            room=False,
            **more,
        )

    first = found(numpy.int64, numpy.float64, run=tmp_path / "run")
    assert json.loads(json.dumps(first.to_dict()))["p"] == first.p
    assert load_trials(tmp_path / "run") == list(first.trials)
    assert found(int, float, run=tmp_path / "run", resume=True).trials == first.trials
    assert found(int, float).trials == first.trials  # the same seeds too
    assert tomllib.loads(to_toml({"lr": numpy.float32(0.5), "ids": [numpy.int8(1)]})) == {"lr": 0.5, "ids": [1]}
    assert derive(numpy.int64(1), "board") == derive(1, "board")


HOLD = """
import sys, time
from mulligan.report.run import RunFolder
with RunFolder(sys.argv[1]).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_process_writes_to_a_folder(run):
    """Until it ends, even if it is killed; a mistake of the second one says what to do."""
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunFolderError, match=str(run.path)), run.held():
            pytest.fail("two processes held the folder")
    finally:
        other.kill()
        other.wait()
        other.stdout.close()
    with run.held(), RunFolder(run.path.parent / "another").held():
        assert RunFolder.open(run.path).arms() == []  # reading is free
