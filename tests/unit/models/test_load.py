"""Loading and saving: what is written must be an ordinary model folder, and what is read the very same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from mulligan.errors import ParameterError, UnknownName, UsageError
from mulligan.models.load import LoraSettings, load, save

LORA = LoraSettings(rank=4)


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


@pytest.mark.parametrize("lora", [None, LORA])
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
    assert loaded.spec == "nano:hidden=64,layers=1,context=128"


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


def test_template_options_reach_the_renderer(tmp_path):
    save(load("nano"), tmp_path)
    file = tmp_path / "chat_template.jinja"
    file.write_text(file.read_text() + "{{ hint | default('') }}")
    user = {"role": "user", "content": "b3"}
    plain, hinted = load(str(tmp_path)), load(str(tmp_path), template={"hint": "a1"})
    assert plain.renderer.opening([user]) + plain.tokenizer("a1").input_ids == hinted.renderer.opening([user])


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
        ("nanno", UnknownName, "did you mean 'nano'"),
        ("nano:layer=3", UnknownName, "'layers'"),
        ("nano:hidden=wide", ParameterError, "nano:hidden=128"),
        ("hf:/no/such/folder", UsageError, "no folder"),
        ("no/such/folder", UsageError, "hf:no/such/folder"),
        ("hf:", UsageError, "no folder"),
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
    assert "cannot be loaded" in refused(str(tmp_path))


def test_a_model_that_brings_code_is_refused_and_its_code_not_run(tmp_path):
    save(load("nano"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "its_own",
        "auto_map": {"AutoConfig": "its_own.Config", "AutoModelForCausalLM": "its_own.M"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "its_own.py").write_text("raise SystemExit('ran')")
    assert "cannot be loaded" in refused(str(tmp_path))


def test_options_that_cannot_be_are_refused(tmp_path):
    assert "float16" in refused("nano", UnknownName, dtype="float16")
    assert "rank=0" in refused("nano", ParameterError, lora=LoraSettings(rank=0))
    assert "sofa" in refused("nano", UnknownName, device="sofa")
    save(trained_adapter(), tmp_path)
    assert "already has an adapter" in refused(str(tmp_path), lora=LORA)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_told():
    assert "use 'cpu'" in refused("nano", device="cuda")
    assert load("nano", device="auto").model.device.type == "cpu"
