"""Folders as Hugging Face stores models: config.json and safetensors, as decoders.

In: a folder of a family that families.py knows. Out: a `Decoder` whose functions take tokens, where they stand and how
many positions count, and caches. Invariant: weights are read once and shared by the functions; an entry of the
configuration that would change the result and is not implemented is refused by name.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from armillary.base.dtype import DType
from armillary.errors import ConfigError, ModelError, UnsupportedError
from armillary.generate.blocks import Step, cache_types
from armillary.generate.decoder import ROWS, START, TOKENS, TOTAL, Decoder
from armillary.generate.families import FAMILIES, Model, Source
from armillary.generate.rope import angles
from armillary.generate.safetensors import Json, Tensors
from armillary.ir import IRModule
from armillary.ops._iota import iota
from armillary.ops.nn._windows import call
from armillary.relay.expr import Expr, Function, Tuple, Var, const
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType

MOST = 1 << 15  # positions of a cache where nobody says how many: its memory follows the tokens (slots.py)
_ROLES = {"input_ids": TOKENS, "start": START, "total": TOTAL, "logit_rows": ROWS}


def folder_decoder(folder: Path, capacity: int | None, bits: int = 0, cache: str = "float32") -> Decoder:
    """The decoder of a folder; `bits` 4 or 8 packs its weights so."""
    if bits not in (0, 4, 8):
        raise ConfigError(f"bits is {bits}", hint="0 (as stored), 4 or 8")
    return family_decoder(folder, read_config(folder), Tensors(folder), capacity, bits, cache)


def family_decoder(path: Path, config: Json, tensors: Source, capacity: int | None, bits: int, cache: str) -> Decoder:
    """The decoder of a configuration and weights, as Hugging Face names them.

    `capacity` None: as many positions as the model was trained for, MOST at most. `cache`: one of blocks.CACHES.
    """
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise UnsupportedError(
            f"{path}: models of type {config.get('model_type')!r} are not supported",
            hint=f"there are {', '.join(sorted(FAMILIES))}",
        )
    model = family(config, tensors, bits)
    trained = int(config.get("max_position_embeddings") or MOST)
    positions = min(trained, MOST) if capacity is None else capacity

    @functools.cache
    def make(rows: int, slots: int, wanted: int) -> IRModule:
        return _module(model, rows, slots, wanted, positions, cache)

    return Decoder(make, _ROLES, positions)


def read_config(folder: Path) -> Json:
    """config.json, checked for what every family needs."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: config.json cannot be read: {error}") from None
    missing = [n for n in ("hidden_size", "num_hidden_layers", "num_attention_heads") if n not in config]
    if missing:
        raise ModelError(f"{folder}: config.json lacks {', '.join(missing)}")
    result: Json = config
    return result


def _module(model: Model, rows: int, slots: int, wanted: int, capacity: int, cache: str) -> IRModule:
    """main(input_ids, start, total, logit_rows, caches) -> (logits, caches)."""
    heads, whole = model.heads(0), DType("int32")
    tokens = Var("input_ids", TensorType((slots, rows), DType("int64")))
    start, total = (Var(name, TensorType((slots,), whole)) for name in ("start", "total"))
    picked = Var("logit_rows", TensorType((wanted,), whole))
    places = call("expand_dims", start, axis=1) + call("expand_dims", iota(rows, "int32"), axis=0)
    types = cache_types(cache, (slots, heads.groups, capacity, heads.size))
    steps: dict[tuple[float, str], Step] = {}
    trained = int(model.config.get("max_position_embeddings") or 0)

    def step(layer: int) -> Step:
        base, scaling = model.rope_base(layer), model.rope_scaling(layer)
        key = base, str(scaling)
        if key not in steps:
            tables = (const(t) for t in angles(model.rope_size(), base, capacity, scaling, trained))
            rows_of = [call("take", table, places, axis=0, mode="clip") for table in tables]
            cos, sin = (call("expand_dims", t, axis=2) for t in rows_of)
            steps[key] = Step(start, total, cos, sin)
        return steps[key]

    x: Expr = model.embedded(tokens)
    caches, updated = list[Var](), list[Expr]()
    for layer in range(model.layers):
        own = tuple(Var(f"{name}_{layer}", ty) for name, ty in types.items())
        x, written = model.layer(layer, x, own, step(layer))
        caches += own
        updated += written
    x = call("take", x, picked, axis=1, mode="clip")
    body = Tuple((model.logits(x), *updated))
    return infer_type(IRModule({"main": Function((tokens, start, total, picked, *caches), body)}))
