"""Channel shuffles in blocked layouts: reshape, transpose, reshape, done on blocks instead of on plain channels.

In: the last reshape of `reshape(transpose(reshape(x, (n, g, k, h, w)), (0, 2, 1, 3, 4)), (n, c, h, w))`, and the layout
of x. Out: the same permutation from NCHW{b}c to NCHW{m*g}c, as one reshape, transpose and reshape. Invariant: element
for element the same tensor as in the plain layout. Used by layout/_rules.py; found by `shuffle_source`.
"""

from __future__ import annotations

from collections.abc import Sequence

from armillary.base.data_layout import layout
from armillary.base.record import record
from armillary.ops.nn._windows import reshape_to
from armillary.relay.expr import Call, Expr
from armillary.relay.transform._rules import tensor, transposed
from armillary.relay.transform.layout._engine import Change, LayoutChoice, Request, shuffle_source


@record
class _Shuffle:
    """Channel `i * per_group + j` goes to `j * groups + i`."""

    shape: tuple[int, ...]
    groups: int
    per_group: int


def channel_shuffle(expr: Call, have: Sequence[Change | None], request: Request) -> LayoutChoice | None:
    """A shuffle of blocks gives blocks whose size is a multiple of the number of groups."""
    shuffle, change = _shuffle(expr), have[0]
    if shuffle is None or change is None or change.old.text != "NCHW" or not change.new.text.startswith("NCHW"):
        return None
    block = change.new.block("C")
    part = _part(shuffle, block, request.plan.common(expr, shuffle.shape[1]), request.lanes)
    if not part:
        return None
    n, c, h, w = shuffle.shape
    g, k = shuffle.groups, shuffle.per_group

    def build(args: Sequence[Expr]) -> Expr:
        split = reshape_to(args[0], (n, g, k // block, h, w, block // part, part))
        moved = transposed(split, (0, 2, 5, 3, 4, 6, 1))
        return reshape_to(moved, (n, c // (part * g), h, w, part * g))

    return LayoutChoice((change,), build, Change(change.old, layout(f"NCHW{part * g}c")))


def _shuffle(expr: Call) -> _Shuffle | None:
    source = shuffle_source(expr)
    ty = tensor(source) if source is not None else None
    split = tensor(expr.args[0].args[0]) if ty is not None else None  # type: ignore[attr-defined]
    return _Shuffle(ty.static, split.static[1], split.static[2]) if ty is not None and split is not None else None


def _part(shuffle: _Shuffle, block: int, common: int, lanes: int) -> int:
    """The largest divisor of the block that gives an output block which fits a vector and the consumers; 0: none."""
    if not block or shuffle.per_group % block:
        return 0
    channels = common if common >= 4 else shuffle.shape[1]
    sizes = (m for m in range(block, 0, -1) if block % m == 0 and 4 <= m * shuffle.groups <= lanes)
    return next((m for m in sizes if channels % (m * shuffle.groups) == 0), 0)
