"""cpu.conv2d_transpose_NCHWc: transposed convolution in blocked layouts, one ordinary convolution per phase.

In: data (N, C/ci, H, W, ci) as NCHW{ci}c; weight (O/co, KH, KW, C/ci, ci, co) as OHWI{ci}i{co}o: the taps of a phase
are not neighbours, and so each is one run of memory over all inputs. Out: (N, O/co, OH, OW, co). Attributes as
nn.conv2d_transpose, without dilation, and with one group or one for each channel: then the weight is (C/c, KH, KW, 1,
1, c) as IHWO1o{c}i. TE: output (y, x) belongs to phase (y mod sy, x mod sx), and each phase reads the taps k = (phase +
padding) mod stride + t * stride of one ordinary convolution. Invariant: no product with an inserted zero is made. Stage
"phases" has (quotient, phase) pairs as axes; the result interleaves them. Made by alter-op-layout; schedule:
backends/cpu/conv2d/transpose/schedule.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.base.record import record
from armillary.errors import TypeMismatch
from armillary.ops._deferred import te
from armillary.ops.nn._windows import Tensor, f32, known, need_dtype, need_rank, per_axis
from armillary.ops.nn.conv import result_dtype, window
from armillary.ops.nn.conv_blocked import unblock, unblock_weight
from armillary.ops.nn.conv_transpose import Conv2DTransposeAttrs, conv2d_transpose, output_size
from armillary.relay.op import Array, BadSample, Kind, Op, Sample
from armillary.relay.op.macs import transposed_macs
from armillary.relay.types import TensorType, Type

NAME = "cpu.conv2d_transpose_NCHWc"


@record
class BlockedConv2DTransposeAttrs(Conv2DTransposeAttrs):
    """The attributes of nn.conv2d_transpose, with blocked layouts."""

    data_layout: str = "NCHW8c"
    kernel_layout: str = "OHWI8i8o"


transpose_blocked = Op(NAME, kind=Kind.CONTRACTION, inputs=("data", "weight"))
transpose_blocked.macs(transposed_macs)
transpose_blocked.attrs(BlockedConv2DTransposeAttrs)


@transpose_blocked.infer
def _infer(attrs: BlockedConv2DTransposeAttrs, data: Type, weight: Type) -> TensorType:
    x = need_rank(NAME, data, 5)
    w = need_rank(NAME, weight, 6, "weight")
    need_dtype(NAME, x, w) if not attrs.out_dtype else None
    have, takes = (known(x.shape[1]), known(x.shape[4])), (known(w.shape[3]), known(w.shape[4]))
    channels = math.prod(size or 0 for size in have)
    is_depthwise = takes == (1, 1) and have == (known(w.shape[0]), known(w.shape[5])) and attrs.groups == channels
    if set(attrs.dilation) != {1} or not (attrs.groups == 1 or is_depthwise):
        raise TypeMismatch(
            f"{NAME}: dilation must be 1, and groups 1 or as many as channels, got {attrs.dilation} and {attrs.groups}"
        )
    if attrs.groups > 1:
        takes = have
    if have != takes:
        raise TypeMismatch(f"{NAME}: the weight takes {takes[0]} blocks of {takes[1]} channels, the data has {have}")
    win, extra = window(NAME, attrs, 2), per_axis(NAME, "output_padding", attrs.output_padding, 2, 0)
    size = [output_size(x.shape[2 + a], win, a, w.shape[1 + a], extra[a]) for a in range(2)]
    return TensorType((x.shape[0], w.shape[0], *size, w.shape[5]), result_dtype(attrs, x))


@transpose_blocked.reference
def _reference(attrs: BlockedConv2DTransposeAttrs, data: Array, weight: Array) -> Array:
    fields = {f: getattr(attrs, f) for f in Conv2DTransposeAttrs.__dataclass_fields__}
    kernel = unblock_weight(weight.transpose(0, 3, 1, 2, 4, 5))  # of one group OIHW, of one for each channel IOHW
    order = "OIHW" if attrs.groups == 1 else "IOHW"
    plain = Conv2DTransposeAttrs(**fields | {"data_layout": "NCHW", "kernel_layout": order, "out_layout": ""})
    assert conv2d_transpose.reference_rule is not None, "nn.conv2d_transpose has a reference"
    y: Array = conv2d_transpose.reference_rule(plain, unblock(data), kernel)
    blocked = y.reshape(y.shape[0], weight.shape[0], weight.shape[5], *y.shape[2:]).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked)


@transpose_blocked.compute
def _compute(attrs: BlockedConv2DTransposeAttrs, data: Tensor, weight: Tensor) -> Tensor:
    win, extra = window(NAME, attrs, 2), per_axis(NAME, "output_padding", attrs.output_padding, 2, 0)
    dtype = result_dtype(attrs, data)
    n, blocks, h, w, ci = te.static_shape(data)
    o_blocks, kh, kw, _, _, co = te.static_shape(weight)
    (sy, sx), ((top, _), (left, _)) = win.strides, win.pads
    oh, ow = (output_size(size, win, a, k, extra[a]) for a, (size, k) in enumerate(((h, kh), (w, kw))))
    ico, ici = te.reduce_axis((0, blocks), name="ic_outer"), te.reduce_axis((0, ci), name="ic_inner")
    ty, tx = te.reduce_axis((0, -(-kh // sy)), name="kh"), te.reduce_axis((0, -(-kw // sx)), name="kw")
    axes, taken = ([ty, tx, ico, ici], (ico, ici)) if attrs.groups == 1 else ([ty, tx], (0, 0))
    rows, columns = _Axis(sy, top, kh, h, -(-oh // sy)), _Axis(sx, left, kw, w, -(-ow // sx))

    def element(
        b: te.ExprLike,
        ob: te.Expr,
        y: te.Expr,
        py: te.Expr,
        x: te.Expr,
        px: te.Expr,
        oi: te.Expr,
    ) -> te.Expr:
        tap_y, row, on_row = rows.tap(y, py, ty.var)
        tap_x, column, on_column = columns.tap(x, px, tx.var)
        inputs, lane = (ico, ici) if attrs.groups == 1 else (ob, oi)
        value = data(b, inputs, row, column, lane).astype(dtype)
        product = value * weight(ob, tap_y, tap_x, *taken, oi).astype(dtype)
        # as in conv2d_blocked: border tiles of a row are peeled, the test of rows stays outside the inner loops
        tests = [*on_row, *map(te.likely, on_column)]
        return te.sum(product, axis=axes, where=te.all(*tests) if tests else None)

    phases = te.compute(
        (n, o_blocks, rows.count, sy, columns.count, sx, co), element, name="phases", tag="conv2d_transpose_phases"
    )

    def interleave(b: te.Expr, ob: te.Expr, y: te.Expr, x: te.Expr, oi: te.Expr) -> te.Expr:
        result: te.Expr = phases(b, ob, y // sy, y % sy, x // sx, x % sx, oi)
        return result

    return te.compute((n, o_blocks, oh, ow, co), interleave, name="interleaved", tag="conv2d_transpose_NCHWc")


@record
class _Axis:
    """One spatial axis: stride, padding before, kernel, data size, and quotients of output positions by the stride."""

    stride: int
    pad: int
    kernel: int
    size: int
    count: int

    def tap(self, at: te.Expr, phase: te.Expr, tap: te.Expr) -> tuple[te.Expr, te.Expr, list[te.Expr]]:
        """Kernel index and data position of a tap of a phase, and the tests needed to know that both exist."""
        index = (phase + self.pad) % self.stride + tap * self.stride
        position = at + (phase + self.pad) // self.stride - tap
        tests = [index < self.kernel] if self.kernel % self.stride else []
        if self.pad // self.stride < -(-self.kernel // self.stride) - 1:
            tests.append(position >= 0)
        if self.count - 1 + (self.stride - 1 + self.pad) // self.stride >= self.size:
            tests.append(position < self.size)
        return index, position, tests


@transpose_blocked.samples
def _samples() -> Iterator[Sample]:
    yield Sample(BlockedConv2DTransposeAttrs(strides=(2, 2)), (f32(1, 2, 4, 5, 8), f32(1, 2, 2, 2, 8, 8)))
    uneven = BlockedConv2DTransposeAttrs(strides=(2, 2), padding=(1, 1), output_padding=(1, 0))
    yield Sample(uneven, (f32(1, 1, 4, 5, 8), f32(2, 3, 3, 1, 8, 8)))
    yield Sample(BlockedConv2DTransposeAttrs(padding=(1, 0, 2, 1)), (f32(1, 1, 5, 4, 4), f32(1, 4, 3, 1, 4, 8)))
    yield Sample(BlockedConv2DTransposeAttrs(strides=(2, 2)), (f32(1, 1, 3, 0, 8), f32(1, 3, 4, 1, 8, 8)))
    depthwise = BlockedConv2DTransposeAttrs(strides=(2, 2), padding=(1, 1), groups=16)
    yield Sample(depthwise, (f32(1, 2, 4, 5, 8), f32(2, 4, 4, 1, 1, 8)))
    wide = BlockedConv2DTransposeAttrs(strides=(3, 2), padding=(0, 1, 1, 2))
    yield Sample(wide, (f32(2, 1, 4, 4, 4), f32(1, 2, 5, 1, 4, 4)))


@transpose_blocked.bad_samples
def _bad_samples() -> Iterator[BadSample]:
    yield BadSample(BlockedConv2DTransposeAttrs(), (f32(1, 2, 6, 6, 8), f32(1, 3, 3, 1, 8, 8)), "takes 1 blocks of 8")
    grouped = BlockedConv2DTransposeAttrs(groups=2)
    yield BadSample(grouped, (f32(1, 1, 6, 6, 8), f32(1, 3, 3, 1, 8, 8)), "groups 1 or as many as channels")
