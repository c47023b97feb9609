"""Resizes of images that stay whole while AOTAutograd lowers a graph.

In: a graph of Dynamo, later the graph of ATen operators that AOTAutograd has of it. Out: the same graphs, changed where
they lie: `interpolate` of known sizes calls an operator of ours that has the schema of ATen's `upsample_*`, then that
again. Invariant: PyTorch's own operators are untouched, whose Python kernels gather the corners of each place; a resize
of open sizes, which no rule imports, is lowered by them. Whole, a resize reads rows once, and a convolution of one
place moves before it: SegFormer took 35 ms in gathers, 8 whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._prims_common import suggest_memory_format
from torch.nn.functional import interpolate

from armillary.frontend.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.fx import GraphModule, Node

_LINEAR = {(1, "linear"): "upsample_linear1d", (2, "bilinear"): "upsample_bilinear2d"} | {
    (3, "trilinear"): "upsample_trilinear3d",
    (2, "bicubic"): "upsample_bicubic2d",
}
_NEAREST = {(rank, "nearest"): f"upsample_nearest{rank}d" for rank in (1, 2, 3)} | {
    (rank, "nearest-exact"): f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)
}
_PARAMETERS = ("input", "size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
_LIBRARY = torch.library.Library("armillary", "FRAGMENT")


def _twin(name: str) -> Value:
    """An operator of ours that computes as ATen's of this name, and that PyTorch knows no parts of."""
    original = getattr(torch.ops.aten, name).default
    _LIBRARY.define(str(original._schema).removeprefix("aten::"))
    _LIBRARY.impl(name, original, "CompositeExplicitAutograd")
    torch.library.register_fake(f"armillary::{name}", _fake, lib=_LIBRARY)
    return getattr(torch.ops.armillary, name).default


def _fake(x: Tensor, size: Sequence[int], *_: Value) -> Tensor:
    return x.new_empty((*x.shape[:2], *size)).to(memory_format=suggest_memory_format(x))


_TWINS = {name: _twin(name) for name in (*_LINEAR.values(), *_NEAREST.values())}
_ORIGINALS = {twin: getattr(torch.ops.aten, name).default for name, twin in _TWINS.items()}


def keep_whole(module: GraphModule) -> None:
    """Have `interpolate` of known sizes call our operators, in a graph of Dynamo."""
    nodes = [n for n in module.graph.nodes if n.op == "call_function" and n.target is interpolate]
    for node in nodes:
        name, arguments = _resize(node)
        if name:
            node.target, node.args, node.kwargs = _TWINS[name], arguments, {}
    if nodes:
        module.recompile()


def _resize(node: Node) -> tuple[str, tuple[Value, ...]]:
    """ATen's operator of a call of `interpolate` and its arguments; no name where it stays as it is."""
    named: dict[str, Value] = (
        dict.fromkeys(_PARAMETERS) | {"mode": "nearest"} | dict(zip(_PARAMETERS, node.args, strict=False))
    )
    named |= node.kwargs
    x, result = (n.meta.get("example_value") for n in (named["input"], node))
    if not isinstance(result, torch.Tensor) or x.dtype != result.dtype or named["antialias"]:  # autocast gives another
        return "", ()
    size, rank, mode = tuple(result.shape[2:]), result.ndim - 2, named["mode"]
    if not all(type(d) is int for d in (*size, *x.shape[2:])):
        return "", ()
    factors = named["scale_factor"] if not named["recompute_scale_factor"] else None
    factors = tuple(factors) if isinstance(factors, list | tuple) else (factors,) * rank
    if (rank, mode) in _NEAREST:
        return _NEAREST[rank, mode], (named["input"], size, *factors)
    return _LINEAR.get((rank, mode), ""), (named["input"], size, bool(named["align_corners"]), *factors)


def as_aten(graph: GraphModule) -> None:
    """Have our operators' calls be ATen's, in a graph that AOTAutograd has lowered."""
    for node in graph.graph.nodes:
        node.target = _ORIGINALS.get(node.target, node.target) if node.op == "call_function" else node.target
    graph.recompile()
