"""Model families, one class each: how a layer of it is computed, to be read from top to bottom.

In: a configuration and tensors as Hugging Face names them. Out: expressions of Relay. Invariant: each class says what
its family has that `Llama` has not; numbers agree with the published implementations to float32's rounding.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import picked_rows
from armillary.errors import ModelError, UnsupportedError
from armillary.generate import blocks as b
from armillary.generate.safetensors import Json
from armillary.relay.expr import Expr


class Source(Protocol):
    """Where weights come from, by the names of Hugging Face."""

    def __contains__(self, name: str) -> bool: ...

    def float32(self, name: str) -> Array:
        """A tensor in float32."""

    def matrix(self, name: str, bits: int) -> b.Weight | b.Packed:
        """A weight (units, inner) as it is stored, or packed in so many bits."""


def rope_entries(config: Json) -> list[Json]:
    """What a configuration says of rotary positions: for all layers, or for each kind of layer."""
    held = [config.get(name) for name in ("rope_scaling", "rope_parameters")]
    entries = [e for e in held if isinstance(e, dict)]
    nested = [inner for e in entries for inner in e.values() if isinstance(inner, dict)]
    return nested or entries


class Llama:
    """Llama, SmolLM, TinyLlama: RMS norms before attention and before a gated SiLU layer, rotary positions."""

    def __init__(self, config: Json, tensors: Source, bits: int = 0) -> None:
        self.config, self.tensors, self.bits = config, tensors, bits
        self.layers, self.epsilon = int(config["num_hidden_layers"]), float(config.get("rms_norm_eps", 1e-6))
        self._read: dict[str, b.Weight | b.Packed] = {}
        self._check(config)

    def _check(self, config: Json) -> None:
        """Refuse what would be computed otherwise."""
        act = config.get("hidden_act", "silu")
        if act != "silu":
            raise UnsupportedError(f"{config['model_type']}: hidden_act {act!r} is not supported", hint="'silu'")

    # ---- facts

    def heads(self, layer: int) -> b.Heads:
        """Heads of a layer's attention."""
        count = int(self.config["num_attention_heads"])
        size = int(self.config.get("head_dim") or self.config["hidden_size"] // count)
        groups = int(self.config.get("num_key_value_heads") or count)
        return b.Heads(count, groups, size, self.scale(size), self.window(layer))

    def scale(self, size: int) -> float:
        """What scores are multiplied with."""
        return 1 / math.sqrt(size)

    def window(self, layer: int) -> int:
        """How far back a layer looks; 0: all the way."""
        return 0

    def rope_base(self, layer: int) -> float:
        """The base of a layer's rotary positions."""
        known = [e["rope_theta"] for e in rope_entries(self.config) if "rope_theta" in e]
        return float(self.config.get("rope_theta", known[0] if known else 10000.0))

    def rope_scaling(self, layer: int) -> Json:
        """How a layer's rotary positions are scaled: rope.py."""
        return next(iter(rope_entries(self.config)), {})

    def rope_size(self) -> int:
        """Features of a head that turn."""
        entries = [self.config, *rope_entries(self.config)]
        share = next((e["partial_rotary_factor"] for e in entries if "partial_rotary_factor" in e), 1.0)
        return int(self.heads(0).size * float(share))

    # ---- weights

    def matrix(self, name: str, bits: int) -> b.Weight | b.Packed:
        """A weight (units, inner), read once."""
        key = f"{name}:{bits}"
        if key not in self._read:
            self._read[key] = self.tensors.matrix(f"{name}.weight", bits)
        return self._read[key]

    def linear(self, x: Expr, name: str) -> Expr:
        """The linear layer of that name, with its bias if there is one."""
        bias = self.tensors.float32(f"{name}.bias") if f"{name}.bias" in self.tensors else None
        return b.linear(x, self.matrix(name, self.bits), bias)

    def norm(self, x: Expr, name: str) -> Expr:
        """The RMS norm of that name."""
        return b.rms_norm(x, self.tensors.float32(f"{name}.weight"), self.epsilon)

    # ---- the network

    def embedded(self, tokens: Expr) -> Expr:
        """Tokens as rows of the embedding."""
        return b.embedding(self.matrix("model.embed_tokens", 0), tokens)

    def layer(self, layer: int, x: Expr, caches: b.Caches, step: b.Step) -> tuple[Expr, b.Caches]:
        """x + attention(norm(x)), then that + feed_forward(norm(that)); and the caches."""
        at = f"model.layers.{layer}"
        y, written = self.attention(layer, self.norm(x, f"{at}.input_layernorm"), caches, step)
        x = x + y
        return x + self.feed_forward(layer, self.norm(x, f"{at}.post_attention_layernorm")), written

    def attention(self, layer: int, x: Expr, caches: b.Caches, step: b.Step) -> tuple[Expr, b.Caches]:
        """Queries, keys and values, rotated, against the caches."""
        heads, at = self.heads(layer), f"model.layers.{layer}.self_attn"
        q, k, v = self.projections(layer, x, heads)
        q, k = (b.rotary(p, step) for p in (q, k))
        y, written = b.attend(q, k, v, caches, heads, step)
        return self.linear(y, f"{at}.o_proj"), written

    def projections(self, layer: int, x: Expr, heads: b.Heads) -> tuple[Expr, Expr, Expr]:
        """Queries, keys and values by heads."""
        at = f"model.layers.{layer}.self_attn"
        q = b.by_heads(self.linear(x, f"{at}.q_proj"), heads.count)
        k, v = (b.by_heads(self.linear(x, f"{at}.{name}_proj"), heads.groups) for name in "kv")
        return q, k, v

    def feed_forward(self, layer: int, x: Expr) -> Expr:
        """down(silu(gate(x)) up(x))."""
        at = f"model.layers.{layer}.mlp"
        gated = b.silu(self.linear(x, f"{at}.gate_proj")) * self.linear(x, f"{at}.up_proj")
        return self.linear(gated, f"{at}.down_proj")

    def logits(self, x: Expr) -> Expr:
        """The last norm, and the head, which may be the embedding."""
        x = self.norm(x, "model.norm")
        tied = self.config.get("tie_word_embeddings", False) or "lm_head.weight" not in self.tensors
        return self.linear(x, "model.embed_tokens" if tied else "lm_head")


class Mistral(Llama):
    """Mistral: layers that look back by a window."""

    def window(self, layer: int) -> int:
        return int(self.config.get("sliding_window") or 0)


class Qwen2(Llama):
    """Qwen 2: biases on queries, keys and values; windows from some layer on, where the configuration uses them."""

    def window(self, layer: int) -> int:
        if not self.config.get("use_sliding_window", False):
            return 0
        return int(self.config["sliding_window"]) if layer >= int(self.config.get("max_window_layers", 0)) else 0


class Qwen3(Qwen2):
    """Qwen 3: queries and keys are normalised by head."""

    def projections(self, layer: int, x: Expr, heads: b.Heads) -> tuple[Expr, Expr, Expr]:
        at = f"model.layers.{layer}.self_attn"
        q, k, v = super().projections(layer, x, heads)
        return self.norm(q, f"{at}.q_norm"), self.norm(k, f"{at}.k_norm"), v


class Phi3(Llama):
    """Phi 3: one projection for queries, keys and values, one for gate and up; windows."""

    def window(self, layer: int) -> int:
        return int(self.config.get("sliding_window") or 0)

    def rows(self, name: str, begin: int, end: int) -> b.Weight | b.Packed:
        """Some rows of a weight."""
        weight = self.matrix(name, self.bits)
        units = (weight.data if isinstance(weight, b.Packed) else weight).shape[0]
        if end > units:
            raise ModelError(f"{name} has {units} rows, wanted {end}")
        part = slice(begin, end)
        return weight.rows(part) if isinstance(weight, b.Packed) else picked_rows(weight, part)

    def projections(self, layer: int, x: Expr, heads: b.Heads) -> tuple[Expr, Expr, Expr]:
        name, ends = f"model.layers.{layer}.self_attn.qkv_proj", [heads.count * heads.size]
        ends += [ends[0] + heads.groups * heads.size, ends[0] + 2 * heads.groups * heads.size]
        parts = [self.rows(name, begin, end) for begin, end in zip([0, *ends[:2]], ends, strict=True)]
        q, k, v = (b.linear(x, part) for part in parts)
        return b.by_heads(q, heads.count), b.by_heads(k, heads.groups), b.by_heads(v, heads.groups)

    def feed_forward(self, layer: int, x: Expr) -> Expr:
        at, width = f"model.layers.{layer}.mlp", int(self.config["intermediate_size"])
        gate, up = (self.rows(f"{at}.gate_up_proj", k * width, (k + 1) * width) for k in (0, 1))
        gated = b.silu(b.linear(x, gate)) * b.linear(x, up)
        return self.linear(gated, f"{at}.down_proj")


class Gemma2(Llama):
    """Gemma 2: scaled embeddings, norms around 1 before and behind, GELU, softcaps, every other layer local."""

    def _check(self, config: Json) -> None:
        act = config.get("hidden_activation") or config.get("hidden_act", "gelu_pytorch_tanh")
        if act not in ("gelu_pytorch_tanh", "gelu_tanh"):
            raise UnsupportedError(f"{config['model_type']}: activation {act!r} is not supported")

    def heads(self, layer: int) -> b.Heads:
        plain = super().heads(layer)
        cap = float(self.config.get("attn_logit_softcapping") or 0.0)
        return b.Heads(plain.count, plain.groups, plain.size, plain.scale, plain.window, cap)

    def scale(self, size: int) -> float:
        return 1 / math.sqrt(float(self.config.get("query_pre_attn_scalar", size)))

    def window(self, layer: int) -> int:
        return int(self.config.get("sliding_window") or 0) if layer % 2 == 0 else 0

    def norm(self, x: Expr, name: str) -> Expr:
        return b.rms_norm(x, self.tensors.float32(f"{name}.weight"), self.epsilon, offset=1.0)

    def embedded(self, tokens: Expr) -> Expr:
        return super().embedded(tokens) * float(np.float32(math.sqrt(self.config["hidden_size"])))

    def layer(self, layer: int, x: Expr, caches: b.Caches, step: b.Step) -> tuple[Expr, b.Caches]:
        at = f"model.layers.{layer}"
        y, written = self.attention(layer, self.norm(x, f"{at}.input_layernorm"), caches, step)
        x = x + self.norm(y, f"{at}.post_attention_layernorm")
        y = self.feed_forward(layer, self.norm(x, f"{at}.pre_feedforward_layernorm"))
        return x + self.norm(y, f"{at}.post_feedforward_layernorm"), written

    def feed_forward(self, layer: int, x: Expr) -> Expr:
        at = f"model.layers.{layer}.mlp"
        gated = b.tanh_gelu(self.linear(x, f"{at}.gate_proj")) * self.linear(x, f"{at}.up_proj")
        return self.linear(gated, f"{at}.down_proj")

    def logits(self, x: Expr) -> Expr:
        return b.softcapped(super().logits(x), float(self.config.get("final_logit_softcapping") or 0.0))


class Gemma3(Gemma2):
    """Gemma 3: normalised queries and keys instead of softcaps; five local layers, with a base of their own, to one."""

    def is_local(self, layer: int) -> bool:
        """Whether a layer looks back by a window."""
        kinds = self.config.get("layer_types")
        if kinds:
            return bool(kinds[layer] == "sliding_attention")
        every = self.config.get("sliding_window_pattern") or self.config.get("_sliding_window_pattern") or 6
        return (layer + 1) % int(every) != 0

    def window(self, layer: int) -> int:
        return int(self.config.get("sliding_window") or 0) if self.is_local(layer) else 0

    def rope_base(self, layer: int) -> float:
        kinds = self.config.get("rope_parameters") or {}
        local = kinds.get("sliding_attention", {}).get("rope_theta", self.config.get("rope_local_base_freq", 10000.0))
        whole = kinds.get("full_attention", {}).get("rope_theta", self.config.get("rope_theta", 1e6))
        return float(local if self.is_local(layer) else whole)

    def rope_scaling(self, layer: int) -> Json:
        kinds = self.config.get("rope_parameters") or {}
        if "full_attention" in kinds:
            entry: Json = kinds["sliding_attention" if self.is_local(layer) else "full_attention"]
            return entry
        return {} if self.is_local(layer) else super().rope_scaling(layer)

    def projections(self, layer: int, x: Expr, heads: b.Heads) -> tuple[Expr, Expr, Expr]:
        at = f"model.layers.{layer}.self_attn"
        q, k, v = super().projections(layer, x, heads)
        return self.norm(q, f"{at}.q_norm"), self.norm(k, f"{at}.k_norm"), v


Model = Llama
FAMILIES: dict[str, type[Llama]] = {
    "llama": Llama,
    "mistral": Mistral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "phi3": Phi3,
    "gemma2": Gemma2,
    "gemma3_text": Gemma3,
}
