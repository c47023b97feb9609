"""use-layouts: the layouts that a back end, a library or an importer computes convolutions in.

In: a module and `{"nn.conv2d": ["NHWC", "default"]}`; "default" derives the kernel's layout from the data's. Out: the
module with those operators in those layouts, and what lies between following. Invariant: the types of inputs and
outputs stay; running the pass again changes nothing; an operator without a rule gets its inputs as they were. Known:
contractions and poolings whose operators state the axes of their layouts; poolings also follow what comes before them.
What users ask for is in convert_layout.py: there a bias is an addition, and calls that follow are written as scripts
expect it.

    def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 1, 1), float32], %b: Tensor[(2), float32]) {
      %0 = nn.conv2d(%x, %w);
      nn.bias_add(%0, %b)
    }
    ->
    def @main(%x: Tensor[(1, 3, 4, 4), float32], %w: Tensor[(2, 3, 1, 1), float32], %b: Tensor[(2), float32]) {
      %0 = layout_transform(%x, dst_layout="NHWC");
      %1 = layout_transform(%w, src_layout="OIHW", dst_layout="HWIO");
      %2 = nn.conv2d(%0, %1, data_layout="NHWC", kernel_layout="HWIO");
      %3 = nn.bias_add(%2, %b, axis=3);
      layout_transform(%3, src_layout="NHWC")
    }
"""

from __future__ import annotations

from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.ops.layout._conversions import Desired, check_desired
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._rules import find_rule, takes_layouts
from armillary.transform import define_pass


@define_pass("use-layouts", opt_level=3)
def use_layouts(module: IRModule, *, desired_layouts: Desired | None = None) -> IRModule:
    """Convert operators to the desired (data, kernel) layouts."""
    if not desired_layouts:
        raise ConfigError("use-layouts: desired_layouts is empty", hint='pass {"nn.conv2d": ["NHWC", "default"]}')
    check_desired("use-layouts", desired_layouts, takes_layouts, blocks=False)
    request = Request(desired=tuple((name, tuple(layouts)) for name, layouts in sorted(desired_layouts.items())))
    return on_functions(module, lambda function: LayoutEngine(request, find_rule).run(function))
