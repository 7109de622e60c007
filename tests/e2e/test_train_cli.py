"""``mulligan train`` and ``mulligan export`` around the trainer: settings, folders, progress, mirrors, one-line errors.

The trainer itself is replaced by one that plays nothing: what it learns is tested elsewhere.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mulligan.app.cli import main
from mulligan.app.progress import Status
from mulligan.app.stopping import train_until_stopped
from mulligan.envs import registry
from mulligan.report.run import RunFolder
from mulligan.training.resolve import from_tree, presets, resolve, to_tree

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_env.py"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


@pytest.fixture
def trainer(monkeypatch):
    """A trainer that only says it trained; `calls` is what it was told, `stop_at` interrupts it."""
    told = SimpleNamespace(calls=[], stop_at=None, warning=None, signal_at=None)

    def train(config, run, *, resume=False, on_update=None, stop=lambda: False):
        told.calls.append((config, Path(run), resume))
        run = RunFolder.open(run) if resume else RunFolder.create(run, {"kind": "train", **to_tree(config)})
        stop()
        if not resume:
            on_update({"warmstart": 5, "steps": 5, "loss": 1.25})
        with (run.path / "metrics.jsonl").open("a+", encoding="utf-8") as file:
            file.seek(0)
            done = len(file.readlines())
            if not config.run.updates:
                file.write(json.dumps({"update": 0, "validation/p@1": 0.125, "validation/p@2": 0.375}) + "\n")
            for update in range(done + 1, config.run.updates + 1):
                if update == told.stop_at:
                    raise KeyboardInterrupt
                metrics = {"update": update, "p@1": 0.25, "p@2": 0.5, "loss/entropy": 1.5, "reward/1": -0.5}
                file.write(json.dumps(metrics) + "\n")
                extra = {"updates": config.run.updates, "warning": told.warning, "time/engine_tokens_per_s": 12345.6}
                on_update({**metrics, **extra})
                if update == told.signal_at:
                    signal.raise_signal(signal.SIGTERM)
                if stop():
                    break
        return run.path

    _replace(monkeypatch, "mulligan.training.loop", train=train)
    return told


def _replace(monkeypatch, name: str, **attributes: object) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def test_settings_reach_the_trainer(trainer, folder, capsys):
    words = "minesweeper --preset test --algo.estimator rloo --trial.episodes 4 --algo.gamma-traj=0.9 --seed 3"
    assert call("train", *words.split(), "--env.mines", "1", "--model.gradient-checkpointing", "--run", "mine") == 0
    ((config, run, resume),) = trainer.calls
    assert (config.algo.estimator, config.trial.episodes, config.algo.gamma_traj) == ("rloo", 4, 0.9)
    assert (config.run.seed, config.task.params["mines"], config.model.gradient_checkpointing) == (3, 1, True)
    assert (run, resume) == (Path("mine"), False)
    assert "p@1 25.0  p@2 50.0" in capsys.readouterr().out


def test_settings_before_the_environment_are_not_taken_for_it(trainer):
    call("train", "--preset", "test", "--algo.estimator", "rloo", "bandit")
    call("train", "--preset", "test", "--algo.estimator", "rloo")
    assert [config.task.env for config, _, _ in trainer.calls] == ["bandit", "minesweeper"]


def test_a_run_has_a_folder_of_its_own(trainer, folder, capsys):
    assert call("train", "minesweeper:2,bandit:1", "--preset", "test") == 0
    assert call("train", "minesweeper:2,bandit:1", "--preset", "test") == 0
    runs = {run.name for run in (folder / "runs").iterdir()}
    assert len(runs) == 2
    assert all("-train-minesweeper-2-bandit-1" in run for run in runs)
    said = capsys.readouterr().out
    assert all(f"Run: runs/{run}\n" in said for run in runs)


def test_without_preset_file_or_model_it_is_the_cpu_preset(trainer):
    call("train", "minesweeper", "--run.updates", "1")
    call("train", "--task.env", "minesweeper", "--run.updates", "1", "--model.name", "hf:somewhere")
    assert trainer.calls[0][0] == resolve("cpu", None, {"run.updates": "1"})
    assert trainer.calls[1][0] == resolve(None, None, {"run.updates": "1", "model.name": "hf:somewhere"})


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ("--preset gpu-smollm2-minesweeper", True),
        ("minesweeper --model.name hf:x --model.device cpu", False),
        ("--preset test", False),
    ],
)
def test_a_model_of_real_size_without_a_gpu_is_warned_of(trainer, capsys, monkeypatch, words, warned):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert call("train", *words.split(), "--run.updates", "1") == 0
    assert ("warning: torch sees no GPU: smollm2 is trained on the CPU" in capsys.readouterr().err) == warned


def test_what_is_trained_is_said_first(trainer, folder, capsys):
    (folder / "mine.toml").write_text('base = "test"\n[task]\nenv = "bandit"\n[warmstart]\nsteps = 0\n')
    call("train", "kuhn", "--preset", "test", "--run", "first")
    call("train", "--config", "mine.toml", "--run.updates", "1", "--run", "second")
    call("train", "--resume", "first", "--run.updates", "3")
    headings = [line for line in capsys.readouterr().err.splitlines() if ", into " in line or "continuing" in line]
    assert headings == [
        "kuhn, preset test: 5 steps of warm start, 2 updates, into first",
        "bandit, mine.toml: 1 update, into second",
        "kuhn: 3 updates in all, continuing first",
    ]


def test_what_takes_long_before_the_warm_start_is_said():
    said = Status().line({"warmstart": 0, "steps": 5, "demonstrations": 4000})
    assert said == "warm start: 4000 demonstrations are played"


def test_json_is_the_last_update_alone(trainer, capsys):
    assert call("train", "--preset", "test", "--run", "mine", "--json") == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert (data["run"], data["update"], data["p@2"]) == ("mine", 2, 0.5)
    assert captured.err == ""


def test_a_game_against_somebody_ends_with_its_returns(trainer, capsys):
    assert call("train", "kuhn", "--preset", "test", "--run", "mine") == 0
    assert "2 updates done; the last one: reward -0.50\n" in capsys.readouterr().out


def test_a_warm_start_alone_says_what_it_reached_and_where_it_is(trainer, capsys):
    assert call("train", "--preset", "test", "--run.updates", "0", "--run", "warm") == 0
    assert capsys.readouterr().out == (
        "warm start done; on validation tasks: p@1 12.5  p@2 37.5\n"
        "Weights: warm/checkpoints/update-00000/weights.safetensors; "
        "other runs begin there with --preset test --model.name warm --warmstart.steps 0\n"
        "Run: warm\n"
    )
    assert call("train", "--preset", "test", "--run.updates", "0", "--run", "again", "--json") == 0
    assert json.loads(capsys.readouterr().out)["validation/p@2"] == 0.375


def test_plain_progress_ends_with_the_last_update(trainer, capsys):
    trainer.warning = "sampler and trainer differ"
    call("train", "--preset", "test", "--run.updates", "30")
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "warm start 5/5  loss 1.250"
    assert lines[-1].startswith("update 30/30")
    assert len(lines) < 10  # one line each ten seconds, not one an update
    assert sum("sampler and trainer differ" in line for line in lines) == 1


def test_the_line_of_an_update(monkeypatch):
    now = {"at": 100.0}
    monkeypatch.setattr("mulligan.app.progress.time.monotonic", lambda: now["at"])
    status = Status()
    metrics = {"updates": 80, "p@1": 0.412, "p@2": 0.55, "p@10": 0.7, "loss/entropy": 1.234}
    metrics["time/engine_tokens_per_s"] = 3400.4
    assert status.line({**metrics, "update": 10}).startswith("update 10/80  p@1 41.2")
    now["at"] = 130.0
    # Two updates in 30 s, 68 to go: 15 s * 68 = 1020 s = 17 min.
    assert status.line({**metrics, "update": 12}) == (
        "update 12/80, 0:17:00 left  p@1 41.2  p@2 55.0  p@10 70.0  entropy 1.23  3,400 tokens/s"
    )
    games = Status(versus=True).line({"update": 1, "updates": 2, "reward/1": -0.5, "reward/2": 0.25, "p@1": 0.1})
    assert games == "update 1/2  reward -0.50 +0.25"


def test_interruption_says_how_to_continue(trainer, capsys):
    trainer.stop_at = 2
    assert call("train", "--preset", "test", "--run", "mine") == 130
    assert capsys.readouterr().err.splitlines()[-1].endswith("continue with: mulligan train --resume mine")
    trainer.stop_at = None
    assert call("train", "--resume", "mine") == 0
    first, second = trainer.calls
    assert second == (first[0], Path("mine"), True)


def test_what_is_said_to_continue_a_run_on_a_file_works(trainer, capsys, monkeypatch):
    """The command names no file, which a run folder alone may not have run."""
    Path("own.py").write_text("from mulligan.envs.bandit import Bandit as Own\n")
    trainer.stop_at = 2
    assert call("train", "own.py:Own", "--preset", "test", "--run", "mine") == 130
    command = capsys.readouterr().err.splitlines()[-1].partition("continue with: mulligan ")[2]
    trainer.stop_at = None
    for words, code in ((["train", "--resume", "mine"], 2), (command.split(), 0)):
        monkeypatch.delenv("MULLIGAN_TRUST", raising=False)  # as in a process of its own
        registry._load.cache_clear()
        assert call(*words) == code


def test_who_asks_to_stop_has_the_last_update_saved(trainer, capsys):
    before = signal.getsignal(signal.SIGTERM)
    trainer.signal_at = 1
    assert call("train", "--preset", "test", "--run", "mine") == 130
    said = capsys.readouterr().err.splitlines()
    assert "stopping after this step or update; once more to stop at once" in said
    assert said[-1].endswith("continue with: mulligan train --resume mine")
    assert len(Path("mine/metrics.jsonl").read_text().splitlines()) == 1
    assert signal.getsignal(signal.SIGTERM) is before
    trainer.signal_at = 2  # the last one: there is nothing to go on with
    assert call("train", "--preset", "test", "--run", "other", "--run.updates", "2") == 0


def test_before_the_first_step_there_is_nothing_to_wait_for(monkeypatch, folder):
    reached = []

    def train(config, run, *, on_update, stop, **_):
        on_update({"warmstart": 0, "steps": 5, "demonstrations": 100})
        if run.name == "later":  # the first step or update is about to begin
            stop()
        signal.raise_signal(signal.SIGTERM)
        reached.append(stop())
        signal.raise_signal(signal.SIGTERM)
        reached.append("the end")

    _replace(monkeypatch, "mulligan.training.loop", train=train)
    for name in ("early", "later"):
        with pytest.raises(KeyboardInterrupt):
            train_until_stopped(resolve("test"), Path(name), [], resume=False)
    assert reached == [True]  # of the later one: the first signal is heeded, the second one stops it


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["bandit"], "bandit"),
        (["--preset", "cpu"], "--preset"),
        (["--seed", "1"], "--seed"),
        (["--run", "other"], "--run"),
        (["--run.updates", "9", "--algo.gamma-traj", "0.1"], "algo.gamma_traj"),
        (["--env.mines", "3"], "env.mines"),
    ],
)
def test_a_resumed_run_keeps_its_settings(trainer, capsys, words, name):
    call("train", "--preset", "test", "--run", "mine")
    capsys.readouterr()
    assert call("train", "--resume", "mine", *words) == 2
    assert name in capsys.readouterr().err
    assert len(trainer.calls) == 1


def test_a_run_is_trained_longer(trainer, capsys):
    call("train", "--preset", "test", "--run", "mine")
    assert call("train", "--resume", "mine", "--run.updates", "5") == 0
    (before, *_), (config, run, resume) = trainer.calls
    assert config == replace(before, run=replace(before.run, updates=5))
    assert (run, resume) == (Path("mine"), True)
    capsys.readouterr()
    assert call("train", "--resume", "mine", "--run.updates", "7", "--dry-run") == 0
    assert tomllib.loads(capsys.readouterr().out)["run"]["updates"] == 7
    assert call("train", "--resume", "mine", "--run.updates", "3") == 0
    assert capsys.readouterr().out.startswith("5 updates done already: nothing was trained; ")


def test_a_run_is_not_begun_twice(trainer, capsys):
    call("train", "--preset", "test", "--run", "mine")
    capsys.readouterr()
    assert call("train", "--preset", "test", "--run", "mine") == 2
    assert "--resume mine" in capsys.readouterr().err
    assert len(trainer.calls) == 1


@pytest.mark.parametrize("name", list(presets()))
def test_dry_run_of_every_preset(capsys, folder, name):
    assert call("train", "--preset", name, "--dry-run") == 0
    text = capsys.readouterr().out
    assert from_tree(tomllib.loads(text)) == resolve(name)
    assert call("train", "--preset", name, "--dry-run", "--json") == 0
    assert from_tree(json.loads(capsys.readouterr().out)) == resolve(name)
    assert not list(folder.iterdir())
    # What it prints is itself a file to start from.
    (folder / "again.toml").write_text(text)
    assert resolve(None, folder / "again.toml") == resolve(name)


def test_dry_run_imports_no_torch(folder):
    program = (
        "import sys\nfrom mulligan.app.cli import main\n"
        "try:\n    main(['train', 'kuhn', '--preset', 'mage', '--dry-run'])\n"
        "except SystemExit as stopped:\n"
        "    sys.exit(stopped.code or bool({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert 'form = "final"' in done.stdout


def test_training_without_torch_names_the_extra(folder):
    program = "import sys\nsys.modules['torch'] = None\nfrom mulligan.app.cli import main\nmain(sys.argv[1:])\n"
    words = ["train", "--preset", "test", "--run", "mine"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "mulligan: training needs the extra 'train'; in the repository: pip install -c constraints.txt -e '.[train]'\n"
    )


def test_help_lists_sections_presets_and_settings(capsys):
    assert call("train", "--help") == 0
    text = capsys.readouterr().out
    for word in (*presets(), "--env.NAME", "--settings", "--resume"):
        assert word in text
    assert len(text.splitlines()) < 80
    assert call("train", "--settings") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("--algo.gamma-traj 0.6 ") and "episode to episode" in line for line in lines)
    assert any("[none | history | reflection | both]" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "an environment is missing"),
        (["--model.name", "hf:x", "--run.updates", "1"], "an environment is missing"),
        (["minesweper"], "'minesweeper'"),
        (["minesweeper:2,sokobann:1"], "'sokoban'"),
        (["openspiel:hex(num_cols=3,num_rows=4"], "a bracket is not closed"),
        ([str(EXAMPLE)], f"name the environment in it: {EXAMPLE}:GuessNumber"),
        ([f"{EXAMPLE}:2,bandit"], f"name the environment in it: {EXAMPLE}:GuessNumber"),
        (["--preset", "gpu"], "'cpu'"),
        (["--algo.gama-traj", "0.9"], "'algo.gamma_traj'"),
        (["--gamma-traj", "0.9"], "'--algo.gamma-traj'"),
        (["--lr", "0.9"], "'--optim.lr'"),
        (["--pre-set", "cpu"], "'--preset'"),
        (["--algo.gamma-traj", "high"], "a number"),
        (["--algo.gamma-traj"], "needs a value"),
        (["--algo.gamma-traj", "--dry-run"], "needs a value"),
        (["--trial.memory", "everything"], "history"),
        (["--trial.episodes", "0"], "trial.episodes"),
        (["--algo.estimator", "rlo"], "'rloo'"),
        (["--env.mimes", "3"], "'mines'"),
        (["--env.mines", "20"], "mines"),
        (["--env.mines", "few"], "mines"),
        (["--seed", "one"], "run.seed"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--resume", "nowhere"], "no run folder nowhere"),
        (["minesweeper", "surplus"], "surplus"),
    ],
)
def test_mistakes_are_answered_in_one_line(trainer, capsys, words, said):
    assert call("train", *words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert not trainer.calls


def test_only_a_training_is_resumed_or_exported(trainer, capsys):
    call("eval", "bandit", "--policy", "random", "--tasks", "2", "--run", "looked", "--json")
    for words in (["train", "--resume", "looked"], ["export", "looked", "out"]):
        capsys.readouterr()
        assert call(*words) == 2
        assert "looked" in capsys.readouterr().err


def test_wandb_keeps_links_in_the_run_folder(trainer, monkeypatch, folder):
    """Its names are the user's; it keeps links to files of its own elsewhere in the run folder."""
    seen: list[object] = []

    def init(**options: object) -> SimpleNamespace:
        logs = Path(str(options["dir"])) / "wandb" / "run-1" / "logs"
        if not logs.exists():
            logs.mkdir(parents=True)
            (logs / "debug-core.log").symlink_to(folder / "cache" / "wandb" / "core-debug.log")
            (logs.parent.parent / "latest-run").symlink_to("run-1")
        assert options["config"] == to_tree(resolve("test"))
        assert (options["name"], options["id"], options["resume"]) == ("mine", "mine", "allow")
        assert (options["project"], options["group"]) == ("doors", "seeds")
        return SimpleNamespace(
            log=lambda metrics: seen.append((metrics["update"], metrics["p@1"])) if "p@1" in metrics else None,
            define_metric=lambda *names, **more: None,
            summary={},
            finish=lambda: seen.append("finished"),
        )

    errors = SimpleNamespace(Error=RuntimeError)
    _replace(monkeypatch, "wandb", init=init, errors=errors, api=SimpleNamespace(api_key="one"))
    words = ("--wandb", "--wandb-project", "doors", "--wandb-group", "seeds")
    assert call("train", "--preset", "test", "--run", "mine", *words) == 0
    assert seen == [(1, 0.25), (2, 0.25), "finished"]
    assert call("train", "--resume", "mine", *words) == 0


def test_names_in_wandb_need_wandb(trainer, capsys, folder):
    assert call("train", "--preset", "test", "--wandb-project", "doors") == 2
    assert "--wandb, which is missing" in capsys.readouterr().err
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("flag", "module"), [("--wandb", "wandb"), ("--tensorboard", "torch.utils.tensorboard")])
def test_a_mirror_that_is_not_installed(trainer, monkeypatch, capsys, folder, flag, module):
    for name in ("torch", "torch.utils"):
        _replace(monkeypatch, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert call("train", "--preset", "test", flag) == 2
    assert f".[{flag.removeprefix('--')}]" in capsys.readouterr().err
    assert not trainer.calls
    assert not list(folder.iterdir())


@pytest.fixture
def models(monkeypatch):
    """Stands in for loading and saving models; keeps what was asked for."""
    asked: list[tuple[object, ...]] = []

    def load_model(run):
        return SimpleNamespace(name=f"model of {run}", tokenizer=SimpleNamespace(model_max_length=1))

    def save(loaded, path, *, merge):
        asked.append((loaded.name, loaded.tokenizer.model_max_length, path, merge))

    _replace(monkeypatch, "mulligan.training.checkpoint", load_model=load_model)
    _replace(monkeypatch, "mulligan.training.context", trained_context=lambda run, loaded: 96)
    _replace(monkeypatch, "mulligan.models.load", save=save)
    return asked


def test_export_writes_the_model_of_a_run(trainer, models, folder, capsys):
    call("train", "--preset", "test", "--run", "mine")
    (folder / "empty").mkdir()
    assert call("export", "mine", "out") == 0
    assert call("export", "mine", "empty", "--merge") == 0
    model = f"model of {folder / 'mine'}"
    assert models == [(model, 96, Path("out"), False), (model, 96, Path("empty"), True)]
    assert "Model: out (context: 96 tokens)" in capsys.readouterr().out


def test_export_overwrites_nothing(trainer, models, folder, capsys):
    call("train", "--preset", "test", "--run", "mine")
    capsys.readouterr()
    (folder / "file").write_text("precious")
    for target in ("mine", "file"):
        assert call("export", "mine", target) == 2
        assert "not an empty folder" in capsys.readouterr().err
    assert call("export", "nowhere", "out") == 2
    assert "no run folder nowhere" in capsys.readouterr().err
    assert not models
