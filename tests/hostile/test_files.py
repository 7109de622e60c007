"""Damaged, cut, swapped and hostile files of run folders: nothing altered is used, and every loss is told."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import resource
import shutil
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.e2e.test_kill import contents
from tests.e2e.test_sweep import WITHOUT_WARM_START, run_here
from tests.small_runs import small

import mulligan
from mulligan.app.cli import main
from mulligan.app.sweep import schedule
from mulligan.app.sweep.arms import plan_work, read_sweep
from mulligan.errors import DamagedFile, MulliganError
from mulligan.eval.run import EvalResult
from mulligan.report import files
from mulligan.report.files import split_members
from mulligan.report.run import RunFolder
from mulligan.training import checkpoint
from mulligan.training.config import AlgoConfig, WarmstartConfig
from mulligan.training.loop import train
from mulligan.types import Message

TASKS = 8
SMALL = small(
    warmstart=WarmstartConfig(steps=2, trials=4, batch=4, lr=1e-2, warmup=1),
    algo=AlgoConfig(estimator="grpo", baseline="agent", scale="agent", kl_weight=0.1),
)
SMALL = replace(SMALL, run=replace(SMALL.run, updates=3, tasks=2, group=2))
TRIALS = Path("trials/main.jsonl.gz")


# What is attacked -------------------------------------------------------------------------------------------------


class Agent:
    """Guesses an arm from what it reads; counts the replies, each of which is paid for."""

    __name__ = "agent"

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, messages: list[Message]) -> str:
        self.calls += 1
        text = messages[-1]["content"]
        if "reflection" in text:
            return f"<reflection>\nstrategy: {len(text)}\noutcome: lost\nplan: another arm\n</reflection>"
        return f"I pull one. <action>{1 + len(str(messages)) % 5}</action>"


def evaluate(folder: Path, agent: Agent, **more: Any) -> EvalResult:
    return mulligan.evaluate("bandit", agent, tasks=TASKS, run=folder, room=False, concurrency=1, **more)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EvalResult]:
    """A complete evaluation with paid replies; its trials are in several gzip members."""
    folder = tmp_path_factory.mktemp("evaluated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MEMBER", 6000)
        result = evaluate(folder, Agent())
    assert len(split_members(folder / TRIALS)[0]) > 2
    return folder, result


class Stopped(BaseException):
    """Ends a run in this process where a kill would."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that ended in its last update, with two checkpoints; and the files of one that was left alone."""
    run, save = tmp_path_factory.mktemp("trained") / "run", checkpoint.save

    def stopping(run: Path, update: int, *others: Any) -> Path:
        if update == SMALL.run.updates:
            raise Stopped
        return save(run, update, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", stopping)
        with pytest.raises(Stopped):
            train(SMALL, run)
    assert len(checkpoint.kept(run)) == 2
    return run, contents(train(SMALL, run.parent / "alone"))


@contextlib.contextmanager
def hearing() -> Iterator[list[str]]:
    """What is told of damaged files inside."""
    heard: list[str] = []
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always", DamagedFile)
        yield heard
    heard += [str(record.message) for record in records]


def flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def command(*words: str) -> tuple[int, str, str]:
    """Exit code of a command, its output, and what else it says; whatever else is raised is a traceback."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as said,
        hearing() as heard,
        pytest.raises(SystemExit) as ended,
    ):
        main(list(words))
    code = int(ended.value.code or 0)
    return code, out.getvalue(), "".join([said.getvalue(), *(f"mulligan: {line}\n" for line in heard)])


# Trials -----------------------------------------------------------------------------------------------------------


def attack_trials(one: Any, folder: Path, name: str, damaged: bytes, right: dict[int, Any], example: str) -> list[str]:
    """Read a damaged file of trials; returns what was told."""
    file = folder / "trials" / f"{name}.jsonl.gz"
    file.write_bytes(damaged)
    with hearing() as heard:
        try:
            trials = RunFolder.open(folder).trials(name)
        except MulliganError as error:
            one.told()
            return [str(error)]
        except Exception as error:
            one.lost(f"{example}: {error!r}")
            return []
    if any(trial != right.get(index) for index, trial in trials.items()):
        one.lost(f"{example}: an altered trial was loaded")
    elif heard:
        one.told()
    elif trials == right:
        one.unharmed()
    else:
        one.lost(f"{example}: {len(right) - len(trials)} trials lost without a word")
    return heard


def attack_resume(one: Any, folder: Path, damaged: bytes, whole: EvalResult, example: str) -> None:
    """Resume a complete evaluation whose file of trials is damaged: all of it can be made again, without asking."""
    (folder / TRIALS).write_bytes(damaged)
    agent = Agent()
    with hearing() as heard:
        try:
            result = evaluate(folder, agent, resume=True)
        except Exception as error:
            one.lost(f"{example}: {error!r}")
            return
    right = dict(enumerate(whole.trials))
    is_kept = not heard or (folder / f"{TRIALS}.damaged").stat().st_size > 0
    if agent.calls:
        one.lost(f"{example}: {agent.calls} replies were paid for again")
    elif result.main != whole.main or result.cost != whole.cost or RunFolder.open(folder).trials("main") != right:
        one.lost(f"{example}: another result")
    elif not is_kept:
        one.lost(f"{example}: what was damaged is gone")
    elif heard:
        one.told()
    else:
        one.unharmed()
    (folder / f"{TRIALS}.damaged").unlink(missing_ok=True)


def test_flipped_bits_in_trials(row, evaluated, trained, tmp_path):
    draw = random.Random(1)
    read = row("Files", "a flipped bit in a file of trials, which is read")
    sources = [(evaluated[0], "main", 400), (evaluated[0], "independent", 200), (trained[0], "update-00002", 400)]
    for number, (source, name, tries) in enumerate(sources):
        folder = shutil.copytree(source, tmp_path / str(number))
        content = (folder / "trials" / f"{name}.jsonl.gz").read_bytes()
        right = RunFolder.open(folder).trials(name)
        for bit in draw.sample(range(8 * len(content)), tries):
            attack_trials(read, folder, name, flipped(content, bit), right, f"{name}, bit {bit}")
    resumed = row("Files", "a flipped bit in a file of trials of a paid evaluation, which is resumed")
    folder, whole = shutil.copytree(evaluated[0], tmp_path / "resumed"), evaluated[1]
    content = (folder / TRIALS).read_bytes()
    for bit in draw.sample(range(8 * len(content)), 120):
        attack_resume(resumed, folder, flipped(content, bit), whole, f"bit {bit}")


def test_cut_and_shuffled_trials(row, evaluated, tmp_path):
    draw = random.Random(2)
    folder, whole = shutil.copytree(evaluated[0], tmp_path / "run"), evaluated[1]
    content, members = (folder / TRIALS).read_bytes(), split_members(folder / TRIALS)[0]
    one = row("Files", "a file of trials that was cut off, and is resumed")
    for size in sorted(draw.sample(range(len(content)), 100)):
        attack_resume(one, folder, content[:size], whole, f"{size} bytes are left")
    one = row("Files", "members of a file of trials removed, doubled or in another order")
    for number, member in enumerate(members):
        before, after = members[:number], members[number + 1 :]
        for changed in (
            [*before, *after],
            [*before, member, *members],
            [*after, *before, member],
            [*before, b"no gzip"],
        ):
            attack_resume(one, folder, b"".join(changed), whole, f"member {number}")
    one = row("Files", "files of trials swapped between arms")
    (folder / TRIALS).write_bytes(content)
    shutil.copy(folder / TRIALS, folder / "trials/independent.jsonl.gz")
    with pytest.raises(MulliganError, match="independent"):
        evaluate(folder, Agent(), resume=True)
    one.told()


def test_show_and_compare(row, tmp_path, monkeypatch):
    """The commands themselves."""
    monkeypatch.chdir(tmp_path)
    assert command("eval", "bandit", "--policy", "expert:0.5", "--tasks", "6", "--run", "run", "--no-room")[0] == 0
    content, draw = Path("run", TRIALS).read_bytes(), random.Random(3)
    code, shown, _ = command("show", "run", "1")
    assert code == 0
    one = row("Files", "a flipped bit in a file of trials, shown by the command")
    for bit in draw.sample(range(8 * len(content)), 60):
        Path("run", TRIALS).write_bytes(flipped(content, bit))
        one_line(one, f"bit {bit}", ["show", "run", "1"], shown, about=TRIALS.name)
    Path("run", TRIALS).write_bytes(content)
    result = Path("run/result.json").read_bytes()
    one = row("Files", "a result or a table that is cut off, of another kind or nested too deep")
    for damaged in broken(result):
        Path("run/result.json").write_bytes(damaged)
        one_line(one, f"result.json {damaged[:20]!r}", ["compare", "run"])
    Path("run/result.json").write_bytes(result)
    assert command("compare", "run", "--out", "tables")[0] == 0
    table = Path("tables/table.json").read_bytes()
    for damaged in broken(table):
        Path("tables/table.json").write_bytes(damaged)
        one_line(one, f"table.json {damaged[:20]!r}", ["compare", "tables/table.json"])
    rows, compared = json.loads(table), command("compare", "run")[1]
    for name, right in rows[0].items():
        for value in (7, "text", [[None]], {"a": {}}):  # of another kind
            if right is not None and type(value) is not type(right) and not isinstance(right, float):
                Path("tables/table.json").write_text(json.dumps([{**rows[0], name: value}, *rows[1:]]))
                one_line(one, f"table.json, {name} {value!r}", ["compare", "tables/table.json"], compared)


def broken(content: bytes) -> list[bytes]:
    """A JSON or TOML file damaged in ways that a reader notices."""
    cuts = [content[: len(content) * part // 8] for part in range(8)]
    odd = [b"null", b"[]", b"{}", b"7", b'"text"', b"[1]", b"[[]]", b"\xff\xfe\x00", b"\x00" * 100]
    return [*cuts, *odd, b"[" * 5000, b'{"a":' * 5000, b"a = " + b"[" * 5000, b"a." * 5000 + b"b = 1"]


def one_line(one: Any, example: str, words: Sequence[str], expected: str = "", about: str = "") -> None:
    """A command whose input is damaged ends as without the damage, or in one line; a second may be `about` the file."""
    try:
        code, out, said = command(*words)
    except Exception as error:
        one.lost(f"{example}: {error!r}")
        return
    lines = said.splitlines()
    if lines and all(line.startswith("mulligan: ") for line in lines) and is_told(lines, about):
        one.told()
    elif code == 0 and not said and out == expected:
        one.unharmed()
    else:
        one.lost(f"{example}: {code} {said} {out[:1000]}")


def is_told(lines: Sequence[str], about: str = "") -> bool:
    """Whether all that was said is one line, or a second one `about` the file."""
    return any(about in line for line in lines) and len(lines) <= (2 if about else 1)


def test_gzip_bombs(row, evaluated, tmp_path):
    """In a process of its own, whose memory is limited."""
    one = row("Files", "a gzip bomb as a file of trials")
    zeros = gzip.compress(b"\x00" * 2**28, 9)
    lists = gzip.compress(b'{"place": 0, "task": [' + b"[]," * 2**24, 5)
    lines = gzip.compress(b"\n" * 2**28, 9)
    nested = gzip.compress(b"[" * 2**25, 9)
    for number, bomb in enumerate((zeros, lists, lines, nested, zeros * 3)):
        folder = shutil.copytree(evaluated[0], tmp_path / str(number))
        (folder / TRIALS).write_bytes(bomb)
        process = subprocess.run(
            [sys.executable, "-m", "mulligan", "show", str(folder), "1"],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)),
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode == 2 and is_told(process.stderr.splitlines(), TRIALS.name):
            one.told()
        else:
            one.let_in(f"bomb {number}: {process.stderr[-300:]}")


# Replies that were paid for ----------------------------------------------------------------------------------------


def test_paid_replies(row, evaluated, tmp_path):
    """Without trials, so that every reply is needed: whatever is asked for again was told before."""
    draw = random.Random(4)
    folder, whole = shutil.copytree(evaluated[0], tmp_path / "run"), evaluated[1]
    replies, trials = folder / "paid/main.jsonl", folder / TRIALS
    content = replies.read_bytes()
    first = content[: content.index(b"\n") + 1]
    attacks = {
        "a flipped bit in the file of paid replies": [
            flipped(content, bit) for bit in draw.sample(range(8 * len(content)), 150)
        ],
        "a file of paid replies that was cut off, or has lines twice": [
            *(content[:size] for size in draw.sample(range(len(content)), 40)),
            content + first,
            first + content,
        ],
    }
    for attack, damages in attacks.items():
        one = row("Files", attack)
        for number, damaged in enumerate(damages):
            replies.write_bytes(damaged)
            trials.unlink()
            agent, is_shorter = Agent(), content.startswith(damaged) and damaged.endswith(b"\n")
            with hearing() as heard:
                result = evaluate(folder, agent, resume=True)
            if result.main != whole.main or result.tokens != whole.tokens:
                one.lost(f"{number}: another result")
            elif agent.calls and not heard and not is_shorter:
                one.lost(f"{number}: {agent.calls} replies paid for again without a word")
            elif heard:
                one.told()
            else:
                one.unharmed()


# Checkpoints -------------------------------------------------------------------------------------------------------

FILES = ("weights.safetensors", "optimiser.pt", "state.json", "checksums.json")


def sign(folder: Path) -> None:
    (folder / "checksums.json").unlink()
    checkpoint._write_checksums(folder)


def renamed_weight(folder: Path) -> None:
    weights = load_file(folder / "weights.safetensors")
    name = sorted(weights)[0]
    save_file({f"{each}x" if each == name else each: value for each, value in weights.items()}, folder / FILES[0])
    sign(folder)


def missing_weight(folder: Path) -> None:
    weights = load_file(folder / "weights.safetensors")
    save_file({each: weights[each] for each in sorted(weights)[1:]}, folder / FILES[0])
    sign(folder)


def reshaped_weight(folder: Path) -> None:
    weights = load_file(folder / "weights.safetensors")
    name = next(each for each in sorted(weights) if weights[each].ndim == 2)
    save_file({**weights, name: weights[name][:-1].contiguous()}, folder / FILES[0])
    sign(folder)


def reshaped_moment(folder: Path) -> None:
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    saved["state"][0]["exp_avg"] = saved["state"][0]["exp_avg"][:-1].clone()
    torch.save(saved, folder / "optimiser.pt")
    sign(folder)


def fewer_groups(folder: Path) -> None:
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    torch.save({**saved, "param_groups": []}, folder / "optimiser.pt")
    sign(folder)


def other_state(state: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "state.json").write_text(json.dumps(state))
        sign(folder)

    return damage


def swapped(name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.copy(folder.with_name("update-00001") / name, folder / name) and None


def swapped_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("update-00001"), folder)


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def damages(draw: random.Random) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Ways to damage a checkpoint."""
    for name in FILES:
        for _ in range(20):
            share = draw.random()
            yield f"bit of {name}", rewritten(name, lambda c, share=share: flipped(c, int(share * 8 * len(c))))
        for _ in range(5):
            share = draw.random()
            yield f"{name} is cut off", rewritten(name, lambda c, share=share: c[: int(share * len(c))])
        yield f"{name} is missing", lambda folder, name=name: (folder / name).unlink()
        yield f"{name} is of another update", swapped(name)
        yield f"{name} is all zeros", rewritten(name, lambda content: bytes(len(content)))
        yield f"{name} is nested", rewritten(name, lambda content: b"[" * 5000)
    yield "the folder is of another update", swapped_folder
    for change in (renamed_weight, missing_weight, reshaped_weight, reshaped_moment, fewer_groups):
        yield change.__name__, change
    for state in (None, [], {}, {"update": 2}, {"update": "x", "settings": 3}):
        yield f"state {state}", other_state(state)


def attack_resumed(one: Any, example: str, run: Path, expected: dict[str, Any], without: Path | None = None) -> None:
    """Resume a training run: it ends as the one that was left alone, or is refused in one line."""
    try:
        with hearing() as heard:
            train(None, run, resume=True)
    except MulliganError as error:
        if without is not None and str(without) in str(error) and "\n" not in str(error):
            one.told()
        else:
            one.lost(f"{example}: {error}")
    except Exception as error:
        one.lost(f"{example}: {error!r}")
    else:
        differing = [name for name, content in contents(run).items() if content != expected.get(name)]
        if differing and not heard:
            one.lost(f"{example}: trained on to another result ({differing[:3]})")
        else:
            one.told() if heard else one.unharmed()


def test_damaged_checkpoints(row, trained, tmp_path):
    source, expected = trained
    flips = row("Files", "a flipped bit in a checkpoint")
    others = row("Files", "a checkpoint cut off, swapped, incomplete or of another shape")
    for number, (example, damage) in enumerate(damages(random.Random(5))):
        run = shutil.copytree(source, tmp_path / str(number))
        folder = run / "checkpoints/update-00002"
        damage(folder)
        attack_resumed(flips if example.startswith("bit") else others, example, run, expected, folder)
        shutil.rmtree(run)
    run = shutil.copytree(source, tmp_path / "advice")  # what the line says helps
    shutil.rmtree(run / "checkpoints/update-00002")
    attack_resumed(others, "without the damaged folder", run, expected)


def test_other_files_of_a_training_run(row, trained, tmp_path):
    source, expected = trained
    one = row("Files", "damaged weights of the reference")
    draw = random.Random(6)
    for number in range(20):
        run = shutil.copytree(source, tmp_path / f"reference{number}")
        name = ("weights.safetensors", "checksums.json")[number % 2]
        share = draw.random()
        rewritten(name, lambda c, share=share: flipped(c, int(share * 8 * len(c))))(run / "reference")
        attack_resumed(one, f"{name} at {share}", run, expected, run / "reference")
    for damage in (renamed_weight, missing_weight, reshaped_weight):
        run = shutil.copytree(source, tmp_path / damage.__name__)
        damage(run / "reference")
        attack_resumed(one, damage.__name__, run, expected, run / "reference")
    one = row("Files", "metrics that are no JSON, or torn")
    lines = (source / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for number, damaged in enumerate((b"[" * 5000 + b"\n", b"{}\n", b"\xff\xfe\n", b"7\n", lines[0][:40] + b"\n")):
        run = shutil.copytree(source, tmp_path / f"metrics{number}")
        (run / "metrics.jsonl").write_bytes(damaged + b"".join(lines[1:]))
        attack_resumed(one, f"metrics {number}", run, expected)
        assert (run / "metrics.jsonl.damaged").read_bytes() == damaged
    run = shutil.copytree(source, tmp_path / "torn")
    (run / "metrics.jsonl").write_bytes(b"".join(lines)[:-20])
    attack_resumed(one, "torn", run, expected)
    one = row("Files", "settings of a run that are cut off, edited or nested too deep")
    content = (source / "config.toml").read_bytes()
    edited = [content.replace(b"lr = 0.001", b"lr = 0.003"), content.replace(b"seed = 0", b"seed = 1", 1)]
    assert content not in edited
    for number, damaged in enumerate([*broken(content), *edited]):
        run = shutil.copytree(source, tmp_path / f"config{number}")
        (run / "config.toml").write_bytes(damaged)
        attack_resumed(one, f"config.toml {damaged[:20]!r}", run, expected, run)
    for number, damaged in enumerate(broken(b"this is no TOML")):
        (tmp_path / f"{number}.toml").write_bytes(damaged)
        if damaged and damaged != b"[1]":  # which are TOML
            one_line(one, f"train {damaged[:20]!r}", ["train", "--config", str(tmp_path / f"{number}.toml")])
            one_line(one, f"sweep {damaged[:20]!r}", ["sweep", str(tmp_path / f"{number}.toml")])


def test_other_files_of_an_evaluation(row, evaluated, tmp_path):
    one = row("Files", "a damaged count of requests")
    folder, whole = shutil.copytree(evaluated[0], tmp_path / "run"), evaluated[1]
    by_arm = [
        b'{"requests": 7, "arms": %b}' % arms for arms in (b"5", b"[1]", b'{"main": "x"}', b'{"main": null}', b"null")
    ]
    for damaged in [*broken(b'{"requests": 7, "faults": {"503": 1}, "arms": {"main": 7}}'), *by_arm]:
        (folder / "requests.json").write_bytes(damaged)
        try:
            result = evaluate(folder, Agent(), resume=True)
        except MulliganError as error:
            one.told() if "requests.json" in str(error) else one.lost(str(error))
        except Exception as error:
            one.lost(f"{damaged[:20]!r}: {error!r}")
        else:
            one.unharmed() if result.main == whole.main else one.lost("another result")


def test_files_of_a_sweep(row, tmp_path, monkeypatch):
    """Its arms are trained in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schedule, "run_work", run_here)
    Path("sweep.toml").write_text(WITHOUT_WARM_START)
    words = ["sweep", "sweep.toml", "--run", "out", "--only", "RL"]
    code, expected, _ = command(*words)
    assert code == 0
    arm = next(each for each in plan_work(read_sweep("sweep.toml"), Path("out").absolute()) if each.name == "RL")
    (arm.folder / "order.json").write_text(json.dumps(arm.order))  # which a process of its own would have read
    one = row("Files", "files of an arm that are cut off, of another kind or nested too deep")
    for name in ("arm.json", "order.json", "spent.json"):
        file = arm.folder / name
        content = file.read_bytes()
        for damaged in broken(content):
            file.write_bytes(damaged)
            if name == "spent.json":  # read where an arm goes on
                (arm.folder / "arm.json").unlink(missing_ok=True)
            one_line(one, f"{name} {damaged[:20]!r}", words, expected)
        file.write_bytes(content)


# Full disks --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def room_for(size: int) -> Iterator[None]:
    """Inside, no file can grow beyond `size` bytes: a write fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_in_training(row, trained, tmp_path):
    source, expected = trained
    one = row("Files", "a full disk in training")
    sizes = sorted({path.stat().st_size for path in source.rglob("*") if path.is_file()})
    draw = random.Random(9)
    for number in range(24):
        size = sizes[number % len(sizes)] - draw.randrange(1, 40)
        run, refusal = shutil.copytree(source, tmp_path / str(number)), ""
        with room_for(max(1, size)):
            try:
                train(None, run, resume=True)
            except MulliganError as error:
                refusal = str(error)
        train(None, run, resume=True)
        if contents(run) != expected:
            one.lost(f"{size}: another result")
        elif not refusal:
            one.unharmed()
        elif str(run) in refusal and ("bytes)" in refusal or " MB)" in refusal) and "\n" not in refusal:
            one.told()
        else:
            one.lost(f"{size}: {refusal}")


def test_a_full_disk_in_an_evaluation(row, evaluated, tmp_path):
    _, whole = evaluated
    one = row("Files", "a full disk in a paid evaluation")
    paid, trials = evaluated[0] / "paid/main.jsonl", evaluated[0] / TRIALS
    draw = random.Random(7)
    sizes = [draw.randrange(1500, paid.stat().st_size) for _ in range(20)] + [trials.stat().st_size - 5]
    for size in sizes:
        folder, agent = tmp_path / str(size), Agent()
        with room_for(size), contextlib.suppress(MulliganError):
            evaluate(folder, agent)
            one.lost(f"{size}: nothing was told")
        result = evaluate(folder, agent, resume=True)
        again = agent.calls - sum(len(file.read_bytes().splitlines()) for file in (folder / "paid").iterdir())
        if result.main != whole.main or again > 1:  # the one that there was no room for
            one.lost(f"{size}: {again} replies were paid for again")
        else:
            one.told()


# Two processes at once ---------------------------------------------------------------------------------------------

CREATE = """
import json, sys, time
from mulligan.errors import RunFolderError
from mulligan.report.run import RunFolder
for line in sys.stdin:
    path, at, who, fails = json.loads(line)
    while time.time() < at:
        pass
    try:
        run = RunFolder.create(path, {"kind": "eval", "who": who})
        with run.held():
            if fails:
                run.discard()
        print("discarded" if fails else "made", flush=True)
    except (RunFolderError, OSError) as error:
        print(f"refused: {error}", flush=True)
"""


def test_two_processes_create_one_folder(row, tmp_path):
    one = row("Files", "two processes create one folder at the same instant")
    draw, pipes = random.Random(8), {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen([sys.executable, "-c", CREATE], **pipes)) for _ in range(2)]
        for number in range(100):
            path, at = tmp_path / str(number), time.time() + 0.02
            for who, process in enumerate(processes):
                fails = who == 1 and draw.random() < 0.5  # then it leaves no folder behind
                process.stdin.write(json.dumps([str(path), at + draw.uniform(0, 1e-3), who, fails]) + "\n")
                process.stdin.flush()
            ends = [process.stdout.readline().strip() for process in processes]
            kept = tomllib.loads((path / "config.toml").read_text())["who"] if path.exists() else None
            makers = [who for who, end in enumerate(ends) if end == "made"]
            if makers == ([] if kept is None else [kept]) and ("discarded" in ends or makers):
                one.unharmed()
            else:
                one.lost(f"{ends}, and the folder has the configuration of {kept}")
        for process in processes:
            process.stdin.close()
