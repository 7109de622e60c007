"""Settings from presets, files and the command line: who wins, what is refused, and that nothing is lost on disk."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.app.sweep.demo import demo_sweep
from mulligan.errors import MulliganError, ParameterError, UnknownName, UsageError
from mulligan.report.run import to_toml
from mulligan.settings import Setting, with_values
from mulligan.training.config import Config, settings, value_at
from mulligan.training.resolve import MAY_CHANGE, from_tree, presets, resolve, to_tree, with_resume_flags
from mulligan.trusted import trust
from mulligan.types import Sampling


@pytest.fixture
def write(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_nothing_given_is_the_defaults():
    assert resolve() == Config()


def test_later_layers_win(write):
    file = write("[algo]\ngamma_traj = 0.8\n[optim]\nlr = 1e-3\n")
    config = resolve("cpu", file, {"algo.gamma-traj": "0.9"})
    assert config.algo.gamma_traj == 0.9  # command line, over the file's 0.8 and the preset's 0.6
    assert config.optim.lr == 1e-3  # file, over the preset's 6e-4
    assert config.algo.shaping == 0.3  # preset, over the default 0
    assert config.algo.gamma_step == Config().algo.gamma_step  # nobody's


def test_a_preset_builds_on_its_base():
    """RL beside meta-RL has equally many episodes an update, and differs in nothing but that and its entropy bonus."""
    meta, plain = resolve("cpu"), resolve("cpu-rl")
    assert (plain.trial.episodes, plain.run.group) == (1, 24)
    assert meta.run.group * meta.trial.episodes == plain.run.group * plain.trial.episodes
    same = dataclasses.replace(
        plain,
        run=dataclasses.replace(plain.run, group=meta.run.group),
        trial=dataclasses.replace(plain.trial, episodes=meta.trial.episodes),
        algo=dataclasses.replace(plain.algo, entropy_end=meta.algo.entropy_end),
    )
    assert same == meta
    # The demonstration's arm of RL is that preset.
    (rl,) = (arm for arm in demo_sweep(0).arms if arm.name == "RL")
    assert resolve("cpu", None, rl.settings) == plain


def test_a_file_may_name_its_base_unless_a_preset_is_given(write):
    file = write('base = "cpu"\n[run]\nseed = 5\n')
    assert resolve(None, file) == resolve("cpu", None, {"run.seed": "5"})
    assert resolve("test", file) == resolve("test", None, {"run.seed": "5"})


@pytest.mark.parametrize(
    ("env", "gamma_traj", "tasks"),
    [
        ("minesweeper", 0.9, 16),
        ("minesweeper(mines=4)", 0.9, 16),
        ("sokoban", 0.6, 16),
        ("minesweeper:2,sokoban:1", 0.6, 16),
        ("minesweeper(mines=4),minesweeper(mines=5)", 0.6, 16),
    ],
)
def test_what_holds_for_one_environment_alone(env, gamma_traj, tasks):
    config = resolve("lamer-qwen3-4b", None, {"task.env": env})
    assert (config.task.env, config.algo.gamma_traj, config.run.tasks) == (env, gamma_traj, tasks)


def test_evaluations_are_of_one_game_however_many_parameters_it_has():
    flags = {"run.evaluate": "opponent=unseen"}
    assert resolve(None, None, {**flags, "task.env": "kuhn(opponent=seen,hands=2)"}).run.evaluate == "opponent=unseen"
    with pytest.raises(ParameterError, match=r"run\.evaluate must be empty for a mixture"):
        resolve(None, None, {**flags, "task.env": "kuhn,rps"})


def test_parameters_of_one_environment_do_not_leak_into_another():
    assert resolve("cpu").task.params["view"] == "compact"
    assert resolve("cpu", None, {"task.env": "sokoban"}).task.params == {}


def test_cases_come_before_later_layers(write):
    file = write("[algo]\ngamma_traj = 0.1\n[for.sokoban.algo]\ngamma_traj = 0.2\n")
    assert resolve("lamer-qwen3-4b", file).algo.gamma_traj == 0.1  # over the preset's own case for MineSweeper
    assert resolve(None, file, {"task.env": "sokoban"}).algo.gamma_traj == 0.2
    assert resolve(None, file, {"task.env": "sokoban", "algo.gamma_traj": "0.3"}).algo.gamma_traj == 0.3


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("run.updates", "12", 12),
        ("optim.lr", "1e-6", 1e-6),
        ("algo.gamma-traj", "1", 1.0),
        ("algo.gamma_traj", ".5", 0.5),
        ("algo.kl-weight", "inf", math.inf),
        ("trial.max-tokens", "7", 7),
        ("model.gradient-checkpointing", "yes", True),
        ("model.gradient-checkpointing", "FALSE", False),
        ("model.name", "hf:Qwen/Qwen3-4B", "hf:Qwen/Qwen3-4B"),
        ("trial.memory", "both", "both"),
        ("trial.memory", "none", "none"),  # the mode called none
        ("trial.memory", "default", None),  # as the style says
        ("trial.window", "3", 3),
        ("trial.window", "none", None),
        ("algo.entropy-end", "None", None),
    ],
)
def test_text_of_the_command_line_takes_the_settings_type(key, text, value):
    resolved = value_at(resolve("cpu", None, {key: text}), key.replace("-", "_"))
    assert resolved == value
    assert type(resolved) is type(value)


def test_parameters_of_the_environment():
    config = resolve(None, None, {"env.mines": "4", "task.params.rows": "5", "env.view": "compact"})
    assert config.task.params == {"mines": 4, "rows": 5, "view": "compact"}
    # What a number would spell differently stays text: the environment decides what it means.
    opponent = resolve(None, None, {"task.env": "tictactoe", "env.opponent": "mcts:0100"}).task.params
    assert opponent == {"opponent": "mcts:0100"}


def test_numbers_of_parameters_survive_as_text_where_text_is_meant(tmp_path):
    file = tmp_path / "odd.py"
    trust(file)
    file.write_text(
        "from mulligan.types import Step\n"
        "class Odd:\n"
        "    defaults = {'code': 'x'}\n"
        "    def __init__(self, task): self.task = task\n"
        "    def rules(self): return ''\n"
        "    def reset(self, chance=0): return ''\n"
        "    def step(self, reply): return Step('')\n"
    )
    for text in ("007", "1e3", "12", "0.50", "inf"):
        params = resolve(None, None, {"task.env": f"{file}:Odd", "env.code": text}).task.params
        assert str(params["code"]) == text


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("algo.gama-traj", "'algo.gamma_traj'"),
        ("algorithm.gamma_traj", "'algo.gamma_traj'"),
        ("trial.gamma_traj", "'algo.gamma_traj'"),
        ("gamma_traj", "'algo.gamma_traj'"),
        ("lr", "optim.lr, warmstart.lr"),
        ("run.upates", "'run.updates'"),
        ("zzzzzzz", "algo, backend, engine, model, optim, population, ray, run, task, trial, warmstart"),
        ("env.mimes", "'mines'"),
    ],
)
def test_unknown_keys_name_the_nearest(key, said):
    with pytest.raises(UnknownName) as refused:
        resolve("cpu", None, {key: "1"})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("[algo]\ngamma_traj = 'high'\n", "algo.gamma_traj", "'high'"),
        ("[algo]\ngamma_traj = '0.5'\n", "algo.gamma_traj", "'0.5'"),  # a file has types of its own
        ("[algo]\ngamma_traj = nan\n", "algo.gamma_traj", "nan"),
        ("[algo]\ngamma_traj = 1.5\n", "algo.gamma_traj", "1.5"),
        ("[optim]\nlr = 0\n", "optim.lr", "0"),
        ("[run]\nupdates = 1.5\n", "run.updates", "1.5"),
        ("[run]\nupdates = true\n", "run.updates", "True"),
        ("[run]\nupdates = -1\n", "run.updates", "-1"),
        ("[trial]\nmemory = 'all'\n", "trial.memory", "'all'"),
        ("[trial]\nmax_tokens = 0\n", "trial.max_tokens", "0"),
        ("[model]\ngradient_checkpointing = 1\n", "model.gradient_checkpointing", "1"),
        ('[model]\nname = "two\\nlines"\n', "model.name", "two"),
        ("[task.params]\nmines = [3]\n", "task.params.mines", "[3]"),
        ("[task.params]\nmines = 99\n", "mines", "99"),
    ],
)
def test_impossible_values_are_named(write, text, name, value):
    with pytest.raises(ParameterError) as refused:
        resolve(None, write(text))
    assert name in str(refused.value)
    assert value in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[algorithm]\nx = 1\n", "unknown setting in "),
        ("gamma_traj = 0.9\n", "'algo.gamma_traj'"),
        ("[algo]\nestimator = 'rlo'\n", "'rloo'"),
        ("[algo]\nform = 'papers'\n", "'paper'"),
        ("[trial]\nstyle = 'plane'\n", "'plain'"),
        ("[task]\nenv = 'minesweper'\n", "'minesweeper'"),
        ("base = 'cpus'\n", "'cpu'"),
        ("[run\n", "mine.toml"),
    ],
)
def test_names_are_checked_before_anything_is_trained(write, text, said):
    with pytest.raises(UsageError) as refused:
        resolve(None, write(text))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        resolve(None, tmp_path / "nowhere.toml")


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_resolves_and_survives_the_disk(name):
    config = resolve(name)
    assert from_tree(tomllib.loads(to_toml(to_tree(config)))) == config
    assert presets()[name].endswith(".")


def test_the_papers_settings():
    """The table of the seeds: N = 3, groups of 8, 16 tasks, γ_step 0.95, γ_traj 0.9 on MineSweeper, lr 1e-6."""
    for name, model, rank in (
        ("lamer-qwen3-4b", "hf:Qwen/Qwen3-4B", 0),
        ("lamer-llama3.1-8b", "hf:meta-llama/Llama-3.1-8B-Instruct", 64),  # all weights do not fit: its header says why
    ):
        config = resolve(name)
        assert config.model.name == model
        assert config.model.lora_rank == rank
        assert (config.trial.episodes, config.run.group, config.run.tasks) == (3, 8, 16)
        assert (config.algo.estimator, config.algo.gamma_step, config.algo.gamma_traj) == ("gigpo", 0.95, 0.9)
        assert config.trial.memory == "both"
        assert config.optim.lr == 1e-6
    for env in ("kuhn", "tictactoe"):
        mage = resolve("mage", None, {"task.env": env})
        assert (mage.algo.form, mage.algo.scale, mage.trial.episodes) == ("final", "agent", 3)
        assert "opponent" in mage.task.params


def test_a_run_folder_says_more_than_the_settings():
    config = resolve("test")
    tree = tomllib.loads(to_toml({"schema_version": 1, "kind": "train", **to_tree(config)}))
    assert from_tree(tree) == config


def test_settings_of_a_run_folder_are_read_strictly():
    with pytest.raises(MulliganError, match=r"'algo\.gamma_traj'"):
        from_tree({"algo": {"gamma_trai": 0.5}})


def test_what_is_left_open_is_open_by_default():
    """None is left out of the file, so that the default must be None for it to come back."""
    assert all(setting.default is None for setting in settings().values() if setting.optional)


def test_settings_are_few_and_each_is_explained_in_a_sentence():
    """A setting exists because a user turns it; all else is a constant beside the code that uses it."""
    assert len(settings()) <= 87
    assert not [key for key, setting in settings().items() if not setting.help.endswith(".")]


def test_defaults_are_those_of_training_and_what_training_fixes_is_no_setting():
    assert settings()["trial.temperature"].default == 1.0
    assert "trial.top_p" not in settings()
    trial = dataclasses.replace(Config().trial, sampling=Sampling(1.0, 0.9))
    with pytest.raises(ParameterError, match=r"trial\.top_p"):
        Config(trial=trial)


def test_a_run_that_goes_on_may_change_its_length_and_nothing_it_learns_from():
    config = resolve("test")
    assert set(settings()) > MAY_CHANGE
    longer = with_resume_flags(config, {"run.updates": "200", "algo.gamma-traj": str(config.algo.gamma_traj)})
    assert longer == dataclasses.replace(config, run=dataclasses.replace(config.run, updates=200))
    for key in ("algo.gamma_traj", "env.mines", "run.seed"):
        with pytest.raises(UsageError, match=key):
            with_resume_flags(config, {"run.updates": "200", key: "1"})


def _strategy(setting: Setting) -> st.SearchStrategy[Any]:
    if setting.optional:
        return st.none() | _strategy(dataclasses.replace(setting, optional=False))
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.name == "trial.style":
        return st.sampled_from(["plain", "bare"])
    if setting.name == "population.spread":  # the one number that must be 1 or more
        return st.floats(1.0, 1e6)
    if setting.name in ("population.others", "population.past"):  # together below 1
        return st.floats(0.0, 0.49)
    return {
        int: st.integers(2, 10**12),
        float: st.floats(1e-300, 1.0, exclude_max=True),  # within every range
        bool: st.booleans(),
        str: st.text(st.characters(exclude_categories=("Cc", "Cs"))),
    }[setting.kind]


_PARAMS = st.dictionaries(
    st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True),
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cc", "Cs"))),
    max_size=4,
)


def _config(values: dict[str, Any], params: dict[str, Any]) -> Config:
    sections = {}
    for section in dataclasses.fields(Config):
        own = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{section.name}.")}
        sections[section.name] = with_values(getattr(Config(), section.name), own)
    return Config(**{**sections, "task": dataclasses.replace(sections["task"], params=params)})


def _configs() -> st.SearchStrategy[Config]:
    values = st.fixed_dictionaries({key: _strategy(setting) for key, setting in settings().items()})
    return st.builds(_config, values, _PARAMS)


@hypothesis.settings(max_examples=25)
@given(_configs())
def test_any_configuration_survives_the_disk_exactly(config):
    again = from_tree(tomllib.loads(to_toml(to_tree(config))))
    assert again == config
    pairs = [(again.task.params[key], value) for key, value in config.task.params.items()]
    assert all(type(kept) is type(value) for kept, value in pairs)  # 1, 1.0 and True are equal, and not the same


def test_a_warm_start_without_anybody_to_imitate_is_refused_at_once():
    env = str(Path(__file__).parents[3] / "examples" / "my_env.py") + ":GuessNumber"
    trust(env)
    with pytest.raises(ParameterError, match=r"has no player\(\)"):
        resolve("cpu", None, {"task.env": env})
    assert resolve("cpu", None, {"task.env": env, "warmstart.steps": "0"}).warmstart.steps == 0
