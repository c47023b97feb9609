"""How operators follow the layouts of their inputs (see ops/layout/_inference.py for what a rule is asked).

In: an operator. Out: its rule, by `rule_of`. An operator's file states which one it has: `state("nn.max_pool2d",
follows=Follows.POOL)`. Convolutions, poolings and the like name their layouts, whatever comes in; elementwise operators
take any; broadcasts change the smaller operand as the larger one was; operators that name axes find them again.
Invariant: without a rule inputs are as they were.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from armillary.base.aliases import AnyFunction
from armillary.base.data_layout import Layout, layout
from armillary.ops.layout._inference import (
    CHANNELS,
    SCALAR,
    Attributes,
    Inferred,
    Known,
    Layouts,
    Rule,
    blocks_that_fit,
    changed_alike,
    field_types,
    from_parts,
    last,
    place,
    shape_of,
)
from armillary.ops.shape.slice import filled
from armillary.relay.op import LEGALIZE_RULES, Kind, Op
from armillary.relay.op.facts import Follows
from armillary.relay.types import Dim, Type

Limit = int | None
Cut = tuple[Limit, Limit, int]
INFER_KEY = "FInferCorrectLayout"
_ROIS = Layout("N5", (("N", 0), ("5", 0)))
_PLACES = frozenset({"axis", "axes", "shape", "newshape", "layout", "data_layout"})


def rule_of(op: Op) -> Rule | None:
    """The rule of an operator: one that a user registered, that of how it follows layouts, or that of its kind."""
    registered = LEGALIZE_RULES.get(INFER_KEY, {}).get(op.name)
    if registered is not None:
        return _as_rule(registered[1])
    if op.layout_follows in RULES:
        return RULES[op.layout_follows]
    names = {f.name for f in dataclasses.fields(op.attrs_class)} if op.attrs_class is not None else set()
    if names & _PLACES:
        return None
    if op.kind == Kind.ELEMENTWISE and len(op.inputs) == 1 and not op.variadic:
        return any_layout
    return broadcast if op.kind == Kind.BROADCAST and len(op.inputs) == 2 and not op.variadic else None


def _as_rule(function: AnyFunction) -> Rule:
    """What a user registered, as a rule: it gives what has `input_layouts`, `output_layouts` and `new_attrs`."""

    def known(item: object) -> Known:
        text = str(item)
        return None if item is None or text in ("", "__undef__") else layout(text)

    def rule(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
        inferred = function(attrs, [] if new is None else list(new), list(old), list(types))
        if inferred is None:
            return None
        inputs, outputs = (tuple(map(known, side)) for side in (inferred.input_layouts, inferred.output_layouts))
        return Inferred(inputs, outputs, inferred.new_attrs)

    return rule


def any_layout(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Elements are where they were: the layout of the first input."""
    known = new[0] if new is not None else next((one for one in old if one is not None), None)
    return Inferred((known,) * len(old), (known,), attrs)


def broadcast(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """The layout of the larger operand; the smaller one has the last of its axes, and changes as it does."""
    shapes = [shape_of(ty) for ty in types[:2]]
    larger = 0 if len(shapes[0]) >= len(shapes[1]) else 1
    sides = list(old[:2])
    if sides == [None, None]:
        return None
    if None in sides:
        unknown = sides.index(None)
        side = sides[1 - unknown]
        if side is None or len(shapes[1 - unknown]) < len(shapes[unknown]) or len(side.parts) < len(shapes[unknown]):
            return None
        sides[unknown] = last(side, len(shapes[unknown]))
        output: Known = side
    else:
        output = sides[larger]
    if new is None or None in (*sides, *new[:2]):
        return Inferred(tuple(sides), (output,), attrs) if new is None else None
    return _broadcast_again(attrs, new, sides, shapes, larger)


def _broadcast_again(
    attrs: Attributes, new: Layouts, sides: list[Known], shapes: Sequence[tuple[Dim, ...]], larger: int
) -> Inferred | None:
    leads = 0 if len(_whole(new[0])) >= len(_whole(new[1])) else 1
    other = 1 - leads
    before, after, small = sides[leads], new[leads], sides[other]
    if before is None or after is None or small is None:
        return None
    target = changed_alike(small, before, after)
    fitted = None if target is None else blocks_that_fit(target, small, shapes[other])
    if fitted is None:
        return None
    pair = (after, fitted) if leads == 0 else (fitted, after)
    return Inferred(pair, (new[larger],), attrs)


def _whole(item: Known) -> str:
    return "" if item is None else item.whole


def contraction(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Convolutions say in which layouts they read and give; what else they read goes with channels."""
    wanted = (layout(attrs.data_layout), layout(attrs.kernel_layout))
    rest = (CHANNELS,) * (len(old) - 2)
    return Inferred((*wanted, *rest), (layout(attrs.out_layout or attrs.data_layout),), attrs)


def deformable(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Data, the offsets of its pixels in the same layout, and a kernel."""
    data = layout(attrs.data_layout)
    return Inferred((data, data, layout(attrs.kernel_layout)), (layout(attrs.out_layout or data.text),), attrs)


def dense(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Rows of a dense layer lie together, as do its weights."""
    weight = layout(getattr(attrs, "weight_layout", "NC"))
    rest = (CHANNELS,) * (len(old) - 2)
    return Inferred((layout("NC"), weight, *rest), (layout("NC"),), attrs)


def pool(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Poolings follow where rows and columns stay whole, unless they say what they give."""
    if attrs.out_layout:
        pair = layout(attrs.layout), layout(attrs.out_layout)
    else:
        pair = (_followed(attrs.layout, new, moves=True),) * 2
        attrs = dataclasses.replace(attrs, layout=pair[0].text)
    return Inferred((pair[0], *(CHANNELS,) * (len(old) - 1)), (pair[1],), attrs)


def _followed(own: str, new: Layouts | None, *, moves: bool) -> Layout:
    """The layout that comes in, where its image is whole; `moves`: wherever that lies."""
    result = new[0] if new else None
    mine = layout(own)
    image = [letter for letter in mine.whole if letter not in "NC"]
    if result is None or any(letter not in result.axes or letter.lower() in result.axes for letter in image):
        return mine
    if not moves and any(place(result, letter) != place(mine, letter) for letter in image):
        return mine
    return result


def upsampling(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Enlarging follows where rows and columns stay in place."""
    followed = _followed(attrs.layout, new, moves=False)
    return Inferred((followed,), (followed,), dataclasses.replace(attrs, layout=followed.text))


def resize(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Resizing follows where axes are in another order."""
    own = layout(attrs.layout or {3: "NCW", 4: "NCHW", 5: "NCDHW"}.get(len(shape_of(types[0])), "NCHW"))
    wanted = new[0] if new else None
    follows = wanted is not None and own == old[0] and len(wanted.parts) == len(own.parts)
    own = wanted if follows and wanted is not None else own
    return Inferred((own,), (own,), dataclasses.replace(attrs, layout=own.text))


def regions(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Images in the layout that is told, and regions of them."""
    own = layout(attrs.layout)
    return Inferred((own, _ROIS), (own,), attrs)


# --- operators that name axes ---------------------------------------------------------------------------------------


def _axis(attrs: Attributes, new: Layouts | None, old: Layouts, rank: int) -> tuple[Known, Attributes]:
    """The layout of the data, and the attributes with `axis` where it lies there."""
    first = old[0]
    if new is None or new[0] is None or first is None:
        return first, attrs
    at = place(new[0], first.axes[attrs.axis % rank])
    return (None, attrs) if at is None else (new[0], dataclasses.replace(attrs, axis=at))


def normalization(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Data, and vectors along one of its axes. Of blocks the axis is the outer part, so those are refused."""
    followed, moved = _axis(attrs, new, old, len(shape_of(types[0])))
    if (
        followed is not None
        and followed.is_blocked
        and followed.axes[moved.axis % len(followed.parts)].lower() in followed.axes
    ):
        return None
    return Inferred((followed, *(CHANNELS,) * (len(old) - 1)), (followed,), moved)


def batch_norm(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """A normalisation that gives the moments as well."""
    followed = normalization(attrs, new, old, types)
    return (
        None if followed is None else Inferred(followed.inputs, (*followed.outputs, CHANNELS, CHANNELS), followed.attrs)
    )


def keeps(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """The data as it was, and vectors."""
    return Inferred((old[0], *(CHANNELS,) * (len(old) - 1)), (old[0],), attrs)


def requantize(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Along an axis that is whole; scales that are numbers follow any layout."""
    is_scalar = all(shape_of(ty) == () for ty in types[1:3])
    if new is not None and is_scalar and new[0] is not None:
        return Inferred((new[0], *(CHANNELS,) * 4), (new[0],), _axis(attrs, new, old, len(shape_of(types[0])))[1])
    return normalization(attrs, new, old, types)


def concatenate(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """All inputs in one layout: the new one if they agree on it, else what they had. Scales are along channels."""
    fields = len(field_types(types[:1]))
    rest = (CHANNELS,) * (len(old) - fields)
    rank = len(shape_of(field_types(types[:1])[0]))
    first = old[0]
    if new is not None and first is not None and all(one == new[0] for one in new[:fields]) and new[0] is not None:
        at = place(new[0], first.axes[attrs.axis % rank])
        if at is not None:
            return Inferred((new[0],) * fields + rest, (new[0],), dataclasses.replace(attrs, axis=at))
    known = next((one for one in old[:fields] if one is not None), None)
    if known is None or len(known.parts) <= attrs.axis % rank or known.axes[attrs.axis % rank].islower():
        return None
    return Inferred((known,) * fields + rest, (known,), attrs)


def split(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Parts along an axis; along one in blocks, by whole blocks."""
    rank = len(shape_of(types[0]))
    cuts = attrs.indices_or_sections
    count = cuts if isinstance(cuts, int) else len(cuts) + 1
    followed, moved = _axis(attrs, new, old, rank)
    if followed is None:
        return None
    block = followed.block(followed.axes[moved.axis % len(followed.parts)]) if new is not None else 0
    if block:
        sizes = [shape_of(types[0])[attrs.axis % rank] // cuts] if isinstance(cuts, int) else list(cuts)
        if any(size % block for size in sizes):
            followed, moved = old[0], attrs
        elif not isinstance(cuts, int):
            moved = dataclasses.replace(moved, indices_or_sections=tuple(cut // block for cut in cuts))
    return Inferred((followed,), (followed,) * count, moved)


def topk(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """The largest along an axis, wherever it lies."""
    followed, moved = _axis(attrs, new, old, len(shape_of(types[0])))
    return Inferred((followed,), (followed,) * (2 if attrs.ret_type == "both" else 1), moved)


def l2_normalize(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Over the same axes, where they are whole."""
    first, wanted = old[0], new[0] if new is not None else None
    if wanted is None or first is None or attrs.axis is None:
        return Inferred((first,), (first,), attrs)
    moved = [place(wanted, first.axes[axis % len(first.parts)]) for axis in attrs.axis]
    if None in moved or wanted.is_blocked:
        return None
    return Inferred((wanted,), (wanted,), dataclasses.replace(attrs, axis=tuple(moved)))


def transpose(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """The same axes in the order asked for, wherever they lie."""
    first = old[0]
    if first is None or first.is_blocked:
        return None
    rank = len(first.parts)
    axes = tuple(axis % rank for axis in attrs.axes) if attrs.axes else tuple(range(rank))[::-1]
    output = from_parts([first.parts[axis] for axis in axes])
    wanted = new[0] if new is not None else None
    if wanted is None or sorted(wanted.axes) != sorted(first.axes):
        return Inferred((first,), (output,), dataclasses.replace(attrs, axes=axes))
    moved = tuple(wanted.axes.index(first.axes[axis]) for axis in axes)
    return Inferred((wanted,), (output,), dataclasses.replace(attrs, axes=moved))


def squeeze(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Axes of one, and the blocks of one into which they fell, are left out."""
    first = old[0]
    if first is None:
        return Inferred((None,), (None,), attrs)
    shape = shape_of(types[0])
    squeezed = range(len(shape)) if attrs.axis is None else attrs.axis
    axes = [axis % len(shape) for axis in squeezed if attrs.axis is not None or shape[axis] == 1]
    wanted = new[0] if new is not None and new[0] is not None else first
    moved = [place(wanted, first.axes[axis]) for axis in axes]
    if None in moved:
        return None
    output = from_parts([part for at, part in enumerate(wanted.parts) if at not in moved])
    changed = attrs if new is None else dataclasses.replace(attrs, axis=tuple(moved))
    return None if output is None else Inferred((wanted,), (output,), changed)


def slice_like(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred:
    """Two tensors of one layout follow together, where axes are named."""
    pair = None if new is None else (new[0], new[1])
    if pair and attrs.axes and pair[0] is not None and pair[0] == pair[1] and old[0] is not None and old[0] == old[1]:
        moved = [place(pair[0], old[0].axes[axis]) for axis in attrs.axes]
        if None not in moved:
            return Inferred(pair, (pair[0],), dataclasses.replace(attrs, axes=tuple(moved)))
    return Inferred((old[0], old[1]), (old[1],), attrs)


def strided_slice(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """The same cuts along the same axes; of blocks, whole ones."""
    first, wanted = old[0], new[0] if new is not None else None
    if first is None or wanted is None or wanted == first:
        return Inferred((first,), (first,), attrs)
    shape = shape_of(types[0])
    attrs = filled(attrs) if wanted.is_blocked else _every_axis(attrs, shape)
    axes = tuple(range(len(attrs.begin))) if attrs.axes is None else attrs.axes
    steps = attrs.strides or (1,) * len(axes)
    cuts: dict[int, Cut] = {}
    for axis, begin, end, step in zip(axes, attrs.begin, attrs.end, (*steps, *(1,) * len(axes)), strict=False):
        letter = first.axes[axis % len(first.parts)]
        at, block = place(wanted, letter), wanted.block(letter)
        if at is None or letter.lower() in first.axes:
            return None
        if block and not first.block(letter):
            span = _in_blocks(begin, end, step, shape[axis % len(shape)], block, attrs.slice_mode)
            if span is None:
                return None
            begin, end, step = span
        cuts[at] = (begin, end, step)
    return Inferred((wanted,), (wanted,), _cut(attrs, cuts, wanted))


def _every_axis(attrs: Attributes, shape: Sequence[Dim]) -> Attributes:
    """Cuts of the first axes as cuts of all, so that they can be in another order."""
    attrs = filled(attrs)
    count = len(attrs.begin)
    if attrs.axes is not None or count > len(shape):
        return attrs
    begin = tuple(0 if at is None else at for at in attrs.begin) + (0,) * (len(shape) - count)
    rest = tuple(-1 if attrs.slice_mode == "size" else size for size in shape)
    end = tuple(rest[at] if stop is None else stop for at, stop in enumerate(attrs.end)) + rest[count:]
    all_strides: tuple[int, ...] | None = attrs.strides
    strides = all_strides * count if all_strides is not None and len(all_strides) == 1 else all_strides
    every = None if strides is None else strides + (1,) * (len(shape) - count)
    return dataclasses.replace(attrs, begin=begin, end=end, strides=every)


def _in_blocks(begin: Limit, end: Limit, step: int, size: Dim, block: int, mode: str) -> tuple[int, int, int] | None:
    """A cut in blocks, where it is along whole ones."""
    if step != 1 or not isinstance(size, int):
        return None
    begin = 0 if begin is None else begin
    stop = size if end is None or (mode == "size" and end < 0) else begin + end if mode == "size" else end
    if begin % block or stop % block or begin < 0 or stop < 0:
        return None
    return begin // block, (stop - begin if mode == "size" else stop) // block, 1


def _cut(attrs: Attributes, cuts: dict[int, Cut], layout: Layout) -> Attributes:
    """The attributes with cuts by axis: with names of axes where there were some, else from the first axis on."""
    if attrs.axes is not None:
        order = list(cuts)
        steps = tuple(cuts[at][2] for at in order) if attrs.strides is not None else None
        begins, ends = (tuple(cuts[at][side] for at in order) for side in (0, 1))
        return dataclasses.replace(attrs, begin=begins, end=ends, strides=steps, axes=tuple(order))
    is_dense = sorted(cuts) == list(range(len(cuts)))
    order = list(range(len(cuts))) if is_dense else sorted(cuts)
    begins, ends = (tuple(cuts[at][side] for at in order) for side in (0, 1))
    retained = tuple(cuts[at][2] for at in order) if attrs.strides is not None else None
    return dataclasses.replace(attrs, begin=begins, end=ends, strides=retained, axes=None if is_dense else tuple(order))


def reduction(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Over the same axes, and the blocks into which they fell; those are 1 long where axes are kept."""
    first = old[0]
    if first is None:
        return Inferred((None,) * len(old), (None,), attrs)
    rank = len(first.parts)
    axes = attrs.axis if attrs.axis is not None else tuple(range(rank))
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    named = {first.axes[axis % rank] for axis in axes}
    gone = set(first.whole) - named if attrs.exclude and attrs.axis is not None else named
    wanted = new[0] if new is not None and new[0] is not None and gone else first
    retained: list[tuple[str, int]] = []
    for letter, size in wanted.parts:
        if letter.upper() not in gone:
            retained.append((letter, size))
        elif attrs.keepdims:
            retained.append((letter, 1 if size else 0))
    output = from_parts(retained)
    if new is None or not gone or attrs.axis is None:
        return Inferred((wanted,) * len(old), (output,), attrs)
    message = set(named) if attrs.exclude else gone
    moved = tuple(at for at, (letter, _) in enumerate(wanted.parts) if letter.upper() in message)
    return Inferred((wanted,) * len(old), (output,), dataclasses.replace(attrs, axis=moved))


def pad(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Axes that are whole take their margins along; one in blocks has none."""
    first, wanted = old[0], new[0] if new is not None else None
    value = (SCALAR,) * (len(old) - 1)
    if first is None or wanted is None or len(attrs.pad_width) != len(first.parts):
        return Inferred((first, *value), (first,), attrs)
    width = dict(zip(first.axes, attrs.pad_width, strict=True))
    moved = []
    for letter, size in wanted.parts:
        margins = width.get(letter if not size else letter.upper())
        if margins is None or (size and tuple(margins) != (0, 0)):
            return Inferred((first, *value), (first,), attrs)
        moved.append(margins)
    return Inferred((wanted, *value), (wanted,), dataclasses.replace(attrs, pad_width=tuple(moved)))


def qnn_binary(attrs: Attributes, new: Layouts | None, old: Layouts, types: Sequence[Type]) -> Inferred | None:
    """Like other binary operators, with scales and zero points along channels."""
    inferred = broadcast(attrs, None if new is None else new[:2], old[:2], types[:2])
    if inferred is None:
        return None
    return Inferred((*inferred.inputs, *(CHANNELS,) * (len(old) - 2)), inferred.outputs, inferred.attrs)


RULES: dict[Follows, Rule] = {
    Follows.ANY: any_layout,
    Follows.ASKED: contraction,
    Follows.DEFORMABLE: deformable,
    Follows.ROWS: dense,
    Follows.POOL: pool,
    Follows.QUANTIZED_POOL: pool,
    Follows.ENLARGED: upsampling,
    Follows.RESIZED: resize,
    Follows.REGIONS: regions,
    Follows.AXIS: normalization,
    Follows.NORMALIZED: normalization,
    Follows.BATCH_NORM: batch_norm,
    Follows.REQUANTIZED: requantize,
    Follows.QUANTIZED_BINARY: qnn_binary,
    Follows.STAYS: keeps,
    Follows.LENGTH: l2_normalize,
    Follows.JOIN: concatenate,
    Follows.QUANTIZED_JOIN: concatenate,
    Follows.SPLIT: split,
    Follows.TOPK: topk,
    Follows.TRANSPOSE: transpose,
    Follows.SQUEEZE: squeeze,
    Follows.PAD: pad,
    Follows.SLICE: strided_slice,
    Follows.SLICE_LIKE: slice_like,
    Follows.REDUCTION: reduction,
    Follows.STATISTIC: reduction,
}
