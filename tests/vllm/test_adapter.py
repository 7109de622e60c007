"""LoRA through vLLM: the base once, and the adapter by a new name whenever it has changed."""

from __future__ import annotations

import pytest

from conversations import ask, logprobs_by_transformers, prompts_of
from mulligan.engine.choose import make_engine
from mulligan.errors import DeviceLost
from mulligan.models.load import load
from mulligan.models.nano import seeded_randomness

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]


def test_an_adapter_is_sampled_from_as_it_is_now_and_a_dead_process_is_told(tiny_llama):
    import torch

    trained = load(f"hf:{tiny_llama}", lora=4).model
    twin = load(f"hf:{tiny_llama}", lora=4).model
    engine = make_engine(trained, slots=8, kind="vllm")
    seen = set()
    try:
        for seed in range(4):  # the first adapter is the one that changes nothing; two are held at a time
            if seed:
                with torch.no_grad(), seeded_randomness(seed):
                    for name, weight in trained.named_parameters():
                        if weight.requires_grad:
                            weight.copy_(torch.randn_like(weight) * 0.1)
                            dict(twin.named_parameters())[name].copy_(weight)
            for before, reply in ask(engine, prompts_of(4), turns=2):
                expected = logprobs_by_transformers(twin, before, reply.ids)
                assert reply.logprobs == pytest.approx(expected, abs=1e-4)
            seen.add(reply.logprobs[0])
            names = sorted(path.name for path in engine.folder.glob("adapter-*"))
            assert len(names) == min(2, seed + 1)
        for process in engine.llm.engine_core.resources.engine_manager.processes:
            process.kill()
        with pytest.raises(DeviceLost, match=r"^vLLM's process has ended; continue with --resume"):
            ask(engine, prompts_of(2))
    finally:
        engine.close()
    assert len(seen) == 4, "each adapter gives other numbers"
    assert not engine.folder.exists(), "nothing is left of it"
