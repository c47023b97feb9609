"""`instrument-bound-checkers`: check every access of a flat buffer before it is made; `remove-assert`: check nothing.

In: a lowered function. Out: each store (and loop-free statement) preceded by assertions that its indices lie inside
their buffers; or the function without its assertions. Invariant: a program without out-of-bounds accesses, whose
assertions hold, means the same. Accesses that an if_then_else guards are checked under its condition. Configuration:
`tir.instrument_bound_checkers`, `tir.disable_assert`.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.loop_pass import map_bottom_up, prim_pass, with_body
from armillary.transform import register_config_option

INSTRUMENT_BOUND_CHECKERS = register_config_option(
    "tir.instrument_bound_checkers", bool, False, "stop at the first access outside a buffer"
)
DISABLE_ASSERT = register_config_option("tir.disable_assert", bool, False, "compile without assertions")
Access = tuple[S.Buffer, tuple[E.Expr, ...], E.Expr]  # buffer, indices, condition under which it happens


def instrument_bound_checkers(func: S.PrimFunc) -> S.PrimFunc:
    """Assert that indices are in range.

    A[n] = 0.0  ->  assert n >= 0 && n < 64, "A: index out of bounds"  A[n] = 0.0
    """
    return with_body(func, _visit(func.body))


def _visit(item: S.Stmt) -> S.Stmt:
    mapped = map_stmt(item, lambda e: e, _visit)
    if not isinstance(mapped, S.BufferStore):
        return mapped
    result: S.Stmt = mapped
    always = build.const(True)
    for buffer, indices, guard in [*_accesses(mapped.value, always), (mapped.buffer, mapped.indices, always)]:
        for index, extent in zip(indices, buffer.shape, strict=True):
            inside = build.logical_or(build.logical_not(guard), _inside(index, extent))
            result = S.AssertStmt(inside, f"{buffer.name}: index out of bounds", result)
    return result


def _accesses(item: E.Expr, guard: E.Expr) -> Iterator[Access]:
    if isinstance(item, E.BufferLoad):
        yield item.buffer, item.indices, guard
    if isinstance(item, E.Call) and item.name == "if_then_else":
        yield from _accesses(item.args[0], guard)
        yield from _accesses(item.args[1], build.logical_and(guard, item.args[0]))
        yield from _accesses(item.args[2], build.logical_and(guard, build.logical_not(item.args[0])))
        return
    for name in item._fields:
        value = getattr(item, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, E.Expr) and not isinstance(item, E.Let):
                yield from _accesses(part, guard)


def _inside(index: E.Expr, extent: E.Expr) -> E.Expr:
    """Checks the ends of a vector index that is a ramp; other vectors are not checked."""
    if isinstance(index, E.Ramp) and index.base.dtype.lanes == 1:
        last = build.add(index.base, build.mul(index.stride, index.lanes - 1))
        return build.logical_and(_inside(index.base, extent), _inside(last, extent))
    if index.dtype.lanes > 1:
        return build.const(True)
    return build.logical_and(build.greater_equal(index, 0), build.less(index, extent))


def remove_assert(func: S.PrimFunc) -> S.PrimFunc:
    """Drop assertions.

    assert n < 3, "n is small"  A[0] = 0.0  ->  A[0] = 0.0
    """
    return with_body(func, map_bottom_up(func.body, lambda s: s.body if isinstance(s, S.AssertStmt) else s))


InstrumentBoundCheckers = prim_pass("instrument-bound-checkers", "tir.InstrumentBoundCheckers")(
    instrument_bound_checkers
)
RemoveAssert = prim_pass("remove-assert", "tir.RemoveAssert")(remove_assert)
