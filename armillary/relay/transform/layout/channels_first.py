"""channels-first: convolutions and pooling in NHWC become those in NCHW, which have algorithms.

In: a typed module. Out: the same with NCHW where a convolution with constant weights asks for NHWC; what lies between
follows, and constants are stored so. Invariant: types of inputs and outputs stay; running it again changes nothing. A
back end that has blocked layouts runs it before all passes that look for channels. How layouts spread:
use_layouts.py.

    def @main(%x: Tensor[(1, 4, 4, 2), float32]) {
      %0 = full(1f, shape=[1, 1, 2, 3]);
      %1 = nn.conv2d(%x, %0, data_layout="NHWC", kernel_layout="HWIO");
      nn.relu(%1)
    }
    ->
    def @main(%x: Tensor[(1, 4, 4, 2), float32]) {
      %0 = layout_transform(%x, src_layout="NHWC");
      %1 = nn.conv2d(%0, meta[relay.Constant][0]);
      %2 = nn.relu(%1);
      layout_transform(%2, dst_layout="NHWC")
    }
    #[metadata]
    {"relay.Constant": [
      {"dtype": "float32", "shape": [3, 2, 1, 1], "data": "AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/"}
    ]}
"""

from __future__ import annotations

from typing import TypeGuard

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import Op
from armillary.relay.transform._rules import is_from_constants, on_functions
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._rules import find_rule, takes_layouts
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass


@define_pass("channels-first", opt_level=3)
def channels_first(module: IRModule) -> IRModule:
    """Convolutions in NHWC with constant weights, and what lies between them, in NCHW."""

    def change(function: Function) -> Expr | None:
        order = post_order(function, not_primitive)
        if not any(map(_is_channels_last, order)):
            return None
        images = {e.op.name: e.op.layout_axes for e in order if _is_of_image(e)}
        request = Request(desired=tuple((name, (axes.data, "default")) for name, axes in images.items()))
        return LayoutEngine(request, find_rule).run(function)

    changed = on_functions(module, change)
    return module if changed is module else fold_constant(changed)


def _is_of_image(expr: Expr) -> TypeGuard[Call]:
    """Whether it is a convolution or pooling of images that takes layouts."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not takes_layouts(expr.op):
        return False
    return expr.op.layout_axes is not None and expr.op.layout_axes.data == "NCHW"


def _is_channels_last(expr: Expr) -> bool:
    """Whether it is a convolution in NHWC whose weight can be stored in another layout."""
    if not _is_of_image(expr) or not expr.op.layout_axes.kernel:  # pooling of quantised data has more operands, too
        return False
    return bool(expr.attrs.data_layout == "NHWC") and is_from_constants(expr.args[1])
