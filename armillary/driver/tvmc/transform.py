"""Changes of a whole graph before it is built: layouts and precision.

In: a module, and a dictionary of what to do: desired_layout, desired_layout_ops, mixed_precision, mixed_precision_ops,
mixed_precision_calculation_type, mixed_precision_acc_type. Out: the module. Invariant: without an entry nothing is
done; an entry that nothing knows is an error. Types of inputs and outputs stay, unless the graph keeps them in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from armillary.base.arguments import Arguments
from armillary.base.boundary import boundary
from armillary.errors import ConfigError
from armillary.ir import IRModule
from armillary.relay import transform
from armillary.relay.op import get_op
from armillary.relay.transform.quantize.to_mixed_precision import to_mixed_precision
from armillary.relay.transform.simplify.fold_constant import fold_constant

LAYOUT_OPS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")
PRECISION_OPS = ("nn.conv2d", "nn.dense")
_KNOWN = {
    "mixed_precision",
    "mixed_precision_ops",
    "mixed_precision_calculation_type",
    "mixed_precision_acc_type",
    "desired_layout",
    "desired_layout_ops",
}
_ALWAYS, _QUIET = 0, 2  # a category, and what an operator without one means


@boundary("apply_graph_transforms", arguments=True)
def apply_graph_transforms(mod: IRModule, args: Mapping[str, Any] | None) -> IRModule:  # Any: see the module
    """Do what the entries say: layouts first, then precision."""
    Arguments("apply_graph_transforms").kind("argument mod", mod, IRModule, "an IRModule")
    settings = dict(args or {})
    unknown = sorted(set(settings) - _KNOWN)
    if unknown:
        raise ConfigError(f"apply_graph_transforms: there is no {unknown[0]!r}", hint=f"known: {', '.join(_KNOWN)}")
    if settings.get("desired_layout"):
        mod = convert_graph_layout(mod, settings["desired_layout"], settings.get("desired_layout_ops"))
    if settings.get("mixed_precision"):
        kind = settings.get("mixed_precision_calculation_type") or "float16"
        sums = settings.get("mixed_precision_acc_type") or kind
        mod = convert_to_mixed_precision(mod, settings.get("mixed_precision_ops"), kind, sums)
    return mod


@boundary("convert_to_mixed_precision", arguments=True)
def convert_to_mixed_precision(
    mod: IRModule, ops: Sequence[str] | None = None, calculation_type: str = "float16", acc_type: str = "float16"
) -> IRModule:
    """Compute `ops` in a 16-bit type, with sums of `acc_type`, and what follows them where it may."""
    Arguments("convert_to_mixed_precision").kind("argument mod", mod, IRModule, "an IRModule")
    rows = dict.fromkeys(ops or PRECISION_OPS, (_ALWAYS, acc_type, calculation_type))  # rows
    for name in rows:
        get_op(name)
    result: IRModule = to_mixed_precision(
        mod,
        mixed_precision_type=calculation_type,
        missing_op_mode=_QUIET,
        keep_orig_output_dtype=True,
        conversions=rows,
    )
    return result


@boundary("convert_graph_layout", arguments=True)
def convert_graph_layout(
    mod: IRModule, desired_layout: str | Sequence[str], ops: Sequence[str] | None = None
) -> IRModule:
    """Give operators a layout: "NHWC", "NHWC:HWIO", one for all of them or one for each."""
    Arguments("convert_graph_layout").kind("argument mod", mod, IRModule, "an IRModule")
    texts = [desired_layout] if isinstance(desired_layout, str) else list(desired_layout)
    names = list(ops or LAYOUT_OPS)
    if len(texts) not in (1, len(names)):
        message = f"{len(texts)} layouts for {len(names)} operators"
        raise ConfigError(f"desired_layout: {message}", hint="give one, or one for each operator")
    rows = dict(zip(names, texts * len(names) if len(texts) == 1 else texts, strict=True))
    layouts = {name: [*text.split(":"), "default"][:2] for name, text in rows.items()}
    return fold_constant(transform.ConvertLayout(layouts)(mod))
