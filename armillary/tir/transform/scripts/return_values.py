"""`return-values`: what a function returns by `ret` becomes an output of one element.

In: a function whose body evaluates `ret(value)`. Out: the same with one more parameter, a buffer of one element named
`RETURNED`, which gets the value; behind it nothing more is done. Invariant: all values that a function returns have one
dtype; a function without `ret` is returned as it is. The runtime knows the parameter by its name, makes the buffer and
gives its element back (`runtime/module.py`).
"""

from __future__ import annotations

from armillary.artifact import RETURNED
from armillary.base.node import post_order
from armillary.errors import TypeMismatch
from armillary.tir import build
from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.substitute import map_stmt
from armillary.tir.transform.loop_pass import prim_pass


def return_values(func: S.PrimFunc) -> S.PrimFunc:
    """Store what is returned.

    eval ret(1.0)  ->  returned[0] = 1.0
    """
    values = [e.args[0] for e in post_order(func.body) if isinstance(e, E.Call) and e.name == "ret"]
    if not values:
        return func
    if len({v.dtype for v in values}) > 1:
        kinds = ", ".join(sorted({str(v.dtype) for v in values}))
        raise TypeMismatch(f"a function returns values of several types: {kinds}", hint="cast them to one")
    result = S.Buffer(RETURNED, (E.IntImm(E.INT32, 1),), values[0].dtype)
    body = _Returns(result).function(func.body)
    rebuilt = S.PrimFunc((*func.params, result), body, func.attrs)
    shapes = func.get_attr("tensor_shapes")
    if shapes is None:
        return rebuilt
    lowered: S.PrimFunc = rebuilt.with_attr("tensor_shapes", (*shapes, result.shape))
    return lowered


class _Returns:
    """Rewrites a body; `flag` says whether the function has returned, where anything stands behind a `ret`."""

    def __init__(self, result: S.Buffer) -> None:
        self.result = result
        self.flag = S.Buffer("has_returned", (E.IntImm(E.INT32, 1),), E.INT32)
        self.needs_flag = False

    def function(self, body: S.Stmt) -> S.Stmt:
        result, _ = self.stmt(body, is_last=True)
        if not self.needs_flag:
            return result
        return S.Allocate(self.flag, S.seq(self.set_flag(0), result))

    def set_flag(self, value: int) -> S.Stmt:
        return S.BufferStore(self.flag, build.int32(value), (build.int32(0),))

    def unless_returned(self, body: S.Stmt) -> S.Stmt:
        self.needs_flag = True
        return S.IfThenElse(build.equal(E.BufferLoad(self.flag, (build.int32(0),)), 0), body)

    def stmt(self, item: S.Stmt, is_last: bool) -> tuple[S.Stmt, bool]:
        """A statement, and whether the function may return in it; `is_last`: nothing runs behind it."""
        if isinstance(item, S.Evaluate):
            return self.evaluate(item, is_last)
        if isinstance(item, S.SeqStmt):
            return self.sequence(item, is_last)
        has_return: list[bool] = []

        def inner(part: S.Stmt) -> S.Stmt:
            result, returns = self.stmt(part, is_last and not isinstance(item, S.For))
            has_return.append(returns)
            return self.unless_returned(result) if returns and isinstance(item, S.For) else result

        return map_stmt(item, lambda e: e, inner), any(has_return)

    def evaluate(self, item: S.Evaluate, is_last: bool) -> tuple[S.Stmt, bool]:
        value = item.value
        if not isinstance(value, E.Call) or value.name != "ret":
            return item, False
        store = S.BufferStore(self.result, value.args[0], (build.int32(0),))
        if is_last:
            return store, True
        self.needs_flag = True
        return S.seq(store, self.set_flag(1)), True

    def sequence(self, item: S.SeqStmt, is_last: bool) -> tuple[S.Stmt, bool]:
        """Statements in order; what stands behind one that may return runs unless it did."""
        statements: list[S.Stmt] = []
        for number, part in enumerate(item.statements):
            rest = item.statements[number + 1 :]
            ends = isinstance(part, S.Evaluate)  # if it returns, it always does
            one, returns = self.stmt(part, is_last and (ends or not rest))
            statements.append(one)
            if returns and rest and not ends:
                behind, _ = self.stmt(S.seq(*rest), is_last)
                statements.append(self.unless_returned(behind))
            if returns:
                return S.seq(*statements), True
        return S.seq(*statements), False


ReturnValues = prim_pass("return-values", "tir.ReturnValues")(return_values)
