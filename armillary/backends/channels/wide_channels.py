"""Regions of a graph that carry more channels than the network asked for, and the rewriting of them.

In: a function and, for each convolution, where it should add zero channels. Out: `find_regions` keeps those whose
region ends well; `widen` rebuilds the function. Invariant: a wide value holds the old channels in order, at the places
its `Channels` name, and is finite in the others (so that zero weights remove them); whatever is not known to keep that
reads a slice. The passes that choose: pad-channels on CPUs, fill-channels for textures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from armillary.base.aliases import Array
from armillary.base.record import record
from armillary.ops.shape.slice import slices
from armillary.relay.expr import Call, Constant, Expr, Function, Tuple, shape_of
from armillary.relay.op import Op, get_op
from armillary.relay.transform._rules import call, op_name
from armillary.relay.transform.layout._engine import flat_arguments
from armillary.relay.walk import copy_type, map_children, not_primitive, post_order

_PER_CHANNEL = frozenset(
    {  # finite for every finite input
        "nn.relu",
        "clip",
        "sigmoid",
        "tanh",
        "nn.leaky_relu",
        "erf",
        "nn.global_avg_pool2d",
        "nn.global_max_pool2d",
        "nn.max_pool2d",
        "nn.avg_pool2d",
        "nn.adaptive_avg_pool2d",
        "nn.adaptive_max_pool2d",
        "negative",
        "abs",
        "nearbyint",
        "cast",
    }
)
_BINARY = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})
CHANNEL_AXES = {"nn.conv2d": (0, 1), "nn.conv2d_transpose": (1, 0)}  # of the weight: output, input channels
_REDUCTIONS = frozenset({"mean", "max", "min"})
JOINTS = frozenset({"concatenate", "strided_slice"})
_CARRIERS = _PER_CHANNEL | _BINARY | _REDUCTIONS | JOINTS | {"take"}


Runs = tuple[tuple[int, int], ...]  # real channels, and how many were added behind them


def real_places(runs: Runs) -> Array:
    """Where the real channels lie among all."""
    parts, start = [np.empty(0, np.int64)], 0
    for real, added in runs:
        parts.append(np.arange(start, start + real))
        start += real + added
    return np.concatenate(parts)


@record
class Channels:
    """The channels of a wide value: runs of so many real ones, each followed by so many added ones."""

    runs: Runs

    @property
    def real(self) -> int:
        return sum(real for real, _ in self.runs)

    @property
    def width(self) -> int:
        return sum(map(sum, self.runs))

    @property
    def added(self) -> int:
        return self.width - self.real

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """First channel and number of real channels of each run, among all."""
        starts = np.cumsum([0, *map(sum, self.runs)])
        return tuple((int(start), real) for start, (real, _) in zip(starts, self.runs, strict=False))

    def scattered(self, value: Array, axis: int) -> Array:
        """`value` with zeros for the added channels."""
        shape = list(value.shape)
        shape[axis] = self.width
        wide = np.zeros(shape, value.dtype)
        np.moveaxis(wide, axis, 0)[real_places(self.runs)] = np.moveaxis(value, axis, 0)
        return wide

    def cut(self, start: int, count: int) -> Channels:
        """Some of the real channels, with the added ones behind each run that is taken to its end."""
        cuts, first = [], 0
        for real, added in self.runs:
            taken = min(first + real, start + count) - max(first, start)
            if taken > 0:
                cuts.append((taken, added if start + count >= first + real else 0))
            first += real
        return Channels(tuple(cuts)).merged()

    def merged(self) -> Channels:
        """The same with no run that ends without added channels before another."""
        runs: list[tuple[int, int]] = []
        for real, added in self.runs:
            ahead = runs.pop()[0] if runs and not runs[-1][1] else 0
            runs.append((ahead + real, added))
        return Channels(tuple(runs))


def find_regions(
    function: Function,
    extra: Callable[[Call], Channels | None],
    has_block: Callable[[Call], bool],
    joined: Collection[int],
    merged: Callable[[Call], int],
) -> dict[int, Channels]:
    """The channels, by id, of each value that becomes wide.

    Those of convolutions in `joined` (ids) stay so through concatenations and slices. A convolution that `has_block`
    already gains little: it is left alone if an image would have to be sliced for it. `merged`: how many of a
    convolution's groups should become one, which whole groups of zeros may help them to.
    """
    calls = calls_of(function)
    readers = _readers(function)
    chosen = {id(c): region for c in calls if op_name(c) in CHANNEL_AXES and (region := extra(c)) is not None}
    weak = {id(c) for c in calls if id(c) in chosen and has_block(c)}
    while True:
        wide, sources = spread(calls, chosen, joined, merged)
        bad = set[int]()
        for expr in readers:
            for child in sliced_reads(expr, wide):
                if not _is_small(child):
                    bad |= sources[id(child)] & weak
        if not bad & chosen.keys():
            return wide
        chosen = {key: n for key, n in chosen.items() if key not in bad}


def _readers(function: Function) -> list[Expr]:
    """All expressions but the tuples that only hold the tensors of one call."""
    order = post_order(function, not_primitive)
    held = {id(a) for e in order if isinstance(e, Call) for a in e.args if a not in flat_arguments(e)}
    return [e for e in order if not (isinstance(e, Tuple) and id(e) in held)]


def calls_of(function: Function) -> list[Call]:
    """The calls of operators, arguments first."""
    return [e for e in post_order(function, not_primitive) if isinstance(e, Call) and isinstance(e.op, Op)]


def spread(
    calls: Sequence[Call],
    chosen: Mapping[int, Channels],
    joined: Collection[int],
    merged: Callable[[Call], int] = lambda call: 1,
) -> tuple[dict[int, Channels], dict[int, frozenset[int]]]:
    """Which values become wide, and which convolutions they come from."""
    wide: dict[int, Channels] = {}
    sources: dict[int, frozenset[int]] = {}
    read = _read_by_convolutions(calls)
    for expr in calls:
        parts = [a for a in flat_arguments(expr) if id(a) in wide]
        origin = frozenset[int]().union(*(sources[id(a)] for a in parts))
        if id(expr) in chosen:
            wide[id(expr)], sources[id(expr)] = chosen[id(expr)], frozenset({id(expr)})
            continue
        passes = op_name(expr) not in JOINTS or (id(expr) in read and all(key in joined for key in origin))
        carried = _carried(expr, wide, merged) if parts and passes else None
        if carried is not None:
            wide[id(expr)], sources[id(expr)] = carried, origin
    return wide, sources


def _read_by_convolutions(calls: Sequence[Call]) -> set[int]:
    """Ids of the values that reach a convolution, itself or through calls that keep channels."""
    read: set[int] = set()
    for expr in reversed(calls):
        if absorbs(expr) or (id(expr) in read and is_carrier(expr)):
            read.update(id(a) for a in flat_arguments(expr))
    return read


def is_carrier(expr: Call) -> bool:
    """Whether its result has the channels of its data, or of its parts."""
    return op_name(expr) in _CARRIERS or is_depthwise(expr)


def sliced_reads(expr: Expr, wide: Mapping[int, Channels]) -> list[Expr]:
    """The wide values of which an expression reads a slice."""
    if isinstance(expr, Call):
        read = [a for a in flat_arguments(expr) if id(a) in wide and wide[id(a)].added]
        if id(expr) in wide and (op_name(expr) not in CHANNEL_AXES or expr.attrs.groups > 1):
            return []
        return [] if read and absorbs(expr) else read
    left = [expr.body] if isinstance(expr, Function) else [*getattr(expr, "fields", ())]
    return [e for e in left if id(e) in wide and wide[id(e)].added]


def _is_small(expr: Expr) -> bool:
    """1x1 images: a slice of them costs nothing."""
    shape = shape_of(expr)
    return shape is not None and all(d == 1 for d in shape[2:])


def _is_nchw(call: Call) -> bool:
    attrs = call.attrs
    texts = [getattr(attrs, name, "") for name in ("layout", "data_layout", "out_layout")]
    return all(text in ("", "NCHW") for text in texts) and getattr(attrs, "kernel_layout", "OIHW") == "OIHW"


def _carried(expr: Call, wide: Mapping[int, Channels], merged: Callable[[Call], int]) -> Channels | None:
    """The channels of the result if the call of a wide value may itself be wide."""
    name, result = op_name(expr), shape_of(expr)
    if result is None or len(result) != 4 or not isinstance(result[1], int) or not _is_nchw(expr):
        return None
    if name == "concatenate":
        return _joined(expr, wide)
    data = wide.get(id(expr.args[0])) if expr.args else None
    if name in _BINARY:
        return _carried_binary(expr, wide)
    if data is None:
        return None
    if name == "strided_slice":
        return _cut(expr, data)
    if name in _REDUCTIONS:
        is_image = bool(expr.attrs.keepdims) and not expr.attrs.exclude and _axes(expr) == (2, 3)
        return data if is_image else None
    if name == "take":  # a resize, along the image
        is_image = expr.attrs.axis is not None and expr.attrs.axis % 4 >= 2 and not expr.attrs.batch_dims
        return data if is_image else None
    return data if name in _PER_CHANNEL or is_depthwise(expr) or _completes(expr, data, merged(expr)) else None


def _completes(expr: Call, data: Channels, merged: int) -> bool:
    """Whether what is added to the data of a convolution is whole groups, and makes so many that they merge."""
    if merged == 1:
        return False
    size = data.real // expr.attrs.groups
    return data.width % (size * merged) == 0 and not any(n % size for run in data.runs for n in run)


def _joined(expr: Call, wide: Mapping[int, Channels]) -> Channels | None:
    """Of a concatenation along channels of which a part is wide: the runs of all parts."""
    parts = flat_arguments(expr)
    channels = [shape[1] for a in parts if (shape := shape_of(a)) is not None]
    known = [n for n in channels if isinstance(n, int)]
    if expr.attrs.axis % 4 != 1 or not any(id(a) in wide for a in parts) or len(known) != len(parts):
        return None
    runs = (wide[id(a)].runs if id(a) in wide else ((n, 0),) for a, n in zip(parts, known, strict=True))
    return Channels(sum(runs, ())).merged()


def channel_slice(expr: Call) -> tuple[int, int] | None:
    """First channel and number of channels of a slice along channels alone."""
    data = shape_of(expr.args[0])
    if data is None or len(data) != 4:
        return None
    plan = slices(expr.attrs, data)
    rest = [part for axis, part in enumerate(plan) if axis != 1]
    is_whole = rest == [(0, 1, size) for axis, size in enumerate(data) if axis != 1]
    start, step, count = plan[1]
    is_run = is_whole and step == 1
    return (start, count) if is_run and isinstance(start, int) and isinstance(count, int) else None


def _cut(expr: Call, data: Channels) -> Channels | None:
    part = channel_slice(expr)
    return None if part is None else data.cut(*part)


def _axes(call: Call) -> tuple[int, ...]:
    axis = call.attrs.axis
    return tuple(sorted(a % 4 for a in axis)) if isinstance(axis, tuple | list) else ()


def _carried_binary(call: Call, wide: Mapping[int, Channels]) -> Channels | None:
    """Each operand has the same channels, or one for all, or is a constant per channel."""
    sources = {wide[id(a)] for a in call.args if id(a) in wide}
    shape = shape_of(call)
    if len(sources) != 1 or shape is None:
        return None
    channels = shape[1]
    for arg in call.args:
        of = shape_of(arg)
        if of is None:
            return None
        size = of[-3] if len(of) >= 3 else 1
        fits = id(arg) in wide and size == channels
        if not fits and size != 1 and not isinstance(arg, Constant):
            return None
    return sources.pop()


def is_depthwise(call: Call) -> bool:
    """Whether it is a convolution of each channel by itself, with constant weights."""
    if op_name(call) != "nn.conv2d" or not isinstance(call.args[1], Constant):
        return False
    weight = call.args[1]
    return bool(call.attrs.groups == weight.held.shape[0] and weight.held.shape[1] == 1)


def absorbs(call: Call) -> bool:
    """Whether it can ignore added channels of its data: an ordinary convolution with constant weights."""
    if op_name(call) not in CHANNEL_AXES or not isinstance(call.args[1], Constant):
        return False
    attrs = call.attrs
    kernel = "OIHW" if op_name(call) == "nn.conv2d" else "IOHW"
    plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == kernel and attrs.out_layout in ("", "NCHW")
    return bool(attrs.groups == 1 and plain)


def widen(function: Function, wide: Mapping[int, Channels]) -> Expr:
    """The function with the values of `wide` carrying more channels."""
    return _Widener(wide).run(function)


class _Widener:
    """Rebuilds each value: its plain form, its wide form, or both where both are read."""

    def __init__(self, channels: Mapping[int, Channels]) -> None:
        self.channels = channels
        self.plain: dict[int, Expr] = {}
        self.wide: dict[int, Expr] = {}

    def run(self, function: Function) -> Expr:
        for expr in post_order(function, not_primitive):
            if isinstance(expr, Call) and id(expr) in self.channels:
                self.wide[id(expr)] = self._wide(expr)
            elif isinstance(expr, Call) and id(expr.args[0] if expr.args else expr) in self.wide and absorbs(expr):
                self.plain[id(expr)] = copy_type(self._absorbed(expr), expr)
            else:
                self.plain[id(expr)] = copy_type(map_children(expr, self._get), expr)
        return self._get(function)

    def _get(self, expr: Expr) -> Expr:
        """The value with its own channels."""
        if id(expr) not in self.plain and id(expr) in self.wide:
            self.plain[id(expr)] = self._without_added(expr)
        return self.plain.get(id(expr), expr)

    def _without_added(self, expr: Expr) -> Expr:
        wide, channels, shape = self.wide[id(expr)], self.channels[id(expr)], shape_of(expr)
        assert shape is not None, "wide values are tensors"
        if not channels.added:
            return wide
        n, _, *image = shape
        parts = [
            get_op("strided_slice")(wide, begin=[0, start, 0, 0], end=[n, start + count, *image])
            for start, count in channels.places
        ]
        return parts[0] if len(parts) == 1 else call("concatenate", parts, axis=1)

    def _absorbed(self, expr: Call) -> Call:
        data = expr.args[0]
        weight = _padded(expr.args[1], CHANNEL_AXES[op_name(expr)][1], self.channels[id(data)])
        return Call(expr.op, (self.wide[id(data)], weight), expr.attrs, expr.span)

    def _wide(self, expr: Call) -> Expr:
        channels = self.channels[id(expr)]
        if op_name(expr) in CHANNEL_AXES:
            return self._wide_convolution(expr, channels)
        if op_name(expr) == "concatenate":
            parts = tuple(self.wide.get(id(a)) or self._get(a) for a in flat_arguments(expr))
            return Call(expr.op, (Tuple(parts),), expr.attrs, expr.span)
        if op_name(expr) == "strided_slice":
            return self._wide_slice(expr, channels)
        args = [self._operand(a, expr, channels) for a in expr.args]
        return Call(expr.op, tuple(args), expr.attrs, expr.span)

    def _wide_slice(self, expr: Call, channels: Channels) -> Expr:
        data, part, shape = expr.args[0], channel_slice(expr), shape_of(expr)
        assert part is not None and shape is not None, "_cut asks for it"
        begin = self.channels[id(data)].cut(0, part[0]).width
        n, _, *image = shape
        end = [n, begin + channels.width, *image]
        return get_op("strided_slice")(self.wide[id(data)], begin=[0, begin, 0, 0], end=end)

    def _wide_convolution(self, expr: Call, channels: Channels) -> Call:
        data, weight = expr.args
        attrs = expr.attrs  # each operator has its own attrs class
        out_axis, in_axis = CHANNEL_AXES[op_name(expr)]
        changes = {"channels": channels.width}
        weight = _padded(weight, out_axis, channels)
        if attrs.groups > 1:
            groups = channels.width * attrs.groups // channels.real
            changed = dataclasses.replace(attrs, groups=groups, **changes)
            return Call(expr.op, (self.wide[id(data)], weight), changed, expr.span)
        source = self._get(data)
        if id(data) in self.wide:
            source, weight = self.wide[id(data)], _padded(weight, in_axis, self.channels[id(data)])
        return Call(expr.op, (source, weight), dataclasses.replace(attrs, **changes), expr.span)

    def _operand(self, arg: Expr, reader: Call, channels: Channels) -> Expr:
        if id(arg) in self.wide:
            return self.wide[id(arg)]
        shape = shape_of(arg)
        if isinstance(arg, Constant) and shape is not None and len(shape) >= 3:
            return _padded(arg, len(shape) - 3, channels) if shape[-3] != 1 else arg
        return self._get(arg)


def _padded(value: Expr, axis: int, channels: Channels) -> Constant:
    assert isinstance(value, Constant), "weights that are padded are constants"
    return Constant(channels.scattered(value.data, axis))
