"""A te.compute that is a tensor intrinsic on parts of tensors: `lambda i: vadd(A[i, 0:16], B[i, 0:16])`."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import TypeMismatch

RNG = np.random.default_rng(11)


def _vadd(n: int) -> te.TensorIntrin:
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    z = te.compute((n,), lambda i: x[i] + y[i], name="z")

    def body(ins, outs):
        builder = tir.ir_builder.create()
        out = builder.buffer_ptr(outs[0])
        with builder.for_range(0, n) as i:
            out[i] = ins[0][i] + ins[1][i] + 100.0  # no plain addition: this is what must run
        return builder.get()

    return te.decl_tensor_intrin(z.op, body, "vadd")


def _gemm(m: int, n: int, depth: int) -> te.TensorIntrin:
    k = te.reduce_axis((0, depth), "k")
    x, y = te.placeholder((m, depth), name="x"), te.placeholder((n, depth), name="y")
    z = te.compute((m, n), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="z")

    def nest(ins, outs, store, add):
        builder = tir.ir_builder.create()
        out = builder.buffer_ptr(outs[0])
        with builder.for_range(0, m) as i, builder.for_range(0, n) as j:
            if store:
                out[i, j] = 0.0
            if add:
                with builder.for_range(0, depth) as r:
                    out[i, j] = out[i, j] + ins[0][i, r] * ins[1][j, r]
        return builder.get()

    def parts(ins, outs):
        return nest(ins, outs, True, True), nest(ins, outs, True, False), nest(ins, outs, False, True)

    return te.decl_tensor_intrin(z.op, parts, "gemm")


def test_an_intrinsic_computes_rows() -> None:
    a, b = te.placeholder((8, 16), name="a"), te.placeholder((8, 16), name="b")
    vadd = _vadd(16)
    c = te.compute((8, 16), lambda i: vadd(a[i, 0:16], b[i, 0:16]), name="c")
    s = te.create_schedule(c.op)
    assert vadd.inputs == vadd.op.input_tensors and vadd.reduce_init is None
    x, y, z = RNG.random((8, 16), np.float32), RNG.random((8, 16), np.float32), np.zeros((8, 16), np.float32)
    armillary.build(s, [a, b, c], "llvm")(x, y, z)
    np.testing.assert_allclose(z, x + y + 100, rtol=1e-6)


def test_an_intrinsic_reads_what_is_computed_in_its_loop() -> None:
    a, b = te.placeholder((8, 16), name="a"), te.placeholder((8, 20), name="b")
    moved = te.compute((8, 16), lambda i, j: b[i, j + 4] * 2.0, name="moved")
    vadd = _vadd(16)
    c = te.compute((8, 16), lambda i: vadd(a[i, 0:16], moved[i, 0:16]), name="c")
    s = te.create_schedule(c.op)
    s[moved].compute_at(s[c], c.op.axis[0])
    x, y, z = RNG.random((8, 16), np.float32), RNG.random((8, 20), np.float32), np.zeros((8, 16), np.float32)
    armillary.build(s, [a, b, c], "llvm")(x, y, z)
    np.testing.assert_allclose(z, x + 2 * y[:, 4:] + 100, rtol=1e-6)


def test_a_cache_is_made_by_the_intrinsic() -> None:
    a = te.placeholder((8, 16), name="a")
    vadd = _vadd(16)
    b = te.placeholder((8, 16), name="b")
    c = te.compute((8, 16), lambda i: vadd(a[i, 0:16], b[i, 0:16]), name="c")
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "local")
    s[cache].compute_at(s[c], c.op.axis[0])
    x, y, z = RNG.random((8, 16), np.float32), RNG.random((8, 16), np.float32), np.zeros((8, 16), np.float32)
    armillary.build(s, [a, b, c], "llvm")(x, y, z)
    np.testing.assert_allclose(z, x + y + 100, rtol=1e-6)


def test_an_intrinsic_is_summed_over_an_axis() -> None:
    a, b = te.placeholder((2, 3, 4, 8), name="a"), te.placeholder((2, 3, 4, 8), name="b")
    k, gemm = te.reduce_axis((0, 3), "k"), _gemm(4, 4, 8)
    c = te.compute(
        (2, 2, 4, 4),
        lambda i, j: gemm(a[i, k, 0:4, 0:8], b[j, k, 0:4, 0:8], reduce_axis=k),
        name="c",
    )
    x, y, z = (
        RNG.random((2, 3, 4, 8), np.float32),
        RNG.random((2, 3, 4, 8), np.float32),
        np.ones((2, 2, 4, 4), np.float32),
    )
    armillary.build(te.create_schedule(c.op), [a, b, c], "llvm")(x, y, z)
    np.testing.assert_allclose(z, np.einsum("ikmr,jknr->ijmn", x, y), rtol=1e-5)


def test_regions_that_do_not_fit_are_refused() -> None:
    a = te.placeholder((8, 16), name="a")
    vadd, gemm = _vadd(16), _gemm(4, 4, 8)
    with pytest.raises(TypeMismatch, match=r"inner dimensions are \[8\]"):
        te.compute((8, 8), lambda i: vadd(a[i, 0:16], a[i, 0:16]))
    with pytest.raises(TypeMismatch, match="more dimensions"):
        te.compute((8, 16), lambda i: vadd(a[0:8, 0:16], a[i, 0:16]))
    with pytest.raises(TypeMismatch, match="fewer dimensions"):
        te.compute((8, 4, 4), lambda i: gemm(a[i, 0:8], a[0:4, 0:8]))
    with pytest.raises(TypeMismatch, match="parts of 2 tensors"):
        te.compute((8, 16), lambda i: vadd(a[i, 0:16]))
    with pytest.raises(TypeMismatch, match="the function takes 1 axes"):
        te.compute((8, 16), lambda i: a[i, 0])


def test_a_packed_call_takes_buffers() -> None:
    buffer = tir.decl_buffer((4, 8), "float32", name="b")
    call = tir.call_packed("f", buffer, 3)
    assert [getattr(x, "name", None) for x in call.args] == [None, "tvm_stack_make_array", None]
    assert call.args[1].args[0] is buffer.data and call.args[1].args[3].value == 2
