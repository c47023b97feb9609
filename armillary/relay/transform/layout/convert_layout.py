"""convert-layout: the layouts a user asks for.

In: a module and `{"nn.conv2d": ["NHWC", "default"]}`; "default" derives the kernel's layout from the data's. Out: the
module with those operators in those layouts, and what lies between following as far as its rule knows how
(ops/layout/_rules.py). Biases are additions then, so that they follow any layout. Invariant: the types of inputs
and outputs stay; running the pass again changes nothing. What back ends and libraries ask for is in use_layouts.py.

    def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 1, 1), float32]) {
      %0 = nn.conv2d(%x, %w);
      nn.relu(%0)
    }
    ->
    def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 1, 1), float32]) {
      %0 = layout_transform(%x, dst_layout="NHWC");
      %1 = layout_transform(%w, src_layout="OIHW", dst_layout="HWIO");
      %2 = nn.conv2d(%0, %1, data_layout="NHWC", kernel_layout="HWIO");
      %3 = nn.relu(%2);
      layout_transform(%3, src_layout="NHWC")
    }
"""

from __future__ import annotations

from armillary.ir import IRModule
from armillary.ops.layout._conversions import Desired, check_by_user, converter
from armillary.relay.transform._rules import on_functions, rewrite_module
from armillary.relay.transform.layout._inference_walk import InferenceWalk
from armillary.relay.transform.layout._layout_config import LayoutConfig
from armillary.relay.transform.simplify.canonicalize_ops import bias_add
from armillary.transform import define_pass


@define_pass("convert-layout", opt_level=3)
def convert_layout(module: IRModule, *, desired_layouts: Desired | None = None) -> IRModule:
    """Convert operators to the desired (data, kernel) layouts."""
    desired = desired_layouts or {}
    check_by_user(desired)
    module = rewrite_module(module, bias_add)
    return on_functions(module, lambda function: InferenceWalk(converter(desired, LayoutConfig.skips)).run(function))
