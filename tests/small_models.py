"""Small models of the families that the engine for GPUs knows, and their greedy replies, for its tests."""

from __future__ import annotations

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = {
    "hidden_size": 96,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": 128,
}


def a_model(family: str, **more):
    """A small model whose replies depend on everything: norms and biases are not left at 1 and 0."""
    import transformers

    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}[family]
    if family in ("qwen3", "mistral"):
        more = {"head_dim": 16, **more}
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **more})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            else:
                torch.nn.init.normal_(parameter, std=0.2)
    return model.to(DEVICE)


FAMILIES = {
    "llama": {},
    "smollm2": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144, "tie_word_embeddings": True},
    "llama with scaled rotations": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": None},
}


def family_model(name: str):
    return a_model(name.partition(" ")[0].replace("smollm2", "llama"), **FAMILIES[name])


def greedy_of(model, ids: list[int], count: int) -> list[int]:
    found = list(ids)
    with torch.no_grad():
        for _ in range(count):
            found.append(int(model(torch.tensor([found], device=DEVICE)).logits[0, -1].float().argmax()))
    return found[len(ids) :]
