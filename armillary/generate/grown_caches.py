"""Decoders whose caches grow by concatenation, as optimum and PyTorch's exporters write them, over a fixed capacity.

In: an ONNX graph with `present = Concat(past, new)`. Out: the graph whose masks take the positions of its rows from an
input (`with_positions`), and, of its module with pasts of `capacity - rows` positions, the one whose caches have all of
them and are updated where the rows stand (`over_capacity`). Invariant: no shape behind a concatenation changes: what
was past and new rows is the cache. Which positions count says the mask, an input; that a row sees no later one, the
comparison of positions in the graph. A stored window that is cut by the length of the past is refused
(`check_windows`): a cache is as long as its capacity, not as what it holds.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx

from armillary.base.dtype import DType
from armillary.errors import ModelError, Span, UnsupportedError
from armillary.frontend.onnx.load import Model
from armillary.frontend.onnx.tensor import tensor_array
from armillary.ir import IRModule
from armillary.ops.nn._windows import call
from armillary.relay.expr import Call, Expr, Function, Tuple, Var
from armillary.relay.op import is_call
from armillary.relay.transform.normal_form.infer_type import infer_type
from armillary.relay.types import TensorType
from armillary.relay.walk import post_order, rewrite

POSITIONS_OF_ROWS, FIRST_ROW = "row_positions", "cache_start"  # inputs: (rows,), (sequences,)
_AXIS = (2, -2)  # of positions, in (sequences, heads, positions, features)
_COMPARES = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_MOVES = ("Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze")  # values stay


def grown_caches(graph: onnx.GraphProto) -> frozenset[str]:
    """The inputs that an output continues by new rows."""
    inputs, outputs = {i.name for i in graph.input}, {o.name for o in graph.output}
    shown = {n.input[0] for n in graph.node if n.op_type in ("Cast", "Identity") and n.output[0] in outputs}
    return frozenset(
        n.input[0]
        for n in graph.node
        if n.op_type == "Concat"
        and len(n.input) == 2
        and n.input[0] in inputs
        and n.output[0] in outputs | shown
        and next((a.i for a in n.attribute if a.name == "axis"), 0) in _AXIS
    )


def with_positions(graph: onnx.GraphProto, caches: Collection[str]) -> bool:
    """Take the positions that begin behind a past from an input; whether rows of one call are compared by them.

    Where they are not, or positions are sums of the mask, tokens have to go in one at a time.
    """
    producers = {name: node for node in graph.node for name in node.output}
    ranges = [n for n in graph.node if n.op_type == "Range" and _reads(n.input[0], producers, caches)]
    for node in ranges:
        begin = producers[node.input[0]]
        kind = next((a.i for a in begin.attribute if begin.op_type == "Cast"), onnx.TensorProto.INT64)
        node.CopyFrom(onnx.helper.make_node("Cast", [POSITIONS_OF_ROWS], list(node.output), node.name, to=kind))
    if ranges:
        graph.input.append(onnx.helper.make_tensor_value_info(POSITIONS_OF_ROWS, onnx.TensorProto.INT64, ["rows"]))
    if any(n.op_type == "CumSum" for n in graph.node):
        return False
    return any(_is_compared(node.output[0], graph) for node in ranges)


def check_windows(model: Model) -> None:
    """Refuse a stored mask that hides positions before a row, and whose rows are picked by the length of the past."""
    graph = model.proto.graph
    stored = {t.name: (t, model.large.get(n)) for n, t in enumerate(graph.initializer)}
    stored |= {n.output[0]: (n.attribute[0].t, None) for n in graph.node if n.op_type == "Constant" and n.attribute}
    for node in graph.node:
        if node.op_type != "Slice" or node.input[0] not in stored or node.input[1] in stored:
            continue
        tensor, part = stored[node.input[0]]
        if tensor.data_type not in (onnx.TensorProto.BOOL, onnx.TensorProto.UINT8) or len(tensor.dims) < 2:
            continue
        mask = tensor_array(tensor, Span(model.source, node.name), model.file, None if part is None else part.read())
        if np.tril(mask == 0).any():
            message = "a window of attention is cut by the length of the past, which a cache of fixed capacity has not"
            raise UnsupportedError(f"Slice node {node.name!r}: {message}", hint="a Hugging Face folder or a GGUF file")


def _reads(value: str, producers: dict[str, onnx.NodeProto], caches: Collection[str]) -> bool:
    """Whether a number is the length of a past."""
    node = producers.get(value)
    while node is not None and node.op_type in _MOVES:
        node = producers.get(node.input[0])
    return node is not None and node.op_type == "Shape" and node.input[0] in caches


def _is_compared(value: str, graph: onnx.GraphProto) -> bool:
    readers = [n for n in graph.node if value in n.input]
    if any(n.op_type in _COMPARES for n in readers):
        return True
    return any(_is_compared(n.output[0], graph) for n in readers if n.op_type in _MOVES and n.input[0] == value)


def over_capacity(module: IRModule, capacity: int) -> IRModule:
    """The module whose concatenations of a past and new rows are updates of a cache, from FIRST_ROW on."""
    main = module["main"]
    assert isinstance(main, Function), "main is a function"
    fields = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    pasts = [parts[0] for parts in map(_continued, fields) if parts is not None]
    if len(pasts) != len(fields) - 1:
        message = f"{len(fields)} outputs, of which {len(pasts)} continue a past; wanted all but one, the logits"
        raise ModelError(message, span=main.span)
    caches = {id(past): Var(past.name_hint, _longer(past, capacity)) for past in pasts}
    first = Var(FIRST_ROW, TensorType(_longer(pasts[0], capacity).shape[:1], DType("int64")))

    def updated(expr: Expr) -> Expr | None:
        parts = _continued(expr)
        if parts is None or id(parts[0]) not in caches:
            return None
        return call("nn.cache_update", caches[id(parts[0])], parts[1], first)

    body = rewrite(main.body, updated)
    if any(id(e) in caches for e in post_order(body)):
        raise ModelError("a past is read beside the concatenation that continues it", span=main.span)
    params = (*(caches.get(id(p), p) for p in main.params), first)
    return infer_type(IRModule({"main": Function(params, body, None, main.attrs, main.span)}))


def _continued(expr: Expr) -> tuple[Var, Expr] | None:
    """A past and the new rows that a concatenation puts behind it."""
    if not isinstance(expr, Call) or not is_call(expr, "concatenate") or expr.attrs.axis not in _AXIS:
        return None
    parts = expr.args[0].fields if isinstance(expr.args[0], Tuple) else ()
    return (parts[0], parts[1]) if len(parts) == 2 and isinstance(parts[0], Var) else None


def _longer(past: Var, capacity: int) -> TensorType:
    ty = past.checked_type
    assert isinstance(ty, TensorType), "a past is a tensor"
    return TensorType((*ty.shape[:2], capacity, *ty.shape[3:]), ty.dtype)
