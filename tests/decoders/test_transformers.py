"""Folders that transformers wrote, of small random models: logits in float64 and 256 tokens are transformers'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary.generate import Generator

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="compared where it is installed")

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    "rope_theta": 1000.0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0 + k / 8 for k in range(8)], "long_factor": [4.0] * 8}
CASES = {
    "llama": ("Llama", {}),
    "linear": ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "dynamic": ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    "llama3": ("Llama", {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 64}}),
    "yarn": ("Qwen3", {"rope_scaling": YARN}),
    "yarn with scales": ("Llama", {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "beta_fast": 20.0}}),
    "mistral": ("Mistral", {"sliding_window": 23}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 29, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "phi3": ("Phi3", {"sliding_window": 31}),
    "phi3 in part": ("Phi3", {"partial_rotary_factor": 0.75, "sliding_window": None}),
    "longrope": ("Phi3", {"rope_scaling": LONG, "original_max_position_embeddings": 384, "sliding_window": None}),
    "gemma2": ("Gemma2", {"sliding_window": 19, "query_pre_attn_scalar": 24, "tie_word_embeddings": True}),
    "gemma3": ("Gemma3Text", {"sliding_window": 19, "query_pre_attn_scalar": 24, "tie_word_embeddings": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_logits_and_tokens_are_transformers(name: str, tmp_path: Path) -> None:
    family, changes = CASES[name]
    torch.manual_seed(7)
    config = getattr(transformers, f"{family}Config")(**(SIZES | changes), attn_implementation="eager")
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    model.save_pretrained(tmp_path)
    model = model.double()
    tokens = [int(t) for t in np.random.default_rng(3).integers(2, 131, 40)]
    generator = Generator(tmp_path, capacity=320, chunk=16)
    with torch.no_grad():
        truth = model(torch.tensor([tokens])).logits[0, -1].numpy()
        np.testing.assert_allclose(generator.feed(tokens), truth, atol=1e-5 * np.abs(truth).max())
        answer = list(generator.generate(tokens, 256))
        rows = model(torch.tensor([tokens + answer])).logits[0, len(tokens) - 1 : -1].numpy()
    best = rows.max(1)
    chosen = rows[np.arange(len(answer)), answer]
    assert len(answer) == 256 and (chosen >= best - 1e-5 * np.abs(rows).max()).all()
