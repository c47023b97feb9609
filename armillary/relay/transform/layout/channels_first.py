"""channels-first: convolutions and pooling in NHWC become those in NCHW, which have algorithms.

In: a typed module. Out: the same with NCHW where a convolution with constant weights asks for NHWC; what lies between
follows. Invariant: types of inputs and outputs stay; running it again changes nothing. A back end that has blocked
layouts runs it before all passes that look for channels. How layouts spread: convert_layout.py.

    nn.conv2d(%x, weight, data_layout="NHWC", kernel_layout="HWIO")
    ->
    layout_transform(nn.conv2d(layout_transform(%x), layout_transform(weight)), src_layout="NCHW", dst_layout="NHWC")
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.op import is_call
from armillary.relay.transform._rules import is_from_constants, on_functions
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._rules import find_rule
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass

_CONVOLUTIONS = "nn.conv2d", "qnn.conv2d"
_POOLS = ("max", "avg", "global_max", "global_avg", "adaptive_max", "adaptive_avg")
_REQUEST = Request(
    desired=(
        *((name, ("NCHW", "default")) for name in _CONVOLUTIONS),
        *((f"nn.{kind}_pool2d", ("NCHW",)) for kind in _POOLS),
    )
)


@define_pass("channels-first", opt_level=3)
def channels_first(module: IRModule) -> IRModule:
    """Convolutions in NHWC with constant weights, and what lies between them, in NCHW."""

    def change(function: Function) -> Expr | None:
        asks = any(_is_channels_last(e) for e in post_order(function, not_primitive))
        return LayoutEngine(_REQUEST, find_rule).run(function) if asks else None

    return on_functions(module, change)


def _is_channels_last(expr: Expr) -> bool:
    if not isinstance(expr, Call) or not any(is_call(expr, name) for name in _CONVOLUTIONS):
        return False
    return expr.attrs.data_layout == "NHWC" and is_from_constants(expr.args[1])
