"""check_values on GPUs: a work-item for each row of values.

In: the schedule of a check. Out: that of the default, of a loop over rows. Invariant: the order and the messages of
ops/check_values.py; but all values are stored, as no work-item can stop another, and of several that are wrong the
message shows any. What kernels do with a wrong value: codegen/opencl/checks.py.
"""

from __future__ import annotations

from armillary import te
from armillary.backends.candidate import Candidate
from armillary.backends.opencl.schedules.default import schedule_default
from armillary.backends.registry import implement
from armillary.codegen.opencl.checks import REFUSED
from armillary.ops._loops import load, rows, store
from armillary.ops.check_values import NAME, CheckValuesAttrs, holds, message
from armillary.tir import build as T
from armillary.tir import stmt as S
from armillary.tir.expr import Expr


def _compute(attrs: CheckValuesAttrs, data: te.Tensor) -> te.Tensor:
    shape = te.static_shape(data)

    def body(ins: list[S.Buffer], outs: list[S.Buffer]) -> S.Stmt:
        def one(index: list[Expr], column: int) -> S.Stmt:
            value = load(ins[0], *index)
            fine = S.AssertStmt(holds(value, *attrs.bounds[column]), message(attrs, column), S.Evaluate(T.const(0)))
            return S.seq(store(outs[0], value, *index), S.AttrStmt(REFUSED, value, fine))

        if len(attrs.bounds) == 1:
            return rows(shape, lambda index: one(index, 0))
        return rows(shape[:-1], lambda index: S.seq(*(one([*index, T.const(k)], k) for k in range(len(attrs.bounds)))))

    result: te.Tensor = te.extern([shape], [data], body, name=NAME, dtype=[data.dtype])
    return result


implement(Candidate(NAME, "check_by_rows"), family="opencl", compute=_compute)(schedule_default)
