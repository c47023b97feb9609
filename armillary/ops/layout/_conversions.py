"""How a call is written in the layouts that a user asks for: `{"nn.conv2d": ["NHWC", "default"]}`.

In: a call, its attributes, its inputs as they are, the layouts asked for its operator. Out: the call in those layouts;
"default" derives a kernel's layout from the data's. Invariant: an operator that states no axes of its layouts
(`Op.layout_axes`) is refused before anything is changed. Who asks: relay/transform/layout/convert_layout.py.
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
from armillary.relay.op import LEGALIZE_RULES, OPS, Op, get_op
from armillary.relay.types import TensorType

CONVERT_KEY = "FTVMConvertOpLayout"  # what a script says itself
_BOTH_BLOCKED = re.compile(r"OIHW\d+i\d+o")
_BLOCKED = re.compile(r"NCHW(\d+)c")
_IMAGE = "NCHW"


class Impossible(Exception):
    """A value cannot be moved between two layouts: the call that wants it stays as it was."""


Desired = Mapping[str, Sequence[str]]


def check_desired(who: str, desired: Desired, can: Callable[[Op], bool], *, blocks: bool) -> None:
    """Refuse what no rule can do, with the reason: `who` can convert these operators, `blocks`: into blocks, too."""
    for name, layouts in desired.items():
        op = OPS.get(name)
        axes = op.layout_axes if op is not None and can(op) else None
        if axes is None:
            known = ", ".join(op.name for op in OPS.values() if op.layout_axes is not None and can(op))
            raise UnsupportedError(f"{who}: {name} cannot be converted", hint=f"known: {known}")
        named = 1 if not isinstance(layouts, str) and not set(layouts[1:]) - {"default"} else len(layouts)
        if isinstance(layouts, str) or not layouts or named > len(axes.of_inputs):
            kinds = "a data layout and, optionally, a kernel layout" if axes.kernel else "a data layout"
            raise ConfigError(f"{who}: {name} takes a list of {kinds}, got {layouts!r}")
        if layouts[0] == "default":
            raise ConfigError(f"{who}: {name}: the data layout must be named", hint='such as "NHWC"')
        asked = [(str(text), letters) for text, letters in zip(layouts, axes.of_inputs) if text != "default"]
        for text, letters in asked:
            _check_one(f"{who}: {name}", text, letters, blocks and name == "nn.conv2d")


def _check_one(name: str, text: str, axes: str, blocks: bool) -> None:
    asked, known = layout(text), f"a permutation of {axes}"
    if asked.is_blocked and not blocks:
        raise UnsupportedError(f"{name}: {text} is blocked", hint=known)
    if asked.is_blocked and axes == _IMAGE and not _BLOCKED.fullmatch(text):
        raise UnsupportedError(f"{name}: {text} blocks other axes than channels", hint="NCHW16c")
    if sorted(asked.whole) != sorted(axes):
        raise UnsupportedError(f"{name} has no layout {text}", hint=known)


def check_by_user(desired: Desired) -> None:
    """What a user may ask for: a script's own rules say; what follows is left to what comes in, whatever is asked."""
    known = LEGALIZE_RULES.get(CONVERT_KEY, {})
    asked = {n: desired[n] for n in desired if n not in known and not _only_follows(OPS.get(n))}
    check_desired("convert-layout", asked, lambda op: True, blocks=True)


def _only_follows(op: Op | None) -> bool:
    return op is not None and op.layout_axes is None and op.layout_follows in RULES


def converter(desired: Desired, skips: Callable[[], bool]) -> Callable[[Call, object, list[Expr]], Expr | None]:
    """Writes calls of the operators that `desired` names in its layouts; `skips` tells of each conv2d whether to."""

    def write(expr: Call, attrs: Attributes, inputs: list[Expr]) -> Expr | None:
        asked, registered = desired.get(expr.op.name), LEGALIZE_RULES.get(CONVERT_KEY, {}).get(expr.op.name)
        is_convertible = registered is not None or expr.op.layout_axes is not None
        if asked is None or not is_convertible or (expr.op.name == "nn.conv2d" and skips()):
            return None
        layouts = [str(text) for text in asked]
        if registered is None:
            return _in_layouts(expr, attrs, inputs, layouts)
        rule: AnyFunction = registered[1]
        result: Expr | None = rule(attrs, inputs, [arg.checked_type for arg in expr.args], layouts)
        return result

    return write


def _in_layouts(expr: Call, attrs: Attributes, inputs: list[Expr], asked: list[str]) -> Expr | None:
    if hasattr(attrs, "data_layout"):
        return _contraction(expr, attrs, inputs, asked)
    names = {f.name for f in dataclasses.fields(attrs)}
    message = {"layout": asked[0], **({"out_layout": asked[0]} if "out_layout" in names else {})}
    return Call(expr.op, tuple(inputs), dataclasses.replace(attrs, **message), expr.span)


def _contraction(expr: Call, attrs: Attributes, inputs: list[Expr], asked: list[str]) -> Expr | None:
    name = expr.op.name
    kernel = asked[1] if len(asked) > 1 else "default"
    blocked = _BLOCKED.fullmatch(asked[0])
    if blocked:
        return _in_blocks(expr, attrs, inputs, int(blocked[1]), kernel)
    if kernel == "default":
        axes = expr.op.layout_axes
        kernel = (axes and axes.kernel_of(asked[0])) or attrs.kernel_layout
        if asked[0] == "NHWC" and name in ("nn.conv2d", "qnn.conv2d") and _is_depthwise(expr, attrs):
            kernel = "HWOI"
    message = dataclasses.replace(
        attrs, data_layout=asked[0], kernel_layout=kernel, out_layout=_output_layout(attrs, asked[0])
    )
    return Call(expr.op, tuple(inputs), message, expr.span)


def _output_layout(attrs: Attributes, data: str) -> str:
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
    message = {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}
    message |= {"data_layout": f"NCHW{block}c", "kernel_layout": kernel, "out_layout": ""}
    both = _BOTH_BLOCKED.fullmatch(kernel)
    packed = get_op("nn.contrib_conv2d_NCHWc" if both and attrs.groups == 1 else "nn.conv2d")
    return Call(packed, tuple(inputs), packed.make_attrs((), message), expr.span)


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
    result: Expr = get_op("layout_transform")(expr, src_layout=source.text, dst_layout=target.text)
    return result if result.checked_type is not None else expr  # raises where sizes do not divide
