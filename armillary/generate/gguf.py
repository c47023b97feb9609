"""GGUF files as decoders: what llama.cpp and its converters write.

In: a file: facts of the model, its tokenizer, tensors. Out: a `Decoder` of the same families as Hugging Face folders,
and a `Tokenizer` (gguf_tokens.py). Invariant: matrices stay in the integers that the file has (gguf_blocks.py); what
the file's writers changed is changed back: rows of queries and keys in pairs (llama), norms with 1 added (gemma).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.base.aliases import Array
from armillary.base.aligned import Deferred, each_rows, picked_rows
from armillary.base.dtype import DType
from armillary.errors import ModelError, UnsupportedError
from armillary.generate.blocks import Packed, Weight
from armillary.generate.gguf_blocks import ENCODINGS, packed_matrix
from armillary.generate.gguf_file import StoredTensor, read_header
from armillary.generate.safetensors import Json

FAMILIES = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "phi3": "phi3",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
}
_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class File:
    """An open file: facts by name, tensors by the names of Hugging Face."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts, self.tensors = read_header(path)
        if int(self.facts.get("split.count") or 1) > 1:
            raise UnsupportedError(f"{path} is one of several parts", hint="join them: llama-gguf-split --merge")
        self.arch = str(self.facts.get("general.architecture"))
        if self.arch not in FAMILIES:
            raise UnsupportedError(
                f"{path}: models of architecture {self.arch!r} are not supported",
                hint=f"there are {', '.join(sorted(FAMILIES))}",
            )
        self.config = self._config()

    def number(self, name: str, default: float | None = None) -> float:
        """A fact of the architecture, the same for all layers; without a default it must be there."""
        value = self.facts.get(f"{self.arch}.{name}", default)
        values = set(value) if isinstance(value, list) else {value}
        if len(values) > 1:
            raise UnsupportedError(f"{self.path}: {self.arch}.{name} differs between layers")
        if not values or not isinstance(value := values.pop(), int | float):
            raise ModelError(f"{self.path}: {self.arch}.{name} is {value}, wanted a number")
        return value

    def _config(self) -> Json:
        """The facts as config.json names them."""
        heads = int(self.number("attention.head_count"))
        hidden = int(self.number("embedding_length"))
        size = int(self.number("attention.key_length", hidden // heads))
        config: Json = {
            "model_type": FAMILIES[self.arch],
            "hidden_size": hidden,
            "num_hidden_layers": int(self.number("block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self.number("attention.head_count_kv", heads)),
            "head_dim": size,
            "intermediate_size": int(self.number("feed_forward_length")),
            "rms_norm_eps": float(self.number("attention.layer_norm_rms_epsilon")),
            "rope_theta": float(self.number("rope.freq_base", 10000.0)),
            "partial_rotary_factor": int(self.number("rope.dimension_count", size)) / size,
            "max_position_embeddings": int(self.number("context_length", 0)),
            "sliding_window": int(self.number("attention.sliding_window", 0)),
            "tie_word_embeddings": "output.weight" not in self.tensors,
            "rope_scaling": self._scaling(),
        }
        if self.arch.startswith("gemma"):
            # The largest models of both generations scale by features over heads, which files do not say.
            is_largest = config["num_hidden_layers"] == {"gemma2": 46, "gemma3": 62}[self.arch]
            config["query_pre_attn_scalar"] = hidden / heads if is_largest else size
            config["rope_local_base_freq"] = float(self.number("rope.freq_base_swa", 10000.0))
            pattern = self.facts.get(f"{self.arch}.attention.sliding_window_pattern", 6)
            if isinstance(pattern, list):
                config["layer_types"] = ["sliding_attention" if local else "full_attention" for local in pattern]
            else:
                config["sliding_window_pattern"] = int(pattern)
            for name in ("attn_logit_softcapping", "final_logit_softcapping"):
                config[name] = float(self.number(name, 0.0)) or None
        return config

    def _scaling(self) -> Json:
        """How rotary positions are scaled."""
        kind = str(self.facts.get(f"{self.arch}.rope.scaling.type", "none"))
        if "rope_freqs.weight" in self.tensors:
            return {"rope_type": "default", "divisors": self._floats("rope_freqs.weight").tolist()}
        if kind == "none":
            return {}
        if kind not in ("linear", "yarn"):
            raise UnsupportedError(f"{self.path}: rotary positions of type {kind!r} are not supported")
        scaling = {"rope_type": kind, "factor": float(self.number("rope.scaling.factor"))}
        scaling |= {name: float(self.number(f"rope.scaling.yarn_{name}", 0.0)) for name in ("beta_fast", "beta_slow")}
        scaling["original_max_position_embeddings"] = int(self.number("rope.scaling.original_context_length", 0))
        return scaling

    # ---- tensors

    def _place(self, name: str) -> str:
        """The file's name of a tensor that Hugging Face calls `name`."""
        stem, _, kind = name.rpartition(".")
        if stem in _WHOLE:
            return f"{_WHOLE[stem]}.{kind}"
        layer, _, part = stem.removeprefix("model.layers.").partition(".")
        names = _LAYER | _GEMMA if self.arch.startswith("gemma") else _LAYER
        return f"blk.{layer}.{names.get(part, part)}.{kind}"

    def __contains__(self, name: str) -> bool:
        return self._place(name) in self.tensors

    def float32(self, name: str) -> Array:
        """A tensor in float32."""
        values = self._floats(self._place(name))
        if name.endswith(".bias"):
            order = self._order(name, len(values))
            return values if order is None else values[order]
        return values - np.float32(1) if self.arch.startswith("gemma") and values.ndim == 1 else values

    def matrix(self, name: str, bits: int) -> Weight | Packed:
        """A weight: packed if the file has it so, in 16-bit floats if it has those, in float32 else."""
        place = self._place(name)
        entry = self._entry(place)
        order = self._order(name, entry.shape[0])
        if entry.kind in ENCODINGS:
            whole = self._packed(entry)
            return whole if order is None else whole.rows(order)
        values = self._rows(place, entry, is_wide=entry.kind not in ("F16", "BF16"))
        return values if order is None else picked_rows(values, order)

    def _order(self, name: str, units: int) -> Array | None:
        """Where rows of queries and keys lie: llama's are in pairs, the halves of a head interleaved."""
        part = name.rpartition(".")[0].rpartition(".")[2]
        if self.arch != "llama" or part not in ("q_proj", "k_proj"):
            return None
        size = self.config["head_dim"]
        order: Array = np.arange(units).reshape(-1, size // 2, 2).swapaxes(1, 2).reshape(-1)
        return order

    def _entry(self, name: str) -> StoredTensor:
        if name not in self.tensors:
            raise ModelError(f"{self.path}: there is no tensor {name!r}", hint=f"it has {len(self.tensors)} others")
        return self.tensors[name]

    def _packed(self, entry: StoredTensor) -> Packed:
        form = ENCODINGS[entry.kind]
        if entry.shape[-1] % form.terms:
            raise ModelError(f"{self.path}: rows of {entry.shape[-1]} are no blocks of {entry.kind}, {form.terms} each")
        return packed_matrix(entry.rows(entry.shape[-1] // form.terms * form.size), entry.kind)

    def _rows(self, name: str, entry: StoredTensor, is_wide: bool = True) -> Deferred:
        """Rows of a tensor of floats, in float32 or as they are."""
        if entry.kind not in _FLOATS:
            raise UnsupportedError(
                f"{self.path}: tensor {name!r} of type {entry.kind} is not supported",
                hint=f"there are {', '.join([*_FLOATS, *ENCODINGS])}",
            )
        dtype, width = DType(_FLOATS[entry.kind]).numpy, entry.shape[-1]
        raw = entry.rows(width * dtype.itemsize)
        wanted = np.dtype(np.float32) if is_wide else dtype
        return each_rows(raw, width, wanted, lambda rows: rows.view(dtype).astype(wanted, copy=False))

    def _floats(self, name: str) -> Array:
        entry = self._entry(name)
        if entry.kind in ENCODINGS and len(entry.shape) == 2:
            return self._packed(entry).float32()
        return self._rows(name, entry).compute().reshape(entry.shape)
