"""ONNX files of decoders, with caches of fixed capacity.

In: a file in one of four forms: GroupQueryAttention with past and present (onnxruntime-genai), the standard's
Attention with past and present, TensorScatter with write positions, pasts that are continued by concatenation (optimum:
grown_caches.py). Out: a `Decoder`. Invariant: weights stay; an Attention that appends to its past, causal and without a
mask, becomes a GroupQueryAttention over the capacity.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import onnx
from onnx import helper

from armillary.errors import ModelError, UnsupportedError
from armillary.frontend import from_onnx
from armillary.frontend.onnx.load import load_model
from armillary.generate.decoder import LAST, LONGEST, MASK, ORDER, POSITIONS, ROWS, START, TOKENS, TOTAL, Decoder
from armillary.generate.grown_caches import (
    FIRST_ROW,
    POSITIONS_OF_ROWS,
    check_windows,
    grown_caches,
    over_capacity,
    with_positions,
)
from armillary.ir import IRModule

MOST = 1 << 12  # positions of a cache where neither the file nor the caller says how many
_MS = "com.microsoft"
_ROLES = {
    "input_ids": TOKENS,
    "position_ids": POSITIONS,
    "seqlens_k": LAST,
    "total_len": LONGEST,
    "total_sequence_length": LONGEST,
    "attention_mask": MASK,
    "write": START,
    "write_indices": START,
    "valid": TOTAL,
    "nonpad_kv_seqlen": TOTAL,
    "cache_last": LAST,
    "logit_rows": ROWS,
    POSITIONS_OF_ROWS: ORDER,
}
_LENGTH, _WHOLE = "cache_last", "cache_capacity"  # inputs of nodes that get a cache of fixed capacity
_PICKED = "logit_rows"  # the input that says which rows go into the head
_BY_ROW = ("Add", "Cast", "Div", "Identity", "Mul", "Tanh")  # what may follow a head


def onnx_decoder(path: str | os.PathLike[str], capacity: int | None) -> Decoder:
    """The decoder of a file; `capacity` None: that of the file, or MOST positions."""
    model = load_model(path, importable=lambda *_: False, waits=True)  # as messages, large weights in the file
    graph = model.proto.graph
    wanted = MOST if capacity is None else capacity
    if any(_appends(node) for node in graph.node):
        _with_capacity(graph, wanted)
        model.opsets.setdefault(_MS, 1)
    _with_whole_caches(graph)
    grown = grown_caches(graph)
    if grown:
        check_windows(model)
    is_causal = with_positions(graph, grown) or any(n.op_type == "GroupQueryAttention" for n in graph.node)
    stored = {t.name for t in graph.initializer}
    _with_picked_rows(graph, stored)
    inputs = [i for i in graph.input if i.name not in stored]
    caches = [i.name for i in inputs if i.name not in _ROLES]
    roles = {i.name: _ROLES[i.name] for i in inputs if i.name in _ROLES}
    if TOKENS not in roles.values():
        raise ModelError(f"{path}: no input is called input_ids", hint=f"there are {', '.join(i.name for i in inputs)}")
    for value in inputs:
        if value.name in caches and len(value.type.tensor_type.shape.dim) != 4:
            raise ModelError(f"{path}: input {value.name!r} is neither a cache of four axes nor known by its name")
    static = {v.name: v.type.tensor_type.shape.dim[2].dim_value for v in inputs if v.name in caches}
    fixed = {n for n in static.values() if n}
    positions = min(fixed) if fixed else wanted
    sizes = _stated_sizes(Path(path).with_name("genai_config.json"))

    @cache
    def make(rows: int, slots: int, wanted: int) -> IRModule:
        if slots > 1 and ORDER in roles.values() and POSITIONS not in roles.values():
            message = "positions follow from the length of the past, which sequences side by side have in common"
            raise UnsupportedError(f"{path}: {message}", hint="slots=1, or a file with the input position_ids")
        shapes = {v.name: _shape(v, roles.get(v.name, ""), (slots, rows), (positions, *sizes)) for v in inputs}
        shapes |= {name: (wanted,) for name, role in roles.items() if role == ROWS}
        for name in grown:
            before, heads, _, size = shapes[name]
            shapes[name] = (before, heads, positions - rows, size)
        shapes |= {name: (rows,) for name, role in roles.items() if role == ORDER}
        module, _ = from_onnx(model, shapes)
        return over_capacity(module, positions) if grown else module

    most = positions - 1 if grown else 1 << 30
    return Decoder(make, roles | ({FIRST_ROW: START} if grown else {}), positions, most if is_causal else 1)


def _stated_sizes(config: Path) -> tuple[int, int]:
    """Heads and features of caches as the configuration beside a file says them; 0 where it does not."""
    if not config.exists():
        return 0, 0
    try:
        stated = json.loads(config.read_text("utf-8"))["model"]["decoder"]
        return int(stated.get("num_key_value_heads", 0)), int(stated.get("head_size", 0))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{config}: no configuration of a decoder: {error!r}") from None


def _shape(
    value: onnx.ValueInfoProto, role: str, tokens: tuple[int, int], stated: tuple[int, int, int]
) -> tuple[int, ...]:
    """The shape of an input for so many sequences and new tokens of each; `stated`: positions, heads, features."""
    capacity, *others = stated
    dims = value.type.tensor_type.shape.dim
    if role in (TOKENS, POSITIONS):
        return tokens
    slots = tokens[0]
    if role == MASK:
        return (slots, capacity)
    if role:
        return (slots if role != LONGEST else 1, 1, 1)[: len(dims)]
    _, heads, length, size = (d.dim_value for d in dims)
    heads, size = heads or others[0], size or others[1]
    if not heads or not size:
        hint = "genai_config.json beside the file says num_key_value_heads and head_size"
        raise ModelError(f"input {value.name!r}: a cache whose heads or features are open", hint=hint)
    return (slots, heads, length or capacity, size)


def _with_picked_rows(graph: onnx.GraphProto, stored: set[str]) -> None:
    """Let the head, a product with a stored matrix at the end, take some of the rows; elsewhere nothing changes."""
    outputs = [o for o in graph.output if len(o.type.tensor_type.shape.dim) == 3]  # caches have four axes
    producers = {name: node for node in graph.node for name in node.output}
    node = producers.get(outputs[0].name) if len(outputs) == 1 else None
    while node is not None and node.op_type in _BY_ROW:
        computed = [name for name in node.input if name not in stored]
        node = producers.get(computed[0]) if len(computed) == 1 else None
    if node is None or node.op_type not in ("MatMul", "MatMulNBits") or not set(node.input[1:]) <= {*stored, ""}:
        return
    place = next(k for k, other in enumerate(graph.node) if other.output[:1] == node.output[:1])
    picked = f"{node.input[0]}_picked"
    graph.node.insert(place, helper.make_node("Gather", [node.input[0], _PICKED], [picked], axis=1))
    graph.node[place + 1].input[0] = picked
    graph.input.append(helper.make_tensor_value_info(_PICKED, onnx.TensorProto.INT32, ["wanted"]))


def _appends(node: onnx.NodeProto) -> bool:
    return node.op_type == "Attention" and not node.domain and len(node.input) > 5 and bool(node.input[4])


def _with_whole_caches(graph: onnx.GraphProto) -> None:
    """Let a cache that slides with its window hold all positions: rows see as far as the window says, as before."""
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            others = [a for a in node.attribute if a.name != "sliding_window_cache"]
            del node.attribute[:]
            node.attribute.extend(others)


def _with_capacity(graph: onnx.GraphProto, capacity: int) -> None:
    """Rewrite the standard's Attention nodes that append to a past."""
    for node in graph.node:
        if not _appends(node):
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.input[3] or not attributes.get("is_causal") or "q_num_heads" not in attributes or len(node.input) > 6:
            message = "a mask, scores without order, or four axes"
            raise UnsupportedError(f"Attention node {node.name!r} with {message} cannot have a cache of fixed capacity")
        named = {"num_heads": attributes["q_num_heads"], "kv_num_heads": attributes["kv_num_heads"]}
        named |= {k: attributes[k] for k in ("scale", "softcap") if k in attributes}
        inputs = [*node.input[:3], *node.input[4:6], _LENGTH, _WHOLE]
        new = helper.make_node("GroupQueryAttention", inputs, node.output, node.name, domain=_MS, **named)
        node.CopyFrom(new)
    graph.input.append(helper.make_tensor_value_info(_LENGTH, onnx.TensorProto.INT32, ["slots"]))
    graph.initializer.append(helper.make_tensor(_WHOLE, onnx.TensorProto.INT32, [], [capacity]))
