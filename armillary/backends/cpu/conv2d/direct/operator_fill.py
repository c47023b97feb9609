"""cpu.fill_channels: the weight of a blocked convolution from one without its added channels.

In: a weight (I, KH, KW, O) of real channels alone. Out: (OB, IB, KH, KW, i, o), as OIHW{i}i{o}o, with zeros for the
channels that pad-channels added; `inputs` and `outputs` are runs (real, added) in order, `blocks` the sizes i and o.
Invariant: runs cover whole blocks. Runs when weights are loaded; made by backends/cpu/graph/trim_weights.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from armillary.backends.channels.wide_channels import Runs, real_places
from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import Tensor, f32, need_rank
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.types import TensorType, Type


@record
class FillAttrs:
    """Runs of real and added channels, and the sizes of the blocks they fill."""

    inputs: Runs
    outputs: Runs
    blocks: tuple[int, int]


fill = Op("cpu.fill_channels", kind=Kind.INJECTIVE, inputs=("weight",))
fill.attrs(FillAttrs)
fill.expands = True


@fill.infer
def _infer(attrs: FillAttrs, weight: Type) -> TensorType:
    op = fill.name
    w = need_rank(op, weight, 4, "weight")
    widths = [sum(map(sum, runs)) for runs in (attrs.inputs, attrs.outputs)]
    for name, axis, runs, width, block in zip(
        ("inputs", "outputs"), (0, 3), (attrs.inputs, attrs.outputs), widths, attrs.blocks, strict=True
    ):
        real = sum(n for n, _ in runs)
        if w.shape[axis] != real:
            raise TypeMismatch(f"{op}: {name} names {real} real channels, the weight has {w.shape[axis]}")
        if block < 1 or width % block:
            raise TypeMismatch(f"{op}: {name}: {width} channels do not fill blocks of {block}")
    i, o = attrs.blocks
    return TensorType((widths[1] // o, widths[0] // i, *w.shape[1:3], i, o), w.dtype)


@fill.reference
def _reference(attrs: FillAttrs, weight: Array) -> Array:
    widths = [sum(map(sum, runs)) for runs in (attrs.inputs, attrs.outputs)]
    wide = np.zeros((widths[0], *weight.shape[1:3], widths[1]), weight.dtype)
    wide[real_places(attrs.inputs)[:, None], :, :, real_places(attrs.outputs)] = weight.transpose(0, 3, 1, 2)
    i, o = attrs.blocks
    parts = wide.reshape(widths[0] // i, i, *weight.shape[1:3], widths[1] // o, o)
    return np.ascontiguousarray(parts.transpose(4, 0, 2, 3, 1, 5))


def _chosen(channel: te.Expr, runs: Runs, value: Callable[[te.Expr], te.Expr], zero: te.Expr) -> te.Expr:
    """`value` of the real channel that lies at `channel`, or zero at an added one."""
    result, real, wide = zero, sum(n for n, _ in runs), sum(map(sum, runs))
    for count, added in reversed(runs):
        real, wide = real - count, wide - count - added
        here = value(channel - (wide - real))
        inside = te.if_then_else(channel < wide + count, here, zero) if added else here
        result = inside if result is zero else te.if_then_else(channel < wide + count + added, inside, result)
    return result


@fill.compute
def _compute(attrs: FillAttrs, weight: Tensor) -> Tensor:
    i, o = attrs.blocks
    shape = tuple(te.static_shape(weight))
    widths = [sum(map(sum, runs)) for runs in (attrs.inputs, attrs.outputs)]
    zero = te.const(0, weight.dtype)

    def element(ob: te.Expr, ib: te.Expr, y: te.Expr, x: te.Expr, ii: te.Expr, oi: te.Expr) -> te.Expr:
        result: te.Expr = _chosen(
            ib * i + ii,
            attrs.inputs,
            lambda c: _chosen(ob * o + oi, attrs.outputs, lambda k: weight(c, y, x, k), zero),
            zero,
        )
        return result

    result: Tensor = te.compute(
        (widths[1] // o, widths[0] // i, *shape[1:3], i, o), element, name="fill", tag="injective"
    )
    return result


@fill.samples
def _samples() -> Iterator[Sample]:
    yield Sample(FillAttrs(((3, 1), (4, 0)), ((5, 3),), (4, 8)), (f32(7, 3, 3, 5),))
    yield Sample(FillAttrs(((8, 0),), ((2, 2), (3, 1), (4, 0)), (8, 4)), (f32(8, 1, 1, 9),))


@fill.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(FillAttrs(((3, 1),), ((8, 0),), (4, 8)), (f32(4, 1, 1, 8),), "names 3 real channels")
    yield BadSample(FillAttrs(((3, 0),), ((8, 0),), (4, 8)), (f32(3, 1, 1, 8),), "do not fill blocks of 4")
