"""Run folders and model folders of somebody else: no secret leaves, no code of theirs runs, no foreign file is written.

Each try edits a copy of a real run as an attacker would, and then types what a person would type.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.e2e.chat_server import ChatServer
from tests.e2e.command import call

import mulligan
from mulligan.envs import registry
from mulligan.errors import MulliganError
from mulligan.models.load import load, save
from mulligan.report.run import to_toml
from mulligan.training.config import WarmstartConfig
from mulligan.training.loop import train
from small_runs import TINY, small

AREA = "Somebody else's folders"
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HF_TOKEN", "GITHUB_TOKEN", "MY_PASSWORD")
ARM = ["--env.arms", "2"]
"""As the runs here were trained."""
Harm = Callable[[], object]
"""What an attack has reached; anything true is too much."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A training run, an evaluation, and an evaluation of an endpoint, as they are before anybody edits them."""
    folder = tmp_path_factory.mktemp("runs")
    train(small(warmstart=WarmstartConfig(steps=2, trials=4, batch=4, lr=1e-2, warmup=1)), folder / "train")
    words = ["--tasks", "2", "--episodes", "2", "--no-room"]
    assert call("eval", "bandit", "--policy", "expert:0.5", "--run", str(folder / "eval"), *words, "--json") == 0
    with ChatServer(answer=lambda _: "<action>1</action>") as server:
        endpoint = ["--policy", "endpoint:m", "--base-url", server.base_url]
        assert call("eval", "bandit", *endpoint, "--run", str(folder / "endpoint"), *words, "--json") == 0
    return folder


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch, capsys):
    """A folder to work in, secrets in the environment, and no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MULLIGAN_TRUST", raising=False)
    for name in SECRETS:
        monkeypatch.setenv(name, SECRET)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return tmp_path


def copied(folder: Path, name: str, changes: Mapping[str, Any] | None = None) -> Path:
    """A copy of a run under this name, with other settings: ``{"task.env": "evil.py:Evil"}``."""
    shutil.rmtree(name, ignore_errors=True)
    run = Path(shutil.copytree(folder, name))
    tree = tomllib.loads((run / "config.toml").read_text())
    for key, value in (changes or {}).items():
        *sections, last = key.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = value
    (run / "config.toml").write_text(to_toml(tree))
    return run


def forget_trials(run: Path) -> None:
    """All is to be played, and paid for, again."""
    for file in (*run.glob("trials/*"), *run.glob("paid/*")):
        file.unlink()


def tried(row, label: str, harm: Harm, *words: str | Path) -> None:
    """Type a command, and count how that ended."""
    count(row, f"{label}: mulligan {' '.join(map(str, words))}", harm, lambda: call(*map(str, words)))


def count(row, label: str, harm: Harm, action: Callable[[], object]) -> None:
    os.environ.pop("MULLIGAN_TRUST", None)
    try:
        code = action()
    except MulliganError:
        code = 2
    except Exception as error:
        code = repr(error)
    if reached := harm():
        row.let_in(f"{label}: {reached}")
    elif code == 2:
        row.told()
    elif isinstance(code, str):
        row.lost(f"{label}: {code}")
    else:
        row.unharmed()


# Secrets --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def thief():
    """The attacker's server."""
    with ChatServer(answer=lambda _: "<action>1</action>") as server:
        yield server


def test_no_secret_is_sent_where_a_configuration_says(row, runs, thief):
    asked = row(AREA, "a configuration asks for a secret of the machine")
    with ChatServer(answer=lambda _: "<action>1</action>") as mine:
        for name in SECRETS:
            changes = {"endpoint.base_url": thief.base_url, "endpoint.api_key_env": name}
            shared = copied(runs / "endpoint", "shared", changes)
            forget_trials(shared)
            resumed = ("eval", "--resume", shared)
            tried(asked, name, lambda: thief.received, *resumed)
            tried(asked, name, lambda: thief.received, *resumed, "--json", "--retries", "0")
            if name == "OPENAI_API_KEY":
                continue  # which is the key of the server that a person names
            sent = lambda: [one for one in mine.received if SECRET in str(one.headers)]  # noqa: E731
            tried(asked, name, sent, *resumed, "--base-url", mine.base_url)
            tried(asked, name, lambda: thief.received, *resumed, "--api-key-env", "OPENAI_API_KEY")


def test_a_refusal_shows_what_is_asked_for_and_what_to_type(runs, thief, capsys):
    """And what it says to type works: a run of one's own is continued that way."""
    changes = {"endpoint.base_url": thief.base_url, "endpoint.api_key_env": "MY_PASSWORD"}
    for confirmed in (["--base-url", thief.base_url, "--api-key-env", "MY_PASSWORD"], ["--trust"]):
        shared = copied(runs / "endpoint", "shared", changes)
        forget_trials(shared)
        assert call("eval", "--resume", "shared") == 2
        line = capsys.readouterr().err
        assert f"--base-url {thief.base_url} --api-key-env MY_PASSWORD (or --trust)" in line
        assert line.count("\n") == 1
        assert not thief.received
        assert call("eval", "--resume", "shared", *confirmed) == 0
        capsys.readouterr()
        assert {one.headers["authorization"] for one in thief.received} == {f"Bearer {SECRET}"}
        thief.received.clear()


def test_no_server_is_asked_that_only_a_configuration_names(row, runs, thief):
    chosen = row(AREA, "a configuration chooses the server")
    url = thief.base_url
    settings: list[dict[str, Any]] = [
        {"endpoint.base_url": url},
        {"endpoint.base_url": f"{url}/chat/completions"},
        {"endpoint.base_url": url, "endpoint.api_key": "sk-planted"},
        {"endpoint.base_url": url, "policy_spec": "endpoint", "endpoint.model": "m"},
        {"endpoint.base_url": url, "endpoint.policy": "endpoint:m"},
        {"endpoint.base_url": url, "endpoint.resume": "elsewhere"},
        {"endpoint.base_url": [url]},
        {"endpoint.timeout": [1], "endpoint.base_url": url},
        {"endpoint": url},
        {"policy_spec": 5},
        {"base_url": url, "policy_spec": f"endpoint:m --base-url {url}"},
    ]
    for changes in settings:
        shared = copied(runs / "endpoint", "shared", changes)
        forget_trials(shared)
        tried(chosen, str(changes), lambda: thief.received, "eval", "--resume", shared)
    shared = copied(runs / "endpoint", "shared", {"endpoint.base_url": url})
    for words in (["show"], ["compare"], ["eval", "bandit", "--policy"], ["play", "bandit", "--policy"]):
        tried(chosen, "another command", lambda: thief.received, *words, shared)
    for model in ("endpoint:m", f"hf:{url}", url):
        trained = copied(runs / "train", "trained", {"model.name": model})
        for words in (["train", "--resume"], ["eval", "bandit", "--tasks", "1", "--policy"]):
            tried(chosen, model, lambda: thief.received, *words, trained)


def test_a_key_in_place_of_its_variables_name_is_neither_kept_nor_shown(row, desk, thief, capsys):
    given = row(AREA, "a key is given as the name of its variable")
    keys = (
        "sk-proj-abc123DEF456",
        "AKIAIOSFODNN7EXAMPLE",
        "ABCDEFGHIJKLMNOP",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
    )
    for key in keys:
        for command in ("eval", "play"):
            more = ["--tasks", "1", "--run", "mine", "--no-room"] if command == "eval" else []

            def shown(key=key):
                printed = "".join(capsys.readouterr())
                files = [path for path in desk.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
                return files or (key in printed and printed) or thief.received

            words = [command, "bandit", "--policy", "endpoint:m", "--base-url", thief.base_url, *more]
            count(given, key, shown, lambda words=words, key=key: call(*words, "--api-key-env", key))


# Code -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(desk, monkeypatch) -> Harm:
    """Files of an attacker, as Python files and as modules that can be imported; the marker that they leave."""
    marker = desk / "ran"
    code = (
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "from mulligan.envs.bandit import Bandit as Evil\n"
        "def policy(messages):\n    return '<action>1</action>'\n"
    )
    (desk / "evil.py").write_text(code)
    (desk / "evil_module.py").write_text(code)
    monkeypatch.syspath_prepend(desk)
    return marker.exists


def test_the_attackers_files_would_run_where_a_person_names_them(runs, ran, desk):
    """Otherwise the rows below would say nothing."""
    words = ["--tasks", "1", "--no-room", "--json"]
    shared = copied(runs / "train", "shared", {"task.env": "evil.py:Evil"})
    for command in (
        ["eval", "evil.py:Evil", "--policy", "random", *words],
        ["eval", "bandit", "--policy", "evil.py:policy", *words],
        ["eval", "bandit", "--policy", str(shared), *words, "--trust"],
        ["train", "--resume", str(shared), "--dry-run", "--trust"],
    ):
        assert call(*command) == 0
        assert ran()
        (desk / "ran").unlink()
        registry._load.cache_clear()


ENVS: list[dict[str, Any]] = [
    {"task.env": "evil.py:Evil"},
    {"task.env": "./evil.py:Evil"},
    {"task.env": "shared/../evil.py:Evil"},
    {"task.env": "shared/inside.py:Evil"},
    {"task.env": "bandit:2,evil.py:Evil:1"},
    {"task.env": "evil.py"},
    {"task.env": "gymnasium:evil_module:Evil-v0"},
    {"task.env": "textarena:evil_module:Evil-v0"},
    {"task.env": "openspiel:evil_module:Evil"},
    {"task.env": "textarena:KuhnPoker-v0", "task.params": {"opponent": "evil.py:policy"}, "warmstart.steps": 0},
    {"warmstart.player": "evil.py:policy"},
]


@pytest.mark.filterwarnings("ignore")  # of TextArena and Gymnasium
def test_no_python_file_runs_that_only_a_training_run_names(row, runs, ran, desk):
    named = row(AREA, "a training run names Python code")
    evaluated = ["eval", "bandit", "--tasks", "1", "--no-room", "--json"]
    for number, changes in enumerate(ENVS):
        shared = copied(runs / "train", "shared", changes)
        shutil.copy("evil.py", shared / "inside.py")
        tried(named, str(changes), ran, "train", "--resume", shared, "--run.updates", "3")
        tried(named, str(changes), ran, *evaluated, "--policy", shared)
        if number == 0:
            tried(named, str(changes), ran, "train", "--resume", shared, "--dry-run")
            tried(named, str(changes), ran, *evaluated, "--policy", f"{shared}@2")
            tried(named, str(changes), ran, "play", "bandit", "--policy", shared)
            tried(named, str(changes), ran, "show", shared)
            tried(named, str(changes), ran, "compare", shared)
            tried(named, str(changes), ran, "export", shared, "out")
            tried(named, str(changes), ran, "eval", "--resume", shared)
            count(named, "mulligan.train", ran, lambda: mulligan.train(run="shared", resume=True))
            count(named, "mulligan.evaluate", ran, lambda: mulligan.evaluate("bandit", "shared", tasks=1))
            config = {"engine.context": 0, **changes}
            tried(named, str(config), ran, "export", copied(runs / "train", "shared", config), "out2")
            words = ["--preset", "test", "--model.name", "shared", "--warmstart.steps", "0", "--run.updates", "1"]
            tried(named, "a run to start from", ran, "train", "bandit", *words, "--run", "mine", "--env.arms", "2")


@pytest.mark.filterwarnings("ignore")
def test_no_python_file_runs_that_only_an_evaluation_names(row, runs, ran, desk):
    named = row(AREA, "an evaluation names Python code")
    for changes in (
        {"env": "evil.py:Evil"},
        {"env": "gymnasium:evil_module:Evil-v0"},
        {"env": "textarena:KuhnPoker-v0", "params": {"opponent": "evil.py:policy"}, "policy_spec": "random"},
        {"policy_spec": "evil.py:policy"},
        {"policy_spec": "evil_module:policy"},
        {"controls": ["../../evil"]},
    ):
        shared = copied(runs / "eval", "shared", changes)
        tried(named, str(changes), ran, "eval", "--resume", shared)
        tried(named, str(changes), ran, "show", shared)
        result = json.loads((shared / "result.json").read_text())
        result |= {"env": changes.get("env", result["env"]), "complete": False}
        (shared / "result.json").write_text(json.dumps(result))
        tried(named, str(changes), ran, "compare", shared, "--ceiling")
    task = replace(mulligan.load_trials(runs / "eval")[0].task, env="evil.py:Evil")
    count(named, "a trial's task", ran, lambda: mulligan.make(task))
    count(named, "a trial's task", ran, lambda: mulligan.run_trial_sync(task, lambda _: "<action>1</action>"))


SWEEP = """
preset = "test"
tasks = 2
[settings]
"task.env" = "bandit"
"run.updates" = 1
"warmstart.steps" = 0
[arms."RL"]
"trial.episodes" = 1
"""


@pytest.mark.filterwarnings("ignore")
def test_no_python_file_runs_that_only_a_sweep_folder_names(row, runs, ran, desk):
    named = row(AREA, "a folder of a sweep names Python code")
    (desk / "sweep.toml").write_text(SWEEP)
    assert call("sweep", "sweep.toml", "--run", "whole", "--cores", "1", "--json") == 0
    arm = next(Path("whole").glob("*/arm.json"))
    evil = {"task.env": "evil.py:Evil"}

    def edited(name: str, arm_settings: dict[str, Any], config: dict[str, Any] | None) -> Path:
        folder = Path(shutil.copytree("whole", name))
        (folder / "table.json").unlink()
        target = folder / arm.parent.name
        told = json.loads((target / "arm.json").read_text())
        told["settings"] |= arm_settings
        (target / "arm.json").write_text(json.dumps(told))
        if config is None:
            (target / "config.toml").unlink()
        else:
            copied(arm.parent, str(target), config)
            (target / "arm.json").write_text(json.dumps(told))
        return folder

    for number, (settings, config) in enumerate([(evil, evil), (evil, None), (evil, {}), ({}, evil)]):
        shared = edited(f"shared{number}", settings, config)
        tried(named, "compare", ran, "compare", shared)
        tried(named, "compare", ran, "compare", shared, "--ceiling")
        rows = json.loads((Path("whole") / "table.json").read_text())
        rows = [{**one, "env": "evil.py:Evil", "settings": one["settings"] | settings} for one in rows]
        (desk / f"table{number}.json").write_text(json.dumps(rows))
        tried(named, "a table", ran, "compare", f"table{number}.json", "--ceiling")
    shared = edited("going-on", {}, {**evil, "run.updates": 2})
    (shared / arm.parent.name / "arm.json").unlink()
    shutil.rmtree(shared / arm.parent.name / "checkpoints")
    count(named, "sweep", ran, lambda: min(call("sweep", "sweep.toml", "--run", str(shared), "--cores", "1"), 2) or 0)


# Models ---------------------------------------------------------------------------------------------------------------


class Pickled:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def test_neither_pickles_nor_code_of_a_models_folder_run(row, ran, desk):
    loaded = row(AREA, "a model's folder holds code or pickles")
    save(load(TINY), "whole")
    save(load(TINY, lora=2), "adapter")
    pickled = pickle.dumps(Pickled(desk / "ran"))
    auto_map = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}
    templates = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        f"{{{{ cycler.__init__.__globals__.os.mkdir('{desk / 'ran'}') }}}}",
        f"{{{{ messages.__class__.__base__.__subclasses__()[0].mkdir('{desk / 'ran'}') }}}}",
    )

    def model(number: int, base: str, files: Mapping[str, Any], without: str = "") -> Path:
        folder = Path(shutil.copytree(base, f"model{number}"))
        shutil.copy("evil.py", folder)
        if without:
            (folder / without).unlink()
        for name, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(json.loads((folder / name).read_text() or "{}") | content).encode()
            (folder / name).write_bytes(content)
        return folder

    weights, adapter = "model.safetensors", "adapter_config.json"
    index = b'{"weight_map": {"a": "pytorch_model.bin"}}'
    prompt = {"peft_type": "PROMPT_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 1, "token_dim": 32}
    prompt |= {"prompt_tuning_init": "TEXT", "prompt_tuning_init_text": "a", "base_model_name_or_path": "whole"}
    prompt |= {"tokenizer_name_or_path": "model5", "tokenizer_kwargs": {"trust_remote_code": True}}
    attacks: list[tuple[str, dict[str, Any], str]] = [
        ("whole", {"config.json": {"auto_map": auto_map}}, ""),
        ("whole", {"config.json": {"auto_map": auto_map, "model_type": "evil", "trust_remote_code": True}}, ""),
        ("whole", {"config.json": {"auto_map": auto_map, "architectures": ["Evil"]}}, ""),
        ("whole", {"config.json": {"attn_implementation": "evil/kernels"}}, ""),
        ("whole", {"config.json": {"quantization_config": {"quant_method": "evil_module"}}}, ""),
        ("whole", {"tokenizer_config.json": {"auto_map": auto_map, "tokenizer_class": "Evil"}}, ""),
        ("whole", {"pytorch_model.bin": pickled}, weights),
        ("whole", {weights: pickled}, ""),
        ("whole", {"pytorch_model.bin": pickled, "model.safetensors.index.json": index}, weights),
        ("adapter", {"adapter_model.bin": pickled}, "adapter_model.safetensors"),
        ("adapter", {adapter: {"megatron_config": {"a": 1}, "megatron_core": "evil_module"}}, ""),
        ("adapter", {adapter: {"auto_mapping": {"base_model_class": "Evil", "parent_library": "evil_module"}}}, ""),
        ("adapter", {adapter: json.dumps(prompt).encode()}, ""),
        *(("whole", {"chat_template.jinja": text.encode()}, "") for text in templates),
    ]
    for number, (base, files, without) in enumerate(attacks):
        folder = model(number, base, files, without)
        words = ["--tasks", "1", "--episodes", "1", "--no-room", "--max-tokens", "2", *ARM]
        tried(loaded, str(files)[:200], ran, "eval", "bandit", "--policy", f"hf:{folder}", *words)


def test_pickles_in_a_checkpoint_do_not_run(row, runs, ran, desk):
    read = row(AREA, "a checkpoint holds pickles")
    attack = Pickled(desk / "ran")
    torch.save({"state": attack}, "zipped.pt")
    torch.save([attack], "old.pt", _use_new_zipfile_serialization=False)
    (desk / "plain.pt").write_bytes(pickle.dumps(attack, protocol=2))
    for name in ("optimiser.pt", "weights.safetensors", "state.json"):
        for content in ("zipped.pt", "old.pt", "plain.pt"):
            shared = copied(runs / "train", "shared")
            checkpoint = sorted((shared / "checkpoints").iterdir())[-1]
            shutil.copy(content, checkpoint / name)
            checksums = {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in checkpoint.iterdir()
                if path.name != "checksums.json"
            }
            (checkpoint / "checksums.json").write_text(json.dumps(checksums))
            tried(read, f"{name}: {content}", ran, "train", "--resume", shared, "--run.updates", "3")


# Links ----------------------------------------------------------------------------------------------------------------


def state(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder under a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def linked(desk) -> Callable[[Path, str], Harm]:
    """Puts a link to a foreign file, or a foreign folder, in place of one of a run; tells whether that was changed."""

    def link(run: Path, name: str) -> Harm:
        foreign = desk / "foreign"
        shutil.rmtree(foreign, ignore_errors=True)
        foreign.mkdir()
        (foreign / "mine.txt").write_text("mine")
        path, target = run / name, foreign / Path(name).name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            shutil.move(path, target)
        elif "." not in name.rpartition("/")[2].removeprefix("."):
            target.mkdir()
        elif not name.endswith(".json"):  # those links lead to a file that writing would make
            target.write_text("")
        path.symlink_to(target.resolve())
        before = state(foreign)
        return lambda: (
            [name for name, content in state(foreign).items() if before.get(name, name) != content]
            + [name for name in before if not Path(name).exists()]
        )

    return link


TRAINING = (
    ".held", "config.toml.tmp", "metrics.jsonl", "metrics.jsonl.tmp", "trials", "trials/update-00002.jsonl.gz",
    "trials/update-00003.jsonl.gz", "trials/update-00003.jsonl.gz.tmp", "checkpoints", "checkpoints/update-00001",
    "checkpoints/update-00002", "checkpoints/update-00002/weights.safetensors", "checkpoints/.update-00003.tmp",
    "checkpoints/.update-00003.tmp/state.json", "checkpoints/update-00003", "reference", "reference/weights.tmp",
    "warmstart.json.tmp",
)  # fmt: skip
EVALUATION = (
    ".held", "config.toml.tmp", "result.json", "result.json.tmp", "trials", "trials/main.jsonl.gz",
    "trials/main.jsonl.gz.tmp", "trials/main.jsonl.gz.damaged", "trials/independent.jsonl.gz", "requests.json",
    "requests.json.tmp", "paid", "paid/main.jsonl", "paid/main.jsonl.tmp",
)  # fmt: skip
SWEPT = (".held", "table.json", "table.md.tmp", "01-rl-seed0", "01-rl-seed0/order.json", "01-rl-seed0/worker.log")
COMPARED = ("table.json", "table.json.tmp", "table.md", "table.md.tmp", "curves.png")


def test_nothing_is_written_through_a_link(row, runs, linked, desk):
    written = row(AREA, "a link in place of a file that is written")
    for name in TRAINING:
        run = copied(runs / "train", "shared")
        tried(written, name, linked(run, name), "train", "--resume", run, "--run.updates", "3", "--json")
    with ChatServer(answer=lambda _: "<action>1</action>") as server:
        for name in EVALUATION:
            run = copied(runs / "endpoint", "shared")
            forget_trials(run)
            harm = linked(run, name)
            tried(written, name, harm, "eval", "--resume", run, "--base-url", server.base_url, "--json")
    (desk / "sweep.toml").write_text(SWEEP)
    for name in SWEPT:
        shutil.rmtree("shared")
        Path("shared").mkdir()
        tried(written, name, linked(Path("shared"), name), "sweep", "sweep.toml", "--run", "shared", "--cores", "1")
    for name in COMPARED:
        shutil.rmtree("shared")
        Path("shared").mkdir()
        tried(written, name, linked(Path("shared"), name), "compare", runs / "eval", "--out", "shared")
    for words in (["--run", "shared"], ["--run", "shared/run"]):
        shutil.rmtree("shared")
        Path("shared").mkdir()
        harm = linked(Path("shared"), "run/trials" if "run/" in words[1] else "trials")
        tried(written, "a new run", harm, "eval", "bandit", "--policy", "random", "--tasks", "1", *words)


def test_no_command_waits_for_a_pipe(row, runs, desk):
    one = row(AREA, "a pipe in place of a file")
    for name in ("metrics.jsonl", ".held", "state/pipe", "config.toml", "result.json", "trials/agent.jsonl.gz"):
        for kind, words in (("train", ["train", "--resume"]), ("eval", ["eval", "--resume"]), ("eval", ["show"])):
            run = copied(runs / kind, "piped")
            (run / name).unlink(missing_ok=True)
            (run / name).parent.mkdir(exist_ok=True)
            os.mkfifo(run / name)
            tried(one, f"{words} {name}", lambda: False, *words, run)
