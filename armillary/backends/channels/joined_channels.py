"""Channels that meet in concatenations or are cut apart: which values share them, and rounding all of a group alike.

In: the calls of a function, arguments first. Out: groups of calls that elementwise operators, concatenations and slices
connect, where each value is cut, and `Channels` (wide_channels.py) of their convolutions with each part rounded up.
Invariant: one unit for a whole group; a run is cut where any slice in the group cuts it, so that slices take whole
blocks too. Who asks: pad-channels on CPUs, fill-channels for textures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from armillary.backends.channels.wide_channels import Channels, absorbs, channel_slice, is_carrier
from armillary.relay.expr import Call, Expr, shape_of
from armillary.relay.transform._rules import op_name
from armillary.relay.transform.layout._engine import flat_arguments

Cuts = dict[int, frozenset[int]]  # by id of a value: the channels at which parts of it begin


def channels_of(expr: Expr) -> int:
    """How many channels an image in NCHW has; 0 of anything else."""
    shape = shape_of(expr)
    return shape[1] if shape is not None and len(shape) == 4 and isinstance(shape[1], int) else 0


def _joined(expr: Call) -> list[tuple[Expr, int]]:
    """The arguments that share channels with the result of a carrier, and at which of its channels they begin."""
    if op_name(expr) == "concatenate":
        parts = flat_arguments(expr)
        starts = itertools.accumulate(map(channels_of, parts), initial=0)
        return list(zip(parts, starts, strict=False)) if expr.attrs.axis % 4 == 1 else []
    if op_name(expr) == "strided_slice":
        taken = channel_slice(expr)
        return [] if taken is None else [(expr.args[0], -taken[0])]
    data = expr.args[:1] if op_name(expr).startswith("nn.") or op_name(expr) == "take" else expr.args
    return [(a, 0) for a in data if channels_of(a) == channels_of(expr)]


def cuts_of(calls: Sequence[Call]) -> Cuts:
    """Where parts of each value begin and end, by producers and by readers."""
    cuts: Cuts = {}

    def add(value: Expr, more: set[int]) -> None:
        inside = {at for at in more if 0 < at < channels_of(value)}
        cuts[id(value)] = cuts.get(id(value), frozenset()) | inside

    for expr in calls:
        for arg, start in _joined(expr) if is_carrier(expr) else ():
            add(expr, {start, start + channels_of(arg), *(start + at for at in cuts.get(id(arg), ()))})
    for expr in reversed(calls):
        for arg, start in _joined(expr) if is_carrier(expr) else ():
            add(arg, {-start, channels_of(expr) - start, *(at - start for at in cuts.get(id(expr), ()))})
    return cuts


def groups_of(calls: Sequence[Call]) -> list[list[Call]]:
    """The calls whose results share channels with one another, where a concatenation or a slice is among them."""
    leader = {id(c): id(c) for c in calls}

    def root_of(key: int) -> int:
        while leader[key] != key:
            leader[key] = key = leader[leader[key]]
        return key

    joints: set[int] = set()
    for expr in calls:
        for arg, _ in _joined(expr) if is_carrier(expr) else ():
            if id(arg) in leader:
                leader[root_of(id(arg))] = root_of(id(expr))
    for expr in calls:
        if op_name(expr) in ("concatenate", "strided_slice") and _joined(expr):
            joints.add(root_of(id(expr)))
    groups: dict[int, list[Call]] = {key: [] for key in joints}
    for expr in calls:
        if root_of(id(expr)) in joints:
            groups[root_of(id(expr))].append(expr)
    return list(groups.values())


def parts_of(expr: Expr, cuts: Cuts) -> list[int]:
    """The lengths between the cuts of a value."""
    at = sorted({0, channels_of(expr), *cuts.get(id(expr), ())})
    return [end - start for start, end in itertools.pairwise(at)]


def rounded(members: Sequence[Call], cuts: Cuts, unit: int) -> dict[int, Channels]:
    """The convolutions with each part a multiple of `unit`; those that already are so are left out."""
    result = {}
    for expr in members:
        if not absorbs(expr):
            continue
        runs = tuple((part, -part % unit) for part in parts_of(expr, cuts))
        if any(added for _, added in runs):
            result[id(expr)] = Channels(runs).merged()
    return result
