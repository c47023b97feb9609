"""convert-layout: the layouts a user asks for.

In: a module and `{"nn.conv2d": ["NHWC", "default"]}`; "default" derives the kernel's layout from the data's. Out: the
module with those operators in those layouts, and what lies between following. Invariant: the types of inputs and
outputs stay; running the pass again changes nothing; an operator without a rule gets its inputs as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armillary.errors import ConfigError, UnsupportedError
from armillary.ir import IRModule
from armillary.relay.layout import layout
from armillary.relay.transform._layout_engine import LayoutEngine, Request
from armillary.relay.transform._layout_rules import find_rule
from armillary.relay.transform._rules import on_functions
from armillary.transform import define_pass

_CONVERTIBLE = ("nn.conv2d",)


@define_pass("convert-layout", opt_level=3)
def convert_layout(module: IRModule, *, desired_layouts: Mapping[str, Sequence[str]] | None = None) -> IRModule:
    """Convert operators to the desired (data, kernel) layouts."""
    if not desired_layouts:
        raise ConfigError("convert-layout: desired_layouts is empty", hint='pass {"nn.conv2d": ["NHWC", "default"]}')
    for name, layouts in desired_layouts.items():
        if name not in _CONVERTIBLE:
            hint = f"known: {', '.join(_CONVERTIBLE)}"
            raise UnsupportedError(f"convert-layout: {name} cannot be converted", hint=hint)
        for text in layouts:
            if text != "default" and layout(text).is_blocked:
                raise UnsupportedError(f"convert-layout: {text} is blocked", hint="blocked layouts: AlterOpLayout")
    request = Request(desired=tuple((name, tuple(layouts)) for name, layouts in sorted(desired_layouts.items())))
    return on_functions(module, lambda function: LayoutEngine(request, find_rule).run(function))
