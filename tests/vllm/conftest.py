"""A tiny Llama with random weights, in the form of transformers, for vLLM and for the engines it is compared with."""

import pytest


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    """A folder that transformers, vLLM and `mulligan` read. Heads of 32: vLLM takes none of fewer on a CPU."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from mulligan.models.nano import nano_tokenizer, seeded_randomness

    tokenizer = nano_tokenizer(512)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with seeded_randomness(0):
        model = LlamaForCausalLM(config)
        for weight in model.parameters():  # replies are to depend on what was said, and so on each position
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.15)
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
