"""use-layouts: the layouts that a back end, a library or an importer computes convolutions in.

In: a module and `{"nn.conv2d": ["NHWC", "default"]}`; "default" derives the kernel's layout from the data's. Out: the
module with those operators in those layouts, and what lies between following. Invariant: the types of inputs and
outputs stay; running the pass again changes nothing; an operator without a rule gets its inputs as they were. Known:
nn.conv2d, nn.conv2d_transpose, qnn.conv2d and two-dimensional pooling, which also follows what comes before it. What
users ask for is in convert_layout.py: there a call that follows is written as scripts expect it.

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

from collections.abc import Mapping, Sequence

from armillary.base.data_layout import layout
from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.transform._rules import on_functions
from armillary.relay.transform.layout._engine import LayoutEngine, Request
from armillary.relay.transform.layout._rules import find_rule
from armillary.transform import define_pass

_POOLS = ("max", "avg", "global_max", "global_avg", "adaptive_max", "adaptive_avg")
CONVERTIBLE = {  # operator -> the axes of each layout
    "nn.conv2d": ("NCHW", "OIHW"),
    "nn.conv2d_transpose": ("NCHW", "IOHW"),
    "qnn.conv2d": ("NCHW", "OIHW"),
    **{f"nn.{kind}_pool2d": ("NCHW",) for kind in _POOLS},
}


@define_pass("use-layouts", opt_level=3)
def use_layouts(module: IRModule, *, desired_layouts: Mapping[str, Sequence[str]] | None = None) -> IRModule:
    """Convert operators to the desired (data, kernel) layouts."""
    if not desired_layouts:
        raise ConfigError("use-layouts: desired_layouts is empty", hint='pass {"nn.conv2d": ["NHWC", "default"]}')
    for name, layouts in desired_layouts.items():
        _check(name, layouts)
    request = Request(desired=tuple((name, tuple(layouts)) for name, layouts in sorted(desired_layouts.items())))
    return on_functions(module, lambda function: LayoutEngine(request, find_rule).run(function))


def _check(name: str, layouts: Sequence[str]) -> None:
    """Refuse what no rule can do, with the reason."""
    wanted = CONVERTIBLE.get(name)
    if wanted is None:
        hint = f"known: {', '.join(CONVERTIBLE)}"
        raise UnsupportedError(f"use-layouts: {name} cannot be converted", hint=hint)
    if isinstance(layouts, str) or not 1 <= len(layouts) <= len(wanted):
        kinds = "a data layout" if len(wanted) == 1 else "a data layout and, optionally, a kernel layout"
        raise ConfigError(f"use-layouts: {name} takes a list of {kinds}, got {layouts!r}")
    for position, (text, axes) in enumerate(zip(layouts, wanted)):
        if text == "default" and position:
            continue
        if text == "default":
            raise ConfigError(f"use-layouts: {name}: the data layout must be named", hint='such as "NHWC"')
        if layout(text).is_blocked:
            raise UnsupportedError(f"use-layouts: {text} is blocked", hint="blocked layouts: AlterOpLayout")
        if sorted(text) != sorted(axes):
            raise UnsupportedError(f"use-layouts: {name} has no layout {text}", hint=f"a permutation of {axes}")
