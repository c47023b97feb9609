"""Asserts of kernels: what a work-item does where a condition does not hold.

In: AssertStmts of kernels; around them, as a note, the integer that the message shows. Out: lines that say it in the
status of the call: the number of the assert, of the call, and that integer. Invariant: nobody can stop a launch, so
other work-items go on, and so does what follows an assert; only what it guards is left out, unless there is a barrier
in it. The first to refuse is heard. Who reads it: `runtime/native/devices/arm_status.c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.tir import expr as E
from armillary.tir import stmt as S
from armillary.tir.analysis import all_statements, expressions_of
from armillary.tir.phases import DeviceKernel

if TYPE_CHECKING:
    from armillary.codegen.opencl.source import KernelEmitter

REFUSED = "refused_value"  # the key of a note: its value is what the asserts inside show
REFUSE = (  # the helper, in C
    "static inline void armillary_refuse(volatile __global int* status, int64_t call, int code, int64_t value) {\n"
    "  if (atomic_cmpxchg(status, 0, code) != 0) return;\n"
    "  status[1] = (int)call;\n"
    "  status[2] = (int)value;\n"
    "  status[3] = (int)(value >> 32);\n}\n"
)


def asserts_in(kernel: DeviceKernel) -> tuple[S.AssertStmt, ...]:
    """The asserts of a kernel, in the order of their codes."""
    return tuple(s for s in all_statements(kernel.body) if isinstance(s, S.AssertStmt))


def write_assert(m: KernelEmitter, s: S.AssertStmt) -> None:
    """Say so unless the condition holds; else, or anyway where all have to come by, the body."""
    test, value = m.value(s.condition), "0" if m.refused is None else m.value(m.refused)
    m.flush()
    with m.writer.block(f"if (!{test}) {{", "}"):
        m.writer.line(f"{m.helper('refuse')}({m.status}, {m.call}, {m.codes[s]}, {value});")
    if _is_nothing(s.body):
        return
    if _has_barrier(s.body):
        m.stmt(s.body)
        return
    with m.writer.block("else {", "}"):
        m.stmt(s.body)


def write_note(m: KernelEmitter, s: S.AttrStmt) -> None:
    """Other notes mean nothing here."""
    around = m.refused
    if s.key == REFUSED:
        m.refused = s.value
    m.stmt(s.body)
    m.refused = around


def _is_nothing(s: S.Stmt) -> bool:
    return isinstance(s, S.Evaluate) and isinstance(s.value, E.IntImm)


def _has_barrier(body: S.Stmt) -> bool:
    expressions = (e for s in all_statements(body) for e in expressions_of(s))
    return any(isinstance(e, E.Call) and e.name == "thread_sync" for e in expressions)
