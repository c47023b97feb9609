"""Double buffers, virtual threads, shared sub-expressions, rules for intrinsics: real programs before and after."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import armillary as tvm
from armillary import te, tir
from armillary.errors import ConfigError
from armillary.te.schedule import Schedule
from armillary.te.tensor import Tensor
from armillary.tir import stmt as S
from armillary.tir.interpreter import interpret
from armillary.tir.intrinsics import INTRINSICS
from armillary.tir.parser import parse_module
from armillary.tir.transform.lower_intrin import LOWERINGS, register_intrin_lowering
from armillary.tir.verifier import verify
from armillary.transform import PassContext, find_pass

RNG = np.random.default_rng(7)


def run(func: S.PrimFunc, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """The function on random inputs; the last array is the output."""
    rng = np.random.default_rng(7)
    arrays = [rng.random(shape, "float32") for shape in shapes]
    interpret(func, *arrays)
    return arrays


def apply(spec: str, text: str) -> tuple[S.PrimFunc, S.PrimFunc]:
    before = parse_module(text)
    after = find_pass(spec).bind()(before)
    (old,), (new,) = (tuple(f for _, f in m.items()) for m in (before, after))
    verify(new)
    return old, new


# --- double buffers -------------------------------------------------------------------------------------------------


def blurred(kind: str = "serial") -> tuple[Schedule, list[Tensor]]:
    a = te.placeholder((10, 18), name="A")
    rows = te.compute((10, 16), lambda i, j: a[i, j] + a[i, j + 2], name="rows")
    out = te.compute((9, 16), lambda i, j: rows[i, j] + rows[i + 1, j], name="out")
    s = te.create_schedule(out.op)
    s[rows].compute_at(s[out], s[out].op.axis[0])
    s[rows].double_buffer()
    if kind == "parallel":
        s[out].parallel(s[out].op.axis[0])
    return s, [a, out]


def test_a_double_buffer_is_filled_one_iteration_ahead() -> None:
    s, args = blurred()
    text = str(tvm.lower(s, args))
    assert "alloc rows: Buffer[(64,), float32]" in text
    assert "if i_1 + 1 < 9" in text
    assert "rows[(i_1 + 1) % 2 * 32" in text
    assert "double_buffer_scope" not in text


@pytest.mark.parametrize("split", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_double_buffering_changes_no_result(kind: str, split: int) -> None:
    s, args = blurred(kind)
    with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": split}}):
        lowered = tvm.lower(s, args)
        function = tvm.build(lowered, target="llvm")
    assert ("Buffer[(64,), float32]" in lowered.astext()) == (kind == "serial")
    value, got = RNG.random((10, 18), "float32"), tvm.nd.empty((9, 16))
    function(tvm.nd.array(value), got)
    rows = value[:, :16] + value[:, 2:]
    np.testing.assert_array_equal(got.numpy(), rows[:-1] + rows[1:])


def test_written_out_iterations_know_their_copy() -> None:
    s, args = blurred()
    with PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 2}}):
        text = str(tvm.lower(s, args))
    assert "% 2" not in text
    assert "if " not in text


def test_a_fill_that_reads_what_the_use_writes_keeps_one_copy() -> None:
    old, new = apply(
        "inject-double-buffer",
        """
func @main(A: Buffer[(9,), float32]) {
  for i in range(8) {
    alloc X: Buffer[(1,), float32]
    attr double_buffer_scope on X = 1
    X[0] = A[i] * 2.0
    A[i + 1] = X[0]
  }
}""",
    )
    assert "Buffer[(1,)" in str(new)
    np.testing.assert_array_equal(run(old, (9,))[0], run(new, (9,))[0])


def test_overlapping_arguments_keep_one_copy() -> None:
    s, args = blurred()
    with PassContext(config={"tir.noalias": False}):
        assert "Buffer[(32,), float32]" in str(tvm.lower(s, args))


# --- virtual threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [2, 3, 20])
def test_virtual_threads_share_the_loops_of_a_product(threads: int) -> None:
    n = 4 * threads
    a, b = te.placeholder((n, 8), name="A"), te.placeholder((8, 5), name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((n, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    local = s.cache_write(c, "local")
    outer, inner = s[c].split(c.op.axis[0], nparts=threads)
    s[c].bind(outer, te.thread_axis("vthread"))
    s[local].compute_at(s[c], inner)
    (reduce,) = s[local].op.reduce_axis
    s[local].reorder(reduce, *s[local].op.axis)
    text = str(tvm.lower(s, [a, b, c], simple_mode=True))
    assert "vthread" not in text
    assert text.count("for k in") == 1, text
    assert f'Buffer[({5 * threads},), float32, scope="local"]' in text
    value, weight, got = RNG.random((n, 8), "float32"), RNG.random((8, 5), "float32"), tvm.nd.empty((n, 5))
    tvm.build(s, [a, b, c], "llvm")(tvm.nd.array(value), tvm.nd.array(weight), got)
    np.testing.assert_allclose(got.numpy(), value @ weight, rtol=1e-5)


def test_what_all_virtual_threads_would_compute_alike_is_computed_once() -> None:
    old, new = apply(
        "inject-virtual-thread",
        """
func @main(A: Buffer[(4,), float32], B: Buffer[(8,), float32]) {
  attr virtual_thread on axis(v: int32, "thread", "vthread") = 2
  alloc X: Buffer[(4,), float32]
  for i in range(4) {
    X[i] = A[i] * 2.0
    if i < 3 { B[v * 4 + i] = X[i] } else { B[v * 4 + i] = 0.0 }
  }
}""",
    )
    text = str(new)
    assert text.count("X[i] = ") == 1
    assert text.count("if i < 3") == 1
    assert "alloc X: Buffer[(4,), float32]" in text
    np.testing.assert_array_equal(run(old_serial(old), (4,), (8,))[1], run(new, (4,), (8,))[1])


def old_serial(func: S.PrimFunc) -> S.PrimFunc:
    """The same program with its virtual threads as a serial loop."""
    note = func.body
    assert isinstance(note, S.AttrStmt) and isinstance(note.node, tir.IterVar)
    body = S.For(note.node.var, tir.const(0), note.value, S.LoopKind.SERIAL, note.body)
    return S.PrimFunc(func.params, body)


def test_a_loop_whose_length_depends_on_the_thread_is_copied_whole() -> None:
    old, new = apply(
        "inject-virtual-thread",
        """
func @main(B: Buffer[(8,), float32]) {
  attr virtual_thread on axis(v: int32, "thread", "vthread") = 2
  alloc X: Buffer[(1,), float32]
  X[0] = 0.0
  for i in range(v * 2 + 1) { X[0] = X[0] + 1.0 }
  B[v] = X[0]
}""",
    )
    assert "Buffer[(2,), float32]" in str(new)
    np.testing.assert_array_equal(run(old_serial(old), (8,))[0], run(new, (8,))[0])


# --- shared sub-expressions -----------------------------------------------------------------------------------------

REPEATED = """
func @main(A: Buffer[(64,), float32], B: Buffer[(64,), float32]) {
  for i in range(4) {
    for j in range(3) {
      B[i * 4 + j] = A[i * 4 + j] + A[j + i * 4 + 1]
      if i * 4 + j < 9 { B[j + i * 4] = 1.0 }
    }
  }
}"""


def test_repeated_indices_are_named_where_their_variables_are_known() -> None:
    old, new = apply("common-subexpr-elim-tir", REPEATED)
    text = str(new)
    assert text.index("for i in") < text.index("let cse_v") < text.index("for j in")
    assert text.count("i * 4") == 1
    np.testing.assert_array_equal(run(old, (64,), (64,))[1], run(new, (64,), (64,))[1])
    again = find_pass("CommonSubexprElimTIR").bind()(tvm.IRModule({"main": new}))
    assert again["main"] is new


def test_the_order_of_operands_matters_unless_asked_otherwise() -> None:
    plain = str(apply("common-subexpr-elim-tir", REPEATED)[1])
    with PassContext(config={"tir.enable_equiv_terms_in_cse_tir": True}):
        equivalent = str(apply("common-subexpr-elim-tir", REPEATED)[1])
    assert "j + i * 4" not in equivalent
    assert "let cse_v3" in plain
    assert "let cse_v3" not in equivalent
    with PassContext(config={"tir.disable_cse_tir": True}):
        old, new = apply("common-subexpr-elim-tir", REPEATED)
    assert old is new


def test_what_could_fault_stays_behind_its_guard() -> None:
    _, new = apply(
        "common-subexpr-elim-tir",
        """
func @main[n: int32](A: Buffer[(8,), float32], B: Buffer[(n,), float32]) {
  if n > 0 {
    A[8 // n] = 1.0
    A[8 // n + 1] = A[8 // n]
  }
}""",
    )
    assert "let" not in str(new)


# --- rules for intrinsics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divisor", [1, 3, 4])
def test_floor_divisions_become_what_c_has(divisor: int) -> None:
    old, new = apply(
        "lower-intrin",
        f"""
func @main(A: Buffer[(40,), float32], B: Buffer[(40,), float32]) {{
  for i in range(20) {{
    B[i] = A[(i - 10) // {divisor} + 12] + float32((i - 10) % {divisor})
    B[i + 20] = A[i // {divisor}] + float32(i % {divisor})
  }}
}}""",
    )
    assert "//" not in str(new)
    np.testing.assert_array_equal(run(old, (40,), (40,))[1], run(new, (40,), (40,))[1])


@pytest.fixture
def twice() -> Iterator[str]:
    name = "test.twice"
    register_intrin_lowering(name, f=lambda call: call.args[0] * 2.0)
    register_intrin_lowering(name, "c", f=lambda call: call.args[0] + call.args[0])
    yield name
    for target in ("default", "c"):
        del LOWERINGS[target, name]
    del INTRINSICS[name]


@pytest.mark.parametrize(("target", "text"), [("llvm", "fmul"), ("c", "(A[i] + A[i])")])
def test_a_users_intrinsic_is_lowered_for_its_target(twice: str, target: str, text: str) -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: tir.call_intrin("float32", twice, a[i]), name="B")
    function = tvm.build(te.create_schedule(b.op), [a, b], target)
    assert text in function.get_source("ll" if target == "llvm" else "c")
    value, got = RNG.random(8, "float32"), tvm.nd.empty((8,))
    function(tvm.nd.array(value), got)
    np.testing.assert_array_equal(got.numpy(), value * 2)
    with pytest.raises(ConfigError, match="has a lowering of level 10 for 'c' already"):
        register_intrin_lowering(twice, "c", f=lambda call: None)


# --- options of passes ----------------------------------------------------------------------------------------------


def test_a_condition_with_two_branches_leaves_its_loop() -> None:
    old, new = apply(
        "hoist-if-then-else",
        """
func @main[n: int32](A: Buffer[(8,), float32], B: Buffer[(n,), float32]) {
  for i in range(8) { if n < 3 { A[i] = 0.0 } else { A[i] = 1.0 } }
}""",
    )
    text = str(new)
    assert text.index("if n < 3") < text.index("for i")
    assert text.count("for i") == 2
    for n in (2, 5):
        np.testing.assert_array_equal(run(old, (8,), (n,))[0], run(new, (8,), (n,))[0])


def test_thread_loops_keep_their_conditions_unless_asked_otherwise() -> None:
    text = """
func @main[n: int32](A: Buffer[(8,), float32], B: Buffer[(n,), float32]) {
  for i in range(8) thread("threadIdx.x") { if n < 3 { A[i] = 0.0 } }
}"""
    kept = str(apply("hoist-if-then-else", text)[1])
    with PassContext(config={"tir.HoistIfThenElse": {"support_block_scope_hoisting": True}}):
        moved = str(apply("hoist-if-then-else", text)[1])
    assert kept.index("for i") < kept.index("if n")
    assert moved.index("if n") < moved.index("for i")


def test_constant_loops_are_left_whole_until_asked() -> None:
    text = """
func @main(A: Buffer[(64,), float32]) { for i in range(64) { if likely(i < 60) { A[i] = 0.0 } } }"""
    assert "likely" in str(apply("loop-partition", text)[1])
    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": True}}):
        assert "likely" not in str(apply("loop-partition", text)[1])


def test_loops_over_registers_are_unrolled_when_asked() -> None:
    a = S.Buffer("A", (tir.const(4),), tvm.dtype.DType("float32"))
    x = S.Buffer("X", (tir.const(4),), tvm.dtype.DType("float32"), "local")
    i, j = tir.Var("i"), tir.Var("j")
    zero, four = tir.const(0), tir.const(4)
    fill = S.For(i, zero, four, S.LoopKind.SERIAL, S.BufferStore(x, tir.const(0.0), (i,)))
    use = S.For(j, zero, four, S.LoopKind.SERIAL, S.BufferStore(a, tir.BufferLoad(x, (zero,)), (j,)))
    module = tvm.IRModule({"main": S.PrimFunc((a,), S.Allocate(x, S.seq(fill, use)))})
    with PassContext(config={"tir.UnrollLoop": {"unroll_local_access": True}}):
        result = find_pass("UnrollLoop").bind()(module).astext()
    assert "for i" not in result
    assert "for j" in result


# --- where and how much to allocate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_smaller_and_inner_allocations_change_no_result(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, extent = (int(v) for v in rng.integers(0, 4, 3))
    text = f"""
func @main(A: Buffer[(40,), float32], B: Buffer[(16,), float32]) {{
  alloc X: Buffer[(12, 20), float32]
  alloc Y: Buffer[(4,), float32]
  B[0] = 1.0
  for i in range(8) {{
    for j in range({extent + 1}) {{ X[i + {first}, j + {second}] = A[i + j] }}
    for k in range(4) {{ Y[k] = A[i + k] }}
    B[i] = X[i + {first}, {second}] + X[i + {first}, {second + extent}] + Y[i % 4]
  }}
}}"""
    old, moved = apply("plan-and-update-buffer-allocation-location", text)
    assert str(moved).index("for i in") < str(moved).index("alloc Y")
    assert str(moved).index("alloc X") < str(moved).index("for i in")
    small = find_pass("CompactBufferAllocation").bind()(tvm.IRModule({"main": moved}))["main"]
    verify(small)
    assert f"alloc X: Buffer[(8, {extent + 1}), float32]" in str(small)
    want, got = run(old, (40,), (16,)), run(small, (40,), (16,))
    np.testing.assert_array_equal(want[1], got[1])


def test_a_value_carried_between_iterations_keeps_its_buffer_outside() -> None:
    _, moved = apply(
        "plan-and-update-buffer-allocation-location",
        """
func @main(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
  alloc X: Buffer[(2,), float32]
  for i in range(8) {
    X[0] = A[i]
    B[i] = X[0] + X[1]
    X[1] = A[i]
  }
}""",
    )
    assert str(moved).index("alloc X") < str(moved).index("for i in")
