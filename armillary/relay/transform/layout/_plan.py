"""Which block sizes suit the producers and the consumers of a tensor: looked up before any layout changes.

In: a function and the lanes of the target's vectors. Out: a `BlockPlan`: for each tensor, a number that its block of
channels should divide (`PLAIN`: a reader wants none), and the poolings that should start a blocked layout. Invariant:
the plan only advises; the rules still check each choice. Forward, `limit` collects what the producers of a sum can all
give; backward, `need` what every consumer can take without a conversion (a grouped convolution: channels per group; a
concatenation: each part). The rules that ask: layout/_rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from armillary.base.data_layout import choose_block
from armillary.ops.shape.slice import slices
from armillary.relay.expr import Call, Constant, Expr, Function, shape_of, typical_of
from armillary.relay.op import Kind, Op
from armillary.relay.op.facts import Follows
from armillary.relay.transform.layout._engine import BlockPlan, flat_arguments, shuffle_source
from armillary.relay.types import TensorType
from armillary.relay.walk import not_primitive, post_order

PLAIN = 1  # asked for by a convolution that is best computed in NCHW
MIN_VECTORS = 8  # of a plain image: fewer are too ragged
FEW_OF_A_LINE = 4  # output channels of an image of one row; of a larger one, a single channel
_POOLS = ("nn.max_pool2d", "nn.avg_pool2d")
_FOLLOWING = (Follows.PAD, Follows.TAKE, Follows.REDUCTION)


def plan_blocks(function: Function, lanes: int, sliced: int = 0) -> BlockPlan:
    """Look at every call of a function, forward and backward; `sliced`: the least block that a slice may ask for."""
    sliced = sliced or -(-lanes // 2)
    calls = [e for e in post_order(function, not_primitive) if isinstance(e, Call) and isinstance(e.op, Op)]
    limit: dict[int, int] = {}
    for call in calls:
        limit[id(call)] = _limit(call, limit)
    need: dict[int, int] = {}
    feeds_blocked: set[int] = set()
    for call in reversed(calls):
        asked = (need.get(id(call), 0), limit[id(call)])
        wanted = PLAIN if stays_plain(call, lanes) else _demand(call, *asked, lanes, sliced)
        for arg in flat_arguments(call)[: _data_inputs(call)]:
            need[id(arg)] = math.gcd(need.get(id(arg), 0), wanted)
        if _is_conv2d(call) and isinstance(call.args[1], Constant):
            feeds_blocked.add(id(call.args[0]))
    starts = (c for c in calls if _keeps_size(c) and id(c.args[0]) in feeds_blocked and id(c) in feeds_blocked)
    plain = (c for c in calls if _strides(c) and PLAIN in (need.get(id(c)), need.get(id(c.args[0]))))
    return BlockPlan(need, frozenset(map(id, (*starts, *plain))))


def stays_plain(call: Call, lanes: int) -> bool:
    """Whether few output channels, or groups that only small blocks divide, fill vectors worse than images do."""
    if not _is_conv2d(call):
        return False
    shape = typical_of(call)
    if shape is None or math.prod(shape.static[2:]) < MIN_VECTORS * lanes:
        return False
    if call.attrs.groups == 1:
        return bool(shape.static[1] <= (FEW_OF_A_LINE if shape.static[2] == 1 else 1))
    if 1 in _per_group(call):
        return False
    _, outside = _per_group(call)
    return choose_block(outside, lanes) * 2 < lanes


def _is_conv2d(call: Call) -> bool:
    return bool(call.op.name == "nn.conv2d")


def _keeps_size(call: Call) -> bool:
    """A pooling of stride 1, whose input its neighbours want blocked anyway."""
    return call.op.name in _POOLS and all(s == 1 for s in call.attrs.strides)


def _strides(call: Call) -> bool:
    """A pooling that skips elements, which costs more than two copies where vectors lie along the image."""
    return call.op.name in _POOLS and any(s != 1 for s in call.attrs.strides)


def _channels(expr: Expr) -> int:
    ty = expr.checked_type
    if not isinstance(ty, TensorType) or ty.ndim != 4 or not isinstance(ty.shape[1], int):
        return 0
    return ty.shape[1]


def _data_inputs(call: Call) -> int | None:
    """How many of a call's tensors are data rather than weights; None: all."""
    return 1 if call.op.name.startswith("nn.") or call.op.layout_follows == Follows.TAKE else None


def _per_group(call: Call) -> tuple[int, int]:
    """Input and output channels of one group; 0 where unknown."""
    return _channels(call.args[0]) // call.attrs.groups, _channels(call) // call.attrs.groups


def _limit(call: Call, limit: dict[int, int]) -> int:
    """What the producers of a value can give as its block without a conversion (0: anything)."""
    if _is_conv2d(call):
        inside, outside = _per_group(call)
        return limit.get(id(call.args[0]), 0) if inside == 1 and call.attrs.groups > 1 else outside
    if call.op.layout_follows == Follows.JOIN:
        return math.gcd(*map(_channels, flat_arguments(call)))
    if shuffle_source(call) is not None:
        return _channels(call)
    if call.op.layout_follows == Follows.SLICE:
        return math.gcd(limit.get(id(call.args[0]), 0), *_cut(call))
    if not _follows(call):
        return 0
    parts: Sequence[Expr] = call.args
    return math.gcd(*(limit.get(id(a), 0) for a in parts if _channels(a) == _channels(call)), 0)


def _demand(call: Call, need: int, limit: int, lanes: int, sliced: int) -> int:
    """What a call asks of its data's block, given what is asked of its own."""
    if _is_conv2d(call):
        inside, _ = _per_group(call)
        depthwise = call.attrs.groups > 1 and inside == 1
        return need if depthwise else 0 if call.attrs.groups == 1 else inside
    if call.op.layout_follows == Follows.JOIN:
        wanted = math.gcd(need, limit)
        return 0 if _is_odd(wanted, lanes) else wanted
    if call.op.layout_follows == Follows.SLICE:
        shape = shape_of(call)
        if shape is not None and all(d == 1 for d in shape[2:]):
            return 0  # 1x1 images are copied at no cost
        wanted = math.gcd(need, *_cut(call))
        # to compute by whole vectors is worth more than one copy less
        return wanted if choose_block(wanted, lanes) >= sliced and not _is_odd(wanted, lanes) else 0
    if call.op.kind == Kind.BROADCAST:
        return math.gcd(need, limit)
    return need if _follows(call) else 0


def _is_odd(wanted: int, lanes: int) -> bool:
    """Whether the block is no power of two (9 or 6 for 18 channels): it costs each convolution more than one copy."""
    block = choose_block(wanted, lanes)
    return block & (block - 1) != 0


def _cut(call: Call) -> tuple[int, ...]:
    """First channel and number of channels of a slice."""
    data = call.args[0].checked_type
    if not _channels(call.args[0]) or not isinstance(data, TensorType):
        return (1,)
    start, step, count = slices(call.attrs, data.shape)[1]
    return (start, count) if step == 1 and isinstance(count, int) and isinstance(start, int) else (1,)


def _follows(call: Call) -> bool:
    kind: Kind = call.op.kind
    return kind <= Kind.BROADCAST or "pool2d" in call.op.name or call.op.layout_follows in _FOLLOWING
