"""Layers of topi that no operator is: recurrences, gradients of poolings, packed products, compressed rows."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from armillary.topi.generic.conv2d import fallback_schedule_cpu_common_int8
from armillary.topi.nn.conv2d import _get_workload
from armillary.topi.nn.depthwise_conv2d import _get_workload as of_depthwise
from armillary.topi.x86.conv2d_avx_common import _fallback_schedule

import armillary
from armillary import autotvm, nd, te, topi
from armillary.contrib import mkl, sparse
from armillary.errors import TargetError, TypeMismatch
from armillary.target import Target
from armillary.testing import check_numerical_grads

_RNG = np.random.default_rng(5)


def draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape).astype(np.float32)


def run(outs: list[te.Tensor], inputs: list[te.Tensor], arrays: list[Any], schedule: Any = None) -> list[Any]:
    """The results of a program."""
    made = te.create_schedule([t.op for t in outs]) if schedule is None else schedule(outs)
    results = [nd.empty(tuple(map(int, t.shape)), str(t.dtype)) for t in outs]
    armillary.build(made, [*inputs, *outs], "llvm")(*map(nd.array, arrays), *results)
    return [r.numpy() for r in results]


@pytest.mark.parametrize(
    ("layout", "reverse", "parts"),
    [("IFGO", False, ()), ("OIGF", True, ("Bi", "Bh", "h_init", "c_init", "proj", "p_i", "p_f", "p_o"))],
)
def test_lstm_step_by_step(layout: str, reverse: bool, parts: tuple[str, ...]) -> None:
    steps, batch, width, hidden = 4, 2, 3, 5
    out = 6 if "proj" in parts else hidden
    sizes: dict[str, tuple[int, ...]] = {"Bi": (4 * hidden,), "Bh": (4 * hidden,), "h_init": (batch, out)}
    sizes |= {"c_init": (batch, hidden), "proj": (out, hidden), **dict.fromkeys(("p_i", "p_f", "p_o"), (batch, hidden))}
    arrays = {"Xs": draw(steps, batch, width), "Wi": draw(4 * hidden, width), "Wh": draw(4 * hidden, out)}
    arrays |= {name: draw(*sizes[name]) for name in parts}
    tensors = {name: te.placeholder(a.shape, name=name) for name, a in arrays.items()}
    made = topi.nn.lstm(**tensors, reverse=reverse, weight_layout=layout)
    got = run([*made], [*tensors.values()], [*arrays.values()], topi.generic.schedule_lstm)
    want = topi.testing.lstm_python(**arrays, reverse=reverse, weight_layout=layout)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    first, second = got
    if not parts:  # the last step, by its definition
        gates = arrays["Xs"][3] @ arrays["Wi"].T + first[2] @ arrays["Wh"].T
        i, f, g, o = (gates[:, k * hidden : (k + 1) * hidden] for k in range(4))
        i, f, o = (1 / (1 + np.exp(-x)) for x in (i, f, o))
        np.testing.assert_allclose(second[3], f * second[2] + i * np.tanh(g), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(first[3], o * np.tanh(second[3]), rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeMismatch, match="weight_layout 'IFG'"):
        topi.nn.lstm(tensors["Xs"], tensors["Wi"], tensors["Wh"], weight_layout="IFG")


@pytest.mark.parametrize(("pool", "count"), [("max", True), ("avg", True), ("avg", False)])
def test_gradients_of_poolings_are_their_differences(pool: str, count: bool) -> None:
    kernel, stride, padding = (3, 3), (2, 2), (1, 1, 0, 0)
    x, grad = draw(1, 2, 5, 5), draw(1, 2, 2, 2)
    data, grads = te.placeholder(x.shape, name="data"), te.placeholder(grad.shape, name="grads")
    made = topi.nn.pool_grad(grads, data, kernel, stride, padding, pool, count_include_pad=count)
    (got,) = run([made], [grads, data], [grad, x])

    def pooled(values: Any) -> Any:
        rest = (kernel, stride, (1, 1), padding[:2], padding[2:], pool, count)
        return topi.testing.poolnd_python(values.astype(np.float32), *rest).astype(np.float64) * grad

    check_numerical_grads(pooled, [x.astype(np.float64)], [got], delta=1e-2, atol=2e-2)
    rest = (kernel, stride, padding, pool, False, count)
    np.testing.assert_allclose(topi.testing.pool_grad_nchw(x, grad, *rest), got, rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeMismatch, match="pool_type 'min'"):
        topi.nn.pool_grad(grads, data, kernel, stride, padding, "min")
    with pytest.raises(TypeMismatch, match="the pooling gives"):
        topi.nn.pool_grad(grads, data, kernel, (1, 1), padding, pool)


def test_products_with_packed_operands() -> None:
    x, w, b = draw(3, 8), draw(6, 8), draw(6)
    tensors = [te.placeholder(a.shape, name=f"p{k}") for k, a in enumerate((x, w, b))]
    (got,) = run([topi.nn.matmul(*tensors, transpose_b=True)], tensors, [x, w, b])
    np.testing.assert_allclose(got, x @ w.T + b, rtol=1e-4, atol=1e-5)
    blocks = w.reshape(2, 3, 8).transpose(0, 2, 1).copy()
    packed = te.placeholder(blocks.shape, name="packed")
    (got,) = run([topi.x86.dense_pack(tensors[0], packed)], [tensors[0], packed], [x, blocks])
    np.testing.assert_allclose(got, x @ w.T, rtol=1e-4, atol=1e-5)


def test_products_of_signs() -> None:
    x, w = draw(3, 64), draw(4, 64)
    a, b = te.placeholder(x.shape, name="a"), te.placeholder(w.shape, name="b")
    made = topi.nn.binary_dense(topi.nn.binarize_pack(a), topi.nn.binarize_pack(b))
    (got,) = run([made], [a, b], [x, w])
    assert (got == np.where(x >= 0, 1, -1) @ np.where(w >= 0, 1, -1).T).all()
    (words,) = run([topi.nn.binarize_pack(a)], [a], [x])
    assert words[0, 0] == int("".join("01"[int(v >= 0)] for v in x[0, :32]), 2)
    with pytest.raises(TypeMismatch, match="48 elements along axis 1"):
        topi.nn.binarize_pack(te.placeholder((2, 48)))
    with pytest.raises(TypeMismatch, match="wanted uint32 of 2"):
        topi.nn.binary_dense(a, b)


def test_matrices_in_compressed_rows() -> None:
    matrix = np.where(_RNG.random((5, 7)) < 0.3, draw(5, 7), 0).astype(np.float32)
    a = sparse.array(matrix)
    assert (a.stype, a.dtype, a.shape) == ("csr", "float32", (5, 7))
    assert (a.numpy() == matrix).all()
    again = sparse.array((a.data, a.indices, a.indptr), shape=(5, 7))
    assert (again.numpy() == matrix).all()
    with pytest.raises(TypeMismatch, match=r"are no matrix of \[5, 3\]"):
        sparse.array((a.data, a.indices, a.indptr), shape=(5, 3))
    with pytest.raises(TypeMismatch, match="the form 'coo'"):
        sparse.array(matrix, stype="coo")
    rows, columns, count = te.var("rows"), te.var("columns"), te.var("count")
    read = sparse.placeholder((rows, columns), count, "float32", "A")
    other, bias = te.placeholder((7, 3), name="B"), te.placeholder((rows,), name="C")
    parts = [read.data, read.indices, read.indptr, other]
    b, c, out = draw(7, 3), draw(5), nd.empty((5, 3))
    made = topi.sparse.csrmm(read, other, bias)
    function = armillary.build(te.create_schedule(made.op), [rows, *parts, bias, made], "llvm")
    function(5, a.data, a.indices, a.indptr, nd.array(b), nd.array(c), out)
    np.testing.assert_allclose(out.numpy(), matrix @ b + c[:, None], rtol=1e-4, atol=1e-5)
    vector, out = te.placeholder((7, 1), name="x"), nd.empty((5, 1))
    made = topi.sparse.csrmv(read, vector)
    function = armillary.build(te.create_schedule(made.op), [rows, *parts[:3], vector, made], "llvm")
    function(5, a.data, a.indices, a.indptr, nd.array(b[:, :1].copy()), out)
    np.testing.assert_allclose(out.numpy(), matrix @ b[:, :1], rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeMismatch, match=r"topi\.sparse\.csrmv: wanted a matrix in compressed rows"):
        topi.sparse.csrmv(vector, vector)


def test_products_by_the_name_of_a_library() -> None:
    x, w = draw(3, 8), draw(8, 4)
    a, b = te.placeholder(x.shape, name="a"), te.placeholder(w.shape, name="b")
    (got,) = run([mkl.matmul(a, b)], [a, b], [x, w])
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-5)
    assert armillary.get_global_func("tvm.contrib.mkl.matmul_u8s8s32", True) is not None


@pytest.mark.parametrize(
    ("target", "dtypes", "has"),
    [
        ("c -mcpu=cortex-m4", ("int8", "int8"), False),
        ("llvm -mtriple=aarch64-linux-gnu", ("int8", "int8"), True),
        ("llvm -mtriple=aarch64-linux-gnu", ("int8", "int16"), False),
        ("llvm -mtriple=aarch64-linux-gnu", ("int16", "int16"), False),
        ("llvm -mtriple=arm-linux-gnueabi", ("int8", "int8"), False),
        ("llvm -mtriple=arm-linux-gnueabi -mattr=+neon", ("int8", "int8"), True),
    ],
)
def test_targets_that_multiply_bytes_by_vectors(target: str, dtypes: tuple[str, str], has: bool) -> None:
    is_int8_hw_support = importlib.import_module("armillary.topi.arm_cpu.conv2d_int8").is_int8_hw_support
    with armillary.target.Target(target):
        assert is_int8_hw_support(*dtypes) == has
    with pytest.raises(TargetError, match="no target is in force"):
        is_int8_hw_support(*dtypes)


@pytest.mark.parametrize(
    ("left", "right", "turned"),
    [
        ((4, 3, 5), (4, 2, 3), (True, True)),
        ((5, 3), (4, 2, 3), (False, True)),
        ((2, 4, 5, 3), (1, 3, 2), (False, False)),
    ],
)
def test_products_of_matrices_have_batches_that_broadcast(
    left: tuple[int, ...], right: tuple[int, ...], turned: tuple[bool, bool]
) -> None:
    values = [np.random.default_rng(n).standard_normal(shape).astype("f") for n, shape in enumerate((left, right))]
    a, b = te.placeholder(left), te.placeholder(right)
    bias = te.placeholder((2,))
    c = topi.nn.matmul(a, b, bias, transpose_a=turned[0], transpose_b=turned[1])
    sides = [v.swapaxes(-1, -2) if turn else v for v, turn in zip(values, turned, strict=True)]
    want, got = np.matmul(*sides) + np.array([1, 2], "f"), nd.empty([int(n) for n in c.shape])
    function = armillary.build(te.create_schedule(c.op), [a, b, bias, c], "llvm")
    function(*map(nd.array, (*values, np.array([1, 2], "f"))), got)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeMismatch, match=r"the batches \(3,\) and \(4,\) do not broadcast"):
        topi.nn.matmul(te.placeholder((3, 2, 2)), te.placeholder((4, 2, 2)))


def test_workloads_of_convolutions_give_tiles_that_divide_them() -> None:
    data, kernel = te.placeholder((1, 64, 56, 58)), te.placeholder((96, 64, 3, 3))
    workload = _get_workload(data, kernel, (2, 1), (1, 1), 2, "float32")
    assert (workload.in_filter, workload.groups, workload.out_filter, workload.padt) == (64, 1, 96, 1)
    assert (workload.stride_h, workload.dilation_w, workload.out_width) == (2, 2, 56)
    with Target("llvm -mcpu=haswell"):  # vectors of eight lanes, sixteen registers
        _fallback_schedule(config := autotvm.get_config(), workload)
    assert [config[f"tile_{axis}"].size for axis in ("oc", "ic", "ow")] == [[12, 8], [8, 8], [4, 14]]
    fallback_schedule_cpu_common_int8(config := autotvm.get_config(), workload, 16, 4)
    assert config["tile_oc"].size == [6, 16] and config["tile_ic"].size == [4, 16]
    with pytest.raises(TypeMismatch, match="pad the channels"):
        fallback_schedule_cpu_common_int8(config, workload, 36, 4)
    deep = of_depthwise(te.placeholder((1, 8, 8, 6)), te.placeholder((3, 3, 6, 2)), 1, "SAME", 1, "float32", "NHWC")
    assert (deep.in_filter, deep.out_filter, deep.padl, deep.out_width) == (6, 12, 1, 8)
    assert callable(topi.nn.conv2d)  # what the import of a module of that name has not replaced
