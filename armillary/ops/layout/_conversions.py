"""How a call is written in the layouts that a user asks for: `{"nn.conv2d": ["NHWC", "default"]}`.

In: a call, its attributes, its inputs as they are, the layouts asked for its operator. Out: the call in those layouts;
"default" derives a kernel's layout from the data's. Invariant: an operator that is not in `CONVERTIBLE` is refused
before anything is changed. Who asks: relay/transform/layout/convert_layout.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from armillary.base.aliases import AnyFunction
from armillary.base.data_layout import Layout, layout
from armillary.errors import ConfigError, UnsupportedError
from armillary.ops.layout._inference import Attributes, shape_of, widened
from armillary.ops.layout._rules import RULES
from armillary.relay.expr import Call, Expr
from armillary.relay.op import LEGALIZE_RULES, get_op
from armillary.relay.types import TensorType

_POOLS = ("max", "avg", "global_max", "global_avg", "adaptive_max", "adaptive_avg")
_DATA = "NCHW"
CONVERTIBLE: dict[str, tuple[str, ...]] = {  # operator -> the axes of each layout
    "nn.conv1d": ("NCW", "OIW"),
    "nn.conv2d": (_DATA, "OIHW"),
    "nn.conv3d": ("NCDHW", "OIDHW"),
    "nn.conv2d_transpose": (_DATA, "IOHW"),
    "nn.conv3d_transpose": ("NCDHW", "IODHW"),
    "nn.deformable_conv2d": (_DATA, "OIHW"),
    "qnn.conv2d": (_DATA, "OIHW"),
    "qnn.conv2d_transpose": (_DATA, "IOHW"),
    "qnn.avg_pool2d": (_DATA,),
    **{f"nn.{kind}_pool2d": (_DATA,) for kind in _POOLS},
    **dict.fromkeys(("image.resize2d", "vision.roi_align", "vision.roi_pool"), (_DATA,)),
    "image.resize1d": ("NCW",),
}
_KERNELS = {  # the layout of a kernel that goes with that of the data
    "nn.conv2d": {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    "nn.conv3d": {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
    "nn.conv2d_transpose": {"NCHW": "IOHW", "NHWC": "HWIO"},
    "nn.conv3d_transpose": {"NCDHW": "IODHW", "NDHWC": "DHWOI"},
    "qnn.conv2d": {"NCHW": "OIHW", "NHWC": "HWIO"},
    "nn.deformable_conv2d": {"NCHW": "OIHW", "NHWC": "HWIO"},
}
_KERNELS["qnn.conv2d_transpose"] = _KERNELS["nn.conv2d_transpose"]
CONVERT_KEY = "FTVMConvertOpLayout"  # what a script says itself
_BOTH_BLOCKED = re.compile(r"OIHW\d+i\d+o")
_BLOCKED = re.compile(r"NCHW(\d+)c")


class Impossible(Exception):
    """A value cannot be moved between two layouts: the call that wants it stays as it was."""


Desired = Mapping[str, Sequence[str]]


def check_desired(desired: Desired) -> None:
    """Refuse what no rule can do, with the reason."""
    for name, layouts in desired.items():
        wanted = CONVERTIBLE.get(name)
        if name in LEGALIZE_RULES.get(CONVERT_KEY, {}) or (wanted is None and name in RULES):
            continue  # a script's own rule says; or it follows what comes in, whatever is asked
        if wanted is None:
            hint = f"known: {', '.join(CONVERTIBLE)}"
            raise UnsupportedError(f"convert-layout: {name} cannot be converted", hint=hint)
        if isinstance(layouts, str) or not 1 <= len(layouts) <= len(wanted):
            kinds = "a data layout" if len(wanted) == 1 else "a data layout and, optionally, a kernel layout"
            raise ConfigError(f"convert-layout: {name} takes a list of {kinds}, got {layouts!r}")
        for position, (text, axes) in enumerate(zip(layouts, wanted)):
            _check_one(name, str(text), axes, position)


def is_convertible(name: str) -> bool:
    """Whether an operator is written in a layout that is asked for, rather than follows."""
    return name in CONVERTIBLE or name in LEGALIZE_RULES.get(CONVERT_KEY, {})


def _check_one(name: str, text: str, axes: str, position: int) -> None:
    if text == "default" and position:
        return
    if text == "default":
        raise ConfigError(f"convert-layout: {name}: the data layout must be named", hint='such as "NHWC"')
    asked = layout(text)
    if asked.is_blocked and name != "nn.conv2d":
        raise UnsupportedError(f"convert-layout: {name}: {text} is blocked", hint=f"a permutation of {axes}")
    if asked.is_blocked and position == 0 and not _BLOCKED.fullmatch(text):
        raise UnsupportedError(f"convert-layout: {name}: {text} blocks other axes than channels", hint="NCHW16c")
    if sorted(asked.whole) != sorted(axes):
        raise UnsupportedError(f"convert-layout: {name} has no layout {text}", hint=f"a permutation of {axes}")


def converter(desired: Desired, skips: Callable[[], bool]) -> Callable[[Call, object, list[Expr]], Expr | None]:
    """Writes calls of the operators that `desired` names in its layouts; `skips` tells of each conv2d whether to."""

    def write(expr: Call, attrs: Attributes, inputs: list[Expr]) -> Expr | None:
        asked = desired.get(expr.op.name)
        if asked is None or not is_convertible(expr.op.name) or (expr.op.name == "nn.conv2d" and skips()):
            return None
        layouts = [str(text) for text in asked]
        registered = LEGALIZE_RULES.get(CONVERT_KEY, {}).get(expr.op.name)
        if registered is None:
            return _in_layouts(expr, attrs, inputs, layouts)
        rule: AnyFunction = registered[1]
        made: Expr | None = rule(attrs, inputs, [arg.checked_type for arg in expr.args], layouts)
        return made

    return write


def _in_layouts(expr: Call, attrs: Attributes, inputs: list[Expr], asked: list[str]) -> Expr | None:
    if hasattr(attrs, "data_layout"):
        return _contraction(expr, attrs, inputs, asked)
    names = {f.name for f in dataclasses.fields(attrs)}
    told = {"layout": asked[0], **({"out_layout": asked[0]} if "out_layout" in names else {})}
    return Call(expr.op, tuple(inputs), dataclasses.replace(attrs, **told), expr.span)


def _contraction(expr: Call, attrs: Attributes, inputs: list[Expr], asked: list[str]) -> Expr | None:
    name = expr.op.name
    kernel = asked[1] if len(asked) > 1 else "default"
    blocked = _BLOCKED.fullmatch(asked[0])
    if blocked:
        return _in_blocks(expr, attrs, inputs, int(blocked[1]), kernel)
    if kernel == "default":
        kernel = _KERNELS.get(name, {}).get(asked[0], attrs.kernel_layout)
        if asked[0] == "NHWC" and name in ("nn.conv2d", "qnn.conv2d") and _is_depthwise(expr, attrs):
            kernel = "HWOI"
    told = dataclasses.replace(attrs, data_layout=asked[0], kernel_layout=kernel, out_layout=_kept(attrs, asked[0]))
    return Call(expr.op, tuple(inputs), told, expr.span)


def _kept(attrs: Attributes, data: str) -> str:
    """An output layout that is told follows the data, where it was the data's."""
    return data if attrs.out_layout and attrs.out_layout == attrs.data_layout else str(attrs.out_layout)


def _in_blocks(expr: Call, attrs: Attributes, inputs: list[Expr], block: int, kernel: str) -> Expr | None:
    if kernel == "default":
        raise ConfigError("convert-layout: nn.conv2d: blocks need a kernel layout that is named", hint="OIHW16i16o")
    sizes = expr.args[0].checked_type
    channels = _axis_of(sizes, layout(attrs.data_layout), "C")
    units = _axis_of(expr.checked_type, layout(attrs.out_layout or attrs.data_layout), "C")
    if channels is None or units is None or channels % block or units % block:
        return None
    told = {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}
    told |= {"data_layout": f"NCHW{block}c", "kernel_layout": kernel, "out_layout": ""}
    both = _BOTH_BLOCKED.fullmatch(kernel)
    packed = get_op("nn.contrib_conv2d_NCHWc" if both and attrs.groups == 1 else "nn.conv2d")
    return Call(packed, tuple(inputs), packed.make_attrs((), told), expr.span)


def _axis_of(ty: object, order: Layout, letter: str) -> int | None:
    size = ty.shape[order.index(letter)] if isinstance(ty, TensorType) and order.text == order.whole else None
    return size if isinstance(size, int) else None


def _is_depthwise(expr: Call, attrs: Attributes) -> bool:
    weight = _axis_of(expr.args[1].checked_type, layout(attrs.kernel_layout), "O")
    channels = _axis_of(expr.args[0].checked_type, layout(attrs.data_layout), "C")
    return bool(attrs.groups > 1 and attrs.groups == channels == weight)


def in_layout(expr: Expr, source: Layout, target: Layout) -> Expr:
    """A value in another layout; one of fewer axes gets the others in front, one of a single element stays."""
    fewer = len(target.whole) - len(source.whole)
    if fewer > 0:
        if all(size == 1 for size in shape_of(expr.checked_type)):
            return expr
        expr, source = get_op("expand_dims")(expr, axis=0, num_newaxis=fewer), widened(source, target)
    if source == target:
        return expr
    if sorted(source.whole) != sorted(target.whole):
        raise Impossible
    made: Expr = get_op("layout_transform")(expr, src_layout=source.text, dst_layout=target.text)
    return made if made.checked_type is not None else expr  # raises where sizes do not divide
