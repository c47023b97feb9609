"""The C that the Relay era's codegen_c wrote: its form and visits, compiled and called as packed functions are."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import te
from armillary.codegen.c import codegen_c
from armillary.errors import TypeMismatch, UnsupportedError

VISITS = """
>>VisitStmt_:ForNode
VisitExpr_: IntImmNode: 10
extent: 10
vid: x name_hint: x
>>VisitStmt_:ForNode
VisitExpr_: IntImmNode: 10
extent: 10
vid: y name_hint: y
>>VisitStmt_:StoreNode
>>VisitExpr_:ADD
>>GetBufferRef
>>VisitExpr_:ADD
>>VisitExpr_:MUL
VisitExpr_: IntImmNode: 10
<<VisitExpr_:MUL
<<VisitExpr_:ADD
<<GetBufferRef:((float*)A)[(((x * 10) + y))]
>>GetBufferRef
>>VisitExpr_:ADD
>>VisitExpr_:MUL
VisitExpr_: IntImmNode: 10
<<VisitExpr_:MUL
<<VisitExpr_:ADD
<<GetBufferRef:((float*)B)[(((x * 10) + y))]
<<VisitExpr_:ADD
<<VisitStmt_:StoreNode: (((float*)A)[(((x * 10) + y))] + ((float*)B)[(((x * 10) + y))])
>>GetBufferRef
>>VisitExpr_:ADD
>>VisitExpr_:MUL
VisitExpr_: IntImmNode: 10
<<VisitExpr_:MUL
<<VisitExpr_:ADD
<<GetBufferRef:((float*)compute)[(((x * 10) + y))]
<<VisitStmt_:ForNode
<<VisitStmt_:ForNode
"""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def _called(text: str, name: str, folder: Path, *arrays: np.ndarray) -> int:
    """Compile a text as C, with warnings as errors, and call one of its packed functions."""
    source, library = folder / "unit.c", folder / "unit.so"
    source.write_text(text)
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-ffp-contract=off"]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    tensors = []
    for array in arrays:
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensors.append(_Tensor(array.ctypes.data, (1, 0), array.ndim, (2, 32, 1, 0), shape, None, 0))
    values = (ctypes.c_void_p * len(tensors))(*(ctypes.addressof(t) for t in tensors))
    return int(ctypes.CDLL(str(library))[name](values, None, len(tensors), None, None, None))


def _of_the_text() -> tuple[te.Schedule, list[te.Tensor]]:
    a, b = (te.placeholder((10, 10), name=n) for n in "AB")
    c = te.compute((10, 10), lambda x, y: a[x, y] + b[x, y])
    return te.create_schedule(c.op), [a, b, c]


def test_visits_come_in_the_order_of_the_text() -> None:
    seen: list[str] = []
    codegen_c(armillary.lower(*_of_the_text()), trace=seen.append)
    assert seen == VISITS.split("\n")[1:-1]


def test_the_text_compiles_and_is_called_as_packed_functions_are(tmp_path: Path) -> None:
    text = codegen_c(armillary.lower(*_of_the_text(), name="hello"))
    assert "int32_t hello(void* args, void* arg_type_ids, int32_t num_args" in text
    sum_of = "(((float*)A)[(((x * 10) + y))] + ((float*)B)[(((x * 10) + y))])"
    assert f"((float*)compute)[(((x * 10) + y))] = {sum_of};" in text
    a, b = np.random.default_rng(0).random((2, 10, 10), "float32")
    out = np.zeros((10, 10), "float32")
    assert _called(text, "hello", tmp_path, a, b, out) == 0
    assert np.array_equal(out, a + b)


def test_vectors_guards_and_sizes_of_arguments(tmp_path: Path) -> None:
    n = te.var("n")
    a = te.placeholder((n, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    b = te.compute((n, 8), lambda i, j: te.exp(a[i, j]) * 2.0, name="B")
    c = te.compute((n,), lambda i: te.sum(te.if_then_else(i > 1, b[i, k], a[i, k]), k), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[0], 4)
    s[b].compute_at(s[c], inner)
    s[b].vectorize(b.op.axis[1])
    text = codegen_c(armillary.lower(s, [a, c], name="rows"))
    data, out = np.random.default_rng(1).random((7, 8), "float32"), np.zeros(7, "float32")
    assert _called(text, "rows", tmp_path, data, out) == 0
    wanted = np.where(np.arange(7)[:, None] > 1, np.exp(data) * 2, data).sum(1)
    np.testing.assert_allclose(out, wanted, rtol=1e-5)


def test_what_has_no_c_is_refused() -> None:
    s, args = _of_the_text()
    s[args[2]].bind(args[2].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(UnsupportedError, match=r"bound to threadIdx\.x"):
        codegen_c(armillary.lower(s, args))
    with pytest.raises(TypeMismatch, match=r"codegen_c: got int, wanted what armillary\.lower gives"):
        codegen_c(3)  # type: ignore[arg-type]
