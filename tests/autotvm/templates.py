"""Templates for the tests: a matmul as the tutorials write it, and ones that fail in every way there is."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from armillary import autotvm, te

N = 32


@autotvm.template("test/matmul")
def matmul(n: int, length: int, m: int, dtype: str) -> Any:
    a = te.placeholder((n, length), name="A", dtype=dtype)
    b = te.placeholder((length, m), name="B", dtype=dtype)
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    (k,) = s[c].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, k, yi, xi)
    return s, [a, b, c]


def copy_with(statement: Any, n: int = N) -> Any:
    """out = x + 1 by loops that first do what `statement(ir_builder, out)` says."""
    x = te.placeholder((n,), name="x")

    def body(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n, name="i") as i:
            target[i] = source[i] + 1.0
        statement(ib, target)
        return ib.get()

    made = te.extern((n,), [x], body, name="out")
    return te.create_schedule(made.op), [x, made]


@autotvm.template("test/faulty")
def faulty(kind: str) -> Any:
    """A knob of one good value, and of one that fails as `kind` says."""
    cfg = autotvm.get_config()
    cfg.define_knob("fails", [False, True])
    cfg.add_flop(N)
    if not cfg["fails"].val:
        return copy_with(lambda ib, out: None)
    if kind == "refuses":
        cfg.raise_error("this is not what the template does")
    if kind == "raises":
        raise ValueError("a defect of the template")
    if kind == "compiler dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "compiler hangs":
        time.sleep(60)
    return copy_with(_STATEMENTS.get(kind, lambda ib, out: None))


def _wrong(ib: Any, out: Any) -> None:
    out[3] = 1000.0


def _crash(ib: Any, out: Any) -> None:
    out[1 << 40] = 1.0


def _hang(ib: Any, out: Any) -> None:
    with ib.for_range(0, 1 << 30, name="j"), ib.for_range(0, 1 << 30, name="k") as k:
        out[k % N] = out[(k + 1) % N] * 0.5


_STATEMENTS = {"answers wrongly": _wrong, "crashes": _crash, "hangs": _hang}
