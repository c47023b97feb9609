"""Builtins of loop programs that compute: Shuffle, LLVM's counts of bits, promises, calls by their old names."""

from __future__ import annotations

import numpy as np
import pytest

import armillary
from armillary import te, tir
from armillary.errors import ArmillaryError, TypeMismatch, UnsupportedError
from armillary.script import ir as I  # noqa: F401  (what scripts import)
from armillary.script import tir as T

RNG = np.random.default_rng(23)


def _both(function, *arrays):
    """What the compiled function and the interpreter write to the last array."""
    got, meant = ([*arrays[:-1], arrays[-1].copy()] for _ in range(2))
    armillary.build(function)(*got)
    tir.interpret(function, *meant)
    np.testing.assert_array_equal(got[-1], meant[-1])
    return got[-1]


def test_shuffle_puts_lanes_together():
    a, out = tir.decl_buffer((8,), "int32", name="a"), tir.decl_buffer((8,), "int32", name="out")
    whole, half = a.vload(0, "int32x8"), a.vload(4, "int32x4")
    mixed = tir.Shuffle([whole, half], [7, 6, 5, 4, 11, 8, 0, 1])
    x = RNG.integers(-99, 99, 8).astype("int32")
    got = _both(tir.PrimFunc([a, out], out.vstore(0, mixed)), x, np.zeros(8, "int32"))
    np.testing.assert_array_equal(got, np.concatenate([x, x[4:]])[[7, 6, 5, 4, 11, 8, 0, 1]])


def test_shuffle_joins_numbers_and_serves_as_an_index():
    a, out = tir.decl_buffer((8,), "float32", name="a"), tir.decl_buffer((8,), "float32", name="out")
    index = tir.Shuffle([tir.Ramp(0, 1, 8)], list(range(7, -1, -1)))
    x = RNG.standard_normal(8).astype("float32")
    body = tir.BufferStore(out, tir.BufferLoad(a, [index]), [tir.Ramp(0, 1, 8)])
    np.testing.assert_array_equal(_both(tir.PrimFunc([a, out], body), x, np.zeros(8, "float32")), x[::-1])
    pair = tir.Shuffle([a[3], a[1]], [1, 0])
    body = out.vstore(2, pair)
    got = _both(tir.PrimFunc([a, out], body), x, np.zeros(8, "float32"))
    np.testing.assert_array_equal(got[2:4], x[[1, 3]])


def test_shuffle_refuses_lanes_that_are_not_there():
    with pytest.raises(TypeMismatch, match="the index 8 is no constant from 0 to 7"):
        tir.Shuffle([tir.Ramp(0, 1, 8)], [8])
    with pytest.raises(TypeMismatch, match="wanted some of one type"):
        tir.Shuffle([tir.const(1, "int32"), tir.const(1, "int8")], [0])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "uint16x8"])
@pytest.mark.parametrize("name", ["ctpop", "ctlz", "cttz"])
def test_llvm_counts_bits(name, dtype):
    kind = tir.decl_buffer((1,), dtype).dtype
    a, out = (tir.decl_buffer((kind.lanes,), kind.element, name=n) for n in ("a", "out"))
    rest = () if name == "ctpop" else (tir.const(0, "int1"),)
    item = tir.call_llvm_pure_intrin(dtype, f"llvm.{name}", tir.const(1, "uint32"), a.vload(0, dtype), *rest)
    x = RNG.integers(0, 120, kind.lanes).astype(str(kind.element))
    x[0] = 0
    got = _both(tir.PrimFunc([a, out], out.vstore(0, item)), x, np.zeros_like(x))
    width = 8 * x.itemsize
    texts = [format(int(v), f"0{width}b") for v in x]
    counts = {"ctpop": lambda t: t.count("1"), "ctlz": lambda t: len(t) - len(t.lstrip("0"))}
    counts["cttz"] = lambda t: len(t) - len(t.rstrip("0"))
    assert got.tolist() == [counts[name](t) for t in texts]


def test_promises_change_nothing():
    @T.prim_func
    def promised(a: T.Buffer((4,), "int32"), b: T.Buffer((4,), "int32")):
        for i in range(4):
            T.assume(a[i] < 100)
            b[i] = a[i] + 1

    x, got = np.arange(4, dtype="int32"), np.zeros(4, "int32")
    armillary.build(promised)(x, got)
    np.testing.assert_array_equal(got, x + 1)


def test_intrinsics_are_called_by_their_old_names():
    a, out = tir.decl_buffer((1,), name="a"), tir.decl_buffer((1,), name="out")
    item = tir.Call("float32", armillary.ir.Op.get("tir.floor"), [a[0]])
    got = _both(tir.PrimFunc([a, out], out.vstore(0, item)), np.full(1, 2.75, "float32"), np.zeros(1, "float32"))
    assert got.tolist() == [2.0]
    assert tir.Call("int32", "tir.popcount", [1]).name == "popcount"


def test_call_without_a_name_is_refused_when_compiled():
    a = tir.decl_buffer((1,), name="a")
    nameless = tir.PrimFunc([a], tir.Evaluate(tir.Call("int32", armillary.ir.Op.get("tir.tvm_call_packed"), [a.data])))
    with pytest.raises(ArmillaryError, match="a call by name without a name"):
        armillary.build(nameless)


def test_prefetch_takes_an_address():
    a, out = tir.decl_buffer((4,), name="a"), tir.decl_buffer((4,), name="out")
    ask = tir.Call("int32", "tir.prefetch", [tir.call_intrin("handle", "tir.address_of", a[0]), 0, 3, 1])
    x, got = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    store = out.vstore(0, a.vload(0, "float32x4"))
    library = armillary.build(tir.PrimFunc([a, out], tir.stmt_seq(tir.Evaluate(ask), store)))
    library(x, got)
    np.testing.assert_array_equal(got, x)
    assert "llvm.prefetch" in library.get_source()


def test_elements_that_are_vectors_are_stored_whole():
    x, y, out = tir.Var("x", "int32"), tir.Var("y", "int32"), tir.decl_buffer((2,), "int32x2", name="out")
    function = tir.PrimFunc([x, y, out], out.vstore(1, tir.Shuffle([x, y], [1, 0])))
    got = np.zeros((2, 2), "int32")
    armillary.build(function)(5, 7, got)
    assert got.tolist() == [[0, 0], [7, 5]]


def test_what_should_run_once_is_refused():
    builder = tir.ir_builder.create()
    buffer = tir.decl_buffer((4,), "int64", name="a")
    a = builder.buffer_ptr(buffer)
    builder.scope_attr(te.thread_axis((0, 1), "cop"), "coproc_uop_scope", tir.StringImm("TVMBackendRunOnce"))
    with builder.for_range(0, 4, "i") as i:
        a[i] = a[i] + tir.const(1, "int64")
    with pytest.raises(UnsupportedError, match="what runs once, or on a coprocessor"):
        armillary.build(tir.PrimFunc([buffer], builder.get()))


def test_an_intrinsic_of_tensor_cores_is_written_but_not_built():
    fragment = tir.decl_buffer((16, 16), "float32", name="c", scope="wmma.accumulator", offset_factor=256)
    filled = tir.call_intrin(
        "handle", "tir.tvm_fill_fragment", fragment.data, 16, 16, 16, fragment.elem_offset // 256, 0.0
    )
    assert str(filled) == "tvm_fill_fragment(c, 16, 16, 16, c_elem_offset // 256, 0.0)"
    loaded = tir.call_intrin("handle", "tir.tvm_load_matrix_sync", fragment.data, 16, "row_major")
    assert loaded.args[-1].value == "row_major"
    a = tir.decl_buffer((1,), name="a")
    with pytest.raises(ArmillaryError, match="tvm_fill_fragment"):
        armillary.build(tir.PrimFunc([a], tir.Evaluate(tir.call_intrin("handle", "tir.tvm_fill_fragment", a.data))))
    with pytest.raises(ArmillaryError, match="there is no intrinsic 'tvm_fill_fragments'"):
        tir.call_intrin("handle", "tir.tvm_fill_fragments", a.data)
