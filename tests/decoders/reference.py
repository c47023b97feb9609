"""Decoders in numpy and float64, the families that differ from Llama by flags; and folders of random weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text")
Weights = dict[str, np.ndarray]
EXACT = {"low_bit.activation_bits": 24}  # rows that meet packed weights are as exact as float32


@dataclass(frozen=True)
class Shape:
    """Sizes of a small decoder."""

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    groups: int = 2
    size: int = 16
    inner: int = 96
    words: int = 131
    window: int = 7
    scalar: int = 20  # 1 / scale², of Gemma


def config_of(family: str, shape: Shape) -> dict[str, Any]:
    """config.json."""
    config: dict[str, Any] = {
        "model_type": family,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.groups,
        "head_dim": shape.size,
        "intermediate_size": shape.inner,
        "vocab_size": shape.words,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000.0,
        "tie_word_embeddings": family == "qwen2" or "gemma" in family,
    }
    if family not in ("llama", "qwen2", "qwen3"):
        config["sliding_window"] = shape.window
    if "gemma" in family:
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": shape.scalar,
            "rope_local_base_freq": 50.0,
        }
        config["sliding_window_pattern"] = 2
    if family == "gemma2":
        config |= {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    return config


def weights_of(family: str, shape: Shape, seed: int = 0) -> Weights:
    """Random weights by the names of the family."""
    rng, found = np.random.default_rng(seed), Weights()

    def linear(name: str, units: int, inner: int, bias: bool = False) -> None:
        found[f"{name}.weight"] = (rng.standard_normal((units, inner)) * inner**-0.5).astype(np.float32)
        if bias:
            found[f"{name}.bias"] = (rng.standard_normal(units) * 0.1).astype(np.float32)

    def norm(name: str, size: int) -> None:
        middle = 0.0 if "gemma" in family else 1.0
        found[f"{name}.weight"] = (middle + rng.standard_normal(size) * 0.2).astype(np.float32)

    linear("model.embed_tokens", shape.words, shape.hidden)
    q, k = shape.heads * shape.size, shape.groups * shape.size
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        if family == "phi3":
            linear(f"{at}.self_attn.qkv_proj", q + 2 * k, shape.hidden)
            linear(f"{at}.mlp.gate_up_proj", 2 * shape.inner, shape.hidden)
        else:
            for name, units in (("q", q), ("k", k), ("v", k)):
                linear(f"{at}.self_attn.{name}_proj", units, shape.hidden, family == "qwen2")
            for name in ("gate", "up"):
                linear(f"{at}.mlp.{name}_proj", shape.inner, shape.hidden)
        linear(f"{at}.self_attn.o_proj", shape.hidden, q)
        linear(f"{at}.mlp.down_proj", shape.hidden, shape.inner)
        names = ["input_layernorm", "post_attention_layernorm"]
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if "gemma" in family else []
        for name in names:
            norm(f"{at}.{name}", shape.hidden)
        if family in ("qwen3", "gemma3_text"):
            norm(f"{at}.self_attn.q_norm", shape.size)
            norm(f"{at}.self_attn.k_norm", shape.size)
    norm("model.norm", shape.hidden)
    if not config_of(family, shape)["tie_word_embeddings"]:
        linear("lm_head", shape.words, shape.hidden)
    return found


def write_folder(folder: Path, family: str, shape: Shape, weights: Weights) -> None:
    """config.json, and the weights in two safetensors files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(family, shape)))
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2])):
        header, place = {}, 0
        for name in part:
            array = weights[name]
            kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[array.dtype.name]
            header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [place, place + array.nbytes]}
            place += array.nbytes
        text = json.dumps(header).encode()
        data = b"".join(weights[name].tobytes() for name in part)
        (folder / f"model-{number}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def logits(family: str, shape: Shape, weights: Weights, tokens: list[int]) -> np.ndarray:
    """(tokens, words) in float64."""
    return _Network(family, shape, weights).run(np.asarray(tokens))


class _Network:
    def __init__(self, family: str, shape: Shape, weights: Weights) -> None:
        self.family, self.shape, self.config = family, shape, config_of(family, shape)
        self.w = {name: array.astype(np.float64) for name, array in weights.items()}
        self.is_gemma = "gemma" in family

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0.0)

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = self.w[f"{name}.weight"] + (1.0 if self.is_gemma else 0.0)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

    def run(self, tokens: np.ndarray) -> np.ndarray:
        x = self.w["model.embed_tokens.weight"][tokens]
        if self.is_gemma:
            x = x * np.float64(np.float32(np.sqrt(self.shape.hidden)))
        for layer in range(self.shape.layers):
            at = f"model.layers.{layer}"
            y = self.attention(layer, self.norm(x, f"{at}.input_layernorm"))
            if self.is_gemma:
                x = x + self.norm(y, f"{at}.post_attention_layernorm")
                y = self.mlp(at, self.norm(x, f"{at}.pre_feedforward_layernorm"))
                x = x + self.norm(y, f"{at}.post_feedforward_layernorm")
            else:
                x = x + y
                x = x + self.mlp(at, self.norm(x, f"{at}.post_attention_layernorm"))
        x = self.norm(x, "model.norm")
        y = self.linear(x, "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head")
        cap = self.config.get("final_logit_softcapping")
        return cap * np.tanh(y / cap) if cap else y

    def mlp(self, at: str, x: np.ndarray) -> np.ndarray:
        if self.family == "phi3":
            gate, up = np.split(self.linear(x, f"{at}.mlp.gate_up_proj"), 2, axis=-1)
        else:
            gate, up = self.linear(x, f"{at}.mlp.gate_proj"), self.linear(x, f"{at}.mlp.up_proj")
        if self.is_gemma:
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * up, f"{at}.mlp.down_proj")

    def attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        s, at = self.shape, f"model.layers.{layer}.self_attn"
        if self.family == "phi3":
            sizes = [s.heads * s.size, (s.heads + s.groups) * s.size]
            q, k, v = np.split(self.linear(x, f"{at}.qkv_proj"), sizes, axis=-1)
        else:
            q, k, v = (self.linear(x, f"{at}.{n}_proj") for n in "qkv")
        q, k, v = (p.reshape(len(x), -1, s.size) for p in (q, k, v))
        if self.family in ("qwen3", "gemma3_text"):
            q, k = self.norm(q, f"{at}.q_norm"), self.norm(k, f"{at}.k_norm")
        is_local = self.family in ("mistral", "phi3") or (self.is_gemma and layer % 2 == 0)
        base = 50.0 if self.family == "gemma3_text" and is_local else 1000.0
        q, k = self.turned(q, base), self.turned(k, base)
        k, v = (np.repeat(p, s.heads // s.groups, axis=1) for p in (k, v))
        scale = s.scalar**-0.5 if self.is_gemma else s.size**-0.5
        scores = np.einsum("qhd,khd->hqk", q, k) * scale
        cap = self.config.get("attn_logit_softcapping")
        scores = cap * np.tanh(scores / cap) if cap else scores
        back = np.arange(len(x))[:, None] - np.arange(len(x))[None]
        seen = (back >= 0) & ((back < s.window) if is_local else True)
        scores = np.where(seen, scores, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hqk,khd->qhd", powers / powers.sum(-1, keepdims=True), v)
        return self.linear(y.reshape(len(x), -1), f"{at}.o_proj")

    def turned(self, x: np.ndarray, base: float) -> np.ndarray:
        half = x.shape[-1] // 2
        angles = np.arange(len(x))[:, None] / base ** (np.arange(half) / half)[None]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], -1)
