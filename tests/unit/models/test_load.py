"""Loading and saving: what is written must be an ordinary model folder, and what is read the very same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging

from mulligan.errors import MemoryFull, ParameterError, UnknownName, UsageError
from mulligan.models.load import load, old_name_allowed, save
from mulligan.models.memory import free_memory, leave_room

LORA = 4
TINY = {"vocab_size": 1600, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA_LIKE = TINY | {"intermediate_size": 32, "num_key_value_heads": 1}


@pytest.fixture(autouse=True)
def no_progress_bars():
    logging.disable_progress_bar()


def logits(model, seed: int = 0) -> torch.Tensor:
    numbers = torch.randint(0, 1500, (2, 17), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return model(input_ids=numbers).logits


def trained_adapter():
    """A nano model whose adapter is no longer the zero it starts as."""
    loaded = load("nano", seed=3, lora=LORA)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return loaded


def weights(loaded) -> dict[str, torch.Tensor]:
    return dict(loaded.model.state_dict())


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize("lora", [0, LORA])
def test_the_seed_decides_new_weights_and_nothing_else_is_touched(lora):
    before = torch.get_rng_state()
    first, again, other = (load("nano", seed=seed, lora=lora) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert equal(weights(first), weights(again))
    assert not equal(weights(first), weights(other))


def test_sizes_stand_in_the_name():
    loaded = load("nano:hidden=64,layers=1,context=128")
    config = loaded.model.config
    assert (config.hidden_size, config.num_hidden_layers, config.max_position_embeddings) == (64, 1, 128)
    assert loaded.tokenizer.model_max_length == 128


def test_precision_is_that_of_the_hardware_unless_told():
    assert load("nano").model.dtype == torch.float32  # auto, on CPU
    assert load("nano", dtype="bfloat16").model.dtype == torch.bfloat16


def test_a_fresh_adapter_changes_nothing_and_alone_is_trained():
    plain, adapted = load("nano", seed=5), load("nano", seed=5, lora=LORA)
    assert torch.equal(logits(plain.model), logits(adapted.model))
    trained = [name for name, weight in adapted.model.named_parameters() if weight.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    # All seven linear layers of both blocks, an A and a B each, and not the head: 2 · 7 · 2 = 28.
    assert len(trained) == 28
    assert all(weight.requires_grad for weight in plain.model.parameters())


def test_gradient_checkpointing_gives_the_same_gradients():
    found = []
    for checkpointing in (False, True):
        loaded = load("nano", lora=LORA, gradient_checkpointing=checkpointing)
        loaded.model.train()
        numbers = torch.arange(2, 40).unsqueeze(0)
        loaded.model(input_ids=numbers, labels=numbers).loss.backward()
        found.append({name: weight.grad for name, weight in loaded.model.named_parameters() if weight.requires_grad})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-5, atol=1e-7)


# -------------------------------------------------------------------------------------------------------------- saving


def test_a_saved_model_is_an_ordinary_one(tmp_path):
    loaded = load("nano", seed=4)
    save(loaded, tmp_path / "model")
    assert sorted(file.suffix for file in (tmp_path / "model").glob("*model*")) == [".safetensors"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert torch.equal(logits(model), logits(loaded.model))
    text = "safe a1 b1\nmine c2 <action>b3</action>"
    assert tokenizer(text).input_ids == loaded.tokenizer(text).input_ids
    assert tokenizer.chat_template == loaded.tokenizer.chat_template
    for spec in (str(tmp_path / "model"), f"hf:{tmp_path / 'model'}"):
        assert equal(weights(load(spec)), weights(loaded))


def test_an_adapter_and_its_base_come_back_even_from_another_place(tmp_path):
    loaded = trained_adapter()
    save(loaded, tmp_path / "adapter")
    with old_name_allowed():
        plain = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"))
    assert torch.equal(logits(plain), logits(loaded.model))
    (tmp_path / "adapter").rename(tmp_path / "moved")
    again = load(str(tmp_path / "moved"))
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert any(weight.requires_grad for weight in again.model.parameters())
    save(again, tmp_path / "twice")
    assert torch.equal(logits(load(str(tmp_path / "twice")).model), logits(loaded.model))


def test_an_adapter_of_a_model_with_a_folder_is_saved_alone(tmp_path):
    save(load("nano", seed=6), tmp_path / "model")
    loaded = load(f"hf:{tmp_path / 'model'}", lora=LORA)
    save(loaded, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "base").exists()
    noted = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert noted["base_model_name_or_path"] == str(tmp_path / "model")
    assert torch.equal(logits(load(str(tmp_path / "adapter")).model), logits(loaded.model))


def test_an_adapter_of_a_folder_is_found_from_any_other(tmp_path, monkeypatch):
    save(load("nano", seed=6), tmp_path / "here" / "model")
    monkeypatch.chdir(tmp_path / "here")
    save(load("hf:model", lora=LORA), "../adapter")
    monkeypatch.chdir(tmp_path)
    assert torch.equal(logits(load("./adapter").model), logits(load("here/model").model))


def test_weights_in_several_files_are_read(tmp_path):
    loaded = load("nano", seed=7)
    loaded.model.save_pretrained(tmp_path, max_shard_size="400KB")
    loaded.tokenizer.save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert equal(weights(load(str(tmp_path))), weights(loaded))
    shards[-1].unlink()
    assert shards[-1].name in refused(str(tmp_path))
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert str(tmp_path) in refused(str(tmp_path))


def test_a_merged_model_is_whole_and_says_the_same(tmp_path):
    loaded = trained_adapter()
    before = {name: weight.clone() for name, weight in weights(loaded).items()}
    save(loaded, tmp_path)  # the adapter alone, in the same place, must not shine through
    save(loaded, tmp_path, merge=True)
    assert not (tmp_path / "adapter_config.json").exists()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (logits(loaded.model) - logits(load("nano", seed=3).model)).abs().max() > 0.01
    torch.testing.assert_close(logits(merged), logits(loaded.model), rtol=0, atol=1e-5)
    assert equal(weights(loaded), before)  # saving left the live model as it was


# -------------------------------------------------------------------------------------------------------------- errors


def refused(spec: str, kind: type[UsageError] = UsageError, **options) -> str:
    with pytest.raises(kind) as found:
        load(spec, **options)
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize(
    ("spec", "kind", "told"),
    [
        ("nanno", UnknownName, "'nano'"),
        ("nano:layer=3", UnknownName, "'layers'"),
        ("nano:hidden=wide", ParameterError, "nano:hidden=128"),
        ("hf:/no/such/folder", UsageError, "/no/such/folder"),
        ("no/such/folder", UsageError, "hf:no/such/folder"),
        ("hf:", UsageError, "hf:"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(spec, kind, told):
    assert told in refused(spec, kind)


def test_an_unreachable_hub_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "hf:nobody/nothing-of-that-name" in refused("hf:nobody/nothing-of-that-name")


def test_weights_must_be_safetensors(tmp_path):
    loaded = load("nano")
    save(loaded, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(loaded.model.state_dict(), tmp_path / "pytorch_model.bin")
    assert "safetensors" in refused(str(tmp_path))


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    assert "config.json" in refused(str(tmp_path))
    Path(tmp_path / "config.json").write_text("{}")
    Path(tmp_path / "model.safetensors").write_bytes(b"")
    assert str(tmp_path) in refused(str(tmp_path))


def test_a_model_that_brings_code_is_refused_and_its_code_not_run(tmp_path):
    save(load("nano"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "its_own",
        "auto_map": {"AutoConfig": "its_own.Config", "AutoModelForCausalLM": "its_own.M"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "its_own.py").write_text("raise SystemExit('ran')")
    assert str(tmp_path) in refused(str(tmp_path))


def test_options_that_cannot_be_are_refused(tmp_path):
    assert "sofa" in refused("nano", UnknownName, device="sofa")
    save(trained_adapter(), tmp_path)
    assert "adapter" in refused(str(tmp_path), lora=LORA)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_told():
    assert "use 'cpu'" in refused("nano", device="cuda")
    assert load("nano", device="auto").model.device.type == "cpu"


def test_a_model_without_a_chat_template_is_refused_before_its_weights_are_read(tmp_path):
    save(load("nano"), tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "chat template" in refused(str(tmp_path))


def folder_with(model, folder: Path) -> str:
    model.save_pretrained(folder)
    load("nano").tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: MistralForCausalLM(MistralConfig(**LLAMA_LIKE, sliding_window=8)), "(mistral) has layers of sliding"),
        (
            lambda: Qwen3ForCausalLM(
                Qwen3Config(**LLAMA_LIKE, head_dim=16, use_sliding_window=True, sliding_window=8, max_window_layers=1)
            ),
            "(qwen3) has layers of sliding_attention",
        ),
        (
            lambda: GPTNeoForCausalLM(
                GPTNeoConfig(
                    vocab_size=1600, hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global"], 2]]
                )
            ),
            "gpt_neo",
        ),
    ],
    ids=["sliding window", "sliding layers", "no interface"],
)
def test_an_attention_that_would_be_wrong_is_refused(tmp_path, model, told):
    message = refused(folder_with(model(), tmp_path))
    assert told in message


def test_full_attention_is_taken_whatever_the_family(tmp_path):
    config = Qwen3Config(**LLAMA_LIKE, head_dim=16, use_sliding_window=False, sliding_window=8)
    model = Qwen3ForCausalLM(config)
    assert torch.equal(logits(load(folder_with(model, tmp_path)).model), logits(model.eval()))
    plain = MistralForCausalLM(MistralConfig(**LLAMA_LIKE, sliding_window=None))
    assert torch.equal(logits(load(folder_with(plain, tmp_path / "mistral")).model), logits(plain.eval()))


def test_a_model_larger_than_memory_is_refused_with_both_numbers(tmp_path, monkeypatch):
    loaded = load("nano:hidden=256,layers=4")
    save(loaded, tmp_path)
    count = sum(weight.numel() for weight in loaded.model.parameters())
    # In bfloat16 it takes 2 bytes a weight, and that is free, to the byte; in float32 it takes 4.
    monkeypatch.setattr("mulligan.models.memory.free_memory", lambda device: 2 * count)
    assert load(str(tmp_path), dtype="bfloat16").model.dtype == torch.bfloat16
    message = refused(str(tmp_path), dtype="float32")
    assert f"{4 * count / 2**30:.3g} GiB as float32" in message
    assert f"{2 * count / 2**30:.3g} GiB free" in message
    assert "dtype bfloat16" in message
    monkeypatch.setattr("mulligan.models.memory.free_memory", lambda device: 2 * count - 1)
    refused(str(tmp_path), MemoryFull, dtype="bfloat16")


def test_the_memory_of_this_machine_is_known():
    free = free_memory(torch.device("cpu"))
    assert free is not None
    assert 2**26 < free < 2**50  # 64 MiB, which this test already takes, and a million GiB


@pytest.mark.parametrize(("free", "given_back"), [(10, 1), (90, 0)])
def test_memory_is_not_kept_for_later_where_others_have_too_little(free, given_back, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(True))
    leave_room(torch.device("cuda"))
    assert len(calls) == given_back


def cut(content: bytes) -> bytes:
    return content[:-10]


def pointer(_: bytes) -> bytes:
    """What a clone without Git LFS leaves instead of the weights."""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"


@pytest.mark.parametrize("damage", [cut, pointer, lambda _: b""], ids=["cut", "pointer", "empty"])
def test_damaged_weights_are_told_in_one_line(tmp_path, damage):
    save(load("nano"), tmp_path / "model")
    save(load(f"hf:{tmp_path / 'model'}", lora=LORA), tmp_path / "adapter")
    for file in (tmp_path / "adapter" / "adapter_model.safetensors", tmp_path / "model" / "model.safetensors"):
        file.write_bytes(damage(file.read_bytes()))
        assert str(file) in refused(str(file.parent))


def test_weights_that_are_missing_are_not_drawn_at_random(tmp_path, capfd):
    loaded = load("nano")
    save(loaded, tmp_path)
    named = {name: value for name, value in loaded.model.state_dict().items() if "layers.1.mlp" not in name}
    del named["lm_head.weight"]  # tied: the embeddings stand for it
    save_file(named, tmp_path / "model.safetensors", metadata={"format": "pt"})
    message = refused(str(tmp_path))
    assert "3 weights" in message
    assert "model.layers.1.mlp.down_proj.weight" in message
    assert capfd.readouterr().err == ""


def test_weights_of_another_shape_than_the_configuration_says_are_refused(tmp_path):
    save(load("nano"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 8}))
    # Three matrices of the feed-forward part in each of two layers.
    assert "6 weights" in refused(str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_other_damaged_files_are_told_in_one_line(tmp_path, name):
    save(load("nano"), tmp_path)
    file = tmp_path / name
    file.write_text(file.read_text()[:-20])
    assert str(tmp_path) in refused(str(tmp_path))


def test_an_adapter_that_cannot_find_its_model_says_so(tmp_path):
    save(load("nano"), tmp_path / "model")
    save(load(str(tmp_path / "model"), lora=LORA), tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    noted = json.loads(file.read_text())
    file.write_text(json.dumps(noted | {"base_model_name_or_path": str(tmp_path / "gone")}))
    assert "gone" in refused(str(tmp_path / "adapter"))
    file.write_text(json.dumps(noted | {"base_model_name_or_path": None}))
    assert "base_model_name_or_path" in refused(str(tmp_path / "adapter"))
    file.write_text("{")
    assert "adapter_config.json" in refused(str(tmp_path / "adapter"))
