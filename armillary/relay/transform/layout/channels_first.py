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

from armillary.ir import IRModule
from armillary.relay.expr import Call, Expr, Function
from armillary.relay.transform._rules import is_from_constants, on_functions, op_name
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._rules import find_rule
from armillary.relay.transform.layout.use_layouts import CONVERTIBLE
from armillary.relay.transform.simplify.fold_constant import fold_constant
from armillary.relay.walk import not_primitive, post_order
from armillary.transform import define_pass

_REQUEST = Request(
    desired=tuple((name, (axes[0], "default")[: len(axes)]) for name, axes in sorted(CONVERTIBLE.items()))
)


@define_pass("channels-first", opt_level=3)
def channels_first(module: IRModule) -> IRModule:
    """Convolutions in NHWC with constant weights, and what lies between them, in NCHW."""

    def change(function: Function) -> Expr | None:
        asks = any(_is_channels_last(e) for e in post_order(function, not_primitive))
        return LayoutEngine(_REQUEST, find_rule).run(function) if asks else None

    changed = on_functions(module, change)
    return module if changed is module else fold_constant(changed)


def _is_channels_last(expr: Expr) -> bool:
    """Whether it is a convolution in NHWC whose weight can be stored in another layout."""
    if not isinstance(expr, Call) or op_name(expr) not in CONVERTIBLE or len(expr.args) < 2:
        return False
    return bool(expr.attrs.data_layout == "NHWC") and is_from_constants(expr.args[1])
