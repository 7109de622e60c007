"""One run, one context: what trials need, what a run keeps of it, and what the papers' presets need of a GPU."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import lru_cache
from importlib import resources

import pytest
import torch

import mulligan
from mulligan.app.bench.update import SHAPES, Way, random_model
from mulligan.app.cli.main import main
from mulligan.app.sweep.arms import Arm, Sweep, plan_work
from mulligan.engine.choose import slots_that_fit, token_bytes
from mulligan.errors import MemoryFull, UsageError
from mulligan.models.load import load
from mulligan.models.nano import nano_tokenizer
from mulligan.models.renderer import Renderer
from mulligan.players import Plays, player_from
from mulligan.report.run import RunFolder
from mulligan.rollout.lengths import Lengths, Need, needed
from mulligan.training.config import EngineConfig, TaskConfig
from mulligan.training.context import bytes_to_come, chosen_context, fixed_context, longest_sequence
from mulligan.training.loop import train
from mulligan.training.resolve import from_run, presets, resolve
from mulligan.trial.settings import TrialSettings
from mulligan.types import Sampling
from small_runs import TINY, metrics, small, trial

LENGTHS = Lengths(turns=7, opening=200, observation=80, request=40, digest=100)


# ---- the arithmetic


def settings(**changes) -> TrialSettings:
    return TrialSettings(sampling=Sampling(max_tokens=1000), reflection_tokens=500, **changes)


def test_the_longest_sequence_is_the_sum_of_its_parts():
    """Measured lengths count 1.25 times. Memory: two digests of 125, two reflections of 500, 32 words for each, and 32
    around: 1,346. All: 250 + 1,346 + 7 x (100 + 1,000) + 50 + 500 = 9,846."""
    need = needed(settings(memory="both"), LENGTHS)
    assert need == Need(opening=250, memory=1346, turns=7, observation=100, reply=1000, request=50, reflection=500)
    assert need.total == 9846
    assert str(need) == (
        "rules and first observation 250 + memory 1,346 + 7 turns x (observation 100 + reply 1,000) "
        "+ reflection 50 + 500 = 9,846 tokens"
    )


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({"memory": "none"}, 250 + 7 * 1100),
        ({"memory": "both", "episodes": 1}, 250 + 7 * 1100),
        ({"memory": "history"}, 250 + (2 * (125 + 32) + 32) + 7 * 1100),
        ({"memory": "both", "memory_tokens": 300}, 250 + (300 + 32) + 7 * 1100 + 550),
        ({"memory": "none", "window": 2}, 250 + 2 * 1100),
        (
            {"memory": "reflection", "episodes": 8},
            250 + (5 * 500 + 7 * 32 + 32) + 7 * 1100 + 550,
        ),
    ],
)
def test_settings_shorten_the_longest_sequence(changes, total):
    assert needed(settings(**changes), LENGTHS).total == total


def test_without_a_digest_the_transcript_itself_is_remembered_within_its_budget():
    """An episode of 250 + 7 x 1,100 tokens is more than the budget of 4,096."""
    assert needed(settings(memory="history"), replace(LENGTHS, digest=None)).memory == 4096 + 32


def test_a_context_is_a_round_number_within_the_model():
    need = needed(settings(memory="both"), LENGTHS)
    assert chosen_context(need, limit=40_960) == 9984  # 39 x 256
    assert chosen_context(need, limit=8192) == 8192
    assert chosen_context(replace(need, turns=0, memory=0), limit=8192) == 1024


def test_slots_follow_from_context_and_memory():
    """Qwen3-4B: 147,456 bytes a token. 12,544 tokens of them are 1.85 GB; 35 % of 125 GB hold 23, two of them spare."""
    token = token_bytes(shaped("qwen3-4b").config, torch.bfloat16)
    assert token == 36 * 2 * 8 * 128 * 2
    assert slots_that_fit(128, 12_544, token, free=125 * 10**9) == 21
    assert slots_that_fit(8, 12_544, token, free=125 * 10**9) == 8
    assert slots_that_fit(128, 12_544, token, free=125 * 10**9, reserved=115 * 10**9) == 3  # 10 GB hold 5
    with pytest.raises(MemoryFull, match=r"3 slots x 12,544 tokens x 147,456 bytes = 5\.2 GiB, and 4\.7 GiB are left"):
        slots_that_fit(128, 12_544, token, free=125 * 10**9, reserved=120 * 10**9)


def test_models_that_share_an_engine_have_a_sequence_each_and_one_more_for_what_their_prompts_share():
    """Of the 23 sequences of `test_slots_follow_from_context_and_memory` one is idle; four models share one each."""
    token = token_bytes(shaped("qwen3-4b").config, torch.bfloat16)
    assert slots_that_fit(512, 12_544, token, free=125 * 10**9, models=4) == 18
    with pytest.raises(
        MemoryFull, match=r"for each of 12 models does not fit .* 25 slots x .* 43\.1 GiB, and 40\.7 GiB .*agents"
    ):
        slots_that_fit(1536, 12_544, token, free=125 * 10**9, models=12)


# ---- a run keeps to its context


def quick(**sections):
    config = small(run=replace(small().run, updates=1), **sections)
    return replace(config, warmstart=replace(config.warmstart, steps=2))


def engine_context(run, **options) -> int:
    return player_from(str(run), **options).engine.context


def test_no_memory_is_kept_for_rows_longer_than_the_models_limit():
    model = load("nano").model  # its limit is 1,024
    short, limit, longer = (
        bytes_to_come(model, quick(engine=EngineConfig(context=context))) for context in (512, 1024, 100_000)
    )
    assert short < limit == longer


def test_a_run_is_evaluated_in_the_context_it_was_trained_in(tmp_path):
    run = train(quick(engine=EngineConfig(slots=16, context=96)), tmp_path / "run")
    assert engine_context(run) == 96
    assert engine_context(run, context=128) == 128
    result = mulligan.evaluate("bandit", run, tasks=2, room=False, controls=())
    assert result.cut.replies


def test_a_context_that_was_left_open_is_a_number_from_the_start(tmp_path):
    run = train(quick(), tmp_path / "run")
    config = from_run(RunFolder.open(run))
    assert config.engine.context == 1024
    assert engine_context(run) == 1024


def test_arms_that_share_a_warm_start_have_its_context(tmp_path):
    """RL without memory is evaluated with the notes that its warm start taught, beside arms trained on them."""
    changes = {"warmstart.memory": "history,reflection", "trial.reflection_tokens": "200"}
    arms = [Arm("meta-RL", {"trial.memory": "reflection"}), Arm("RL", {"trial.episodes": "1", "trial.memory": "none"})]
    work = plan_work(Sweep(arms, preset="cpu", tasks=4, settings=changes), tmp_path)
    renderer = load("nano").renderer
    needs = {each.name: longest_sequence(resolve(each.preset, None, each.settings), renderer)[1] for each in work}
    assert [*needs] == ["warm start", "meta-RL", "RL"]
    assert len(set(needs.values())) == 1


def test_an_export_keeps_the_context(tmp_path, capsys):
    run = train(quick(engine=EngineConfig(slots=16, context=96)), tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run), str(tmp_path / "model")])
    assert not ended.value.code
    assert "96 tokens" in capsys.readouterr().out
    exported = f"hf:{tmp_path / 'model'}"
    assert engine_context(exported, plays=Plays("bandit", {}, TrialSettings())) == 96


def test_an_untrained_model_has_the_context_that_its_trials_need():
    need = TrialSettings(style="bare", memory="none", sampling=Sampling(max_tokens=1500))
    assert engine_context("nano:context=4096", plays=Plays("bandit", {}, need)) == 1536  # one turn and a few words
    assert engine_context("nano:context=4096") == 4096


def test_replies_that_no_context_holds_are_refused_with_the_arithmetic(tmp_path):
    config = quick(
        task=TaskConfig(env="kuhn"),
        trial=trial(memory="both", max_tokens=512, reflection_tokens=64),
    )
    with pytest.raises(UsageError, match=r"limit is 1,024 tokens: .* 4 turns x \(observation \d+ \+ reply 512\)"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    asked, warning = fixed_context(replace(config, engine=EngineConfig(slots=16, context=1024)), load(TINY))
    assert asked.engine.context == 1024
    assert "1,024" in warning


def test_cut_replies_are_counted_and_warned_of_once(tmp_path):
    config = quick(trial=trial(memory="reflection", style="bare", max_tokens=3, reflection_tokens=3))
    untrained = replace(config, warmstart=replace(config.warmstart, steps=0), run=replace(config.run, updates=2))
    first, second = metrics(train(untrained, tmp_path / "run"))
    assert first["replies/cut"] > 0.9
    assert "max_tokens" in first["warning"]
    assert second["replies/cut"] > 0.9
    assert "cut" not in second.get("warning", "")


# ---- presets

MODELS = {
    "hf:Qwen/Qwen3-4B": "qwen3-4b",
    "hf:meta-llama/Llama-3.1-8B-Instruct": "llama3.1-8b",
    "smollm2": "smollm2",
}
GIBIBYTES = {"qwen3-4b": 139, "llama3.1-8b": 139, "smollm2": 40}
"""The memory that a preset's header or documentation counts on."""


@lru_cache
def shaped(name: str, lora: int = 0) -> torch.nn.Module:
    """A model's sizes without its weights."""
    meta = torch.device("meta")
    with meta:  # for the adapter too
        return random_model(SHAPES[name], Way("", lora=lora), meta)


def cases() -> list[tuple[str, str]]:
    """Every preset with its own environment and with each that it has a case for."""
    found = []
    for name in presets():
        layer = _tree(name)
        envs = [resolve(name).task.env, *layer.get("for", {})]
        if "env" not in layer.get("task", {}) and "base" in layer:  # it is for the same environments as its base
            envs += _tree(layer["base"]).get("for", {})
        found += [(name, env) for env in dict.fromkeys(envs)]
    return found


def _tree(preset: str) -> dict:
    return tomllib.loads((resources.files("mulligan.training.presets") / f"{preset}.toml").read_text("utf-8"))


@pytest.mark.parametrize(("name", "env"), cases())
def test_every_preset_holds_its_own_replies(name, env):
    config = resolve(name, None, {"task.env": env})
    # Nano's vocabulary is small: it counts more tokens than the preset's own tokenizer would.
    _, need = longest_sequence(config, Renderer(nano_tokenizer()))
    if config.model.name.startswith("nano"):
        assert need.total <= 1024
        return
    shape = MODELS[config.model.name]
    model = shaped(shape, config.model.lora_rank)
    assert need.total <= model.config.max_position_embeddings
    context = config.engine.context or chosen_context(need, model.config.max_position_embeddings)
    copies = sum(each.numel() for each in model.parameters() if each.requires_grad)
    weights = sum(each.numel() * each.dtype.itemsize for each in model.parameters())
    free = GIBIBYTES[shape] * 2**30 - weights - 4 * copies
    reserved = bytes_to_come(model, replace(config, engine=replace(config.engine, context=context)))
    assert slots_that_fit(config.engine.slots, context, token_bytes(model.config, torch.bfloat16), free, reserved) >= 1


def test_an_update_of_a_papers_preset_runs_at_full_length(monkeypatch):
    from mulligan.app.bench import step

    short = {"trial.max_tokens": "12", "trial.reflection_tokens": "9"}
    monkeypatch.setattr(step, "_FULL_LENGTH", {**step._FULL_LENGTH, **short})
    report = step.at_full_length("nano", "mage", tasks=1, group=2, episodes=2)
    (found,) = report.rows
    # Two trials of two episodes, with a reflection between; of 3 turns or fewer each.
    assert found["trials"] == 2
    assert found["replies"] >= 2 * (2 + 1)
    assert found["cut"] == "100 %"
    assert found["longest row"] <= found["context"]
    assert "2 episodes instead of 3" in report.title


def test_the_engine_of_a_tiny_model_has_its_slots():
    assert player_from(TINY, slots=7).engine.slots == 7
