"""Products under a BLAS's names, what is asked of CUDA's compiler, C functions that kernels import."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.contrib import cblas, clang, nvcc
from armillary.errors import ArmillaryError, TargetError, TypeMismatch

_RNG = np.random.default_rng(7)
C_CODE = """
extern "C" int gemv_update(float *cc, float *aa, float *bb, int m, int l, int stride) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < l; ++j) cc[i] += aa[j] * bb[i * stride + j];
  return 0;
}
extern "C" int gemv_reset(float *cc, int m) {
  for (int i = 0; i < m; ++i) cc[i] = 0.0;
  return 0;
}
"""


def run(outputs: list[te.Tensor], inputs: list[te.Tensor], arrays: list[np.ndarray]) -> np.ndarray:
    """The first output of a program."""
    function = armillary.build(te.create_schedule([t.op for t in outputs]), [*inputs, *outputs], "llvm")
    results = [armillary.nd.empty(tuple(map(int, t.shape)), str(t.dtype)) for t in outputs]
    function(*map(armillary.nd.array, arrays), *results)
    return results[0].numpy()


@pytest.mark.parametrize("transa", [False, True])
@pytest.mark.parametrize("transb", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_with_either_side_transposed(batch: tuple[int, ...], transa: bool, transb: bool) -> None:
    a = te.placeholder((*batch, 6, 5) if transa else (*batch, 5, 6), name="a")
    b = te.placeholder((*batch, 7, 6) if transb else (*batch, 6, 7), name="b")
    x, y = (_RNG.standard_normal(tuple(map(int, t.shape))).astype(np.float32) for t in (a, b))
    made = (cblas.batch_matmul if batch else cblas.matmul)(a, b, transa, transb)
    biased = te.compute(made.shape, lambda *at: made(*at) + 1.0)
    wanted = (x.swapaxes(-1, -2) if transa else x) @ (y.swapaxes(-1, -2) if transb else y) + 1
    np.testing.assert_allclose(run([biased], [a, b], [x, y]), wanted, rtol=1e-5, atol=1e-5)


def test_products_of_bytes_are_whole_and_others_are_refused() -> None:
    a, b = te.placeholder((4, 300), "uint8", "a"), te.placeholder((300, 4), "int8", "b")
    x, y = np.full((4, 300), 255, np.uint8), np.full((300, 4), -128, np.int8)
    np.testing.assert_array_equal(run([cblas.matmul_u8s8s32(a, b)], [a, b], [x, y]), np.full((4, 4), -255 * 128 * 300))
    with pytest.raises(TypeMismatch, match="wanted uint8 and int8"):
        cblas.matmul_u8s8s32(b, a)
    with pytest.raises(TypeMismatch, match="have no product"):
        cblas.matmul(a, b, transa=True)
    with pytest.raises(TypeMismatch, match="tensors of 3 dimensions"):
        cblas.batch_matmul(a, b)


def test_compiled_code_calls_the_product_by_its_name() -> None:
    name = "armillary.contrib.cblas.matmul"
    assert armillary.get_global_func(name, allow_missing=True)
    a, b = te.placeholder((5, 6), name="a"), te.placeholder((7, 6), name="b")
    made = te.extern((5, 7), [a, b], lambda i, o: tir.call_packed(name, i[0], i[1], o[0], False, True), dtype="float32")
    x, y = (_RNG.standard_normal(tuple(map(int, t.shape))).astype(np.float32) for t in (a, b))
    np.testing.assert_allclose(run([made], [a, b], [x, y]), x @ y.T, rtol=1e-5, atol=1e-5)


def test_what_scripts_ask_of_cudas_compiler() -> None:
    assert nvcc.parse_compute_version("7.5") == (7, 5) and nvcc.parse_compute_version("8") == (8, 0)
    assert nvcc.have_tensorcore("7.0") and not nvcc.have_tensorcore("6.1") and not nvcc.have_tensorcore()
    assert nvcc.have_int8("6.1") and not nvcc.have_int8("6.0") and not nvcc.have_int8(None)
    assert nvcc.have_fp16("5.3") and nvcc.have_fp16("6.0") and not nvcc.have_fp16("6.0".replace("6", "4"))
    with pytest.raises(TargetError, match="no compute version"):
        nvcc.parse_compute_version("new")
    with pytest.raises(TargetError, match="code for cuda"):
        nvcc.compile_cuda("")


def test_clang_makes_ir_whose_pointers_are_opaque(tmp_path: Path) -> None:
    text = clang.create_llvm(C_CODE, output=tmp_path / "made.ll")
    assert (tmp_path / "made.ll").read_text() == text and "float*" not in text
    assert "i32 @gemv_update(ptr" in text and "i32 @gemv_reset(ptr" in text
    source = tmp_path / "own.c"
    source.write_text("int twice(int x) { return 2 * x; }")
    assert "@twice(i32" in clang.create_llvm(source, options=["-O1"])
    with pytest.raises(TargetError, match="the C compiler failed"):
        clang.create_llvm("int f( {")
    with pytest.raises(ArmillaryError, match="No such file"):
        clang.create_llvm(tmp_path / "none.c")
    with pytest.raises(TargetError, match="one source"):
        clang.create_llvm([source, source])


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang beside zig's")
def test_a_clang_that_is_too_old_is_told() -> None:
    message = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.findall(r"version (\d+)", message)[0]) >= 15:
        assert "ptr" in clang.create_llvm(C_CODE, cc="clang")
        return
    with pytest.raises(TargetError, match="as versions before 15 do"):
        clang.create_llvm(C_CODE, cc="clang")


def _gemv(rows: int, length: int) -> te.TensorIntrin:
    """A product of a matrix and a vector that a C function computes."""
    a, b = te.placeholder((length,), name="a"), te.placeholder((rows, length), name="b")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((rows,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    strides = {a: [1], b: [te.var("s1"), 1], c: [1]}
    buffers = {t: tir.decl_buffer(t.shape, t.dtype, offset_factor=1, strides=s) for t, s in strides.items()}

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tuple[tir.Stmt, tir.Stmt, tir.Stmt]:
        (aa, bb), cc = ins, outs[0].access_ptr("w")
        read = [buffer.access_ptr("r") for buffer in (aa, bb)]
        update = tir.call_extern("int32", "gemv_update", cc, *read, rows, length, bb.strides[0])
        reset = tir.call_extern("int32", "gemv_reset", cc, rows)
        return tir.Evaluate(update), tir.Evaluate(reset), tir.Evaluate(update)

    return te.decl_tensor_intrin(c.op, body, binds=buffers)


def _tensorized(code: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """C = A B^T, sixteen by sixteen terms of which are one call; `code` defines what is called."""
    a, b = te.placeholder((32, 64), name="A"), te.placeholder((48, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((32, 48), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    x, y = c.op.axis
    yo, yi = s[c].split(y, factor=16)
    ko, ki = s[c].split(k, factor=16)
    s[c].reorder(x, yo, ko, yi, ki)
    s[c].tensorize(yi, _gemv(16, 16))
    s[c].pragma(x, "import_llvm", code)
    return s, [a, b, c]


def test_a_loop_imports_the_c_functions_that_it_calls() -> None:
    s, tensors = _tensorized(clang.create_llvm(C_CODE))
    function = armillary.build(s, tensors, "llvm", name="gemv")
    x, y = (_RNG.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (48, 64)))
    out = armillary.nd.empty((32, 48))
    function(armillary.nd.array(x), armillary.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-4, atol=1e-4)


def test_imported_code_is_part_of_an_exported_library(tmp_path: Path) -> None:
    s, tensors = _tensorized(clang.create_llvm(C_CODE))
    armillary.build(s, tensors, "llvm", name="gemv").export_library(str(tmp_path / "gemv.so"))
    function = armillary.runtime.load_module(str(tmp_path / "gemv.so"))
    x, y = (_RNG.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (48, 64)))
    out = armillary.nd.empty((32, 48))
    function["gemv"](armillary.nd.array(x), armillary.nd.array(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y.T, rtol=1e-4, atol=1e-4)


def test_what_is_imported_must_be_llvm_ir() -> None:
    s, tensors = _tensorized("int gemv_update;")
    with pytest.raises(ArmillaryError, match="import_llvm"):
        armillary.build(s, tensors, "llvm")
